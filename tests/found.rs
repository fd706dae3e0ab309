//! Planted differences between two kernels, and planted errors on both sides, are found, named and made as small as they can be.

mod harness;

use harness::{cause_of, first, references, shrunk};
use lastbit::finding::{Axis, Finding, Kind};
use lastbit::lab::{Campaign, Flow, Length, Statistics, run};
use lastbit::number::Dtype;
use lastbit::subject::attention::cause::CauseKind::{self, Blocking, Order, Precision, Semantics};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::trial::Trial;

/// `ref:aligned` against another kernel: found, named, and shrunk to one sequence and one head.
struct Planted {
    infer: &'static str,
    cause: CauseKind,
    /// Cases within which it must be found, for each output format.
    within: u64,
    /// The smallest kv at which any case can show it in `o`.
    kv: u32,
    /// Keys above the minimum that greedy shrinking may leave in f32, and in 16-bit outputs.
    slack: [u32; 2],
    /// Only cases without sinks.
    no_sinks: bool,
}

fn longest(trial: &Trial) -> (u32, u32) {
    let sequences = &trial.case.problem.sequences;
    (sequences.iter().map(|it| it.q).max().unwrap_or(0), sequences.iter().map(|it| it.kv).max().unwrap_or(0))
}

fn check(planted: &Planted) {
    let attention = references("ref:aligned", planted.infer, Mode::Off);
    for out_dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
        let name = format!("{} in {out_dtype}", planted.infer);
        let found = first(&attention, planted.within, |trial, finding| {
            let problem = &trial.case.problem;
            let fits = problem.out_dtype == out_dtype && !(planted.no_sinks && problem.sinks.is_some());
            fits && finding.signature() == "mismatch o"
        });
        let found = found.unwrap_or_else(|| panic!("{name}: not found in {} cases", planted.within));
        let small = shrunk(&attention, &found);
        let problem = &small.trial.case.problem;
        let (q, kv) = longest(&small.trial);
        let cause = cause_of(&attention, &small.trial).unwrap_or_else(|| panic!("{name}: no cause"));
        println!("{name}: case {}, {} evaluations, q {q} kv {kv}: {cause}", found.index, small.evaluations);
        assert_eq!(cause.kind, planted.cause, "{name}: {cause}");
        assert_eq!((problem.sequences.len(), problem.q_heads(), q), (1, 1, 1), "{name}");
        let slack = planted.slack[usize::from(out_dtype != Dtype::F32)];
        let allowed = planted.kv..=planted.kv + slack;
        assert!(allowed.contains(&kv), "{name}: kv {kv}, allowed {allowed:?}");
    }
}

macro_rules! planted {
    ($($name:ident: $infer:literal, $cause:ident, within $within:literal, kv $kv:literal + $slack:expr $(, $no_sinks:ident)?;)+) => {
        $(#[test]
        fn $name() {
            let no_sinks = [$(stringify!($no_sinks)),*].contains(&"no_sinks");
            check(&Planted { infer: $infer, cause: $cause, within: $within, kv: $kv, slack: $slack, no_sinks });
        })+
    };
}

// The smallest kv that can show it, and what greedy shrinking may leave above it.
//
// A block boundary shows once a second block has a key, so at min(block, 64) + 1; blocks of 1 only at 3, because with two keys the
// first block's weight is exactly 1. A split shows with its second part, or at once where a sink is merged as one more part. One
// key has the weight 1, exact in every format, so precision before the weights shows at 2; a bf16 accumulator rounds a single
// value that has more bits. A top-left anchor loses the last key of two, a window of 0 gains one of two, a window that counts
// the row itself loses the only key. Slack: in 16-bit outputs the least lengths show only on rare values, which the redraws of
// a shrink step need not hit.
planted! {
    block_1: "ref:aligned,softmax.block=1", Blocking, within 100, kv 3 + [0, 1];
    block_2: "ref:aligned,softmax.block=2", Blocking, within 100, kv 3 + [0, 1];
    block_3: "ref:aligned,softmax.block=3", Blocking, within 100, kv 4 + [0, 0];
    block_4: "ref:aligned,softmax.block=4", Blocking, within 100, kv 5 + [0, 0];
    block_8: "ref:aligned,softmax.block=8", Blocking, within 100, kv 9 + [0, 0];
    block_16: "ref:aligned,softmax.block=16", Blocking, within 100, kv 17 + [0, 1];
    block_32: "ref:aligned,softmax.block=32", Blocking, within 100, kv 33 + [0, 0];
    block_48: "ref:aligned,softmax.block=48", Blocking, within 100, kv 49 + [0, 0];
    block_63: "ref:aligned,softmax.block=63", Blocking, within 100, kv 64 + [0, 0];
    block_65: "ref:aligned,softmax.block=65", Blocking, within 100, kv 65 + [0, 0];
    block_128: "ref:aligned,softmax.block=128", Blocking, within 100, kv 65 + [0, 0];
    block_whole: "ref:aligned,softmax.block=whole", Blocking, within 100, kv 65 + [0, 0];
    fixed_split: "ref:fixed-split,grid.context=all_gather", Order, within 100, kv 65 + [0, 0], no_sinks;
    p_bf16: "ref:p-bf16", Precision, within 100, kv 2 + [0, 0];
    acc_bf16: "ref:acc-bf16", Precision, within 100, kv 1 + [1, 1];
    scores_bf16: "ref:scores-bf16", Precision, within 100, kv 2 + [0, 0];
    folded_log2e: "ref:folded-log2e", Precision, within 100, kv 2 + [0, 1];
    anchor_top_left: "ref:aligned,actual.anchor=top_left", Semantics, within 100, kv 2 + [0, 0];
    window_one_more: "ref:aligned,actual.window=one_more", Semantics, within 100, kv 2 + [0, 0];
    window_counts_self: "ref:aligned,actual.window=counts_self", Semantics, within 100, kv 1 + [0, 0];
}

/// sglang#10721: the split grid starts at the first uncached token, so a prefix hit moves every split.
#[test]
fn uncached_split_against_itself() {
    let attention = references("ref:uncached-split", "ref:uncached-split", Mode::Off);
    let on_prefix = |finding: &Finding| matches!(finding, Finding::NotInvariant { axis: Axis::Prefix, .. });
    let found = first(&attention, 400, |trial, finding| on_prefix(finding) && trial.case.problem.sinks.is_none());
    let small = shrunk(&attention, &found.expect("a finding on prefix"));
    assert!(on_prefix(&small.finding));
    let (q, kv) = longest(&small.trial);
    let cause = cause_of(&attention, &small.trial).expect("a cause");
    println!("uncached-split: {} evaluations, q {q} kv {kv}: {cause}", small.evaluations);
    assert_eq!(cause.kind, Order, "{cause}");
    let problem = &small.trial.case.problem;
    assert_eq!((problem.sequences.len(), problem.q_heads()), (1, 1));
    // One row hit, one computed: three keys, split after two, against all in one.
    assert_eq!(q, 2);
    assert_eq!(kv, 3);
}

/// Errors on both sides alike: no comparison of the two can see them.
#[test]
fn the_same_error_on_both_sides() {
    for (kernel, within) in [
        ("ref:p-bf16,profile=aligned", 100),
        ("ref:acc-bf16,profile=aligned", 100),
        ("ref:aligned,rowsum.acc=f16,profile=aligned", 100),
        ("ref:aligned,score.store=f16,profile=aligned", 100),
        ("ref:scores-bf16,profile=aligned", 100),
        ("ref:aligned,actual.anchor=strict,profile=aligned", 100),
    ] {
        let attention = references(kernel, kernel, Mode::Enclosure);
        let found = first(&attention, within, |_, finding| finding.kind() == Kind::Inaccurate);
        let found = found.unwrap_or_else(|| panic!("{kernel}: not found in {within} cases"));
        let small = shrunk(&attention, &found);
        let cause = cause_of(&attention, &small.trial).unwrap_or_else(|| panic!("{kernel}: no cause"));
        let (q, kv) = longest(&small.trial);
        println!("{kernel}: case {}, {} evaluations, q {q} kv {kv}: {cause}", found.index, small.evaluations);
        let expected = if kernel.contains("strict") { Semantics } else { Precision };
        assert_eq!(cause.kind, expected, "{kernel}: {cause}");
        assert_eq!((small.trial.case.problem.sequences.len(), small.trial.case.problem.q_heads()), (1, 1), "{kernel}");
    }
}

/// `aligned` against itself: the harness raises no false alarm, and most of these matches could have failed.
#[test]
fn the_clean_pair_is_quiet() {
    let mut attention = references("ref:aligned", "ref:aligned", Mode::Enclosure);
    attention.pair.witness = true;
    let mut statistics = Statistics::default();
    run(&attention, Campaign { seed: 2, first: 0, length: Length::Cases(2000), jobs: 2 }, |done| {
        assert_eq!(done.verdict.findings, [], "case {}", done.index);
        statistics.add(&done.verdict, done.trial.case.problem.out_dtype, 0);
        Flow::Continue
    });
    println!("{statistics:?}");
    assert_eq!((statistics.cases, statistics.matches + statistics.empty), (2000, 2000));
    for (dtype, it) in &statistics.sensitivity {
        assert!(it.capable > 100 && it.sensitive * 10 >= it.capable * 6, "{dtype}: {it:?}");
    }
    assert_eq!(statistics.sensitivity.len(), 3);
}
