//! Planted faults that depend on the call, or stand inside a row: how a call is read, which keys a row takes, how it ends. What is
//! another convention or arithmetic throughout is [`Mutant::edit`].
//!
//! Row code reads [`Flaw`], whose fields are neutral in a kernel without a fault.

use super::Reference;
use super::view::{Entry, KeySlots, View};
use crate::number::Dtype;
use crate::subject::attention::conventions::WindowConvention;
use crate::subject::attention::kernel::Attributes;
use crate::subject::attention::mask::Mask;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::{Block, Context, GridAnchor, Merge, Numerics, Order, Passes, Split, Traverse};
use crate::subject::attention::recipe::{Layout, StepFacts};
use crate::subject::attention::validate::MAX_HEADS;
use std::borrow::Cow;
use std::ops::Range;

/// Tile of [`Mutant::TileOfBatchMaxQ`] where every sequence has one row.
const ONE_ROW_TILE: u32 = 64;
/// Rows up to which [`Mutant::MergeOrderByRows`] merges in order.
const SMALL_CALL: usize = 8;
/// Keys at which [`Mutant::SinkMissingBetweenPaths`] takes its middle path.
const MIDDLE_PATH: Range<u32> = 49..256;
/// Slopes that leave scores as they are.
const NO_SLOPES: [f32; MAX_HEADS] = [0.0; MAX_HEADS];

/// What a fault does to one row.
#[derive(Default)]
pub(super) struct Flaw {
    /// Keys of the row's tiles outside of these have [`Mutant::MASKED`] as their score.
    pub visible: Option<Range<u32>>,
    /// Where the keys of the sequence end; 0 where no fault asks.
    pub end: u32,
    /// Lanes behind `end` that count with the score `-softcap`.
    pub padding: usize,
    /// The first tile has no visible key, and is visited all the same.
    pub masked_tile: bool,
    /// Splits without a visible key that are merged, before and behind those with one.
    pub empty_splits: [usize; 2],
    /// Partials are merged from the last back to the first.
    pub merged_back: bool,
    /// Keys outside of `visible` keep their score, and lose their weight instead.
    pub masked_late: bool,
    /// The sink does not join.
    pub sink_missing: bool,
    /// A row without visible keys is divided by its sum of 0.
    pub unguarded: bool,
}

/// What is decoded.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Operand {
    Query,
    Key,
    Value,
}

impl Reference {
    /// The kernel as it really computes, and the call as it reads it.
    pub(super) fn acting(&self, view: &mut View<'_>) -> Cow<'_, Reference> {
        let Some(mutant) = self.mutant else { return Cow::Borrowed(self) };
        let mut acting = self.clone();
        mutant.edit(&mut acting.numerics, &mut acting.actual);
        acting.misread(mutant, view);
        Cow::Owned(acting)
    }

    fn misread(&mut self, mutant: Mutant, view: &mut View<'_>) {
        view.mutant = Some(mutant);
        let longest_q = view.facts.batch_max_q;
        match mutant {
            Mutant::PageAheadCounted => {
                let pages_there = view.k.dims[0].min(view.v.dims[0]);
                for entry in &mut view.entries {
                    let KeySlots::Pages { pages, size } = entry.slots else { continue };
                    let used = entry.kv as usize / size.max(1);
                    let ahead = pages.get(used).is_some_and(|&page| (page as usize) < pages_there);
                    if entry.kv > 0 && (entry.kv as usize).is_multiple_of(size) && ahead {
                        entry.kv += size as u32;
                    }
                }
            }
            Mutant::AlibiOverQueryLength => {
                let slopes = NO_SLOPES.get(..view.attributes.q_heads);
                if view.attributes.alibi_slopes.is_some() && longest_q < view.longest_kv() {
                    view.attributes.to_mut().alibi_slopes = slopes;
                }
            }
            Mutant::WindowSentinelLiteral if view.is_causal_without_window() => {
                // Bounds from p + 1 to p: what is left of a window of 0 that should hold the row itself.
                view.attributes.to_mut().mask.window_left = Some(0);
                self.actual.window = WindowConvention::CountsSelf;
            }
            Mutant::TileOfBatchMaxQ if longest_q <= 1 => self.numerics.softmax.block = Block::Size(ONE_ROW_TILE),
            Mutant::DotOrderByRows if view.rows() == 1 => self.numerics.score.order = Order::Lanes(8),
            Mutant::EmptySequenceDenseLse if view.q.dims.len() == 3 => {
                for (b, entry) in view.entries.iter_mut().enumerate().filter(|(_, entry)| entry.kv == 0) {
                    entry.first_lse = b * longest_q as usize;
                }
                // Early exits are seen where they come late.
                view.entries.sort_by_key(|entry| entry.kv == 0);
            }
            Mutant::ScoresInStorageFormat if view.q.dtype != Dtype::F32 => self.numerics.score.store = view.q.dtype,
            Mutant::WindowNeedsCausal if view.attributes.mask.causal.is_none() => view.attributes.to_mut().mask = Mask::default(),
            Mutant::SharedPrefixCascade => {
                let with_keys = view.entries.iter().filter(|entry| entry.q > 0 && entry.kv > 0);
                let shared = with_keys.clone().map(|entry| entry.prefix).min().unwrap_or(0);
                if with_keys.count() > 1 && shared > 0 {
                    self.numerics.grid.split = Split::CacheBoundary;
                    view.entries.iter_mut().for_each(|entry| entry.prefix = shared);
                }
            }
            Mutant::SplitsOverBatch => {
                if let Split::FixedSize(n) = self.numerics.grid.split {
                    self.numerics.grid.anchor = GridAnchor::Uncached;
                    let mut before = 0;
                    for entry in &mut view.entries {
                        // The first border of the batch's grid inside the sequence.
                        entry.prefix = (n - before % n) % n;
                        before += entry.kv;
                    }
                }
            }
            _ => {}
        }
    }

    /// Puts the tiles of each part in another order of visits.
    pub(super) fn reorder(&self, entry: &Entry<'_>, layout: &mut Layout) {
        if self.mutant == Some(Mutant::PhysicalPageOrder) {
            let Layout { parts, cells } = layout;
            for part in parts {
                cells[part.cells.clone()].sort_by_key(|cell| entry.run(cell.keys.clone()).0);
            }
        }
    }

    /// Changes the numerics of one sequence of a call, rules resolved.
    pub(super) fn relaunch(&self, view: &View<'_>, facts: &StepFacts, numerics: &mut Numerics) {
        if let (Some(Mutant::SplitsOfBatchMax), Split::FixedSize(n)) = (self.mutant, numerics.grid.split) {
            let (own, batch) = (facts.kv.div_ceil(n), view.longest_kv().div_ceil(n));
            if own != batch {
                numerics.grid.split = Split::FixedSize(facts.kv.div_ceil(batch.max(1)).max(1));
            }
        }
    }

    /// The query heads that share a pass over one KV head's keys.
    pub(super) fn group(&self, view: &View<'_>) -> usize {
        match self.mutant {
            Some(Mutant::HeadMapByGroupSize | Mutant::MaskOfFirstHead) => 1,
            _ => view.attributes.q_heads / view.attributes.kv_heads,
        }
    }

    /// The KV head of the group with this number.
    pub(super) fn kv_head(&self, view: &View<'_>, group: usize) -> usize {
        let kv_heads = view.attributes.kv_heads;
        let size = view.attributes.q_heads / kv_heads;
        match self.mutant {
            Some(Mutant::HeadMapByGroupSize) => {
                // Blocks go over the KV heads first.
                let block = group % size * kv_heads + group / size;
                let mapped = block % size * size + block / size;
                (mapped / size).min(kv_heads - 1)
            }
            Some(Mutant::MaskOfFirstHead) => group / size,
            _ => group,
        }
    }

    /// The facts as the group with this number sees them.
    pub(super) fn facts_of(&self, group: usize, facts: &StepFacts) -> StepFacts {
        match self.mutant {
            Some(Mutant::MaskOfFirstHead) if group > 0 => StepFacts { mask: Mask::default(), ..*facts },
            _ => *facts,
        }
    }

    /// The keys that a row takes, and its ALiBi position.
    pub(super) fn keys(&self, numerics: &Numerics, facts: &StepFacts, row: u32) -> (Range<u32>, i64) {
        let (keys, position) = facts.keys(&self.actual, row);
        let cut = |start: u32, end: u32| {
            let (start, end) = (keys.start.max(start), keys.end.min(end));
            (if start < end { start..end } else { 0..0 }, position)
        };
        match self.mutant {
            Some(Mutant::TailTileDropped) => {
                let tile = tile(numerics, facts);
                cut(0, (facts.kv / tile).max(1) * tile)
            }
            Some(Mutant::SecondChunkLosesHistory) if facts.call.page.is_some() && facts.q > 1 && facts.prefix == 0 => {
                cut(facts.kv.saturating_sub(facts.q), facts.kv)
            }
            Some(Mutant::TailOfOneKeyDropped) => {
                let alone = facts.kv > 32 && facts.kv % 32 == 1;
                let masked = facts.mask != Mask::default();
                cut(0, if alone && masked && facts.call.kv_dtype == Dtype::BF16 { facts.kv - 1 } else { facts.kv })
            }
            Some(Mutant::ContextTailDropped) => {
                let chunks = facts.call.context.map_or(1, |ranks| ranks.chunks());
                cut(0, facts.kv - facts.kv % chunks)
            }
            Some(Mutant::WindowOfLastRow) if facts.mask.window_left.is_some() => {
                let (last, _) = facts.keys(&self.actual, facts.tile(row).end - 1);
                let tile = tile(numerics, facts);
                cut(last.start / tile * tile, facts.kv)
            }
            Some(Mutant::FiniteMaskAndMaximum | Mutant::FiniteMaskValue | Mutant::MaximumOfMaskedKeys) if !keys.is_empty() => {
                let tile = tile(numerics, facts);
                let end = keys.end.next_multiple_of(tile).min(facts.kv);
                (keys.start / tile * tile..end, position)
            }
            Some(Mutant::PagedAlibiOneMore) if facts.call.page.is_some() => (keys, position + 1),
            _ => (keys, position),
        }
    }

    /// What is wrong with a row.
    pub(super) fn flaw(&self, view: &View<'_>, numerics: &Numerics, facts: &StepFacts, row: u32) -> Flaw {
        let Some(mutant) = self.mutant else { return Flaw::default() };
        let (visible, _) = facts.keys(&self.actual, row);
        let unsplit = !numerics.grid.has_partials(facts.call.context);
        let mut flaw = Flaw::default();
        match mutant {
            Mutant::PaddingBeforeSoftcap => {
                let masked = facts.mask.causal.is_some() || facts.mask.window_left.or(facts.mask.window_right).is_some();
                if facts.softcap && !masked && !facts.alibi && unsplit {
                    flaw.end = facts.kv;
                    flaw.padding = (facts.kv.next_multiple_of(tile(numerics, facts)) - facts.kv) as usize;
                }
            }
            Mutant::UnusedValueSlots => flaw.end = facts.kv,
            Mutant::NoGuardOfMaximum => {
                let softmax = &numerics.softmax;
                let online = softmax.passes == Passes::Online && softmax.traverse == Traverse::Forward;
                flaw.masked_tile = online && unsplit && !visible.is_empty() && visible.start >= tile(numerics, facts);
            }
            Mutant::FiniteMaskAndMaximum | Mutant::FiniteMaskValue => flaw.visible = Some(visible),
            Mutant::EmptySplitsMerged => {
                let whole = facts.call.context.is_none() || numerics.grid.context == Context::AllGather;
                if let (Split::FixedSize(n), Merge::Sequential, true) = (numerics.grid.split, numerics.grid.merge, whole) {
                    let all = facts.kv.div_ceil(n);
                    let seen = if visible.is_empty() { all..all } else { visible.start / n..visible.end.div_ceil(n) };
                    flaw.empty_splits = [seen.start as usize, (all - seen.end) as usize];
                }
            }
            Mutant::MergeOrderByRows => flaw.merged_back = view.rows() > SMALL_CALL,
            Mutant::MaximumOfMaskedKeys => {
                flaw.visible = Some(visible);
                flaw.masked_late = true;
            }
            Mutant::SinkMissingBetweenPaths => flaw.sink_missing = MIDDLE_PATH.contains(&facts.kv),
            Mutant::NoGuardOfEmptyRow => flaw.unguarded = facts.kv > 0 && visible.is_empty(),
            _ => {}
        }
        flaw
    }
}

impl Flaw {
    /// Changes the scores of the keys from `first` on.
    pub(super) fn rescore(&self, mutant: Mutant, first: u32, attributes: &Attributes<'_>, scores: &mut [f32]) {
        if let Some(visible) = self.visible.as_ref().filter(|_| !self.masked_late) {
            let masked = (first..).zip(&mut *scores).filter(|(key, _)| !visible.contains(key));
            masked.for_each(|(_, score)| *score = Mutant::MASKED);
        }
        if let (Mutant::CoarseTanh, Some(cap), None) = (mutant, attributes.softcap, attributes.alibi_slopes) {
            scores.iter_mut().for_each(|score| *score = cap * f32::from_bits((*score / cap).to_bits() & !0x1fff));
        }
    }

    /// Changes the weights of the keys from `first` on.
    pub(super) fn reweigh(&self, mutant: Mutant, first: u32, weights: &mut [f32]) {
        if let Some(visible) = self.visible.as_ref().filter(|_| self.masked_late) {
            let masked = (first..).zip(&mut *weights).filter(|(key, _)| !visible.contains(key));
            masked.for_each(|(_, weight)| *weight = 0.0);
        }
        if mutant == Mutant::SubnormalWeightsFlushed {
            weights.iter_mut().filter(|weight| weight.is_subnormal()).for_each(|weight| *weight = 0.0);
        }
    }
}

/// Weights cut off to the upper half of an f32.
pub(super) fn truncated_to_bf16(weights: &[f32]) -> impl Iterator<Item = f32> {
    weights.iter().map(|weight| f32::from_bits(weight.to_bits() & 0xffff_0000))
}

/// The bf16 pattern nearest to a number, ties away from zero.
pub(super) fn bf16_with_ties_away(x: f32) -> u32 {
    if x.is_nan() { Dtype::BF16.round_f32(x) } else { (x.to_bits() + 0x8000) >> 16 }
}

/// What E4M3 of AMD's older GPUs (FNUZ: the bias is 8, and the pattern of -0 is the only NaN) makes of the pattern of a number.
fn fn_as_fnuz(x: f32) -> f32 {
    if x.is_nan() {
        240.0
    } else if x.to_bits() == (-0.0f32).to_bits() {
        f32::NAN
    } else {
        x * 0.5
    }
}

/// Keys in a tile.
fn tile(numerics: &Numerics, facts: &StepFacts) -> u32 {
    match numerics.softmax.block {
        Block::Size(n) => n.max(1),
        Block::Whole | Block::Rule(_) => facts.kv.max(1),
    }
}

impl View<'_> {
    /// Keys of the longest sequence.
    fn longest_kv(&self) -> u32 {
        self.entries.iter().map(|entry| entry.kv).max().unwrap_or(0)
    }

    fn is_causal_without_window(&self) -> bool {
        let mask = &self.attributes.mask;
        mask.causal.is_some() && mask.window_left.is_none()
    }

    /// Rows of all sequences.
    fn rows(&self) -> usize {
        self.entries.iter().map(|entry| entry.q as usize).sum()
    }

    /// The first element of a slot and KV head in a tensor of this head dim.
    pub(super) fn element(&self, slot: usize, kv_head: usize, d: usize) -> usize {
        let offset = slot * self.attributes.kv_heads * d;
        let offset = if self.mutant == Some(Mutant::IndexWraps) { offset & 0xffff } else { offset };
        offset + kv_head * d
    }

    fn is_e4m3(&self, operand: Operand) -> bool {
        match operand {
            Operand::Query => false,
            Operand::Key => self.k.dtype == Dtype::E4M3,
            Operand::Value => self.v.dtype == Dtype::E4M3,
        }
    }

    /// Changes numbers as they are decoded.
    pub(super) fn reread(&self, operand: Operand, line: &mut [f32]) {
        match self.mutant {
            Some(Mutant::ReducedMantissaDot) if self.q.dtype == Dtype::F32 && operand != Operand::Value => {
                line.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits() & !0x1fff));
            }
            Some(Mutant::SubnormalsFlushed) if operand != Operand::Query => {
                line.iter_mut().filter(|x| x.is_subnormal()).for_each(|x| *x = 0.0f32.copysign(*x));
            }
            Some(Mutant::FnReadAsFnuz) if self.is_e4m3(operand) => line.iter_mut().for_each(|x| *x = fn_as_fnuz(*x)),
            Some(Mutant::NegativeZeroIsNan) if self.is_e4m3(operand) => {
                line.iter_mut().filter(|x| x.to_bits() == (-0.0f32).to_bits()).for_each(|x| *x = f32::NAN);
            }
            _ => {}
        }
    }

    /// `[d_v]`: the products of weight 0 with the values behind a sequence's last key, to the end of its tile, and as far as its page or
    /// its row of the cache reaches; empty without the fault.
    pub(super) fn unused(&self, entry: &Entry<'_>, kv_head: usize, numerics: &Numerics) -> Vec<f32> {
        if self.mutant != Some(Mutant::UnusedValueSlots) || self.v.dims.len() != 4 || entry.kv == 0 {
            return Vec::new();
        }
        let size = self.v.dims[1];
        let kv = entry.kv as usize;
        let room = match entry.slots {
            KeySlots::From(first) => size - first % size,
            KeySlots::Pages { .. } => kv.next_multiple_of(size),
        };
        let tile = tile(numerics, &entry.facts(self)) as usize;
        let d = self.attributes.d_v;
        let mut products = vec![0.0f32; d];
        for key in kv..kv.next_multiple_of(tile).min(room) {
            let (slot, _) = entry.run(key as u32..key as u32 + 1);
            let at = self.element(slot, kv_head, d);
            for (product, &bits) in products.iter_mut().zip(&self.v.bits[at..at + d]) {
                *product += 0.0 * self.v.dtype.to_f32(bits);
            }
        }
        products
    }
}
