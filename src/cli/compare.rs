//! `lastbit compare`: what has changed between two versions.

use super::certify::written::records_file;
use super::out_folder::write_whole;
use super::progress::Steps;
use super::{Failure, job_count, kernel, pins, print};
use crate::certify::certificate::{Certificate, Status};
use crate::certify::compare::{Changes, OutputsOfStrata, Smallest, Versions, smallest};
use crate::certify::record::{CaseRecord, Record};
use crate::certify::statement::Statement;
use crate::certify::work::case_on;
use crate::exit_code;
use crate::external::name::Consent;
use crate::finding::{Difference, Path};
use crate::input_error::InputError;
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
            let then = case_on(&battery, &on_old, part, index, &mut scratch.0);
            let now = case_on(&battery, &on_new, part, index, &mut scratch.1);
            then.zip(now)
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
    let mut out = format!("old {old}\nnew {new}\nbattery {}, seed {}\n\n", options.battery, options.seed);
    written(&mut out, &changes);
    if !changes.changed.is_empty() {
        let found = smallest(&pairs.old, &pairs.new, &battery, &changes.changed);
        describe(&mut out, found.as_ref(), &pairs.both, [old, new], options)?;
    }
    print(&out)?;
    Ok(code(&changes))
}

fn code(changes: &Changes) -> u8 {
    match (changes.cases(), changes.changed.len()) {
        (0, _) => exit_code::NOTHING,
        (_, 0) => exit_code::MATCH,
        _ => exit_code::FINDING,
    }
}

/// The strata, the claims and the accuracy.
fn written(out: &mut String, changes: &Changes) {
    for (part, it) in &changes.strata {
        let word = if it.changed == 0 { "equal" } else { "CHANGED" };
        let _ = writeln!(
            out,
            "{:9} {word:8} {} of {} cases have other bits; {} elements were compared",
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
    let _ = match changed {
        0 => writeln!(out, "equal: {cases} cases, the same output bits in each"),
        _ => writeln!(out, "changed: {changed} of {cases} cases have other output bits"),
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

fn describe(out: &mut String, found: Option<&Smallest>, both: &Pair, words: [&str; 2], options: &Options) -> Result<(), Failure> {
    let Some(it) = found else {
        out.push_str("no changed case shows it in its own runs: they differ under a relation alone\n");
        return Ok(());
    };
    let (part, index) = it.from;
    let _ = writeln!(
        out,
        "smallest changed case, of `{} {index}`, on the {} path:\n  {}",
        part.name(),
        it.path,
        show::summary(&it.trial.case)
    );
    differences(out, &it.difference);
    // Old in training, new in inference: the file is a case like any other.
    let checks = Checks::Only { oracle: false, pair: true, relation: None };
    let trial = Trial::new(it.trial.case.clone(), checks);
    let verdict = both.check(&trial, &mut both.scratch());
    let comment = format!("{} of two versions differs on the {} path", it.difference.output, it.path);
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
    let (mut changed, mut compared) = (false, 0);
    for path in Path::BOTH {
        let versions = Versions { old: &pairs.old, new: &pairs.new, common: &common, path };
        let verdict = versions.check(&trial, &mut ());
        compared += verdict.compared;
        changed |= verdict.failure().is_some();
        let word = if verdict.failure().is_some() { "changed" } else { "equal" };
        let _ = writeln!(out, "{path}: {word}, {} elements compared", verdict.compared);
        verdict.findings.iter().filter_map(|it| it.difference()).for_each(|it| differences(&mut out, it));
    }
    print(&out)?;
    Ok(match (compared, changed) {
        (0, _) => exit_code::NOTHING,
        (_, true) => exit_code::FINDING,
        (_, false) => exit_code::MATCH,
    })
}

fn certificates(options: &Options, paths: [&PathBuf; 2], consent: Consent) -> Result<u8, Failure> {
    let [old, new] = [Statement::load(paths[0])?, Statement::load(paths[1])?].map(|it| it.predicate.lastbit);
    let mut out = String::new();
    for (then, now) in old.kernels.iter().zip(&new.kernels) {
        let _ = writeln!(out, "{:5} {} -> {}", then.side, then.words, now.words);
        for (name, a, b) in [
            ("semantics", &then.contract.semantics, &now.contract.semantics),
            ("numerics", &then.contract.numerics, &now.contract.numerics),
            ("deployment", &then.contract.deployment, &now.contract.deployment),
        ] {
            if a != b {
                let _ = writeln!(out, "      {name} changed");
            }
        }
        for (name, value) in &now.fields {
            let before = then.fields.get(name);
            if before != Some(value) {
                let _ = writeln!(out, "      {name}: {} -> {value}", before.map_or("none", String::as_str));
            }
        }
        if then.measured_sha256 != now.measured_sha256 {
            out.push_str("      its files changed\n");
        }
    }
    out.push('\n');
    for now in &new.claims {
        let then = old.claims.iter().find(|it| it.claim == now.claim).map(|it| it.status);
        let word = if then == Some(now.status) { "equal" } else { "CHANGED" };
        let then = then.map_or("not claimed".to_owned(), |it| it.to_string());
        let _ = writeln!(out, "{:18} {word:8} {then} -> {}", now.claim, now.status);
    }
    out.push('\n');
    if !old.battery.has_cases_of(&new.battery) {
        out.push_str(
            "their batteries are not the same cases: strata cannot be compared; certify both with one battery and seed\n",
        );
        print(&out)?;
        return Ok(exit_code::UNDECIDED);
    }
    let changed_claims = new.claims.iter().any(|now| {
        old.claims
            .iter()
            .find(|it| it.claim == now.claim)
            .is_none_or(|then| then.status != now.status && now.status != Status::Pass)
    });
    let code = match records(paths, [&old, &new])? {
        Some(changes) => {
            written(&mut out, &changes);
            if !changes.changed.is_empty() {
                small(&mut out, [&old, &new], &changes, options, consent)?;
            }
            code(&changes)
        }
        None => {
            let mut equal = true;
            for now in &new.strata {
                let same = old.strata.iter().any(|it| it.name == now.name && it.outputs == now.outputs);
                equal &= same;
                let word = if same { "equal" } else { "CHANGED" };
                let _ = writeln!(out, "{:9} {word:8} {} cases, {} elements were compared", now.name, now.generated, now.elements);
            }
            out.push_str("which cases changed is in the records beside the certificates, and they are not both there\n");
            if equal { exit_code::MATCH } else { exit_code::FINDING }
        }
    };
    print(&out)?;
    Ok(if code == exit_code::MATCH && changed_claims { exit_code::FINDING } else { code })
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
fn records(paths: [&PathBuf; 2], certificates: [&Certificate; 2]) -> Result<Option<Changes>, Failure> {
    let [old, new] = paths.map(|path| records_file(path));
    if !old.is_file() || !new.is_file() {
        return Ok(None);
    }
    // Half a file would compare as far as it goes, and another certificate's would compare as well.
    for (file, certificate) in [&old, &new].into_iter().zip(certificates) {
        let mut outputs = OutputsOfStrata::default();
        for record in cases(file)? {
            outputs.add(&record?);
        }
        if let Some(stratum) = outputs.differs_from(certificate) {
            let reason = format!("its cases of `{stratum}` are not those of the certificate beside it; make both again");
            return Err(InputError::new(&*file.display().to_string(), reason).into());
        }
    }
    let mut changes = Changes::default();
    for (then, now) in cases(&old)?.zip(cases(&new)?) {
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
    let pins = new.battery.limits.iter().find_map(|it| it.strip_prefix("pins: ")).unwrap_or_default();
    let common = Attention { pair: now.clone(), profile: Profile::Mixed, pins: pins.parse().map_err(Failure::Usage)? };
    let size = new.battery.name.parse().map_err(Failure::Usage)?;
    let battery = Battery::new(size, new.battery.seed, &common);
    let Some(found) = smallest(&then, &now, &battery, &changes.changed) else {
        return describe(out, None, &now, ["", ""], options);
    };
    let (old, new) = match found.path {
        Path::Train => (old_train, new_train),
        Path::Infer => (old_infer, new_infer),
    };
    let both = Pairs::new([&old, &new], consent)?.both;
    describe(out, Some(&found), &both, [&old, &new], options)
}
