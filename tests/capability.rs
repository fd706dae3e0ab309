//! Kernels that cannot do everything, have knobs of their own, or do not repeat themselves.

mod harness;

use harness::{against, first, pair, shrunk};
use lastbit::finding::{Axis, Finding, Path};
use lastbit::lab::{Campaign, Flow, Length, Statistics, run};
use lastbit::number::Dtype;
use lastbit::subject::Subject;
use lastbit::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims, Knob};
use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{
    AttentionKernel, Attributes, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::trial::Trial;
use lastbit::subject::attention::{Attention, Cache, Data, TrainLayout, file, text};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Spoil = dyn Fn(Call<'_>, &mut Outputs<'_>) + Send + Sync;

/// The reference kernel, with limits that it insists on, and results that are spoiled.
struct Limited {
    can: Capabilities,
    has_lse: bool,
    spoil: Box<Spoil>,
}

fn limited(can: Capabilities, spoil: impl Fn(Call<'_>, &mut Outputs<'_>) + Send + Sync + 'static) -> Limited {
    Limited { can, has_lse: true, spoil: Box::new(spoil) }
}

impl Limited {
    fn insist(&self, form: Form, attributes: &Attributes<'_>, storage: Dtype, page: Option<u32>) -> Result<(), KernelError> {
        let can = &self.can;
        let format = Format { storage, out: attributes.out_dtype };
        let (d_qk, d_v) = (attributes.d_qk as u32, attributes.d_v as u32);
        let fits = can.forms.as_ref().is_none_or(|it| it.contains(&form))
            && can.formats.as_ref().is_none_or(|it| it.contains(&format))
            && can.head_dims.as_ref().is_none_or(|it| it.allow(d_qk, d_v))
            && page.is_none_or(|page| can.page_sizes.as_ref().is_none_or(|it| it.contains(&page)));
        if !fits {
            return Err(KernelError::Unsupported("beyond what was declared".into()));
        }
        can.features.as_ref().map_or(Ok(()), |features| attributes.only(features))
    }
}

impl AttentionKernel for Limited {
    fn identity(&self) -> Identity {
        Identity::cpu("limited", "1")
    }
    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }
    fn has_lse(&self) -> bool {
        self.has_lse
    }
    fn varlen(&self, call: &VarlenCall<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.insist(Form::Varlen, call.attributes, call.q.dtype, None)?;
        Reference::default().varlen(call, Outputs { o: &mut *outputs.o, lse: &mut *outputs.lse })?;
        (self.spoil)(Call::Varlen(call), &mut outputs);
        Ok(())
    }
    fn dense(&self, call: &DenseCall<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        let form = match call.padding {
            lastbit::subject::attention::Side::Left => Form::DenseLeft,
            lastbit::subject::attention::Side::Right => Form::DenseRight,
        };
        self.insist(form, call.attributes, call.q.dtype, None)?;
        Reference::default().dense(call, Outputs { o: &mut *outputs.o, lse: &mut *outputs.lse })?;
        (self.spoil)(Call::Dense(call), &mut outputs);
        Ok(())
    }
    fn paged(&self, call: &PagedCall<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        let paged = call.block_table.is_some();
        let form = if paged { Form::Paged } else { Form::Contiguous };
        self.insist(form, call.attributes, call.q.dtype, paged.then(|| call.k_cache.dims[1] as u32))?;
        Reference::default().paged(call, Outputs { o: &mut *outputs.o, lse: &mut *outputs.lse })?;
        (self.spoil)(Call::Paged(call), &mut outputs);
        Ok(())
    }
}

/// One ULP more, or less, in every result that is no zero.
fn nudge(outputs: &mut Outputs<'_>) {
    outputs.o.bits.iter_mut().filter(|bits| **bits & 0x7f != 0).for_each(|bits| *bits ^= 1);
}

fn attributes<'c>(call: Call<'c>) -> &'c Attributes<'c> {
    match call {
        Call::Varlen(call) => call.attributes,
        Call::Dense(call) => call.attributes,
        Call::Paged(call) => call.attributes,
    }
}

fn campaign(attention: &Attention, cases: u64) -> Statistics {
    let mut statistics = Statistics::default();
    run(attention, Campaign { seed: 1, first: 0, length: Length::Cases(cases), jobs: 1 }, |done| {
        statistics.add(&done.verdict, done.trial.case.problem.out_dtype, 0);
        Flow::Continue
    });
    statistics
}

fn narrow() -> Capabilities {
    let format = |storage, out| Format { storage, out };
    Capabilities {
        forms: Some(vec![Form::Paged]),
        features: Some(vec![Feature::Causal, Feature::NotCausal, Feature::GroupedHeads, Feature::Softcap]),
        formats: Some(vec![format(Dtype::BF16, Dtype::F32), format(Dtype::F32, Dtype::F32)]),
        head_dims: Some(HeadDims::UpTo { max: 256, multiple_of: 8 }),
        page_sizes: Some(vec![16, 256]),
        ..Capabilities::default()
    }
}

#[test]
fn a_narrow_kernel_is_never_asked_for_more() {
    let statistics = campaign(&against(limited(narrow(), |_, _| {}), Mode::Off), 300);
    // Without an oracle nothing else can be skipped but what is not finite.
    assert!(
        statistics.skips.keys().all(|it| !it.contains("beyond") && !it.contains("does not implement")),
        "{:?}",
        statistics.skips
    );
    assert!(statistics.signatures.is_empty() && statistics.matches > 250, "{statistics:?}");
    assert!(statistics.left_out.contains_key("f16 storage (infer: bf16, f32)"), "{:?}", statistics.left_out);
    for reason in ["pages: page sizes (infer: 16, 256)", "pages: contiguous calls (infer does not do it)"] {
        assert!(statistics.relations_left_out.contains_key(reason), "{:?}", statistics.relations_left_out);
    }
}

/// A case from a file may be beyond a kernel: it is not asked.
#[test]
fn a_case_beyond_what_is_declared_is_skipped() {
    let everything = limited(Capabilities::default(), |_, _| {});
    let mut trial = against(everything, Mode::Off).draw(1, 0);
    trial.case.infer.cache = Cache::Contiguous { spare: 0 };
    let never = limited(narrow(), |_, _| panic!("asked"));
    let attention = against(never, Mode::Off);
    let verdict = attention.check(&trial, &mut attention.scratch());
    assert!(verdict.findings.iter().all(|it| matches!(it, Finding::Skipped { .. })) && verdict.compared == 0, "{verdict:?}");
}

#[test]
fn shrinking_stays_inside() {
    let long = |call: Call<'_>, outputs: &mut Outputs<'_>| {
        if let Call::Paged(call) = call
            && call.cache_seqlens.iter().any(|&keys| keys >= 20)
        {
            nudge(outputs);
        }
    };
    let attention = against(limited(narrow(), long), Mode::Off);
    let found = first(&attention, 300, |trial, it| {
        matches!(it, Finding::Mismatch(_))
            && trial.case.problem.d_qk > 8
            && matches!(trial.case.infer.cache, Cache::Paged { page: 256, .. })
    });
    let small = shrunk(&attention, &found.expect("within 300 cases")).trial.case;
    assert_eq!(attention.pair.scope().outside(&small), None);
    assert_eq!(small.problem.sequences.iter().map(|it| it.kv).collect::<Vec<_>>(), [20]);
    assert_eq!((small.problem.d_qk, small.problem.d_v), (8, 8));
    assert!(matches!(small.infer.cache, Cache::Paged { page: 16, .. }), "{small:?}");
}

/// Sequences that must stay alike get shorter together.
#[test]
fn company_of_one_length_shrinks() {
    let can = Capabilities { forms: Some(vec![Form::DenseRight, Form::Contiguous]), no_ragged: true, ..Capabilities::default() };
    let crowded = |call: Call<'_>, outputs: &mut Outputs<'_>| {
        if let Call::Paged(call) = call
            && call.cache_seqlens.len() > 1
            && call.cache_seqlens.iter().any(|&keys| keys >= 5)
        {
            nudge(outputs);
        }
    };
    let train = Implementation::kernel(Arc::new(limited(can.clone(), |_, _| {})));
    let infer = Implementation::kernel(Arc::new(limited(can, crowded)));
    let attention = pair(train, infer, Mode::Off);
    let found = first(&attention, 300, |_, it| it.signature() == "mismatch o").expect("within 300 cases");
    let small = shrunk(&attention, &found).trial.case;
    let lengths: Vec<(u32, u32)> = small.problem.sequences.iter().map(|it| (it.q, it.kv)).collect();
    assert_eq!(lengths, [(1, 5), (1, 5)]);
    assert!(matches!(small.train.layout, TrainLayout::Dense { .. }));
}

fn knob(name: &str, values: &[&str]) -> Knob {
    Knob { name: name.into(), values: values.iter().map(|value| value.to_string()).collect() }
}

fn with_knobs(knobs: Vec<Knob>) -> Capabilities {
    Capabilities { knobs, ..Capabilities::default() }
}

fn has(call: Call<'_>, name: &str, value: &str) -> bool {
    attributes(call).knobs.iter().any(|(it, of)| it == name && of == value)
}

fn threaded() -> Attention {
    let knobs = vec![knob("threads", &["1", "2", "4"]), knob("layout", &["NHD", "HND"])];
    against(
        limited(with_knobs(knobs), |call, outputs| {
            if has(call, "threads", "4") {
                nudge(outputs)
            }
        }),
        Mode::Off,
    )
}

#[test]
fn knobs_vary_and_a_relation_names_the_one_that_matters() {
    let attention = threaded();
    let drawn: Vec<Trial> = (0..400).map(|index| attention.draw(1, index)).collect();
    assert!(drawn.iter().all(|it| it.case.train.knobs.is_empty()));
    let share = |name: &str| drawn.iter().filter(|it| it.case.infer.knobs.iter().any(|(knob, _)| knob == name)).count();
    assert!(
        (70..130).contains(&share("threads")) && (70..130).contains(&share("layout")),
        "{} {}",
        share("threads"),
        share("layout")
    );

    let statistics = campaign(&attention, 300);
    let signature = "not_invariant infer knob threads o";
    assert!(statistics.signatures.contains_key(signature), "{:?}", statistics.signatures);
    assert!(!statistics.signatures.keys().any(|it| it.contains("layout")), "{:?}", statistics.signatures);

    let found = first(&attention, 300, |_, it| it.signature() == signature).expect("within 300 cases");
    assert_eq!(found.finding.family(), "not_invariant infer knob threads");
    let small = shrunk(&attention, &found);
    let Finding::NotInvariant { axis: Axis::Knob, path: Path::Infer, relation, .. } = &small.finding else {
        panic!("{:?}", small.finding)
    };
    let knobs = &small.trial.case.infer.knobs;
    assert!(!knobs.iter().any(|(name, _)| name == "layout"), "{knobs:?}");
    // Either the case has the default and the relation changes it, or the other way round: that is one knob less in the relation.
    assert!(relation == "infer knob threads=4" && knobs.is_empty() || relation == "infer knob threads" && knobs.len() == 1);

    let explained = explain(&attention.pair, &small.trial, "x.case", None);
    assert!(explained.text.contains("not invariant to knob threads (infer)"), "{}", explained.text);
    // As a file and back, it shows the same.
    let kept = text::print(&file::file("kept".into(), &attention.pair, &small.trial, Some(&small.finding)));
    let read = text::parse(&kept, "x.case").expect("a case file");
    assert_eq!((text::print(&read), &read.case), (kept, &small.trial.case));
    assert_eq!(read.run.relation.as_deref(), Some(relation.as_str()));
}

#[test]
fn a_knob_that_matters_stays_in_the_shrunk_case() {
    let attention = threaded();
    let found = first(&attention, 400, |trial, it| it.signature() == "mismatch o" && trial.case.infer.knobs.len() == 2);
    let small = shrunk(&attention, &found.expect("within 400 cases")).trial;
    assert_eq!(small.case.infer.knobs, [("threads".to_owned(), "4".to_owned())]);
    let explained = explain(&attention.pair, &small, "x.case", None).text;
    assert!(explained.lines().next().is_some_and(|line| line.contains(", threads=4")), "{explained}");
    let kept = text::print(&file::file("kept".into(), &attention.pair, &small, None));
    assert!(kept.contains("\nknobs = { threads = \"4\" }\n"), "{kept}");
}

/// Bits that change from run to run are blamed on nothing else.
#[test]
fn nondeterminism_comes_first() {
    let calls = AtomicU64::new(0);
    let flaky = limited(Capabilities::default(), move |_, outputs| {
        // Not of a period that a run's number of calls could hide.
        let n = calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        outputs.o.bits.iter_mut().filter(|bits| **bits & 0x7f != 0).for_each(|bits| *bits ^= (n >> 62) as u32);
    });
    let attention = against(flaky, Mode::Off);
    let statistics = campaign(&attention, 200);
    let repeats = statistics.signatures["not_invariant infer repeat o"];
    assert!(repeats > 100 && statistics.set_aside > 100, "{:?} {}", statistics.signatures, statistics.set_aside);
    // A repeat may happen to give the same.
    let others: u64 = statistics.signatures.iter().filter(|(it, _)| !it.contains("repeat")).map(|(_, count)| count).sum();
    assert!(others * 3 < repeats, "{:?}", statistics.signatures);
    let found = first(&attention, 200, |_, it| it.signature() == "not_invariant infer repeat o").expect("within 200 cases");
    let verdict = attention.check(&found.trial, &mut attention.scratch());
    assert!(verdict.findings.first().is_none_or(|it| it.signature().contains("repeat")), "{:?}", verdict.findings);
}

/// Garbage in the workspace is found as that, in clean cases and in dirty ones.
#[test]
fn a_dirty_workspace_comes_first() {
    let knobs = vec![knob("workspace", &["clean", "dirty"])];
    let attention = against(
        limited(with_knobs(knobs), |call, outputs| {
            if has(call, "workspace", "dirty") {
                nudge(outputs)
            }
        }),
        Mode::Off,
    );
    let statistics = campaign(&attention, 200);
    let signatures: BTreeSet<&str> = statistics.signatures.keys().map(String::as_str).collect();
    assert_eq!(signatures, BTreeSet::from(["not_invariant infer knob workspace o"]));
    assert!(statistics.set_aside > 20, "{}", statistics.set_aside);
    // A kernel that repeats itself keeps its mismatch.
    let plain = campaign(
        &against(limited(with_knobs(vec![knob("workspace", &["clean", "dirty"])]), |_, outputs| nudge(outputs)), Mode::Off),
        50,
    );
    assert!(plain.signatures.contains_key("mismatch o") && plain.set_aside == 0, "{plain:?}");
}

#[test]
fn without_lse_on_either_side() {
    let none = || Limited { has_lse: false, ..limited(Capabilities::default(), |_, _| {}) };
    let [train, infer] = [none(), none()].map(|kernel| Implementation::kernel(Arc::new(kernel)));
    let statistics = campaign(&pair(train, infer, Mode::Off), 60);
    let lse = |path: &str| statistics.left_out[&format!("lse ({path} has none)")];
    assert_eq!((lse("train"), lse("infer")), (60, 60));
    assert!(statistics.matches > 45 && statistics.elements > 0 && statistics.signatures.is_empty(), "{statistics:?}");
}

/// A kernel that compiles for each shape sees it sixteen times, with other values.
#[test]
fn shapes_come_back() {
    let can = Capabilities { compiles: true, ..Capabilities::default() };
    let attention = against(limited(can, |_, _| {}), Mode::Off);
    let drawn: Vec<Trial> = (0..160).map(|index| attention.draw(1, index)).collect();
    let (mut values, mut shapes) = (0, 0);
    for (index, trial) in drawn.iter().enumerate() {
        assert_eq!(*trial, attention.draw(1, index as u64));
        lastbit::subject::attention::validate(&trial.case).expect("a valid case");
        let first = &drawn[index / 16 * 16].case;
        assert_eq!((&trial.case.problem, &trial.case.train, &trial.case.infer), (&first.problem, &first.train, &first.infer));
        values += usize::from(index % 16 > 0 && trial.case.data != first.data);
        shapes += usize::from(index % 16 == 0 && index > 0 && trial.case.problem != drawn[index - 1].case.problem);
        assert!(matches!(trial.case.data, Data::Drawn { .. }));
    }
    assert_eq!((values, shapes), (150, 9));
}
