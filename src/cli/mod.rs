//! The command line. Results go to stdout, progress and errors to stderr.

mod certify;
mod checkpoint;
mod compare;
mod explain;
mod found;
mod fresh;
mod fuzz;
mod invariance;
mod job;
mod json_fields;
mod kept_case;
mod kernels;
mod merge;
mod out_folder;
mod places;
mod power;
mod probe;
mod progress;
mod reach_report;
mod replay;
mod report;
mod reveal;
mod run_summary;
mod serve;
mod shard;
mod show;
mod shrink;
mod statistics_text;
mod until;
mod verdict_line;
mod verify;

use crate::exit_code;
use crate::external::name::{self, Consent};
use crate::input_error::InputError;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::pin::Pins;
use clap::{Parser, Subcommand};
use std::fmt;

/// Why a command ended without its result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line or an input is wrong.
    Usage(String),
    /// Results could not be written.
    Output(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Output(text) => f.write_str(text),
        }
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Failure::Usage(error.to_string())
    }
}

#[derive(Parser)]
#[command(name = "lastbit", version, about, after_help = exit_code::HELP, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Load C libraries (lib:PATH) into this process, not into one of their own: faster, and they can do anything to it
    #[arg(long, global = true)]
    trust: bool,
    /// Run a kernel also when it is another than the one that its kernel file pins
    #[arg(long, global = true)]
    accept_changed: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Generate cases, run both paths and the oracle, and shrink what differs
    Fuzz(fuzz::Options),
    /// Run a battery of claims and write a certificate: what is equal to what, over which cases, and whether it could have failed
    Certify(certify::Options),
    /// Check a certificate: its seal, its signature, its battery, and a sample of its cases or all of them, run again
    Verify(verify::Options),
    /// Say what has changed between two certificates, or between two kernels, and show the smallest case that did
    Compare(compare::Options),
    /// Run kept cases and print the verdict
    Replay(replay::Options),
    /// Run kept cases and print why they differ: the first step that does, how the difference grows, the cause
    Explain(replay::Options),
    /// Make a failing case small
    Shrink(shrink::Options),
    /// Print a case in words, with its sequences, pages and steps
    Show(show::Options),
    /// Ask one kernel everything: what works, what repeats, which relations hold, how accurate it is, which arithmetic it follows
    Probe(probe::Options),
    /// Find the orders in which a kernel adds, from outside; or where those of two kernels part
    Reveal(reveal::Options),
    /// List the reference presets and their numerics, or print what named kernels say of themselves
    Kernels(kernels::Options),
    /// Answer kernel calls on stdin and stdout, as a kernel process (docs/protocol.md)
    Serve(serve::Options),
    /// Table of the changes under which kernels keep their bits
    Invariance(invariance::Options),
    /// Whether the campaign finds planted faults, and nothing where there is none: the kill table, beside what other checks find
    Power(power::Options),
    /// Join the shards of a job (certify, fuzz, power) into what one run writes
    Merge(merge::Options),
    /// A certificate as a page for people, a summary for a CI job, JUnit XML, SARIF or Trace JSONL
    Report(report::Options),
}

/// Runs the command line and gives the exit code.
pub fn main() -> u8 {
    std::panic::set_hook(Box::new(panic_message));
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { exit_code::USAGE } else { exit_code::MATCH };
        }
    };
    let consent = Consent { trust: arguments.trust, accept_changed: arguments.accept_changed };
    let result = std::panic::catch_unwind(|| match arguments.command {
        Command::Fuzz(options) => fuzz::run(&options, consent),
        Command::Certify(options) => certify::run(&options, consent),
        Command::Verify(options) => verify::run(&options, consent),
        Command::Compare(options) => compare::run(&options, consent),
        Command::Replay(options) => replay::run(&options, consent),
        Command::Explain(options) => explain::run(&options, consent),
        Command::Shrink(options) => shrink::run(&options, consent),
        Command::Show(options) => show::run(&options),
        Command::Probe(options) => probe::run(&options, consent),
        Command::Reveal(options) => reveal::run(&options, consent),
        Command::Kernels(options) => kernels::run(&options, consent),
        Command::Serve(options) => serve::run(&options, consent),
        Command::Invariance(options) => invariance::run(&options, consent),
        Command::Power(options) => power::run(&options),
        Command::Merge(options) => merge::run(&options, consent),
        Command::Report(options) => report::run(&options),
    });
    match result {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            complain(&failure.to_string());
            match failure {
                Failure::Usage(_) => exit_code::USAGE,
                Failure::Output(_) => exit_code::OUTPUT,
            }
        }
        Err(_) => exit_code::INTERNAL,
    }
}

fn panic_message(info: &std::panic::PanicHookInfo<'_>) {
    if crate::subject::attention::drive::in_kernel() {
        return;
    }
    complain(&format!("internal fault: {info}"));
    complain("what was found so far is kept; please report the command line and this message");
}

fn complain(message: &str) {
    note(&format!("lastbit: {message}"));
}

/// Writes a line to stderr. A stderr that is closed or full must not end the run, as `eprintln!` would.
fn note(line: &str) {
    use std::io::Write;
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Makes a kernel of its name on the command line; starts what is to be started.
fn kernel(option: &str, words: &str, consent: Consent) -> Result<Implementation, Failure> {
    let opened = name::open(words, consent).map_err(|reason| Failure::Usage(format!("{option} {words}: {reason}")))?;
    for change in opened.changes {
        note(&format!("{option} {words}: {change}"));
    }
    Ok(opened.implementation)
}

/// Threads for each core where a kernel is in another process: a thread waits while the kernel works. Measured on two cores with `lastbit
/// serve`, best of several: 197 cases a second with one thread, 284 with 2, 675 with 4, 512 with 8, 495 with 16.
const THREADS_PER_CORE: usize = 2;

/// Threads of a campaign: as asked, or by what the kernels are. No result depends on it.
fn job_count(asked: Option<u16>, kernels: &[&Implementation]) -> usize {
    let waits = kernels.iter().any(|kernel| kernel.source.is_some());
    let each = if waits { THREADS_PER_CORE } else { 1 };
    asked.map_or_else(|| each * std::thread::available_parallelism().map_or(1, |n| n.get()), usize::from)
}

/// Parses the pins of a command line.
fn pins(lists: &[String]) -> Result<Pins, Failure> {
    let mut pins = Pins::default();
    for list in lists {
        pins.add(list).map_err(|reason| Failure::Usage(format!("--pin {list}: {reason}")))?;
    }
    Ok(pins)
}

/// Writes to stdout.
///
/// # Errors
/// When stdout cannot take it; a closed pipe is one of the reasons.
fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::Output(format!("stdout cannot be written: {error}")))
}
