//! The folder of a shard: what was asked for, and a line for each unit that has ended, so that a shard that died can go on.

use super::outcome::Outcome;
use super::unit::{Asked, Unit};
use super::unit_text::Made;
use crate::cli::Failure;
use crate::cli::job::Configuration;
use crate::cli::json_fields::Fields;
use crate::cli::merge::shards::{Part, complete};
use crate::cli::out_folder::{lock, read_plain, write_whole};
use crate::cli::shard::Shard;
use crate::input_error::InputError;
use crate::subject::attention::power::RivalAlarms;
use crate::subject::attention::power::judge::battery;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What was asked for.
pub(super) const ASKED: &str = "power.json";

/// A line for each unit that has ended, in no order. Locked by the run that writes it.
const UNITS: &str = "units.jsonl";

/// All of its files.
pub(super) const FILES: [&str; 2] = [ASKED, UNITS];

/// Of [`ASKED`].
const FORMAT: u64 = 1;

/// An open folder.
pub(super) struct ShardFolder {
    path: PathBuf,
    units: File,
    /// What has ended before, by number.
    pub(super) made: BTreeMap<u64, Made>,
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("--out {}: {error}; name a folder that can be written", path.display()))
}

impl ShardFolder {
    /// Begins a shard in an empty folder, or goes on with the one that is there.
    ///
    /// # Errors
    /// The folder cannot be written, holds something else, or the shard of another run; one that is to be begun is there.
    pub(super) fn open(path: &Path, asked: &Asked, shard: Shard, resume: bool) -> Result<ShardFolder, Failure> {
        let begun = path.join(ASKED).exists();
        let refuse = |reason: &str| Err(Failure::Usage(format!("--out {}: {reason}", path.display())));
        if begun && !resume {
            return refuse("holds a shard; give --resume to go on with it, or name another folder");
        }
        if !begun && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            return refuse("exists and is no folder of a shard; name another");
        }
        fs::create_dir_all(path).map_err(|error| unusable(path, &error))?;
        if begun {
            let (before, was) = read_asked(path)?;
            if was != shard {
                return refuse(&format!("shard: the folder has {was}, --resume asks for {shard}; name its own folder"));
            }
            if let Some((field, before, now)) = before.difference(&asked.configuration()) {
                return refuse(&format!("{field}: the folder has {before}, --resume asks for {now}; give what it has"));
            }
        } else {
            write_whole(&path.join(ASKED), &print_asked(asked, shard))?;
        }
        let file = path.join(UNITS);
        let mut options = OpenOptions::new();
        let units = options.append(true).create(true).open(&file).map_err(|error| unusable(&file, &error))?;
        lock(&units, path)?;
        let (made, whole) = read_units(path, &asked.units())?;
        // What a killed run had written of a line goes.
        units.set_len(whole).map_err(|error| unusable(&file, &error))?;
        Ok(ShardFolder { path: path.to_owned(), units, made })
    }

    /// Adds the line of a unit that has ended.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, number: u64, made: Made) -> Result<(), Failure> {
        let line = format!("{}\n", made.print(number));
        let written = self.units.write_all(line.as_bytes()).and_then(|()| self.units.sync_data());
        written.map_err(|error| Failure::Output(format!("cannot write {}: {error}; free space", self.path.join(UNITS).display())))
    }
}

fn print_asked(asked: &Asked, shard: Shard) -> String {
    let Configuration(fields) = asked.configuration();
    let fields: Map<String, Value> = fields.into_iter().map(|(name, value)| (name, value.into())).collect();
    format!("{:#}\n", json!({ "format": FORMAT, "configuration": fields, "shard": shard.to_string() }))
}

fn read_asked(folder: &Path) -> Result<(Configuration, Shard), Failure> {
    let path = folder.join(ASKED);
    let file = path.display().to_string();
    let wrong = |reason: String| Failure::from(InputError::new(&*file, reason));
    let text = read_plain(&path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
    let top = Fields::top(&file, &value);
    let format: u64 = top.number("format")?;
    if format != FORMAT {
        return Err(wrong(format!("format: is {format}; this lastbit reads {FORMAT}")));
    }
    let fields = top.under("configuration")?.map("configuration", |value| value.as_str().map(str::to_owned))?;
    Ok((Configuration(fields), top.word("shard")?))
}

/// What has ended, and the length of its whole lines.
fn read_units(folder: &Path, units: &[Unit]) -> Result<(BTreeMap<u64, Made>, u64), Failure> {
    let path = folder.join(UNITS);
    let file = path.display().to_string();
    let bytes = fs::read(&path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let text = std::str::from_utf8(&bytes[..whole]).map_err(|_| InputError::new(&*file, "is not UTF-8 text"))?;
    let lines = text.lines().enumerate().map(|(n, line)| Made::parse(line, units, &file, n + 1));
    Ok((lines.collect::<Result<_, _>>()?, whole as u64))
}

/// Joins the folders of all shards.
///
/// # Errors
/// A shard that is missing, given twice, unfinished, or of another run.
pub(super) fn join(folders: &[PathBuf]) -> Result<Outcome, Failure> {
    let mut parts = Vec::new();
    for folder in folders {
        let (configuration, shard) = read_asked(folder)?;
        parts.push(Part { folder: folder.clone(), shard, configuration });
    }
    complete(&mut parts)?;
    let file = parts[0].folder.join(ASKED).display().to_string();
    let asked = Asked::of(&parts[0].configuration, &file)?;
    let here = asked.configuration();
    if let Some((field, theirs, ours)) = parts[0].configuration.difference(&here) {
        return Err(Failure::Usage(format!(
            "{file}: {field}: the shards have {theirs}, this lastbit {ours}; join them with the lastbit that ran them"
        )));
    }
    let units = asked.units();
    let mut made = BTreeMap::new();
    for part in &parts {
        let (mut own, _) = read_units(&part.folder, &units)?;
        for (number, unit) in (0..).zip(&units).filter(|(number, _)| part.shard.has(*number)) {
            let Some(it) = own.remove(&number) else {
                return Err(Failure::Usage(format!(
                    "{}: shard {}: not finished: {} is missing; go on with it: --resume",
                    part.folder.display(),
                    part.shard,
                    unit.name()
                )));
            };
            made.insert(number, it);
        }
    }
    outcome(&asked, made)
}

/// What all units together come to.
///
/// # Errors
/// A count of rejected cases is missing.
pub(super) fn outcome(asked: &Asked, made: BTreeMap<u64, Made>) -> Result<Outcome, Failure> {
    let (mut planted, mut clean, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
    for it in made.into_values() {
        match it {
            Made::Planted(it) => planted.push(*it),
            Made::Clean(it) => clean.push(*it),
            Made::Rivals(counts) => rejected = counts,
        }
    }
    let rival_alarms = RivalAlarms::of(rejected, asked.rival_cases);
    let settings = asked.settings(1);
    Ok(Outcome { settings, planted, clean, rival_alarms, judges: battery() })
}
