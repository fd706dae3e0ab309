//! A slow flash kernel for one row, written for the tests of the bound and sharing nothing with the reference kernel; and the truth.

use super::super::numerics::{
    Block, Context, Descale, Exp, Finish, MaxInit, Merge, Numerics, Order, Passes, Rescale, ScaleAt, Split, Store, SumOf,
};
use super::super::plan::{ContextParallel, Shards};
use super::{Facts, RowSums, Weighting};
use crate::number::{Dtype, truncate_f64};
use core_math::{exp2f, expf, expm1, logf, tanhf};
use rug::Float;
use std::ops::Range;

/// One row's problem.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub q: Vec<f32>,
    pub k: Vec<Vec<f32>>,
    pub v: Vec<Vec<f32>>,
    /// What stored keys and values are multiplied with.
    pub kv_scales: Option<[f32; 2]>,
    pub scale: f32,
    pub softcap: Option<f32>,
    pub slope: Option<f32>,
    pub sink: Option<f32>,
    pub out: Dtype,
    /// The row is the last of its sequence.
    pub context: Option<ContextParallel>,
}

impl Row {
    pub fn d_v(&self) -> usize {
        self.v[0].len()
    }

    fn distance(&self, j: usize) -> f32 {
        (self.k.len() - 1 - j) as f32
    }

    pub fn facts(&self) -> Facts {
        let largest = |rows: &[Vec<f32>]| rows.iter().flatten().fold(0.0f32, |a, x| a.max(x.abs())) as f64;
        Facts {
            keys: self.k.len() as u32,
            slots: self.k.len() as u32,
            d_qk: self.q.len() as u32,
            scale: f64::from(self.scale),
            softcap: self.softcap.map(f64::from),
            bias: self.slope.is_some(),
            sink: self.sink.map(f64::from),
            query_max: largest(std::slice::from_ref(&self.q)),
            key_max: largest(&self.k),
            value_max: largest(&self.v),
            context: self.context,
            kv_scales: self.kv_scales.map(|scales| scales.map(f64::from)),
            out_dtype: self.out,
        }
    }
}

/// The true outputs and the sums, from MPFR at 256 bits.
pub(super) struct Truth {
    pub o: Vec<Float>,
    pub lse: Float,
    pub sums: RowSums,
}

const PREC: u32 = 256;

fn real(x: f32) -> Float {
    Float::with_val(PREC, x)
}

pub(super) fn truth(row: &Row, weightings: &[Weighting]) -> Truth {
    let mut scores = Vec::new();
    let mut magnitudes = Vec::new();
    let [k_scale, v_scale] = row.kv_scales.unwrap_or([1.0; 2]);
    for (j, k) in row.k.iter().enumerate() {
        let (mut dot, mut abs) = (real(0.0), real(0.0));
        for (&a, &b) in row.q.iter().zip(k) {
            let product = real(a) * real(b) * real(k_scale);
            abs += product.clone().abs();
            dot += product;
        }
        let mut score = dot * real(row.scale);
        if let Some(cap) = row.softcap {
            score = (score / real(cap)).tanh() * real(cap);
        }
        let bias = row.slope.map_or(real(0.0), |slope| real(slope) * real(row.distance(j)));
        magnitudes.push((abs * real(row.scale)).to_f64() + bias.to_f64().abs());
        scores.push(score - bias);
    }
    let mut max = scores[0].clone();
    for s in &scores {
        max.max_mut(s);
    }
    if let Some(sink) = row.sink {
        max.max_mut(&real(sink));
    }
    let d_v = row.d_v();
    let mut total = row.sink.map_or(real(0.0), |sink| (real(sink) - &max).exp());
    let mut o = vec![real(0.0); d_v];
    let mut sums = RowSums {
        keys: row.k.len() as u32,
        sink: row.sink.is_some(),
        max_score: max.to_f64(),
        magnitude_max: 0.0,
        score_magnitude_max: magnitudes.iter().copied().fold(0.0, f64::max),
        weight: 0.0,
        weight_error: vec![0.0; weightings.len()],
        value_abs: vec![0.0; d_v],
        value_error: vec![vec![0.0; d_v]; weightings.len()],
        distance_max: 0.0,
    };
    for (j, s) in scores.iter().enumerate() {
        let gap = Float::with_val(PREC, s - &max);
        let g = magnitudes[j] + gap.to_f64().abs();
        let weight = gap.clone().exp();
        let w = weight.to_f64();
        sums.magnitude_max = sums.magnitude_max.max(g);
        if w > 0.0 {
            sums.distance_max = sums.distance_max.max(gap.to_f64().abs());
        }
        for (i, weighting) in weightings.iter().enumerate() {
            let delta = weighting.per_magnitude * g + weighting.constant;
            // w expm1(delta) without 0 * inf.
            let error = if delta < 30.0 { w * expm1(delta) } else { core_math::exp(gap.to_f64() + delta) };
            sums.weight_error[i] += error;
            for (sum, &v) in sums.value_error[i].iter_mut().zip(&row.v[j]) {
                if v != 0.0 {
                    *sum += error * f64::from(v.abs()) * f64::from(v_scale);
                }
            }
        }
        for (x, &v) in row.v[j].iter().enumerate() {
            sums.value_abs[x] += w * f64::from(v.abs()) * f64::from(v_scale);
            o[x] += real(v) * real(v_scale) * &weight;
        }
        total += weight;
    }
    sums.weight = total.to_f64();
    for lane in &mut o {
        *lane /= &total;
    }
    Truth { o, lse: max + total.ln(), sums }
}

/// Sums terms that are already rounded; every addition is rounded to f32 and to `acc`.
fn reduce(order: Order, start: f32, terms: &[f32], acc: Dtype) -> f32 {
    let add = |a: f32, b: f32| acc.squeeze(a + b);
    match order {
        Order::Sequential => terms.iter().fold(start, |a, &x| add(a, acc.squeeze(x))),
        Order::Lanes(n) => {
            let mut lanes = vec![0.0; n as usize];
            for (i, &x) in terms.iter().enumerate() {
                lanes[i % n as usize] = add(lanes[i % n as usize], acc.squeeze(x));
            }
            while lanes.len() > 1 {
                let half = lanes.len() / 2;
                lanes = (0..half).map(|i| add(lanes[i], lanes[i + half])).collect();
            }
            add(start, lanes[0])
        }
        Order::Pairwise => {
            fn tree(terms: &[f32], acc: Dtype) -> f32 {
                match terms {
                    [] => 0.0,
                    [x] => acc.squeeze(*x),
                    _ => {
                        let half = terms.len().next_power_of_two() / 2;
                        acc.squeeze(tree(&terms[..half], acc) + tree(&terms[half..], acc))
                    }
                }
            }
            add(start, tree(terms, acc))
        }
        Order::Fused(w) => terms.chunks(w as usize).fold(start, |a, group| {
            let sum = group.iter().fold(f64::from(a), |sum, &x| sum + f64::from(x));
            acc.squeeze(sum as f32)
        }),
    }
}

/// Products into a running sum.
fn multiply(order: Order, fma: bool, start: f32, a: &[f32], b: &[f32], acc: Dtype) -> f32 {
    if let Order::Fused(w) = order {
        let pairs: Vec<f64> = a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).collect();
        return pairs
            .chunks(w as usize)
            .fold(start, |sum, group| acc.squeeze(group.iter().fold(f64::from(sum), |s, x| s + x) as f32));
    }
    if fma && order == Order::Sequential {
        return a.iter().zip(b).fold(start, |sum, (&x, &y)| acc.squeeze(x.mul_add(y, sum)));
    }
    let products: Vec<f32> = a.iter().zip(b).map(|(&x, &y)| acc.squeeze(x * y)).collect();
    reduce(order, start, &products, acc)
}

/// Chebyshev interpolation of 2^f on [0, 1], as f32 coefficients.
fn polynomial(degree: usize) -> Vec<f32> {
    let nodes: Vec<Float> = (0..=degree)
        .map(|i| {
            let angle = Float::with_val(PREC, rug::float::Constant::Pi) * (2 * i + 1) / (2 * (degree + 1)) as u32;
            (angle.cos() + 1u32) / 2u32
        })
        .collect();
    let mut coefficients = vec![Float::with_val(PREC, 0); degree + 1];
    for (i, node) in nodes.iter().enumerate() {
        let mut basis = vec![Float::with_val(PREC, 1)];
        let mut divisor = Float::with_val(PREC, 1);
        for (other_i, other) in nodes.iter().enumerate() {
            if other_i != i {
                let mut next = vec![Float::with_val(PREC, 0); basis.len() + 1];
                for (power, c) in basis.iter().enumerate() {
                    next[power + 1] += c;
                    next[power] -= Float::with_val(PREC, c * other);
                }
                basis = next;
                divisor *= Float::with_val(PREC, node - other);
            }
        }
        let value = node.clone().exp2() / divisor;
        for (c, b) in coefficients.iter_mut().zip(&basis) {
            *c += Float::with_val(PREC, b * &value);
        }
    }
    coefficients.iter().map(|c| c.to_f32()).collect()
}

struct Kernel<'a> {
    n: &'a Numerics,
    /// Its keys and values are as loaded.
    row: &'a Row,
    /// The softmax scale, and what multiplies the output.
    scale: f32,
    on_output: f32,
    coefficients: Vec<f32>,
    plain: bool,
    c: f32,
}

#[derive(Clone)]
struct Partial {
    m: f32,
    l: f32,
    acc: Vec<f32>,
}

impl Kernel<'_> {
    fn exp2(&self, t: f32) -> f32 {
        if self.coefficients.is_empty() {
            return exp2f(t);
        }
        if t.is_nan() || t == f32::INFINITY {
            return t;
        }
        if t < -150.0 {
            return 0.0;
        }
        let floor = t.floor();
        let f = t - floor;
        let p = self.coefficients.iter().rev().fold(0.0f32, |sum, &c| sum * f + c);
        (f64::from(p) * 2f64.powi(floor as i32)) as f32
    }

    fn exp(&self, x: f32) -> f32 {
        if self.coefficients.is_empty() { expf(x) } else { self.exp2(x * std::f32::consts::LOG2_E) }
    }

    /// exp(a - b) of two numbers of the score's kind.
    fn weight(&self, a: f32, b: f32) -> f32 {
        if a == f32::NEG_INFINITY {
            return 0.0;
        }
        match self.n.score.scale {
            ScaleAt::FoldedLog2e if self.n.score.fma => self.exp2(a.mul_add(self.c, -(b * self.c))),
            ScaleAt::FoldedLog2e => self.exp2(a * self.c - b * self.c),
            _ => self.exp(a - b),
        }
    }

    fn natural(&self, m: f32) -> f32 {
        if self.plain && self.n.score.scale == ScaleAt::FoldedLog2e { m * self.scale } else { m }
    }

    fn score(&self, j: usize) -> f32 {
        let (s, row) = (&self.n.score, self.row);
        let on_query = s.scale == ScaleAt::OnQuery;
        let q: Vec<f32> = row.q.iter().map(|&x| if on_query { x * self.scale } else { x }).collect();
        let mut x = multiply(s.order, s.fma, 0.0, &q, &row.k[j], s.acc);
        if s.scale == ScaleAt::OnScore || (s.scale == ScaleAt::FoldedLog2e && !self.plain) {
            x *= self.scale;
        }
        if let Some(cap) = row.softcap {
            x = cap * tanhf(x / cap);
        }
        if let Some(slope) = row.slope {
            x -= slope * row.distance(j);
        }
        s.store.squeeze(x)
    }

    /// One running state over some stretches of keys, each with blocks of its own.
    fn partial(&self, stretches: &[Range<usize>]) -> Partial {
        let n = self.n;
        let mut blocks: Vec<Range<usize>> = Vec::new();
        for keys in stretches {
            let size = match n.softmax.block {
                Block::Whole => keys.len(),
                Block::Size(size) => size as usize,
                Block::Rule(_) => unreachable!("no rule is simulated"),
            };
            blocks.extend(keys.clone().step_by(size).map(|at| at..(at + size).min(keys.end)));
        }
        let scores: Vec<Vec<f32>> = blocks.iter().map(|block| block.clone().map(|j| self.score(j)).collect()).collect();
        let d_v = self.row.d_v();
        let start = match n.softmax.max_init {
            MaxInit::NegInf => f32::NEG_INFINITY,
            MaxInit::Finite(x) => x,
        };
        let mut state = Partial { m: start, l: 0.0, acc: vec![0.0; d_v] };
        let two_pass = n.softmax.passes == Passes::TwoPass;
        if two_pass {
            state.m = scores.iter().flatten().fold(start, |a, &b| a.max(b));
        }
        let mut sums = 1.0;
        if n.probs.normalised {
            for block in &scores {
                let w: Vec<f32> = block.iter().map(|&s| self.weight(s, state.m)).collect();
                state.l = self.row_sum(state.l, &w);
            }
            sums = state.l;
        }
        for (keys, block) in blocks.iter().zip(&scores) {
            let top = block.iter().fold(state.m, |a, &b| a.max(b));
            let grown = self.natural(top) - self.natural(state.m);
            let moves = match n.softmax.rescale {
                Rescale::Always => top > state.m,
                Rescale::Threshold(x) => state.m == f32::NEG_INFINITY || grown > x,
            };
            if !two_pass && moves {
                let factor = self.weight(state.m, top);
                state.l = n.rowsum.acc.squeeze(state.l * factor);
                state.acc.iter_mut().for_each(|a| *a = n.value.acc.squeeze(*a * factor));
                state.m = top;
            }
            let w: Vec<f32> = block.iter().map(|&s| self.weight(s, state.m)).collect();
            if !n.probs.normalised {
                state.l = self.row_sum(state.l, &w);
            }
            let p: Vec<f32> =
                w.iter().map(|&w| n.probs.dtype.squeeze(if n.probs.normalised { self.weigh(w, sums) } else { w })).collect();
            for x in 0..d_v {
                let v: Vec<f32> = keys.clone().map(|j| self.row.v[j][x]).collect();
                state.acc[x] = multiply(n.value.order, n.value.fma, state.acc[x], &p, &v, n.value.acc);
            }
        }
        if n.probs.normalised {
            state.acc.iter_mut().for_each(|a| *a *= sums);
        }
        state
    }

    fn row_sum(&self, start: f32, w: &[f32]) -> f32 {
        let n = self.n;
        let terms: Vec<f32> =
            w.iter().map(|&w| if n.rowsum.of == SumOf::RoundedP { n.probs.dtype.squeeze(w) } else { w }).collect();
        reduce(n.rowsum.order, start, &terms, n.rowsum.acc)
    }

    fn weigh(&self, w: f32, l: f32) -> f32 {
        match self.n.finish {
            Finish::Divide => w / l,
            Finish::Reciprocal => w * (1.0 / l),
        }
    }

    fn finish(&self, a: f32, l: f32) -> f32 {
        match self.n.finish {
            Finish::Divide => a / l * self.on_output,
            Finish::Reciprocal => a * (1.0 / l * self.on_output),
        }
    }

    fn merge(&self, a: &(Vec<f32>, f32), b: &(Vec<f32>, f32)) -> (Vec<f32>, f32) {
        let g = &self.n.grid;
        let top = a.1.max(b.1);
        let (wa, wb) = (self.exp(a.1 - top), self.exp(b.1 - top));
        let s = wa + wb;
        let o = a.0.iter().zip(&b.0).map(|(&x, &y)| g.partial_dtype.squeeze((x * wa + y * wb) / s)).collect();
        (o, g.lse_dtype.squeeze(top + logf(s)))
    }
}

/// What goes into each partial result, in the order of the merge; one of them where there are none.
fn partials(n: &Numerics, row: &Row) -> Vec<Vec<Range<usize>>> {
    let split = |keys: Range<usize>| {
        let size = match n.grid.split {
            Split::None => keys.len(),
            Split::FixedSize(size) => size as usize,
            Split::FixedCount(count) => keys.len().div_ceil(count as usize),
            Split::CacheBoundary => (keys.len() / 3).max(1),
            Split::Rule(..) => unreachable!("no rule is simulated"),
        };
        let cuts: Vec<usize> = match n.grid.split {
            Split::CacheBoundary => vec![keys.start, keys.start + size],
            _ => keys.clone().step_by(size).collect(),
        };
        let ends = cuts.iter().skip(1).copied().chain([keys.end]);
        let parts = cuts.iter().zip(ends).filter(|(start, end)| *start < end);
        parts.map(|(&start, end)| std::iter::once(start..end).collect()).collect::<Vec<Vec<_>>>()
    };
    let keys = row.k.len();
    let Some(context) = row.context.filter(|_| n.grid.context != Context::AllGather) else { return split(0..keys) };
    let (ranks, length) = (context.ranks as usize, context.length as usize);
    // Chunk, owner and keys of each chunk that has any.
    let zigzag = context.shards == Shards::Zigzag;
    let chunks = if zigzag { 2 * ranks } else { ranks };
    let owner = |chunk: usize| if zigzag && chunk >= ranks { chunks - 1 - chunk } else { chunk };
    let held: Vec<(usize, Range<usize>)> = (0..chunks)
        .map(|chunk| (owner(chunk), chunk * length..if chunk == chunks - 1 { keys } else { keys.min((chunk + 1) * length) }))
        .filter(|(_, keys)| !keys.is_empty())
        .collect();
    let home = held[held.len() - 1].0;
    let of = |rank: usize| held.iter().filter(move |(owner, _)| *owner == rank).map(|(_, keys)| keys.clone());
    let around = (0..ranks).map(|step| (home + ranks - step) % ranks);
    match n.grid.context {
        Context::RingState => vec![around.flat_map(of).collect()],
        Context::RingLse if n.grid.split == Split::None => {
            around.map(|rank| of(rank).collect::<Vec<_>>()).filter(|keys| !keys.is_empty()).collect()
        }
        Context::RingLse => around.flat_map(of).flat_map(split).collect(),
        _ => held.into_iter().flat_map(|(_, keys)| split(keys)).collect(),
    }
}

/// The output patterns and the lse.
pub(super) fn run(n: &Numerics, row: &Row) -> (Vec<u32>, f32) {
    let plain = row.softcap.is_none() && row.slope.is_none();
    let factor = if plain { f64::from(row.scale) } else { 1.0 };
    let [k_scale, v_scale] = row.kv_scales.unwrap_or([1.0; 2]);
    let folds = n.kv.descale == Descale::Folded;
    let mut loaded = row.clone();
    if !folds {
        loaded.k.iter_mut().flatten().for_each(|x| *x *= k_scale);
        loaded.v.iter_mut().flatten().for_each(|x| *x *= v_scale);
    }
    let on_scale = if folds { k_scale } else { 1.0 };
    let kernel = Kernel {
        n,
        row: &loaded,
        scale: row.scale * on_scale,
        on_output: if folds { v_scale } else { 1.0 },
        coefficients: match n.softmax.exp {
            Exp::CorrectlyRounded => Vec::new(),
            Exp::Exp2Poly(degree) => polynomial(degree as usize),
        },
        plain,
        c: (factor * std::f64::consts::LOG2_E) as f32 * if plain { on_scale } else { 1.0 },
    };
    let partials = partials(n, row);
    let ring = row.context.is_some() && n.grid.context == Context::RingLse;
    let gathers = row.context.is_some() && n.grid.context == Context::GatherPartials;
    let (o, lse);
    if n.grid.split == Split::None && !ring && !gathers {
        let mut state = kernel.partial(&partials[0]);
        let mut natural = kernel.natural(state.m);
        if let Some(sink) = row.sink {
            let top = natural.max(sink);
            let factor = kernel.exp(natural - top);
            state.l = n.rowsum.acc.squeeze(n.rowsum.acc.squeeze(state.l * factor) + kernel.exp(sink - top));
            state.acc.iter_mut().for_each(|a| *a = n.value.acc.squeeze(*a * factor));
            natural = top;
        }
        o = state.acc.iter().map(|&a| kernel.finish(a, state.l)).collect();
        lse = natural + logf(state.l);
    } else {
        let mut parts: Vec<(Vec<f32>, f32)> = Vec::new();
        for stretches in &partials {
            let state = kernel.partial(stretches);
            let o = state.acc.iter().map(|&a| n.grid.partial_dtype.squeeze(kernel.finish(a, state.l))).collect();
            parts.push((o, n.grid.lse_dtype.squeeze(kernel.natural(state.m) + logf(state.l))));
        }
        fn tree(kernel: &Kernel<'_>, parts: &[(Vec<f32>, f32)]) -> (Vec<f32>, f32) {
            if let [one] = parts {
                return one.clone();
            }
            let half = parts.len().next_power_of_two() / 2;
            kernel.merge(&tree(kernel, &parts[..half]), &tree(kernel, &parts[half..]))
        }
        let mut merged = match n.grid.merge {
            // Around a ring they are merged as they arrive.
            _ if ring => parts[1..].iter().fold(parts[0].clone(), |a, b| kernel.merge(&a, b)),
            Merge::Sequential => {
                let first = parts[0].clone();
                parts[1..].iter().fold(first, |a, b| kernel.merge(&a, b))
            }
            Merge::Tree => tree(&kernel, &parts),
        };
        if let Some(sink) = row.sink {
            merged = kernel.merge(&merged, &(vec![0.0; row.d_v()], n.grid.lse_dtype.squeeze(sink)));
        }
        (o, lse) = merged;
    }
    let store = |x: f32| match n.store {
        Store::Rne => row.out.round_f32(x),
        Store::Truncate => truncate_f64(row.out, f64::from(x)),
    };
    (o.into_iter().map(store).collect(), lse)
}
