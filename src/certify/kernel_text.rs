//! A kernel as a certificate names it: digests of what it declares, and of the files behind it as they are found.

use super::certificate::{Contract, KernelText};
use super::digest::{of_json, sha256};
use super::statement::Resource;
use crate::external::kernel_file::{KernelFile, Runs};
use crate::external::name::KernelName;
use crate::external::process::Command;
use crate::finding::Path;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel_fields;
use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};

/// Fields that say where a kernel runs, not what it computes.
const DEPLOYMENT: [&str; 5] = ["name", "version", "device", "digest", "details."];

/// Fields that say what a call means, and which calls it takes.
const SEMANTICS: [&str; 6] = ["lse", "conventions.", "declared.", "actual.", "capabilities.", "knobs."];

/// Of a kernel on a side; `words` are those of the command line.
///
/// # Errors
/// A file of it that cannot be read: its name, and why.
pub fn kernel_text(side: Path, words: &str, kernel: &Implementation) -> Result<KernelText, String> {
    let identity = kernel.kernel.identity();
    let fields: BTreeMap<String, String> = kernel_fields::fields(kernel).into_iter().collect();
    let is = |name: &str, of: &[&str]| of.iter().any(|it| name == *it || it.ends_with('.') && name.starts_with(it));
    let digest = |keep: &dyn Fn(&str) -> bool| of_json(&fields.iter().filter(|(name, _)| keep(name)).collect::<BTreeMap<_, _>>());
    Ok(KernelText {
        side: side.to_string(),
        words: words.to_owned(),
        name: identity.name,
        version: identity.version,
        declared_sha256: identity.digest,
        measured_sha256: measured(words)?,
        contract: Contract {
            semantics: digest(&|name| is(name, &SEMANTICS)),
            numerics: digest(&|name| !is(name, &SEMANTICS) && !is(name, &DEPLOYMENT)),
            deployment: digest(&|name| is(name, &DEPLOYMENT)),
        },
        fields,
    })
}

impl KernelText {
    /// The kernel as the subject of a statement: one digest over everything that is known of it.
    pub fn resource(&self) -> Resource {
        let all = (&self.name, &self.version, &self.declared_sha256, &self.measured_sha256, &self.fields);
        Resource::new(format!("{}: {}", self.side, self.name), of_json(&all))
    }
}

/// SHA-256 over the files that a kernel's name stands for: its library, its kernel file and what that runs, the program of a process and
/// the files among its arguments. `None` for a kernel that is part of lastbit.
fn measured(words: &str) -> Result<Option<String>, String> {
    let files: Vec<PathBuf> = match KernelName::parse(words)? {
        KernelName::Reference(_) => return Ok(None),
        KernelName::Library(path) => vec![path],
        KernelName::Process(argv) => started(&argv, None),
        KernelName::File(path) => {
            let runs = match KernelFile::load(&path).map_err(|error| error.to_string())?.runs {
                Runs::Process(Command { argv, folder, .. }) => started(&argv, folder.as_deref()),
                Runs::Library { path, .. } => vec![path],
                Runs::Reference(_) => Vec::new(),
            };
            [path].into_iter().chain(runs).collect()
        }
    };
    let digests: Result<Vec<String>, String> = files.iter().map(|path| of_file(path)).collect();
    Ok(Some(match &digests?[..] {
        [one] => one.clone(),
        several => of_json(&several),
    }))
}

fn of_file(path: &FilePath) -> Result<String, String> {
    std::fs::read(path).map(sha256).map_err(|error| format!("{}: cannot be read for its digest: {error}", path.display()))
}

/// The program of a command that is started in a folder, and the files among its arguments.
fn started(argv: &[String], folder: Option<&FilePath>) -> Vec<PathBuf> {
    let there = |name: &str| folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
    let program = argv.first().map(|name| Some(there(name)).filter(|it| it.is_file()).unwrap_or_else(|| program(name)));
    let arguments = argv.iter().skip(1).map(|name| there(name)).filter(|path| path.is_file());
    program.into_iter().chain(arguments).collect()
}

/// The file that a shell would start.
fn program(name: &str) -> PathBuf {
    let path = PathBuf::from(name);
    if path.components().count() > 1 {
        return path;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|it| it.is_file()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::reference::Reference;

    fn text(words: &str) -> KernelText {
        kernel_text(Path::Train, words, &Implementation::reference(Reference::parse(words).unwrap())).unwrap()
    }

    /// What has changed can be told from which digest has.
    #[test]
    fn semantics_and_numerics_are_apart() {
        let plain = text("ref:aligned");
        let block = text("ref:aligned,softmax.block=16");
        let anchor = text("ref:aligned,actual.anchor=top_left");
        assert_eq!(plain.contract.semantics, block.contract.semantics);
        assert_ne!(plain.contract.numerics, block.contract.numerics);
        assert_eq!(plain.contract.numerics, anchor.contract.numerics);
        assert_ne!(plain.contract.semantics, anchor.contract.semantics);
        assert_ne!(plain.resource().sha256(), block.resource().sha256());
        assert_eq!(plain.measured_sha256, None);
    }

    #[test]
    fn files_are_measured() {
        let file = tempfile::NamedTempFile::with_suffix(".so").unwrap();
        std::fs::write(file.path(), b"one").unwrap();
        let words = format!("lib:{}", file.path().display());
        assert_eq!(measured(&words).unwrap(), Some(sha256("one")));
        assert!(measured("process:sh -c true").unwrap().is_some());
        // What a kernel file starts, in the folder that it names.
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("kernel.toml");
        std::fs::write(&kernel, "format = 1\ncommand = [\"sh\", \"serve.sh\"]\n").unwrap();
        let with = |script: &str| {
            std::fs::write(folder.path().join("serve.sh"), script).unwrap();
            measured(&kernel.display().to_string()).unwrap().expect("files")
        };
        assert_ne!(with("exit 1"), with("exit 2"));
        assert_eq!(with("exit 1"), with("exit 1"));
        assert!(measured("lib:/no/such.so").unwrap_err().contains("/no/such.so"));
    }
}
