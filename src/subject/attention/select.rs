//! Parts of a case: fewer sequences, rows, keys, heads or lanes, with plans and literal data kept consistent.
//!
//! Shrinking and the metamorphic relations are made of this one operation.

use super::{Anchor, Case, Data, Literal, Problem, Sequence};
use std::ops::Range;

/// What is kept of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Index into `Problem::sequences`.
    pub sequence: usize,
    /// Rows kept.
    pub q: Range<u32>,
    /// Keys kept.
    pub kv: Range<u32>,
    /// One key inside the range that is not kept; those after it move up by one position.
    pub hole: Option<u32>,
}

impl Keep {
    /// A range of rows and a range of keys.
    pub fn ranges(sequence: usize, q: Range<u32>, kv: Range<u32>) -> Self {
        Keep { sequence, q, kv, hole: None }
    }

    fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.kv.clone().filter(|key| Some(*key) != self.hole)
    }
}

/// What is kept of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Sequences, in their new order.
    pub sequences: Vec<Keep>,
    /// Indices into `kv_head_ids`.
    pub kv_heads: Vec<usize>,
    /// Indices into `group_ids`.
    pub groups: Vec<usize>,
    /// Leading lanes of q and k.
    pub d_qk: u32,
    /// Leading lanes of v.
    pub d_v: u32,
}

impl Selection {
    /// Everything.
    pub fn all(problem: &Problem) -> Self {
        Selection {
            sequences: (0..problem.sequences.len()).map(|n| keep_all(problem, n)).collect(),
            kv_heads: (0..problem.kv_head_ids.len()).collect(),
            groups: (0..problem.group_ids.len()).collect(),
            d_qk: problem.d_qk,
            d_v: problem.d_v,
        }
    }

    /// Some sequences, whole.
    pub fn sequences(problem: &Problem, which: impl IntoIterator<Item = usize>) -> Self {
        Selection { sequences: which.into_iter().map(|n| keep_all(problem, n)).collect(), ..Selection::all(problem) }
    }

    /// The case that is left. Drawn data is addressed by sequence id, position, head label and lane, so what is kept at its old
    /// position keeps its values; literal data is cut.
    pub fn apply(&self, case: &Case) -> Case {
        let old = &case.problem;
        let mut problem = old.clone();
        problem.sequences = self
            .sequences
            .iter()
            .map(|keep| Sequence {
                id: old.sequences[keep.sequence].id,
                q: keep.q.end - keep.q.start,
                kv: keep.keys().count() as u32,
            })
            .collect();
        problem.kv_head_ids = self.kv_heads.iter().map(|&n| old.kv_head_ids[n]).collect();
        problem.group_ids = self.groups.iter().map(|&n| old.group_ids[n]).collect();
        problem.d_qk = self.d_qk;
        problem.d_v = self.d_v;
        let heads = self.q_heads(old);
        let pick = |values: &Option<Vec<f32>>| values.as_ref().map(|all| heads.iter().map(|&h| all[h]).collect());
        problem.sinks = pick(&old.sinks);
        problem.alibi_slopes = pick(&old.alibi_slopes);
        if let Some(kv) = &mut problem.fp8_kv {
            for scales in [&mut kv.k_scales, &mut kv.v_scales] {
                if scales.len() > 1 {
                    *scales = self.kv_heads.iter().map(|&n| scales[n]).collect();
                }
            }
        }
        let data = match &case.data {
            Data::Literal(literal) => Data::Literal(self.cut(old, literal)),
            other => other.clone(),
        };
        let mut train = case.train.clone();
        let mut infer = case.infer.clone();
        train.order = self.renumber(&case.train.order);
        infer.order = self.renumber(&case.infer.order);
        // Fewer heads may not divide between as many ranks.
        for ranks in [&mut train.head_ranks, &mut infer.head_ranks] {
            if !problem.divides_heads(*ranks) {
                *ranks = 1;
            }
        }
        infer.requests = self.sequences.iter().map(|keep| case.infer.requests[keep.sequence].clone()).collect();
        let mut case = Case { problem, train, infer, data };
        fit_plans(&mut case);
        case
    }

    fn q_heads(&self, old: &Problem) -> Vec<usize> {
        let group = old.group_ids.len();
        self.kv_heads.iter().flat_map(|&kv| self.groups.iter().map(move |&g| kv * group + g)).collect()
    }

    /// The old order, restricted to what is kept.
    fn renumber(&self, order: &[u32]) -> Vec<u32> {
        let new_index = |old: u32| self.sequences.iter().position(|keep| keep.sequence == old as usize);
        order.iter().filter_map(|&old| new_index(old)).map(|n| n as u32).collect()
    }

    fn cut(&self, old: &Problem, literal: &Literal) -> Literal {
        let heads = self.q_heads(old);
        let starts = |length: fn(&Sequence) -> u32| {
            let mut at = 0;
            let mut starts = Vec::new();
            for sequence in &old.sequences {
                starts.push(at);
                at += length(sequence) as usize;
            }
            starts
        };
        let (q_start, kv_start) = (starts(|s| s.q), starts(|s| s.kv));
        let take = |bits: &[u32], rows: &[usize], all: usize, kept: &[usize], width: usize, lanes: usize| {
            let mut out = Vec::with_capacity(rows.len() * kept.len() * lanes);
            for &row in rows {
                for &head in kept {
                    let at = (row * all + head) * width;
                    out.extend_from_slice(&bits[at..at + lanes]);
                }
            }
            out
        };
        let kept = |n: usize| &self.sequences[n];
        let q_rows: Vec<usize> = (0..self.sequences.len())
            .flat_map(|n| kept(n).q.clone().map(move |row| (n, row)))
            .map(|(n, row)| q_start[kept(n).sequence] + row as usize)
            .collect();
        let kv_rows: Vec<usize> = (0..self.sequences.len())
            .flat_map(|n| kept(n).keys().map(move |key| (n, key)))
            .map(|(n, key)| kv_start[kept(n).sequence] + key as usize)
            .collect();
        let (d_qk, d_v) = (old.d_qk as usize, old.d_v as usize);
        Literal {
            q: take(&literal.q, &q_rows, old.q_heads(), &heads, d_qk, self.d_qk as usize),
            k: take(&literal.k, &kv_rows, old.kv_heads(), &self.kv_heads, d_qk, self.d_qk as usize),
            v: take(&literal.v, &kv_rows, old.kv_heads(), &self.kv_heads, d_v, self.d_v as usize),
        }
    }
}

fn keep_all(problem: &Problem, n: usize) -> Keep {
    let sequence = problem.sequences[n];
    Keep::ranges(n, 0..sequence.q, 0..sequence.kv)
}

/// Cuts the inference plan back to what the problem's lengths and mask allow. Steps larger than a sequence become the sequence.
pub fn fit_plans(case: &mut Case) {
    let stepwise = case.problem.mask.causal == Some(Anchor::BottomRight);
    for (sequence, request) in case.problem.sequences.iter().zip(&mut case.infer.requests) {
        if !stepwise {
            request.hit = 0;
            request.chunks.clear();
            request.then = sequence.q.max(1);
            request.reject = 0;
            request.preempt = None;
            continue;
        }
        request.hit = request.hit.min(sequence.q.saturating_sub(1));
        request.then = request.then.min(sequence.q.max(1));
        request.reject = request.reject.min(request.then - 1);
        let mut left = sequence.q - request.hit;
        request.chunks.retain_mut(|chunk| {
            *chunk = (*chunk).min(left);
            left -= *chunk;
            *chunk > 0
        });
    }
    if !stepwise {
        case.infer.budget = None;
    }
}
