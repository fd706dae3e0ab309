//! The folder of a certification: one line for each unit, in order, so that a killed run goes on and shards can be joined.

use super::job::{Job, Ready};
use crate::certify::digest::sha256;
use crate::certify::record::Record;
use crate::cli::job::Configuration;
use crate::cli::out_folder::{CHECKPOINT, OutFolder, VERDICTS, read_plain};
use crate::cli::progress::Steps;
use crate::cli::shard::Shard;
use crate::cli::{Failure, note};
use crate::input_error::InputError;
use crate::ordered::{Flow, ordered};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Instant;

/// Tells the folder of a certification from that of another job.
const JOB: &str = "certify";

/// How far a certification is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Checkpoint {
    job: String,
    /// The words of the command line.
    pub(in crate::cli) asked: Asked,
    /// Of all that the records depend on.
    pub(in crate::cli) configuration: BTreeMap<String, String>,
    /// `I/N`.
    pub(in crate::cli) shard: String,
    /// Units of this shard that are done, and the bytes of their lines.
    pub(in crate::cli) done: u64,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) seconds: f64,
    pub(in crate::cli) threads: u32,
    /// SHA-256 of each lastbit that ran a part of it.
    pub(in crate::cli) programs: BTreeSet<String>,
}

/// A job as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Asked {
    train: String,
    infer: String,
    battery: String,
    seed: u64,
    pins: String,
    data: Option<String>,
    against: bool,
}

impl Asked {
    fn new(job: &Job) -> Asked {
        Asked {
            train: job.train.clone(),
            infer: job.infer.clone(),
            battery: job.battery.to_string(),
            seed: job.seed,
            pins: job.pins.to_string(),
            data: job.data.as_ref().map(|path| path.display().to_string()),
            against: job.against,
        }
    }

    /// The job; `file` is for messages.
    pub(in crate::cli) fn job(&self, file: &str) -> Result<Job, InputError> {
        let wrong = |field: &str, reason: String| InputError::new(file, reason).field(format!("asked.{field}"));
        Ok(Job {
            train: self.train.clone(),
            infer: self.infer.clone(),
            battery: self.battery.parse().map_err(|reason| wrong("battery", reason))?,
            seed: self.seed,
            pins: self.pins.parse().map_err(|reason| wrong("pins", reason))?,
            data: self.data.as_ref().map(Into::into),
            against: self.against,
        })
    }
}

/// A line of the folder.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Number of the unit.
    case: u64,
    of: Record,
}

/// Whether a folder is that of a certification.
pub(in crate::cli) fn is_certify(folder: &Path) -> bool {
    read_plain(&folder.join(CHECKPOINT)).is_ok_and(|text| parse(&text, "").is_ok())
}

/// Reads the checkpoint of a folder.
///
/// # Errors
/// It cannot be read, or is none.
pub(in crate::cli) fn checkpoint(folder: &Path) -> Result<Checkpoint, Failure> {
    let path = folder.join(CHECKPOINT);
    let file = path.display().to_string();
    let text = read_plain(&path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    Ok(parse(&text, &file)?)
}

fn parse(text: &str, file: &str) -> Result<Checkpoint, InputError> {
    let it: Checkpoint = serde_json::from_str(text)
        .map_err(|error| InputError::new(file, format!("is no checkpoint of a certification: {error}")))?;
    match it.job == JOB {
        true => Ok(it),
        false => Err(InputError::new(file, format!("is of `{}`, not of a certification", it.job)).field("job")),
    }
}

/// A run that is to go on. Nothing is changed yet.
pub(in crate::cli) struct Reopened {
    folder: OutFolder,
    state: Checkpoint,
    /// Of the checkpoint, for messages.
    file: String,
}

impl Reopened {
    /// Opens the folder of a run. `None`: no run is there.
    ///
    /// # Errors
    /// It cannot be used, or is of something else.
    pub(in crate::cli) fn open(path: &Path) -> Result<Option<Reopened>, Failure> {
        let Some((folder, text)) = OutFolder::reopen(path)? else { return Ok(None) };
        let file = folder.path().join(CHECKPOINT).display().to_string();
        let state = parse(&text, &file)?;
        Ok(Some(Reopened { folder, state, file }))
    }

    /// What the run is of, and which part of it.
    ///
    /// # Errors
    /// A field that means nothing.
    pub(in crate::cli) fn asked(&self) -> Result<(Job, Shard), InputError> {
        let shard = self.state.shard.parse().map_err(|reason: String| InputError::new(&*self.file, reason).field("shard"))?;
        Ok((self.state.asked.job(&self.file)?, shard))
    }

    /// The checkpoint's file.
    pub(in crate::cli) fn file(&self) -> &str {
        &self.file
    }
}

/// A certification that is going on.
pub(in crate::cli) struct Journal {
    folder: OutFolder,
    state: Checkpoint,
    shard: Shard,
}

impl Journal {
    /// Begins in a folder; an earlier run there becomes `DIR.old`.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub(in crate::cli) fn begin(path: &Path, job: &Job, ready: &Ready, shard: Shard) -> Result<Journal, Failure> {
        let state = Checkpoint {
            job: JOB.to_owned(),
            asked: Asked::new(job),
            configuration: ready.configuration().0.into_iter().collect(),
            shard: shard.to_string(),
            done: 0,
            bytes: 0,
            seconds: 0.0,
            threads: 0,
            programs: BTreeSet::new(),
        };
        let folder = OutFolder::create(path, &print(&state))?;
        Ok(Journal { folder, state, shard })
    }

    /// Goes on with a run.
    ///
    /// # Errors
    /// The run there is another: the field that differs.
    pub(in crate::cli) fn resume(run: Reopened, ready: &Ready, shard: Shard) -> Result<Journal, Failure> {
        let Reopened { mut folder, mut state, file } = run;
        let mut now = ready.configuration();
        now.0.push(("shard".into(), shard.to_string()));
        let mut then = Configuration(state.configuration.clone().into_iter().collect());
        then.0.push(("shard".into(), state.shard.clone()));
        // In the order of what is asked: a seed comes before the digest that it changes.
        if let Some((field, now, before)) = now.difference(&then) {
            return Err(Failure::Usage(format!(
                "{file}: {field}: the run has {before}, --resume asks for {now}; give what the run has, or leave out --resume to begin anew"
            )));
        }
        let last = state.done.checked_sub(1).map(|last| shard.unit(last));
        if !folder.take_back(last, state.bytes)? {
            note(&format!("lastbit: {}: the records are not all there; everything is run again", folder.path().display()));
            folder.take_back(None, 0)?;
            (state.done, state.bytes, state.seconds) = (0, 0, 0.0);
            state.programs.clear();
        }
        note(&format!("resuming after {} units and {:.0} s", state.done, state.seconds));
        Ok(Journal { folder, state, shard })
    }

    /// Runs what is left.
    ///
    /// # Errors
    /// Lines that cannot be written; those before them stand.
    pub(in crate::cli) fn run(&mut self, ready: &Ready, jobs: usize) -> Result<(), Failure> {
        let work = &ready.work;
        let total = self.shard.count(work.units());
        let (done, shard, before) = (self.state.done, self.shard, self.state.seconds);
        let mut progress = Steps::new((total - done) as usize, "units");
        let started = Instant::now();
        self.state.threads = jobs as u32;
        if done < total {
            self.state.programs.insert(std::env::current_exe().and_then(std::fs::read).map(sha256).unwrap_or_default());
        }
        let mut failed = 0u64;
        let mut result = Ok(());
        ordered(
            jobs,
            |n| done + n >= total,
            || work.scratch(),
            |n, scratch| {
                let case = shard.unit(done + n);
                Line { case, of: work.run(work.unit(case), scratch) }
            },
            |_, line| {
                if let Record::Case(case) = &line.of {
                    failed += u64::from(!case.failures.is_empty());
                }
                progress.step(&format!("{failed} failing cases"));
                self.state.done += 1;
                self.state.seconds = before + started.elapsed().as_secs_f64();
                result = self.folder.verdict(&serde_json::to_string(&line).expect("a record is JSON"), false);
                if result.is_ok() && self.folder.checkpoint_is_due() {
                    result = self.checkpoint();
                }
                if result.is_ok() { Flow::Continue } else { Flow::Stop }
            },
        );
        progress.finish();
        result.and_then(|()| self.checkpoint())
    }

    fn checkpoint(&mut self) -> Result<(), Failure> {
        let state = &mut self.state;
        self.folder.checkpoint(|bytes| {
            state.bytes = bytes;
            print(state)
        })
    }

    /// What has been done.
    pub(in crate::cli) fn state(&self) -> &Checkpoint {
        &self.state
    }

    /// The folder.
    pub(in crate::cli) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn print(state: &Checkpoint) -> String {
    format!("{:#}\n", serde_json::to_value(state).expect("a checkpoint is JSON"))
}

/// What helps where records are not what was written.
const ANEW: &str = "it was changed after it was written; run everything again, without --resume";

/// What is wrong with a line; its number is known, and is not the 1 that the parser counts.
fn damaged(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
    format!("is no record: {reason} at column {}; {ANEW}", error.column())
}

/// The records of a folder, in order.
///
/// # Errors
/// The file cannot be read; of a line: it is no record, or not the one that comes next.
pub(in crate::cli) fn records(
    folder: &Path,
    state: &Checkpoint,
) -> Result<impl Iterator<Item = Result<Record, String>>, Failure> {
    let path = folder.join(VERDICTS);
    let file = path.display().to_string();
    let shard: Shard = state.shard.parse().map_err(|reason: String| InputError::new(&*file, reason).field("shard"))?;
    let opened = File::open(&path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    let lines = BufReader::new(opened.take(state.bytes)).lines();
    Ok(lines.enumerate().map(move |(n, line)| {
        let at = |reason: String| format!("{file}:{}: {reason}", n + 1);
        let line = line.map_err(|error| at(format!("cannot be read: {error}")))?;
        let line: Line = serde_json::from_str(&line).map_err(|error| at(damaged(&error)))?;
        let unit = shard.unit(n as u64);
        (line.case == unit).then_some(line.of).ok_or_else(|| at(format!("is of unit {}, not {unit}; {ANEW}", line.case)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_has_one_line_and_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(VERDICTS), "{\"case\":x\n").unwrap();
        let state = Checkpoint {
            job: JOB.to_owned(),
            asked: Asked {
                train: "ref:aligned".to_owned(),
                infer: "ref:aligned".to_owned(),
                battery: "quick".to_owned(),
                seed: 1,
                pins: String::new(),
                data: None,
                against: false,
            },
            configuration: BTreeMap::new(),
            shard: "1/1".to_owned(),
            done: 1,
            bytes: 10,
            seconds: 0.0,
            threads: 1,
            programs: BTreeSet::new(),
        };
        let reason = records(folder.path(), &state).unwrap().next().unwrap().unwrap_err();
        let said =
            "verdicts.jsonl:1: is no record: expected value at column 9; it was changed after it was written; run everything";
        assert!(reason.contains(said) && !reason.contains("at line"), "{reason}");
    }
}
