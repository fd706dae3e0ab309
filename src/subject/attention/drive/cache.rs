//! The KV cache of the inference path: contiguous rows, or pages from a free list.

use super::{Poison, copy_rows, strides};
use crate::source::mix;
use crate::subject::attention::{Cache, Inputs, Problem};
use crate::tensor::Tensor;
use std::collections::VecDeque;

/// The slots, and who owns them.
pub(super) struct KvCache<'a> {
    inputs: &'a Inputs,
    pub(super) k: Tensor,
    pub(super) v: Tensor,
    dead: u32,
    layout: Layout,
    /// Positions written, for each sequence.
    filled: Vec<u32>,
}

enum Layout {
    Contiguous { capacity: usize },
    Paged(Pages),
}

struct Pages {
    page: usize,
    free: VecDeque<u32>,
    /// Pages of each sequence, in position order.
    owned: Vec<Vec<u32>>,
    /// Freed pages keep their values and are handed out first.
    recycled: bool,
    /// A page that never holds a live slot: fills up block table rows.
    dead: u32,
    /// It also stands at the end of each row, as a page allocated ahead.
    ahead: bool,
}

impl<'a> KvCache<'a> {
    pub(super) fn new(problem: &Problem, cache: Cache, inputs: &'a Inputs, poison: Poison) -> Self {
        let sequences = &problem.sequences;
        let (entries, slots, layout) = match cache {
            Cache::Contiguous { spare } => {
                let capacity = sequences.iter().map(|s| s.kv).max().unwrap_or(0) as usize + spare as usize;
                (sequences.len(), capacity, Layout::Contiguous { capacity })
            }
            Cache::Paged { page, spare, shuffle, recycled } => {
                let used: u32 = sequences.iter().map(|s| s.kv.div_ceil(page)).sum();
                // At least one page stays dead: shorter block table rows are filled up with it, and reading it shows.
                let count = used + spare.max(1);
                let mut ids: Vec<u32> = (0..count).collect();
                permute(&mut ids, shuffle);
                let dead = ids.pop().expect("a spare page");
                let owned = vec![Vec::new(); sequences.len()];
                let page = page as usize;
                let pages = Pages { page, free: ids.into(), owned, recycled, dead, ahead: spare > 0 };
                (count as usize, page, Layout::Paged(pages))
            }
        };
        let dtype = problem.kv_dtype();
        let dead = poison.bits(dtype);
        let heads = problem.kv_heads();
        KvCache {
            inputs,
            k: Tensor::filled(dtype, &[entries, slots, heads, problem.d_qk as usize], dead),
            v: Tensor::filled(dtype, &[entries, slots, heads, problem.d_v as usize], dead),
            dead,
            layout,
            filled: vec![0; sequences.len()],
        }
    }

    /// Writes the keys of positions up to `kv`.
    pub(super) fn fill(&mut self, sequence: usize, kv: u32) {
        let [_, k_stride, v_stride] = strides(self.inputs);
        for position in self.filled[sequence]..kv {
            let at = self.slot(sequence, position as usize);
            let from = self.inputs.kv_start[sequence] + position as usize;
            copy_rows(&self.inputs.k, from, 1, k_stride, &mut self.k, at);
            copy_rows(&self.inputs.v, from, 1, v_stride, &mut self.v, at);
        }
        self.filled[sequence] = self.filled[sequence].max(kv);
    }

    /// The slot of a position, taking a page from the free list when the position starts a new one.
    fn slot(&mut self, sequence: usize, position: usize) -> usize {
        match &mut self.layout {
            Layout::Contiguous { capacity } => sequence * *capacity + position,
            Layout::Paged(pages) => {
                let n = position / pages.page;
                if n == pages.owned[sequence].len() {
                    // The pool holds enough pages for every sequence at its full length.
                    let page = pages.free.pop_front().expect("a free page");
                    pages.owned[sequence].push(page);
                }
                pages.owned[sequence][n] as usize * pages.page + position % pages.page
            }
        }
    }

    /// Rolls a sequence back to its first `kv` keys: the slots of rejected drafts are dead.
    pub(super) fn roll_back(&mut self, sequence: usize, kv: u32) {
        let (k_stride, v_stride) = (self.inputs.k.stride(), self.inputs.v.stride());
        for position in kv..self.filled[sequence] {
            let at = self.slot(sequence, position as usize);
            self.k.bits[at * k_stride..(at + 1) * k_stride].fill(self.dead);
            self.v.bits[at * v_stride..(at + 1) * v_stride].fill(self.dead);
        }
        self.filled[sequence] = self.filled[sequence].min(kv);
    }

    /// Takes a sequence's slots away: its request has finished or was preempted.
    pub(super) fn release(&mut self, sequence: usize) {
        let filled = std::mem::take(&mut self.filled[sequence]) as usize;
        let (k_stride, v_stride) = (self.inputs.k.stride(), self.inputs.v.stride());
        let (k, v, dead) = (&mut self.k, &mut self.v, self.dead);
        let mut kill = |first: usize, slots: usize| {
            k.bits[first * k_stride..(first + slots) * k_stride].fill(dead);
            v.bits[first * v_stride..(first + slots) * v_stride].fill(dead);
        };
        match &mut self.layout {
            Layout::Contiguous { capacity } => kill(sequence * *capacity, filled),
            Layout::Paged(pages) => {
                for page in std::mem::take(&mut pages.owned[sequence]) {
                    if pages.recycled {
                        pages.free.push_front(page);
                    } else {
                        kill(page as usize * pages.page, pages.page);
                        pages.free.push_back(page);
                    }
                }
            }
        }
    }

    /// Block table rows for a batch of sequences (`None` is a bucket's empty entry), and the width of the table. `None` for a
    /// contiguous cache.
    pub(super) fn block_table(&self, batch: &[Option<usize>]) -> Option<(Vec<u32>, usize)> {
        let Layout::Paged(pages) = &self.layout else { return None };
        let owned = |entry: &Option<usize>| entry.map_or(&[][..], |sequence| &pages.owned[sequence]);
        let width = batch.iter().map(|entry| owned(entry).len()).max().unwrap_or(0) + usize::from(pages.ahead);
        let mut table = Vec::with_capacity(batch.len() * width);
        for entry in batch {
            let row = owned(entry);
            table.extend_from_slice(row);
            table.extend(std::iter::repeat_n(pages.dead, width - row.len()));
        }
        Some((table, width))
    }
}

/// Fisher-Yates by a SplitMix64 stream; seed 0 leaves the order as it is.
fn permute(ids: &mut [u32], seed: u64) {
    if seed == 0 {
        return;
    }
    for n in (1..ids.len()).rev() {
        ids.swap(n, (mix(seed, n as u64) % (n as u64 + 1)) as usize);
    }
}
