//! Attention: a whole-sequence training path against a paged, stepwise inference path.

mod case;
pub mod conventions;
pub mod data;
pub mod draw;
pub mod kernel;
mod mask;
pub mod numerics;
mod plan;
pub mod reference;

pub use case::{Case, Data, Literal, Problem, Regime, Sequence};
pub use mask::{Anchor, Mask};
pub use plan::{Cache, InferPlan, Request, Side, TrainLayout, TrainPlan};
