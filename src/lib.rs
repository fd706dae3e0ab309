//! Finds where a training attention path and a paged inference path part in the last bit.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod cli;
pub mod exit_code;
pub mod finding;
pub mod fuzz;
pub mod input_error;
pub mod lab;
pub mod number;
pub mod shrink;
pub mod source;
pub mod subject;
pub mod tensor;
pub mod tree;
