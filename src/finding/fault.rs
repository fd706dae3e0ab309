//! Kernels that did not do their work.

use crate::tensor::Index;
use std::fmt;

/// How a kernel, or the process that holds it, broke. Shrinking keeps it: a crash does not become a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breakage {
    /// Its process ended: a signal, or an early exit.
    Crashed,
    /// No answer within the time allowed; the process was ended.
    TimedOut,
    /// An answer that is none: noise, half a frame, another request's number, an unknown kind.
    Garbled,
    /// An answer whose tensors do not have the shapes or formats that were asked for.
    Misshapen,
    /// Its process grew beyond the memory allowed, and was ended.
    OutOfMemory,
    /// It wrote outside its output.
    WroteOutside,
    /// The device reported an error that stays; the process was restarted.
    DeviceError,
    /// Its process could not be started.
    NotStarted,
}

impl Breakage {
    /// In the words of verdicts and of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Breakage::Crashed => "crashed",
            Breakage::TimedOut => "timed_out",
            Breakage::Garbled => "garbled",
            Breakage::Misshapen => "misshapen",
            Breakage::OutOfMemory => "out_of_memory",
            Breakage::WroteOutside => "wrote_outside",
            Breakage::DeviceError => "device_error",
            Breakage::NotStarted => "not_started",
        }
    }
}

impl fmt::Display for Breakage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Breakage::Crashed => "the process ended",
            Breakage::TimedOut => "no answer in time",
            Breakage::Garbled => "the answer is none",
            Breakage::Misshapen => "the answer has other tensors than asked for",
            Breakage::OutOfMemory => "the process grew beyond its memory",
            Breakage::WroteOutside => "wrote outside its output",
            Breakage::DeviceError => "the device reported an error",
            Breakage::NotStarted => "the process did not start",
        })
    }
}

/// A kernel that did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An output slot still holds the canary.
    Unwritten {
        /// `o` or `lse`.
        output: &'static str,
        /// Where.
        index: Index,
    },
    /// The call reported a failure, or panicked.
    Failed(String),
    /// The kernel, or the process that holds it, broke.
    Broken {
        /// In which way.
        breakage: Breakage,
        /// What was seen.
        detail: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unwritten { output, index } => write!(f, "{output}[{index}] was not written"),
            Fault::Failed(reason) => write!(f, "the call failed: {reason}"),
            Fault::Broken { breakage, detail } => write!(f, "{breakage}: {detail}"),
        }
    }
}
