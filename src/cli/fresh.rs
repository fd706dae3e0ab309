//! Whether a finding needs what was called before it.

use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::KernelError;
use crate::subject::attention::trial::Trial;

/// A small case, run once where nothing was called before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// It shows its finding there too.
    Shows,
    /// It does not.
    Hidden,
    /// It could not be run: why.
    Unknown(String),
}

impl Fresh {
    /// What a reader must know; `None` where all is as it seems.
    pub(super) fn note(&self) -> Option<String> {
        match self {
            Fresh::Shows => None,
            Fresh::Hidden => Some("does not show in a fresh process: depends on what was called before".into()),
            Fresh::Unknown(reason) => Some(format!("not run in a fresh process: {reason}")),
        }
    }
}

/// Runs a trial with every process anew. `None`: neither kernel has one.
pub(super) fn run(pair: &Pair, trial: &Trial, signature: &str) -> Option<Fresh> {
    let mut fresh = pair.clone();
    let mut any = false;
    for side in [&mut fresh.train, &mut fresh.infer] {
        match side.kernel.afresh() {
            None => {}
            Some(Ok(kernel)) => {
                *side = Implementation { kernel, ..side.clone() };
                any = true;
            }
            Some(Err(KernelError::Unsupported(reason) | KernelError::Failed(reason))) => return Some(Fresh::Unknown(reason)),
            Some(Err(KernelError::Broken { breakage, detail })) => return Some(Fresh::Unknown(format!("{breakage}: {detail}"))),
        }
    }
    any.then(|| {
        let verdict = fresh.check(trial, &mut fresh.scratch());
        let shows = verdict.findings.iter().any(|finding| finding.signature() == signature);
        if shows { Fresh::Shows } else { Fresh::Hidden }
    })
}
