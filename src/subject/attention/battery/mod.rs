//! What a battery runs: cases that are chosen, not drawn.

pub mod space;
