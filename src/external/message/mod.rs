//! What frames say: hello, welcome, calls and their answers.

pub mod answer;
pub mod call;
mod fields;
pub mod hello;
pub mod welcome;
