//! SHA-256, in lower-case hex.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Of some bytes.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex(Sha256::digest(bytes.as_ref()))
}

/// Of a value as compact JSON.
pub(super) fn of_json(value: &impl Serialize) -> String {
    sha256(serde_json::to_vec(value).expect("a value of this crate is JSON"))
}

/// Of parts that come one after the other, each ended by a line break.
#[derive(Default)]
pub(super) struct Lines(Sha256);

impl Lines {
    pub(super) fn add(&mut self, line: &str) {
        self.0.update(line);
        self.0.update(b"\n");
    }

    /// The digest of what was added up to here.
    pub(super) fn so_far(&self) -> String {
        hex(self.0.clone().finalize())
    }

    pub(super) fn finish(self) -> String {
        hex(self.0.finalize())
    }
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
