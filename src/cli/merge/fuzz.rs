//! Shards of `lastbit fuzz`. Their lines, in the order of the cases, give the verdict file and the checkpoint with which one run would have
//! ended; it is then resumed to its end, which keeps, shrinks and sums up as every run does.

use super::shards::{Part, complete};
use crate::cli::Failure;
use crate::cli::checkpoint::{Checkpoint, State};
use crate::cli::fuzz::{self as command, Format, must_name};
use crate::cli::job::Job;
use crate::cli::out_folder::{CHECKPOINT, OutFolder, SHRUNK, VERDICTS, read_plain};
use crate::cli::verdict_line::ShardLine;
use crate::external::name::Consent;
use crate::input_error::InputError;
use crate::lab::{Length, Statistics};
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Read, Take};
use std::path::{Path, PathBuf};

/// Whether a folder is that of a run of fuzz.
pub(super) fn is_shard(folder: &Path) -> bool {
    folder.join(CHECKPOINT).is_file() && folder.join(VERDICTS).is_file()
}

/// A shard, as far as it has come.
struct ShardRun {
    part: Part,
    checkpoint: Checkpoint,
}

fn read(folder: &Path) -> Result<ShardRun, Failure> {
    let path = folder.join(CHECKPOINT);
    let file = path.display().to_string();
    let text = read_plain(&path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    let checkpoint = Checkpoint::parse(&text, &file)?;
    let Some(shard) = checkpoint.job.shard else {
        return Err(Failure::Usage(format!("{}: is a whole run and no shard; leave it out", folder.display())));
    };
    let mut configuration = checkpoint.configuration.clone().without_shard();
    // No two parts of one run can have other lengths.
    if let Length::Cases(cases) = checkpoint.job.length {
        configuration.0.push(("cases".into(), cases.to_string()));
    }
    Ok(ShardRun { part: Part { folder: folder.to_owned(), shard, configuration }, checkpoint })
}

/// The lines that a shard's checkpoint accounts for.
struct ShardLines {
    file: String,
    lines: Lines<BufReader<Take<File>>>,
    number: usize,
}

impl ShardLines {
    fn open(run: &ShardRun) -> Result<ShardLines, Failure> {
        let path = run.part.folder.join(VERDICTS);
        let file = path.display().to_string();
        let opened = File::open(&path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
        let lines = BufReader::new(opened.take(run.checkpoint.verdict_bytes)).lines();
        Ok(ShardLines { file, lines, number: 0 })
    }

    /// The line of the case, which is the next one; `None` at the end.
    fn next(&mut self, index: u64) -> Result<Option<ShardLine>, Failure> {
        let Some(text) = self.lines.next() else { return Ok(None) };
        self.number += 1;
        let wrong = |reason: String| InputError::new(&*self.file, reason).line(self.number);
        let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let line = ShardLine::parse(&text, &self.file, self.number)?;
        if line.index != index {
            return Err(wrong(format!("case: is {}, should be {index}; run this shard again", line.index)).into());
        }
        Ok(Some(line))
    }
}

/// Sees the lines of all cases before `end` in their order, up to the one after which `each` is true. Shards are sorted.
///
/// # Errors
/// A shard that has not come so far, or a line that is none.
fn walk(runs: &[ShardRun], end: u64, mut each: impl FnMut(ShardLine) -> Result<bool, Failure>) -> Result<(), Failure> {
    let mut files = runs.iter().map(ShardLines::open).collect::<Result<Vec<_>, _>>()?;
    for index in 0..end {
        let n = (index % runs.len() as u64) as usize;
        let Some(line) = files[n].next(index)? else {
            let Part { folder, shard, .. } = &runs[n].part;
            let out = shell_words::quote(&folder.display().to_string()).into_owned();
            return Err(Failure::Usage(format!(
                "{}: shard {shard}: has not come to case {index} of {end}; go on with it: lastbit fuzz --resume --out {out}",
                folder.display()
            )));
        };
        if each(line)? {
            break;
        }
    }
    Ok(())
}

/// What one run would have counted and kept.
#[derive(Default)]
struct Joined {
    statistics: Statistics,
    found: Vec<(u64, String)>,
}

impl Joined {
    /// As a run accounts for a case: each signature is kept once, and of the failures of one case that are one defect the first.
    fn take(&mut self, line: &ShardLine) {
        let mut families: Vec<&str> = Vec::new();
        for (signature, family) in &line.failures {
            if families.contains(&family.as_str()) || self.found.iter().any(|(_, known)| known == signature) {
                continue;
            }
            families.push(family);
            self.found.push((line.index, signature.clone()));
        }
        self.statistics.join(&line.counts);
    }
}

pub(super) fn run(
    folders: &[PathBuf],
    out: &Path,
    kernels: [Option<String>; 2],
    format: Format,
    consent: Consent,
) -> Result<u8, Failure> {
    let mut runs = folders.iter().map(|folder| read(folder)).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by_key(|run| run.part.shard.number());
    let mut parts: Vec<Part> = runs.iter().map(|run| run.part.clone()).collect();
    complete(&mut parts)?;
    let first = &runs[0];
    let Length::Cases(end) = first.checkpoint.job.length else {
        return Err(Failure::Usage(format!("{}: is a run by time; shards have --cases", first.part.folder.display())));
    };
    let job = Job { shard: None, ..first.checkpoint.job.clone() };
    let folder = |path: &Path| shell_words::quote(&path.display().to_string()).into_owned();
    let all: Vec<String> = folders.iter().map(|path| folder(path)).collect();
    let again = format!("lastbit merge {} --out {}", all.join(" "), folder(out));
    must_name(kernels.each_ref(), [&job.train, &job.infer], &first.part.folder.join(CHECKPOINT).display().to_string(), again)?;
    let target = std::fs::canonicalize(out).ok();
    if let Some(same) = folders.iter().find(|shard| target.is_some() && std::fs::canonicalize(shard).ok() == target) {
        return Err(Failure::Usage(format!("--out {}: is a shard's folder; name another", same.display())));
    }

    // Twice: nothing is written before all lines are known to be there.
    let mut joined = Joined::default();
    walk(&runs, end, |line| {
        joined.take(&line);
        Ok(!job.keep_going && joined.statistics.failed > 0)
    })?;
    let Joined { statistics, found } = joined;
    let configuration = first.checkpoint.configuration.clone().without_shard();
    let checkpoint = |verdict_bytes, state| {
        Checkpoint { job: job.clone(), configuration: configuration.clone(), verdict_bytes, state }.print()
    };
    let mut folder = OutFolder::create(out, &checkpoint(0, State::default()))?;
    walk(&runs, statistics.cases, |line| folder.verdict(&line.of_run, false).map(|()| false))?;
    for (index, signature) in &found {
        take_shrunk(&runs, *index, signature, &folder)?;
    }
    let seconds = runs.iter().map(|run| run.checkpoint.state.seconds).sum();
    folder.checkpoint(|bytes| checkpoint(bytes, State { statistics, found, seconds }))?;
    // It holds the lock.
    drop(folder);
    command::run(&command::Options::resume(out.to_owned(), kernels, format), consent)
}

/// Takes over what a shard made small; what none did is shrunk now.
fn take_shrunk(runs: &[ShardRun], index: u64, signature: &str, folder: &OutFolder) -> Result<(), Failure> {
    let name = crate::cli::found::file_name(index, signature);
    let owner = &runs[(index % runs.len() as u64) as usize].part.folder;
    match read_plain(&owner.join(SHRUNK).join(&name)) {
        Ok(text) => folder.save(SHRUNK, &name, &text).map(|_| ()),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::verdict_line::of_shard;
    use crate::finding::{Fault, Finding, Path, Skip, Verdict};
    use crate::lab::{OTHER_REASONS, SKIP_REASONS};
    use crate::number::Dtype;

    fn read(index: u64, verdict: &Verdict) -> ShardLine {
        let text = of_shard(index, verdict, &Statistics::of_case(verdict, Dtype::F32, 1));
        ShardLine::parse(&text, "x", 1).unwrap()
    }

    /// Which reasons are told apart is decided case by case, so it does not matter who ran them.
    #[test]
    fn more_reasons_than_are_told_apart_are_counted_as_one_run_counts_them() {
        let (mut run, mut joined) = (Statistics::default(), Joined::default());
        for index in 0..3 * SKIP_REASONS as u64 {
            let reasons = [format!("q = {}", 1000 - index), format!("kv = {}", index % 100)];
            let findings = reasons.map(|reason| Finding::Skipped { what: Skip::Case, reason }).to_vec();
            let verdict = Verdict { findings, left_out: vec![format!("d = {index}")], ..Verdict::default() };
            run.add(&verdict, Dtype::F32, 1);
            joined.take(&read(index, &verdict));
        }
        assert_eq!(joined.statistics, run);
        assert_eq!((run.skips.len(), run.left_out.len()), (SKIP_REASONS + 1, SKIP_REASONS + 1));
        assert!(run.skips[OTHER_REASONS] > 0);
    }

    #[test]
    fn of_one_defect_the_first_signature_that_is_new_is_kept() {
        let fault = Finding::Fault { path: Path::Train, fault: Fault::Failed("no".into()), relation: None };
        let mut joined = Joined::default();
        let line = |index, failures: &[(&str, &str)]| ShardLine {
            failures: failures.iter().map(|(signature, family)| ((*signature).to_owned(), (*family).to_owned())).collect(),
            ..read(index, &Verdict { findings: vec![fault.clone()], ..Verdict::default() })
        };
        joined.take(&line(4, &[("mismatch o", "mismatch"), ("mismatch lse", "mismatch"), ("fault x", "fault")]));
        joined.take(&line(5, &[("mismatch o", "mismatch"), ("mismatch lse", "mismatch")]));
        joined.take(&line(6, &[("mismatch lse", "mismatch")]));
        let found: Vec<(u64, &str)> = joined.found.iter().map(|(index, signature)| (*index, signature.as_str())).collect();
        assert_eq!(found, [(4, "mismatch o"), (4, "fault x"), (5, "mismatch lse")]);
    }
}
