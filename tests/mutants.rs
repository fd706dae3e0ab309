//! The catalogue of planted faults: names, smallest cases, silence where it says so, traces.

use lastbit::finding::Path;
use lastbit::number::Dtype;
use lastbit::source::Stream;
use lastbit::subject::attention::draw::{Hints, Profile, draw};
use lastbit::subject::attention::drive::{self, NO_ROW, Observed, Observer, Poison, Produced, Stop};
use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::Call;
use lastbit::subject::attention::mutant::Mutant;
use lastbit::subject::attention::recipe::StepFacts;
use lastbit::subject::attention::reference::trace::Label;
use lastbit::subject::attention::reference::{Reference, facts};
use lastbit::subject::attention::{Anchor, Case, Data, Inputs, Literal, Mask, Regime, file, text};
use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};

/// The attention designs of the collection of public reports from which the catalogue grew.
const DESIGNS: [&str; 11] = ["A-M1", "A-M2", "A-M3", "B-M1", "B-M2", "C-M1", "C-M2", "C-M3", "D-M1", "D-M2", "D-M3"];

fn mutated(mutant: Mutant) -> Reference {
    Reference::parse(&format!("ref:aligned+{mutant}")).unwrap()
}

/// The same kernel without the fault.
fn clean(mutant: Mutant) -> Reference {
    Reference { mutant: None, ..mutated(mutant) }
}

#[test]
fn ids_are_unique_and_in_order_and_every_design_is_there() {
    let ids: Vec<&str> = Mutant::ALL.iter().map(|it| it.entry().id).collect();
    let place = |id: &str| {
        let (area, number) = id.split_once("-M").unwrap_or_else(|| panic!("{id}"));
        assert!(["A", "B", "C", "D"].contains(&area), "{id}");
        (area.to_owned(), number.parse::<u32>().unwrap())
    };
    assert!(ids.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "{ids:?}");
    assert!(DESIGNS.iter().all(|id| ids.contains(id)), "{ids:?}");
}

#[test]
fn entries_are_filled_in() {
    for mutant in Mutant::ALL {
        let entry = mutant.entry();
        for text in [entry.edit, entry.silent, entry.smallest] {
            assert!(!text.is_empty(), "{mutant}");
        }
        // owner/repository#number, one or more, or a mechanism in words where no report is known for certain.
        if let Some(mechanism) = entry.source.strip_prefix("own reading: ") {
            assert!(!mechanism.is_empty(), "{mutant}");
            continue;
        }
        for source in entry.source.split(", ") {
            let (repository, number) = source.split_once('#').unwrap_or_else(|| panic!("{mutant}: {source}"));
            assert!(repository.split('/').count() == 2 && number.parse::<u32>().is_ok(), "{mutant}: {source}");
        }
    }
}

#[test]
fn names_and_fields_round_trip() {
    for &mutant in Mutant::ALL {
        let reference = mutated(mutant);
        assert_eq!(reference.mutant, Some(mutant));
        assert_eq!(mutant.to_string().parse(), Ok(mutant));
        assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference, "{reference}");
        assert_eq!(Reference::from_fields(reference.fields()).unwrap(), reference, "{reference}");
        assert_eq!(reference.declared, reference.actual, "{mutant} declares what it would be without");
        for (field, value) in mutant.entry().settings {
            assert_eq!(reference.numerics.get(field).as_deref(), Some(*value), "{mutant}");
        }
    }
}

fn smallest(mutant: Mutant) -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpora/mutants/{mutant}.case"))
}

#[test]
fn the_folder_holds_the_smallest_case_of_each_and_nothing_else() {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("corpora/mutants");
    let mut files: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    files.sort_unstable();
    let mut expected: Vec<String> = Mutant::ALL.iter().map(|it| format!("{it}.case")).collect();
    expected.sort_unstable();
    assert_eq!(files, expected);
    for &mutant in Mutant::ALL {
        assert_eq!(std::fs::read_to_string(smallest(mutant)).unwrap(), mutant.entry().smallest, "{mutant}");
    }
}

#[test]
fn smallest_cases_show_the_fault_and_nothing_without_it() {
    for &mutant in Mutant::ALL {
        let mut loaded = file::load(&smallest(mutant), None).unwrap();
        assert_eq!(text::print(&loaded.file), mutant.entry().smallest, "{mutant}: not in canonical form");
        assert!(loaded.file.comment.starts_with(&format!("{mutant}: ")), "{mutant}: {}", loaded.file.comment);
        assert_eq!(loaded.pair.train.reference.as_deref(), Some(&mutated(mutant)), "{mutant}");
        assert_eq!(loaded.pair.infer.reference.as_deref(), Some(&mutated(mutant)), "{mutant}");
        let expect = loaded.file.run.expect.clone();
        let explanation = explain(&loaded.pair, &loaded.trial, "FILE.case", Some(&expect));
        assert!(explanation.meets(&expect), "{mutant}: expected {expect}\n{}", explanation.text);
        loaded.pair.train = Implementation::reference(clean(mutant));
        loaded.pair.infer = loaded.pair.train.clone();
        let verdict = loaded.pair.check(&loaded.trial, &mut loaded.pair.scratch());
        assert!(verdict.findings.is_empty() && verdict.compared > 0 || verdict.related[0] > 0, "{mutant}: {verdict:?}");
    }
}

/// A call, as far as silence depends on it.
struct Seen {
    facts: Vec<StepFacts>,
    /// Of the larger of K and V.
    elements: usize,
}

fn drive(kernel: &Reference, path: Path, case: &Case, poison: Poison, observer: Option<Observer<'_>>) -> Result<Produced, Stop> {
    let inputs = Inputs::new(case, None);
    match path {
        Path::Train => drive::train(kernel, &case.problem, &case.train, &inputs, poison, observer),
        Path::Infer => drive::infer(kernel, &case.problem, &case.infer, &inputs, poison, observer),
    }
}

fn calls(path: Path, case: &Case) -> Vec<Seen> {
    let mut calls = Vec::new();
    let mut observer = |seen: Observed<'_>| {
        let (k, v) = match seen.call {
            Call::Varlen(call) => (call.k, call.v),
            Call::Dense(call) => (call.k, call.v),
            Call::Paged(call) => (call.k_cache, call.v_cache),
        };
        let facts = facts(seen.call).into_iter().map(|(_, facts)| facts).collect();
        calls.push(Seen { facts, elements: k.bits.len().max(v.bits.len()) });
    };
    drive(&Reference::default(), path, case, Poison::Nan, Some(&mut observer)).unwrap();
    calls
}

/// The visible keys of every row of a step.
fn visible(facts: &StepFacts) -> impl Iterator<Item = std::ops::Range<u32>> {
    (0..facts.q).map(|row| facts.keys(&Reference::default().declared, row).0)
}

/// Whether a fault's entry says that it is silent on these calls of a case: a condition no weaker than `Entry::silent`. Where that speaks
/// of values, a regime that has them.
fn is_silent(mutant: Mutant, case: &Case, calls: &[Seen]) -> bool {
    let problem = &case.problem;
    let Data::Drawn { regime, .. } = case.data else { return false };
    let each_call = |silent: &dyn Fn(&[StepFacts]) -> bool| calls.iter().all(|call| silent(&call.facts));
    let each = |silent: &dyn Fn(&StepFacts) -> bool| calls.iter().flat_map(|call| &call.facts).all(silent);
    let each_row =
        |silent: &dyn Fn(&StepFacts, std::ops::Range<u32>) -> bool| each(&|facts| visible(facts).all(|keys| silent(facts, keys)));
    let longest = |facts: &[StepFacts]| facts.iter().map(|it| it.kv).max().unwrap_or(0);
    let rows = |facts: &[StepFacts]| facts.iter().map(|it| it.q).sum::<u32>();
    let position = |facts: &StepFacts, row: u32| facts.keys(&Reference::default().declared, row).1;
    let moderate = matches!(regime, Regime::Normal | Regime::Equal | Regime::Quantised | Regime::OnehotV | Regime::ConstantV);
    let Mask { causal, window_left, window_right } = problem.mask;
    match mutant {
        Mutant::CausalTopLeft => causal != Some(Anchor::BottomRight) || each(&|it| it.q == it.kv),
        Mutant::PaddingBeforeSoftcap => {
            let masked = causal.is_some() || window_left.or(window_right).is_some();
            problem.softcap.is_none() || masked || problem.alibi_slopes.is_some() || each(&|it| it.kv % 4 == 0)
        }
        Mutant::PageAheadCounted => each(&|it| it.call.page.is_none_or(|page| it.kv % page != 0)),
        Mutant::WindowOneMore => {
            let reaches = |left: u32| each(&|it| (0..it.q).all(|row| position(it, row) <= i64::from(left)));
            window_left.is_none_or(reaches)
        }
        Mutant::WindowOneLess => {
            let beyond = |left: u32| left > 0 && each(&|it| (0..it.q).all(|row| position(it, row) < i64::from(left)));
            window_left.is_none_or(beyond)
        }
        Mutant::AlibiOverQueryLength => {
            problem.alibi_slopes.is_none() || each_call(&|it| it.iter().any(|facts| facts.q >= longest(it)))
        }
        Mutant::HeadMapByGroupSize => each(&|it| {
            let (kv_heads, group) = (it.call.kv_heads, it.call.q_heads / it.call.kv_heads);
            kv_heads == 1 || group == 1 || kv_heads == group
        }),
        Mutant::WindowSentinelLiteral => causal.is_none() || window_left.is_some(),
        // Dead slots are finite where this one is run.
        Mutant::UnusedValueSlots => regime != Regime::Subnormal,
        Mutant::MaskOfFirstHead => problem.mask == Mask::default() || each(&|it| it.call.q_heads == 1),
        Mutant::PagedAlibiOneMore => problem.alibi_slopes.is_none() || each(&|it| it.call.page.is_none()),
        Mutant::SplitsOfBatchMax => each_call(&|call| {
            let most = longest(call).div_ceil(4);
            call.iter().all(|it| it.kv <= 2 || it.kv.div_ceil(4) == most)
        }),
        Mutant::TileOfBatchMaxQ => each(&|it| it.kv <= 32 || it.call.batch_max_q > 1),
        Mutant::SplitsFromUncached => each(&|it| it.prefix % 4 == 0 || it.kv <= 2),
        Mutant::DotOrderByRows => problem.d_qk <= 2 || each_call(&|call| rows(call) != 1),
        Mutant::MergeOrderByRows => each_call(&|call| rows(call) <= 8 || longest(call) <= 8),
        Mutant::NoGuardOfMaximum => each_row(&|_, keys| keys.start < 4),
        Mutant::FiniteMaskAndMaximum | Mutant::FiniteMaskValue => moderate,
        Mutant::MergeTakesBaseTwo => problem.sinks.is_none() && each(&|it| it.kv <= 4),
        // (0, -inf) turns the sign of a zero.
        Mutant::EmptySplitsMerged => moderate && each_row(&|it, keys| if keys.is_empty() { it.kv <= 4 } else { keys.start < 8 }),
        Mutant::EmptyRowFiniteLse | Mutant::EmptyRowPositiveLse => {
            problem.sinks.is_some() || each_row(&|_, keys| !keys.is_empty())
        }
        Mutant::EmptySequenceDenseLse => each_call(&|call| {
            let full = |n: usize| call[..n].iter().all(|it| it.q == it.call.batch_max_q);
            call.iter().enumerate().all(|(n, it)| it.kv > 0 || it.q == 0 || full(n))
        }),
        Mutant::TruncatedStore => problem.out_dtype == Dtype::F32,
        Mutant::RoundedPartials => each(&|it| it.kv <= 4),
        // `scores_of_zero` makes them so.
        Mutant::FusedExponent => problem.alibi_slopes.is_none(),
        Mutant::ScoresInStorageFormat => problem.dtype == Dtype::F32,
        Mutant::HalfAccumulator => problem.kv_dtype() == Dtype::F16 && each(&|it| it.kv <= 1),
        Mutant::ReducedMantissaDot => problem.dtype != Dtype::F32,
        Mutant::SubnormalsFlushed => !matches!(problem.kv_dtype(), Dtype::F32 | Dtype::BF16) || moderate,
        Mutant::IndexWraps => calls.iter().all(|call| call.elements <= 1 << 16),
        Mutant::TailTileDropped => each(&|it| it.kv <= 128 || it.kv % 128 == 0),
        Mutant::WindowNeedsCausal => causal.is_some() || window_left.or(window_right).is_none(),
        Mutant::SecondChunkLosesHistory => each(&|it| it.call.page.is_none() || it.q <= 1 || it.prefix > 0 || it.kv <= it.q),
        Mutant::TailOfOneKeyDropped => {
            problem.mask == Mask::default() || problem.kv_dtype() != Dtype::BF16 || each(&|it| it.kv % 32 != 1 || it.kv == 1)
        }
        Mutant::SlopesByKvHead => problem.alibi_slopes.is_none() || each(&|it| it.call.q_heads == it.call.kv_heads),
        Mutant::SinkMissingBetweenPaths => problem.sinks.is_none() || each(&|it| it.kv < 49 || it.kv > 255),
        Mutant::ContextTailDropped => each(&|it| it.call.context.is_none_or(|ranks| it.kv % ranks.chunks() == 0)),
        Mutant::WindowOfLastRow => window_left.is_none() || each(&|it| it.block_q == 1 || it.q <= 1),
        Mutant::PhysicalPageOrder => each(&|it| it.call.page.is_none() || it.kv <= 4),
        Mutant::SharedPrefixCascade => each_call(&|call| {
            let with_keys = call.iter().filter(|it| it.q > 0 && it.kv > 0);
            with_keys.clone().count() <= 1 || with_keys.into_iter().any(|it| it.prefix == 0)
        }),
        Mutant::SplitsOverBatch => each_call(&|call| {
            let before = |n: usize| call[..n].iter().map(|it| it.kv).sum::<u32>();
            call.iter().enumerate().all(|(n, it)| it.kv == 0 || before(n) % 4 == 0)
        }),
        Mutant::MergeWithoutMaximum => problem.sinks.is_none() && each(&|it| it.kv <= 4),
        Mutant::LazyRescaleTooLate => each(&|it| it.kv <= 4),
        Mutant::MaximumOfMaskedKeys => problem.mask == Mask::default(),
        Mutant::SinkInEverySplit => problem.sinks.is_none() || each(&|it| it.kv <= 4),
        Mutant::NoGuardOfEmptyRow => {
            problem.sinks.is_some() || each(&|it| it.kv == 0 || visible(it).all(|keys| !keys.is_empty()))
        }
        Mutant::FnReadAsFnuz | Mutant::NegativeZeroIsNan => problem.kv_dtype() != Dtype::E4M3,
        Mutant::StoreTiesAway => problem.out_dtype != Dtype::BF16,
        Mutant::TruncatedWeights => each(&|it| it.kv <= 1),
        Mutant::CoarseTanh => problem.softcap.is_none() || problem.alibi_slopes.is_some(),
        Mutant::SubnormalWeightsFlushed => each(&|it| it.kv <= 1) || moderate && problem.alibi_slopes.is_none(),
        Mutant::KvScalesIgnored => {
            problem.fp8_kv.as_ref().is_none_or(|kv| kv.k_scales.iter().chain(&kv.v_scales).all(|&scale| scale == 1.0))
        }
    }
}

/// The case with all queries 0, as literal values.
fn scores_of_zero(case: &Case) -> Case {
    let Inputs { mut q, k, v, .. } = Inputs::new(case, None);
    q.bits.fill(0);
    let literal = Literal { q: q.bits, k: k.bits, v: v.bits };
    Case { data: Data::Literal(literal), ..case.clone() }
}

fn drawn(count: u64) -> impl Iterator<Item = Case> {
    (0..count).map(|index| draw(&mut Stream::new(7, index), Profile::Quick, &Hints::default()))
}

#[test]
fn silent_where_the_entry_says_so() {
    const WANTED: usize = 24;
    let with_rows = drawn(1500).filter(|case| case.problem.total_q() > 0);
    let cases: Vec<(Case, [Vec<Seen>; 2])> =
        with_rows.map(|case| (case.clone(), Path::BOTH.map(|path| calls(path, &case)))).collect();
    for &mutant in Mutant::ALL {
        let kernels = [mutated(mutant), clean(mutant)];
        let poison = if mutant == Mutant::UnusedValueSlots { Poison::Huge } else { Poison::Nan };
        for path in Path::BOTH {
            let silent = cases.iter().filter(|(case, calls)| is_silent(mutant, case, &calls[path as usize]));
            let mut count = 0;
            for (case, _) in silent.take(WANTED) {
                let case = if mutant == Mutant::FusedExponent { scores_of_zero(case) } else { case.clone() };
                let [with, without] = kernels.each_ref().map(|kernel| drive(kernel, path, &case, poison, None));
                assert!(with == without, "{mutant} shows on the {path} side of {case:?}");
                count += 1;
            }
            assert!(count >= WANTED / 3, "{mutant}: only {count} cases on the {path} side");
        }
    }
}

#[test]
fn traces_run_the_faulty_code() {
    let small = |case: &Case| (1..=32).contains(&(case.problem.total_q() * case.problem.q_heads()));
    let cases: Vec<Case> = drawn(400).filter(small).take(40).collect();
    let mut rows = 0;
    for &mutant in Mutant::ALL {
        let kernel = mutated(mutant);
        for (case, path) in cases.iter().flat_map(|case| Path::BOTH.map(|path| (case, path))) {
            let mut traces = HashMap::new();
            let mut observer = |seen: Observed<'_>| {
                for (n, &row) in seen.rows.iter().enumerate().filter(|(_, row)| **row != NO_ROW) {
                    for head in seen.heads.clone() {
                        let trace = kernel.trace(seen.call, n, head - seen.heads.start).unwrap();
                        traces.entry((row as usize, head)).or_insert(trace);
                    }
                }
            };
            // A slot that was not written is no matter of the trace.
            let Ok(produced) = drive(&kernel, path, case, Poison::Nan, Some(&mut observer)) else { continue };
            let (d_v, heads) = (case.problem.d_v as usize, case.problem.q_heads());
            for ((row, head), trace) in traces {
                let place = |label: &Label| trace.events.iter().find(|step| step.label == *label).map(|step| step.bits);
                let stored: Vec<_> = (0..d_v).map(|lane| place(&Label::Store { lane })).collect();
                let o = &produced.o.row(row)[head * d_v..(head + 1) * d_v];
                let o: Vec<_> = o.iter().map(|&bits| Some(case.problem.out_dtype.to_f32(bits).to_bits())).collect();
                assert_eq!(stored, o, "{mutant}, {path}, row {row} of {case:?}");
                // Its lse goes elsewhere.
                if mutant != Mutant::EmptySequenceDenseLse {
                    assert_eq!(place(&Label::Lse), Some(produced.lse.bits[row * heads + head]), "{mutant}: {case:?}");
                }
                rows += 1;
            }
        }
    }
    assert!(rows > 1000, "{rows} rows");
}
