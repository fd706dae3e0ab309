//! What a run keeps of a finding: the case as it was drawn, then the small one.

use super::fresh::{self, Fresh};
use super::out_folder::{FOUND, OutFolder, SHRUNK};
use super::until::Until;
use super::{Failure, complain, note};
use crate::finding::Finding;
use crate::lab::check_one;
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject;
use crate::subject::attention::check::Scratch;
use crate::subject::attention::explain::{Explanation, explain};
use crate::subject::attention::text::{External, print as print_case};
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{Attention, Case, file};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A finding that is kept: the first of its signature.
pub(super) struct Found {
    pub(super) index: u64,
    trial: Trial,
    pub(super) finding: Finding,
    pub(super) file: PathBuf,
}

/// A shrunk finding and its explanation.
pub(super) struct Small {
    pub(super) path: PathBuf,
    pub(super) case: Case,
    pub(super) explanation: Explanation,
    /// `None` where no kernel is a process.
    pub(super) fresh: Option<Fresh>,
    /// Shrinking was stopped for want of time.
    pub(super) stopped: bool,
}

impl Small {
    /// What a reader must know of the small case.
    pub(super) fn notes(&self) -> Vec<String> {
        let stopped = self.stopped.then(|| {
            let minutes = SHRINK_TIME.as_secs() / 60;
            format!("shrinking was stopped after {minutes} minutes: `lastbit shrink`, with the same kernels, may make it smaller")
        });
        stopped.into_iter().chain(self.fresh.as_ref().and_then(Fresh::note)).collect()
    }
}

/// How long a case with a kernel from outside is shrunk: each step that hangs waits for the kernel's time to be over.
const SHRINK_TIME: Duration = Duration::from_secs(600);

/// What a kept case is called.
pub(super) fn file_name(index: u64, signature: &str) -> String {
    format!("{index:08}-{}.case", signature.replace(' ', "-"))
}

impl Found {
    /// Saves the case of a finding.
    pub(super) fn save(
        folder: &OutFolder,
        attention: &Attention,
        seed: u64,
        index: u64,
        trial: &Trial,
        finding: &Finding,
    ) -> Result<Found, Failure> {
        let signature = finding.signature();
        let comment = format!("{signature}: case {index} of seed {seed}");
        let content = print_case(&file::file(comment, &attention.pair, trial, Some(finding)));
        let file = folder.save(FOUND, &file_name(index, &signature), &content)?;
        Ok(Found { index, trial: trial.clone(), finding: finding.clone(), file })
    }

    /// Makes a finding of an earlier part of the run again, and its file with it.
    ///
    /// # Errors
    /// The case does not show it any more.
    pub(super) fn again(
        folder: &OutFolder,
        attention: &Attention,
        seed: u64,
        index: u64,
        signature: &str,
        scratch: &mut Scratch,
    ) -> Result<Found, Failure> {
        let trial = attention.draw(seed, index);
        let verdict = check_one(attention, &trial, scratch);
        let Some(finding) = verdict.findings.iter().find(|finding| finding.signature() == signature) else {
            return Err(Failure::Usage(format!(
                "{}: case {index} does not show `{signature}` again: this is another build of lastbit, or a kernel that does not \
                 repeat itself; leave out --resume to begin anew",
                folder.path().display()
            )));
        };
        Found::save(folder, attention, seed, index, &trial, finding)
    }

    /// Makes the case small. One that an earlier part of the run made small is taken from its file. `None`: the case does not show
    /// the finding again.
    pub(super) fn shrink(
        &self,
        folder: &OutFolder,
        attention: &Attention,
        scratch: &mut Scratch,
    ) -> Result<Option<Small>, Failure> {
        let signature = self.finding.signature();
        let name = file_name(self.index, &signature);
        if let Some(small) = self.shrunk_before(folder, attention, &name, &signature) {
            return Ok(Some(small));
        }
        note(&format!("shrinking case {}: {signature}", self.index));
        let outside = [&attention.pair.train, &attention.pair.infer].iter().any(|kernel| kernel.source.is_some());
        let until = Until::new(attention, outside.then(|| Instant::now() + SHRINK_TIME));
        let Some(shrunk) = shrink(&until, &self.trial, &signature, BUDGET, scratch) else {
            complain(&format!("case {} does not show `{signature}` again: a kernel does not repeat itself", self.index));
            return Ok(None);
        };
        let mut file = file::file(String::new(), &attention.pair, &shrunk.trial, Some(&shrunk.finding));
        let whole = file::replayed(&attention.pair, &shrunk.trial, &shrunk.finding);
        let explanation = explain(&attention.pair, &whole, &name, Some(&signature));
        let cause = explanation.cause.as_ref().map_or("cause unknown".to_owned(), |cause| cause.to_string());
        file.comment = format!("{signature}: {cause}");
        let path = folder.save(SHRUNK, &name, &print_case(&file))?;
        let explanation = explain(&attention.pair, &whole, &path.display().to_string(), Some(&signature));
        let fresh = fresh::run(&attention.pair, &shrunk.trial, &signature);
        Ok(Some(Small { path, case: shrunk.trial.case, explanation, fresh, stopped: until.passed() }))
    }

    /// The small case that an earlier part of the run has saved, if it still shows the finding.
    fn shrunk_before(&self, folder: &OutFolder, attention: &Attention, name: &str, signature: &str) -> Option<Small> {
        let path = folder.path().join(SHRUNK).join(name);
        // Kernels from outside are the run's own: it was asked for with them, and goes on with no others.
        let own = |side, _: &External| Some(attention.pair.side(side).clone());
        let loaded = file::load_with(&path, attention.pair.captured.clone(), own).ok()?;
        let explanation = explain(&attention.pair, &loaded.trial, &path.display().to_string(), Some(signature));
        let fresh = fresh::run(&attention.pair, &loaded.trial, signature);
        explanation.meets(signature).then_some(Small { path, case: loaded.trial.case, explanation, fresh, stopped: false })
    }
}
