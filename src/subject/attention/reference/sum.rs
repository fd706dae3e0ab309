//! The orders of addition: over head-dim lanes for scores, over key slots for the row sum and the product with V.
//!
//! Scores of eight keys are computed side by side, one accumulator each: the order inside a key is what counts, so the bits are
//! those of one key at a time.

use super::narrow::{self, Narrow, by_format};
use crate::subject::attention::numerics::{Order, Rowsum, Score, Value};

/// Keys whose scores are computed side by side.
pub(super) const ABREAST: usize = 8;

/// One head-dim lane of eight neighbouring keys.
pub(super) type Lane = [f32; ABREAST];

/// Buffers for the orders that need them.
#[derive(Default)]
pub(super) struct SumScratch {
    lanes: Vec<Lane>,
    rows: Vec<f32>,
    exact: Vec<f64>,
}

#[inline(always)]
fn map2(a: Lane, b: Lane, f: impl Fn(f32, f32) -> f32) -> Lane {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// `acc + x y` in the accumulator's format: product and sum rounded each, or fused.
#[inline(always)]
fn step<N: Narrow, const FMA: bool>(acc: f32, x: f32, y: f32) -> f32 {
    if FMA { N::narrow(narrow::multiply_add(x, y, acc)) } else { N::narrow(acc + N::narrow(x * y)) }
}

/// The dot products of one query with eight keys. `q`: `[d]`, `keys`: `[d]` lanes of the eight.
pub(super) fn dot(score: &Score, q: &[f32], keys: &[Lane], scratch: &mut SumScratch) -> Lane {
    by_format!(score.acc, score.fma, dot_in(score.order, q, keys, scratch))
}

fn dot_in<N: Narrow, const FMA: bool>(order: Order, q: &[f32], keys: &[Lane], scratch: &mut SumScratch) -> Lane {
    let terms = q.iter().zip(keys);
    match order {
        Order::Sequential => {
            let mut acc = [0.0; ABREAST];
            for (&q, k) in terms {
                for i in 0..ABREAST {
                    acc[i] = step::<N, FMA>(acc[i], q, k[i]);
                }
            }
            acc
        }
        Order::Lanes(n) => {
            let n = n as usize;
            let lanes = &mut scratch.lanes;
            lanes.clear();
            lanes.resize(n, [0.0; ABREAST]);
            for (q, keys) in q.chunks(n).zip(keys.chunks(n)) {
                for ((acc, &q), k) in lanes.iter_mut().zip(q).zip(keys) {
                    for i in 0..ABREAST {
                        acc[i] = step::<N, FMA>(acc[i], q, k[i]);
                    }
                }
            }
            let mut live = n;
            while live > 1 {
                live /= 2;
                for i in 0..live {
                    lanes[i] = map2(lanes[i], lanes[i + live], |a, b| N::narrow(a + b));
                }
            }
            lanes[0]
        }
        Order::Pairwise => {
            let nodes = &mut scratch.lanes;
            nodes.clear();
            nodes.extend(terms.map(|(&q, &k)| k.map(|k| N::narrow(q * k))));
            let mut width = 1;
            while width < nodes.len() {
                for i in (0..nodes.len() - width).step_by(2 * width) {
                    nodes[i] = map2(nodes[i], nodes[i + width], |a, b| N::narrow(a + b));
                }
                width *= 2;
            }
            nodes.first().copied().unwrap_or_default()
        }
        Order::Fused(w) => {
            let mut acc = [0.0f32; ABREAST];
            for (q, keys) in q.chunks(w as usize).zip(keys.chunks(w as usize)) {
                // Products of two f32 are exact in f64.
                let mut exact = acc.map(f64::from);
                for (&q, k) in q.iter().zip(keys) {
                    for i in 0..ABREAST {
                        exact[i] += f64::from(q) * f64::from(k[i]);
                    }
                }
                acc = exact.map(|x| N::narrow(x as f32));
            }
            acc
        }
    }
}

/// Adds the nodes `0..count` of a power-of-two tree over slots, node 0 standing at `slot`: `add(a, b)` adds node `b` into `a`. The sum
/// ends up in node 0.
fn reduce_by_slot(count: usize, slot: usize, mut add: impl FnMut(usize, usize)) {
    let mut level = 0;
    loop {
        // At this level the nodes are `first..=last`; each is held by its leftmost leaf that is present.
        let (first, last) = (slot >> level, (slot + count.max(1) - 1) >> level);
        if first == last {
            return;
        }
        let held = |node: usize| (node << level).saturating_sub(slot);
        let mut left = first + first % 2;
        while left < last {
            add(held(left), held(left + 1));
            left += 2;
        }
        level += 1;
    }
}

/// The sum of one block's weights. `slot` is the slot of the first.
pub(super) fn row_sum(rowsum: &Rowsum, weights: &[f32], slot: u32, scratch: &mut SumScratch) -> f32 {
    by_format!(rowsum.acc, false, row_sum_in(rowsum.order, weights, slot as usize, scratch))
}

/// `FMA` is unused: there is no product.
fn row_sum_in<N: Narrow, const FMA: bool>(order: Order, weights: &[f32], slot: usize, scratch: &mut SumScratch) -> f32 {
    match order {
        Order::Sequential => weights.iter().fold(0.0, |sum, &w| N::narrow(sum + w)),
        Order::Lanes(n) => {
            let n = n as usize;
            let lanes = &mut scratch.rows;
            lanes.clear();
            lanes.resize(n, 0.0);
            for (i, &w) in weights.iter().enumerate() {
                let lane = &mut lanes[(slot + i) % n];
                *lane = N::narrow(*lane + w);
            }
            fold_halves::<N>(lanes, 1);
            lanes[0]
        }
        Order::Pairwise => {
            let nodes = &mut scratch.rows;
            nodes.clear();
            nodes.extend_from_slice(weights);
            reduce_by_slot(nodes.len(), slot, |a, b| nodes[a] = N::narrow(nodes[a] + nodes[b]));
            nodes.first().copied().unwrap_or_default()
        }
        Order::Fused(w) => groups(weights.len(), slot, w as usize).fold(0.0f32, |sum, group| {
            let exact = weights[group].iter().fold(f64::from(sum), |exact, &w| exact + f64::from(w));
            N::narrow(exact as f32)
        }),
    }
}

/// Adds one block's `weight * v` into the accumulator. `v`: `[weights.len(), d_v]`, `acc`: `[d_v]`.
pub(super) fn weighted_values(value: &Value, weights: &[f32], v: &[f32], slot: u32, acc: &mut [f32], scratch: &mut SumScratch) {
    by_format!(value.acc, value.fma, weighted_values_in(value.order, weights, v, slot as usize, acc, scratch));
}

/// The last block's product with V, `[d_v]`, for a trace; nothing under an order that adds key by key into the accumulator.
pub(super) fn block_values<'a>(value: &Value, scratch: &'a SumScratch, d_v: usize) -> &'a [f32] {
    if value.order == Order::Sequential { &[] } else { &scratch.rows[..d_v] }
}

fn weighted_values_in<N: Narrow, const FMA: bool>(
    order: Order,
    weights: &[f32],
    v: &[f32],
    slot: usize,
    acc: &mut [f32],
    scratch: &mut SumScratch,
) {
    let d = acc.len();
    let rows = weights.iter().zip(v.chunks_exact(d.max(1)));
    match order {
        Order::Sequential => {
            rows.for_each(|(&w, row)| add_row::<N, FMA>(acc, w, row));
            return;
        }
        Order::Lanes(n) => {
            let n = n as usize;
            let lanes = &mut scratch.rows;
            lanes.clear();
            lanes.resize(n * d, 0.0);
            for (i, (&w, row)) in rows.enumerate() {
                let lane = (slot + i) % n;
                add_row::<N, FMA>(&mut lanes[lane * d..(lane + 1) * d], w, row);
            }
            fold_halves::<N>(lanes, d);
        }
        Order::Pairwise => {
            let nodes = &mut scratch.rows;
            nodes.clear();
            for (&w, row) in rows {
                nodes.extend(row.iter().map(|&v| N::narrow(w * v)));
            }
            reduce_by_slot(weights.len(), slot, |a, b| {
                let (low, high) = nodes.split_at_mut(b * d);
                for (x, &y) in low[a * d..(a + 1) * d].iter_mut().zip(&high[..d]) {
                    *x = N::narrow(*x + y);
                }
            });
        }
        Order::Fused(w) => {
            let sum = &mut scratch.rows;
            sum.clear();
            sum.resize(d, 0.0);
            for group in groups(weights.len(), slot, w as usize) {
                let exact = &mut scratch.exact;
                exact.clear();
                exact.extend(sum.iter().map(|&x| f64::from(x)));
                for i in group {
                    let w = f64::from(weights[i]);
                    for (exact, &v) in exact.iter_mut().zip(&v[i * d..(i + 1) * d]) {
                        *exact += w * f64::from(v);
                    }
                }
                for (sum, &exact) in sum.iter_mut().zip(exact.iter()) {
                    *sum = N::narrow(exact as f32);
                }
            }
        }
    }
    for (acc, &block) in acc.iter_mut().zip(&scratch.rows) {
        *acc = N::narrow(*acc + block);
    }
}

#[inline(always)]
fn add_row<N: Narrow, const FMA: bool>(acc: &mut [f32], w: f32, row: &[f32]) {
    for (acc, &v) in acc.iter_mut().zip(row) {
        *acc = step::<N, FMA>(*acc, w, v);
    }
}

/// Adds the upper half of rows of `d` into the lower until one is left.
fn fold_halves<N: Narrow>(rows: &mut [f32], d: usize) {
    let mut live = rows.len() / d.max(1);
    while live > 1 {
        live /= 2;
        let (low, high) = rows.split_at_mut(live * d);
        for (a, &b) in low.iter_mut().zip(high.iter()) {
            *a = N::narrow(*a + b);
        }
    }
}

/// Index ranges that share a group of `w` slots, the first index standing at `slot`.
fn groups(count: usize, slot: usize, w: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= count {
            return None;
        }
        let end = count.min(start + w - (slot + start) % w);
        let group = start..end;
        start = end;
        Some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Dtype;
    use crate::subject::attention::numerics::{ScaleAt, SumOf};
    use crate::tree::Tree;
    use proptest::prelude::*;

    fn orders() -> impl Strategy<Value = Order> {
        prop_oneof![
            Just(Order::Sequential),
            Just(Order::Pairwise),
            (0u32..5).prop_map(|n| Order::Lanes(1 << n)),
            (1u32..9).prop_map(Order::Fused),
        ]
    }

    fn formats() -> impl Strategy<Value = Dtype> {
        prop_oneof![Just(Dtype::F32), Just(Dtype::BF16), Just(Dtype::F16)]
    }

    fn values(count: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<f32>> {
        // Mixed magnitudes, so that every order rounds differently.
        let value = (-2048i32..2048, 0u32..4).prop_map(|(n, k)| n as f32 * [1.0, 0.3, 1e-3, 777.7][k as usize]);
        proptest::collection::vec(value, count)
    }

    /// One key, straight from the words of `Numerics`.
    fn scalar_dot(score: &Score, q: &[f32], k: &[f32]) -> f32 {
        let round = |x: f32| score.acc.squeeze(x);
        let step = |sum: f32, s: usize| {
            if score.fma { round(q[s].mul_add(k[s], sum)) } else { round(sum + round(q[s] * k[s])) }
        };
        match score.order {
            Order::Sequential => (0..q.len()).fold(0.0, step),
            Order::Lanes(n) => {
                let mut lanes: Vec<f32> =
                    (0..n as usize).map(|lane| (lane..q.len()).step_by(n as usize).fold(0.0, step)).collect();
                while lanes.len() > 1 {
                    let upper = lanes.split_off(lanes.len() / 2);
                    lanes = lanes.iter().zip(upper).map(|(a, b)| round(a + b)).collect();
                }
                lanes[0]
            }
            Order::Pairwise => {
                fn tree(terms: &[f32], start: usize, size: usize, round: &impl Fn(f32) -> f32) -> Option<f32> {
                    if start >= terms.len() {
                        return None;
                    }
                    if size == 1 {
                        return Some(terms[start]);
                    }
                    let left = tree(terms, start, size / 2, round)?;
                    Some(tree(terms, start + size / 2, size / 2, round).map_or(left, |right| round(left + right)))
                }
                let terms: Vec<f32> = q.iter().zip(k).map(|(q, k)| round(q * k)).collect();
                tree(&terms, 0, terms.len().next_power_of_two(), &round).unwrap_or_default()
            }
            Order::Fused(w) => {
                let mut sum = 0.0f32;
                for group in 0..q.len().div_ceil(w as usize) {
                    let slots = group * w as usize..q.len().min((group + 1) * w as usize);
                    sum = round(slots.fold(f64::from(sum), |x, s| x + f64::from(q[s]) * f64::from(k[s])) as f32);
                }
                sum
            }
        }
    }

    /// The tree over keys, from the words of `Order`.
    fn key_tree(order: Order, count: u32, slot: u32) -> Tree {
        match order {
            Order::Sequential => Tree::sum((0..count).map(Tree::Leaf)),
            Order::Pairwise => Tree::pairwise(0, count, u64::from(slot)),
            Order::Lanes(n) => {
                let lane = |lane| Tree::sum((0..count).filter(|i| (slot + i) % n == lane).map(Tree::Leaf));
                fn fold(lanes: Vec<Option<Tree>>) -> Option<Tree> {
                    let half = lanes.len() / 2;
                    if half == 0 {
                        return lanes.into_iter().next().flatten();
                    }
                    fold((0..half).map(|i| Tree::sum(lanes[i].clone().into_iter().chain(lanes[i + half].clone()))).collect())
                }
                fold((0..n).map(lane).collect())
            }
            Order::Fused(w) => {
                let mut sum = None;
                for group in slot / w..=(slot + count - 1) / w {
                    let here = (0..count).filter(|i| (slot + i) / w == group).map(Tree::Leaf);
                    sum = Tree::fused(sum.into_iter().chain(here));
                }
                sum
            }
        }
        .unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn eight_keys_abreast_have_the_bits_of_each_alone(
            order in orders(), fma: bool, acc in formats(), q in values(1..40usize), seed in values(40 * ABREAST),
        ) {
            let score = Score { order, fma, acc, store: Dtype::F32, scale: ScaleAt::OnScore };
            let keys: Vec<Lane> = (0..q.len()).map(|s| std::array::from_fn(|i| seed[s * ABREAST + i])).collect();
            let dots = dot(&score, &q, &keys, &mut SumScratch::default());
            for i in 0..ABREAST {
                let key: Vec<f32> = keys.iter().map(|lane| lane[i]).collect();
                prop_assert_eq!(dots[i].to_bits(), scalar_dot(&score, &q, &key).to_bits(), "key {}", i);
            }
        }

        #[test]
        fn sums_over_keys_follow_their_tree(order in orders(), v in values(1..50usize), slot in 0u32..100) {
            let tree = key_tree(order, v.len() as u32, slot);
            let expected = tree.evaluate(&|n| v[n as usize]) + 0.0;
            let mut scratch = SumScratch::default();
            let rowsum = Rowsum { order, acc: Dtype::F32, of: SumOf::P };
            prop_assert_eq!((row_sum(&rowsum, &v, slot, &mut scratch) + 0.0).to_bits(), expected.to_bits());
            // Two value lanes, the second negated, with weight 1.
            let pairs: Vec<f32> = v.iter().flat_map(|&x| [x, -x]).collect();
            let mut acc = [0.0f32; 2];
            let value = Value { order, fma: false, acc: Dtype::F32 };
            weighted_values(&value, &vec![1.0; v.len()], &pairs, slot, &mut acc, &mut scratch);
            prop_assert_eq!(acc[0].to_bits(), expected.to_bits());
            prop_assert_eq!((acc[1] + 0.0).to_bits(), (-expected + 0.0).to_bits());
        }
    }
}
