//! Attention: a whole-sequence training path against a paged, stepwise inference path.

pub mod captured;
mod case;
pub mod data;
pub mod draw;
pub mod conventions;
pub mod kernel;
mod mask;
pub mod numerics;
pub mod oracle;
mod plan;
pub mod recipe;
pub mod reference;
pub mod show;
pub mod text;
pub mod validate;

pub use case::{Case, Data, Literal, Problem, Regime, Sequence};
pub use mask::{Anchor, Mask};
pub use plan::{Cache, InferPlan, Request, Side, TrainLayout, TrainPlan};
