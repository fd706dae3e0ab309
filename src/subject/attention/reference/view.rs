//! The three call forms as one: sequences with rows in `q` and keys in slots.

use super::planted::Operand;
use super::sum::{ABREAST, Lane};
use crate::number::Dtype;
use crate::source::mix;
use crate::subject::attention::kernel::{Attributes, Call, DenseCall, KernelError, PagedCall, VarlenCall};
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::recipe::{CallFacts, StepFacts};
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::ops::Range;

/// Where the keys of a sequence stand in the key tensor, counted in slots of `[kv_heads, d]`.
#[derive(Clone, Copy)]
pub(super) enum KeySlots<'a> {
    /// One after another.
    From(usize),
    /// In pages.
    Pages { pages: &'a [u32], size: usize },
}

/// One sequence of a call.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub q: u32,
    pub kv: u32,
    /// Index of its first row among the rows of `q`.
    pub first_row: usize,
    /// Index of its first row in `lse`: the same.
    pub first_lse: usize,
    pub slots: KeySlots<'a>,
    pub buffer_start: u32,
    pub prefix: u32,
}

/// A call of any form.
pub(super) struct View<'a> {
    pub attributes: Cow<'a, Attributes<'a>>,
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub entries: Vec<Entry<'a>>,
    pub facts: CallFacts,
    /// The fault with which it is read.
    pub mutant: Option<Mutant>,
}

impl Entry<'_> {
    /// A number that is the same for one sequence and KV head from call to call, as a rule.
    pub(super) fn home(&self, kv_head: usize) -> u64 {
        let first = match self.slots {
            KeySlots::From(first) => first as u64,
            KeySlots::Pages { pages, .. } => pages.first().map_or(0, |&page| page.into()),
        };
        mix(first, kv_head as u64)
    }

    pub(super) fn facts(&self, view: &View<'_>) -> StepFacts {
        StepFacts::of(&view.attributes, view.facts, self.q, self.kv, self.buffer_start, self.prefix)
    }

    /// The slot of the first of some keys, and how many of them stand in a row from there.
    pub(super) fn run(&self, keys: Range<u32>) -> (usize, usize) {
        match self.slots {
            KeySlots::From(first) => (first + keys.start as usize, keys.len()),
            KeySlots::Pages { pages, size } => {
                let (page, at) = (keys.start as usize / size, keys.start as usize % size);
                (pages[page] as usize * size + at, keys.len().min(size - at))
            }
        }
    }
}

/// Offsets `[batch + 1]` as ranges.
fn ranges<'a>(name: &str, offsets: &'a [u32], total: usize) -> Result<impl Iterator<Item = Range<usize>> + 'a, KernelError> {
    let ordered = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    if !ordered || offsets.first().is_some_and(|&first| first != 0) || offsets.last().is_some_and(|&last| last as usize > total) {
        return Err(KernelError::Failed(format!("{name} {offsets:?} are not ascending offsets into {total} rows")));
    }
    Ok(offsets.windows(2).map(|pair| pair[0] as usize..pair[1] as usize))
}

fn mismatch(what: &str, tensor: &Tensor, heads: usize, d: usize) -> Result<(), KernelError> {
    let dims = &tensor.dims;
    if dims.len() >= 3 && dims[dims.len() - 2..] == [heads, d] && dims.iter().product::<usize>() == tensor.bits.len() {
        return Ok(());
    }
    Err(KernelError::Failed(format!("{what} has dims {dims:?} and {} elements; expected [.., {heads}, {d}]", tensor.bits.len())))
}

impl<'a> View<'a> {
    /// # Errors
    /// [`KernelError::Failed`] when tensors, lengths and tables do not fit together.
    pub(super) fn new(call: Call<'a>) -> Result<View<'a>, KernelError> {
        let (attributes, q, k, v) = match call {
            Call::Varlen(call) => (call.attributes, call.q, call.k, call.v),
            Call::Dense(call) => (call.attributes, call.q, call.k, call.v),
            Call::Paged(call) => (call.attributes, call.q, call.k_cache, call.v_cache),
        };
        if attributes.kv_heads == 0 || !attributes.q_heads.is_multiple_of(attributes.kv_heads) {
            let reason = format!("{} query heads over {} KV heads", attributes.q_heads, attributes.kv_heads);
            return Err(KernelError::Failed(reason));
        }
        mismatch("q", q, attributes.q_heads, attributes.d_qk)?;
        mismatch("k", k, attributes.kv_heads, attributes.d_qk)?;
        mismatch("v", v, attributes.kv_heads, attributes.d_v)?;
        for (name, values) in [("sinks", attributes.sinks), ("alibi_slopes", attributes.alibi_slopes)] {
            if values.is_some_and(|values| values.len() != attributes.q_heads) {
                return Err(KernelError::Failed(format!("{name}: not one for each of {} query heads", attributes.q_heads)));
            }
        }
        if let Some(scales) = attributes.kv_scales {
            for (name, values) in [("k", scales.k), ("v", scales.v)] {
                if values.len() != 1 && values.len() != attributes.kv_heads {
                    let reason =
                        format!("{} {name} scales; one, or one for each of {} KV heads", values.len(), attributes.kv_heads);
                    return Err(KernelError::Failed(reason));
                }
            }
        }
        if let Some(ranks) = attributes.context.filter(|it| it.ranks == 0 || it.length == 0) {
            return Err(KernelError::Failed(format!("{} context ranks with chunks of {}", ranks.ranks, ranks.length)));
        }
        let entries = match call {
            Call::Varlen(call) => varlen_entries(call)?,
            Call::Dense(call) => dense_entries(call)?,
            Call::Paged(call) => paged_entries(call)?,
        };
        let page = match call {
            Call::Paged(call) if call.block_table.is_some() => Some(k.dims[1] as u32),
            _ => None,
        };
        let facts = CallFacts {
            batch: entries.len() as u32,
            batch_max_q: entries.iter().map(|it| it.q).max().unwrap_or(0),
            q_heads: attributes.q_heads as u32,
            kv_heads: attributes.kv_heads as u32,
            d_qk: attributes.d_qk as u32,
            d_v: attributes.d_v as u32,
            kv_dtype: k.dtype,
            page,
            context: attributes.context,
        };
        Ok(View { attributes: Cow::Borrowed(attributes), q, k, v, entries, facts, mutant: None })
    }

    /// The entry that holds a flattened row of `q`, and the row's number in it.
    pub(super) fn find(&self, row: usize) -> Option<(&Entry<'a>, u32)> {
        let entry = self.entries.iter().find(|entry| (entry.first_row..entry.first_row + entry.q as usize).contains(&row))?;
        Some((entry, (row - entry.first_row) as u32))
    }
}

fn varlen_entries<'a>(call: &VarlenCall<'a>) -> Result<Vec<Entry<'a>>, KernelError> {
    let rows = ranges("cu_seqlens_q", call.cu_seqlens_q, call.q.dims[0])?;
    let keys = ranges("cu_seqlens_k", call.cu_seqlens_k, call.k.dims[0].min(call.v.dims[0]))?;
    let entry = |(rows, keys): (Range<usize>, Range<usize>)| Entry {
        q: rows.len() as u32,
        kv: keys.len() as u32,
        first_row: rows.start,
        first_lse: rows.start,
        slots: KeySlots::From(keys.start),
        buffer_start: 0,
        prefix: 0,
    };
    Ok(rows.zip(keys).map(entry).collect())
}

fn dense_entries<'a>(call: &DenseCall<'a>) -> Result<Vec<Entry<'a>>, KernelError> {
    let (batch, seq_q, seq_kv) = (call.q.dims[0], call.q.dims[1], call.k.dims[1]);
    let fits = |lengths: &[u32], slots: usize| lengths.len() == batch && lengths.iter().all(|&n| n as usize <= slots);
    if !fits(call.lengths_q, seq_q) || !fits(call.lengths_kv, seq_kv) || call.k.dims[..2] != call.v.dims[..2] {
        return Err(KernelError::Failed(format!(
            "lengths {:?} and {:?} do not fit q {:?} and k {:?}",
            call.lengths_q, call.lengths_kv, call.q.dims, call.k.dims
        )));
    }
    let entry = |b: usize| {
        let (q, kv) = (call.lengths_q[b], call.lengths_kv[b]);
        let start = call.start(seq_kv, kv);
        let first_row = b * seq_q + call.start(seq_q, q);
        Entry {
            q,
            kv,
            first_row,
            first_lse: first_row,
            slots: KeySlots::From(b * seq_kv + start),
            buffer_start: start as u32,
            prefix: 0,
        }
    };
    Ok((0..batch).map(entry).collect())
}

fn paged_entries<'a>(call: &PagedCall<'a>) -> Result<Vec<Entry<'a>>, KernelError> {
    let rows = ranges("cu_seqlens_q", call.cu_seqlens_q, call.q.dims[0])?;
    let batch = call.cu_seqlens_q.len().saturating_sub(1);
    let (outer, size) = (call.k_cache.dims[0].min(call.v_cache.dims[0]), call.k_cache.dims[1]);
    if call.cache_seqlens.len() != batch
        || call.prefix_lens.len() != batch
        || size == 0 && call.block_table.is_some() && outer > 0
    {
        return Err(KernelError::Failed(format!("cache_seqlens or prefix_lens are not one for each of {batch} entries")));
    }
    rows.enumerate()
        .map(|(b, rows)| {
            let kv = call.cache_seqlens[b];
            let slots = match call.block_table {
                Some(table) => {
                    let pages = table.pages.get(b * table.width..(b + 1) * table.width).unwrap_or_default();
                    let used = (kv as usize).div_ceil(size.max(1));
                    if pages.len() < used || pages[..used].iter().any(|&page| page as usize >= outer) {
                        return Err(KernelError::Failed(format!("entry {b}: {kv} keys do not fit pages {pages:?} of {size}")));
                    }
                    KeySlots::Pages { pages, size }
                }
                None => match call.cache_rows.get(b) {
                    Some(&row) if (row as usize) < outer && kv as usize <= size => KeySlots::From(row as usize * size),
                    _ if kv == 0 => KeySlots::From(0),
                    _ => return Err(KernelError::Failed(format!("entry {b}: {kv} keys do not fit its cache row"))),
                },
            };
            let (q, prefix) = (rows.len() as u32, call.prefix_lens[b]);
            Ok(Entry { q, kv, first_row: rows.start, first_lse: rows.start, slots, buffer_start: 0, prefix })
        })
        .collect()
}

/// Decodes a run of elements exactly.
pub(super) fn decode(dtype: Dtype, bits: &[u32], out: &mut Vec<f32>) {
    match dtype {
        Dtype::F32 => out.extend(bits.iter().map(|&bits| f32::from_bits(bits))),
        Dtype::BF16 => out.extend(bits.iter().map(|&bits| f32::from_bits(bits << 16))),
        Dtype::F16 => out.extend(bits.iter().map(|&bits| Dtype::F16.to_f32(bits))),
        _ => out.extend(bits.iter().map(|&bits| dtype.to_f32(bits))),
    }
}

/// Multiplies a run of numbers, each rounded to f32.
fn scale(line: &mut [f32], by: f32) {
    if by != 1.0 {
        line.iter_mut().for_each(|x| *x *= by);
    }
}

/// Lengthens a buffer to at least this.
fn grow<T: Clone + Default>(buffer: &mut Vec<T>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, T::default());
    }
}

/// The keys and values of one sequence and KV head, decoded and multiplied with the scales that apply on load.
///
/// A decode step reads the whole cache again for one row, so what was read last time stays: a key whose patterns are still the
/// same is not decoded again. The patterns themselves are compared, so no cache can change unseen.
#[derive(Default)]
pub(super) struct Gathered {
    /// First key of the first group; a multiple of [`ABREAST`].
    first: u32,
    /// Keys whose patterns and numbers are held.
    held: Range<u32>,
    /// `[groups of eight keys, d_qk]`.
    keys: Vec<Lane>,
    /// `[keys, d_v]`.
    values: Vec<f32>,
    /// `[keys, d_qk]` and `[keys, d_v]`: what they were decoded from.
    key_bits: Vec<u32>,
    value_bits: Vec<u32>,
    dtypes: Option<[Dtype; 2]>,
    /// Of keys and values, as bits.
    scales: [u32; 2],
    mutant: Option<Mutant>,
    d_qk: usize,
    d_v: usize,
    line: Vec<f32>,
}

impl Gathered {
    /// Reads the keys of a range, and no other slot; `scales` are those of keys and values.
    pub(super) fn read(&mut self, view: &View<'_>, entry: &Entry<'_>, kv_head: usize, scales: [f32; 2], range: Range<u32>) {
        let Attributes { kv_heads, d_qk, d_v, .. } = *view.attributes;
        let first = range.start - range.start % ABREAST as u32;
        let dtypes = Some([view.k.dtype, view.v.dtype]);
        let scales = scales.map(f32::to_bits);
        let held = (self.first, self.dtypes, self.scales, self.mutant, self.d_qk, self.d_v);
        if held != (first, dtypes, scales, view.mutant, d_qk, d_v) {
            (self.first, self.dtypes, self.scales, self.mutant, self.d_qk, self.d_v) =
                (first, dtypes, scales, view.mutant, d_qk, d_v);
            self.held = range.start..range.start;
        }
        let count = (range.end - first) as usize;
        grow(&mut self.keys, count.div_ceil(ABREAST) * d_qk);
        grow(&mut self.values, count * d_v);
        grow(&mut self.key_bits, count * d_qk);
        grow(&mut self.value_bits, count * d_v);
        let mut next = range.start;
        while next < range.end {
            let (slot, count) = entry.run(next..range.end);
            let n = (next - first) as usize;
            let held = self.held.contains(&next) && next + count as u32 <= self.held.end;
            // With one KV head the run is one stretch in the cache as well as here.
            let (k, v) = (slot * d_qk..(slot + count) * d_qk, slot * d_v..(slot + count) * d_v);
            let same = held
                && kv_heads == 1
                && view.mutant.is_none()
                && view.k.bits[k] == self.key_bits[n * d_qk..(n + count) * d_qk]
                && view.v.bits[v] == self.value_bits[n * d_v..(n + count) * d_v];
            if !same {
                for i in 0..count {
                    self.read_key(view, next + i as u32, slot + i, kv_head);
                }
            }
            next += count as u32;
        }
        let touching = range.start <= self.held.end && self.held.start <= range.end;
        self.held = if touching { self.held.start.min(range.start)..self.held.end.max(range.end) } else { range };
    }

    /// Decodes one key, unless it is the one held.
    fn read_key(&mut self, view: &View<'_>, key: u32, slot: usize, kv_head: usize) {
        let (d_qk, d_v, n) = (self.d_qk, self.d_v, (key - self.first) as usize);
        let (k, v) = (view.element(slot, kv_head, d_qk), view.element(slot, kv_head, d_v));
        let (k, v) = (&view.k.bits[k..k + d_qk], &view.v.bits[v..v + d_v]);
        let (k_held, v_held) = (&mut self.key_bits[n * d_qk..(n + 1) * d_qk], &mut self.value_bits[n * d_v..(n + 1) * d_v]);
        if self.held.contains(&key) && k == k_held && v == v_held {
            return;
        }
        k_held.copy_from_slice(k);
        v_held.copy_from_slice(v);
        let [k_scale, v_scale] = self.scales.map(f32::from_bits);
        self.line.clear();
        decode(view.k.dtype, k, &mut self.line);
        view.reread(Operand::Key, &mut self.line);
        scale(&mut self.line, k_scale);
        let group = &mut self.keys[n / ABREAST * d_qk..(n / ABREAST + 1) * d_qk];
        for (lane, &x) in group.iter_mut().zip(&self.line) {
            lane[n % ABREAST] = x;
        }
        self.line.clear();
        decode(view.v.dtype, v, &mut self.line);
        view.reread(Operand::Value, &mut self.line);
        scale(&mut self.line, v_scale);
        self.values[n * d_v..(n + 1) * d_v].copy_from_slice(&self.line);
    }

    /// Groups of eight keys that cover a range: the first key of the group and its lanes.
    pub(super) fn groups(&self, range: Range<u32>) -> impl Iterator<Item = (u32, &[Lane])> {
        let groups = (range.start - self.first) as usize / ABREAST..((range.end - self.first) as usize).div_ceil(ABREAST);
        groups.map(|g| (self.first + (g * ABREAST) as u32, &self.keys[g * self.d_qk..(g + 1) * self.d_qk]))
    }

    /// `[range, d_v]`.
    pub(super) fn values(&self, range: &Range<u32>) -> &[f32] {
        let index = |key: u32| (key - self.first) as usize * self.d_v;
        &self.values[index(range.start)..index(range.end)]
    }
}
