//! Planted sums are revealed exactly, with the number of probes known; sums whose order is not fixed are refused.
//!
//! The sums are loops as one would write them, not evaluated trees: what is revealed is compared with a tree built by other means.

#[path = "summation/planted.rs"]
mod planted;
#[path = "summation/refused.rs"]
mod refused;
#[path = "summation/revealed.rs"]
mod revealed;
