//! `lastbit verify`: whether a certificate holds.

use super::certify::job::{Job, Ready};
use super::certify::written::{records_file, signature_file};
use super::progress::Steps;
use super::{Failure, job_count, note, print};
use crate::certify::build::{Asked, Earlier, build};
use crate::certify::certificate::Certificate;
use crate::certify::claim::Claim;
use crate::certify::record::Record;
use crate::certify::statement::Statement;
use crate::certify::verify::{
    intact, load_intact, named_previous, same_battery, same_content, same_counterexamples, same_kernel, same_previous,
};
use crate::certify::work::{Unit, Work};
use crate::certify::{sign, waiver};
use crate::exit_code;
use crate::external::name::Consent;
use crate::input_error::InputError;
use crate::ordered::{Flow, ordered};
use crate::source::{Source, Stream};
use crate::subject::attention::check::Scratch;
use clap::Args;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Options {
    /// The certificate
    #[arg(value_name = "CERT")]
    certificate: PathBuf,
    /// Share of the cases that is run again, drawn at random
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%", conflicts_with = "all")]
    sample: f64,
    /// Run everything again, and write the certificate anew to compare it
    #[arg(long)]
    all: bool,
    /// Draws the sample [default: another each time]
    #[arg(long, value_name = "S")]
    sample_seed: Option<u64>,
    /// The public key that it must be signed with
    #[arg(long, value_name = "KEY.pub")]
    signer: Option<PathBuf>,
    /// The training kernel, where it is one from outside: a file starts no program
    #[arg(long, value_name = "K")]
    train: Option<String>,
    /// The inference kernel, likewise
    #[arg(long, value_name = "K")]
    infer: Option<String>,
    /// The captured tensors, where the certificate has such a stratum
    #[arg(long, value_name = "FILE.safetensors")]
    data: Option<PathBuf>,
    /// The earlier certificate, where it was made with one: without it, whether bits changed since then is not looked at, and the exit code is 3
    #[arg(long, value_name = "CERT")]
    previous: Option<PathBuf>,
    /// Threads [default: one for each core; more with a kernel in another process, which is waited for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    let share = number.filter(|it| text.ends_with('%') && *it > 0.0 && *it <= 100.0);
    share.map(|it| it / 100.0).ok_or_else(|| format!("`{text}` is no share; write a percentage above 0, e.g. 1% or 0.1%"))
}

/// A step of a verification: what held, or what does not.
type Step = Result<String, String>;

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let name = options.certificate.display().to_string();
    let read = std::fs::read(&options.certificate);
    let bytes = read.map_err(|error| InputError::new(&*name, format!("cannot be read: {error}")))?;
    let mut report = Report { name, status: String::new(), open: false };
    match verify(options, consent, &bytes, &mut report)? {
        Ok(line) => {
            report.held(&line)?;
            let but = if report.open { format!(" but for {}", Claim::VersionEqual) } else { String::new() };
            print(&format!("{}: verified{but}: {}\n", report.name, report.status))?;
            Ok(if report.open { exit_code::UNDECIDED } else { exit_code::MATCH })
        }
        Err(reason) => {
            print(&format!("{}: DOES NOT VERIFY: {reason}\n", report.name))?;
            Ok(exit_code::FINDING)
        }
    }
}

struct Report {
    name: String,
    /// What the certificate says: that it verifies is no pass.
    status: String,
    /// Whether the earlier certificate was not there to be looked at.
    open: bool,
}

impl Report {
    fn held(&mut self, line: &str) -> Result<(), Failure> {
        print(&format!("{line}\n"))
    }
}

/// All steps; the last line, or the first thing that does not hold. Failures are what keeps it from being looked at.
fn verify(options: &Options, consent: Consent, bytes: &[u8], report: &mut Report) -> Result<Step, Failure> {
    macro_rules! hold {
        ($step:expr) => {
            match $step {
                Ok(line) => report.held(&line)?,
                Err(reason) => return Ok(Err(reason)),
            }
        };
    }
    // A byte that is changed may leave no certificate to read: the signature comes first.
    hold!(signature(options, bytes)?);
    let text = String::from_utf8_lossy(bytes);
    let statement = match Statement::read(&report.name, &text) {
        Ok(statement) => statement,
        Err(error) => return Ok(Err(format!("it cannot be read: {error}"))),
    };
    let certificate = &statement.predicate.lastbit;
    report.status.clone_from(&certificate.status);
    hold!(intact(&statement, &text).map(|()| format!("seal and digest hold: {}", certificate.digest)));
    let own = env!("CARGO_PKG_VERSION");
    if certificate.lastbit != own {
        return Err(Failure::Usage(format!(
            "{}: was made by lastbit {}; this is {own}: use that one",
            report.name, certificate.lastbit
        )));
    }
    let today = waiver::now();
    if let Some(it) = certificate.waivers.iter().find(|it| *it.until < today[..10]) {
        return Ok(Err(format!("the waiver of {} ended on {} ({})", it.claim, it.until, it.issue)));
    }
    let job = job(options, certificate, &report.name)?;
    let ready = job.ready(consent)?;
    for (certified, found) in certificate.kernels.iter().zip(&ready.kernels) {
        hold!(same_kernel(certified, found).map(|()| format!("{} kernel: {}, as certified", found.side, certified.words)));
    }
    hold!(same_battery(certificate, &ready.work).map(|()| {
        let battery = &certificate.battery;
        format!("battery {} {}, seed {}: derived again, the same", battery.name, battery.version, battery.seed)
    }));
    if let Some(previous) = &certificate.previous {
        report.open = options.previous.is_none();
        hold!(match &options.previous {
            Some(path) => {
                let earlier = load_intact(path)?.predicate.lastbit;
                same_previous(certificate, &earlier).map(|()| format!("earlier certificate: {}, as named", earlier.digest))
            }
            None => Ok(format!(
                "the earlier certificate, {}, was not given: whether bits changed since then is not looked at; name it with --previous",
                previous.digest
            )),
        });
    }
    let file = records_file(&options.certificate);
    let there = file.is_file();
    if there {
        hold!(
            follows(options, certificate, &ready, &file)?
                .map(|()| format!("its claims follow from the records in {}", file.display()))
        );
    } else if !options.all {
        return Err(Failure::Usage(format!(
            "{}: is not there: a sample is compared with the records that stand beside a certificate; --all does without",
            file.display()
        )));
    }
    hold!(
        same_counterexamples(certificate, &ready.work)
            .map(|()| { format!("{} counterexamples have their digests, and fail again", certificate.counterexamples.len()) })
    );
    if options.all { everything(options, certificate, &ready, there.then_some(&*file)) } else { sample(options, &ready, &file) }
}

fn signature(options: &Options, bytes: &[u8]) -> Result<Step, Failure> {
    let file = signature_file(&options.certificate);
    if !file.exists() {
        return match &options.signer {
            Some(_) => Ok(Err(format!("it is not signed: there is no {}", file.display()))),
            None => Ok(Ok("unsigned: it resists accident only".to_owned())),
        };
    }
    match sign::verify(bytes, &file, options.signer.as_deref()) {
        Ok(key) if options.signer.is_some() => Ok(Ok(format!("signed by {key}"))),
        Ok(key) => Ok(Ok(format!("signed by {key}; --signer says whose key that must be"))),
        // A key file that is none says nothing about the certificate.
        Err(error) if options.signer.as_ref().is_some_and(|it| it.display().to_string() == error.file) => Err(error.into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// What was asked for, as the certificate says it.
fn job(options: &Options, certificate: &Certificate, name: &str) -> Result<Job, Failure> {
    let wrong = |field: &str, reason: String| Failure::from(InputError::new(name, reason).field(field));
    let battery = &certificate.battery;
    let pins = battery.limits.iter().find_map(|it| it.strip_prefix("pins: ")).unwrap_or("none");
    let against = battery.claims.iter().any(|it| it == "version_equal");
    if options.previous.is_some() && certificate.previous.is_none() {
        return Err(Failure::Usage(format!("--previous: {name} was made without one; leave it out")));
    }
    if battery.strata.iter().any(|(part, cases)| part == "captured" && *cases > 0) && options.data.is_none() {
        return Err(Failure::Usage(format!("{name}: has a stratum of captured tensors; name their file with --data")));
    }
    let [train, infer] = certificate.kernels.each_ref().map(|it| &it.words);
    let command = format!("lastbit verify {}", shell_words::quote(name));
    super::fuzz::must_name([&options.train, &options.infer], [train, infer], name, command)?;
    Ok(Job {
        train: options.train.clone().unwrap_or_else(|| train.clone()),
        infer: options.infer.clone().unwrap_or_else(|| infer.clone()),
        battery: battery.name.parse().map_err(|reason| wrong("battery.name", reason))?,
        seed: battery.seed,
        pins: pins.parse().map_err(|reason| wrong("battery.limits", reason))?,
        data: options.data.clone(),
        against,
    })
}

fn asked<'a>(options: &Options, certificate: &Certificate, ready: &'a Ready, jobs: usize) -> Result<Asked<'a>, Failure> {
    let given = options.previous.as_deref().map(load_intact).transpose()?;
    let given = given.map(|it| Earlier::There(Box::new(it.predicate.lastbit)));
    Ok(Asked {
        work: &ready.work,
        kernels: ready.kernels.clone(),
        floor: certificate.power.mutants.floor,
        waivers: certificate.waivers.clone(),
        previous: given.or_else(|| named_previous(certificate)),
        jobs,
    })
}

fn read_records(file: &Path) -> Result<impl Iterator<Item = Result<Record, String>> + use<>, Failure> {
    let name = file.display().to_string();
    let opened = File::open(file).map_err(|error| InputError::new(&*name, format!("cannot be read: {error}")))?;
    Ok(BufReader::new(opened).lines().enumerate().map(move |(n, line)| {
        let at = |reason: String| format!("{name}:{}: {reason}", n + 1);
        let line = line.map_err(|error| at(format!("cannot be read: {error}")))?;
        serde_json::from_str(&line).map_err(|error| at(format!("is no record: {error}")))
    }))
}

/// Whether the certificate is what its records make.
fn follows(options: &Options, certificate: &Certificate, ready: &Ready, file: &Path) -> Result<Result<(), String>, Failure> {
    let asked = asked(options, certificate, ready, 0)?;
    let again = build(&asked, read_records(file)?);
    Ok(again.map_err(|refused| refused.to_string()).and_then(|again| {
        same_content(certificate, &again.predicate.lastbit, false)
            .map_err(|it| format!("it does not follow from its records: {it}"))
    }))
}

/// Runs some units with `run`, each beside its record: the first that disagrees.
fn again(
    ready: &Ready,
    jobs: usize,
    units: &[u64],
    recorded: &[Option<Record>],
    run: impl Fn(Unit, Option<&Record>, &mut Scratch) -> Record + Sync,
) -> Result<Vec<Record>, String> {
    let work = &ready.work;
    let mut progress = Steps::new(units.len(), "units");
    let mut made = Vec::new();
    let mut result = Ok(());
    ordered(
        jobs,
        |n| n >= units.len() as u64,
        || work.scratch(),
        |n, scratch| run(work.unit(units[n as usize]), recorded.get(n as usize).and_then(Option::as_ref), scratch),
        |n, record| {
            progress.step("as recorded");
            if let Some(then) = recorded.get(n as usize).and_then(Option::as_ref)
                && *then != record
            {
                result = Err(disagreement(work.unit(units[n as usize]), then, &record));
                return Flow::Stop;
            }
            made.push(record);
            Flow::Continue
        },
    );
    progress.finish();
    result.map(|()| made)
}

fn disagreement(unit: Unit, then: &Record, now: &Record) -> String {
    let what = match (then, now) {
        (Record::Case(then), Record::Case(now)) if then.outputs != now.outputs => {
            format!("its output bits have the digest {}, recorded is {}", now.outputs, then.outputs)
        }
        _ => {
            let line = |it: &Record| crate::input_error::shorten(&serde_json::to_string(it).unwrap_or_default());
            format!("it gives {}, recorded is {}", line(now), line(then))
        }
    };
    match unit {
        Unit::Case(part, index) => format!("the case `{} {index}` disagrees: {what}", part.name()),
        Unit::Mutant(mutant) => format!("the planted fault {mutant} disagrees: {what}"),
        Unit::Control(claim) => format!("the negative control of {claim} disagrees: {what}"),
    }
}

/// Units drawn at random, in order: a share of the cases, of the planted faults and of the controls, one of each at least.
fn drawn(work: &Work, share: f64, seed: u64) -> Vec<u64> {
    let mut source = Stream::new(seed, 0);
    let mut all = Vec::new();
    let kinds: [fn(Unit) -> bool; 3] =
        [|unit| matches!(unit, Unit::Case(..)), |unit| matches!(unit, Unit::Mutant(_)), |unit| matches!(unit, Unit::Control(_))];
    for is_of_kind in kinds {
        let mut units: Vec<u64> = (0..work.units()).filter(|&n| is_of_kind(work.unit(n))).collect();
        let count = ((units.len() as f64 * share).ceil() as usize).min(units.len());
        for n in 0..count {
            let other = n + source.below((units.len() - n) as u64) as usize;
            units.swap(n, other);
        }
        all.extend_from_slice(&units[..count]);
    }
    all.sort_unstable();
    all
}

fn sample(options: &Options, ready: &Ready, file: &Path) -> Result<Step, Failure> {
    let work = &ready.work;
    // What is drawn must not be known to whoever made the certificate.
    let seed = options.sample_seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |it| it.as_nanos() as u64) ^ u64::from(std::process::id()) << 32
    });
    let units = drawn(work, options.sample, seed);
    let mut recorded = Vec::new();
    for (n, record) in read_records(file)?.enumerate() {
        if units.binary_search(&(n as u64)).is_ok() {
            recorded.push(Some(record.map_err(Failure::Usage)?));
        }
    }
    let pair = &work.battery.attention.pair;
    let jobs = job_count(options.jobs, &[&pair.train, &pair.infer]);
    note(&format!("--sample-seed {seed} draws the same sample"));
    let total = work.units();
    let made = again(ready, jobs, &units, &recorded, |unit, recorded, scratch| match recorded {
        Some(recorded) => work.run_beside(unit, recorded, scratch),
        None => work.run(unit, scratch),
    });
    Ok(made.map(|made| {
        let hunts = made.iter().filter(|it| !matches!(it, Record::Case(_))).count();
        format!(
            "{} cases and {hunts} planted faults and controls of {total} units run again (sample seed {seed}), all as recorded",
            made.len() - hunts
        )
    }))
}

fn everything(options: &Options, certificate: &Certificate, ready: &Ready, file: Option<&Path>) -> Result<Step, Failure> {
    let recorded: Vec<Option<Record>> = match file {
        Some(file) => read_records(file)?.map(|it| it.map(Some).map_err(Failure::Usage)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let pair = &ready.work.battery.attention.pair;
    let jobs = job_count(options.jobs, &[&pair.train, &pair.infer]);
    let units: Vec<u64> = (0..ready.work.units()).collect();
    let made = match again(ready, jobs, &units, &recorded, |unit, _, scratch| ready.work.run(unit, scratch)) {
        Ok(made) => made,
        Err(reason) => return Ok(Err(reason)),
    };
    let count = made.len();
    let again = build(&asked(options, certificate, ready, jobs)?, made.into_iter().map(Ok));
    let same =
        again.map_err(|refused| refused.to_string()).and_then(|again| same_content(certificate, &again.predicate.lastbit, true));
    Ok(same
        .map(|()| format!("all {count} units run again, and the certificate made anew: the same, apart from where and when"))
        .map_err(|it| format!("made anew it is another: {it}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::Attention;
    use crate::subject::attention::battery::{Battery, Size};
    use crate::subject::attention::check::Pair;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::reference::Reference;

    #[test]
    fn a_sample_has_cases_planted_faults_and_controls() {
        let kernel = Implementation::reference(Reference::default());
        let pair = Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Off, captured: None, witness: false };
        let work = Work::new(Battery::new(Size::Quick, 1, &Attention::of(pair)), Claim::ALL.to_vec());
        let counted = |share, seed| {
            let units = drawn(&work, share, seed);
            assert!(units.is_sorted_by(|a, b| a < b));
            let of = |is: fn(Unit) -> bool| units.iter().filter(|&&n| is(work.unit(n))).count();
            let cases = of(|it| matches!(it, Unit::Case(..)));
            [cases, of(|it| matches!(it, Unit::Mutant(_))), of(|it| matches!(it, Unit::Control(_)))]
        };
        assert_eq!(counted(1e-9, 1), [1, 1, 1]);
        let [cases, faults, controls] = counted(1.0, 1);
        assert_eq!((cases + faults + controls) as u64, work.units());
        assert_eq!(counted(0.5, 2), [cases, faults, controls].map(|it| it.div_ceil(2)));
        assert_ne!(drawn(&work, 0.1, 1), drawn(&work, 0.1, 2));
    }
}
