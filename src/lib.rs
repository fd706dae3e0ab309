//! Finds where a training attention path and a paged inference path part in the last bit.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod number;
pub mod source;
pub mod subject;
pub mod tensor;
