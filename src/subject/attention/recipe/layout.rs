//! Where a row's keys are cut: the grid of blocks and splits, of one rank or of several.

use super::StepFacts;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::numerics::{Block, Context, GridAnchor, Numerics, Order, Split, Traverse};
use crate::subject::attention::plan::ContextParallel;
use std::ops::Range;

/// A visited grid cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The row's valid keys in the cell; never empty.
    pub keys: Range<u32>,
    /// Slot of the first of them, counted from the cell's own start; reduced as far as the orders in use allow (0 when both are
    /// sequential).
    pub slot: u32,
}

/// What is summed up before a merge: a nonempty split, or what one rank of a ring hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Place in the merge tree; 0 where the merge does not read it.
    pub index: u32,
    /// Its cells in [`Layout::cells`], in the order of visits.
    pub cells: Range<usize>,
}

/// Where a row's keys are cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Nonempty parts in the order of the merge: ascending, but for a ring, where they are in the order of arrival.
    pub parts: Vec<Part>,
    /// Visited cells of all parts, in the order of visits.
    pub cells: Vec<Cell>,
}

impl Layout {
    /// Cuts a row's valid keys along the grid, in place of what was here before. Returns the row's ALiBi position. The numerics are
    /// [resolved](Numerics::resolved).
    ///
    /// Grid: splits begin at `origin + n * length` and blocks are counted from their split's start; `origin` is position 0, slot 0
    /// of the padded buffer, or the first uncached position. An unsplit row (and the part below a cache boundary) has block lines
    /// at `origin + n * block` for every integer `n`. A `whole` block begins where its split does, and an unsplit one at position 0
    /// (slot 0 under the buffer anchor). The length of `fixed_count(n)` splits is `ceil(ceil(kv / block) / n)` blocks. Chunks of
    /// ranks that work on their own keys have grids of their own: `origin` is the chunk's first position, `kv` its own length.
    pub(crate) fn lay(&mut self, numerics: &Numerics, actual: &Conventions, facts: &StepFacts, row: u32) -> i64 {
        let (keys, position) = facts.keys(actual, row);
        self.cut(numerics, facts, row, keys);
        position
    }

    /// Cuts a range of keys that `row` sees along the grid, in place of what was here before.
    pub(crate) fn cut(&mut self, numerics: &Numerics, facts: &StepFacts, row: u32, keys: Range<u32>) {
        self.parts.clear();
        self.cells.clear();
        if keys.is_empty() {
            return;
        }
        let keys = i64::from(keys.start)..i64::from(keys.end);
        let grid = &numerics.grid;
        match facts.call.context.filter(|_| grid.context != Context::AllGather) {
            None => self.cut_whole(numerics, facts, keys),
            Some(ranks) if grid.context == Context::GatherPartials => {
                for chunk in ranks.chunk_of(keys.start)..=ranks.chunk_of(keys.end - 1) {
                    self.cut_chunk(numerics, facts, ranks, chunk, &keys);
                }
            }
            Some(ranks) => {
                let home = ranks.owner(ranks.chunk_of(i64::from(row) + i64::from(facts.kv) - i64::from(facts.q)));
                for step in 0..ranks.ranks {
                    let first = self.parts.len();
                    for chunk in ranks.held_by((home + ranks.ranks - step) % ranks.ranks) {
                        self.cut_chunk(numerics, facts, ranks, chunk, &keys);
                    }
                    if grid.split == Split::None {
                        self.join(first);
                    }
                }
            }
        }
        if numerics.softmax.traverse == Traverse::Backward {
            for part in &self.parts {
                self.cells[part.cells.clone()].reverse();
            }
        }
        if facts.call.context.is_some() && grid.context == Context::RingState {
            self.join(0);
        }
    }

    /// One grid over all keys.
    fn cut_whole(&mut self, numerics: &Numerics, facts: &StepFacts, keys: Range<i64>) {
        let (origin, bottom) = origin_and_bottom(numerics, facts);
        let unsplit_base = if numerics.softmax.block == Block::Whole { bottom } else { origin };
        match numerics.grid.split {
            Split::None => self.part(numerics, 0, unsplit_base, keys),
            Split::CacheBoundary => {
                let boundary = i64::from(facts.prefix);
                self.part(numerics, 0, unsplit_base, keys.start..keys.end.min(boundary));
                self.part(numerics, 1, boundary, keys.start.max(boundary)..keys.end);
            }
            Split::Rule(..) => unreachable!("rules are resolved before a row is cut"),
            Split::FixedSize(_) | Split::FixedCount(_) => {
                let length = split_length(numerics, facts.kv);
                let lowest = (bottom - origin).div_euclid(length);
                self.split(numerics, length, origin, -lowest, keys);
            }
        }
    }

    /// The keys of one chunk, on a grid of its own. Its parts stand in the merge tree behind those that full chunks before it have.
    fn cut_chunk(&mut self, numerics: &Numerics, facts: &StepFacts, ranks: ContextParallel, chunk: u32, keys: &Range<i64>) {
        let start = i64::from(chunk) * i64::from(ranks.length);
        let end = if chunk + 1 == ranks.chunks() { i64::MAX } else { start + i64::from(ranks.length) };
        let keys = keys.start.max(start)..keys.end.min(end);
        if keys.is_empty() {
            return;
        }
        let length = split_length(numerics, (end.min(facts.kv.into()) - start) as u32);
        let parts = match numerics.grid.split {
            Split::None | Split::CacheBoundary => return self.part(numerics, chunk, start, keys),
            Split::FixedSize(n) => ranks.length.div_ceil(n.max(1)),
            Split::FixedCount(n) => n,
            Split::Rule(..) => unreachable!("rules are resolved before a row is cut"),
        };
        self.split(numerics, length, start, i64::from(chunk) * i64::from(parts), keys);
    }

    /// Parts of `length` slots from `origin`, the one that begins there at place `index` of the merge tree.
    fn split(&mut self, numerics: &Numerics, length: i64, origin: i64, index: i64, keys: Range<i64>) {
        let mut split = (keys.start - origin).div_euclid(length);
        while origin + split * length < keys.end {
            let start = origin + split * length;
            self.part(numerics, (index + split) as u32, start, keys.start.max(start)..keys.end.min(start + length));
            split += 1;
        }
    }

    /// Adds the part with these keys, its blocks counted from `base`; nothing if there are none.
    fn part(&mut self, numerics: &Numerics, index: u32, base: i64, keys: Range<i64>) {
        if keys.is_empty() {
            return;
        }
        let (begin, period) = (self.cells.len(), slot_period(numerics));
        let block = match numerics.softmax.block {
            Block::Whole => keys.end - base,
            Block::Size(n) => i64::from(n),
            Block::Rule(_) => unreachable!("rules are resolved before a row is cut"),
        };
        let mut cell = base + (keys.start - base).div_euclid(block) * block;
        while cell < keys.end {
            let (start, end) = (keys.start.max(cell), keys.end.min(cell + block));
            self.cells.push(Cell { keys: start as u32..end as u32, slot: ((start - cell) % period) as u32 });
            cell += block;
        }
        self.parts.push(Part { index, cells: begin..self.cells.len() });
    }

    /// Makes one part of all parts from number `first` on.
    fn join(&mut self, first: usize) {
        if let Some(part) = self.parts.get_mut(first) {
            part.cells.end = self.cells.len();
            self.parts.truncate(first + 1);
        }
    }

    /// All keys, ascending.
    pub fn keys(&self) -> Range<u32> {
        let start = self.cells.iter().map(|cell| cell.keys.start).min().unwrap_or(0);
        let end = self.cells.iter().map(|cell| cell.keys.end).max().unwrap_or(0);
        start..end
    }

    /// Whether the parts are merged in position order.
    pub(super) fn is_ascending(&self) -> bool {
        let firsts = self.parts.iter().map(|part| self.cells_of(part).iter().map(|cell| cell.keys.start).min());
        firsts.is_sorted()
    }

    /// The cells of one part, in the order of visits.
    pub fn cells_of(&self, part: &Part) -> &[Cell] {
        &self.cells[part.cells.clone()]
    }
}

/// Splits of the grid over one sequence of a call, on one rank: also those in which a row finds no key. The numerics are
/// [resolved](Numerics::resolved).
pub(crate) fn grid_splits(numerics: &Numerics, facts: &StepFacts) -> u64 {
    match numerics.grid.split {
        Split::None => 1,
        Split::CacheBoundary => 1 + u64::from((1..facts.kv).contains(&facts.prefix)),
        Split::Rule(..) => unreachable!("rules are resolved before a row is cut"),
        Split::FixedSize(_) | Split::FixedCount(_) => {
            let length = split_length(numerics, facts.kv);
            let (origin, bottom) = origin_and_bottom(numerics, facts);
            let first = (bottom - origin).div_euclid(length);
            let last = (i64::from(facts.kv) - 1 - origin).div_euclid(length);
            let least = if let Split::FixedCount(n) = numerics.grid.split { u64::from(n) } else { 0 };
            ((last - first + 1).max(0) as u64).max(least)
        }
    }
}

/// Where splits are counted from, and the lowest position that the grid covers.
fn origin_and_bottom(numerics: &Numerics, facts: &StepFacts) -> (i64, i64) {
    let buffer = -i64::from(facts.buffer_start);
    match numerics.grid.anchor {
        GridAnchor::Sequence => (0, 0),
        GridAnchor::Buffer => (buffer, buffer),
        GridAnchor::Uncached => (i64::from(facts.prefix), 0),
    }
}

/// Length of fixed-size and fixed-count splits, at least 1.
fn split_length(numerics: &Numerics, kv: u32) -> i64 {
    match numerics.grid.split {
        Split::FixedSize(n) => i64::from(n).max(1),
        Split::FixedCount(n) => {
            let block = match numerics.softmax.block {
                Block::Size(n) => n,
                Block::Whole | Block::Rule(_) => 1,
            };
            (i64::from(kv.div_ceil(block).div_ceil(n)) * i64::from(block)).max(1)
        }
        Split::None | Split::CacheBoundary | Split::Rule(..) => i64::from(u32::MAX),
    }
}

/// The number of slots after which the orders over keys repeat.
fn slot_period(numerics: &Numerics) -> i64 {
    [numerics.value.order, numerics.rowsum.order].into_iter().fold(1, |period, order| match order {
        Order::Sequential => period,
        Order::Lanes(n) | Order::Fused(n) => least_common_multiple(period, i64::from(n)),
        Order::Pairwise => 1 << 40,
    })
}

fn least_common_multiple(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
