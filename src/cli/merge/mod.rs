//! `lastbit merge`: the shards of a job, joined into what one run writes. One file for each job that can be spread over machines.

mod certify;
mod fuzz;
pub(super) mod shards;

use super::certify::journal::is_certify;
use super::certify::{self as certificate, written::Terms};
use super::fuzz::Format;
use super::{Failure, power};
use crate::external::name::Consent;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Options {
    /// The folders of all shards, in any order
    #[arg(required = true, value_name = "DIR")]
    shards: Vec<PathBuf>,
    /// Folder of the joined run, for shards of fuzz; an earlier run there becomes DIR.old
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// File of the joined result: of certify the certificate; of power the JSON object, - is stdout in place of the table
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Training kernel, where shards of certify or fuzz ran one from outside: what they found is run again, and a folder starts no program
    #[arg(long, value_name = "K")]
    train: Option<String>,
    /// Inference kernel, likewise
    #[arg(long, value_name = "K")]
    infer: Option<String>,
    /// Of certify and power
    #[command(flatten)]
    terms: Terms,
    /// What stdout gets of shards of certify and fuzz
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// A job that can be spread over machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Certify,
    Fuzz,
    Power,
}

impl Kind {
    /// The command that runs it.
    fn name(self) -> &'static str {
        match self {
            Kind::Certify => "certify",
            Kind::Fuzz => "fuzz",
            Kind::Power => "power",
        }
    }

    fn of(folder: &std::path::Path) -> Result<Kind, Failure> {
        if is_certify(folder) {
            Ok(Kind::Certify)
        } else if fuzz::is_shard(folder) {
            Ok(Kind::Fuzz)
        } else if power::is_shard(folder) {
            Ok(Kind::Power)
        } else {
            Err(Failure::Usage(format!(
                "{}: is no folder of a shard; give the folders that runs with --shard wrote",
                folder.display()
            )))
        }
    }
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let kind = Kind::of(&options.shards[0])?;
    for folder in &options.shards {
        let other = Kind::of(folder)?;
        if other != kind {
            let (first, folder) = (options.shards[0].display(), folder.display());
            return Err(Failure::Usage(format!(
                "{folder}: is a shard of {}, {first} one of {}; join one job at a time",
                other.name(),
                kind.name()
            )));
        }
    }
    let not_for = |name: &str, given: bool, why: &str| match given {
        true => Err(Failure::Usage(format!("{name}: not for shards of {}; {why}", kind.name()))),
        false => Ok(()),
    };
    match kind {
        Kind::Certify => {
            not_for("--out", options.out.is_some(), "name the certificate's file with --output")?;
            let Some(output) = &options.output else {
                return Err(Failure::Usage("--output: is missing; name the certificate's file".into()));
            };
            let format = match options.format {
                Format::Human => certificate::Format::Human,
                Format::Json => certificate::Format::Json,
            };
            let kernels = [options.train.clone(), options.infer.clone()];
            certify::run(&options.shards, output, &options.terms, kernels, format, consent)
        }
        Kind::Fuzz => {
            not_for("--output", options.output.is_some(), "name the folder of the joined run with --out")?;
            not_for("--previous, --floor, --waivers, --sign", options.terms.any(), "leave them out")?;
            let Some(out) = &options.out else {
                return Err(Failure::Usage("--out: is missing; name the folder of the joined run".into()));
            };
            let kernels = [options.train.clone(), options.infer.clone()];
            fuzz::run(&options.shards, out, kernels, options.format, consent)
        }
        Kind::Power => {
            not_for("--out", options.out.is_some(), "name the file of the JSON object with --output")?;
            not_for("--train, --infer", options.train.is_some() || options.infer.is_some(), "leave them out")?;
            not_for("--previous, --waivers, --sign", options.terms.beyond_floor(), "leave them out")?;
            power::merge(&options.shards, options.output.as_deref(), options.terms.floor)
        }
    }
}
