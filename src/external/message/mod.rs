//! What frames say: hello, welcome, calls and their answers.

pub mod answer;
mod attributes;
pub mod call;
mod fields;
pub mod hello;
pub mod received;
pub mod welcome;
