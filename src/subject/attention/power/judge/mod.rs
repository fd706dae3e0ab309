//! Judges: whoever says of two kernels and a case that something is wrong. This crate's own check is one; the checks that the field
//! writes into its tests are others; and judges with a planted fault must be shown up by [impostors](battery).

mod faulty;
mod impostor;
mod rival;
mod textbook;

pub use impostor::{Judged, Role, battery};
pub use rival::RIVALS;

use crate::finding::Path;
use crate::subject::attention::check::Pair;
use crate::subject::attention::drive::{Poison, Produced, Stop};
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Case, Inputs};
use crate::tensor::Tensor;
use std::cell::OnceCell;

/// Says whether two kernels are right on a case.
pub trait Judge: Sync {
    /// Short name.
    fn name(&self) -> &'static str;

    /// The rule, in words.
    fn about(&self) -> &'static str;

    /// Whether something is wrong. A case that a kernel refuses is not rejected.
    fn rejects(&self, evidence: &Evidence<'_>) -> bool;
}

/// A case and what two kernels make of it, computed when asked for: judges share it.
///
/// Runs have dead slots that hold **zeros**, as pools freshly allocated in a test do.
pub struct Evidence<'a> {
    pair: &'a Pair,
    case: &'a Case,
    inputs: OnceCell<Inputs>,
    sides: [OnceCell<Result<Produced, Stop>>; 2],
    upcast: OnceCell<Tensor>,
    low: OnceCell<Tensor>,
}

impl<'a> Evidence<'a> {
    /// Of a pair on a case.
    pub fn new(pair: &'a Pair, case: &'a Case) -> Self {
        Evidence { pair, case, inputs: OnceCell::new(), sides: Default::default(), upcast: OnceCell::new(), low: OnceCell::new() }
    }

    fn inputs(&self) -> &Inputs {
        self.inputs.get_or_init(|| self.pair.inputs(self.case))
    }

    /// What a path gave.
    pub fn side(&self, path: Path) -> &Result<Produced, Stop> {
        self.sides[path as usize].get_or_init(|| self.pair.drive(path, self.case, self.inputs(), Poison::Zero, None))
    }

    /// `o` as the field's reference gives it, computed in f32 and cast: `[total_q, q_heads, d_v]`.
    pub fn upcast(&self) -> &Tensor {
        self.upcast.get_or_init(|| textbook::attention(&self.case.problem, self.inputs(), textbook::Precision::Upcast))
    }

    /// The same in the storage format, with the scale on K.
    pub fn low(&self) -> &Tensor {
        self.low.get_or_init(|| textbook::attention(&self.case.problem, self.inputs(), textbook::Precision::Storage))
    }
}

/// A failed call, or outputs left unwritten: any test sees those.
fn is_fault(stop: &Stop) -> bool {
    matches!(stop, Stop::Fault(_))
}

/// Rows of `o` in every production: packed row, `[q_heads, d_v]`.
fn rows(side: &Produced) -> impl Iterator<Item = (usize, &[u32])> {
    let first = (0..side.present.len()).filter(|&row| side.present[row]).map(|row| (row, side.o.row(row)));
    first.chain(side.again.iter().map(|it| (it.row, &it.o[..])))
}

/// This crate's own check: pair and oracle, without relations.
struct Own;

impl Judge for Own {
    fn name(&self) -> &'static str {
        "lastbit"
    }

    fn about(&self) -> &'static str {
        "bits of o and lse, and each side within the bound computed for its arithmetic"
    }

    fn rejects(&self, evidence: &Evidence<'_>) -> bool {
        let trial = Trial::new(evidence.case.clone(), Checks::Only { oracle: true, pair: true, relation: None });
        !evidence.pair.check(&trial, &mut evidence.pair.scratch()).is_match()
    }
}
