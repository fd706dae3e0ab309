//! What is started, and what it is allowed.

use std::path::PathBuf;
use std::time::Duration;

/// A command line without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments; at least one.
    pub argv: Vec<String>,
    /// Added to the environment of this process.
    pub environment: Vec<(String, String)>,
    /// Working folder; `None` is that of this process.
    pub folder: Option<PathBuf>,
}

/// What a kernel process is allowed. Each is a bound on waiting or on size, not on results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start to the welcome: importing a framework takes seconds.
    pub start: Duration,
    /// One call, counted from when the calls before it were answered.
    pub call: Duration,
    /// Added to the first call of a shape: compilers work then.
    pub compile: Duration,
    /// Resident bytes of the process and its children. Not an address-space limit, which CUDA cannot live with.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let (start, call, compile) = (Duration::from_secs(120), Duration::from_secs(30), Duration::from_secs(120));
        Limits { start, call, compile, memory: 16 << 30 }
    }
}
