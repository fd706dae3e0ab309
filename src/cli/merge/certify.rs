//! Shards of `lastbit certify`: their records, in the order of the units, make the certificate that one run makes.

use super::shards::{Part, complete};
use crate::certify::certificate::Environment;
use crate::certify::record::Record;
use crate::cli::certify::Format;
use crate::cli::certify::job::Ready;
use crate::cli::certify::journal::{Checkpoint, checkpoint, records};
use crate::cli::certify::written::{self, Terms};
use crate::cli::job::Configuration;
use crate::cli::out_folder::{CHECKPOINT, VERDICTS};
use crate::cli::places::{Named, must_be_apart};
use crate::cli::shard::Shard;
use crate::cli::{Failure, fuzz, job_count};
use crate::external::name::Consent;
use crate::input_error::InputError;
use std::path::{Path, PathBuf};

/// A shard, as far as it has come.
struct ShardRun {
    part: Part,
    state: Checkpoint,
}

fn read(folder: &Path) -> Result<ShardRun, Failure> {
    let state = checkpoint(folder)?;
    let file = folder.join(CHECKPOINT).display().to_string();
    let shard: Shard = state.shard.parse().map_err(|reason: String| InputError::new(file, reason).field("shard"))?;
    let configuration = Configuration(state.configuration.clone().into_iter().collect());
    Ok(ShardRun { part: Part { folder: folder.to_owned(), shard, configuration }, state })
}

/// Writes the certificate.
///
/// # Errors
/// A shard that is missing, there twice, unfinished, or of another run; what [`written::write`] refuses.
pub(super) fn run(
    folders: &[PathBuf],
    output: &Path,
    terms: &Terms,
    [train, infer]: [Option<String>; 2],
    format: Format,
    consent: Consent,
) -> Result<u8, Failure> {
    let mut runs = folders.iter().map(|folder| read(folder)).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by_key(|run| run.part.shard.number());
    complete(&mut runs.iter().map(|run| run.part.clone()).collect::<Vec<_>>())?;
    let first = &runs[0];
    let file = first.part.folder.join(CHECKPOINT).display().to_string();
    let mut job = first.state.asked.job(&file)?;
    fuzz::must_name([&train, &infer], [&job.train, &job.infer], &file, merge_command(folders, output))?;
    let words = [job.train.clone(), job.infer.clone()];
    // However they are spelled now: the configuration says whether they are the same.
    job.train = train.unwrap_or(job.train);
    job.infer = infer.unwrap_or(job.infer);
    previous_fits(terms.previous.as_deref(), job.against)?;
    written::must_have_folder(output)?;
    let files = |run: &ShardRun| [CHECKPOINT, VERDICTS].map(|name| Named::new("a shard", run.part.folder.join(name)));
    must_be_apart(&runs.iter().flat_map(files).collect::<Vec<_>>(), &written::written_files(output))?;
    let loaded = terms.load(job.battery)?;
    let mut ready = job.ready(consent)?;
    if let Some((field, now, then)) = ready.configuration().difference(&first.part.configuration) {
        return Err(Failure::Usage(format!(
            "{file}: {field}: the shards have {then}, here it is {now}; join them with the kernels and the lastbit that ran them"
        )));
    }
    for (kernel, words) in ready.kernels.iter_mut().zip(words) {
        kernel.words = words;
    }
    let units = ready.work.units();
    for run in &runs {
        let Part { folder, shard, .. } = &run.part;
        let (done, own) = (run.state.done, shard.count(units));
        if done != own {
            return Err(Failure::Usage(format!(
                "{}: shard {shard}: has done {done} of its {own} units; go on with it: --resume",
                folder.display()
            )));
        }
    }
    let Ready { work, kernels } = ready;
    let states: Vec<&Checkpoint> = runs.iter().map(|run| &run.state).collect();
    let environment: Environment = written::environment(&work, &states);
    let joined = || -> Result<_, Failure> {
        let files = runs.iter().map(|run| records(&run.part.folder, &run.state)).collect::<Result<Vec<_>, _>>()?;
        Ok(InTurn { files, next: 0 })
    };
    let jobs = job_count(None, &[&work.battery.attention.pair.train, &work.battery.attention.pair.infer]);
    Ok(written::write(&work, kernels, loaded, output, joined, environment, jobs, format)?)
}

/// An earlier certificate adds a claim, and so changes what each shard runs.
fn previous_fits(previous: Option<&Path>, against: bool) -> Result<(), Failure> {
    match previous {
        Some(path) if !against => Err(Failure::Usage(format!(
            "--previous {}: the shards were run without one, and do not claim version_equal; run them with --previous, or leave it out",
            path.display()
        ))),
        _ => Ok(()),
    }
}

fn merge_command(folders: &[PathBuf], output: &Path) -> String {
    let word = |path: &PathBuf| shell_words::quote(&path.display().to_string()).into_owned();
    let all: Vec<String> = folders.iter().map(word).collect();
    format!("lastbit merge {} --output {}", all.join(" "), word(&output.to_owned()))
}

/// One record of each shard in turn, up to the first that has none left.
struct InTurn<I> {
    files: Vec<I>,
    next: usize,
}

impl<I: Iterator<Item = Result<Record, String>>> Iterator for InTurn<I> {
    type Item = Result<Record, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next;
        self.next = (at + 1) % self.files.len();
        self.files[at].next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_certificate_that_the_shards_were_run_without_is_refused() {
        let refused = previous_fits(Some(Path::new("old.json")), false).unwrap_err().to_string();
        assert!(refused.starts_with("--previous old.json: the shards were run without one"), "{refused}");
        for (previous, against) in [(Some(Path::new("old.json")), true), (None, true), (None, false)] {
            assert!(previous_fits(previous, against).is_ok(), "{previous:?} {against}");
        }
    }
}
