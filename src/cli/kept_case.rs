//! What `replay` and `shrink` share: a kept case, perhaps with other kernels than its own.

use super::{Failure, kernel};
use crate::finding;
use crate::input_error::InputError;
use crate::subject::attention::captured::Captured;
use crate::subject::attention::file::{self, Loaded};
use crate::subject::attention::implementation::Implementation;
use clap::Args;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args)]
pub(super) struct Swap {
    /// Another training kernel than the file's
    #[arg(long, value_name = "K")]
    train: Option<String>,
    /// Another inference kernel than the file's
    #[arg(long, value_name = "K")]
    infer: Option<String>,
    /// Captured tensors that a case names by digest
    #[arg(long, value_name = "FILE.safetensors")]
    data: Option<PathBuf>,
}

/// Loads kept cases with the kernels and tensors that the command line gives.
pub(super) struct Loader {
    train: Option<Implementation>,
    infer: Option<Implementation>,
    captured: Option<Arc<Captured>>,
}

impl Loader {
    /// Reads kernel names and tensors, before any case is run.
    pub(super) fn new(swap: &Swap) -> Result<Self, Failure> {
        let named = |option: &str, name: &Option<String>| name.as_deref().map(|name| kernel(option, name)).transpose();
        Ok(Loader {
            train: named("--train", &swap.train)?,
            infer: named("--infer", &swap.infer)?,
            captured: swap.data.as_deref().map(Captured::load).transpose()?.map(Arc::new),
        })
    }

    /// Whether a case runs with other kernels than its file's: what the file expects then means nothing.
    pub(super) fn swaps(&self) -> bool {
        self.train.is_some() || self.infer.is_some()
    }

    fn swapped(&self, side: finding::Path) -> &Option<Implementation> {
        match side {
            finding::Path::Train => &self.train,
            finding::Path::Infer => &self.infer,
        }
    }

    pub(super) fn load(&self, path: &Path) -> Result<Loaded, InputError> {
        // A file may name a kernel that only another crate holds: the command line can put one in its place.
        let mut loaded = file::load_with(path, self.captured.clone(), |side, _| self.swapped(side).clone())?;
        if let Some(train) = &self.train {
            loaded.pair.train = train.clone();
        }
        if let Some(infer) = &self.infer {
            loaded.pair.infer = infer.clone();
        }
        Ok(loaded)
    }
}
