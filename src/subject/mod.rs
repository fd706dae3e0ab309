//! What is compared. `attention` is the first subject.

pub mod attention;
