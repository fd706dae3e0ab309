//! The reference kernel.
