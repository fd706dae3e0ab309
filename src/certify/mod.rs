//! Certificates: what is equal to what, over which cases, with what power, in a form that anyone can check.

pub mod certificate;
mod read;
pub mod statement;
