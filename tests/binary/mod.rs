//! What the tests of the real binary share: a temporary folder to run it in.

#![allow(dead_code, reason = "each test binary uses its own part")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command, to be run in this folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lastbit"));
        command.args(arguments).current_dir(self.0.path());
        command
    }

    pub fn lastbit(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// The binary under a shell: `$LASTBIT` is its path.
    #[cfg(unix)]
    pub fn shell(&self, script: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("LASTBIT", env!("CARGO_BIN_EXE_lastbit"));
        command.current_dir(self.0.path()).output().expect("a shell")
    }
}

pub fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn last_json(output: &Output) -> serde_json::Value {
    let text = stdout(output);
    serde_json::from_str(text.lines().last().expect("a last line")).expect("one JSON object")
}

/// A file of this repository.
pub fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// An interpreter with numpy; `None` where none is named, which is said.
pub fn python() -> Option<String> {
    match std::env::var("LASTBIT_PYTHON") {
        Ok(python) => Some(python),
        Err(_) => {
            eprintln!("SKIPPED: set LASTBIT_PYTHON=/path/to/python (with numpy) to run the kernels in Python");
            None
        }
    }
}

/// Every file of a run: path in its folder, bytes. Times are taken out, and must be there.
pub fn files(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(out.join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = folder.join(entry.file_name());
            if entry.file_type().expect("a type").is_dir() {
                folders.push(name);
                continue;
            }
            let mut bytes = std::fs::read(entry.path()).expect("a file");
            let times: &[&str] = match name.to_str() {
                Some("summary.json") => &["seconds", "cases_per_second"],
                Some("checkpoint.json") => &["seconds"],
                _ => &[],
            };
            if !times.is_empty() {
                let mut value: Value = serde_json::from_slice(&bytes).expect("JSON");
                for time in times {
                    value.as_object_mut().expect("an object").remove(*time).expect("a time");
                }
                bytes = format!("{value:#}").into_bytes();
            }
            files.insert(name.display().to_string(), bytes);
        }
    }
    files
}

/// The same files with the same bytes, and a message that can be read when not.
pub fn assert_same(one: &BTreeMap<String, Vec<u8>>, other: &BTreeMap<String, Vec<u8>>, what: &str) {
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{what}");
    for (name, bytes) in one {
        assert!(bytes == &other[name], "{what}: {name} differs");
    }
}
