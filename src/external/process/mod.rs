//! A kernel in another process.

mod command;

pub use command::{Command, Limits};
