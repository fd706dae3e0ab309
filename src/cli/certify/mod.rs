//! `lastbit certify`: runs a battery and writes what it came to.

pub(super) mod job;
pub(super) mod journal;
pub(super) mod written;

use super::fuzz::{self, KERNEL};
use super::out_folder::{CHECKPOINT, VERDICTS};
use super::places::{Named, must_be_apart, of_kernel};
use super::shard::Shard;
use super::{Failure, job_count, pins};
use crate::external::name::Consent;
use crate::subject::attention::battery::Size;
use clap::{Args, ValueEnum};
use job::{Job, Ready};
use journal::{Journal, Reopened};
use std::path::{Path, PathBuf};
use written::{Terms, Unwritten};

#[derive(Args)]
pub(super) struct Options {
    /// Training kernel: ref:<preset>[,field=value...], process:COMMAND, lib:PATH or a kernel file PATH.toml, see `lastbit kernels`
    /// [default: ref:aligned]
    #[arg(long, value_name = "K")]
    train: Option<String>,
    /// Inference kernel [default: ref:aligned]
    #[arg(long, value_name = "K")]
    infer: Option<String>,
    /// Which battery: quick (seconds), standard (minutes) or release (thirty times as many cases) [default: standard]
    #[arg(long, value_name = "BATTERY")]
    battery: Option<Size>,
    /// Seed of the random strata [default: 1]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
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
    ///
    /// Options that are left out are those of the run. --jobs may be another, and so may what the certificate is written with: --output,
    /// --floor, --waivers, --sign, --format. The rest may not; --previous is named again.
    #[arg(long)]
    resume: bool,
    /// Run part I of N, and leave its records in DIR for `lastbit merge`; no certificate is written
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// The certificate's file [default: cert.json]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
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

/// What the certificate is called without --output.
const OUTPUT: &str = "cert.json";

impl Options {
    /// What is to run. An option that is left out is that of the run to resume.
    ///
    /// # Errors
    /// A pin that means nothing; an earlier certificate that the run was made with, and that is not named.
    fn job(&self, run: Option<&Job>) -> Result<Job, Failure> {
        let pins = match (&self.pin[..], run) {
            ([], Some(run)) => run.pins,
            (lists, _) => pins(lists)?,
        };
        let kernel = |name: &Option<String>, of: fn(&Job) -> &String| {
            name.clone().or(run.map(|run| of(run).clone())).unwrap_or_else(|| KERNEL.to_owned())
        };
        let against = self.terms.previous.is_some();
        if !against && run.is_some_and(|run| run.against) {
            let out = self.out.display();
            return Err(Failure::Usage(format!("--previous: is missing; the run in {out} was made with one, name it again")));
        }
        Ok(Job {
            train: kernel(&self.train, |run| &run.train),
            infer: kernel(&self.infer, |run| &run.infer),
            battery: self.battery.or(run.map(|run| run.battery)).unwrap_or(Size::Standard),
            seed: self.seed.or(run.map(|run| run.seed)).unwrap_or(1),
            data: self.data.clone().or_else(|| run.and_then(|run| run.data.clone())),
            pins,
            against,
        })
    }

    /// Whether nothing is given that a shard does nothing with.
    ///
    /// # Errors
    /// The first such option.
    fn must_be_of_a_shard(&self) -> Result<(), Failure> {
        let output = self.output.is_some().then_some("--output");
        let json = (self.format == Format::Json).then_some("--format json");
        match output.into_iter().chain(self.terms.given()).chain(json).next() {
            Some(option) => Err(Failure::Usage(format!(
                "{option}: not with --shard: a shard writes no certificate; give it to the `lastbit merge` that joins the shards"
            ))),
            None => Ok(()),
        }
    }

    /// Whether a certificate can be written where it should be, over nothing that is read for it.
    ///
    /// # Errors
    /// What is in the way.
    fn must_have_place(&self, job: &Job, output: &Path) -> Result<(), Failure> {
        written::must_have_folder(output)?;
        let mut read = self.terms.files();
        read.extend(job.data.iter().map(|path| Named::new("--data", path)));
        read.extend([CHECKPOINT, VERDICTS].map(|name| Named::new("--out", self.out.join(name))));
        read.extend(
            [("--train", &job.train), ("--infer", &job.infer)].into_iter().flat_map(|(side, words)| of_kernel(side, words)),
        );
        must_be_apart(&read, &written::written_files(output))
    }

    /// Says of a run whose certificate could not be written that it is not lost.
    fn kept(&self, unwritten: Unwritten) -> Failure {
        let out = self.out.display();
        let kept = |reason| {
            format!(
                "{reason}; the run is kept in {out}: with that mended, the same command with --resume only writes the certificate"
            )
        };
        match unwritten {
            Unwritten::Records(failure) => failure,
            Unwritten::Terms(Failure::Usage(reason)) => Failure::Usage(kept(reason)),
            Unwritten::Terms(Failure::Output(reason)) => Failure::Output(kept(reason)),
        }
    }
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let reopened = if options.resume { Reopened::open(&options.out)? } else { None };
    let before = reopened.as_ref().map(Reopened::asked).transpose()?;
    let job = options.job(before.as_ref().map(|(job, _)| job))?;
    let shard = options.shard.or(before.as_ref().map(|(_, shard)| *shard)).unwrap_or(Shard::WHOLE);
    let output = options.output.clone().unwrap_or_else(|| OUTPUT.into());
    // Before hours are spent on what they are for.
    match shard.of() > 1 {
        true => options.must_be_of_a_shard()?,
        false => options.must_have_place(&job, &output)?,
    }
    if let (Some(run), Some((before, _))) = (&reopened, &before) {
        let command = format!("lastbit certify --resume --out {}", shell_words::quote(&options.out.display().to_string()));
        fuzz::must_name([&options.train, &options.infer], [&before.train, &before.infer], run.file(), command)?;
    }
    let terms = options.terms.load(job.battery)?;
    let ready = job.ready(consent)?;
    let mut journal = match reopened {
        Some(run) => Journal::resume(run, &ready, shard)?,
        None => Journal::begin(&options.out, &job, &ready, shard)?,
    };
    if job.battery != Size::Quick {
        let out = options.out.display();
        super::note(&format!("kept in {out} as it goes; if it is stopped, the same command with --resume goes on"));
    }
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
    written::write(&work, kernels, terms, &output, records, environment, jobs, options.format)
        .map_err(|unwritten| options.kept(unwritten))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        Line::try_parse_from([&["certify"], words].concat()).unwrap().options
    }

    #[test]
    fn what_is_left_out_is_that_of_the_run() {
        let whole = ["--train", "ref:fa2", "--infer", "ref:naive", "--battery", "quick", "--seed", "7", "--pin", "d=64"];
        let run = options(&[&whole[..], &["--data", "x.safetensors"]].concat()).job(None).unwrap();
        assert_eq!(options(&["--resume"]).job(Some(&run)).unwrap(), run);
        assert_eq!(options(&["--resume", "--seed", "8"]).job(Some(&run)).unwrap(), Job { seed: 8, ..run.clone() });
        let begun = options(&["--resume"]).job(None).unwrap();
        assert_eq!((begun.train.as_str(), begun.battery, begun.seed), ("ref:aligned", Size::Standard, 1));
        let reason = options(&["--resume"]).job(Some(&Job { against: true, ..run })).unwrap_err().to_string();
        assert!(reason.starts_with("--previous: is missing"), "{reason}");
    }

    #[test]
    fn what_a_shard_does_nothing_with_is_refused_and_merge_takes_it() {
        for given in [["-o", "x.json"], ["--sign", "key"], ["--waivers", "w.toml"], ["--floor", "0.5"], ["--format", "json"]] {
            let reason = options(&[&["--shard", "1/2"], &given[..]].concat()).must_be_of_a_shard().unwrap_err().to_string();
            assert!(reason.contains("not with --shard") && reason.contains("lastbit merge"), "{reason}");
        }
        assert!(options(&["--shard", "1/2", "--previous", "old.json"]).must_be_of_a_shard().is_ok());
    }

    #[test]
    fn a_certificate_replaces_nothing_that_is_read_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let reason = |words: &[&str], output: &str| {
            let options = options(words);
            options.must_have_place(&options.job(None).unwrap(), Path::new(output)).unwrap_err().to_string()
        };
        let (key, signature, kernel) = (at("key"), at("key.sig"), at("k.toml"));
        for file in [&key, &signature, &kernel] {
            std::fs::write(file, "text").unwrap();
        }
        assert!(reason(&["--sign", &key], &key).contains("would replace the file of --sign"));
        assert!(reason(&["--sign", &signature], &key).starts_with("--output, the signature "));
        assert!(reason(&["--waivers", &key], &key).contains("would replace the file of --waivers"));
        assert!(reason(&["--previous", &key], &key).contains("would replace the file of --previous"));
        assert!(reason(&["--data", &key], &key).contains("would replace the file of --data"));
        assert!(reason(&["--infer", &kernel], &kernel).contains("would replace the file of --infer"));
        assert!(reason(&["--out", &at("")], &at("checkpoint.json")).contains("would replace the file of --out"));
        // Nor is it begun where it cannot be written.
        assert!(reason(&[], &at("")).contains("is a folder; name a file"));
        assert!(reason(&[], &at("nowhere/cert.json")).contains("there is no folder"));
        assert!(reason(&[], "-").contains("is no file"));
        std::fs::write(at("counterexamples"), "text").unwrap();
        assert!(reason(&[], &at("cert.json")).contains("in the way of the folder of counterexamples"));
    }
}
