//! Shards of `lastbit certify`: their records, dealt back into one order, make the certificate that one run writes.

use super::Options;
use super::shards::{Part, complete};
use crate::certify::record::Record;
use crate::cli::certify::Format as Written;
use crate::cli::certify::job::Job;
use crate::cli::certify::journal::{Checkpoint, checkpoint, records};
use crate::cli::certify::written;
use crate::cli::fuzz::{self as command, Format};
use crate::cli::job::Configuration;
use crate::cli::{Failure, job_count};
use crate::external::name::Consent;
use crate::input_error::InputError;
use std::path::{Path, PathBuf};

pub(super) fn run(options: &Options, output: &Path, consent: Consent) -> Result<u8, Failure> {
    let mut shards = Vec::new();
    for folder in &options.shards {
        let state = checkpoint(folder)?;
        let shard = state.shard.parse().map_err(|reason| InputError::new(&*folder.display().to_string(), reason).field("shard"))?;
        let configuration = Configuration(state.configuration.clone().into_iter().collect());
        shards.push((Part { folder: folder.clone(), shard, configuration }, state));
    }
    let mut parts: Vec<Part> = shards.iter().map(|(part, _)| part.clone()).collect();
    complete(&mut parts)?;
    shards.sort_by_key(|(part, _)| part.shard.number());
    let first = &shards[0].1;
    let file = shards[0].0.folder.display().to_string();
    let was = first.asked.job(&file)?;
    command::must_name([&options.train, &options.infer], [&was.train, &was.infer], &file, command_line(&options.shards, output))?;
    let job = Job {
        train: options.train.clone().unwrap_or(was.train),
        infer: options.infer.clone().unwrap_or(was.infer),
        data: options.data.clone().or(was.data),
        ..was
    };
    let terms = options.terms.load(job.battery)?;
    if job.against != options.terms.previous.is_some() {
        let why = "was given to the shards, or was not; --previous adds a claim, so it is all or none";
        return Err(Failure::Usage(format!("--previous: {why}")));
    }
    let ready = job.ready(consent)?;
    let now = Configuration(ready.configuration().0.into_iter().collect::<std::collections::BTreeMap<_, _>>().into_iter().collect());
    if let Some((field, then, now)) = parts[0].configuration.difference(&now) {
        return Err(Failure::Usage(format!("{file}: {field}: the shards have {then}, here it is {now}; merge where they were run")));
    }
    let units = ready.work.units();
    for (part, state) in &shards {
        let all = part.shard.count(units);
        if state.done < all {
            let (folder, shard, done) = (part.folder.display(), part.shard, state.done);
            return Err(Failure::Usage(format!(
                "{folder}: shard {shard} has {done} of {all} units; run it on with `lastbit certify --resume --shard {shard} --out {folder}`"
            )));
        }
    }
    let states: Vec<&Checkpoint> = shards.iter().map(|(_, state)| state).collect();
    let environment = written::environment(&ready.work, &states);
    let pair = &ready.work.battery.attention.pair;
    let jobs = job_count(options.jobs, &[&pair.train, &pair.infer]);
    let format = if options.format == Format::Json { Written::Json } else { Written::Human };
    let dealt = || {
        let of: Result<Vec<_>, Failure> = shards.iter().map(|(part, state)| records(&part.folder, state)).collect();
        let mut of = of?;
        let count = of.len() as u64;
        Ok((0..units).map(move |unit| {
            let next: Option<Result<Record, String>> = of[(unit % count) as usize].next();
            next.unwrap_or_else(|| Err(format!("shard {} of {count} has no record of unit {unit}", unit % count + 1)))
        }))
    };
    written::write(&ready.work, ready.kernels, terms, output, dealt, environment, jobs, format)
}

fn command_line(shards: &[PathBuf], output: &Path) -> String {
    let folders: Vec<String> = shards.iter().map(|it| shell_words::quote(&it.display().to_string()).into_owned()).collect();
    format!("lastbit merge {} --output {}", folders.join(" "), shell_words::quote(&output.display().to_string()))
}
