//! A suite of named tests over a kernel of your own.
//!
//! ```no_run
//! // tests/attention.rs
//! use lastbit::subject::attention::kernel::KernelError;
//! use lastbit::subject::attention::per_sequence::{PerSequence, SequenceCall};
//! use lastbit::suite::Suite;
//!
//! fn forward(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]) -> Result<(), KernelError> {
//!     // refuse what the kernel cannot do, then call it
//! #   Ok(())
//! }
//!
//! lastbit::attention_suite!(Suite::new(PerSequence::new("mine", env!("CARGO_PKG_VERSION"), forward)));
//! # fn main() {}
//! ```
//!
//! [`attention_suite!`](crate::attention_suite) stamps one `#[test]` for each [`Test`]: the eleven axes of the
//! [relations](crate::subject::attention::relation) that every kernel has (its own knobs are part of refused-or-right), train against infer, accuracy against the oracle, refused-or-right, and whether
//! a changed order could have been seen at all. Each test draws cases until it has compared as many as it was asked for, always the
//! same ones for a seed; a test that finds too few to compare fails. What fails is shrunk, explained, and written as a case file.
//!
//! | variable | what it does to `cargo test` |
//! |---|---|
//! | `LASTBIT_CASE=FILE` | every stamped test replays this case and nothing else |
//! | `LASTBIT_COUNT=N` | each test compares N cases |
//! | `LASTBIT_SEED=S` | other cases |

mod failure;
mod run;
mod stamp;
mod test;

pub use failure::{Failure, Found};
pub use run::Report;
#[doc(hidden)]
pub use stamp::{kept, stamped};
pub use test::Test;

use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::Profile;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::AttentionKernel;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::pin::Pins;
use crate::subject::attention::{Attention, Problem};
use std::path::PathBuf;
use std::sync::Arc;

/// Cases that a test compares unless it is told otherwise: about a second with an optimised `lastbit`.
pub const CASES: u64 = 200;

/// Which kernels are tested, on which cases.
#[derive(Clone)]
pub struct Suite {
    attention: Attention,
    seed: u64,
    cases: u64,
    only: Option<fn(&Problem) -> bool>,
    folder: Option<PathBuf>,
    /// Path of the stamped tests inside their crate, ending in `::` where there is one.
    module: String,
}

impl Suite {
    /// A kernel that both trains and serves: its training path is held against its own inference path.
    pub fn new(kernel: impl AttentionKernel + 'static) -> Self {
        let kernel = Implementation::kernel(Arc::new(kernel));
        Suite::pair(kernel.clone(), kernel)
    }

    /// One kernel that trains and another that serves.
    pub fn pair(train: Implementation, infer: Implementation) -> Self {
        let pair = Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false };
        Suite {
            attention: Attention { pair, profile: Profile::Quick, pins: Pins::default() },
            seed: 1,
            cases: CASES,
            only: None,
            folder: None,
            module: String::new(),
        }
    }

    /// Cases that each test compares, at least 1.
    pub fn cases(mut self, cases: u64) -> Self {
        self.cases = cases.max(1);
        self
    }

    /// Seed of the cases; 1 unless set.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Size of the cases; [`Profile::Quick`] unless set.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.attention.profile = profile;
        self
    }

    /// Draws only problems that the predicate accepts, for a kernel that supports few. What it refuses anyway is refused after
    /// its values are drawn, which takes longer. [`Test::RefusedOrRight`] does not use it: it asks what the kernel does with the rest.
    pub fn only(mut self, accepts: fn(&Problem) -> bool) -> Self {
        self.only = Some(accepts);
        self
    }

    /// Where the case files of what fails are written. Stamped tests use `CARGO_TARGET_TMPDIR`, below `target/`, in integration
    /// tests; else the system's folder for temporary files.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The kernels' names, for messages.
    fn names(&self) -> String {
        let [train, infer] = [&self.attention.pair.train, &self.attention.pair.infer].map(|side| side.kernel.identity().name);
        if train == infer { train } else { format!("{train} against {infer}") }
    }
}
