//! Looks at a path's calls as they are made.

use super::PlanFeature;
use crate::number::Class;
use crate::reach::Reach;
use crate::subject::attention::drive::{NO_ROW, Observed};
use crate::subject::attention::kernel::{Call, PagedCall};
use crate::subject::attention::mask::Mask;
use crate::subject::attention::numerics::{Context, Numerics, Split};
use crate::subject::attention::recipe::{Layout, StepFacts, grid_splits};
use crate::subject::attention::reference::{Reference, facts};
use crate::subject::attention::{Inputs, Side};

/// What a request has done so far, in packed rows.
#[derive(Clone, Copy)]
struct Progress {
    /// The first row it computed.
    first: u32,
    /// One past the last row of its last call.
    end: u32,
}

/// The calls of one path, seen one by one. Splits and blocks inside the kernel are those of a reference kernel: the kernel itself, or
/// one with the arithmetic that it declares.
pub(in crate::subject::attention) struct Watch<'a> {
    kernel: &'a Reference,
    inputs: &'a Inputs,
    /// By index of the sequence.
    requests: Vec<Option<Progress>>,
    row: Layout,
    reach: Reach,
}

impl<'a> Watch<'a> {
    pub fn new(kernel: &'a Reference, inputs: &'a Inputs) -> Self {
        let requests = vec![None; inputs.q_start.len()];
        Watch { kernel, inputs, requests, row: Layout::default(), reach: Reach::default() }
    }

    /// What the calls so far had.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Looks at one call.
    pub fn see(&mut self, seen: &Observed<'_>) {
        if seen.heads.start > 0 {
            // Head-parallel ranks make the same calls.
            return;
        }
        match seen.call {
            Call::Varlen(call) => {
                let lengths = |offsets: &[u32], b: usize| offsets[b + 1] - offsets[b];
                let batch = call.cu_seqlens_q.len() - 1;
                self.company((0..batch).map(|b| (lengths(call.cu_seqlens_q, b), lengths(call.cu_seqlens_k, b))));
            }
            Call::Dense(call) => {
                let lengths = || call.lengths_q.iter().copied().zip(call.lengths_kv.iter().copied());
                self.company(lengths());
                let (seq_q, seq_kv) = (call.q.dims[1], call.k.dims[1]);
                let padded = |(q, kv): (u32, u32)| q > 0 && kv > 0 && call.start(seq_q, q) + call.start(seq_kv, kv) > 0;
                self.note(PlanFeature::LeftPadding, call.padding == Side::Left && lengths().any(padded));
            }
            Call::Paged(call) => self.paged(call, seen.rows),
        }
        self.inside(seen);
    }

    fn note(&mut self, feature: PlanFeature, reached: bool) {
        if reached {
            self.reach.insert(feature as usize);
        }
    }

    /// Rows and keys of the sequences of a call, bucket padding left out.
    fn company(&mut self, sequences: impl Iterator<Item = (u32, u32)>) {
        let (mut rows, mut whole, mut empty) = (0, false, false);
        for (q, kv) in sequences {
            rows += u32::from(q > 0);
            whole |= q > 0 && kv > 0;
            empty |= q == 0 || kv == 0;
        }
        self.note(PlanFeature::Company, rows > 1);
        self.note(PlanFeature::ZeroLength, whole && empty);
    }

    /// What a step does with the cache and with its requests.
    fn paged(&mut self, call: &PagedCall<'_>, rows: &[u32]) {
        let entries = || {
            let offsets = call.cu_seqlens_q.windows(2).map(|pair| pair[0] as usize..pair[1] as usize);
            offsets.enumerate().filter(|(_, its)| !its.is_empty())
        };
        let is_padding = |first: usize| rows[first] == NO_ROW;
        self.note(PlanFeature::Bucket, entries().any(|(_, its)| is_padding(its.start)));
        let real = || entries().filter(|(_, its)| !is_padding(its.start));
        self.company(real().map(|(b, its)| (its.len() as u32, call.cache_seqlens[b])));
        for (b, its) in real() {
            let (q, kv) = (its.len() as u32, call.cache_seqlens[b]);
            self.request(rows[its.start], q);
            // The first row sees the lowest keys.
            let keys = call.attributes.mask.keys(0, q, kv);
            self.note(PlanFeature::PrefixHit, !keys.is_empty() && keys.start < call.prefix_lens[b]);
            if kv > 0 {
                self.pages(call, b, kv as usize);
            }
        }
    }

    /// `q` rows from packed row `first` on: those after the request's last ones, or some of them again.
    fn request(&mut self, first: u32, q: u32) {
        // Sequences without rows begin where the next one does, and make no call.
        let sequence = self.inputs.q_start.partition_point(|&start| start <= first as usize) - 1;
        if let Some(before) = self.requests[sequence] {
            self.note(PlanFeature::SecondChunk, first == before.end && q > 1);
            self.note(PlanFeature::Preempt, first < before.end && first == before.first);
            self.note(PlanFeature::Verify, first < before.end && first > before.first);
        }
        let begun = self.requests[sequence].map_or(first, |before| before.first);
        self.requests[sequence] = Some(Progress { first: begun, end: first + q });
    }

    /// The pages of an entry with `kv` keys.
    fn pages(&mut self, call: &PagedCall<'_>, b: usize, kv: usize) {
        let Some(table) = call.block_table else { return };
        let size = call.k_cache.dims[1];
        let used = kv.div_ceil(size);
        self.note(PlanFeature::SparePage, table.width > used);
        if kv.is_multiple_of(size) {
            return;
        }
        self.note(PlanFeature::RaggedPage, true);
        let slot = table.pages[b * table.width + used - 1] as usize * size + kv % size;
        // Free pages hold NaN, and so do slots that were never written.
        let behind = call.k_cache.bits[slot * call.attributes.kv_heads * call.attributes.d_qk];
        self.note(PlanFeature::RecycledPage, call.k_cache.dtype.class(behind) != Class::Nan);
    }

    /// What the call is cut into inside the kernel.
    fn inside(&mut self, seen: &Observed<'_>) {
        let attributes = match seen.call {
            Call::Varlen(call) => call.attributes,
            Call::Dense(call) => call.attributes,
            Call::Paged(call) => call.attributes,
        };
        let has = |feature: PlanFeature| feature.is_in(self.reach);
        let numerics = &self.kernel.numerics;
        let one_rank = attributes.context.is_none() || numerics.grid.context == Context::AllGather;
        let splits = one_rank && numerics.grid.split != Split::None && !(has(PlanFeature::Split) && has(PlanFeature::EmptySplit));
        let mask = attributes.mask;
        let window = (mask.window_left.is_some() || mask.window_right.is_some()) && !has(PlanFeature::WindowInBlock);
        if !splits && !window {
            return;
        }
        for (first, facts) in facts(seen.call) {
            if facts.q == 0 || facts.kv == 0 || seen.rows[first] == NO_ROW {
                continue;
            }
            let numerics = numerics.resolved(&facts.launch());
            if splits {
                self.splits(&numerics, &facts);
            }
            if window {
                self.window(&numerics, &facts);
            }
        }
    }

    fn splits(&mut self, numerics: &Numerics, facts: &StepFacts) {
        let splits = grid_splits(numerics, facts);
        if splits < 2 {
            return;
        }
        // Without a mask, all rows are alike.
        let rows = if facts.mask == Mask::default() { 1 } else { facts.q };
        for row in (0..rows).rev() {
            self.row.lay(numerics, &self.kernel.actual, facts, row);
            let parts = self.row.parts.len() as u64;
            self.note(PlanFeature::Split, parts > 1);
            self.note(PlanFeature::EmptySplit, parts > 0 && parts < splits);
            if PlanFeature::Split.is_in(self.reach) && PlanFeature::EmptySplit.is_in(self.reach) {
                return;
            }
        }
    }

    fn window(&mut self, numerics: &Numerics, facts: &StepFacts) {
        let open = Mask { window_left: None, window_right: None, ..facts.mask };
        let open = StepFacts { mask: open, ..*facts };
        for row in 0..facts.q {
            let (keys, _) = facts.keys(&self.kernel.actual, row);
            if keys.is_empty() || keys == open.keys(&self.kernel.actual, row).0 {
                continue;
            }
            self.row.lay(numerics, &self.kernel.actual, &open, row);
            let cuts = |at: u32| self.row.cells.iter().any(|cell| cell.keys.start < at && at < cell.keys.end);
            if cuts(keys.start) || cuts(keys.end) {
                self.note(PlanFeature::WindowInBlock, true);
                return;
            }
        }
    }
}
