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

mod layout;
mod words;

pub(crate) use layout::grid_splits;
pub use layout::{Cell, Layout, Part};

use super::conventions::{AnchorConvention, Conventions, ScalesConvention, WindowConvention};
use super::kernel::Attributes;
use super::mask::{Anchor, Mask};
use super::numerics::{
    Block, Context, Descale, GridAnchor, Launch, MaxInit, Merge, Numerics, Order, Passes, Rescale, Scope, Split, Traverse,
};
use super::plan::ContextParallel;
use crate::number::Dtype;
use crate::tree::Tree;
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
    let scales = matches!(facts.call.kv_dtype, Dtype::E4M3 | Dtype::E5M2);
    if !scales || actual.kv_scales == ScalesConvention::Ignored {
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
                _ => Tree::sum(cells.iter().filter_map(|cell| self.cell_tree(cell))),
            };
            (u64::from(part.index), tree)
        });
        let parts: Vec<(u64, Tree)> = parts.filter_map(|(index, tree)| Some((index, tree?))).collect();
        match self.arithmetic.grid.merge {
            Merge::Sequential => Tree::sum(parts.into_iter().map(|(_, tree)| tree)),
            Merge::Tree => Tree::over_slots(parts),
        }
    }

    /// The order in which the products of one cell are added, over key positions.
    pub fn cell_tree(&self, cell: &Cell) -> Option<Tree> {
        cell_tree(self.arithmetic.value.order, cell)
    }
}

/// The tree inside one cell for an order that reduces inside the block.
pub(super) fn cell_tree(order: Order, cell: &Cell) -> Option<Tree> {
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
