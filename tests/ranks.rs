//! Parallel ranks over drawn cases: what recipes promise, what is found and what is not, and who computes what.

mod harness;

use harness::{cause_of, first, named, pair, references, shrunk};
use lastbit::finding::{Axis, Finding, Kind, Path};
use lastbit::lab::{Campaign, Flow, Length, run};
use lastbit::source::{Choose, Source, Stream};
use lastbit::subject::Subject;
use lastbit::subject::attention::cause::CauseKind;
use lastbit::subject::attention::conventions::Conventions;
use lastbit::subject::attention::draw::{Hints, Profile, draw};
use lastbit::subject::attention::drive::{NO_ROW, Observed, Observer, Poison, Produced, infer, train};
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{
    AttentionKernel, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use lastbit::subject::attention::numerics::{Numerics, Split};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::recipe::Recipe;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::trial::Checks;
use lastbit::subject::attention::{Case, ContextParallel, Inputs, Shards, validate};
use std::sync::{Arc, Mutex};

/// Splits short enough for the drawn lengths.
const SPLIT: u32 = 8;

fn drawn(index: u64) -> Case {
    let hints = Hints { granules: vec![4, SPLIT, 16], ..Hints::default() };
    draw(&mut Stream::new(31, index), Profile::Quick, &hints)
}

/// Three ranks or more for the most part: two partial results commute.
fn some_ranks(source: &mut Stream, length: u32) -> Option<ContextParallel> {
    let shards = source.pick(&[Shards::Contiguous, Shards::Zigzag]);
    Some(ContextParallel { ranks: source.pick(&[2, 3, 4, 8]), shards, length })
}

/// Results of a path, and the recipes of every production of a row, in order.
fn recorded(kernel: &Reference, case: &Case, path: Path) -> (Produced, Vec<Vec<Recipe>>) {
    let problem = &case.problem;
    let inputs = Inputs::new(case, None);
    let mut recipes = vec![Vec::new(); problem.total_q()];
    let mut observer = |Observed { call, rows, heads }: Observed<'_>| {
        // Recipes of plain numerics are those of every head.
        for (n, &row) in rows.iter().enumerate().filter(|&(_, &row)| row != NO_ROW && heads.start == 0) {
            recipes[row as usize].push(kernel.recipe(call, n).expect("a row of the call"));
        }
    };
    let observer: Observer<'_> = &mut observer;
    let produced = match path {
        Path::Train => train(kernel, problem, &case.train, &inputs, Poison::Nan, Some(observer)),
        Path::Infer => infer(kernel, problem, &case.infer, &inputs, Poison::Nan, Some(observer)),
    };
    (produced.expect("it runs"), recipes)
}

fn productions(side: &Produced, row: usize) -> Vec<[&[u32]; 2]> {
    let first = side.present[row].then(|| [side.o.row(row), side.lse.row(row)]);
    first.into_iter().chain(side.again_of(row).iter().map(|it| [&it.o[..], &it.lse[..]])).collect()
}

/// Runs cases on one rank and on several, and compares rows whose recipes are equal; gives the rows with equal and with unequal
/// recipes, and how many of the latter have other bits.
fn compare(name: &str, cases: u64, length: impl Fn(&mut Stream, &Case) -> u32) -> [u32; 3] {
    let kernel = Reference::parse(name).expect("a kernel");
    let mut counts = [0; 3];
    for index in 0..cases {
        let mut source = Stream::new(32, index);
        let mut one = drawn(index);
        (one.train.context, one.infer.context) = (None, None);
        let mut several = one.clone();
        let lengths = [length(&mut source, &one), length(&mut source, &one)];
        several.train.context = some_ranks(&mut source, lengths[0]);
        several.infer.context = some_ranks(&mut source, lengths[1]);
        validate(&several).expect("a valid case");
        for path in Path::BOTH {
            let ((base, base_recipes), (other, recipes)) = (recorded(&kernel, &one, path), recorded(&kernel, &several, path));
            assert_eq!(base.calls, other.calls);
            for row in 0..one.problem.total_q() {
                let (a, b) = (productions(&base, row), productions(&other, row));
                assert_eq!([a.len(), b.len()], [base_recipes[row].len(), recipes[row].len()]);
                for (n, (a, b)) in a.into_iter().zip(b).enumerate() {
                    let (x, y) = (&base_recipes[row][n], &recipes[row][n]);
                    if x == y {
                        counts[0] += 1;
                        assert_eq!(a, b, "{name}: case {index}, {path}, row {row}: {x}");
                    } else {
                        counts[1] += 1;
                        counts[2] += u32::from(a != b);
                    }
                }
            }
        }
    }
    println!("{name}: {} equal recipes, {} not, {} of them seen", counts[0], counts[1], counts[2]);
    counts
}

/// A length that leaves some row's keys in several chunks, if anything does.
fn any_length(source: &mut Stream, case: &Case) -> u32 {
    let longest = case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0).max(1);
    if source.chance(1, 4) { longest } else { source.range(1, longest.div_ceil(2)) }
}

#[test]
fn equal_recipes_give_equal_bits_over_ranks() {
    let [_, unequal, _] = compare("ref:aligned", 300, any_length);
    assert_eq!(unequal, 0, "aligned promises the bits of one rank");
    for name in [
        "ref:fixed-split,grid.split=fixed_size(8),grid.context=gather_partials",
        "ref:fixed-split,grid.split=fixed_size(8),grid.merge=tree,grid.context=gather_partials",
        "ref:aligned,grid.split=fixed_count(2),softmax.block=4,grid.context=gather_partials",
        "ref:fa2,softmax.block=8,grid.context=gather_partials",
        "ref:aligned,softmax.block=4,grid.context=ring_state",
        "ref:fa2,softmax.block=4,grid.context=ring_state",
        "ref:aligned,grid.context=ring_lse",
        "ref:ascend-two-pass,softmax.block=4,grid.context=ring_lse",
    ] {
        let [equal, unequal, seen] = compare(name, 300, any_length);
        assert!(equal > 1000 && unequal > 1000 && seen * 10 > unequal, "{name}: {equal}, {unequal}, {seen}");
    }
}

/// `fixed_size(n)` with every boundary a multiple of n, merged by place: the bits of one rank. One key off, and they are not.
#[test]
fn fixed_splits_hold_on_the_grid_and_only_there() {
    for merge in ["sequential", "tree"] {
        let name = format!("ref:fixed-split,grid.split=fixed_size({SPLIT}),grid.merge={merge},grid.context=gather_partials");
        let [equal, unequal, _] = compare(&name, 400, |source, _| SPLIT * source.range(1, 3));
        assert!(equal > 5000 && unequal == 0, "{name}: {unequal} rows have other recipes on the grid");
        let [_, unequal, seen] = compare(&name, 400, |source, _| SPLIT * source.range(1, 3) - 1);
        assert!(unequal > 1000 && seen > 500, "{name}: {seen} of {unequal} rows differ off the grid");
    }
}

fn is_ranks(finding: &Finding) -> bool {
    matches!(finding, Finding::NotInvariant { axis: Axis::Ranks, .. })
}

/// One kernel whose splits are fixed, with boundaries anywhere: it is not invariant to ranks, the splits are named, and the case is
/// a handful of keys.
#[test]
fn boundaries_off_the_grid_are_found() {
    let name = "ref:fixed-split,grid.context=gather_partials";
    let attention = references(name, name, Mode::Off);
    let found = first(&attention, 200, |_, finding| is_ranks(finding)).expect("a finding");
    let small = shrunk(&attention, &found);
    let cause = cause_of(&attention, &small.trial).expect("a cause");
    assert_eq!((cause.kind, cause.fields()[0].name.as_str()), (CauseKind::Order, "splits"), "{cause}");
    let problem = &small.trial.case.problem;
    assert!(problem.sequences.len() == 1 && problem.sequences[0].kv <= 4 && problem.q_heads() == 1, "{problem:?}");
}

/// The same kernel with every boundary on the splits' grid: a campaign finds nothing.
#[test]
fn boundaries_on_the_grid_are_quiet() {
    let kernel = Reference::parse("ref:fixed-split,grid.context=gather_partials").expect("a kernel");
    let Split::FixedSize(split) = kernel.numerics.grid.split else { panic!("{kernel}") };
    let attention = references(&kernel.to_string(), &kernel.to_string(), Mode::Off);
    let (mut ran, mut several) = (0, 0);
    for index in 0..300 {
        let mut trial = attention.draw(2, index);
        let case = &mut trial.case;
        for context in [&mut case.train.context, &mut case.infer.context].into_iter().flatten() {
            context.length = context.length.next_multiple_of(split);
            ran += 1;
            several += u32::from(case.problem.sequences.iter().any(|it| it.kv > context.length));
        }
        trial.checks = Checks::Only { oracle: false, pair: true, relation: None };
        let verdict = attention.check(&trial, &mut attention.scratch());
        assert_eq!(verdict.findings, [], "case {index}");
    }
    assert!(ran > 60 && several > 15, "{ran} plans with ranks, {several} with keys on more than one");
}

/// A ring against a kernel that gathers: found, and the field is named.
#[test]
fn rings_differ_from_one_rank() {
    for context in ["ring_state", "ring_lse", "gather_partials"] {
        let attention = references("ref:aligned", &format!("ref:aligned,grid.context={context}"), Mode::Off);
        let found = first(&attention, 300, |_, finding| finding.kind() == Kind::Mismatch).expect("a finding");
        let small = shrunk(&attention, &found);
        let cause = cause_of(&attention, &small.trial).expect("a cause");
        println!("{context}: case {}, {:?}: {cause}", found.index, small.trial.case.problem.sequences);
        assert_eq!((cause.kind, cause.fields()[0].name.as_str()), (CauseKind::Order, "grid.context"), "{cause}");
        assert_eq!(cause.fields()[0].values[1], context);
        assert!(small.trial.case.infer.context.is_some() && small.trial.case.train.context.is_none());
    }
}

/// `aligned` keeps its bits under every relation of ranks; each kind of relation runs.
#[test]
fn aligned_is_quiet_under_ranks() {
    let attention = references("ref:aligned", "ref:aligned", Mode::Off);
    let (mut context, mut heads) = (0, 0);
    run(&attention, Campaign { seed: 4, first: 0, length: Length::Cases(600), jobs: 2 }, |done| {
        assert_eq!(done.verdict.findings, [], "case {}", done.index);
        let case = &done.trial.case;
        context += u32::from(case.train.context.is_some() || case.infer.context.is_some());
        heads += u32::from(case.train.head_ranks > 1 || case.infer.head_ranks > 1);
        Flow::Continue
    });
    assert!(context > 120 && heads > 60, "{context} {heads}");
}

/// Query heads, KV heads and sinks of each call.
type Log = Arc<Mutex<Vec<(usize, usize, Vec<f32>)>>>;

/// Writes down the heads of its calls; says nothing of context-parallel ranks.
struct Heads(Reference, Log);

impl Heads {
    fn note(&self, call: Call<'_>) {
        let attributes = match call {
            Call::Varlen(call) => call.attributes,
            Call::Dense(call) => call.attributes,
            Call::Paged(call) => call.attributes,
        };
        let sinks = attributes.sinks.unwrap_or_default().to_vec();
        self.1.lock().expect("no panic").push((attributes.q_heads, attributes.kv_heads, sinks));
    }
}

impl AttentionKernel for Heads {
    fn identity(&self) -> Identity {
        Identity::cpu("heads", "1")
    }
    fn conventions(&self) -> Conventions {
        self.0.conventions()
    }
    fn numerics(&self) -> Option<Numerics> {
        None
    }
    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.note(Call::Varlen(call));
        self.0.varlen(call, outputs)
    }
    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.note(Call::Dense(call));
        self.0.dense(call, outputs)
    }
    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.note(Call::Paged(call));
        self.0.paged(call, outputs)
    }
}

#[test]
fn each_rank_calls_with_its_own_heads() {
    let log = Log::default();
    let kernel = Heads(Reference::default(), log.clone());
    let mut replicated = 0;
    for index in 0..400 {
        let mut case = drawn(index);
        let q_heads = case.problem.q_heads();
        (case.train.context, case.infer.context) = (None, None);
        case.problem.sinks = Some((0..q_heads).map(|head| head as f32).collect());
        let inputs = Inputs::new(&case, None);
        for ranks in (1..=8).filter(|&ranks| case.problem.divides_heads(ranks)) {
            (case.train.head_ranks, case.infer.head_ranks) = (1, ranks);
            log.lock().expect("no panic").clear();
            let mut seen = Vec::new();
            let mut observer = |it: Observed<'_>| seen.push(it.heads);
            let produced =
                infer(&kernel, &case.problem, &case.infer, &inputs, Poison::Nan, Some(&mut observer)).expect("it runs");
            let log = log.lock().expect("no panic");
            assert_eq!(produced.calls, log.len());
            let per_rank = log.len() / ranks as usize;
            for (n, ((q, kv, sinks), heads)) in log.iter().zip(&seen).enumerate() {
                let (own, kv_heads) = case.problem.heads_of_rank(ranks, (n / per_rank) as u32);
                assert_eq!((heads, q, kv), (&own, &own.len(), &kv_heads.len()));
                assert_eq!(*sinks, own.map(|head| head as f32).collect::<Vec<_>>());
            }
            replicated += u32::from(ranks as usize > case.problem.kv_heads());
        }
    }
    assert!(replicated > 30, "{replicated}");
}

/// A kernel that does not say that it can work as context-parallel ranks gets no such case in a campaign; one from a file is
/// skipped, with the reason.
#[test]
fn context_ranks_are_only_for_kernels_that_can() {
    let kernel = Implementation::kernel(Arc::new(Heads(Reference::default(), Arc::default())));
    let attention = pair(named("ref:aligned"), kernel, Mode::Off);
    let mut trains = 0;
    run(&attention, Campaign { seed: 4, first: 0, length: Length::Cases(400), jobs: 1 }, |done| {
        assert_eq!(done.verdict.findings, [], "case {}", done.index);
        assert_eq!(done.trial.case.infer.context, None);
        trains += u32::from(done.trial.case.train.context.is_some());
        Flow::Continue
    });
    assert!(trains > 40, "{trains}");
    let mut trial = attention.draw(4, 0);
    trial.case.infer.context = some_ranks(&mut Stream::new(1, 1), 4);
    let verdict = attention.check(&trial, &mut attention.scratch());
    let skipped = |it: &Finding| matches!(it, Finding::Skipped { reason, .. } if reason.contains("context-parallel ranks"));
    assert!(verdict.findings.iter().any(skipped), "{:?}", verdict.findings);
}
