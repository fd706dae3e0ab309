//! A certificate as files, and as a table on stdout.

use super::Format;
use super::journal::Checkpoint;
use crate::certify::build::{Asked, Earlier, Refused, build};
use crate::certify::certificate::{Environment, KernelText, Status, Waiver};
use crate::certify::counterexample::FOLDER;
use crate::certify::record::Record;
use crate::certify::statement::Statement;
use crate::certify::verify::load_intact;
use crate::certify::work::Work;
use crate::certify::{sign, waiver};
use crate::cli::out_folder::write_whole;
use crate::cli::places::{Named, STDOUT, folder_of, must_be_apart, must_take_file, of_kernel};
use crate::cli::{Failure, note, power, print};
use crate::exit_code;
use crate::subject::attention::battery::Size;
use clap::Args;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// On which terms a certificate is written: nothing of this changes what is run.
#[derive(Args)]
pub(in crate::cli) struct Terms {
    /// An earlier certificate: adds the claim version_equal
    #[arg(long, value_name = "CERT")]
    pub(in crate::cli) previous: Option<PathBuf>,
    /// Share of the planted faults that must be found: below it no claim of a certificate passes [default: 1.0; quick 0.8]; exit 1 (power)
    #[arg(long, value_name = "SHARE", value_parser = power::share)]
    pub(in crate::cli) floor: Option<f64>,
    /// Accepted failures: claim, issue, until
    #[arg(long, value_name = "FILE.toml")]
    waivers: Option<PathBuf>,
    /// Sign with this SSH private key; the signature is FILE.sig
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
}

/// The terms, read.
pub(in crate::cli) struct Loaded {
    previous: Option<Earlier>,
    floor: f64,
    waivers: Vec<Waiver>,
    key: Option<sign::Key>,
    /// Where they are from.
    files: Vec<Named>,
}

impl Terms {
    /// The files that they name.
    pub(in crate::cli) fn files(&self) -> Vec<Named> {
        let named = [("--previous", &self.previous), ("--waivers", &self.waivers), ("--sign", &self.sign)];
        named.into_iter().filter_map(|(option, path)| Some(Named::new(option, path.as_ref()?))).collect()
    }

    /// The options that are given.
    pub(in crate::cli) fn given(&self) -> impl Iterator<Item = &'static str> {
        let floor = self.floor.is_some().then_some("--floor");
        let waivers = self.waivers.is_some().then_some("--waivers");
        let sign = self.sign.is_some().then_some("--sign");
        floor.into_iter().chain(waivers).chain(sign)
    }

    /// Whether something beside the floor is given.
    pub(in crate::cli) fn beyond_floor(&self) -> bool {
        self.previous.is_some() || self.waivers.is_some() || self.sign.is_some()
    }

    /// Whether anything is given.
    pub(in crate::cli) fn any(&self) -> bool {
        self.floor.is_some() || self.beyond_floor()
    }

    /// Reads what they name.
    ///
    /// # Errors
    /// A file that cannot be read, or is not what it should be.
    pub(in crate::cli) fn load(&self, battery: Size) -> Result<Loaded, Failure> {
        let floor = self.floor.unwrap_or(match battery {
            // Six hundred random cases do not find what needs thousands.
            Size::Quick => 0.8,
            Size::Standard | Size::Release => 1.0,
        });
        Ok(Loaded {
            previous: self
                .previous
                .as_deref()
                .map(load_intact)
                .transpose()?
                .map(|it| Earlier::There(Box::new(it.predicate.lastbit))),
            floor,
            waivers: self.waivers.as_deref().map_or(Ok(Vec::new()), waiver::load)?,
            key: self.sign.as_deref().map(sign::Key::load).transpose()?,
            files: self.files(),
        })
    }
}

/// Why there is no certificate.
pub(in crate::cli) enum Unwritten {
    /// The records are not those of the work.
    Records(Failure),
    /// The terms or the place. The records are good, and on other terms they make a certificate.
    Terms(Failure),
}

impl From<Failure> for Unwritten {
    fn from(failure: Failure) -> Self {
        Unwritten::Terms(failure)
    }
}

impl From<Unwritten> for Failure {
    fn from(unwritten: Unwritten) -> Self {
        let (Unwritten::Records(failure) | Unwritten::Terms(failure)) = unwritten;
        failure
    }
}

impl From<Refused> for Unwritten {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Records(reason) => Unwritten::Records(Failure::Usage(reason)),
            Refused::Waiver(reason) => Unwritten::Terms(Failure::Usage(reason)),
        }
    }
}

/// Where the battery ran.
pub(in crate::cli) fn environment(work: &Work, runs: &[&Checkpoint]) -> Environment {
    let pair = &work.battery.attention.pair;
    Environment {
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        processor: processor(),
        devices: [&pair.train, &pair.infer].map(|it| it.kernel.identity().device),
        programs_sha256: runs.iter().flat_map(|it| &it.programs).cloned().collect(),
        shards: runs.len() as u32,
        threads: runs.iter().map(|it| it.threads).max().unwrap_or(0),
        finished: crate::certify::waiver::now(),
        seconds: runs.iter().map(|it| it.seconds).sum(),
    }
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("unknown".to_owned(), |line| line.trim_start_matches([' ', '\t', ':']).to_owned())
}

/// Whether a certificate can be put there at all, with what belongs beside it: asked before hours are spent on it.
///
/// # Errors
/// There is no such folder, or something else has the name.
pub(in crate::cli) fn must_have_folder(output: &Path) -> Result<(), Failure> {
    if output == Path::new(STDOUT) {
        let reason = "is no file, and records stand beside a certificate; name a file; --format json prints the certificate too";
        return Err(Failure::Usage(format!("--output {STDOUT}: {reason}")));
    }
    for Named { path, .. } in written_files(output) {
        must_take_file("--output", &path)?;
    }
    let cases = folder_of(output).join(FOLDER);
    match cases.exists() && !cases.is_dir() {
        true => Err(Failure::Usage(format!(
            "--output {}: {} is in the way of the folder of counterexamples; move it, or name another folder",
            output.display(),
            cases.display()
        ))),
        false => Ok(()),
    }
}

/// A certificate's file, and those beside it.
pub(in crate::cli) fn written_files(output: &Path) -> Vec<Named> {
    vec![
        Named::new("--output", output),
        Named::new("--output, the records", records_file(output)),
        Named::new("--output, the signature", signature_file(output)),
    ]
}

/// Makes the certificate of all records, writes it with what belongs beside it, and prints it.
///
/// # Errors
/// Records that are not those of the work, waivers that are not needed, files that cannot be written.
#[allow(clippy::too_many_arguments)] // each is another thing
pub(in crate::cli) fn write<I: Iterator<Item = Result<Record, String>>>(
    work: &Work,
    kernels: [KernelText; 2],
    terms: Loaded,
    output: &Path,
    records: impl Fn() -> Result<I, Failure>,
    environment: Environment,
    jobs: usize,
    format: Format,
) -> Result<u8, Unwritten> {
    let of_kernels = kernels.iter().flat_map(|it| of_kernel(&format!("--{}", it.side), &it.words));
    let read: Vec<Named> = terms.files.into_iter().chain(of_kernels).collect();
    must_be_apart(&read, &written_files(output))?;
    let asked = Asked { work, kernels, floor: terms.floor, waivers: terms.waivers, previous: terms.previous, jobs };
    let statement = build(&asked, records().map_err(Unwritten::Records)?)?.with_environment(environment);
    let certificate = &statement.predicate.lastbit;
    let text = statement.print();
    let folder = folder_of(output);
    if !certificate.counterexamples.is_empty() {
        let cases = folder.join(FOLDER);
        std::fs::create_dir_all(&cases)
            .map_err(|error| Failure::Output(format!("cannot create {}: {error}; choose another place", cases.display())))?;
        for it in &certificate.counterexamples {
            write_whole(&cases.join(&it.file), &it.text)?;
        }
    }
    let mut lines = String::new();
    for record in records().map_err(Unwritten::Records)? {
        let record = record.map_err(|reason| Unwritten::Records(Failure::Usage(reason)))?;
        lines.push_str(&serde_json::to_string(&record).expect("a record is JSON"));
        lines.push('\n');
    }
    write_whole(&records_file(output), &lines)?;
    write_whole(output, &text)?;
    let signature = signature_file(output);
    match &terms.key {
        Some(key) => write_whole(&signature, &key.sign(text.as_bytes()).map_err(Failure::from)?)?,
        // One of an earlier certificate would not be its own.
        None => drop(std::fs::remove_file(signature)),
    }
    match format {
        Format::Json => print(&text)?,
        Format::Human => print(&human(&statement, output))?,
    }
    if terms.key.is_none() {
        note("unsigned: it resists accident only; --sign KEY signs it");
    }
    Ok(code(&statement))
}

/// The records beside a certificate: what a sample of `verify` is drawn from.
pub(in crate::cli) fn records_file(certificate: &Path) -> PathBuf {
    match certificate.extension() {
        Some(extension) if extension == "json" => certificate.with_extension("cases.jsonl"),
        // `x.old` and `x.new` are two certificates.
        _ => {
            let mut name = certificate.as_os_str().to_owned();
            name.push(".cases.jsonl");
            name.into()
        }
    }
}

/// The signature beside a certificate, where `ssh-keygen -Y sign` puts it too.
pub(in crate::cli) fn signature_file(certificate: &Path) -> PathBuf {
    let mut name = certificate.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

/// The exit code of a certificate.
pub(in crate::cli) fn code(statement: &Statement) -> u8 {
    let claims = &statement.predicate.lastbit.claims;
    if !statement.predicate.failed_tests.is_empty() {
        exit_code::FINDING
    } else if claims.iter().all(|it| it.elements == 0) {
        exit_code::NOTHING
    } else if claims.iter().any(|it| it.status == Status::Unverifiable) {
        exit_code::UNDECIDED
    } else {
        exit_code::MATCH
    }
}

fn human(statement: &Statement, output: &Path) -> String {
    let certificate = &statement.predicate.lastbit;
    let mut out = String::new();
    let battery = &certificate.battery;
    let _ = writeln!(out, "battery {} {}, seed {}", battery.name, battery.version, battery.seed);
    for kernel in &certificate.kernels {
        let _ = writeln!(out, "{:5} {}", kernel.side, kernel.words);
    }
    out.push('\n');
    for claim in &certificate.claims {
        let waived = claim.waived.as_ref().map_or(String::new(), |issue| format!(" (waived: {issue})"));
        let _ = writeln!(out, "{:18} {:12} {}{waived}", claim.claim, claim.status.to_string(), claim.reason);
    }
    out.push('\n');
    let bound = &certificate.bound;
    let power = &certificate.power;
    let share = |[capable, sensitive]: &[u64; 2]| format!("{sensitive} of {capable}");
    let sensitive: Vec<String> = power.order_sensitive.iter().map(|(dtype, it)| format!("{dtype} {}", share(it))).collect();
    let _ = writeln!(out, "cases whose bits follow the order of sums: {}", sensitive.join(", "));
    let controls = power.controls.iter().filter(|it| it.failed_at.is_some()).count();
    let mutants = &power.mutants;
    let elsewhere = match mutants.elsewhere.len() {
        0 => String::new(),
        many => format!(" ({many} only with calls that these kernels do not take, or that pins exclude)"),
    };
    let _ = writeln!(
        out,
        "planted faults found: {} of {}{elsewhere}; negative controls that failed: {controls} of {}",
        mutants.killed,
        mutants.planted,
        power.controls.len()
    );
    let _ = writeln!(
        out,
        "{} of {} random cases failed: at {} confidence at most {:.3e} of such cases do",
        bound.failed, bound.cases, bound.confidence, bound.upper
    );
    for it in &certificate.counterexamples {
        let it = it.beside(output);
        let _ =
            writeln!(out, "\n{} ({})\n  {}\n  cause: {}\n  {}", it.claims.join(", "), it.signature, it.size, it.cause, it.replay);
    }
    let _ = writeln!(out, "\ndigest {}\nwritten to {}\n{}", certificate.digest, output.display(), certificate.status);
    out
}
