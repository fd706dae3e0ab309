//! Certificates: what is equal to what, over which cases, with what power, in a form that anyone can check.

mod bound;
pub mod build;
pub mod certificate;
pub mod claim;
pub mod compare;
pub mod control;
pub mod counterexample;
mod coverage;
pub mod digest;
pub mod kernel_text;
mod outside;
mod read;
pub mod record;
pub mod sign;
pub mod statement;
mod trees;
pub mod verify;
pub mod waiver;
pub mod work;

#[cfg(test)]
mod tests;
