//! Properties over random problems and numerics.

use super::setup::{Results, Setup, Step, causal};
use lastbit::number::Dtype;
use lastbit::subject::attention::conventions::{Conventions, ScalesConvention};
use lastbit::subject::attention::explain::{Divergence, Names, Steps};
use lastbit::subject::attention::kernel::KernelError;
use lastbit::subject::attention::numerics::{Block, Context, Descale, MaxInit, Numerics, Passes, Rescale, Scope};
use lastbit::subject::attention::recipe::Recipe;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::reference::preset::PRESETS;
use lastbit::subject::attention::reference::trace::Label;
use lastbit::subject::attention::{Anchor, ContextParallel, Mask, Shards, Side};

/// Fixed choices from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// 0 to `n - 1`.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// About -2 to 2, all bits in use, sometimes large.
    fn value(&mut self) -> f32 {
        let x = (self.next() >> 40) as f32 / (1 << 22) as f32 - 2.0;
        if self.one_in(6) { x * 100.0 } else { x }
    }
}

/// One rank in half of the draws, else up to eight, with chunks around those of the splits.
fn draw_context(draw: &mut Draw) -> Option<ContextParallel> {
    let shards = draw.pick(&[Shards::Contiguous, Shards::Zigzag]);
    let length = draw.pick(&[1, 2, 3, 5, 8, 10, 16, 40]);
    draw.one_in(2).then(|| ContextParallel { ranks: draw.pick(&[2, 3, 3, 4, 8]), shards, length })
}

fn draw_setup(draw: &mut Draw) -> Setup {
    let sequences: Vec<(u32, u32)> = (0..1 + draw.below(3))
        .map(|_| {
            let kv = draw.below(40) as u32;
            (if draw.one_in(2) { kv } else { draw.below(u64::from(kv) + 3) as u32 }, kv)
        })
        .collect();
    let mut mask = Mask { causal: draw.pick(&[Some(Anchor::BottomRight), Some(Anchor::BottomRight), None]), ..Mask::default() };
    if draw.one_in(8) {
        mask.causal = Some(Anchor::TopLeft);
    }
    mask.window_left = draw.one_in(3).then(|| draw.below(12) as u32);
    mask.window_right = (mask.causal.is_none() && draw.one_in(3)).then(|| draw.below(6) as u32);
    let mut setup = Setup {
        sequences,
        kv_heads: 1 + draw.below(2) as usize,
        group: 1 + draw.below(2) as usize,
        d_qk: 1 + draw.below(9) as usize,
        d_v: 1 + draw.below(4) as usize,
        scale: draw.pick(&[1.0, 0.35355338, 0.1]),
        mask,
        softcap: draw.one_in(4).then_some(3.0),
        block_q: 1 + draw.below(5) as usize,
        dtype: draw.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16]),
        out: draw.pick(&[Dtype::F32, Dtype::F32, Dtype::BF16, Dtype::F16]),
        ..Setup::default()
    };
    if draw.one_in(4) {
        let mut scales = || (0..setup.kv_heads).map(|_| draw.pick(&[1.0, 0.25, 0.3, 1.7])).collect::<Vec<f32>>();
        let (k, v) = (scales(), scales());
        setup.fp8 = Some((draw.pick(&[Dtype::E4M3, Dtype::E5M2]), k, v));
    }
    let heads = setup.heads();
    setup.context = draw_context(draw);
    setup.sinks = draw.one_in(4).then(|| (0..heads).map(|_| draw.value()).collect());
    setup.slopes = draw.one_in(4).then(|| (0..heads).map(|h| 0.5 / (h + 1) as f32).collect());
    let (rows, keys) = setup.sequences.iter().fold((0, 0), |(q, kv), s| (q + s.0 as usize, kv + s.1 as usize));
    let mut fill = |n: usize| (0..n).map(|_| draw.value()).collect::<Vec<f32>>();
    setup.q = fill(rows * heads * setup.d_qk);
    setup.k = fill(keys * setup.kv_heads * setup.d_qk);
    setup.v = fill(keys * setup.kv_heads * setup.d_v);
    setup
}

const VALUES: &[(&str, &[&str])] = &[
    ("kv.descale", &["on_load", "folded"]),
    ("score.order", &["sequential", "lanes(4)", "pairwise", "fused(3)"]),
    ("score.fma", &["true", "false"]),
    ("score.acc", &["f32", "bf16"]),
    ("score.store", &["f32", "bf16", "f16"]),
    ("score.scale", &["on_query", "on_score", "folded_log2e"]),
    ("softmax.passes", &["online", "two_pass"]),
    ("softmax.block", &["1", "2", "3", "8", "16", "whole"]),
    ("softmax.traverse", &["forward", "backward"]),
    ("softmax.rescale", &["always", "threshold(0.5)", "threshold(4)"]),
    ("softmax.scope", &["row", "tile"]),
    ("softmax.exp", &["correctly_rounded", "exp2_poly(3)", "exp2_poly(5)"]),
    ("softmax.max_init", &["-inf", "-5"]),
    ("probs.dtype", &["f32", "bf16"]),
    ("probs.normalised", &["true", "false"]),
    ("rowsum.order", &["sequential", "lanes(2)", "pairwise", "fused(4)"]),
    ("rowsum.acc", &["f32", "f16"]),
    ("rowsum.of", &["p", "rounded_p"]),
    ("value.order", &["sequential", "lanes(4)", "pairwise", "fused(6)"]),
    ("value.fma", &["true", "false"]),
    ("value.acc", &["f32", "bf16"]),
    ("grid.anchor", &["sequence", "buffer", "uncached"]),
    ("grid.split", &["none", "fixed_size(5)", "fixed_size(8)", "fixed_count(2)", "fixed_count(3)", "cache_boundary"]),
    ("grid.merge", &["sequential", "tree"]),
    ("grid.lse_dtype", &["f32", "bf16"]),
    ("grid.partial_dtype", &["f32", "bf16"]),
    ("grid.context", &["all_gather", "gather_partials", "ring_state", "ring_lse"]),
    ("finish", &["divide", "reciprocal"]),
    ("store", &["rne", "truncate"]),
];

/// Changes up to `changes` fields, keeping the numerics valid.
fn mutate(draw: &mut Draw, numerics: &mut Numerics, changes: u64) {
    for _ in 0..=draw.below(changes) {
        let (field, values) = draw.pick(VALUES);
        let mut changed = *numerics;
        changed.set(field, draw.pick(values)).unwrap();
        if changed.validate().is_ok() {
            *numerics = changed;
        }
    }
}

fn draw_kernel(draw: &mut Draw) -> Reference {
    let mut numerics = draw.pick(PRESETS).numerics;
    if draw.one_in(2) {
        numerics.softmax.block = Block::Size(8);
    }
    mutate(draw, &mut numerics, 8);
    if draw.one_in(5) && numerics.softmax.passes == Passes::Online {
        // Rare by chance, and the only place where rows look at each other.
        numerics.softmax.scope = Scope::Tile;
        numerics.softmax.rescale = Rescale::Threshold(0.5);
        numerics.softmax.block = Block::Size(4);
        numerics.grid.context = Context::AllGather;
        numerics.validate().unwrap();
    }
    let mut kernel = Reference::new(numerics);
    if draw.one_in(4) {
        let (field, value) = draw.pick(&[
            ("anchor", "top_left"),
            ("anchor", "strict"),
            ("window", "counts_self"),
            ("window", "one_more"),
            ("empty_row", "nan"),
            ("sink_in_lse", "no"),
            ("alibi", "key_index"),
            ("cap_order", "bias_then_cap"),
            ("kv_scales", "ignored"),
        ]);
        kernel.actual.set(field, value).unwrap();
    }
    kernel
}

/// Every production of every packed row by some inference schedule: packed row, its results and recipe.
fn schedule(setup: &Setup, kernel: &Reference, draw: &mut Draw) -> Vec<(usize, Vec<u32>, Vec<u32>, Recipe)> {
    let mut found = Vec::new();
    let mut base = 0;
    for (sequence, &(q, kv)) in setup.sequences.iter().enumerate() {
        let largest = draw.pick(&[1, 3, 64]);
        let mut first = 0;
        while first < q {
            let rows = (1 + draw.below(largest) as u32).min(q - first);
            let total = (kv + first + rows).checked_sub(q);
            if let Some(total) = total {
                let step = Step { sequence, first, rows, kv: total, prefix: draw.below(u64::from(total) + 1) as u32 };
                let (results, recipes) = setup.paged(kernel, step, draw.pick(&[0, 1, 4, 16]));
                for (n, recipe) in recipes.into_iter().enumerate() {
                    let row = base + (first as usize) + n;
                    found.push((row, results.o[n].clone(), results.lse[n].clone(), recipe));
                }
            }
            first += rows;
        }
        base += q as usize;
    }
    found
}

fn assert_rows_equal(a: &Results, b: &Results, what: &str) {
    assert_eq!(a, b, "{what}");
}

#[test]
fn aligned_has_the_same_bits_in_every_call_form() {
    let kernel = Reference::default();
    for seed in 0..300 {
        let mut draw = Draw(seed);
        let mut setup = draw_setup(&mut draw);
        if setup.mask.causal.is_none() || setup.mask.causal == Some(Anchor::TopLeft) {
            setup.mask = Mask { window_left: setup.mask.window_left, ..causal() };
        }
        let packed = setup.varlen(&kernel);
        setup.context = draw_context(&mut draw);
        for (side, pad) in [(Side::Left, 0), (Side::Left, 5), (Side::Right, 3)] {
            let (dense, _) = setup.dense(&kernel, side, pad);
            assert_rows_equal(&packed, &dense, &format!("seed {seed}: dense, {side:?}, {pad} more slots"));
        }
        for (row, o, lse, _) in schedule(&setup, &kernel, &mut draw) {
            assert_eq!((&packed.o[row], &packed.lse[row]), (&o, &lse), "seed {seed}: row {row} of {setup:?}");
        }
    }
}

#[test]
fn equal_recipes_give_equal_bits() {
    let (mut equal, mut unequal, mut visible) = (0, 0, 0);
    for seed in 0..1500 {
        let mut draw = Draw(1_000_000 + seed);
        let setup = draw_setup(&mut draw);
        let kernel = draw_kernel(&mut draw);
        let packed = setup.varlen(&kernel);
        let recipes: Vec<Recipe> = (0..packed.o.len()).map(|row| setup.recipe(&kernel, row)).collect();
        let again = |draw: &mut Draw| Setup { context: draw_context(draw), ..setup.clone() };
        let mut others = schedule(&again(&mut draw), &kernel, &mut draw);
        for side in [Side::Left, Side::Right] {
            let (dense, dense_recipes) = again(&mut draw).dense(&kernel, side, draw.below(7) as usize);
            for (row, recipe) in dense_recipes.into_iter().enumerate() {
                others.push((row, dense.o[row].clone(), dense.lse[row].clone(), recipe));
            }
        }
        for (row, o, lse, recipe) in others {
            let same = packed.o[row] == o && packed.lse[row] == lse;
            if recipe == recipes[row] {
                equal += 1;
                assert!(recipe.differences(&recipes[row]).is_empty());
                assert!(same, "seed {seed}: {kernel}, row {row}: {recipe}\nfor {setup:?}");
            } else {
                unequal += 1;
                visible += u32::from(!same);
                assert!(!recipe.differences(&recipes[row]).is_empty(), "{recipe:?} against {:?}", recipes[row]);
            }
        }
    }
    // The property is not vacuous, and recipes are not needlessly different.
    assert!(
        equal > 20_000 && unequal > 1_000 && visible * 2 > unequal,
        "{equal} equal, {unequal} not, {visible} of them visible"
    );
}

#[test]
fn equal_recipes_of_two_kernels_give_equal_bits() {
    let (mut equal, mut unequal, mut visible) = (0, 0, 0);
    for seed in 0..1500 {
        let mut draw = Draw(2_000_000 + seed);
        let setup = draw_setup(&mut draw);
        let (a, mut b) = (draw_kernel(&mut draw), draw_kernel(&mut draw));
        b.numerics = a.numerics;
        mutate(&mut draw, &mut b.numerics, 2);
        let (left, right) = (setup.varlen(&a), setup.varlen(&b));
        for row in 0..left.o.len() {
            let same = left.o[row] == right.o[row] && left.lse[row] == right.lse[row];
            if setup.recipe(&a, row) == setup.recipe(&b, row) {
                equal += 1;
                assert!(same, "seed {seed}: {a} and {b}, row {row} of {setup:?}");
            } else {
                unequal += 1;
                visible += u32::from(!same);
            }
        }
    }
    assert!(equal > 5_000 && visible > 5_000, "{equal} equal, {unequal} not, {visible} of them visible");
}

/// flashinfer#4979: with scales that are powers of two, the result is bit for bit that of the same numbers stored in a wider format,
/// wherever the scales enter.
#[test]
fn powers_of_two_scale_exactly() {
    let mut told_apart = 0;
    for seed in 0..1000 {
        let mut draw = Draw(5_000_000 + seed);
        let mut setup = draw_setup(&mut draw);
        let kv = draw.pick(&[Dtype::E4M3, Dtype::E5M2]);
        let scales = |draw: &mut Draw, first: f32| -> Vec<f32> {
            let powers = [first, 2.0, 0.5, 8.0, 1.0 / 64.0];
            if draw.one_in(2) { vec![first] } else { (0..setup.kv_heads).map(|_| draw.pick(&powers)).collect() }
        };
        let (k_scales, v_scales) = (scales(&mut draw, 0.25), scales(&mut draw, 0.5));
        let mut meant = setup.clone();
        // A wide format for the values as meant: E5M2 times a power of two may leave f16.
        (setup.dtype, meant.dtype, meant.fp8) = (Dtype::BF16, Dtype::BF16, None);
        for (data, d, scales) in [(&mut meant.k, setup.d_qk, &k_scales), (&mut meant.v, setup.d_v, &v_scales)] {
            for (n, head) in data.chunks_exact_mut(d).enumerate() {
                let scale = if scales.len() == 1 { scales[0] } else { scales[n % scales.len()] };
                head.iter_mut().for_each(|x| *x = kv.squeeze(*x) * scale);
            }
        }
        setup.fp8 = Some((kv, k_scales, v_scales));
        // f16 ends where f32 and bf16 do not.
        let mut kernel = draw_kernel(&mut draw);
        let acc = |dtype| if dtype == Dtype::F16 { Dtype::BF16 } else { dtype };
        let Numerics { score, rowsum, value, grid, .. } = &mut kernel.numerics;
        (score.acc, score.store) = (acc(score.acc), acc(score.store));
        (rowsum.acc, value.acc) = (acc(rowsum.acc), acc(value.acc));
        grid.partial_dtype = acc(grid.partial_dtype);
        kernel.actual.kv_scales = Conventions::default().kv_scales;
        // A finite start of the maximum is in the units of the scores.
        kernel.numerics.softmax.max_init = MaxInit::NegInf;
        let expected = meant.varlen(&kernel);
        for descale in [Descale::OnLoad, Descale::Folded] {
            kernel.numerics.kv.descale = descale;
            let got = setup.varlen(&kernel);
            assert_eq!(expected.lse, got.lse, "seed {seed}: {kernel} on {setup:?}");
            for (a, b) in expected.o.iter().flatten().zip(got.o.iter().flatten()) {
                // Among subnormal numbers a scale does not commute with rounding.
                let tiny = [a, b].iter().all(|&&bits| setup.out.to_f32(bits).abs() < 1e-30);
                assert!(a == b || tiny, "seed {seed}: {kernel} on {setup:?}");
            }
        }
        kernel.actual.kv_scales = ScalesConvention::Ignored;
        told_apart += u32::from(setup.varlen(&kernel) != expected);
    }
    assert!(told_apart > 900, "{told_apart}");
}

#[test]
fn a_traced_row_has_the_bits_of_the_call() {
    for seed in 0..400 {
        let mut draw = Draw(3_000_000 + seed);
        let setup = draw_setup(&mut draw);
        let kernel = draw_kernel(&mut draw);
        let packed = setup.varlen(&kernel);
        for row in 0..packed.o.len().min(6) {
            let head = draw.below(setup.heads() as u64) as usize;
            let trace = setup.trace(&kernel, row, head);
            let stored: Vec<u32> =
                trace.events.iter().filter(|s| matches!(s.label, Label::Store { .. })).map(|s| s.bits).collect();
            let expected: Vec<u32> = packed.o[row][head * setup.d_v..(head + 1) * setup.d_v]
                .iter()
                .map(|&bits| setup.out.to_f32(bits).to_bits())
                .collect();
            let plain = |bits: &[u32]| bits.iter().map(|&b| Dtype::F32.round_f32(f32::from_bits(b))).collect::<Vec<_>>();
            assert_eq!(plain(&stored), plain(&expected), "seed {seed}: {kernel}");
            let lse = trace.events.iter().find(|s| s.label == Label::Lse).unwrap().bits;
            assert_eq!(lse, packed.lse[row][head], "seed {seed}: {kernel}");
            let steps = Steps::of(&trace, &trace, |_| None);
            assert_eq!(steps.common.len(), trace.events.len(), "seed {seed}: two steps of one definition: {kernel}");
            assert_eq!(Divergence::of(&trace, &trace, &steps, &Names::PATHS), None);
        }
    }
}

#[test]
fn the_tree_of_a_recipe_is_the_order_of_the_kernel() {
    for seed in 0..400 {
        let mut draw = Draw(4_000_000 + seed);
        let keys = 1 + draw.below(60) as u32;
        let values: Vec<f32> = (0..keys).map(|_| draw.value()).collect();
        // Equal scores: every weight is 1 and no maximum moves, so the accumulator is the plain sum.
        let mut setup = Setup::zeros(1, keys, 1, &values);
        setup.mask = Mask { window_left: Some(draw.below(60) as u32), ..causal() };
        let mut kernel = Reference::default();
        for (field, values) in VALUES {
            if ["softmax.block", "softmax.traverse", "value.order"].contains(field) {
                kernel.numerics.set(field, draw.pick(values)).unwrap();
            }
        }
        // One state around a ring is still one sum.
        setup.context = draw_context(&mut draw);
        kernel.numerics.grid.context = draw.pick(&[Context::AllGather, Context::RingState]);
        let tree = setup.recipe(&kernel, 0).tree().unwrap();
        let trace = setup.trace(&kernel, 0, 0);
        let last = trace.events.iter().rev().find(|step| matches!(step.label, Label::Accumulator { .. })).unwrap().bits;
        assert_eq!(tree.evaluate(&|n| values[n as usize]), f32::from_bits(last), "{kernel}: {tree}");
    }
}

#[test]
fn aligned_is_the_textbook_loop() {
    let mut draw = Draw(7);
    let (q, kv, d, d_v, scale) = (3u32, 200u32, 16usize, 8usize, 0.25f32);
    let mut fill = |n: usize| (0..n).map(|_| draw.value()).collect::<Vec<f32>>();
    let setup = Setup {
        sequences: vec![(q, kv)],
        d_qk: d,
        d_v,
        scale,
        mask: causal(),
        q: fill(q as usize * d),
        k: fill(kv as usize * d),
        v: fill(kv as usize * d_v),
        ..Setup::default()
    };
    let results = setup.varlen(&Reference::default());
    for row in 0..q as usize {
        let visible = (kv - q) as usize + row + 1;
        let (mut max, mut sum, mut acc) = (f32::NEG_INFINITY, 0.0f32, vec![0.0f32; d_v]);
        for start in (0..visible).step_by(64) {
            let block = start..visible.min(start + 64);
            let scores: Vec<f32> = block
                .clone()
                .map(|j| (0..d).fold(0.0f32, |s, x| s + setup.q[row * d + x] * setup.k[j * d + x]) * scale)
                .collect();
            let new = scores.iter().fold(max, |m, &s| m.max(s));
            let factor = core_math::expf(max - new);
            let weights: Vec<f32> = scores.iter().map(|&s| core_math::expf(s - new)).collect();
            sum = sum * factor + weights.iter().fold(0.0, |s, &w| s + w);
            acc.iter_mut().for_each(|a| *a *= factor);
            for (j, w) in block.zip(weights) {
                for (a, v) in acc.iter_mut().zip(&setup.v[j * d_v..(j + 1) * d_v]) {
                    *a += w * v;
                }
            }
            max = new;
        }
        let bits: Vec<u32> = acc.iter().map(|a| (a / sum).to_bits()).collect();
        assert_eq!(results.o[row], bits);
        assert_eq!(results.lse[row], [(max + core_math::logf(sum)).to_bits()]);
    }
}

#[test]
fn ranks_without_positions_are_a_failed_call() {
    let mut setup = Setup::zeros(1, 1, 1, &[1.0]);
    for (ranks, length) in [(0, 4), (2, 0)] {
        setup.context = Some(ContextParallel { ranks, shards: Shards::Contiguous, length });
        let error = setup.try_varlen(&Reference::default()).unwrap_err();
        assert!(matches!(&error, KernelError::Failed(reason) if reason.contains("context ranks")), "{error:?}");
    }
}

#[test]
fn conventions_spell_their_defaults() {
    assert_eq!(Reference::default().declared, Conventions::default());
    assert_eq!(Reference::default().actual, Conventions::default());
}
