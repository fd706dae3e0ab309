use super::*;
use crate::source::Choices;
use crate::subject::Subject;
use crate::subject::attention::capabilities::{Capabilities, Form};
use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::{CapturedShape, Hints, Profile, draw};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::pin::Pins;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{
    Anchor, Attention, Cache, Case, ContextParallel, Request, Sequence, Shards, Side, TrainLayout, validate,
};
use std::sync::Arc;

/// Writes zeros, and says that it can do so much.
struct Zeros {
    can: Capabilities,
    numerics: Numerics,
}

fn zeros(outputs: Outputs<'_>) -> Result<(), KernelError> {
    outputs.o.bits.fill(0);
    outputs.lse.bits.fill(0);
    Ok(())
}

impl AttentionKernel for Zeros {
    fn identity(&self) -> Identity {
        Identity::cpu("zeros", "1")
    }
    fn numerics(&self) -> Option<Numerics> {
        Some(self.numerics)
    }
    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }
    fn context_parallel(&self) -> bool {
        true
    }
    fn varlen(&self, _: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        zeros(outputs)
    }
    fn dense(&self, _: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        zeros(outputs)
    }
    fn paged(&self, _: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        zeros(outputs)
    }
}

fn kernel(name: &str) -> Reference {
    Reference::parse(name).expect("a kernel")
}

fn attention(name: &str, can: &Capabilities) -> Attention {
    let zeros = || Implementation::kernel(Arc::new(Zeros { can: can.clone(), numerics: kernel(name).numerics }));
    Attention::of(Pair { train: zeros(), infer: zeros(), oracle: Mode::Off, captured: None, witness: false })
}

/// One sequence after another: rows and positions; a causal mask, one step each, contiguous, dense without padding.
fn case(lengths: &[(u32, u32)]) -> Case {
    let mut case = draw(&mut Choices::replay(Vec::new()), Profile::Quick, &Hints::default());
    let problem = &mut case.problem;
    problem.mask.causal = Some(Anchor::BottomRight);
    problem.sequences = (0..).zip(lengths).map(|(id, &(q, kv))| Sequence { id, q, kv }).collect();
    let request = |q: u32| Request { hit: 0, join: 0, chunks: Vec::new(), then: q.max(1), reject: 0, preempt: None };
    case.infer.requests = lengths.iter().map(|&(q, _)| request(q)).collect();
    case.train.order = (0..lengths.len() as u32).collect();
    case.infer.order = case.train.order.clone();
    case
}

/// What a kernel's runs of a case have.
fn reached(name: &str, case: &Case) -> Vec<PlanFeature> {
    validate(case).expect("a valid case");
    let side = || Implementation::reference(kernel(name));
    let pair = Pair { train: side(), infer: side(), oracle: Mode::Off, captured: None, witness: false };
    let verdict = pair.check(&Trial::new(case.clone(), Checks::Turn(0)), &mut pair.scratch());
    PlanFeature::ALL.into_iter().filter(|it| it.is_in(verdict.reach)).collect()
}

/// Each change of a plain case, and exactly what it adds.
#[test]
fn a_feature_counts_where_a_run_had_it_and_nowhere_else() {
    use PlanFeature::*;
    let paged = |page, spare, recycled| Cache::Paged { page, spare, shuffle: 0, recycled };
    let left = |pad_kv| TrainLayout::Dense { side: Side::Left, pad_q: 0, pad_kv };
    let ranks = ContextParallel { ranks: 2, shards: Shards::Contiguous, length: 4 };
    type Change<'c> = &'c dyn Fn(&mut Case);
    type Row<'c> = (&'c str, &'c str, &'c [(u32, u32)], Change<'c>, &'c [PlanFeature]);
    let plain: Change<'_> = &|_| {};
    let table: &[Row<'_>] = &[
        ("nothing", "aligned", &[(8, 8)], plain, &[]),
        ("a hit", "aligned", &[(8, 8)], &|it| it.infer.requests[0].hit = 3, &[PrefixHit]),
        (
            "a hit that the window hides",
            "aligned,softmax.block=1",
            &[(8, 8)],
            &|it| (it.infer.requests[0].hit, it.problem.mask.window_left) = (3, Some(0)),
            &[],
        ),
        (
            "chunks",
            "aligned",
            &[(8, 8)],
            &|it| (it.infer.requests[0].chunks, it.infer.requests[0].then) = (vec![4], 4),
            &[SecondChunk],
        ),
        ("decode", "aligned", &[(8, 8)], &|it| (it.infer.requests[0].chunks, it.infer.requests[0].then) = (vec![4], 1), &[]),
        ("two splits", "aligned,grid.split=fixed_size:4", &[(1, 8)], plain, &[Split]),
        ("one split", "aligned,grid.split=fixed_size:4", &[(1, 4)], plain, &[]),
        ("no mask", "aligned,grid.split=fixed_size:4", &[(2, 8)], &|it| it.problem.mask.causal = None, &[Split]),
        ("first rows", "aligned,grid.split=fixed_size:4", &[(8, 8)], plain, &[Split, EmptySplit]),
        ("splits to spare", "aligned,softmax.block=4,grid.split=fixed_count:4", &[(1, 5)], plain, &[Split, EmptySplit]),
        ("one of four", "aligned,softmax.block=4,grid.split=fixed_count:4", &[(1, 3)], plain, &[EmptySplit]),
        ("at the cache", "aligned,grid.split=cache_boundary", &[(8, 8)], &|it| it.infer.requests[0].hit = 3, &[PrefixHit, Split]),
        ("ranks are no splits", "fixed-split", &[(1, 8)], &|it| it.infer.context = Some(ranks), &[]),
        ("a page ahead", "aligned", &[(8, 8)], &|it| it.infer.cache = paged(4, 1, false), &[SparePage]),
        ("full pages", "aligned", &[(8, 8)], &|it| it.infer.cache = paged(4, 0, true), &[]),
        ("a tail", "aligned", &[(7, 7)], &|it| it.infer.cache = paged(4, 0, true), &[RaggedPage]),
        (
            "a page of the one before",
            "aligned",
            &[(8, 8), (5, 5)],
            &|it| (it.infer.cache, it.infer.requests[1].join) = (paged(8, 0, true), 3),
            &[RecycledPage, RaggedPage, Company],
        ),
        (
            "a page of the one before, wiped",
            "aligned",
            &[(8, 8), (5, 5)],
            &|it| (it.infer.cache, it.infer.requests[1].join) = (paged(8, 0, false), 3),
            &[RaggedPage, Company],
        ),
        ("padding", "aligned", &[(8, 8)], &|it| it.train.layout = left(2), &[LeftPadding]),
        ("left without padding", "aligned", &[(8, 8)], &|it| it.train.layout = left(0), &[]),
        ("a window", "aligned", &[(8, 8)], &|it| it.problem.mask.window_left = Some(3), &[WindowInBlock]),
        ("a window of all", "aligned", &[(8, 8)], &|it| it.problem.mask.window_left = Some(7), &[]),
        ("blocks of a key", "aligned,softmax.block=1", &[(8, 8)], &|it| it.problem.mask.window_left = Some(3), &[]),
        ("at a block", "aligned,softmax.block=4", &[(1, 8)], &|it| it.problem.mask.window_left = Some(3), &[]),
        ("beside it", "aligned,softmax.block=4", &[(1, 8)], &|it| it.problem.mask.window_left = Some(2), &[WindowInBlock]),
        (
            "to the right",
            "aligned,softmax.block=4",
            &[(8, 8)],
            &|it| (it.problem.mask.causal, it.problem.mask.window_right) = (None, Some(1)),
            &[WindowInBlock],
        ),
        ("no rows", "aligned", &[(8, 8), (0, 4)], plain, &[ZeroLength]),
        ("no keys", "aligned", &[(1, 0), (8, 8)], plain, &[ZeroLength, Company]),
        ("nothing but nothing", "aligned", &[(1, 0)], plain, &[]),
        (
            "pages lost",
            "aligned",
            &[(8, 8)],
            &|it| it.infer.requests[0] = Request { chunks: vec![4], then: 1, preempt: Some(2), ..it.infer.requests[0].clone() },
            &[Preempt],
        ),
        ("too late to lose them", "aligned", &[(8, 8)], &|it| it.infer.requests[0].preempt = Some(1), &[]),
        (
            "drafts",
            "aligned",
            &[(8, 8)],
            &|it| it.infer.requests[0] = Request { chunks: vec![2], then: 3, reject: 1, ..it.infer.requests[0].clone() },
            &[SecondChunk, Verify],
        ),
        ("a neighbour", "aligned", &[(4, 4), (4, 4)], plain, &[Company]),
        ("a bucket", "aligned", &[(8, 8)], &|it| it.infer.bucket = 2, &[Bucket]),
        ("refused", "aligned,declared.anchor=top_left", &[(8, 8)], &|it| it.infer.bucket = 2, &[]),
    ];
    for &(what, name, lengths, change, expected) in table {
        let mut case = case(lengths);
        change(&mut case);
        assert_eq!(reached(&format!("ref:{name}"), &case), expected, "{what}");
    }
    let all: Vec<PlanFeature> = table.iter().flat_map(|row| row.4).copied().collect();
    assert!(PlanFeature::ALL.iter().all(|it| all.contains(it)), "each is in the table");
}

/// Cases of a campaign until all that is asked has come, at most so many; and what came.
fn campaign(attention: &Attention, seed: u64, most: u64, stop: bool) -> (u64, ReachCounts) {
    let (asked, mut scratch, mut counts) = (attention.asked(), attention.scratch(), ReachCounts::default());
    for index in 0..most {
        counts.add(attention.check(&attention.draw(seed, index), &mut scratch).reach);
        if stop && asked.missing(&counts).is_empty() {
            return (index + 1, counts);
        }
    }
    (most, counts)
}

/// A campaign that is too short is no pass, so the usual ones must be long enough: a few hundred cases, whatever the seed.
#[test]
fn all_that_is_asked_comes_within_a_few_hundred_cases() {
    for (name, profile, most) in [
        ("ref:aligned", Profile::Quick, 300),
        ("ref:aligned", Profile::Mixed, 300),
        ("ref:aligned", Profile::Long, 300),
        ("ref:fixed-split", Profile::Mixed, 300),
        ("ref:aligned,grid.split=fixed_count:4", Profile::Mixed, 300),
        ("ref:aligned,grid.split=cache_boundary", Profile::Mixed, 300),
        ("ref:flash-decoding", Profile::Mixed, 1_000),
    ] {
        let attention = Attention { profile, ..attention(name, &Capabilities::default()) };
        let cases: Vec<u64> = (1..=20).map(|seed| campaign(&attention, seed, most + 1, true).0).collect();
        println!("{name}, {profile}: {cases:?}");
        assert!(cases.iter().all(|&cases| cases <= most), "{name}, {profile}: {cases:?}");
    }
}

/// What kernels cannot have is not asked of them, what they can have comes.
#[test]
fn asked_is_what_can_come() {
    let forms = |forms: &[Form]| Capabilities { forms: Some(forms.to_vec()), ..Capabilities::default() };
    let without = |feature: Feature| {
        let features = Feature::ALL.into_iter().filter(|&it| it != feature).collect();
        Capabilities { features: Some(features), ..Capabilities::default() }
    };
    let rows = |most: u32| Capabilities { max_rows: Some(most), ..Capabilities::default() };
    let free = Pins::default;
    let pin = |text: &str| text.parse::<Pins>().expect("pins");
    let even = |list: &[Form]| Capabilities { no_ragged: true, ..forms(list) };
    let table: Vec<(&str, &str, Capabilities, Pins)> = vec![
        ("everything", "ref:aligned", Capabilities::default(), free()),
        ("splits", "ref:aligned,grid.split=fixed_size:8", Capabilities::default(), free()),
        ("splits, no window, no mask", "ref:aligned,grid.split=fixed_size:8", without(Feature::Window), pin("causal=none")),
        (
            "a count of splits, no mask",
            "ref:aligned,softmax.block=8,grid.split=fixed_count:3",
            without(Feature::Window),
            pin("causal=none"),
        ),
        ("splits at the cache", "ref:aligned,grid.split=cache_boundary", Capabilities::default(), free()),
        ("splits at the cache, no window", "ref:aligned,grid.split=cache_boundary", without(Feature::Window), free()),
        ("splits in no cache", "ref:aligned,grid.split=cache_boundary", Capabilities::default(), pin("causal=none")),
        ("splits beyond all lengths", "ref:aligned,grid.split=fixed_size:100000", Capabilities::default(), free()),
        ("one multiprocessor", "ref:aligned,grid.split=rule:occupancy:1", Capabilities::default(), free()),
        ("blocks of a key", "ref:aligned,softmax.block=1", Capabilities::default(), free()),
        ("no causal mask", "ref:aligned", without(Feature::Causal), free()),
        ("no window", "ref:aligned", without(Feature::Window), free()),
        ("top left", "ref:aligned", Capabilities::default(), pin("causal=top_left")),
        ("varlen and pages", "ref:aligned", forms(&[Form::Varlen, Form::Paged]), free()),
        ("dense and contiguous", "ref:aligned", forms(&[Form::DenseRight, Form::Contiguous]), free()),
        ("left and contiguous", "ref:aligned", forms(&[Form::DenseLeft, Form::Contiguous]), free()),
        ("pages of 1", "ref:aligned", Capabilities { page_sizes: Some(vec![1]), ..Capabilities::default() }, free()),
        ("pages of 16", "ref:aligned", Capabilities { page_sizes: Some(vec![16]), ..Capabilities::default() }, free()),
        ("no empty rows", "ref:aligned", Capabilities { no_empty_rows: true, ..Capabilities::default() }, free()),
        ("no empty sequences", "ref:aligned", Capabilities { no_empty_sequences: true, ..Capabilities::default() }, free()),
        ("even", "ref:aligned", even(&Form::ALL), free()),
        ("even and dense", "ref:aligned", even(&[Form::DenseLeft, Form::Paged]), free()),
        ("even and contiguous", "ref:aligned", even(&[Form::Varlen, Form::Contiguous]), free()),
        ("one row", "ref:aligned", rows(1), free()),
        ("two rows", "ref:aligned", rows(2), free()),
        ("three rows", "ref:aligned", rows(3), free()),
        ("40 rows", "ref:aligned,grid.split=fixed_size:16", rows(40), free()),
    ];
    let mut wrong = Vec::new();
    for (what, name, can, pins) in table {
        let attention = Attention { profile: Profile::Quick, pins, ..attention(name, &can) };
        attention.start().expect(what);
        let (_, counts) = campaign(&attention, 1, 1_500, false);
        let asked = attention.asked();
        for feature in PlanFeature::ALL {
            let (came, reason) = (feature.count(&counts), asked.reason_against(feature));
            if (came > 0) != reason.is_none() {
                wrong.push(format!("{what}: {feature} in {came} cases, not asked for want of {reason:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Captured sequences are as long and as many as they are.
#[test]
fn asked_of_captured_sequences_is_what_they_can_have() {
    for (lengths, want) in [(&[9][..], "a second sequence"), (&[1, 1], "sequences of 2 positions"), (&[20, 156, 5], "")] {
        let shape = CapturedShape {
            sha256: "ab".repeat(32),
            lengths: lengths.to_vec(),
            kv_heads: 1,
            groups: 1,
            d_qk: 2,
            d_v: 2,
            softmax_scale: 1.0,
        };
        let hints = Hints { captured: Some(&shape), ..Hints::default() };
        let asked = Asked::of(Profile::Mixed, &hints, &[kernel("ref:fixed-split").numerics]);
        let reason = |it: PlanFeature| asked.reason_against(it).unwrap_or_default().to_owned();
        assert_eq!(
            reason(PlanFeature::Company),
            if lengths.len() > 1 { "" } else { "a second sequence in the captured tensors" }
        );
        assert_eq!(reason(PlanFeature::Preempt).is_empty(), lengths != [1, 1]);
        assert_eq!(reason(PlanFeature::Split).is_empty(), lengths == [20, 156, 5]);
        let all: String = PlanFeature::ALL.map(reason).concat();
        assert!(all.contains(want), "{all}");
    }
}

/// Head-parallel ranks repeat what the first does, and are not taken for a request that begins again.
#[test]
fn ranks_are_no_preemption() {
    let mut case = case(&[(8, 8)]);
    case.problem.kv_head_ids = vec![0, 1];
    (case.train.head_ranks, case.infer.head_ranks) = (2, 2);
    assert_eq!(reached("ref:aligned", &case), []);
}
