//! The guide: pages without code, to be read in this order.
//!
//! 1. [Words](words): the glossary.
//! 2. [Reading a verdict](verdict): one verdict, line by line.
//! 3. [How the oracle proves](proof): enclosure, ties, zero, and the loop that ends.
//! 4. [Testing your own kernel](own_kernel): from a function to fifteen tests.
//! 5. [Kernels from outside](outside): processes, libraries and kernel files; faults, limits, safety.
//! 6. [Keeping a regression](regression): from a finding to a test that stays.
//! 7. [What is not covered](limits): and what a quiet run does not say.

pub mod limits;
pub mod outside;
pub mod own_kernel;
pub mod proof;
pub mod regression;
pub mod verdict;
pub mod words;
