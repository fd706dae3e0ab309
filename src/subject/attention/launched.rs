//! What rules gave in two runs of a row, in words: the tile or split count of each, and where a count changes with the batch.

use super::numerics::{Block, Launch, Numerics, Split};
use std::fmt::Write;

/// A row's numerics with their rules, and the launch that resolved them.
#[derive(Clone, Copy)]
pub(super) struct Launched {
    pub numerics: Numerics,
    pub launch: Launch,
}

/// One line for each rule that gave two runs different answers.
pub(super) fn notes([a, b]: [&Launched; 2], names: [&str; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    let [first, second] = [a, b].map(|it| it.numerics.resolved(&it.launch).softmax.block);
    if [a, b].iter().any(|it| matches!(it.numerics.softmax.block, Block::Rule(_))) && first != second {
        lines.push(format!("blocks: {}, {}", of(names[0], first, a), of(names[1], second, b)));
    }
    let (Some(first), Some(second)) = (a.count(), b.count()) else { return lines };
    if first != second {
        lines.push(match a.steps(b) {
            Some(steps) => format!("splits: {steps}{}", a.device()),
            None if a.device() == b.device() => {
                format!("splits: {}, {}{}", of(names[0], first, a), of(names[1], second, b), b.device())
            }
            None => format!("splits: {}{}, {}{}", of(names[0], first, a), a.device(), of(names[1], second, b), b.device()),
        });
    }
    lines
}

/// `192 in the base run (batch 1, 1 row at most, 129 keys)`.
fn of(name: &str, value: impl std::fmt::Display, it: &Launched) -> String {
    let Launch { batch, batch_max_q, kv, page, .. } = it.launch;
    let rows = if batch_max_q == 1 { "row" } else { "rows" };
    let pages = page.map_or(String::new(), |page| format!(", pages of {page}"));
    let run = name.to_lowercase();
    format!("{value} in {run} (batch {batch}, {batch_max_q} {rows} at most, {kv} keys{pages})")
}

impl Launched {
    /// Splits under a rule or as declared; `None` where they are not counted.
    fn count(&self) -> Option<u32> {
        match self.numerics.grid.split {
            Split::None => Some(1),
            Split::FixedCount(n) => Some(n),
            Split::Rule(..) => self.numerics.split_count(&self.launch),
            Split::FixedSize(_) | Split::CacheBoundary => None,
        }
    }

    fn device(&self) -> String {
        match self.numerics.grid.split {
            Split::Rule(_, sms) => format!(", on {sms} SMs"),
            _ => String::new(),
        }
    }

    /// `5 at batch 26, 4 at batch 27`: the batches at which the count changes between two runs that differ in nothing else. `None`
    /// for other runs.
    fn steps(&self, other: &Launched) -> Option<String> {
        let alike = Launch { batch: other.launch.batch, ..self.launch } == other.launch;
        if !alike || self.numerics != other.numerics || !matches!(self.numerics.grid.split, Split::Rule(..)) {
            return None;
        }
        let (low, high) = (self.launch.batch.min(other.launch.batch), self.launch.batch.max(other.launch.batch));
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for batch in low..=high {
            let count = self.numerics.split_count(&Launch { batch, ..self.launch })?;
            match runs.last_mut() {
                Some((it, _, last)) if *it == count => *last = batch,
                _ => runs.push((count, batch, batch)),
            }
        }
        let mut text = String::new();
        for (n, &(count, first, last)) in runs.iter().enumerate() {
            let _ = match n {
                0 => write!(text, "{count} at batch {last}"),
                _ if n + 1 == runs.len() || first == last => write!(text, ", {count} at batch {first}"),
                _ => write!(text, ", {count} at batch {first} to {last}"),
            };
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::reference::Reference;

    fn launched(kernel: &str, batch: u32, batch_max_q: u32) -> Launched {
        let launch = Launch {
            batch,
            batch_max_q,
            kv: 640,
            q_heads: 1,
            kv_heads: 1,
            d_qk: 64,
            d_v: 64,
            causal: true,
            window_left: None,
            window_right: None,
            softcap: false,
            page: None,
        };
        Launched { numerics: Reference::parse(kernel).unwrap().numerics, launch }
    }

    fn lines(a: &Launched, b: &Launched) -> Vec<String> {
        notes([a, b], ["The base run", "the changed run"])
    }

    #[test]
    fn split_counts_name_the_batches_at_which_they_change() {
        let at = |batch| launched("ref:flash-decoding", batch, 1);
        assert_eq!(lines(&at(26), &at(27)), ["splits: 5 at batch 26, 4 at batch 27, on 132 SMs"]);
        assert_eq!(lines(&at(40), &at(1)), ["splits: 5 at batch 26, 4 at batch 27 to 33, 3 at batch 34, on 132 SMs"]);
        assert_eq!(lines(&at(1), &at(26)), [""; 0]);
        let crowded = launched("ref:flash-decoding", 2, 5000);
        assert_eq!(
            lines(&at(1), &crowded),
            ["splits: 5 in the base run (batch 1, 1 row at most, 640 keys), \
              2 in the changed run (batch 2, 5000 rows at most, 640 keys), on 132 SMs"]
        );
    }

    #[test]
    fn tiles_name_what_the_launcher_saw() {
        let at = |rows| launched("ref:fa3-one-wg", 2, rows);
        assert_eq!(
            lines(&at(64), &at(65)),
            ["blocks: 192 in the base run (batch 2, 64 rows at most, 640 keys), \
              128 in the changed run (batch 2, 65 rows at most, 640 keys)"]
        );
        assert_eq!(lines(&at(65), &at(66)), [""; 0]);
        assert_eq!(lines(&launched("ref:aligned", 1, 1), &launched("ref:aligned", 2, 65)), [""; 0]);
    }
}
