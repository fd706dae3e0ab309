//! The end of what a child writes to stderr.

use std::collections::VecDeque;

const KEPT: usize = 64 << 10;
const SHOWN: usize = 2 << 10;

#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    /// All that ever came.
    total: u64,
}

impl Tail {
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..excess);
    }

    /// A mark for [`Tail::since`].
    pub fn now(&self) -> u64 {
        self.total
    }

    /// What came after a mark, as the last lines of a message; empty where nothing came.
    pub fn since(&self, mark: u64) -> String {
        let came = usize::try_from(self.total - mark).unwrap_or(usize::MAX).min(self.bytes.len());
        let shown = came.min(SHOWN);
        let bytes: Vec<u8> = self.bytes.range(self.bytes.len() - shown..).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
        let cut = if shown < came { "..." } else { "" };
        match text.trim() {
            "" => String::new(),
            text => format!("\nstderr: {cut}{text}"),
        }
    }
}
