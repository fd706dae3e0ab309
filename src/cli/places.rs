//! Where a command writes, looked at before it works: never over a file that it reads, nor twice into one file, nor where nothing can be
//! written.

use super::Failure;
use super::out_folder::try_folder;
use crate::external::name::KernelName;
use std::fs;
use std::path::{Path, PathBuf};

/// What stdout is called where a file could be named.
pub(super) const STDOUT: &str = "-";

/// A path, and what names it: an option, or what an option brings along.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named {
    pub(super) by: String,
    pub(super) path: PathBuf,
}

impl Named {
    pub(super) fn new(by: impl Into<String>, path: impl Into<PathBuf>) -> Named {
        Named { by: by.into(), path: path.into() }
    }
}

/// The files that a kernel's name names: a kernel file, a library, the words of a command.
pub(super) fn of_kernel(option: &str, words: &str) -> Vec<Named> {
    let paths = match KernelName::parse(words) {
        Ok(KernelName::File(path) | KernelName::Library(path)) => vec![path],
        Ok(KernelName::Process(argv)) => argv.into_iter().map(PathBuf::from).collect(),
        // What is wrong with a name is said where it is opened.
        Ok(KernelName::Reference(_)) | Err(_) => Vec::new(),
    };
    paths.into_iter().map(|path| Named::new(option, path)).collect()
}

/// Whether a command leaves alone what it reads, and writes each file once.
///
/// # Errors
/// The first output that is an input, or another output.
pub(super) fn must_be_apart(inputs: &[Named], outputs: &[Named]) -> Result<(), Failure> {
    let read: Vec<(&Named, PathBuf)> = inputs.iter().filter_map(|it| Some((it, place(&it.path)?))).collect();
    let mut written: Vec<(&Named, PathBuf)> = Vec::new();
    for output in outputs {
        let Some(at) = place(&output.path) else { continue };
        let other = read.iter().chain(&written).find(|(_, there)| *there == at);
        if let Some((other, _)) = other {
            let (by, path) = (&output.by, output.path.display());
            return Err(Failure::Usage(format!("{by} {path}: would replace the file of {}; name another", other.by)));
        }
        written.push((output, at));
    }
    Ok(())
}

/// The one name of a plain file, also of one that is not there yet. `None`: a pipe, a device or a folder, which nothing replaces.
fn place(path: &Path) -> Option<PathBuf> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => None,
        Ok(_) => fs::canonicalize(path).ok(),
        Err(_) => Some(fs::canonicalize(folder_of(path)).ok()?.join(path.file_name()?)),
    }
}

/// The folder that a file stands in.
pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Whether a file can be written there at all: asked before hours are spent on it.
///
/// # Errors
/// There is no such folder, it takes no file, or a folder has the file's name.
pub(super) fn must_take_file(option: &str, path: &Path) -> Result<(), Failure> {
    let wrong = |reason: String| Err(Failure::Usage(format!("{option} {}: {reason}", path.display())));
    let folder = folder_of(path);
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return wrong("is a folder; name a file".into()),
        // A pipe or a device is written to where it stands.
        Ok(there) if !there.is_file() => return Ok(()),
        _ => {}
    }
    if !folder.is_dir() {
        return wrong(format!("there is no folder {}; make it, or name another", folder.display()));
    }
    match try_folder(folder) {
        Ok(()) => Ok(()),
        Err(error) => wrong(format!("no file can be written in {}: {error}; name another folder", folder.display())),
    }
}

/// Makes a folder for results where there is none.
///
/// # Errors
/// It cannot be made, or takes no file.
pub(super) fn must_take_folder(option: &str, path: &Path) -> Result<(), Failure> {
    let wrong = |reason: String| Err(Failure::Usage(format!("{option} {}: {reason}", path.display())));
    if path.exists() && !path.is_dir() {
        return wrong("is a file; name a folder".into());
    }
    match fs::create_dir_all(path).and_then(|()| try_folder(path)) {
        Ok(()) => Ok(()),
        Err(error) => wrong(format!("cannot be written: {error}; name another folder")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_output_is_an_input_or_another_output_however_it_is_spelled() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("there"), "text").unwrap();
        fs::create_dir(at("sub")).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(at("there"), at("link")).unwrap();
        let named = |all: &[(&str, &str)]| all.iter().map(|(by, name)| Named::new(*by, at(name))).collect::<Vec<_>>();
        let refusal = |inputs: &[(&str, &str)], outputs: &[(&str, &str)]| {
            must_be_apart(&named(inputs), &named(outputs)).err().map(|failure| failure.to_string())
        };
        let reads = [("--sign", "there"), ("--data", "nowhere/x")];
        assert_eq!(refusal(&reads, &[("--html", "new"), ("--junit", "other"), ("--sarif", "sub")]), None);
        for name in ["there", "sub/../there", if cfg!(unix) { "link" } else { "there" }] {
            let reason = refusal(&reads, &[("--output", name)]).unwrap();
            assert!(reason.starts_with("--output ") && reason.contains("would replace the file of --sign"), "{reason}");
        }
        let reason = refusal(&[], &[("--html", "new"), ("--junit", "sub/../new")]).unwrap();
        assert!(reason.starts_with("--junit ") && reason.contains("would replace the file of --html"), "{reason}");
        // Two reports may go to one device.
        let null = [Named::new("--html", "/dev/null"), Named::new("--junit", "/dev/null")];
        assert!(cfg!(not(unix)) || must_be_apart(&[], &null).is_ok());
    }

    #[test]
    fn the_files_of_a_kernel_are_its_own_and_those_of_its_command() {
        let paths = |words: &str| of_kernel("--train", words).into_iter().map(|it| it.path).collect::<Vec<_>>();
        assert_eq!(paths("ref:aligned"), Vec::<PathBuf>::new());
        assert_eq!(paths("a/k.toml"), [PathBuf::from("a/k.toml")]);
        assert_eq!(paths("lib:./k.so"), [PathBuf::from("./k.so")]);
        assert_eq!(paths("process:python 'my k.py'"), [PathBuf::from("python"), PathBuf::from("my k.py")]);
    }

    #[test]
    fn what_takes_no_file_or_is_no_folder_is_said_with_the_option() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        let file = |name: &str| must_take_file("-o", &at(name)).err().map(|failure| failure.to_string()).unwrap_or_default();
        assert_eq!((file("file"), file("new")), (String::new(), String::new()));
        assert!(file("").contains("is a folder; name a file"), "{}", file(""));
        assert!(file("no/x").contains("there is no folder"), "{}", file("no/x"));
        assert!(file("file/x").contains("there is no folder"), "{}", file("file/x"));
        assert!(must_take_folder("--out", &at("made/deep")).is_ok() && at("made/deep").is_dir());
        for name in ["file", "file/x"] {
            let reason = must_take_folder("--out", &at(name)).unwrap_err().to_string();
            assert!(reason.starts_with("--out ") && reason.contains("name a"), "{reason}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "what was tried is left behind");
    }
}
