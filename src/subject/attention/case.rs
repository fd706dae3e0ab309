//! The case: everything that fixes one test.

use super::{InferPlan, Mask, TrainPlan};
use crate::number::Dtype;
use std::ops::Range;

/// One sequence of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence {
    /// Names the sequence's data, so that removing another sequence leaves its values as they are. Unique in a case.
    pub id: u32,
    /// New rows.
    pub q: u32,
    /// Positions in all, the new ones included. May be below `q` (the first rows are then empty) and 0.
    pub kv: u32,
}

/// KV in an 8-bit format: what is stored times a scale is meant. Both paths store it so.
#[derive(Clone, Debug, PartialEq)]
pub struct Fp8Kv {
    /// E4M3 or E5M2.
    pub dtype: Dtype,
    /// What stored keys are multiplied with: one for the tensor, or one for each KV head; finite and positive.
    pub k_scales: Vec<f32>,
    /// What stored values are multiplied with, likewise.
    pub v_scales: Vec<f32>,
}

/// What is computed: `o = softmax(softcap(scale * q.k) + bias) v` over the valid keys, and `lse`.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The batch; may be empty.
    pub sequences: Vec<Sequence>,
    /// Labels of the KV heads (they name data, as sequence ids do); at least one, unique.
    pub kv_head_ids: Vec<u32>,
    /// Labels of the query heads inside a group; query head `h` is KV head `h / group_ids.len()`. At least one, unique.
    pub group_ids: Vec<u32>,
    /// Head dim of queries and keys.
    pub d_qk: u32,
    /// Head dim of values and outputs.
    pub d_v: u32,
    /// Valid keys.
    pub mask: Mask,
    /// `cap * tanh(score / cap)`, before the bias.
    pub softcap: Option<f32>,
    /// One logit for each query head, with a zero value vector.
    pub sinks: Option<Vec<f32>>,
    /// One slope for each query head: the bias is `-slope * |p - j|`.
    pub alibi_slopes: Option<Vec<f32>>,
    /// Multiplies q.k; finite and positive.
    pub softmax_scale: f32,
    /// Storage of q, and of k and v unless they are in an 8-bit format.
    pub dtype: Dtype,
    /// Keys and values in an 8-bit format.
    pub fp8_kv: Option<Fp8Kv>,
    /// Storage of `o`; `lse` is always F32.
    pub out_dtype: Dtype,
}

impl Problem {
    /// The plainest problem over sequences of (new rows, positions), with ids from 0 on: so many KV heads and query heads of each, head
    /// dims of queries and of values; no mask, a scale of 1, outputs stored as the inputs are.
    pub fn plain(sequences: &[(u32, u32)], heads: [u32; 2], head_dims: [u32; 2], dtype: Dtype) -> Problem {
        let ([kv_heads, group], [d_qk, d_v]) = (heads, head_dims);
        Problem {
            sequences: (0..).zip(sequences).map(|(id, &(q, kv))| Sequence { id, q, kv }).collect(),
            kv_head_ids: (0..kv_heads).collect(),
            group_ids: (0..group).collect(),
            d_qk,
            d_v,
            mask: Mask::default(),
            softcap: None,
            sinks: None,
            alibi_slopes: None,
            softmax_scale: 1.0,
            dtype,
            fp8_kv: None,
            out_dtype: dtype,
        }
    }

    /// Number of query heads.
    pub fn q_heads(&self) -> usize {
        self.kv_head_ids.len() * self.group_ids.len()
    }

    /// Number of KV heads.
    pub fn kv_heads(&self) -> usize {
        self.kv_head_ids.len()
    }

    /// Storage of k and v.
    pub fn kv_dtype(&self) -> Dtype {
        self.fp8_kv.as_ref().map_or(self.dtype, |kv| kv.dtype)
    }

    /// The scales of a KV head's keys and values; 1 where KV is not in an 8-bit format.
    pub fn kv_scales(&self, kv_head: usize) -> (f32, f32) {
        let of = |scales: &[f32]| if scales.len() == 1 { scales[0] } else { scales[kv_head] };
        self.fp8_kv.as_ref().map_or((1.0, 1.0), |kv| (of(&kv.k_scales), of(&kv.v_scales)))
    }

    /// Whether the heads can be divided between so many head-parallel ranks: query heads evenly, and KV heads evenly too, or each
    /// replicated on the same number of ranks.
    pub fn divides_heads(&self, ranks: u32) -> bool {
        let ranks = ranks as usize;
        ranks >= 1
            && self.q_heads().is_multiple_of(ranks)
            && (self.kv_heads().is_multiple_of(ranks) || ranks.is_multiple_of(self.kv_heads()))
    }

    /// The query heads and the KV heads of a head-parallel rank. With more ranks than KV heads, ranks share one (KV-head
    /// replication). See [`Problem::divides_heads`].
    pub fn heads_of_rank(&self, ranks: u32, rank: u32) -> (Range<usize>, Range<usize>) {
        let (ranks, rank) = (ranks as usize, rank as usize);
        let q = self.q_heads() / ranks;
        let group = self.group_ids.len();
        let heads = rank * q..(rank + 1) * q;
        (heads.clone(), heads.start / group..heads.end.div_ceil(group))
    }

    /// The problem as a head-parallel rank sees it: its own heads, with what belongs to them. See [`Problem::heads_of_rank`].
    pub fn of_rank(&self, ranks: u32, rank: u32) -> Problem {
        let (heads, kv_heads) = self.heads_of_rank(ranks, rank);
        let group = self.group_ids.len();
        // Whole groups, or a part of one.
        let groups = match kv_heads.len() {
            1 => heads.start % group..heads.start % group + heads.len(),
            _ => 0..group,
        };
        let own = |values: &Option<Vec<f32>>| values.as_ref().map(|values| values[heads.clone()].to_vec());
        let scales = |scales: &Vec<f32>| if scales.len() == 1 { scales.clone() } else { scales[kv_heads.clone()].to_vec() };
        Problem {
            sequences: self.sequences.clone(),
            kv_head_ids: self.kv_head_ids[kv_heads.clone()].to_vec(),
            group_ids: self.group_ids[groups].to_vec(),
            sinks: own(&self.sinks),
            alibi_slopes: own(&self.alibi_slopes),
            fp8_kv: self.fp8_kv.as_ref().map(|kv| Fp8Kv {
                dtype: kv.dtype,
                k_scales: scales(&kv.k_scales),
                v_scales: scales(&kv.v_scales),
            }),
            ..*self
        }
    }

    /// New rows of all sequences.
    pub fn total_q(&self) -> usize {
        self.sequences.iter().map(|s| s.q as usize).sum()
    }

    /// Positions of all sequences.
    pub fn total_kv(&self) -> usize {
        self.sequences.iter().map(|s| s.kv as usize).sum()
    }
}

/// A data regime: what the drawn values look like. Each is there because a public bug needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Regime {
    /// About N(0, 1).
    Normal,
    /// All keys of a head alike: equal scores.
    Equal,
    /// One key's score above the rest by about `gap`, carried by head-dim lane `lane % d_qk`.
    Dominant {
        /// Distance in natural units.
        gap: f32,
        /// Lane that carries it.
        lane: u32,
    },
    /// Every score near `level`, far below zero.
    Deep {
        /// Negative, e.g. -1e3 to -3e38.
        level: f32,
    },
    /// Dot products and value sums at the edge of f16.
    Overflow,
    /// Values below the least normal number of the storage format.
    Subnormal,
    /// A handful of small exact values: ties.
    Quantised,
    /// One peak over a long flat tail.
    Tail,
    /// One key's score about 88 above the rest, and its value zero: the output is made of weights at the end of f32.
    ZeroPeak,
    /// Scores that grow by `step` from position to position: every block moves the running maximum.
    Rising {
        /// Natural units, above 0.
        step: f32,
    },
    /// All significand bits in use, over several binades.
    Wide,
    /// V is the identity (row j has a one in lane `j % d_v`): the output is the probability row.
    OnehotV,
    /// V is one constant for each KV head: the output is the probability mass.
    ConstantV,
    /// Pairs of keys with equal K and opposite large V inside spans of `span` positions, small values elsewhere.
    Mirror {
        /// Positions in a span, at least 2.
        span: u32,
        /// Spans start at positions congruent to this.
        phase: u32,
    },
}

/// Literal patterns, after shrinking; packed over the sequences in problem order, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// `[total_q, q_heads, d_qk]`.
    pub q: Vec<u32>,
    /// `[total_kv, kv_heads, d_qk]`.
    pub k: Vec<u32>,
    /// `[total_kv, kv_heads, d_v]`.
    pub v: Vec<u32>,
}

/// Where q, k and v come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Every value a pure function of (seed, tensor, sequence id, position, head label, lane).
    Drawn {
        /// Data seed.
        seed: u64,
        /// What the values look like.
        regime: Regime,
    },
    /// Bits in the file.
    Literal(Literal),
    /// Tensors from a safetensors file, found by digest; sequence ids name its sequences, head labels its heads.
    Captured {
        /// SHA-256 of the file, lower-case hex.
        sha256: String,
    },
}

/// Everything that fixes one test but the kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What is computed.
    pub problem: Problem,
    /// How the training path lays it out.
    pub train: TrainPlan,
    /// How the inference path schedules it.
    pub infer: InferPlan,
    /// Its values.
    pub data: Data,
}

impl Case {
    /// The plainest plans for a problem: [`TrainPlan::varlen`] and [`InferPlan::one_step`].
    pub fn plain(problem: Problem, data: Data) -> Case {
        let train = TrainPlan::varlen(problem.sequences.len());
        let infer = InferPlan::one_step(problem.sequences.iter().map(|sequence| sequence.q));
        Case { problem, train, infer, data }
    }
}
