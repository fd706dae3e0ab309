//! How much memory a process and its descendants hold.

use std::fs;
use std::io::Write;
use std::sync::Once;

/// Samples between two looks for new descendants: those cost a file for each thread.
const SAMPLES: u32 = 10;

/// Watches one process.
#[derive(Debug, Default)]
pub(super) struct Watch {
    family: Vec<u32>,
    samples: u32,
}

impl Watch {
    /// Resident bytes of a process and its descendants. Pages that they share count for each of them.
    pub fn resident(&mut self, root: u32) -> u64 {
        if self.family.first() != Some(&root) || self.samples.is_multiple_of(SAMPLES) {
            self.family = family(root);
        }
        self.samples = self.samples.wrapping_add(1);
        let page = rustix::param::page_size() as u64;
        self.family.iter().filter_map(|&id| pages(id)).sum::<u64>() * page
    }
}

/// Says once that memory cannot be watched, where that is so.
pub(super) fn announce() {
    static SAID: Once = Once::new();
    if pages(std::process::id()).is_none() {
        SAID.call_once(|| {
            let text = "lastbit: /proc is missing here: the memory of kernel processes is not watched\n";
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        });
    }
}

fn pages(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A process and its descendants.
fn family(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(&id) = all.get(next) {
        next += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { continue };
        for thread in threads.flatten() {
            let Ok(children) = fs::read_to_string(thread.path().join("children")) else { continue };
            all.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    all
}
