//! A kernel in another process.
