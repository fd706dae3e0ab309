//! What the tests of the real binary share: a temporary folder to run it in.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::PathBuf;
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
