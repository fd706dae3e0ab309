//! `lastbit certify`: runs a battery and writes what it came to.

pub(super) mod job;
pub(super) mod journal;
pub(super) mod written;

use super::shard::Shard;
use super::{Failure, job_count, pins};
use crate::external::name::Consent;
use crate::subject::attention::battery::Size;
use clap::{Args, ValueEnum};
use job::{Job, Ready};
use journal::Journal;
use std::path::PathBuf;
use written::Terms;

#[derive(Args)]
pub(super) struct Options {
    /// Training kernel: ref:<preset>[,field=value...], process:COMMAND, lib:PATH or a kernel file PATH.toml, see `lastbit kernels`
    #[arg(long, value_name = "K", default_value = "ref:aligned")]
    train: String,
    /// Inference kernel
    #[arg(long, value_name = "K", default_value = "ref:aligned")]
    infer: String,
    /// Which battery: quick (seconds), standard (minutes) or release (thirty times as many cases)
    #[arg(long, value_name = "BATTERY", default_value = "standard")]
    battery: Size,
    /// Seed of the random strata
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Threads [default: one for each core; more with a kernel in another process, which is waited for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Hold every case to features of a model, as in `lastbit fuzz --pin`
    #[arg(long, value_name = "NAME=VALUE,...")]
    pin: Vec<String>,
    /// A stratum of captured tensors q, k, v, cu_seqlens
    #[arg(long, value_name = "FILE.safetensors")]
    data: Option<PathBuf>,
    /// Folder of the run; an earlier run there becomes DIR.old
    #[arg(long, value_name = "DIR", default_value = "lastbit.certify")]
    out: PathBuf,
    /// Go on with the run in DIR where it stopped, or begin one if there is none
    #[arg(long)]
    resume: bool,
    /// Run part I of N, and leave its records in DIR for `lastbit merge`; no certificate is written
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// The certificate's file
    #[arg(short, long, value_name = "FILE", default_value = "cert.json")]
    output: PathBuf,
    #[command(flatten)]
    terms: Terms,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Human,
    Json,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let job = Job {
        train: options.train.clone(),
        infer: options.infer.clone(),
        battery: options.battery,
        seed: options.seed,
        pins: pins(&options.pin)?,
        data: options.data.clone(),
        against: options.terms.previous.is_some(),
    };
    // Before hours are spent on what they are for.
    written::must_have_folder(&options.output)?;
    let terms = options.terms.load(job.battery)?;
    let ready = job.ready(consent)?;
    let shard = options.shard.unwrap_or(Shard::WHOLE);
    let resumed = if options.resume { Journal::resume(&options.out, &ready, shard)? } else { None };
    let mut journal = match resumed {
        Some(journal) => journal,
        None => Journal::begin(&options.out, &job, &ready, shard)?,
    };
    let pair = &ready.work.battery.attention.pair;
    let jobs = job_count(options.jobs, &[&pair.train, &pair.infer]);
    journal.run(&ready, jobs)?;
    if shard.of() > 1 {
        super::note(&format!("shard {shard}: {} units in {}", journal.state().done, journal.path().display()));
        return Ok(crate::exit_code::MATCH);
    }
    let Ready { work, kernels } = ready;
    let environment = written::environment(&work, &[journal.state()]);
    let records = || journal::records(journal.path(), journal.state());
    written::write(&work, kernels, terms, &options.output, records, environment, jobs, options.format)
}
