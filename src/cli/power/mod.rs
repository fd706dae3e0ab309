//! `lastbit power`: whether the campaign finds planted faults, and nothing where there is none.

mod json;
mod outcome;
mod shard_folder;
mod table;
mod unit;
mod unit_text;
mod words;

use super::places::{Named, STDOUT, must_be_apart, must_take_file};
use super::progress::{Progress, Steps};
use super::shard::Shard;
use super::{Failure, job_count, note, print};
use crate::exit_code;
use crate::lab::{Length, Statistics};
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::power::judge::battery;
use crate::subject::attention::power::{Clean, Settings, clean, clean_kernels, planted, rival_alarms};
use crate::subject::attention::reference::Reference;
use clap::Args;
use outcome::Outcome;
use shard_folder::ShardFolder;
use std::path::{Path, PathBuf};
use unit::{Asked, Unit};
use unit_text::Made;

#[derive(Args)]
pub(super) struct Options {
    /// Seed of the campaigns
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Cases for each mutant, at most: a campaign ends at the first case that fails
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Cases for each kernel without a fault [default: as many as --cases]
    #[arg(long, value_name = "N")]
    clean_cases: Option<u64>,
    /// Cases for each mutant and rival check, at most --cases
    #[arg(long, value_name = "N", default_value_t = 2000)]
    rival_cases: u64,
    /// Threads [default: one for each core]; only times depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Only these mutants, e.g. A-M1,D-M1
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Exit 1 where a smaller share of the mutants is killed, e.g. 1.0
    #[arg(long, value_name = "SHARE", value_parser = share)]
    floor: Option<f64>,
    /// Write everything as one JSON object, smallest cases included; - is stdout, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run part I of N (from 1): every N-th of the mutants, the kernels without a fault, and the checks of the field; no table.
    /// `lastbit merge` joins the folders of all N
    #[arg(long, value_name = "I/N", requires = "out", conflicts_with_all = ["json", "floor", "list"])]
    shard: Option<Shard>,
    /// Folder of the shard
    #[arg(long, value_name = "DIR", requires = "shard")]
    out: Option<PathBuf>,
    /// Go on with the shard in DIR where it stopped, or begin it if there is none
    #[arg(long, requires = "shard")]
    resume: bool,
    /// Print the catalogue and run nothing
    #[arg(long)]
    list: bool,
}

pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no share; write a number from 0 to 1"))
}

impl Options {
    fn mutants(&self) -> Result<Vec<Mutant>, Failure> {
        if self.only.is_empty() {
            return Ok(Mutant::ALL.to_vec());
        }
        let mut mutants = Vec::new();
        for id in &self.only {
            let mutant: Mutant = id.trim().parse().map_err(|reason| Failure::Usage(format!("--only: {reason}")))?;
            if !mutants.contains(&mutant) {
                mutants.push(mutant);
            }
        }
        Ok(mutants)
    }
}

pub(super) fn run(options: &Options) -> Result<u8, Failure> {
    let mutants = options.mutants()?;
    if options.list {
        print(&table::catalogue(&mutants))?;
        return Ok(exit_code::MATCH);
    }
    let asked = Asked {
        seed: options.seed,
        cases: options.cases,
        clean_cases: options.clean_cases.unwrap_or(options.cases),
        rival_cases: options.rival_cases.min(options.cases),
        mutants,
    };
    if let Some(file) = options.json.as_deref().filter(|it| *it != Path::new(STDOUT)) {
        must_take_file("--json", file)?;
    }
    let settings = asked.settings(job_count(options.jobs, &[]));
    if let (Some(shard), Some(out)) = (options.shard, &options.out) {
        return run_shard(&asked, &settings, shard, out, options.resume);
    }
    let mut steps = Steps::new(asked.mutants.len(), "mutants");
    let planted = planted(&asked.mutants, &settings, |it| steps.step(&words::ended(it)));
    steps.finish();
    let clean = run_clean(&clean_kernels(&asked.mutants), &settings, asked.clean_cases);
    let outcome = Outcome { rival_alarms: rival_alarms(&settings), judges: battery(), settings, planted, clean };
    finish(&outcome, options.json.as_deref(), options.floor)
}

/// Prints the table, writes the JSON; gives the exit code.
fn finish(outcome: &Outcome, json: Option<&Path>, floor: Option<f64>) -> Result<u8, Failure> {
    match json {
        Some(file) if file == Path::new(STDOUT) => print(&format!("{:#}\n", json::value(outcome)))?,
        file => {
            print(&table::page(outcome))?;
            if let Some(file) = file {
                let text = format!("{:#}\n", json::value(outcome));
                let failed = |error| Failure::Output(format!("{}: cannot be written: {error}", file.display()));
                std::fs::write(file, text).map_err(failed)?;
            }
        }
    }
    Ok(outcome.code(floor))
}

/// Runs the units of a part that its folder has no line of; each gets one as it ends.
fn run_shard(asked: &Asked, settings: &Settings, shard: Shard, out: &Path, resume: bool) -> Result<u8, Failure> {
    let mut folder = ShardFolder::open(out, asked, shard, resume)?;
    let units = asked.units();
    let left: Vec<(u64, &Unit)> = (0..).zip(&units).filter(|(n, _)| shard.has(*n) && !folder.made.contains_key(n)).collect();
    let number = |wanted: &Unit| left.iter().find(|(_, unit)| *unit == wanted).map_or(0, |(n, _)| *n);
    let mutants: Vec<Mutant> = left.iter().filter_map(|(_, unit)| unit.mutant()).collect();
    let mut result = Ok(());
    let mut steps = Steps::new(mutants.len(), "mutants");
    planted(&mutants, settings, |it| {
        steps.step(&words::ended(it));
        if result.is_ok() {
            result = folder.add(number(&Unit::Mutant(it.mutant)), Made::Planted(Box::new(it.clone())));
        }
    });
    steps.finish();
    result?;
    for (n, unit) in &left {
        match unit {
            Unit::Mutant(_) => {}
            Unit::Clean(kernel) => {
                let made = run_clean(std::slice::from_ref(&**kernel), settings, asked.clean_cases);
                made.into_iter().try_for_each(|it| folder.add(*n, Made::Clean(Box::new(it))))?;
            }
            Unit::Rivals => {
                let rejected = rival_alarms(settings).iter().map(|it| it.rejected).collect();
                folder.add(*n, Made::Rivals(rejected))?;
            }
        }
    }
    let (own, all) = (shard.count(units.len() as u64), units.len());
    print(&format!("shard {shard}: {own} of {all} units in {}; `lastbit merge` joins the shards\n", out.display()))?;
    Ok(exit_code::MATCH)
}

/// Joins the folders of all shards into what one run prints and writes.
///
/// # Errors
/// A shard that is missing, given twice, unfinished, or of another run; a file that is a shard's own.
pub(super) fn merge(folders: &[PathBuf], json: Option<&Path>, floor: Option<f64>) -> Result<u8, Failure> {
    if let Some(file) = json {
        let of_shards =
            folders.iter().flat_map(|folder| shard_folder::FILES.map(|name| Named::new("a shard", folder.join(name))));
        must_be_apart(&of_shards.collect::<Vec<_>>(), &[Named::new("--output", file)])?;
    }
    let outcome = shard_folder::join(folders)?;
    finish(&outcome, json, floor)
}

/// Whether a folder is that of a shard of this command.
pub(super) fn is_shard(folder: &Path) -> bool {
    folder.join(shard_folder::ASKED).is_file()
}

/// Runs the kernels without a fault, with the campaign's own progress.
fn run_clean(kernels: &[Reference], settings: &Settings, cases: u64) -> Vec<Clean> {
    let mut shown: Option<(String, Progress)> = None;
    let clean = clean(kernels, settings, cases, |kernel, statistics: &Statistics| {
        if shown.as_ref().is_none_or(|(shown, _)| shown != kernel) {
            if let Some((_, before)) = shown.take() {
                before.finish();
            }
            note(&format!("{kernel}, without a fault: {cases} cases"));
            shown = Some((kernel.to_owned(), Progress::new(Length::Cases(cases), 0)));
        }
        if let Some((_, progress)) = &mut shown {
            progress.update(statistics);
        }
    });
    if let Some((_, progress)) = shown {
        progress.finish();
    }
    clean
}
