//! The bound holds for a simulated kernel over numerics and regimes, and finds planted losses of precision.

use super::super::numerics::*;
use super::super::plan::{ContextParallel, Shards};
use super::simulation::{Row, Truth, run, truth};
use super::{Bound, RowBound, weighting};
use crate::number::Dtype;
use rug::Float;

fn base() -> Numerics {
    Numerics {
        kv: Kv { descale: Descale::OnLoad },
        score: Score { order: Order::Sequential, fma: false, acc: Dtype::F32, store: Dtype::F32, scale: ScaleAt::OnScore },
        softmax: Softmax {
            passes: Passes::Online,
            block: Block::Size(16),
            traverse: Traverse::Forward,
            rescale: Rescale::Always,
            scope: Scope::Row,
            exp: Exp::CorrectlyRounded,
            max_init: MaxInit::NegInf,
        },
        probs: Probs { dtype: Dtype::F32, normalised: false },
        rowsum: Rowsum { order: Order::Sequential, acc: Dtype::F32, of: SumOf::P },
        value: Value { order: Order::Sequential, fma: false, acc: Dtype::F32 },
        grid: Grid {
            anchor: GridAnchor::Sequence,
            split: Split::None,
            merge: Merge::Sequential,
            lse_dtype: Dtype::F32,
            partial_dtype: Dtype::F32,
            context: Context::AllGather,
        },
        finish: Finish::Divide,
        store: Store::Rne,
    }
}

/// `field=value` pairs, separated by spaces, on top of the base.
fn numerics(changes: &str) -> Numerics {
    let mut n = base();
    for change in changes.split_whitespace() {
        let (field, value) = change.split_once('=').unwrap();
        n.set(field, value).unwrap();
    }
    n.validate().unwrap();
    n
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// About N(0, 1).
    fn normal(&mut self) -> f32 {
        let sum: f64 = (0..12).map(|_| (self.next() >> 11) as f64 / (1u64 << 53) as f64).sum();
        (sum - 6.0) as f32
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Normal,
    Sharp,
    Mirror,
    Deep,
    Gap,
    Subnormal,
    Wide,
    Ties,
    Huge,
}

const KINDS: [Kind; 9] =
    [Kind::Normal, Kind::Sharp, Kind::Mirror, Kind::Deep, Kind::Gap, Kind::Subnormal, Kind::Wide, Kind::Ties, Kind::Huge];

fn draw(kind: Kind, dice: &mut Dice) -> Row {
    let n = 1 + dice.below(64) as usize;
    let d = dice.pick(&[1usize, 4, 16, 32]);
    let d_v = 2;
    let storage = dice.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16]);
    let fp8 = (dice.below(3) == 0).then(|| dice.pick(&[Dtype::E4M3, Dtype::E5M2]));
    let mut q: Vec<f32> = (0..d).map(|_| dice.normal()).collect();
    let mut k: Vec<Vec<f32>> = (0..n).map(|_| (0..d).map(|_| dice.normal()).collect()).collect();
    let mut v: Vec<Vec<f32>> = (0..n).map(|_| (0..d_v).map(|_| dice.normal()).collect()).collect();
    let mut scale = 1.0 / (d as f32).sqrt();
    match kind {
        Kind::Normal => {}
        Kind::Sharp => q.iter_mut().for_each(|x| *x *= 8.0),
        Kind::Mirror => {
            let large = dice.pick(&[64.0, 4096.0, 65000.0]);
            for pair in 0..n / 2 {
                k[2 * pair + 1] = k[2 * pair].clone();
                let x = large * (1.0 + dice.normal().abs() / 16.0);
                if dice.below(2) == 0 {
                    v[2 * pair] = vec![x; d_v];
                    v[2 * pair + 1] = vec![-x; d_v];
                }
            }
        }
        Kind::Deep => {
            let level = dice.pick(&[-100.0, -1e3, -3e4, -1e9, -1e30]);
            q[0] = 1.0;
            scale = 1.0;
            k.iter_mut().for_each(|k| k[0] = level + dice.normal());
        }
        Kind::Gap => {
            let gap = dice.pick(&[1.0, 20.0, 88.0, 104.0, 1e4]);
            q[0] = 1.0;
            scale = 1.0;
            let at = dice.below(n as u64) as usize;
            k[at][0] += gap;
        }
        Kind::Subnormal => {
            let tiny = dice.pick(&[1e-7f32, 1e-20, 1e-38, 1e-42]);
            for x in q.iter_mut().chain(v.iter_mut().flatten()) {
                *x *= tiny;
            }
            k.iter_mut().flatten().for_each(|x| *x *= dice.pick(&[1.0, 1e5]));
        }
        Kind::Wide => {
            for x in v.iter_mut().flatten() {
                *x *= 2f32.powi(dice.below(80) as i32 - 40);
            }
        }
        Kind::Ties => {
            for x in q.iter_mut().chain(k.iter_mut().flatten()).chain(v.iter_mut().flatten()) {
                *x = x.round();
            }
        }
        Kind::Huge => {
            let large = dice.pick(&[30.0, 200.0, 1e10, 1e19]);
            q.iter_mut().chain(k.iter_mut().flatten()).for_each(|x| *x *= large);
        }
    }
    let store = |storage: Dtype, x: &mut f32| {
        let most = storage.max_finite() as f32;
        *x = storage.squeeze(x.clamp(-most, most));
    };
    q.iter_mut().for_each(|x| store(storage, x));
    for x in k.iter_mut().flatten().chain(v.iter_mut().flatten()) {
        store(fp8.unwrap_or(storage), x);
    }
    let mut kv_scale =
        || dice.pick(&[1.0, 0.25, 0.5, 0.3, 1.7, 1e-3, 2e-38, 1e-42, 3e4]) * if dice.below(2) == 0 { 1.0 } else { 1.1 };
    let kv_scales = fp8.map(|_| [kv_scale(), kv_scale()]);
    Row {
        q,
        k,
        v,
        kv_scales,
        scale,
        softcap: (dice.below(5) == 0).then(|| dice.pick(&[2.0, 30.0])),
        slope: (dice.below(5) == 0).then(|| dice.pick(&[0.3, 1.0, 0.01])),
        sink: (dice.below(5) == 0).then(|| 3.0 * dice.normal() + if dice.below(4) == 0 { 50.0 } else { 0.0 }),
        out: dice.pick(&[Dtype::F32, Dtype::F32, Dtype::BF16, Dtype::F16]),
        context: None,
    }
}

/// Ranks for a row of any length: up to 128 chunks, most of them hit.
fn ranks(dice: &mut Dice) -> ContextParallel {
    let shards = dice.pick(&[Shards::Contiguous, Shards::Zigzag]);
    ContextParallel { ranks: dice.pick(&[2, 3, 4, 8, 64]), shards, length: 1 + dice.below(17) as u32 }
}

fn difference(value: f64, truth: &Float) -> f64 {
    Float::with_val(256, value - truth).abs().to_f64_round(rug::float::Round::Up)
}

#[derive(Debug, Default)]
struct Tally {
    within: u32,
    unbounded: u32,
    out_of_range: u32,
    /// Largest share of the bound that an error used, o and lse, over all rows.
    o: f64,
    lse: f64,
    /// The shares that `o` of `Kind::Normal` rows used with f32 output.
    shares: Vec<f64>,
}

impl Tally {
    fn add(&mut self, bound: Bound, value: f64, truth: &Float, what: &dyn Fn() -> String) -> f64 {
        match bound {
            Bound::Unbounded => self.unbounded += 1,
            Bound::OutOfRange(_) => self.out_of_range += 1,
            Bound::Within(bound) => {
                self.within += 1;
                let error = if value.is_finite() { difference(value, truth) } else { f64::INFINITY };
                assert!(bound >= 0.0 && error <= bound, "error {error:e}, bound {bound:e}: {}", what());
                return if error == 0.0 { 0.0 } else { error / bound };
            }
        }
        0.0
    }
}

/// Runs each kernel over `rows` rows of all kinds, judged by its own numerics, or as undeclared; `parallel`: as context-parallel
/// ranks.
fn campaign(kernels: &[Numerics], undeclared: bool, parallel: bool, rows: u32, seed: u64) -> Vec<Tally> {
    let (mut dice, mut rank_dice) = (Dice(seed), Dice(seed));
    let mut tallies: Vec<Tally> = kernels.iter().map(|_| Tally::default()).collect();
    for i in 0..rows {
        let kind = KINDS[i as usize % KINDS.len()];
        let mut row = draw(kind, &mut dice);
        row.context = parallel.then(|| ranks(&mut rank_dice));
        let mut facts = row.facts();
        if i % 2 == 1 {
            // Facts for a batch of rows, of which this one is not the longest.
            (facts.keys, facts.slots) = (64, 80);
        }
        let judge = |k: usize| if undeclared { None } else { Some(&kernels[k]) };
        let weightings: Vec<_> = (0..kernels.len()).map(|k| weighting(judge(k), &facts)).collect();
        let Truth { o, lse, sums } = truth(&row, &weightings);
        for (k, (kernel, tally)) in kernels.iter().zip(&mut tallies).enumerate() {
            let (got, got_lse) = run(kernel, &row);
            let bound = RowBound::new(judge(k), &facts, &sums, k);
            let what = |x: &str| format!("{x} of row {i} ({kind:?}), {kernel:?}, {row:?}");
            for x in 0..row.d_v() {
                let value_abs = o[x].to_f64().abs() * (1.0 + 1e-12);
                let share = tally.add(bound.o(x, value_abs), row.out.to_f64(got[x]), &o[x], &|| what("o"));
                tally.o = tally.o.max(share);
                if kind == Kind::Normal && row.out == Dtype::F32 {
                    tally.shares.push(share);
                }
            }
            let lse_abs = lse.to_f64().abs() * (1.0 + 1e-12);
            let share = tally.add(bound.lse(lse_abs), f64::from(got_lse), &lse, &|| what("lse"));
            tally.lse = tally.lse.max(share);
        }
    }
    tallies
}

fn hold(changes: &[&str], undeclared: bool) {
    hold_with(changes, undeclared, false);
}

fn hold_with(changes: &[&str], undeclared: bool, parallel: bool) {
    let kernels: Vec<Numerics> = changes.iter().map(|c| numerics(c)).collect();
    let rows = 1000;
    for (name, mut tally) in changes.iter().zip(campaign(&kernels, undeclared, parallel, rows, 1)) {
        tally.shares.sort_by(f64::total_cmp);
        println!(
            "[{name}] within {} unbounded {} out of range {}; largest error/bound o {:.3} lse {:.3}; normal f32 median {:.4}, largest {:.3}",
            tally.within,
            tally.unbounded,
            tally.out_of_range,
            tally.o,
            tally.lse,
            tally.shares[tally.shares.len() / 2],
            tally.shares.last().unwrap(),
        );
        // Not vacuous: two in three outputs are judged.
        assert!(tally.within > 2 * rows, "{name}: {tally:?}");
    }
}

#[test]
fn the_bound_holds_in_f32() {
    hold(
        &[
            "",
            "score.order=pairwise value.order=pairwise rowsum.order=lanes(8) softmax.block=5",
            "score.order=fused(4) value.order=fused(8) rowsum.order=fused(8)",
            "score.fma=true value.fma=true score.scale=on_query finish=reciprocal",
            "score.scale=folded_log2e",
            "score.scale=folded_log2e score.fma=true softmax.block=3",
            "softmax.passes=two_pass softmax.block=whole",
            "softmax.passes=two_pass probs.normalised=true",
            "store=truncate softmax.block=1",
            "softmax.rescale=threshold(8) softmax.block=4",
            "softmax.rescale=threshold(60) softmax.block=4",
            "softmax.max_init=-1000",
            "softmax.max_init=-20 softmax.block=2",
            "softmax.max_init=-2000 grid.split=fixed_size(8)",
        ],
        false,
    );
}

#[test]
fn the_bound_holds_with_folded_scales() {
    hold(
        &[
            "kv.descale=folded",
            "kv.descale=folded finish=reciprocal score.scale=on_query",
            "kv.descale=folded score.scale=folded_log2e finish=reciprocal softmax.block=3",
            "kv.descale=folded score.scale=folded_log2e score.fma=true",
            "kv.descale=folded grid.split=fixed_size(8) grid.partial_dtype=bf16",
            "kv.descale=folded grid.split=fixed_count(4) grid.merge=tree finish=reciprocal",
            "kv.descale=folded value.acc=f16 softmax.block=4",
            "kv.descale=folded score.acc=f16 probs.dtype=bf16",
            "kv.descale=folded score.store=f16 score.scale=folded_log2e",
            "kv.descale=folded softmax.max_init=-20 finish=reciprocal",
            "kv.descale=folded softmax.rescale=threshold(8) softmax.block=4 finish=reciprocal",
        ],
        false,
    );
}

#[test]
fn the_bound_holds_with_polynomial_exponentials() {
    hold(
        &[
            "softmax.exp=exp2_poly(2) softmax.block=4",
            "softmax.exp=exp2_poly(3)",
            "softmax.exp=exp2_poly(5) grid.split=fixed_size(8)",
            "softmax.exp=exp2_poly(8) score.scale=folded_log2e",
        ],
        false,
    );
}

#[test]
fn the_bound_holds_with_splits() {
    hold(
        &[
            "grid.split=fixed_size(8)",
            "grid.split=fixed_size(3) grid.merge=tree softmax.block=2",
            "grid.split=fixed_count(4) grid.merge=tree grid.partial_dtype=bf16",
            "grid.split=fixed_count(7) grid.lse_dtype=bf16",
            "grid.split=cache_boundary grid.lse_dtype=f16 score.scale=folded_log2e",
            "grid.split=fixed_size(16) grid.partial_dtype=f16 softmax.rescale=threshold(4) softmax.block=2",
        ],
        false,
    );
}

#[test]
fn the_bound_holds_in_16_bits() {
    hold(
        &[
            "probs.dtype=bf16",
            "probs.dtype=f16 rowsum.of=rounded_p",
            "probs.dtype=f16 probs.normalised=true softmax.passes=two_pass",
            "score.store=bf16",
            "score.store=f16",
            "score.store=f16 score.scale=folded_log2e",
            "score.acc=bf16",
            "score.acc=f16",
            "score.acc=f16 score.scale=on_query score.order=pairwise",
            "rowsum.acc=f16",
            "rowsum.acc=bf16 softmax.block=7",
            "value.acc=bf16 value.order=pairwise",
            "value.acc=f16 softmax.block=4",
            "value.acc=f16 probs.dtype=f16 softmax.rescale=threshold(5) softmax.block=4",
        ],
        false,
    );
}

#[test]
fn undeclared_numerics_cover_f32_kernels() {
    hold(
        &[
            "",
            "score.scale=folded_log2e softmax.block=7",
            "score.scale=on_query finish=reciprocal softmax.block=1",
            "grid.split=fixed_count(2)",
            "kv.descale=folded",
            "kv.descale=folded score.scale=folded_log2e finish=reciprocal",
            "kv.descale=folded score.scale=on_query grid.split=fixed_count(2)",
        ],
        true,
    );
}

#[test]
fn the_bound_holds_over_context_parallel_ranks() {
    hold_with(
        &[
            "grid.context=gather_partials",
            "grid.context=gather_partials grid.split=fixed_size(4) grid.merge=tree softmax.block=3",
            "grid.context=gather_partials grid.split=fixed_count(2) grid.partial_dtype=bf16",
            "grid.context=ring_lse softmax.block=4",
            "grid.context=ring_lse grid.split=fixed_size(5) grid.lse_dtype=bf16",
            "grid.context=ring_lse softmax.passes=two_pass grid.partial_dtype=f16",
            "grid.context=ring_state softmax.block=4",
            "grid.context=ring_state softmax.block=whole value.acc=bf16",
            "grid.context=ring_state score.scale=folded_log2e score.fma=true softmax.rescale=threshold(4)",
        ],
        false,
        true,
    );
}

#[test]
fn undeclared_numerics_cover_context_parallel_kernels() {
    hold_with(
        &[
            "",
            "grid.context=gather_partials",
            "grid.context=gather_partials grid.split=fixed_count(2)",
            "grid.context=ring_lse score.scale=folded_log2e",
            "grid.context=ring_state softmax.block=7",
        ],
        true,
        true,
    );
}

/// Contiguous keys may touch one chunk more than their length fills, and a ring has a partial for each rank.
#[test]
fn ranks_cost_merges_and_rescales() {
    let facts = |context| super::Facts { keys: 10, slots: 10, context, ..draw(Kind::Normal, &mut Dice(6)).facts() };
    let ranks = |shards, length| Some(ContextParallel { ranks: 4, shards, length });
    let count = |changes: &str, context| {
        let n = numerics(&format!("softmax.block=8 {changes}"));
        let counts = super::count::Counts::of(Some(&n), &facts(context));
        (counts.merges as u32, counts.rescales as u32, counts.partials)
    };
    let (contiguous, zigzag) = (ranks(Shards::Contiguous, 4), ranks(Shards::Zigzag, 3));
    assert_eq!(count("", contiguous), (0, 2, false), "gathered keys are as on one rank");
    assert_eq!(count("grid.context=ring_state", None), (0, 2, false));
    // Ten keys may touch four chunks of four.
    assert_eq!(count("grid.context=gather_partials", contiguous), (3, 2, true));
    assert_eq!(count("grid.context=ring_state", contiguous), (0, 5, false));
    assert_eq!(count("grid.context=ring_lse", zigzag), (3, 3, true));
    // A rule may give no split, and then a rank's two chunks are one state.
    assert_eq!(count("grid.context=ring_lse grid.split=rule(occupancy,132)", zigzag), (9, 3, true));
    assert_eq!(count("grid.context=gather_partials grid.split=fixed_size(2)", contiguous), (8, 2, true));
    assert_eq!(count("grid.context=gather_partials grid.split=fixed_size(2) grid.merge=tree", contiguous), (4, 2, true));
    assert_eq!(count("grid.context=ring_lse grid.split=fixed_size(2) grid.merge=tree", contiguous), (8, 2, true));
}

/// For each kernel (and whether it drops the last key), the shares of f32 outputs of normal rows that exceed the bound of the base
/// numerics, and the undeclared bound.
fn caught(kernels: &[(&str, bool)], keys: usize, rows: u32, fp8: bool) -> Vec<[f64; 2]> {
    let declared = base();
    let judges = [Some(&declared), None];
    let mut dice = Dice(3);
    let mut over = vec![[0; 2]; kernels.len()];
    for _ in 0..rows {
        let d = 32;
        let mut vector = |n: usize, storage: Dtype| (0..n).map(|_| storage.squeeze(dice.normal())).collect::<Vec<f32>>();
        let kv = if fp8 { Dtype::E4M3 } else { Dtype::BF16 };
        let row = Row {
            q: vector(d, Dtype::BF16),
            k: (0..keys).map(|_| vector(d, kv)).collect(),
            v: (0..keys).map(|_| vector(4, kv)).collect(),
            kv_scales: fp8.then_some([0.9, 0.7]),
            scale: 1.0 / (d as f32).sqrt(),
            softcap: None,
            slope: None,
            sink: None,
            out: Dtype::F32,
            context: None,
        };
        let facts = row.facts();
        let Truth { o, sums, .. } = truth(&row, &judges.map(|judge| weighting(judge, &facts)));
        for ((changes, drop_last), over) in kernels.iter().zip(&mut over) {
            let mut ran = row.clone();
            if *drop_last {
                ran.k.pop();
                ran.v.pop();
            }
            let (got, _) = run(&numerics(changes), &ran);
            for (i, judge) in judges.into_iter().enumerate() {
                let bound = RowBound::new(judge, &facts, &sums, i);
                for x in 0..4 {
                    let Bound::Within(bound) = bound.o(x, o[x].to_f64().abs() * (1.0 + 1e-12)) else { panic!() };
                    over[i] += u32::from(difference(row.out.to_f64(got[x]), &o[x]) > bound);
                }
            }
        }
    }
    over.into_iter().map(|over| over.map(|count| f64::from(count) / f64::from(4 * rows))).collect()
}

#[test]
fn losses_of_precision_exceed_the_f32_bound() {
    let kernels = [
        ("probs.dtype=bf16", false),
        ("probs.dtype=f16", false),
        ("value.acc=bf16", false),
        ("rowsum.acc=f16", false),
        ("score.store=bf16", false),
        ("score.store=f16", false),
        ("", true),
    ];
    for (keys, rows, fp8) in [(8, 60, false), (64, 60, false), (300, 20, false), (1000, 8, false), (8, 60, true), (64, 60, true)]
    {
        for ((name, dropped), shares) in kernels.iter().zip(caught(&kernels, keys, rows, fp8)) {
            let name = if *dropped { "dropped last key" } else { name };
            println!(
                "{keys} keys, 8-bit {fp8}, {name}: {:.3} exceed the declared bound, {:.3} the undeclared one",
                shares[0], shares[1]
            );
            assert!(keys > 64 || shares[0] > 0.5, "{keys} keys, {name}: {shares:?}");
        }
    }
}

#[test]
fn empty_rows_are_exact_and_sums_without_a_bound_say_so() {
    let mut dice = Dice(4);
    let row = Row { sink: None, ..draw(Kind::Normal, &mut dice) };
    let facts = row.facts();
    let mut sums = truth(&row, &[weighting(None, &facts)]).sums;
    sums.keys = 0;
    let bound = RowBound::new(None, &facts, &sums, 0);
    assert_eq!((bound.o(0, 0.0), bound.lse(0.0)), (Bound::Within(0.0), Bound::Within(0.0)));

    let n = numerics("rowsum.acc=bf16");
    sums.keys = 300;
    assert_eq!(RowBound::new(Some(&n), &facts, &sums, 0).o(0, 1.0), Bound::Unbounded);
    let n = numerics("value.acc=f16 score.acc=bf16");
    let wide = super::Facts { d_qk: 256, ..facts };
    assert_eq!(weighting(Some(&n), &wide).per_magnitude, 0.0);
    sums.keys = 2;
    assert_eq!(RowBound::new(Some(&n), &wide, &sums, 0).lse(1.0), Bound::Unbounded);
}

#[test]
fn possible_overflow_is_out_of_range() {
    let mut dice = Dice(5);
    let mut row = draw(Kind::Normal, &mut dice);
    row.sink = None;
    row.out = Dtype::F16;
    row.v.iter_mut().for_each(|v| v.fill(60000.0));
    let judge = |changes: &str, row: &Row| {
        let n = numerics(changes);
        let facts = row.facts();
        let sums = truth(row, &[weighting(Some(&n), &facts)]).sums;
        RowBound::new(Some(&n), &facts, &sums, 0).o(0, 60000.0)
    };
    assert!(matches!(judge("", &row), Bound::Within(_)));
    row.k.extend(row.k.clone());
    row.v.extend(row.v.clone());
    assert!(matches!(judge("value.acc=f16", &row), Bound::OutOfRange(reason) if reason.contains("value.acc")));
    assert!(
        matches!(judge("softmax.rescale=threshold(12) probs.dtype=f16", &row), Bound::OutOfRange(reason) if reason.contains("probs.dtype"))
    );
    let lost = |changes: &str| matches!(judge(changes, &row), Bound::OutOfRange(reason) if reason.contains("max_init"));
    // A row sum of weights of e^-30 is 0 in f16.
    assert!(lost("softmax.max_init=500") && !lost("softmax.max_init=30"));
    assert!(lost("softmax.max_init=30 rowsum.acc=f16") && lost("softmax.max_init=30 rowsum.of=rounded_p probs.dtype=f16"));
    assert!(!lost("softmax.max_init=30 probs.dtype=f16"));
    row.v.iter_mut().for_each(|v| v.fill(65520.0));
    let n = base();
    let facts = row.facts();
    let sums = truth(&row, &[weighting(Some(&n), &facts)]).sums;
    assert!(
        matches!(RowBound::new(Some(&n), &facts, &sums, 0).o(0, 65520.0), Bound::OutOfRange(reason) if reason.contains("output"))
    );
    row.q.iter_mut().for_each(|x| *x = 300.0);
    row.k.iter_mut().flatten().for_each(|x| *x = 300.0);
    row.softcap = None;
    assert!(matches!(judge("score.acc=f16", &row), Bound::OutOfRange(reason) if reason.contains("score.acc")));
}
