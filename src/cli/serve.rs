//! `lastbit serve`: a kernel of this program as a kernel process.

use super::{Failure, kernel};
use crate::exit_code;
use crate::external::name::Consent;
use crate::external::serve::serve;
use clap::Args;
use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::ErrorKind;

/// Options of `lastbit serve`.
#[derive(Args)]
pub(super) struct Options {
    /// The kernel to serve
    #[arg(value_name = "KERNEL")]
    kernel: String,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    // First of all: what a library prints must not get between frames.
    let output = stdout_for_frames().map_err(|error| Failure::Output(format!("stdout cannot be moved: {error}")))?;
    let implementation = kernel("serve", &options.kernel, consent)?;
    match serve(&*implementation.kernel, std::io::stdin().lock(), File::from(output)) {
        Ok(()) => Ok(exit_code::MATCH),
        // The other side is gone, which ends a kernel process like bye does.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(exit_code::MATCH),
        // The protocol's page asks for this code.
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            super::complain(&format!("serve: {error}"));
            Ok(exit_code::UNDECIDED)
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(Failure::Usage(format!("serve: stdin: {error}"))),
        Err(error) => Err(Failure::Output(format!("serve: {error}"))),
    }
}

/// Another descriptor for stdout; stderr takes its place.
fn stdout_for_frames() -> rustix::io::Result<OwnedFd> {
    let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(output)
}
