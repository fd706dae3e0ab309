//! Kernels from outside: another process, a C library, a file that names either.
//!
//! [`frame`] and [`message`] are the protocol of `docs/protocol.md`; [`process`] drives a child that speaks it, [`serve`] is such a
//! child for any kernel of this crate, and [`library`] loads a C library. [`name`] turns what a command line says into a
//! kernel, [`kernel_file`] a file that says it once.

pub mod frame;
pub mod kernel_file;
pub mod library;
pub mod message;
pub mod name;
pub mod process;
mod region;
pub mod serve;
