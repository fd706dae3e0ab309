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
use crate::subject::attention::{Inputs, Problem, Side};

/// What a request has done so far, in packed rows.
#[derive(Clone, Copy)]
struct Progress {
    /// The first row it computed.
    first: u32,
    /// One past the last row of its last call.
    end: u32,
}

/// The sequences of a call, bucket padding left out.
#[derive(Default)]
struct Company {
    with_rows: u32,
    /// One has rows and keys.
    whole: bool,
    /// One has no rows, or no keys.
    empty: bool,
}

impl Company {
    fn of(sequences: impl Iterator<Item = (u32, u32)>) -> Company {
        let mut company = Company::default();
        sequences.for_each(|(q, kv)| company.add(q, kv));
        company
    }

    fn add(&mut self, q: u32, kv: u32) {
        self.with_rows += u32::from(q > 0);
        self.whole |= q > 0 && kv > 0;
        self.empty |= q == 0 || kv == 0;
    }
}

/// The calls of one path, seen one by one. Splits and blocks inside the kernel are those of a reference kernel: the kernel itself, or
/// one with the arithmetic that it declares.
pub(in crate::subject::attention) struct Watch<'a> {
    kernel: &'a Reference,
    problem: &'a Problem,
    inputs: &'a Inputs,
    /// By index of the sequence.
    requests: Vec<Option<Progress>>,
    row: Layout,
    reach: Reach,
}

impl<'a> Watch<'a> {
    pub fn new(kernel: &'a Reference, problem: &'a Problem, inputs: &'a Inputs) -> Self {
        let requests = vec![None; problem.sequences.len()];
        Watch { kernel, problem, inputs, requests, row: Layout::default(), reach: Reach::default() }
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
                let sequence = |b| (lengths(call.cu_seqlens_q, b), lengths(call.cu_seqlens_k, b));
                self.company(&Company::of((0..batch).map(sequence)));
            }
            Call::Dense(call) => {
                let lengths = || call.lengths_q.iter().copied().zip(call.lengths_kv.iter().copied());
                self.company(&Company::of(lengths()));
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

    fn company(&mut self, company: &Company) {
        self.note(PlanFeature::Company, company.with_rows > 1);
        self.note(PlanFeature::ZeroLength, company.whole && company.empty);
    }

    /// What a step does with the cache and with its requests.
    fn paged(&mut self, call: &PagedCall<'_>, rows: &[u32]) {
        let mut company = Company::default();
        for (b, offsets) in call.cu_seqlens_q.windows(2).enumerate() {
            let q = offsets[1] - offsets[0];
            if q == 0 {
                continue;
            }
            let first = rows[offsets[0] as usize];
            if first == NO_ROW {
                self.note(PlanFeature::Bucket, true);
                continue;
            }
            let (sequence, kv) = (self.sequence(first), call.cache_seqlens[b]);
            // By the length of the whole sequence: a step before its first key makes none of length zero.
            company.add(q, self.problem.sequences[sequence].kv);
            self.request(sequence, first, q);
            if call.prefix_lens[b] > 0 {
                // The first row sees the lowest keys.
                let keys = call.attributes.mask.keys(0, q, kv);
                self.note(PlanFeature::PrefixHit, !keys.is_empty() && keys.start < call.prefix_lens[b]);
            }
            if kv > 0 {
                self.pages(call, b, kv as usize);
            }
        }
        self.company(&company);
    }

    /// Index of the sequence of a packed row. Those without rows begin where the next one does.
    fn sequence(&self, row: u32) -> usize {
        self.inputs.q_start.partition_point(|&start| start <= row as usize) - 1
    }

    /// `q` rows from packed row `first` on: those after the request's last ones, or some of them again.
    fn request(&mut self, sequence: usize, first: u32, q: u32) {
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
        let longest = match seen.call {
            Call::Varlen(call) => call.cu_seqlens_k.windows(2).map(|pair| pair[1] - pair[0]).max(),
            Call::Dense(call) => call.lengths_kv.iter().copied().max(),
            Call::Paged(call) => call.cache_seqlens.iter().copied().max(),
        };
        // A wider one hides nothing, under any convention.
        let hides = |window: Option<u32>| window.is_some_and(|window| window <= longest.unwrap_or(0));
        let window = (hides(mask.window_left) || hides(mask.window_right)) && !has(PlanFeature::WindowInBlock);
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
