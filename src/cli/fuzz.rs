//! `lastbit fuzz`: the main job.

use super::checkpoint::{Checkpoint, State};
use super::found::Found;
use super::job::{Configuration, Job};
use super::out_folder::{CHECKPOINT, OutFolder, SUMMARY};
use super::progress::Progress;
use super::reach_report::ReachReport;
use super::run_summary::{Outcome, human, json_summary};
use super::shard::Shard;
use super::verdict_line;
use super::{Failure, complain, job_count, note, pins, print};
use crate::exit_code;
use crate::external::name::Consent;
use crate::finding::{Kind, Path};
use crate::input_error::can_be_pasted;
use crate::lab::{Campaign, Done, Flow, Length, Statistics, run_every};
use crate::quantity::duration;
use crate::subject::Subject;
use crate::subject::attention::Attention;
use crate::subject::attention::draw::Profile;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::trial::Trial;
use clap::{Args, ValueEnum};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What `--cases` is without `--cases` and `--time`.
const CASES: u64 = 10_000;

/// What the kernels are without `--train` and `--infer`.
pub(super) const KERNEL: &str = "ref:aligned";

#[derive(Args)]
pub(super) struct Options {
    /// Training kernel: ref:<preset>[,field=value...], process:COMMAND, lib:PATH or a kernel file PATH.toml, see `lastbit kernels`
    /// [default: ref:aligned]
    #[arg(long, value_name = "K")]
    train: Option<String>,
    /// Inference kernel [default: ref:aligned]
    #[arg(long, value_name = "K")]
    infer: Option<String>,
    /// Cases to run [default: 10000]
    #[arg(long, value_name = "N", conflicts_with = "time")]
    cases: Option<u64>,
    /// Begin cases until this time has passed, e.g. 30s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Seed of the campaign: same seed, same cases, same bytes [default: 1]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Threads [default: one for each core; more with a kernel in another process, which is waited for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Folder of the run; an earlier run there becomes DIR.old
    #[arg(long, value_name = "DIR", default_value = "lastbit.out")]
    out: PathBuf,
    /// Go on with the run in DIR where it stopped, or begin one if there is none
    ///
    /// Options that are left out are those of the run. --cases, --time and --jobs may be others, the rest may not; both --cases and
    /// --time count from the beginning of the run, all its parts together.
    #[arg(long)]
    resume: bool,
    /// Run part I of N (from 1): the cases whose index modulo N is I - 1. `lastbit merge` joins the folders of all N
    #[arg(long, value_name = "I/N", conflicts_with = "time")]
    shard: Option<Shard>,
    /// How the true value is found: enclosure, mpfr or off [default: enclosure]
    #[arg(long, value_name = "MODE")]
    oracle: Option<Mode>,
    /// Size of the cases: quick, mixed or long [default: mixed]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// Hold every case to features of a model: d=128, d_qk=192,d_v=128, heads=16/2 (query heads/KV heads), dtype=bf16,
    /// kv_dtype=e4m3, causal=bottom_right or none; repeated, or separated by commas
    #[arg(long, value_name = "NAME=VALUE,...")]
    pin: Vec<String>,
    /// Take values from captured tensors q, k, v, cu_seqlens
    #[arg(long, value_name = "FILE.safetensors")]
    data: Option<PathBuf>,
    /// Run on after a finding; the first of each signature is shrunk, the rest counted
    #[arg(long)]
    keep_going: bool,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

impl Options {
    /// What is to run. An option that is left out is that of the run to resume.
    ///
    /// # Errors
    /// A pin that means nothing, a shard of a run by time.
    fn job(&self, run: Option<&Job>) -> Result<Job, Failure> {
        let pins = match (&self.pin[..], run) {
            ([], Some(run)) => run.pins,
            (lists, _) => pins(lists)?,
        };
        let length = match (self.time, self.cases) {
            (Some(limit), _) => Some(Length::Time(limit)),
            (None, cases) => cases.map(Length::Cases),
        };
        let kernel = |name: &Option<String>, of: fn(&Job) -> &String| {
            name.clone().or(run.map(|run| of(run).clone())).unwrap_or_else(|| KERNEL.to_owned())
        };
        let shard = self.shard.or(run.and_then(|run| run.shard));
        let length = length.or(run.map(|run| run.length)).unwrap_or(Length::Cases(CASES));
        if shard.is_some() && matches!(length, Length::Time(_)) {
            return Err(Failure::Usage(
                "--shard: not with --time: each part would end at another case, so that the cases done had gaps; give --cases"
                    .into(),
            ));
        }
        Ok(Job {
            train: kernel(&self.train, |run| &run.train),
            infer: kernel(&self.infer, |run| &run.infer),
            seed: self.seed.or(run.map(|run| run.seed)).unwrap_or(1),
            profile: self.profile.or(run.map(|run| run.profile)).unwrap_or(Profile::Mixed),
            oracle: self.oracle.or(run.map(|run| run.oracle)).unwrap_or_default(),
            data: self.data.clone().or_else(|| run.and_then(|run| run.data.clone())),
            keep_going: self.keep_going || run.is_some_and(|run| run.keep_going),
            shard,
            length,
            pins,
        })
    }
}

impl Options {
    /// Options that go on with the run in a folder, of which everything but the kernels is taken.
    pub(super) fn resume(out: PathBuf, [train, infer]: [Option<String>; 2], format: Format) -> Options {
        Options {
            train,
            infer,
            cases: None,
            time: None,
            seed: None,
            jobs: None,
            out,
            resume: true,
            shard: None,
            oracle: None,
            profile: None,
            pin: Vec::new(),
            data: None,
            keep_going: false,
            format,
        }
    }

    /// The kernels of a run that goes on: a folder names them, and starts none.
    ///
    /// # Errors
    /// A kernel from outside that only the folder names: the command that names it.
    fn must_name(&self, run: &Job, file: &str) -> Result<(), Failure> {
        let command = format!("lastbit fuzz --resume --out {}", shell_words::quote(&self.out.display().to_string()));
        must_name([&self.train, &self.infer], [&run.train, &run.infer], file, command)
    }
}

/// Whether a command names the kernels from outside of the run in whose folder it goes on: a folder names them too, and starts none.
///
/// # Errors
/// It does not: `command`, with the options that name them.
pub(super) fn must_name(
    given: [&Option<String>; 2],
    words: [&String; 2],
    file: &str,
    mut command: String,
) -> Result<(), Failure> {
    let sides = [(Path::Train, given[0], words[0]), (Path::Infer, given[1], words[1])];
    let only_named = |given: &Option<String>, words: &str| given.is_none() && !words.starts_with("ref:");
    let Some((side, ..)) = sides.iter().find(|(_, given, words)| only_named(given, words)) else { return Ok(()) };
    for (side, given, words) in &sides {
        if given.is_some() || only_named(given, words) {
            let _ = write!(command, " --{side} {}", shell_words::quote(given.as_ref().unwrap_or(words)));
        }
    }
    let reason = match can_be_pasted(&command) {
        true => format!("read the command, then run it: `{command}`"),
        false => format!("read asked.{side} there, then give --{side}"),
    };
    Err(Failure::Usage(format!("{file}: the {side} kernel is one from outside, and a folder starts no program; {reason}")))
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Human,
    Json,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let reopened = if options.resume { OutFolder::reopen(&options.out)? } else { None };
    let mut run = match reopened {
        Some((folder, checkpoint)) => Run::resume(options, consent, folder, &checkpoint)?,
        None => Run::begin(options, consent)?,
    };
    let mut failure = run.campaign(options.jobs).err();
    let mut report = Vec::new();
    let mut scratch = run.attention.scratch();
    for it in &run.found {
        let small = it.shrink(&run.folder, &run.attention, &mut scratch).unwrap_or_else(|error| {
            failure.get_or_insert(error);
            None
        });
        report.push((it, small));
    }
    let outcome =
        Outcome { job: &run.job, attention: &run.attention, statistics: &run.statistics, seconds: run.seconds, report: &report };
    let summary = json_summary(&outcome);
    if let Err(error) = run.folder.save("", SUMMARY, &format!("{summary:#}\n")) {
        failure.get_or_insert(error);
    }
    match options.format {
        Format::Json => print(&format!("{summary}\n"))?,
        Format::Human => print(&human(&outcome, run.folder.path()))?,
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(verdict_code(&run.attention, &run.statistics)),
    }
}

/// A run that is going on.
struct Run {
    job: Job,
    attention: Attention,
    configuration: Configuration,
    folder: OutFolder,
    statistics: Statistics,
    found: Vec<Found>,
    /// Time spent on cases, without the part that is running.
    seconds: f64,
}

impl Run {
    fn begin(options: &Options, consent: Consent) -> Result<Run, Failure> {
        let job = options.job(None)?;
        let attention = job.attention(consent)?;
        let configuration = job.configuration(&attention);
        let state = State::default();
        let checkpoint = Checkpoint { job: job.clone(), configuration: configuration.clone(), verdict_bytes: 0, state };
        if options.resume {
            note(&format!("no run in {}: beginning one", options.out.display()));
        }
        let folder = OutFolder::create(&options.out, &checkpoint.print())?;
        let (statistics, found, seconds) = Default::default();
        Ok(Run { job, attention, configuration, folder, statistics, found, seconds })
    }

    fn resume(options: &Options, consent: Consent, mut folder: OutFolder, checkpoint: &str) -> Result<Run, Failure> {
        let file = folder.path().join(CHECKPOINT).display().to_string();
        let Checkpoint { job: was, configuration: before, verdict_bytes, mut state } = Checkpoint::parse(checkpoint, &file)?;
        options.must_name(&was, &file)?;
        let job = options.job(Some(&was))?;
        let attention = job.attention(consent)?;
        let configuration = job.configuration(&attention);
        if let Some((field, before, now)) = before.difference(&configuration) {
            return Err(Failure::Usage(format!(
                "{file}: {field}: the run has {before}, --resume asks for {now}; give what the run has, or leave out --resume to begin anew"
            )));
        }
        // The summary names the kernels in the words of the run, however they are spelled now.
        let job = Job { train: was.train, infer: was.infer, ..job };
        // Before anything is changed: it may be refused.
        let mut scratch = attention.scratch();
        let again =
            |(index, signature): &(u64, String)| Found::again(&folder, &attention, job.seed, *index, signature, &mut scratch);
        let mut found = state.found.iter().map(again).collect::<Result<Vec<_>, _>>()?;
        let last = state.statistics.cases.checked_sub(1).map(|n| job.index(n));
        if !folder.take_back(last, verdict_bytes)? {
            complain(&format!(
                "{}: the verdicts of the first {} cases are not all there; all cases are run again",
                folder.path().display(),
                state.statistics.cases
            ));
            (state, found) = Default::default();
            folder.take_back(None, 0)?;
        }
        let State { statistics, seconds, .. } = state;
        note(&format!("resuming at case {}, after {seconds:.0} s", job.index(statistics.cases)));
        Ok(Run { job, attention, configuration, folder, statistics, found, seconds })
    }

    /// Runs the cases that are left, up to the last checkpoint.
    fn campaign(&mut self, jobs: Option<u16>) -> Result<(), Failure> {
        let before = self.seconds;
        let length = match self.job.length {
            Length::Time(limit) => Length::Time(limit.saturating_sub(Duration::from_secs_f64(before))),
            cases => cases,
        };
        let first = self.job.index(self.statistics.cases);
        let (train, infer) = (&self.attention.pair.train, &self.attention.pair.infer);
        let campaign = Campaign { seed: self.job.seed, first, length, jobs: job_count(jobs, &[train, infer]) };
        let attention = self.attention.clone();
        // Of a part, those that are its own are counted.
        let (own, step) = match (length, self.job.shard) {
            (Length::Cases(count), Some(shard)) => (Length::Cases(shard.count(count)), shard.of()),
            _ => (length, 1),
        };
        let mut progress = Progress::new(own, self.statistics.cases);
        let mut result = Ok(());
        let started = Instant::now();
        if !self.is_over() {
            run_every(&attention, campaign, step, |done| {
                let kept = self.found.len();
                result = self.take(&done);
                progress.update(&self.statistics);
                self.seconds = before + started.elapsed().as_secs_f64();
                // At once when something was kept: a part that is given no more time must still report it.
                if result.is_ok() && (self.found.len() > kept || self.folder.checkpoint_is_due()) {
                    result = self.checkpoint();
                }
                if result.is_err() || self.is_over() { Flow::Stop } else { Flow::Continue }
            });
            self.seconds = before + started.elapsed().as_secs_f64();
        }
        progress.finish();
        // After a failure there are verdicts that are not in the file: the last checkpoint stands.
        result.and_then(|()| self.checkpoint())
    }

    /// Whether a finding has ended the run.
    fn is_over(&self) -> bool {
        !self.job.keep_going && self.statistics.failed > 0
    }

    /// Accounts for a case: what it found is saved before its line is written, so that no line speaks of a case that is lost.
    fn take(&mut self, Done { index, trial, verdict }: &Done<Trial>) -> Result<(), Failure> {
        let mut result = Ok(());
        let mut families = Vec::new();
        for finding in verdict.findings.iter().filter(|finding| finding.kind().is_failure()) {
            // Over a run, each signature is kept once; `o` and `lse` of one case are kept as one defect. Joining shards decides it again.
            let family = finding.family();
            let known = self.found.iter().any(|it| it.finding.signature() == finding.signature());
            if result.is_err() || known || families.contains(&family) {
                continue;
            }
            families.push(family);
            match Found::save(&self.folder, &self.attention, self.job.seed, *index, trial, finding) {
                Ok(it) => self.found.push(it),
                Err(error) => result = Err(error),
            }
        }
        let problem = &trial.case.problem;
        let longest = problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
        let counts = Statistics::of_case(verdict, problem.out_dtype, longest);
        self.statistics.join(&counts);
        let line = match self.job.shard {
            None => verdict_line::of_run(*index, verdict),
            Some(_) => verdict_line::of_shard(*index, verdict, &counts),
        };
        // Also where the case could not be saved: its number is enough to draw it again.
        let line = self.folder.verdict(&line, verdict.failure().is_some());
        result.and(line)
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        let found = self.found.iter().map(|it| (it.index, it.finding.signature())).collect();
        let state = State { statistics: self.statistics.clone(), found, seconds: self.seconds };
        let (job, configuration) = (self.job.clone(), self.configuration.clone());
        self.folder.checkpoint(|verdict_bytes| Checkpoint { job, configuration, verdict_bytes, state }.print())
    }
}

fn verdict_code(attention: &Attention, statistics: &Statistics) -> u8 {
    if !statistics.signatures.is_empty() {
        exit_code::FINDING
    } else if statistics.of(Kind::Undecided) + statistics.of(Kind::Skipped) > 0 {
        exit_code::UNDECIDED
    } else if statistics.cases == 0 || statistics.elements == 0 {
        exit_code::NOTHING
    } else if !ReachReport::new(attention, statistics.reach).missing().is_empty() {
        exit_code::UNDECIDED
    } else {
        exit_code::MATCH
    }
}
