//! `lastbit compare`: what has changed between two versions.

use super::certify::written::records_file;
use super::out_folder::write_whole;
use super::progress::Steps;
use super::{Failure, job_count, kernel, pins, print};
use crate::certify::certificate::{Certificate, KernelText, Status, StratumResult};
use crate::certify::claim::Claim;
use crate::certify::compare::{Changes, Outcome, RecordsOfStrata, Shown, Versions, shared, smallest};
use crate::certify::kernel_text::kernel_text;
use crate::certify::record::{CaseRecord, Record};
use crate::certify::verify::load_intact;
use crate::certify::work::record_of;
use crate::exit_code;
use crate::external::name::Consent;
use crate::finding::{Difference, Path};
use crate::input_error::{InputError, tame};
use crate::number::Ulps;
use crate::ordered::{Flow, ordered};
use crate::subject::Subject;
use crate::subject::attention::battery::{Battery, Part, Size};
use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::Profile;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Attention, file, show, text};
use clap::Args;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path as FilePath, PathBuf};

#[derive(Args)]
pub(super) struct Options {
    /// Two certificates of one battery, the old one first
    #[arg(value_name = "CERT", num_args = 2, conflicts_with = "kernel", required_unless_present = "kernel")]
    certificates: Vec<PathBuf>,
    /// Two kernels, the old one first: each on both paths, on the same cases
    #[arg(long, value_name = "K")]
    kernel: Vec<String>,
    /// Which battery's cases two kernels are run on
    #[arg(long, value_name = "BATTERY", default_value = "standard")]
    battery: Size,
    /// Seed of its random strata
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Hold every case to features of a model, as in `lastbit fuzz --pin`
    #[arg(long, value_name = "NAME=VALUE,...")]
    pin: Vec<String>,
    /// Run two kernels on this case alone
    #[arg(long, value_name = "FILE.case", requires = "kernel")]
    case: Option<PathBuf>,
    /// Where the smallest changed case is saved
    #[arg(long, value_name = "FILE", default_value = "changed.case")]
    save: PathBuf,
    /// Threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    match (&options.kernel[..], &options.certificates[..]) {
        ([old, new], _) => kernels(options, [old, new], consent),
        ([], [old, new]) => certificates(options, [old, new], consent),
        _ => Err(Failure::Usage("--kernel: give it twice, the old kernel first".into())),
    }
}

/// The pairs of two kernels: each beside itself, and both.
struct Pairs {
    old: Pair,
    new: Pair,
    both: Pair,
}

impl Pairs {
    fn new(words: [&str; 2], consent: Consent) -> Result<Pairs, Failure> {
        let old = kernel("--kernel", words[0], consent)?;
        let new = kernel("--kernel", words[1], consent)?;
        let pair = |train, infer| Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false };
        Ok(Pairs { both: pair(old.clone(), new.clone()), old: pair(old.clone(), old), new: pair(new.clone(), new) })
    }
}

fn kernels(options: &Options, [old, new]: [&String; 2], consent: Consent) -> Result<u8, Failure> {
    let pairs = Pairs::new([old, new], consent)?;
    if let Some(path) = &options.case {
        return one_case(&pairs, path);
    }
    let common = Attention { pair: pairs.both.clone(), profile: Profile::Mixed, pins: pins(&options.pin)? };
    common.start().map_err(Failure::Usage)?;
    let battery = Battery::new(options.battery, options.seed, &common);
    let on = |pair: &Pair| Attention { pair: pair.clone(), ..common.clone() };
    let (on_old, on_new) = (on(&pairs.old), on(&pairs.new));
    let parts = Part::ALL.into_iter().filter(|&part| part != Part::Outside);
    let cases: Vec<(Part, u64)> = parts.flat_map(|part| (0..battery.cases(part)).map(move |n| (part, n))).collect();
    let jobs = job_count(options.jobs, &[&pairs.both.train, &pairs.both.infer]);
    let mut changes = Changes::default();
    let mut progress = Steps::new(cases.len(), "cases");
    ordered(
        jobs,
        |n| n >= cases.len() as u64,
        || (on_old.scratch(), on_new.scratch()),
        |n, scratch| {
            let (part, index) = cases[n as usize];
            let trial = shared(&pairs.old, &pairs.new, battery.trial(part, index)?);
            let then = record_of(&on_old, &trial, part, index, &mut scratch.0);
            Some((then, record_of(&on_new, &trial, part, index, &mut scratch.1)))
        },
        |_, records| {
            if let Some((then, now)) = &records {
                changes.add(then, now).expect("both are of one case");
            }
            progress.step(&format!("{} changed", changes.changed.len()));
            Flow::Continue
        },
    );
    progress.finish();
    let mut out = format!("old {old}\nnew {new}\n");
    let text = |words: &str, pair: &Pair| {
        kernel_text(Path::Train, words, &pair.train).map_err(|reason| Failure::Usage(format!("--kernel {words}: {reason}")))
    };
    kernel_changes(&mut out, &text(old, &pairs.old)?, &text(new, &pairs.new)?);
    let _ = writeln!(out, "battery {}, seed {}\n", options.battery, options.seed);
    written(&mut out, &changes);
    if !changes.changed.is_empty() {
        let found = smallest(&pairs.old, &pairs.new, &battery, &changes.changed);
        describe(&mut out, &found, &pairs.both, [old, new], options)?;
    }
    print(&out)?;
    Ok(code(&changes))
}

fn code(changes: &Changes) -> u8 {
    match changes.outcome() {
        Outcome::Changed => exit_code::FINDING,
        Outcome::Nothing => exit_code::NOTHING,
        Outcome::Undecided => exit_code::UNDECIDED,
        Outcome::Equal => exit_code::MATCH,
    }
}

/// Which fields of a kernel are others, and where the two declare to do other calls.
fn kernel_changes(out: &mut String, then: &KernelText, now: &KernelText) {
    for (name, a, b) in [
        ("semantics", &then.contract.semantics, &now.contract.semantics),
        ("numerics", &then.contract.numerics, &now.contract.numerics),
        ("deployment", &then.contract.deployment, &now.contract.deployment),
    ] {
        if a != b {
            let _ = writeln!(out, "      {name} changed");
        }
    }
    let added = now.fields.keys().filter(|name| !then.fields.contains_key(*name));
    let differing: Vec<&String> =
        then.fields.keys().chain(added).filter(|name| then.fields.get(*name) != now.fields.get(*name)).collect();
    let value = |it: &KernelText, name: &String| it.fields.get(name).map_or("none".to_owned(), |value| tame(value, VALUE));
    for name in &differing {
        let _ = writeln!(out, "      {}: {} -> {}", tame(name, VALUE), value(then, name), value(now, name));
    }
    if then.measured_sha256 != now.measured_sha256 {
        out.push_str("      its files changed\n");
    }
    let bounds = ["capabilities.", "conventions.", "declared."];
    if differing.iter().any(|name| bounds.iter().any(|it| name.starts_with(it))) {
        out.push_str("      cases lie inside what both declare: what one of the two does alone is not compared\n");
    }
}

/// Characters of a kernel's field that are shown.
const VALUE: usize = 1000;

/// The strata, the claims and the accuracy.
fn written(out: &mut String, changes: &Changes) {
    for (part, it) in &changes.strata {
        let word = match (it.changed, it.ran, it.stopped) {
            (1.., ..) => "CHANGED",
            (_, 0, _) => "nothing",
            (.., [0, 0]) => "equal",
            _ => "partly",
        };
        let stopped = match it.stopped {
            [0, 0] => String::new(),
            [then, now] => format!("; {then} were refused or ended in a fault, now {now}"),
        };
        let _ = writeln!(
            out,
            "{:9} {word:8} {} of {} cases have other bits; {} elements were compared{stopped}",
            part.name(),
            it.changed,
            it.cases,
            it.elements
        );
    }
    for (claim, [then, now]) in &changes.claims {
        let _ = writeln!(out, "{:18} {then} cases failed it, now {now}", claim.name());
    }
    let [then, now] = changes.accuracy;
    let share = |it: [u64; 4], n: usize| 100.0 * it[n] as f64 / it[0].max(1) as f64;
    let moved = if then == now && changes.worst[0] == changes.worst[1] { "accuracy did not move" } else { "accuracy moved" };
    let _ = writeln!(
        out,
        "{moved}: correctly rounded {:.3} %, now {:.3} %; above {:.3} %, now {:.3} %; below {:.3} %, now {:.3} %; largest error {:.4} of its \
         bound, now {:.4}",
        share(then, 1),
        share(now, 1),
        share(then, 2),
        share(now, 2),
        share(then, 3),
        share(now, 3),
        changes.worst[0],
        changes.worst[1]
    );
    let (cases, changed) = (changes.cases(), changes.changed.len());
    let [then, now] = changes.stopped();
    let _ = match changes.outcome() {
        Outcome::Changed => writeln!(out, "changed: {changed} of {cases} cases have other output bits"),
        Outcome::Nothing => writeln!(out, "nothing was compared: none of {cases} cases ran in both"),
        Outcome::Undecided => writeln!(
            out,
            "undecided: no bit differs in {cases} cases, but {then} were refused or ended in a fault before, and {now} now"
        ),
        Outcome::Equal => writeln!(out, "equal: {cases} cases, the same output bits in each"),
    };
}

fn differences(out: &mut String, difference: &Difference) {
    let Difference { output, dtype, elements, differing, compared, .. } = difference;
    let _ = writeln!(out, "  {output}: {differing} of {compared} elements differ");
    for it in elements {
        let value = |bits: u32| format!("{} {}", dtype.hex(bits), dtype.to_f64(bits));
        let ulps = match it.ulps {
            Ulps::Steps(steps) => format!("{steps} ULP"),
            Ulps::Incomparable => "no distance".to_owned(),
        };
        let _ = writeln!(out, "  {output}[{}]: {} against {}, {ulps}", it.index, value(it.bits[0]), value(it.bits[1]));
    }
}

fn describe(out: &mut String, shown: &Shown, both: &Pair, words: [&str; 2], options: &Options) -> Result<(), Failure> {
    let (case, comment) = match shown {
        Shown::Related => {
            out.push_str("no changed case shows it in its own runs: they differ under a relation alone\n");
            return Ok(());
        }
        Shown::Bits(it) => {
            let (part, index) = it.from;
            let _ = writeln!(
                out,
                "smallest changed case, of `{} {index}`, on the {} path:\n  {}",
                part.name(),
                it.path,
                show::summary(&it.trial.case)
            );
            differences(out, &it.difference);
            (&it.trial.case, format!("{} of two versions differs on the {} path", it.difference.output, it.path))
        }
        Shown::Stop(it) => {
            let (part, index) = it.from;
            let why = tame(&it.why, VALUE);
            let _ = writeln!(
                out,
                "no changed case gives bits in both versions: of `{} {index}`, on the {} path, {why}\n  {}",
                part.name(),
                it.path,
                show::summary(&it.trial.case)
            );
            (&it.trial.case, format!("{why}, on the {} path", it.path))
        }
    };
    // Old in training, new in inference: the file is a case like any other.
    let checks = Checks::Only { oracle: false, pair: true, relation: None };
    let trial = Trial::new(case.clone(), checks);
    let verdict = both.check(&trial, &mut both.scratch());
    write_whole(&options.save, &text::print(&file::file(comment, both, &trial, verdict.headline())))?;
    let [old, new] = words.map(shell_words::quote);
    let saved = options.save.display().to_string();
    let _ = writeln!(
        out,
        "  saved as {saved}\n  lastbit compare --kernel {old} --kernel {new} --case {}",
        shell_words::quote(&saved)
    );
    Ok(())
}

fn one_case(pairs: &Pairs, path: &FilePath) -> Result<u8, Failure> {
    let case = text::load(path)?.case;
    let common = Attention::of(pairs.both.clone());
    let trial = Trial::new(case, Checks::Only { oracle: false, pair: true, relation: None });
    let mut out = format!("case: {}\n", show::summary(&trial.case));
    let (mut changed, mut stopped, mut compared) = (false, false, 0);
    for path in Path::BOTH {
        let versions = Versions { old: &pairs.old, new: &pairs.new, common: &common, path };
        let verdict = versions.check(&trial, &mut ());
        let stops = versions.stops(&trial);
        compared += verdict.compared;
        stopped |= stops.iter().any(Option::is_some);
        // An answer of one version alone is another than none.
        let differs = verdict.failure().is_some() || stops[0].is_some() != stops[1].is_some();
        changed |= differs;
        let word = match (differs, verdict.compared) {
            (true, _) => "changed",
            (false, 0) => "nothing",
            (false, _) => "equal",
        };
        let _ = writeln!(out, "{path}: {word}, {} elements compared", verdict.compared);
        for why in stops.iter().flatten() {
            let _ = writeln!(out, "  {}", tame(why, VALUE));
        }
        verdict.findings.iter().filter_map(|it| it.difference()).for_each(|it| differences(&mut out, it));
    }
    print(&out)?;
    Ok(match (changed, compared, stopped) {
        (true, ..) => exit_code::FINDING,
        (_, 0, _) => exit_code::NOTHING,
        (.., true) => exit_code::UNDECIDED,
        _ => exit_code::MATCH,
    })
}

fn certificates(options: &Options, paths: [&PathBuf; 2], consent: Consent) -> Result<u8, Failure> {
    let [old, new] = [load_intact(paths[0])?, load_intact(paths[1])?].map(|it| it.predicate.lastbit);
    let mut out = String::new();
    for (then, now) in old.kernels.iter().zip(&new.kernels) {
        let _ = writeln!(out, "{:5} {} -> {}", then.side, then.words, now.words);
        kernel_changes(&mut out, then, now);
    }
    out.push('\n');
    for now in &new.claims {
        let then = old.claims.iter().find(|it| it.claim == now.claim).map(|it| it.status);
        // Of a status, not of bits.
        let word = if then == Some(now.status) { "same" } else { "CHANGED" };
        let then = then.map_or("not claimed".to_owned(), |it| it.to_string());
        let _ = writeln!(out, "{:18} {word:8} {then} -> {}", now.claim, now.status);
    }
    for then in old.claims.iter().filter(|then| new.claims.iter().all(|now| now.claim != then.claim)) {
        let _ = writeln!(out, "{:18} CHANGED  {} -> not claimed", then.claim, then.status);
    }
    out.push('\n');
    // A claim that is new and passes, as version_equal does against an earlier certificate, changes nothing.
    let changed_claims = new.claims.iter().filter(|it| it.status != Status::Pass).any(|now| {
        let then = old.claims.iter().find(|it| it.claim == now.claim);
        then.is_none_or(|then| then.status != now.status)
    });
    let of = |it: &Certificate, name: &str| it.strata.iter().find(|it| it.name == name).map(|it| it.cases.clone());
    let mut others: Vec<&str> = old.strata.iter().chain(&new.strata).map(|it| it.name.as_str()).collect();
    others.retain(|name| of(&old, name) != of(&new, name));
    others.sort_unstable();
    others.dedup();
    if !old.battery.asks_as(&new.battery) {
        out.push_str("their batteries are not one: strata cannot be compared; certify both with one battery, seed and pins\n");
        print(&out)?;
        return Ok(if changed_claims { exit_code::FINDING } else { exit_code::UNDECIDED });
    }
    if !others.is_empty() {
        let _ = writeln!(
            out,
            "other cases in {}: blocks, splits or limits of the kernels differ, and cases follow them; `lastbit compare --kernel A \
             --kernel B` runs both on the same\n",
            others.join(", ")
        );
    }
    let code = match records(paths, [&old, &new], &others)? {
        Some(changes) => {
            written(&mut out, &changes);
            if !changes.changed.is_empty() {
                small(&mut out, [&old, &new], &changes, options, consent)?;
            }
            code(&changes)
        }
        None => {
            let code = by_stratum(&mut out, &old, &new, &others);
            out.push_str("which cases changed is in the records beside the certificates, and they are not both there\n");
            code
        }
    };
    print(&out)?;
    let claims_decide = code != exit_code::FINDING;
    Ok(match changed_claims && claims_decide {
        true => exit_code::FINDING,
        false if code == exit_code::MATCH && !others.is_empty() => exit_code::UNDECIDED,
        false => code,
    })
}

/// The strata of two certificates of one battery, as far as these say without the records.
fn by_stratum(out: &mut String, old: &Certificate, new: &Certificate, others: &[&str]) -> u8 {
    let added = new.strata.iter().filter(|now| old.strata.iter().all(|then| then.name != now.name));
    let mut changed = false;
    for name in old.strata.iter().chain(added).map(|it| &it.name).filter(|it| !others.contains(&it.as_str())) {
        let [then, now] = [old, new].map(|it| it.strata.iter().find(|it| it.name == *name));
        let same = then.map(|it| &it.outputs) == now.map(|it| &it.outputs);
        changed |= !same;
        let [elements, cases] = now.map_or([0, 0], |it| [it.elements, it.generated]);
        let word = match (same, elements) {
            (false, _) => "CHANGED",
            (true, 0) => "nothing",
            (true, _) => "equal",
        };
        let _ = writeln!(out, "{name:9} {word:8} {cases} cases, {elements} elements were compared");
    }
    let ran = |it: &Certificate| it.strata.iter().any(|stratum| stratum.elements > 0 || it.results.judged > 0);
    let refused = |it: &StratumResult| !it.skipped.is_empty();
    // A fault fails this claim; a wrong answer does too, and which it was is in the records.
    let faults = |it: &Certificate| it.claims.iter().any(|it| it.claim == Claim::RejectsOrCorrect.name() && it.failed > 0);
    let stops = |it: &Certificate| it.strata.iter().any(refused) || faults(it);
    match changed {
        true => exit_code::FINDING,
        false if !ran(old) || !ran(new) => {
            out.push_str("nothing was compared\n");
            exit_code::NOTHING
        }
        false if stops(old) || stops(new) => {
            out.push_str("undecided: no stratum has other bits, but cases were refused or gave no right answer\n");
            exit_code::UNDECIDED
        }
        false => exit_code::MATCH,
    }
}

/// The case records of a certificate.
fn cases(path: &FilePath) -> Result<impl Iterator<Item = Result<CaseRecord, Failure>> + use<>, Failure> {
    let name = path.display().to_string();
    let opened = File::open(path).map_err(|error| InputError::new(&*name, format!("cannot be read: {error}")))?;
    let lines = BufReader::new(opened).lines().enumerate();
    Ok(lines.filter_map(move |(n, line)| {
        let wrong = |reason: String| Failure::from(InputError::new(&*name, reason).line(n + 1));
        let record = line
            .map_err(|error| wrong(format!("cannot be read: {error}")))
            .and_then(|line| serde_json::from_str(&line).map_err(|error| wrong(format!("is no record: {error}"))));
        match record {
            Ok(Record::Case(record)) => Some(Ok(record)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    }))
}

/// What changed between the records of two certificates, where both have theirs beside them.
fn records(paths: [&PathBuf; 2], certificates: [&Certificate; 2], others: &[&str]) -> Result<Option<Changes>, Failure> {
    let [old, new] = paths.map(|path| records_file(path));
    if !old.is_file() || !new.is_file() {
        return Ok(None);
    }
    // Half a file would compare as far as it goes, and another certificate's would compare as well.
    for (file, certificate) in [&old, &new].into_iter().zip(certificates) {
        let mut strata = RecordsOfStrata::default();
        for record in cases(file)? {
            strata.add(&record?);
        }
        if let Some(stratum) = strata.differs_from(certificate) {
            let reason = format!("its cases of `{stratum}` are not those of the certificate beside it; make both again");
            return Err(InputError::new(&*file.display().to_string(), reason).into());
        }
    }
    let mut changes = Changes::default();
    let same = |it: &Result<CaseRecord, Failure>| it.as_ref().map_or(true, |it| !others.contains(&it.part.as_str()));
    for (then, now) in cases(&old)?.filter(same).zip(cases(&new)?.filter(same)) {
        changes.add(&then?, &now?).map_err(|reason| Failure::Usage(format!("{}, {}: {reason}", old.display(), new.display())))?;
    }
    Ok(Some(changes))
}

/// The smallest changed case, where the kernels are part of this program.
fn small(
    out: &mut String,
    [old, new]: [&Certificate; 2],
    changes: &Changes,
    options: &Options,
    consent: Consent,
) -> Result<(), Failure> {
    let words = |it: &Certificate| it.kernels.each_ref().map(|kernel| kernel.words.clone());
    let ([old_train, old_infer], [new_train, new_infer]) = (words(old), words(new));
    if [&old_train, &old_infer, &new_train, &new_infer].iter().any(|it| !it.starts_with("ref:")) {
        let first = changes.changed.iter().map(|(part, index)| format!("{} {index}", part.name())).take(8);
        let _ =
            writeln!(out, "changed cases: {} ...; --kernel A --kernel B makes one small", first.collect::<Vec<_>>().join(", "));
        return Ok(());
    }
    let pair = |train: &str, infer: &str| -> Result<Pair, Failure> {
        let (train, infer) = (kernel("--kernel", train, consent)?, kernel("--kernel", infer, consent)?);
        Ok(Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false })
    };
    let (then, now) = (pair(&old_train, &old_infer)?, pair(&new_train, &new_infer)?);
    let pins = new.battery.limits.iter().find_map(|it| it.strip_prefix("pins: ")).unwrap_or("none");
    let common = Attention { pair: now.clone(), profile: Profile::Mixed, pins: pins.parse().map_err(Failure::Usage)? };
    let size = new.battery.name.parse().map_err(Failure::Usage)?;
    let battery = Battery::new(size, new.battery.seed, &common);
    let found = smallest(&then, &now, &battery, &changes.changed);
    let path = match &found {
        Shown::Related => return describe(out, &found, &now, ["", ""], options),
        Shown::Bits(it) => it.path,
        Shown::Stop(it) => it.path,
    };
    let (old, new) = match path {
        Path::Train => (old_train, new_train),
        Path::Infer => (old_infer, new_infer),
    };
    let both = Pairs::new([&old, &new], consent)?.both;
    describe(out, &found, &both, [&old, &new], options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certify::statement::Statement;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::reference::Reference;

    fn certificate() -> Certificate {
        let text = include_str!("../../tests/report/failing.json");
        let mut it = Statement::read("failing.json", text).unwrap().predicate.lastbit;
        it.strata.iter_mut().for_each(|it| it.skipped.clear());
        it
    }

    #[test]
    fn certificates_without_records_are_equal_only_where_every_case_ran() {
        let compared = |edit: &dyn Fn([&mut Certificate; 2])| {
            let [mut old, mut new] = [certificate(), certificate()];
            edit([&mut old, &mut new]);
            by_stratum(&mut String::new(), &old, &new, &[])
        };
        assert_eq!(compared(&|_| {}), exit_code::MATCH);
        let refused = |it: &mut Certificate, reason: &str| it.strata[1].skipped = [(reason.into(), 2)].into();
        assert_eq!(compared(&|[old, _]| refused(old, "infer: no")), exit_code::UNDECIDED);
        let faults = |it: &mut Certificate| it.claims.last_mut().expect("claims").failed = 1;
        assert_eq!(compared(&|[_, new]| faults(new)), exit_code::UNDECIDED);
        let changes = |it: &mut Certificate| it.strata[2].outputs = "0".repeat(64);
        assert_eq!(compared(&|[_, new]| (changes(new), faults(new)).1), exit_code::FINDING);
        assert_eq!(compared(&|[_, new]| drop(new.strata.pop())), exit_code::FINDING);
        assert_eq!(compared(&|[old, _]| drop(old.strata.pop())), exit_code::FINDING);
        assert_eq!(compared(&|all| all.into_iter().for_each(|it| it.strata.clear())), exit_code::NOTHING);
        let nothing = |it: &mut Certificate| {
            it.results.judged = 0;
            it.strata.iter_mut().for_each(|it| it.elements = 0);
        };
        assert_eq!(compared(&|all| all.into_iter().for_each(nothing)), exit_code::NOTHING);
    }

    #[test]
    fn fields_that_differ_are_named_and_a_narrower_scope_is_said() {
        let changes = |old: &str, new: &str| {
            let text = |words: &str| {
                let kernel = Implementation::reference(Reference::parse(words).unwrap());
                kernel_text(Path::Train, words, &kernel).unwrap()
            };
            let mut out = String::new();
            kernel_changes(&mut out, &text(old), &text(new));
            out
        };
        assert_eq!(changes("ref:fa2", "ref:fa2"), "");
        let block = changes("ref:aligned,softmax.block=16", "ref:aligned");
        assert!(block.contains("numerics changed\n") && block.contains("softmax.block: 16 -> 64\n"), "{block}");
        assert!(!block.contains("what both declare"), "{block}");
        let anchor = changes("ref:aligned,declared.anchor=top_left", "ref:aligned");
        assert!(anchor.contains("semantics changed\n") && anchor.contains("cases lie inside what both declare"), "{anchor}");
    }
}
