//! What `replay` and `shrink` share: a kept case, perhaps with other kernels than its own.

use super::places::{Named, of_kernel};
use super::{Failure, kernel, note};
use crate::external::name::Consent;
use crate::finding::Path;
use crate::input_error::{InputError, shorten};
use crate::subject::attention::captured::Captured;
use crate::subject::attention::file::{self, Loaded};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::text::{External, KernelText};
use clap::Args;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

#[derive(Args, Clone)]
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

impl Swap {
    /// The files that it names.
    pub(super) fn files(&self) -> Vec<Named> {
        let kernels = [("--train", &self.train), ("--infer", &self.infer)];
        let kernels = kernels.into_iter().filter_map(|(option, words)| Some((option, words.as_deref()?)));
        let data = self.data.iter().map(|path| Named::new("--data", path));
        kernels.flat_map(|(option, words)| of_kernel(option, words)).chain(data).collect()
    }
}

/// Loads kept cases with the kernels and tensors that the command line gives.
pub(super) struct Loader {
    train: Option<Implementation>,
    infer: Option<Implementation>,
    captured: Option<Arc<Captured>>,
    /// As it was given.
    swap: Swap,
}

impl Loader {
    /// Reads kernel names and tensors, before any case is run.
    pub(super) fn new(swap: &Swap, consent: Consent) -> Result<Self, Failure> {
        let named = |option: &str, name: &Option<String>| name.as_deref().map(|name| kernel(option, name, consent)).transpose();
        Ok(Loader {
            train: named("--train", &swap.train)?,
            infer: named("--infer", &swap.infer)?,
            captured: swap.data.as_deref().map(Captured::load).transpose()?.map(Arc::new),
            swap: swap.clone(),
        })
    }

    fn swapped(&self, side: Path) -> &Option<Implementation> {
        match side {
            Path::Train => &self.train,
            Path::Infer => &self.infer,
        }
    }

    /// Loads a case. A kernel from outside that it names must be given; where that is another one than the file's, it is said.
    pub(super) fn load(&self, path: &FilePath) -> Result<Loaded, InputError> {
        // A file names kernels that it does not hold: the command line puts one in their place.
        let mut loaded = file::load_with(path, self.captured.clone(), |side, _| self.swapped(side).clone())?;
        if let Some(train) = &self.train {
            loaded.pair.train = train.clone();
        }
        if let Some(infer) = &self.infer {
            loaded.pair.infer = infer.clone();
        }
        for side in Path::BOTH {
            if let (KernelText::External(was), KernelText::External(is)) = (kept(&loaded, side), loaded.pair.side(side).text()) {
                for (field, was, is) in differences(was, &is) {
                    let path = path.display();
                    note(&format!("{path}: run.{side}.{field}: the file's kernel has {was}, this one has {is}"));
                }
            }
        }
        Ok(loaded)
    }

    /// Whether a loaded case runs with its file's kernels, perhaps in another version: with others, what the file expects means nothing.
    pub(super) fn are_own(&self, loaded: &Loaded) -> bool {
        Path::BOTH.into_iter().all(|side| match (kept(loaded, side), self.swapped(side)) {
            (_, None) => true,
            (KernelText::External(was), Some(kernel)) => {
                matches!(kernel.text(), KernelText::External(is) if is.name == was.name)
            }
            (KernelText::Reference(_), Some(_)) => false,
        })
    }

    /// The command that replays a case as it is replayed now.
    pub(super) fn command(&self, path: &FilePath) -> String {
        let Swap { train, infer, data } = &self.swap;
        let mut command = file::replay_command(&path.display().to_string(), train.as_deref(), infer.as_deref());
        if let Some(data) = data {
            command.push_str(&format!(" --data {}", shell_words::quote(&data.display().to_string())));
        }
        command
    }
}

/// The kernel of a side, as the file has it.
fn kept(loaded: &Loaded, side: Path) -> &KernelText {
    match side {
        Path::Train => &loaded.file.run.train,
        Path::Infer => &loaded.file.run.infer,
    }
}

/// In what two kernels differ: field, and what either has. The words that name them are no part of who they are.
fn differences(was: &External, is: &External) -> Vec<(&'static str, String, String)> {
    let none = |digest: &Option<String>| digest.as_deref().unwrap_or("none").to_owned();
    let fields = [
        ("name", was.name.clone(), is.name.clone()),
        ("version", was.version.clone(), is.version.clone()),
        ("device", was.device.clone(), is.device.clone()),
        ("digest", none(&was.digest), none(&is.digest)),
    ];
    let differ = fields.into_iter().filter(|(_, was, is)| was != is);
    differ.map(|(field, was, is)| (field, format!("`{}`", shorten(&was)), format!("`{}`", shorten(&is)))).collect()
}
