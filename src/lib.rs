//! Finds where a training attention path and a paged inference path part in the last bit.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod input_error;
pub mod number;
pub mod source;
pub mod subject;
pub mod tensor;
pub mod tree;
