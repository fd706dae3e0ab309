//! What children do, by name.

use lastbit::external::process::{Command, Limits, ProcessKernel};
use std::process::ExitCode;
use std::time::Duration;

/// The environment variable that makes this binary a child.
pub const ROLE: &str = "LASTBIT_TEST_CHILD";

/// This binary in a role.
pub fn command(role: &str) -> Command {
    let binary = std::env::current_exe().expect("this binary").display().to_string();
    Command { argv: vec![binary], environment: vec![(ROLE.into(), role.into())], folder: None }
}

/// `lastbit serve` with a kernel.
pub fn serving(kernel: &str) -> Command {
    let argv = [env!("CARGO_BIN_EXE_lastbit"), "serve", kernel].map(str::to_owned).to_vec();
    Command { argv, environment: Vec::new(), folder: None }
}

/// Limits that a loaded machine keeps.
pub fn patient() -> Limits {
    Limits { start: Duration::from_secs(60), call: Duration::from_secs(60), compile: Duration::ZERO, memory: 4 << 30 }
}

/// Starts a child.
pub fn start(command: Command, limits: Limits) -> ProcessKernel {
    ProcessKernel::start(command, limits).expect("a kernel process")
}

pub fn play(role: &str) -> ExitCode {
    panic!("no role `{role}`")
}
