//! Why a test failed, in full.

use super::{Report, Suite, Test};
use crate::finding::Finding;
use crate::shrink::{BUDGET, shrink};
use crate::subject::attention::check::Scratch;
use crate::subject::attention::explain::explain_with;
use crate::subject::attention::text::print;
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{file, text};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a test of a suite failed.
#[derive(Clone, Debug)]
pub enum Failure {
    /// A case shows something wrong.
    Found(Box<Found>),
    /// Fewer cases were compared than were asked for: a pass would have meant nothing.
    TooFew {
        /// What was done.
        report: Report,
        /// Cases that had to be compared.
        wanted: u64,
    },
    /// No compared case could have shown a changed order.
    Blind {
        /// What was done.
        report: Report,
    },
    /// A case file cannot be replayed, or has nothing to compare.
    Replay(String),
}

/// What a test found, made small.
#[derive(Clone, Debug)]
pub struct Found {
    /// The shrunk case and what is checked of it.
    pub trial: Trial,
    /// What it shows.
    pub finding: Finding,
    /// The case file that was written, or why none was.
    pub file: Result<PathBuf, String>,
    /// Everything in words: the verdict, the command that replays it, and the text of the case.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Found(found) => f.write_str(&found.text),
            Failure::TooFew { report, wanted } => {
                write!(f, "too few cases were compared: {} of {wanted}; a pass would mean nothing\n{report}\n", report.compared)?;
                f.write_str(
                    "where the kernel supports little, draw only that: `Suite::only`; or ask for fewer cases: `Suite::cases`",
                )
            }
            Failure::Blind { report } => {
                write!(f, "no compared case could have shown a changed order of summation: compare more cases\n{report}")
            }
            Failure::Replay(reason) => f.write_str(reason),
        }
    }
}

impl Suite {
    /// Shrinks a failing trial, writes its case file and explains it.
    pub(super) fn found(&self, test: Test, index: u64, trial: &Trial, finding: &Finding, scratch: &mut Scratch) -> Found {
        let (pair, signature) = (&self.attention.pair, finding.signature());
        let (small, finding, how) = match shrink(&self.attention, trial, &signature, BUDGET, scratch) {
            Some(it) => {
                let stopped = if it.exhausted { " (budget reached: not a fixed point)" } else { "" };
                (it.trial, it.finding, format!("shrunk in {} evaluations{stopped}", it.evaluations))
            }
            None => (trial.clone(), finding.clone(), "not seen again when run again: the kernel does not repeat itself".into()),
        };
        let from = format!("{test} of {}, case {index} of seed {}", self.names(), self.seed);
        let case = print(&file::file(format!("{signature}: {from}"), pair, &small, Some(&finding)));
        let written = self.write(test, &case);
        let command = match &written {
            Ok(path) => format!("LASTBIT_CASE={} cargo test {}{test}", shell_word(path), self.module),
            Err(reason) => {
                format!("{reason}; copy the case below to FILE, then LASTBIT_CASE=FILE cargo test {}{test}", self.module)
            }
        };
        let whole = file::replayed(pair, &small, &finding);
        let explanation = explain_with(pair, &whole, &command, Some(&signature));
        let text = format!("{from}\n{signature}, {how}\n{}\n{case}", explanation.text);
        Found { trial: small, finding, file: written, text }
    }

    fn write(&self, test: Test, case: &str) -> Result<PathBuf, String> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = format!("{}{}", self.module.replace("::", "-"), self.names()).chars().map(plain).collect();
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let path = folder.join(format!("{name}-{test}.case"));
        let write = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, case));
        write.map(|()| path.clone()).map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }

    /// Replays a case file with the suite's kernels: everything is checked, and the relation that the file names.
    ///
    /// Gives the verdict in words where nothing is wrong. The kernels are found by name; their version may be another one.
    ///
    /// # Errors
    /// What the case shows; or that the file cannot be read, names other kernels, or has nothing to compare.
    pub fn replay(&self, path: &Path) -> Result<String, Failure> {
        super::stamp::silence_kernel_panics();
        let pair = &self.attention.pair;
        let own = |side, external: &text::External| {
            let implementation = pair.side(side);
            let own = matches!(implementation.text(), text::KernelText::External(it) if it.name == external.name);
            own.then(|| implementation.clone())
        };
        let loaded = file::load_with(path, None, own)
            .map_err(|error| Failure::Replay(format!("{error}\n(this suite tests {})", self.names())))?;
        let is_own = [&loaded.pair.train, &loaded.pair.infer].iter().any(|it| it.reference.is_none());
        if !is_own {
            let reason = format!("{}: names no kernel of this suite ({})", path.display(), self.names());
            return Err(Failure::Replay(reason));
        }
        let command = format!("LASTBIT_CASE={} cargo test", shell_word(path));
        let explanation = explain_with(&loaded.pair, &loaded.trial, &command, Some(&loaded.file.run.expect));
        let verdict = &explanation.verdict;
        if let Some(finding) = verdict.failure() {
            let case = print(&loaded.file);
            let text = format!("{}\n{}\n{case}", finding.signature(), explanation.text);
            let (trial, finding) = (loaded.trial, finding.clone());
            return Err(Failure::Found(Box::new(Found { trial, finding, file: Ok(path.to_owned()), text })));
        }
        if verdict.compared == 0 {
            return Err(Failure::Replay(format!("{}: nothing was compared\n{}", path.display(), explanation.text)));
        }
        Ok(explanation.text)
    }
}

/// A path as one word of a shell's command line.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
