//! Any kernel of this crate as a kernel process: the other end of [`super::process`].
