//! One attention problem with packed data, laid out in every call form.

use lastbit::number::Dtype;
use lastbit::subject::attention::kernel::{
    AttentionKernel, Attributes, BlockTable, Call, DenseCall, KernelError, KvScales, Outputs, PagedCall, VarlenCall,
};
use lastbit::subject::attention::recipe::Recipe;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::reference::trace::Trace;
use lastbit::subject::attention::{Anchor, ContextParallel, Mask, Side};
use lastbit::tensor::Tensor;

/// A pattern that no result has.
const CANARY: u32 = 0x7fa5_5a5a;

/// A problem and its packed data.
#[derive(Clone, Debug)]
pub struct Setup {
    /// `(q, kv)` of each sequence.
    pub sequences: Vec<(u32, u32)>,
    pub kv_heads: usize,
    pub group: usize,
    pub d_qk: usize,
    pub d_v: usize,
    pub scale: f32,
    pub mask: Mask,
    pub softcap: Option<f32>,
    pub sinks: Option<Vec<f32>>,
    pub slopes: Option<Vec<f32>>,
    pub block_q: usize,
    pub context: Option<ContextParallel>,
    pub dtype: Dtype,
    /// Keys and values in this 8-bit format, with the scales of both.
    pub fp8: Option<(Dtype, Vec<f32>, Vec<f32>)>,
    pub out: Dtype,
    /// `[total_q, heads, d_qk]`, `[total_kv, kv_heads, d_qk]`, `[total_kv, kv_heads, d_v]`.
    pub q: Vec<f32>,
    pub k: Vec<f32>,
    pub v: Vec<f32>,
}

/// One head, one lane, f32, zeros for scores; `v` as given.
impl Default for Setup {
    fn default() -> Self {
        Setup {
            sequences: vec![],
            kv_heads: 1,
            group: 1,
            d_qk: 1,
            d_v: 1,
            scale: 1.0,
            mask: Mask::default(),
            softcap: None,
            sinks: None,
            slopes: None,
            block_q: 1,
            context: None,
            dtype: Dtype::F32,
            fp8: None,
            out: Dtype::F32,
            q: vec![],
            k: vec![],
            v: vec![],
        }
    }
}

/// Results for the packed rows: `o` patterns `[rows, heads * d_v]` and `lse` patterns `[rows, heads]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    pub o: Vec<Vec<u32>>,
    pub lse: Vec<Vec<u32>>,
}

impl Results {
    pub fn value(&self, row: usize, lane: usize) -> f32 {
        f32::from_bits(self.o[row][lane])
    }

    pub fn lse(&self, row: usize, head: usize) -> f32 {
        f32::from_bits(self.lse[row][head])
    }
}

/// Rows `rows` of sequence `sequence`, with its keys up to `kv`, `prefix` of them from the cache.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub sequence: usize,
    pub first: u32,
    pub rows: u32,
    pub kv: u32,
    pub prefix: u32,
}

pub fn causal() -> Mask {
    Mask { causal: Some(Anchor::BottomRight), ..Mask::default() }
}

impl Setup {
    /// A single sequence with zero queries and keys and these values (`d_v` lanes each).
    pub fn zeros(q: u32, kv: u32, d_v: usize, v: &[f32]) -> Setup {
        assert_eq!(v.len(), kv as usize * d_v);
        Setup {
            sequences: vec![(q, kv)],
            d_v,
            q: vec![0.0; q as usize],
            k: vec![0.0; kv as usize],
            v: v.to_vec(),
            ..Setup::default()
        }
    }

    pub fn heads(&self) -> usize {
        self.kv_heads * self.group
    }

    pub fn attributes(&self) -> Attributes<'_> {
        Attributes {
            q_heads: self.heads(),
            kv_heads: self.kv_heads,
            d_qk: self.d_qk,
            d_v: self.d_v,
            softmax_scale: self.scale,
            mask: self.mask,
            softcap: self.softcap,
            sinks: self.sinks.as_deref(),
            alibi_slopes: self.slopes.as_deref(),
            block_q: self.block_q,
            kv_scales: self.fp8.as_ref().map(|(_, k, v)| KvScales { k, v }),
            context: self.context,
            out_dtype: self.out,
            knobs: &[],
        }
    }

    fn offsets(&self, pick: impl Fn(&(u32, u32)) -> u32) -> Vec<u32> {
        let mut offsets = vec![0];
        for sequence in &self.sequences {
            offsets.push(offsets[offsets.len() - 1] + pick(sequence));
        }
        offsets
    }

    fn tensor(&self, data: &[f32], dims: &[usize]) -> Tensor {
        tensor(self.dtype, data, dims)
    }

    fn kv_tensor(&self, data: &[f32], dims: &[usize]) -> Tensor {
        tensor(self.fp8.as_ref().map_or(self.dtype, |it| it.0), data, dims)
    }
}

fn tensor(dtype: Dtype, data: &[f32], dims: &[usize]) -> Tensor {
    let bits = data.iter().map(|&x| dtype.round_f32(x)).collect();
    let tensor = Tensor { dtype, dims: dims.to_vec(), bits };
    assert_eq!(dims.iter().product::<usize>(), tensor.bits.len());
    tensor
}

impl Setup {
    fn packed(&self) -> (Tensor, Tensor, Tensor) {
        let (rows, keys) = (self.offsets(|s| s.0), self.offsets(|s| s.1));
        let (rows, keys) = (rows[rows.len() - 1] as usize, keys[keys.len() - 1] as usize);
        (
            self.tensor(&self.q, &[rows, self.heads(), self.d_qk]),
            self.kv_tensor(&self.k, &[keys, self.kv_heads, self.d_qk]),
            self.kv_tensor(&self.v, &[keys, self.kv_heads, self.d_v]),
        )
    }

    fn outputs(&self, dims: &[usize]) -> (Tensor, Tensor) {
        let o = [dims, &[self.heads(), self.d_v]].concat();
        let lse = [dims, &[self.heads()]].concat();
        (Tensor::filled(self.out, &o, CANARY), Tensor::filled(Dtype::F32, &lse, CANARY))
    }

    fn rows(&self, o: &Tensor, lse: &Tensor, rows: impl IntoIterator<Item = usize>) -> Results {
        let (d, h) = (self.heads() * self.d_v, self.heads());
        let mut results = Results { o: vec![], lse: vec![] };
        for row in rows {
            results.o.push(o.bits[row * d..(row + 1) * d].to_vec());
            results.lse.push(lse.bits[row * h..(row + 1) * h].to_vec());
        }
        assert!(results.o.iter().chain(&results.lse).flatten().all(|&bits| bits != CANARY), "a slot was not written");
        results
    }

    /// The whole batch, packed.
    pub fn varlen(&self, kernel: &Reference) -> Results {
        self.try_varlen(kernel).unwrap()
    }

    pub fn try_varlen(&self, kernel: &Reference) -> Result<Results, KernelError> {
        self.with_varlen(|call| {
            let rows = call.q.dims[0];
            let (mut o, mut lse) = self.outputs(&[rows]);
            kernel.varlen(call, Outputs { o: &mut o, lse: &mut lse })?;
            Ok(self.rows(&o, &lse, 0..rows))
        })
    }

    pub fn with_varlen<T>(&self, work: impl FnOnce(&VarlenCall<'_>) -> T) -> T {
        let (q, k, v) = self.packed();
        let attributes = self.attributes();
        let (cu_q, cu_k) = (self.offsets(|s| s.0), self.offsets(|s| s.1));
        let call = VarlenCall { attributes: &attributes, q: &q, k: &k, v: &v, cu_seqlens_q: &cu_q, cu_seqlens_k: &cu_k };
        work(&call)
    }

    pub fn trace(&self, kernel: &Reference, row: usize, head: usize) -> Trace {
        self.with_varlen(|call| kernel.trace(Call::Varlen(call), row, head)).unwrap()
    }

    pub fn recipe(&self, kernel: &Reference, row: usize) -> Recipe {
        self.with_varlen(|call| kernel.recipe(Call::Varlen(call), row)).unwrap()
    }

    /// The whole batch, padded by `pad` slots; dead slots hold NaN. With the recipe of each row.
    pub fn dense(&self, kernel: &Reference, side: Side, pad: usize) -> (Results, Vec<Recipe>) {
        let batch = self.sequences.len();
        let longest = |pick: fn(&(u32, u32)) -> u32| self.sequences.iter().map(pick).max().unwrap_or(0) as usize;
        let (seq_q, seq_kv) = (longest(|s| s.0) + pad, longest(|s| s.1) + pad);
        let start = |slots: usize, n: u32| if side == Side::Left { slots - n as usize } else { 0 };
        let spread = |data: &[f32], offsets: &[u32], slots: usize, stride: usize| {
            let mut out = vec![f32::NAN; batch * slots * stride];
            for b in 0..batch {
                let (from, to) = (offsets[b] as usize, offsets[b + 1] as usize);
                let at = (b * slots + start(slots, (to - from) as u32)) * stride;
                out[at..at + (to - from) * stride].copy_from_slice(&data[from * stride..to * stride]);
            }
            out
        };
        let (cu_q, cu_k) = (self.offsets(|s| s.0), self.offsets(|s| s.1));
        let (h, g) = (self.heads(), self.kv_heads);
        let q = self.tensor(&spread(&self.q, &cu_q, seq_q, h * self.d_qk), &[batch, seq_q, h, self.d_qk]);
        let k = self.kv_tensor(&spread(&self.k, &cu_k, seq_kv, g * self.d_qk), &[batch, seq_kv, g, self.d_qk]);
        let v = self.kv_tensor(&spread(&self.v, &cu_k, seq_kv, g * self.d_v), &[batch, seq_kv, g, self.d_v]);
        let (lengths_q, lengths_kv): (Vec<u32>, Vec<u32>) = self.sequences.iter().copied().unzip();
        let attributes = self.attributes();
        let call = DenseCall {
            attributes: &attributes,
            q: &q,
            k: &k,
            v: &v,
            padding: side,
            lengths_q: &lengths_q,
            lengths_kv: &lengths_kv,
        };
        let (mut o, mut lse) = self.outputs(&[batch, seq_q]);
        kernel.dense(&call, Outputs { o: &mut o, lse: &mut lse }).unwrap();
        let rows: Vec<usize> = (0..batch)
            .flat_map(|b| {
                let first = b * seq_q + start(seq_q, lengths_q[b]);
                first..first + lengths_q[b] as usize
            })
            .collect();
        let written = lse.bits.iter().filter(|&&bits| bits != CANARY).count();
        assert_eq!(written, rows.len() * h, "dead rows must stay untouched");
        let recipes = rows.iter().map(|&row| kernel.recipe(Call::Dense(&call), row).unwrap()).collect();
        (self.rows(&o, &lse, rows), recipes)
    }

    /// One engine step of one sequence over shuffled pages of `page` slots (0: a contiguous cache); dead slots hold NaN.
    pub fn paged(&self, kernel: &Reference, step: Step, page: usize) -> (Results, Vec<Recipe>) {
        let (cu_q, cu_k) = (self.offsets(|s| s.0), self.offsets(|s| s.1));
        let (h, g) = (self.heads(), self.kv_heads);
        let size = if page == 0 { step.kv as usize + 3 } else { page };
        let used = (step.kv as usize).div_ceil(size);
        // One more page than needed, in descending order behind a spare page 0.
        let table: Vec<u32> = (0..=used).map(|n| (used + 1 - n) as u32).collect();
        let outer = used + 2;
        let spread = |data: &[f32], stride: usize| {
            let mut out = vec![f32::NAN; outer * size * stride];
            for key in 0..step.kv as usize {
                let at = (table[key / size] as usize * size + key % size) * stride;
                let from = (cu_k[step.sequence] as usize + key) * stride;
                out[at..at + stride].copy_from_slice(&data[from..from + stride]);
            }
            out
        };
        let k = self.kv_tensor(&spread(&self.k, g * self.d_qk), &[outer, size, g, self.d_qk]);
        let v = self.kv_tensor(&spread(&self.v, g * self.d_v), &[outer, size, g, self.d_v]);
        let stride = h * self.d_qk;
        let first = (cu_q[step.sequence] + step.first) as usize * stride;
        let q = self.tensor(&self.q[first..first + step.rows as usize * stride], &[step.rows as usize, h, self.d_qk]);
        let attributes = self.attributes();
        // A bucket-padding entry without rows goes first.
        let pages = [vec![0; table.len()], table.clone()].concat();
        let rows = [0, table[0]];
        let call = PagedCall {
            attributes: &attributes,
            q: &q,
            k_cache: &k,
            v_cache: &v,
            block_table: (page > 0).then_some(BlockTable { pages: &pages, width: table.len() }),
            cache_rows: if page > 0 { &[] } else { &rows },
            cache_seqlens: &[0, step.kv],
            cu_seqlens_q: &[0, 0, step.rows],
            prefix_lens: &[0, step.prefix],
        };
        let (mut o, mut lse) = self.outputs(&[step.rows as usize]);
        kernel.paged(&call, Outputs { o: &mut o, lse: &mut lse }).unwrap();
        let recipes = (0..step.rows as usize).map(|row| kernel.recipe(Call::Paged(&call), row).unwrap()).collect();
        (self.rows(&o, &lse, 0..step.rows as usize), recipes)
    }
}
