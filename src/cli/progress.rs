//! Progress of long work: a bar on a terminal, a plain line now and then elsewhere. Always on stderr.

use super::note;
use crate::finding::Kind;
use crate::lab::{Length, Statistics};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Seconds between plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Cases between updates.
const STRIDE: u64 = 64;

/// Shows how far a campaign is.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    length: Length,
    /// Cases of earlier parts of the run.
    first: u64,
    started: Instant,
    last: Instant,
}

impl Progress {
    /// For a campaign, or what is left of one, that begins at case `first`.
    pub(super) fn new(length: Length, first: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (total, template) = match length {
                Length::Cases(count) => (count, "{bar:30} {pos}/{len} cases, {per_sec}, {msg}, {eta} left"),
                Length::Time(limit) => (limit.as_secs(), "{bar:30} {msg}, {pos} of {len} s"),
            };
            let bar = ProgressBar::new(total);
            bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
            if let Length::Cases(_) = length {
                bar.set_position(first);
                // Speed and time left are those of this part.
                bar.reset_eta();
            }
            bar
        });
        let now = Instant::now();
        Progress { bar, length, first, started: now, last: now }
    }

    pub(super) fn update(&mut self, statistics: &Statistics) {
        if !statistics.cases.is_multiple_of(STRIDE) {
            return;
        }
        let elapsed = self.started.elapsed();
        let rate = (statistics.cases - self.first) as f64 / elapsed.as_secs_f64().max(1e-9);
        let found: u64 = statistics.signatures.values().sum();
        let undecided = statistics.of(Kind::Undecided);
        match &self.bar {
            Some(bar) => {
                bar.set_message(format!("{found} found, {undecided} undecided"));
                bar.set_position(match self.length {
                    Length::Cases(_) => statistics.cases,
                    Length::Time(_) => elapsed.as_secs(),
                });
            }
            None if self.last.elapsed() >= PLAIN_EVERY => {
                self.last = Instant::now();
                let left = match self.length {
                    Length::Cases(count) => (count - statistics.cases) as f64 / rate,
                    Length::Time(limit) => limit.saturating_sub(elapsed).as_secs_f64(),
                };
                let cases = statistics.cases;
                note(&format!("{cases} cases, {rate:.0}/s, {found} found, {undecided} undecided, about {left:.0} s left"));
            }
            None => {}
        }
    }

    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how far work in a known number of unlike steps is.
pub(super) struct Steps {
    bar: Option<ProgressBar>,
    what: &'static str,
    total: usize,
    done: usize,
    started: Instant,
    last: Instant,
}

impl Steps {
    /// `what` names the steps, e.g. `mutants`.
    pub(super) fn new(total: usize, what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            let template = format!("{{bar:30}} {{pos}}/{{len}} {what}, {{msg}}, {{eta}} left");
            bar.set_style(ProgressStyle::with_template(&template).expect("a valid template"));
            bar
        });
        let now = Instant::now();
        Steps { bar, what, total, done: 0, started: now, last: now }
    }

    /// One more is done; `message` says what came of it.
    pub(super) fn step(&mut self, message: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => {
                bar.set_message(message.to_owned());
                bar.inc(1);
            }
            None if self.last.elapsed() >= PLAIN_EVERY => {
                self.last = Instant::now();
                let left = self.started.elapsed().as_secs_f64() / self.done as f64 * (self.total - self.done) as f64;
                note(&format!("{} of {} {}, {message}, about {left:.0} s left", self.done, self.total, self.what));
            }
            None => {}
        }
    }

    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
