//! The recipe of a row: which keys, cut where, added in which order, merged how. A pure function of the row, the step's facts,
//! the numerics and the actual conventions. **Equal recipes give equal bits**; nothing else is promised.
//!
//! The reference kernel takes its cells from here, so that the promise holds by construction. What makes it hold:
//! a row visits exactly the grid cells that hold one of its valid keys (a fully masked cell is not neutral: -0 + 0 = +0); trees
//! lie over slots of the cell and split at powers of two; empty splits are skipped, never merged.
//!
//! # Context-parallel ranks
//!
//! A call that stands for a group of ranks ([`CallFacts::context`]) has its keys in chunks. Under `grid.context = all_gather` they
//! are put back in position order, and everything is as on one rank. Else each chunk is cut by itself, its blocks and splits counted
//! from its first position, and a row's home is the rank that owns its own position:
//!
//! - `gather_partials`: each split of each chunk is a partial; they are merged by their place in the sequence. Where every boundary
//!   is a multiple of `fixed_size(n)` that is the recipe of one rank.
//! - `ring_lse`: the home rank's keys come first, then those of the rank before it, and so on around the ring. Each rank hands over
//!   one partial (one for each split, where there are splits), merged in the order of arrival.
//! - `ring_state`: the same way around, but one unnormalised state goes from cell to cell.
//!
//! The ring is that of zhuzilin/ring-flash-attention: `RingComm` (utils.py) receives from rank `r - 1`, so that step `s` works on
//! the keys of rank `r - s`; `ring_flash_attn_forward` and `zigzag_ring_flash_attn_forward` merge one result a step
//! (`update_out_and_lse`), which with zigzag shards covers both of that rank's chunks.

use super::conventions::{AnchorConvention, Conventions, WindowConvention};
use super::kernel::Attributes;
use super::mask::{Anchor, Mask};
use super::numerics::{
    Block, Context, Descale, GridAnchor, Launch, MaxInit, Merge, Numerics, Order, Passes, Rescale, Scope, Split, Traverse,
};
use super::plan::ContextParallel;
use crate::number::Dtype;
use crate::tree::Tree;
use std::fmt;
use std::ops::Range;

/// The call as a whole: what rules and ranks look at beyond one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFacts {
    /// Entries of the batch, bucket padding included.
    pub batch: u32,
    /// Rows of the entry with the most.
    pub batch_max_q: u32,
    /// Query heads of the call: a head-parallel rank's own.
    pub q_heads: u32,
    /// KV heads of the call.
    pub kv_heads: u32,
    /// Head dim of queries and keys.
    pub d_qk: u32,
    /// Head dim of values.
    pub d_v: u32,
    /// Storage of keys and values.
    pub kv_dtype: Dtype,
    /// Slots in a page; `None` where keys stand one after another.
    pub page: Option<u32>,
    /// Who owns which positions; `None` on one rank.
    pub context: Option<ContextParallel>,
}

/// What a row's recipe may depend on: one sequence as it stands in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFacts {
    /// New rows of the sequence in this call.
    pub q: u32,
    /// Keys of the sequence in this call.
    pub kv: u32,
    /// Slot of position 0 in the padded buffer: the left padding, 0 in every other layout.
    pub buffer_start: u32,
    /// Leading positions that came from the prefix cache; 0 in training.
    pub prefix: u32,
    /// Query rows in a tile, counted from the sequence's first row of the call.
    pub block_q: u32,
    /// The mask the call asks for.
    pub mask: Mask,
    /// Whether a softcap is set.
    pub softcap: bool,
    /// Whether ALiBi slopes are set.
    pub alibi: bool,
    /// Whether sinks are set.
    pub sinks: bool,
    /// The call it stands in.
    pub call: CallFacts,
}

impl StepFacts {
    /// The facts of one sequence of a call.
    pub fn of(attributes: &Attributes<'_>, call: CallFacts, q: u32, kv: u32, buffer_start: u32, prefix: u32) -> StepFacts {
        StepFacts {
            q,
            kv,
            buffer_start,
            prefix,
            block_q: u32::try_from(attributes.block_q).unwrap_or(u32::MAX).max(1),
            mask: attributes.mask,
            softcap: attributes.softcap.is_some(),
            alibi: attributes.alibi_slopes.is_some(),
            sinks: attributes.sinks.is_some(),
            call,
        }
    }

    /// What the rules of the numerics look at.
    pub fn launch(&self) -> Launch {
        Launch {
            batch: self.call.batch,
            batch_max_q: self.call.batch_max_q,
            kv: self.kv,
            q_heads: self.call.q_heads,
            kv_heads: self.call.kv_heads,
            d_qk: self.call.d_qk,
            d_v: self.call.d_v,
            causal: self.mask.causal.is_some(),
            window_left: self.mask.window_left,
            window_right: self.mask.window_right,
            softcap: self.softcap,
            page: self.call.page,
        }
    }

    /// The rows of the call that share a tile with `row`.
    pub fn tile(&self, row: u32) -> Range<u32> {
        let start = row / self.block_q * self.block_q;
        start..start.saturating_add(self.block_q).min(self.q)
    }

    /// The valid keys of a row and the position from which ALiBi measures, under a kernel's actual conventions.
    pub fn keys(&self, actual: &Conventions, row: u32) -> (Range<u32>, i64) {
        let mut mask = self.mask;
        if mask.causal.is_some() {
            mask.causal = match actual.anchor {
                AnchorConvention::AsCalled => mask.causal,
                AnchorConvention::TopLeft => Some(Anchor::TopLeft),
                AnchorConvention::BottomRight | AnchorConvention::Strict => Some(Anchor::BottomRight),
            };
        }
        let position = match mask.causal {
            Some(Anchor::TopLeft) => i64::from(row),
            _ => i64::from(row) + i64::from(self.kv) - i64::from(self.q),
        };
        match (mask.window_left, actual.window) {
            (Some(left), WindowConvention::OneMore) => mask.window_left = Some(left.saturating_add(1)),
            (Some(0), WindowConvention::CountsSelf) => return (0..0, position),
            (Some(left), WindowConvention::CountsSelf) => mask.window_left = Some(left - 1),
            _ => {}
        }
        let mut keys = mask.keys(row, self.q, self.kv);
        if mask.causal.is_some() && actual.anchor == AnchorConvention::Strict {
            keys.end = keys.end.min(position.clamp(0, i64::from(u32::MAX)) as u32);
        }
        if keys.start >= keys.end { (0..0, position) } else { (keys, position) }
    }
}

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

/// Another row of the tile, whose maximum decides on this row's rescales.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mate {
    /// `i + kv - q`: names the row's data.
    pub position: i64,
    /// Its cells.
    pub layout: Layout,
}

/// The rows that rescale together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Which of them this row is.
    pub member: usize,
    /// All of them, this row included.
    pub rows: Vec<Mate>,
}

/// Everything that fixes the bits of one row, given its data and the problem's attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Where the keys are cut; no part for an empty row.
    pub layout: Layout,
    /// The position from which ALiBi measures; `None` without ALiBi.
    pub position: Option<i64>,
    /// Present where a tile shares lazy rescales.
    pub tile: Option<Tile>,
    /// Whether the row goes through split partials (their rounding, and the merge with a sink, can then be seen).
    pub partials: bool,
    /// The numerics, with every field that `layout` replaces, or that this row cannot see, set to its plainest value.
    pub arithmetic: Numerics,
    /// The actual conventions, treated in the same way.
    pub conventions: Conventions,
}

/// One field in which two recipes differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeDifference {
    /// `keys`, `splits`, `blocks`, `visits` (the same blocks in another order), `slots`, `position`, `tile`, `partials`, a field of
    /// `Numerics`, or `actual.` and a convention.
    pub field: String,
    /// The first recipe's value, in words.
    pub left: String,
    /// The second's.
    pub right: String,
}

/// The recipe of row `row` of the step.
pub fn recipe(numerics: &Numerics, actual: &Conventions, facts: &StepFacts, row: u32) -> Recipe {
    let numerics = &numerics.resolved(&facts.launch());
    let mut layout = Layout::default();
    let position = layout.lay(numerics, actual, facts, row);
    let mut arithmetic = *numerics;
    let one_cell_each = layout.cells.len() == layout.parts.len();
    arithmetic.softmax.block = Block::Whole;
    arithmetic.softmax.traverse = Traverse::Forward;
    arithmetic.grid.anchor = GridAnchor::Sequence;
    arithmetic.grid.split = Split::None;
    arithmetic.grid.context = Context::AllGather;
    arithmetic.grid.merge = numerics.grid.merge_under(facts.call.context);
    if !matches!(facts.call.kv_dtype, Dtype::E4M3 | Dtype::E5M2) {
        arithmetic.kv.descale = Descale::OnLoad;
    }
    if numerics.softmax.passes == Passes::TwoPass {
        arithmetic.softmax.rescale = Rescale::Always;
    }
    if one_cell_each && numerics.softmax.max_init == MaxInit::NegInf {
        // The first cell of a split always sets the maximum, whatever the rule.
        arithmetic.softmax.rescale = Rescale::Always;
    }
    if arithmetic.softmax.rescale == Rescale::Always {
        arithmetic.softmax.scope = Scope::Row;
        if one_cell_each && !numerics.probs.normalised {
            arithmetic.softmax.passes = Passes::Online;
        }
    }
    let rounds = numerics.grid.lse_dtype != Dtype::F32 || numerics.grid.partial_dtype != Dtype::F32;
    let partials = numerics.grid.has_partials(facts.call.context) && (layout.parts.len() > 1 || rounds || facts.sinks);
    if !partials {
        arithmetic.grid.lse_dtype = Dtype::F32;
        arithmetic.grid.partial_dtype = Dtype::F32;
    }
    if layout.parts.len() < 3 {
        arithmetic.grid.merge = Merge::Sequential;
    }
    if arithmetic.grid.merge == Merge::Sequential {
        layout.parts.iter_mut().for_each(|part| part.index = 0);
    }
    let tile = (arithmetic.softmax.scope == Scope::Tile).then(|| Tile {
        member: (row - facts.tile(row).start) as usize,
        rows: facts
            .tile(row)
            .map(|mate| {
                let mut layout = Layout::default();
                layout.lay(numerics, actual, facts, mate);
                layout.parts.iter_mut().for_each(|part| part.index = 0);
                Mate { position: i64::from(mate) + i64::from(facts.kv) - i64::from(facts.q), layout }
            })
            .collect(),
    });
    let plain = Conventions::default();
    let keep = |seen: bool| if seen { *actual } else { plain };
    let scales = matches!(facts.call.kv_dtype, Dtype::E4M3 | Dtype::E5M2);
    let conventions = Conventions {
        anchor: plain.anchor,
        window: plain.window,
        empty_row: keep(layout.cells.is_empty()).empty_row,
        lse_base: actual.lse_base,
        sink_in_lse: keep(facts.sinks).sink_in_lse,
        alibi: keep(facts.alibi).alibi,
        cap_order: keep(facts.alibi && facts.softcap).cap_order,
        kv_scales: keep(scales).kv_scales,
    };
    // An empty row measures no distance.
    let position = (facts.alibi && !layout.cells.is_empty()).then_some(position);
    Recipe { layout, position, tile, partials, arithmetic, conventions }
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
        let buffer = -i64::from(facts.buffer_start);
        let (origin, bottom) = match numerics.grid.anchor {
            GridAnchor::Sequence => (0, 0),
            GridAnchor::Buffer => (buffer, buffer),
            GridAnchor::Uncached => (i64::from(facts.prefix), 0),
        };
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
    fn is_ascending(&self) -> bool {
        let firsts = self.parts.iter().map(|part| self.cells_of(part).iter().map(|cell| cell.keys.start).min());
        firsts.is_sorted()
    }

    /// The cells of one part, in the order of visits.
    pub fn cells_of(&self, part: &Part) -> &[Cell] {
        &self.cells[part.cells.clone()]
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

impl Recipe {
    /// The valid keys.
    pub fn keys(&self) -> Range<u32> {
        self.layout.keys()
    }

    /// The order in which the products `p_j v_j` are added, over key positions; rescales and merge weights are left out.
    /// `None` for an empty row.
    pub fn tree(&self) -> Option<Tree> {
        let order = self.arithmetic.value.order;
        let parts = self.layout.parts.iter().map(|part| {
            let cells = self.layout.cells_of(part);
            let tree = match order {
                Order::Sequential => Tree::sum(cells.iter().flat_map(|cell| cell.keys.clone().map(Tree::Leaf))),
                _ => Tree::sum(cells.iter().filter_map(|cell| cell_tree(order, cell))),
            };
            (u64::from(part.index), tree)
        });
        let parts: Vec<(u64, Tree)> = parts.filter_map(|(index, tree)| Some((index, tree?))).collect();
        match self.arithmetic.grid.merge {
            Merge::Sequential => Tree::sum(parts.into_iter().map(|(_, tree)| tree)),
            Merge::Tree => Tree::over_slots(parts),
        }
    }

    /// The fields in which two recipes differ, structure first; empty for equal recipes.
    pub fn differences(&self, other: &Recipe) -> Vec<RecipeDifference> {
        let mut found = Vec::new();
        let mut note = |field: &str, left: String, right: String| {
            if left != right {
                found.push(RecipeDifference { field: field.into(), left, right });
            }
        };
        let range = |keys: Range<u32>| format!("{}..{}", keys.start, keys.end);
        note("keys", range(self.keys()), range(other.keys()));
        note("splits", self.layout.splits_in_words(), other.layout.splits_in_words());
        let blocks = [&self.layout, &other.layout].map(Layout::sorted_blocks_in_words);
        if blocks[0] == blocks[1] {
            note("visits", self.layout.blocks_in_words(), other.layout.blocks_in_words());
        }
        let [blocks, others] = blocks;
        note("blocks", blocks, others);
        if self.layout.blocks_in_words() == other.layout.blocks_in_words() {
            let slots = |layout: &Layout| format!("{:?}", layout.cells.iter().map(|cell| cell.slot).collect::<Vec<_>>());
            note("slots", slots(&self.layout), slots(&other.layout));
        }
        let position = |recipe: &Recipe| recipe.position.map_or("none".into(), |p| p.to_string());
        note("position", position(self), position(other));
        let tile = |recipe: &Recipe| recipe.tile.as_ref().map_or("none".into(), Tile::to_string);
        note("tile", tile(self), tile(other));
        note("partials", self.partials.to_string(), other.partials.to_string());
        for field in Numerics::FIELDS {
            let value = |recipe: &Recipe| recipe.arithmetic.get(field).unwrap_or_default();
            note(field, value(self), value(other));
        }
        for field in Conventions::FIELDS {
            let value = |recipe: &Recipe| recipe.conventions.get(field).unwrap_or_default();
            note(&format!("actual.{field}"), value(self), value(other));
        }
        found
    }
}

/// The tree inside one cell for an order that reduces inside the block.
fn cell_tree(order: Order, cell: &Cell) -> Option<Tree> {
    let keys = cell.keys.clone();
    match order {
        Order::Sequential => Tree::sum(keys.map(Tree::Leaf)),
        Order::Pairwise => Tree::pairwise(keys.start, keys.end - keys.start, u64::from(cell.slot)),
        Order::Lanes(n) => {
            let slot = |key: u32| (cell.slot + (key - keys.start)) % n;
            let mut lanes: Vec<Option<Tree>> =
                (0..n).map(|lane| Tree::sum(keys.clone().filter(|&key| slot(key) == lane).map(Tree::Leaf))).collect();
            while lanes.len() > 1 {
                let upper = lanes.split_off(lanes.len() / 2);
                lanes = lanes.into_iter().zip(upper).map(|(low, high)| Tree::sum(low.into_iter().chain(high))).collect();
            }
            lanes.pop().flatten()
        }
        Order::Fused(w) => {
            let mut sum: Option<Tree> = None;
            let mut key = keys.start;
            while key < keys.end {
                let group = w - (cell.slot + (key - keys.start)) % w;
                let end = keys.end.min(key.saturating_add(group));
                sum = Tree::fused(sum.into_iter().chain((key..end).map(Tree::Leaf)));
                key = end;
            }
            sum
        }
    }
}

impl Layout {
    /// The key ranges of the parts, in the order of the merge.
    fn splits_in_words(&self) -> String {
        let part = |part: &Part| {
            let index = if part.index > 0 { format!(" (at {})", part.index) } else { String::new() };
            format!("{}{index}", ranges_in_words(self.cells_of(part)))
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    /// The key ranges of the blocks, in the order of visits.
    fn blocks_in_words(&self) -> String {
        let cell = |cell: &Cell| format!("{}..{}", cell.keys.start, cell.keys.end);
        self.cells.iter().map(cell).collect::<Vec<_>>().join(", ")
    }

    /// The key ranges of the blocks, ascending.
    fn sorted_blocks_in_words(&self) -> String {
        let mut sorted = Layout { parts: Vec::new(), cells: self.cells.clone() };
        sorted.cells.sort_by_key(|cell| cell.keys.start);
        sorted.blocks_in_words()
    }
}

/// The keys of some cells: `0..4`, or `0..4+12..16` for the two chunks of a rank.
fn ranges_in_words(cells: &[Cell]) -> String {
    let mut ranges: Vec<Range<u32>> = cells.iter().map(|cell| cell.keys.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touching = range.end == next.start;
        if touching {
            range.end = next.end;
        }
        touching
    });
    ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect::<Vec<_>>().join("+")
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = |mate: Option<&Mate>| mate.map_or(0, |mate| mate.position);
        let (first, last) = (position(self.rows.first()), position(self.rows.last()));
        write!(f, "row {} of a tile of positions {first} to {last}", self.member)?;
        for mate in &self.rows {
            write!(f, "; {}: {} in {}", mate.position, mate.layout.blocks_in_words(), mate.layout.splits_in_words())?;
        }
        Ok(())
    }
}

impl fmt::Display for Recipe {
    /// The cuts in words; the arithmetic is left to [`Recipe::differences`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layout.cells.is_empty() {
            return f.write_str("no keys");
        }
        let keys = self.keys();
        write!(f, "keys {}..{}", keys.start, keys.end)?;
        let plural = |n: usize| if n == 1 { "block" } else { "blocks" };
        let cells = self.layout.cells.len();
        match self.layout.parts.len() {
            1 => write!(f, " in {cells} {}: {}", plural(cells), self.layout.blocks_in_words())?,
            n => {
                write!(f, " in {n} splits: ")?;
                for (i, part) in self.layout.parts.iter().enumerate() {
                    let cells = self.layout.cells_of(part);
                    let text: Vec<String> = cells.iter().map(|c| format!("{}..{}", c.keys.start, c.keys.end)).collect();
                    let gap = if i > 0 { "; " } else { "" };
                    write!(f, "{gap}{} {}", plural(cells.len()), text.join(", "))?;
                }
                match self.arithmetic.grid.merge {
                    Merge::Sequential if self.layout.is_ascending() => f.write_str(", merged left to right")?,
                    Merge::Sequential => f.write_str(", merged as they arrive")?,
                    Merge::Tree => f.write_str(", merged as a tree")?,
                }
            }
        }
        if let Some(tile) = &self.tile {
            write!(f, ", rescaled with {} rows of its tile", tile.rows.len())?;
        }
        Ok(())
    }
}
