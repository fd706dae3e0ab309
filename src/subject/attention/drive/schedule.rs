//! The engine's steps: which rows of which sequences each call computes.

use crate::subject::attention::{Anchor, InferPlan, Problem, Request, Sequence};
use std::collections::VecDeque;

/// One sequence's part of an engine step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepEntry {
    /// Index into `Problem::sequences`.
    pub sequence: usize,
    /// First row computed.
    pub first_row: u32,
    /// Rows computed, at least 1.
    pub rows: u32,
    /// Valid keys in the cache, the new rows' included.
    pub kv: u32,
    /// Keys still valid after the step: fewer where drafts are rejected.
    pub kept: u32,
    /// The request came back after losing its pages: the cache is rebuilt before this step.
    pub rebuilt: bool,
    /// The request's last step.
    pub last: bool,
}

/// Where one request stands.
struct Progress<'a> {
    sequence: Sequence,
    request: &'a Request,
    /// Rows accepted so far, counting the prefix hit.
    done: u32,
    /// Sizes of first steps still to come; the front shrinks when the token budget cuts it.
    chunks: VecDeque<u32>,
    steps: u32,
    /// After a preemption: rows below this are computed a second time, in one step if the budget allows.
    redo_until: Option<u32>,
    rebuild: bool,
}

impl Progress<'_> {
    fn finished(&self) -> bool {
        self.done >= self.sequence.q
    }

    /// The rows it would take in a step with room for `room`, at least 1 unless `room` is 0.
    fn wants(&self, room: u32) -> u32 {
        let left = self.sequence.q - self.done;
        let size = match (self.redo_until, self.chunks.front()) {
            (Some(until), _) => until - self.done,
            (None, Some(&chunk)) => chunk,
            (None, None) => self.request.then,
        };
        size.min(left).min(room)
    }

    /// Takes a step of `rows` rows; gives how many of them are rolled back.
    fn advance(&mut self, rows: u32) -> u32 {
        self.steps += 1;
        self.rebuild = false;
        let mut rolled_back = 0;
        if let Some(until) = self.redo_until {
            self.done += rows;
            if self.done >= until {
                self.redo_until = None;
            }
            return 0;
        }
        if let Some(chunk) = self.chunks.front_mut() {
            self.done += rows;
            *chunk -= rows;
            if *chunk == 0 {
                self.chunks.pop_front();
            }
        } else {
            // Rejected drafts: the last rows are rolled back and computed again by the next step.
            rolled_back = self.request.reject.min(rows - 1);
            self.done += rows - rolled_back;
        }
        if self.request.preempt == Some(self.steps) && !self.finished() && self.done > self.request.hit {
            self.redo_until = Some(self.done);
            self.done = self.request.hit;
            self.rebuild = true;
        }
        rolled_back
    }
}

/// Positions in the cache once rows below `end` have been fed. Without a bottom-right causal mask a row may see any key, so the
/// cache is full from the start.
pub(super) fn keys_after(problem: &Problem, sequence: Sequence, end: u32) -> u32 {
    match problem.mask.causal {
        Some(Anchor::BottomRight) => (sequence.kv + end).saturating_sub(sequence.q),
        _ => sequence.kv,
    }
}

/// The steps of a plan, in order; a pure function of the case.
pub fn schedule(problem: &Problem, plan: &InferPlan) -> Vec<Vec<StepEntry>> {
    let mut requests: Vec<Progress<'_>> = problem
        .sequences
        .iter()
        .zip(&plan.requests)
        .map(|(&sequence, request)| Progress {
            sequence,
            request,
            done: request.hit,
            chunks: request.chunks.iter().copied().collect(),
            steps: 0,
            redo_until: None,
            rebuild: false,
        })
        .collect();
    let mut steps = Vec::new();
    let mut clock = 0;
    loop {
        let waiting = requests.iter().filter(|it| !it.finished());
        let Some(first_join) = waiting.map(|it| it.request.join).min() else { return steps };
        // Nobody is here yet: the engine sleeps until somebody is.
        clock = first_join.max(clock);
        let mut room = plan.budget.unwrap_or(u32::MAX);
        let mut step = Vec::new();
        let count = plan.order.len();
        for n in 0..count {
            let turn = if plan.rotate { (n + steps.len()) % count } else { n };
            let sequence = plan.order[turn] as usize;
            let it = &mut requests[sequence];
            if it.finished() || it.request.join > clock {
                continue;
            }
            let rows = it.wants(room);
            if rows == 0 {
                continue;
            }
            room -= rows;
            let (first_row, rebuilt) = (it.done, it.rebuild);
            let kv = keys_after(problem, it.sequence, first_row + rows);
            let rolled_back = it.advance(rows);
            let kept = keys_after(problem, it.sequence, first_row + rows - rolled_back);
            step.push(StepEntry { sequence, first_row, rows, kv, kept, rebuilt, last: it.finished() });
        }
        steps.push(step);
        clock += 1;
    }
}
