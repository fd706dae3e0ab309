//! Attention: a whole-sequence training path against a paged, stepwise inference path.

pub mod accuracy;
pub mod captured;
mod case;
pub mod cause;
pub mod check;
pub mod conventions;
pub mod data;
pub mod draw;
pub mod drive;
pub mod explain;
pub mod file;
pub mod implementation;
mod judge;
pub mod kernel;
mod mask;
pub mod numerics;
pub mod oracle;
mod plan;
pub mod recipe;
pub mod reference;
pub mod relation;
pub mod select;
pub mod show;
mod smaller;
pub mod strategy;
mod subject;
pub mod text;
pub mod trial;
pub mod validate;
mod witness;

pub use case::{Case, Data, Fp8Kv, Literal, Problem, Regime, Sequence};
pub use data::Inputs;
pub use mask::{Anchor, Mask};
pub use plan::{Cache, ContextParallel, InferPlan, Request, Shards, Side, TrainLayout, TrainPlan};
pub use subject::Attention;
pub use validate::validate;
