//! The smallest cases of public bug reports: the reference is right on each, and the kernel made to lie, or the numerics that
//! caused the report, is wrong in the reported way.

use super::setup::{Setup, Step, causal};
use lastbit::number::Dtype;
use lastbit::subject::attention::explain::{Divergence, Names, Steps};
use lastbit::subject::attention::kernel::{AttentionKernel, KernelError};
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::{Anchor, Mask};

fn kernel(name: &str) -> Reference {
    Reference::parse(name).unwrap()
}

fn aligned() -> Reference {
    Reference::default()
}

/// Output lanes of row 0 of one head, as numbers.
fn row(setup: &Setup, kernel: &Reference, row: usize) -> Vec<f32> {
    setup.varlen(kernel).o[row].iter().map(|&bits| setup.out.to_f32(bits)).collect()
}

fn one_hot(q: u32, kv: u32) -> Setup {
    let lanes = kv as usize;
    let v: Vec<f32> = (0..lanes * lanes).map(|n| f32::from(u8::from(n / lanes == n % lanes))).collect();
    Setup { mask: causal(), ..Setup::zeros(q, kv, lanes, &v) }
}

/// cutlass#2336, mlx#2835: row i of q sees keys to i + kv - q, not to i.
#[test]
fn causal_anchor() {
    let mut setup = Setup { mask: causal(), ..Setup::zeros(1, 2, 1, &[1.0, 3.0]) };
    assert_eq!(row(&setup, &aligned(), 0), [2.0]);
    assert_eq!(row(&setup, &kernel("ref:aligned,actual.anchor=top_left"), 0), [1.0]);
    assert_eq!(row(&setup, &kernel("ref:aligned,actual.anchor=strict"), 0), [1.0]);
    setup.mask.causal = Some(Anchor::TopLeft);
    assert_eq!(row(&setup, &aligned(), 0), [1.0]);
    assert_eq!(row(&setup, &kernel("ref:aligned,actual.anchor=bottom_right"), 0), [2.0]);
}

/// A declared convention that the case does not ask for is refused, not computed.
#[test]
fn declared_conventions_are_refused_where_they_matter() {
    let mut setup = Setup { mask: causal(), ..Setup::zeros(1, 2, 1, &[1.0, 3.0]) };
    let refused = |setup: &Setup, name: &str| match setup.try_varlen(&kernel(name)) {
        Err(KernelError::Unsupported(reason)) => Some(reason),
        Err(error) => panic!("{error:?}"),
        Ok(_) => None,
    };
    let reason = refused(&setup, "ref:aligned,declared.anchor=top_left").unwrap();
    assert_eq!(reason, "declares anchor top_left; the case asks bottom_right");
    assert_eq!(refused(&setup, "ref:aligned,declared.anchor=bottom_right"), None);
    for (field, value) in [("window", "one_more"), ("alibi", "key_index"), ("sink_in_lse", "no"), ("cap_order", "bias_then_cap")]
    {
        assert_eq!(refused(&setup, &format!("ref:aligned,declared.{field}={value}")), None);
    }
    setup.mask.window_left = Some(1);
    setup.slopes = Some(vec![1.0]);
    setup.sinks = Some(vec![1.0]);
    setup.softcap = Some(1.0);
    for (field, value) in [("window", "one_more"), ("alibi", "key_index"), ("sink_in_lse", "no"), ("cap_order", "bias_then_cap")]
    {
        let reason = refused(&setup, &format!("ref:aligned,declared.{field}={value}")).unwrap();
        assert!(reason.contains(value), "{reason}");
    }
    setup.mask.causal = None;
    assert!(refused(&setup, "ref:aligned,declared.anchor=top_left").is_none());
    assert_eq!(kernel("ref:aligned,declared.anchor=top_left").conventions().anchor.to_string(), "top_left");
}

/// FlashAttention 3 keeps keys and values as stored: the scales go into the softmax scale and the final normalisation. Where they
/// are not powers of two, that rounds elsewhere than a multiplication on load.
#[test]
fn scales_on_load_and_folded() {
    let fp8 = Some((Dtype::E4M3, vec![0.3], vec![0.7]));
    let setup = Setup { q: vec![1.1], k: vec![1.5, 0.5], v: vec![1.75, 3.5], fp8, ..Setup::zeros(1, 2, 1, &[0.0; 2]) };
    let (k, v) = ([1.5f32, 0.5], [1.75f32, 3.5]);
    let finish = |s: [f32; 2], v: [f32; 2]| {
        let max = s[0].max(s[1]);
        let w = s.map(|s| core_math::expf(s - max));
        (w[0] * v[0] + w[1] * v[1], w[0] + w[1], max)
    };
    let (acc, l, max) = finish(k.map(|k| 1.1 * (k * 0.3)), v.map(|v| v * 0.7));
    let got = setup.varlen(&aligned());
    assert_eq!((got.value(0, 0), got.lse(0, 0)), (acc / l, max + core_math::logf(l)));
    let (acc, l, max) = finish(k.map(|k| 1.1 * k * 0.3), v);
    for (name, o) in [("divide", acc / l * 0.7), ("reciprocal", acc * (1.0 / l * 0.7))] {
        let got = setup.varlen(&kernel(&format!("ref:aligned,kv.descale=folded,finish={name}")));
        assert_eq!((got.value(0, 0), got.lse(0, 0)), (o, max + core_math::logf(l)), "{name}");
    }
    // One key: the weight is 1 whatever the score is.
    let setup = Setup { k: vec![1.5], q: vec![1.1], v: vec![1.75], ..Setup { fp8: setup.fp8, ..Setup::zeros(1, 1, 1, &[0.0]) } };
    let raw = setup.varlen(&kernel("ref:aligned,kv.descale=folded,score.scale=folded_log2e"));
    assert_eq!((raw.value(0, 0), raw.lse(0, 0)), (1.75 * 0.7, 1.1 * 1.5 * 0.3));
    let ignored = setup.varlen(&kernel("ref:aligned,actual.kv_scales=ignored"));
    assert_eq!((ignored.value(0, 0), ignored.lse(0, 0)), (1.75, 1.1 * 1.5));
    assert!(setup.try_varlen(&kernel("ref:aligned,declared.kv_scales=ignored")).is_err());
}

/// A key's scale times the softmax scale may underflow to 0. The first maximum is taken all the same: a lazy rescale that compared
/// its distance from -inf, times 0, would never move from there.
#[test]
fn a_folded_scale_that_underflows_keeps_the_first_maximum() {
    let fp8 = Some((Dtype::E4M3, vec![1e-30], vec![1.0]));
    let setup =
        Setup { q: vec![1.0], k: vec![1.5, 0.5], v: vec![1.0, 3.0], scale: 1e-30, fp8, ..Setup::zeros(1, 2, 1, &[0.0; 2]) };
    for block in ["whole", "1"] {
        for rescale in ["always", "threshold(8)"] {
            let name = format!("ref:fa2,kv.descale=folded,softmax.rescale={rescale},softmax.block={block}");
            let got = setup.varlen(&kernel(&name));
            assert_eq!((got.value(0, 0), got.lse(0, 0)), (2.0, 2f32.ln()), "{name}");
        }
    }
}

/// transformers#39408, onnxruntime#25927: a window of W keys counts the row itself.
#[test]
fn window_off_by_one() {
    let mut setup = one_hot(4, 4);
    setup.mask.window_left = Some(1);
    let visible = |name: &str| -> Vec<usize> {
        (0..4).map(|i| row(&setup, &kernel(name), i).iter().filter(|&&p| p != 0.0).count()).collect()
    };
    assert_eq!(visible("ref:aligned"), [1, 2, 2, 2]);
    assert_eq!(visible("ref:aligned,actual.window=counts_self"), [1, 1, 1, 1]);
    assert_eq!(visible("ref:aligned,actual.window=one_more"), [1, 2, 3, 3]);
    setup.mask.window_left = Some(0);
    let results = setup.varlen(&kernel("ref:aligned,actual.window=counts_self"));
    assert!((0..4).all(|i| results.lse(i, 0) == f32::NEG_INFINITY && results.o[i].iter().all(|&bits| bits == 0)));
}

/// TransformerEngine#3528: encodings of one key set give one result, and a row with a key never has lse = -inf.
#[test]
fn window_encodings() {
    let mut setup = one_hot(5, 5);
    let open = setup.varlen(&aligned());
    for left in [4, 5, 6, u32::MAX] {
        setup.mask.window_left = Some(left);
        assert_eq!(setup.varlen(&aligned()), open, "left {left}");
    }
    setup.mask.window_left = Some(0);
    let own = setup.varlen(&aligned());
    for i in 0..5 {
        assert_eq!((own.value(i, i), own.lse(i, 0)), (1.0, 0.0));
    }
}

/// flash-attention#2374, pegainfer#291: slots past the end and pages past the end are never read (here they hold NaN).
#[test]
fn dead_slots_and_pages() {
    for kv in 1..=50 {
        let v: Vec<f32> = (0..kv).map(|n| n as f32 + 0.1).collect();
        let setup = Setup { mask: causal(), ..Setup::zeros(1, kv, 1, &v) };
        let packed = setup.varlen(&aligned());
        for page in [0, 16] {
            let step = Step { sequence: 0, first: 0, rows: 1, kv, prefix: 0 };
            assert_eq!(setup.paged(&aligned(), step, page).0, packed, "kv {kv}, pages of {page}");
        }
    }
}

/// llama.cpp#29034: padding lanes must not join the row sum as -cap.
#[test]
fn softcap_with_a_ragged_tail() {
    for block in [4, 64] {
        let setup = Setup { softcap: Some(2.0), ..Setup::zeros(1, block + 1, 1, &vec![1.0; block as usize + 1]) };
        assert_eq!(row(&setup, &kernel(&format!("ref:aligned,softmax.block={block}")), 0), [1.0]);
    }
}

/// keras-hub#2861: ALiBi must not vanish in decode; the other form has the same weights and another lse.
#[test]
fn alibi_in_decode() {
    let mut setup = one_hot(1, 2);
    setup.slopes = Some(vec![1.0]);
    let near = |a: f32, b: f32| (a - b).abs() < 1e-6;
    let right = setup.varlen(&aligned());
    assert!(near(right.value(0, 0), 0.26894142) && near(right.value(0, 1), 0.731_058_6) && near(right.lse(0, 0), 0.313_261_7));
    let other = setup.varlen(&kernel("ref:aligned,actual.alibi=key_index"));
    assert!(near(other.value(0, 0), 0.26894142) && near(other.lse(0, 0), 1.313_261_7));
    // With a cap, the order of cap and bias shows.
    setup.softcap = Some(0.5);
    let swapped = setup.varlen(&kernel("ref:aligned,actual.cap_order=bias_then_cap"));
    assert!(!near(swapped.value(0, 0), setup.varlen(&aligned()).value(0, 0)));
}

/// HipKittens#22: each query head reads its own group's KV head, square or not.
#[test]
fn head_map() {
    for (kv_heads, group) in [(4, 2), (2, 4), (8, 4), (2, 2), (1, 3), (3, 1)] {
        let heads = kv_heads * group;
        let setup = Setup {
            sequences: vec![(1, 1)],
            kv_heads,
            group,
            q: vec![0.0; heads],
            k: vec![0.0; kv_heads],
            v: (0..kv_heads).map(|h| h as f32).collect(),
            ..Setup::default()
        };
        let expected: Vec<f32> = (0..heads).map(|h| (h / group) as f32).collect();
        assert_eq!(row(&setup, &aligned(), 0), expected);
    }
}

/// pytorch#127055: cells without a visible key before the first one with.
#[test]
fn masked_first_block() {
    let mut setup = Setup { mask: causal(), ..Setup::zeros(4, 4, 1, &[1.0, 2.0, 3.0, 4.0]) };
    setup.mask.window_left = Some(0);
    for name in [
        "ref:aligned,softmax.block=2",
        "ref:aligned,softmax.block=2,softmax.traverse=backward",
        "ref:fixed-split,softmax.block=1",
    ] {
        assert_eq!((0..4).map(|i| row(&setup, &kernel(name), i)[0]).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0]);
    }
}

/// flashinfer#4267: a finite stand-in for minus infinity clips real logits.
#[test]
fn deep_logits() {
    for level in [-1e3, -2e4, -6e4, -3e38] {
        let mut setup = Setup::zeros(2, 2, 1, &[1.0, 100.0]);
        setup.mask.causal = Some(Anchor::TopLeft);
        (setup.q, setup.k) = (vec![level, 0.0], vec![1.0, 0.0]);
        let results = setup.varlen(&aligned());
        assert_eq!((results.value(0, 0), results.lse(0, 0)), (1.0, level));
        let clipped = setup.varlen(&kernel("ref:aligned,softmax.max_init=-500"));
        assert_ne!(clipped.value(0, 0), 1.0);
    }
}

/// vllm#28181: empty splits are skipped, and a sequence without keys stays empty however it is split.
#[test]
fn empty_splits() {
    let v: Vec<f32> = (0..40).map(|n| 0.1 * n as f32).collect();
    for split in ["fixed_size(4)", "fixed_count(7)", "fixed_count(64)"] {
        for merge in ["sequential", "tree"] {
            let kernel = kernel(&format!("ref:aligned,softmax.block=4,grid.split={split},grid.merge={merge}"));
            let mut setup = Setup { mask: causal(), ..Setup::zeros(40, 40, 1, &v) };
            setup.mask.window_left = Some(2);
            let results = setup.varlen(&kernel);
            assert!((0..40).all(|i| results.value(i, 0).is_finite() && results.lse(i, 0).is_finite()));
            let empty = Setup::zeros(2, 0, 1, &[]).varlen(&kernel);
            assert_eq!((empty.value(1, 0).to_bits(), empty.lse(1, 0)), (0, f32::NEG_INFINITY));
        }
    }
}

/// flash-attention#978: a row without keys is o = 0 and lse = -inf; with a sink, lse = sink.
#[test]
fn empty_rows() {
    let mut setup = Setup { mask: causal(), ..Setup::zeros(2, 1, 1, &[5.0]) };
    let results = setup.varlen(&aligned());
    assert_eq!((results.o[0][0], results.lse(0, 0), results.value(1, 0)), (0, f32::NEG_INFINITY, 5.0));
    let infinite = setup.varlen(&kernel("ref:aligned,actual.empty_row=zero_pos_inf"));
    assert_eq!((infinite.o[0][0], infinite.lse(0, 0)), (0, f32::INFINITY));
    let nan = setup.varlen(&kernel("ref:aligned,actual.empty_row=nan"));
    assert!(nan.value(0, 0).is_nan() && nan.lse(0, 0).is_nan() && nan.value(1, 0) == 5.0);
    setup.sinks = Some(vec![0.75]);
    let with_sink = setup.varlen(&aligned());
    assert_eq!((with_sink.o[0][0], with_sink.lse(0, 0)), (0, 0.75));
}

/// imp#1303: a sink takes its share of the mass on every path; and counts in lse unless the kernel means otherwise.
#[test]
fn sinks() {
    let setup = Setup { sinks: Some(vec![0.0]), ..Setup::zeros(1, 1, 1, &[1.0]) };
    for name in ["ref:aligned", "ref:fixed-split", "ref:naive", "ref:folded-log2e", "ref:ascend-two-pass"] {
        let results = setup.varlen(&kernel(name));
        assert_eq!((results.value(0, 0), results.lse(0, 0)), (0.5, core_math::logf(2.0)), "{name}");
        let mut liar = kernel(name);
        liar.actual.set("sink_in_lse", "no").unwrap();
        assert_eq!((setup.varlen(&liar).value(0, 0), setup.varlen(&liar).lse(0, 0)), (0.5, 0.0), "{name}");
    }
    // flashinfer#4485: base 2.
    let base_two = setup.varlen(&kernel("ref:aligned,actual.lse_base=2"));
    assert_eq!(base_two.lse(0, 0), 1.0);
}

/// pytorch#121558: a fused product minus a rounded one is not zero for equal scores.
#[test]
fn fused_folded_scale() {
    let setup = Setup {
        sequences: vec![(1, 1)],
        d_qk: 64,
        scale: 0.125,
        dtype: Dtype::BF16,
        q: vec![133120.0; 64],
        k: vec![133120.0; 64],
        v: vec![133120.0],
        ..Setup::default()
    };
    assert_eq!(row(&setup, &aligned(), 0), [133120.0]);
    assert_eq!(row(&setup, &kernel("ref:folded-log2e"), 0), [133120.0]);
    assert_ne!(row(&setup, &kernel("ref:folded-log2e,score.fma=true"), 0), [133120.0]);
}

/// transformers#33317: scores kept in 16 bits tie, or overflow.
#[test]
fn sixteen_bit_scores() {
    let mut setup = Setup::zeros(1, 2, 1, &[0.0, 1.0]);
    (setup.q, setup.k) = (vec![1.0], vec![256.0, 257.0]);
    assert!((row(&setup, &aligned(), 0)[0] - 0.731_058_6).abs() < 1e-6);
    assert_eq!(row(&setup, &kernel("ref:scores-bf16"), 0), [0.5]);
    setup.k = vec![69696.0, 69696.0];
    assert_eq!(row(&setup, &aligned(), 0), [0.5]);
    assert!(row(&setup, &kernel("ref:aligned,score.store=f16"), 0)[0].is_nan());
}

/// ik_llama.cpp#1196: an f16 accumulator overflows on long rows.
#[test]
fn sixteen_bit_accumulator() {
    let setup = Setup::zeros(1, 1025, 1, &[64.0; 1025]);
    assert_eq!(row(&setup, &aligned(), 0), [64.0]);
    assert_eq!(row(&setup, &kernel("ref:aligned,value.acc=f16"), 0), [f32::INFINITY]);
}

/// The order of a sum shows: one split gives 0, two give 0.25, the exact value is 0.5. The divergence names the cut.
#[test]
fn splits_show() {
    let big = 16777216.0;
    let setup = Setup::zeros(1, 4, 1, &[big, 1.0, 1.0, -big]);
    let split = kernel("ref:fixed-split,grid.split=fixed_size(2)");
    assert_eq!((row(&setup, &aligned(), 0), row(&setup, &split, 0)), (vec![0.0], vec![0.25]));
    assert_eq!(setup.recipe(&split, 0).to_string(), "keys 0..4 in 2 splits: block 0..2; block 2..4, merged left to right");
    let fields: Vec<String> =
        setup.recipe(&aligned(), 0).differences(&setup.recipe(&split, 0)).into_iter().map(|d| d.field).collect();
    assert_eq!(fields, ["splits", "blocks", "partials"]);
    let first = |other: &Reference| {
        let [a, b] = [aligned(), other.clone()].map(|kernel| setup.trace(&kernel, 0, 0));
        Divergence::of(&a, &b, &Steps::of(&a, &b, |_| None), &Names::PATHS).unwrap()
    };
    let divergence = first(&split);
    assert_eq!(divergence.structure.unwrap(), "Training sums keys 0..4 in one split, inference splits at 2.");
    let (run, alone) = divergence.alone.unwrap();
    assert_eq!((run, alone.definition.to_string().as_str()), (0, "the maximum over keys 0..4"));
    let value = divergence.value.unwrap();
    assert_eq!(value.definition.to_string(), "the finished output, lane 0");
    assert_eq!(value.bits, [0.0f32, 0.25].map(f32::to_bits));
    let blocks = kernel("ref:aligned,softmax.block=3,value.order=pairwise");
    assert_eq!(first(&blocks).structure.unwrap(), "Training sums keys 0..4 in one block, inference cuts at 3.");
}

/// sglang#10721: with the grid from position 0 the cached prefix cannot be seen; from the uncached part it can.
#[test]
fn prefix_moves_the_grid() {
    let big = 16777216.0;
    let setup = Setup { mask: causal(), ..Setup::zeros(9, 9, 1, &[big, 1.0, 1.0, -big, 1.0, big, 1.0, -big, 1.0]) };
    let last = |name: &str, prefix: u32| {
        let step = Step { sequence: 0, first: prefix, rows: 9 - prefix, kv: 9, prefix };
        setup.paged(&kernel(name), step, 4).0.o.last().unwrap()[0]
    };
    let bits = |name: &str| (0..9).map(|prefix| last(name, prefix)).collect::<Vec<u32>>();
    let fixed = bits("ref:fixed-split,grid.split=fixed_size(4)");
    assert!(fixed.iter().all(|&bits| bits == fixed[0]));
    let moving = bits("ref:uncached-split,grid.split=fixed_size(4)");
    assert!(moving[0] == fixed[0] && moving[4] == fixed[4] && moving.iter().any(|&bits| bits != fixed[0]));
}

/// A row of negative zeros comes out as +0 in every order: accumulators start at +0.
#[test]
fn zeros_are_positive() {
    let setup = Setup::zeros(1, 7, 1, &[-0.0; 7]);
    for order in ["sequential", "lanes(4)", "pairwise", "fused(3)"] {
        let results = setup.varlen(&kernel(&format!("ref:aligned,value.order={order}")));
        assert_eq!(results.o[0][0], 0, "{order}");
    }
    let split = setup.varlen(&kernel("ref:fixed-split,grid.split=fixed_size(2)"));
    assert_eq!(split.o[0][0], 0);
    let mask = Mask::default();
    assert_eq!(setup.mask, mask);
}

/// A malformed call is an error, never a panic.
#[test]
fn malformed_calls_fail() {
    let mut setup = Setup::zeros(1, 2, 1, &[1.0, 2.0]);
    setup.sinks = Some(vec![]);
    assert!(matches!(setup.try_varlen(&aligned()), Err(KernelError::Failed(_))));
}
