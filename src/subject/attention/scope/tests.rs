use super::*;
use crate::source::{Choose, Source, Stream};
use crate::subject::attention::capabilities::Knob;
use crate::subject::attention::draw::{CapturedShape, Drawn, Hints, Profile, draw, draw_within};
use crate::subject::attention::kernel::{Attributes, Identity};
use crate::subject::attention::pin::Pins;
use crate::subject::attention::{Cache, Case, Data, TrainLayout, validate};
use std::collections::{BTreeMap, BTreeSet};

/// A kernel that declares.
#[derive(Clone, Debug, Default)]
struct Declares {
    can: Capabilities,
    means: Conventions,
    ranks: bool,
}

impl AttentionKernel for Declares {
    fn identity(&self) -> Identity {
        Identity::cpu("declares", "1")
    }
    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }
    fn conventions(&self) -> Conventions {
        self.means
    }
    fn context_parallel(&self) -> bool {
        self.ranks
    }
}

fn can(can: Capabilities) -> Declares {
    Declares { can, ranks: true, ..Declares::default() }
}

fn scope(train: Capabilities, infer: Capabilities) -> Scope {
    Scope::of(&can(train), &can(infer))
}

fn format(text: &str) -> Format {
    let (storage, out) = text.split_once("->").unwrap_or((text, text));
    Format { storage: storage.parse().unwrap(), out: out.parse().unwrap() }
}

fn formats(texts: &[&str]) -> Capabilities {
    Capabilities { formats: Some(texts.iter().map(|text| format(text)).collect()), ..Capabilities::default() }
}

fn hints(scope: Scope) -> Hints<'static> {
    Hints { scope, ..Hints::default() }
}

fn drawn(scope: &Scope, profile: Profile, index: u64) -> Drawn {
    draw_within(&mut Stream::new(1, index), profile, &hints(scope.clone()))
}

/// Some kernel: each limit is there in a third of them.
fn some(source: &mut Stream) -> Declares {
    let mut limit = || source.chance(1, 3);
    let limits: Vec<bool> = (0..11).map(|_| limit()).collect();
    let mut n = 0;
    let mut when = |limits: &[bool]| {
        n += 1;
        limits[n - 1]
    };
    let mut can = Capabilities::default();
    if when(&limits) {
        let all = Form::ALL;
        let training = [all[0], all[1], all[2]];
        can.forms = Some(vec![source.pick(&training), source.pick(&training), source.pick(&[all[3], all[4]])]);
    }
    if when(&limits) {
        let mut features: Vec<Feature> = Feature::ALL.into_iter().filter(|_| source.chance(1, 2)).collect();
        features.push(source.pick(&[Feature::Causal, Feature::NotCausal]));
        can.features = Some(features);
    }
    if when(&limits) {
        let lists = [&["f32", "bf16"][..], &["bf16->f32", "bf16"], &["f16", "f32->bf16", "f32"], &["f32"]];
        can.formats = formats(source.pick(&lists)).formats;
    }
    if when(&limits) {
        can.head_dims = Some(match source.below(3) {
            0 => HeadDims::UpTo { max: 256, multiple_of: 8 },
            1 => HeadDims::UpTo { max: 20, multiple_of: 4 },
            _ => HeadDims::Only(vec![(16, 16), (8, 16), (64, 64), (192, 128)]),
        });
    }
    if when(&limits) {
        can.page_sizes = Some(source.pick(&[&[16, 256][..], &[5], &[]]).to_vec());
    }
    if when(&limits) {
        can.max_rows = Some(source.pick(&[3, 40, 500]));
    }
    can.no_empty_rows = when(&limits);
    can.no_empty_sequences = when(&limits);
    can.no_ragged = when(&limits);
    if when(&limits) {
        let knob = |name: &str, values: &[&str]| Knob {
            name: name.into(),
            values: values.iter().map(|value| value.to_string()).collect(),
        };
        can.knobs = vec![knob("threads", &["1", "2"]), knob("layout", &["NHD", "HND", "x y"]), knob("only", &["1"])];
    }
    let mut means = Conventions::default();
    if when(&limits) {
        means.set("anchor", source.pick(&["bottom_right", "top_left", "strict"])).unwrap();
        means.set("window", source.pick(&["keys_to_left", "one_more"])).unwrap();
        means.set("cap_order", source.pick(&["cap_then_bias", "bias_then_cap"])).unwrap();
        means.set("alibi", source.pick(&["distance", "key_index"])).unwrap();
    }
    Declares { can, means, ranks: source.chance(1, 2) }
}

/// The limits, written out once more from the calls' side.
fn refuses(path: Path, kernel: &Declares, case: &Case) -> Option<String> {
    let (problem, can) = (&case.problem, &kernel.can);
    let context = if path == Path::Train { case.train.context } else { case.infer.context };
    let attributes = Attributes::of(problem, 64, context, &[]);
    if let Some(features) = &can.features
        && attributes.only(features).is_err()
    {
        return Some("features".into());
    }
    attributes.fit(&kernel.means).err()
}

#[test]
fn what_is_drawn_is_inside() {
    let mut source = Stream::new(7, 0);
    let (mut ran, mut nothing) = (0, 0);
    let shape = CapturedShape {
        sha256: "0".repeat(64),
        lengths: vec![0, 9, 30, 3],
        kv_heads: 2,
        groups: 2,
        d_qk: 16,
        d_v: 16,
        softmax_scale: 0.25,
    };
    for _ in 0..400 {
        let (train, infer) = (some(&mut source), some(&mut source));
        let scope = Scope::of(&train, &infer);
        let captured = source.chance(1, 6).then_some(&shape);
        let mut hints = Hints { captured, ..hints(scope.clone()) };
        if captured.is_none() && source.chance(1, 4) {
            hints.pins = source.pick(&["d=16", "dtype=bf16,heads=4/4", "causal=none", "heads=4/2", "d_v=16"]).parse().unwrap();
        }
        if scope.start(&hints.pins, captured.map(|it| (it.d_qk, it.d_v))).is_err() {
            nothing += 1;
            continue;
        }
        ran += 1;
        for index in 0..60 {
            let profile = Profile::ALL[index as usize % 3];
            let Drawn { case, left_out } = draw_within(&mut Stream::new(3, index), profile, &hints);
            assert_eq!(validate(&case), Ok(()), "{train:?} {infer:?} {case:?}");
            assert_eq!(scope.outside(&case), None, "{train:?} {infer:?} {case:?}");
            assert_eq!(refuses(Path::Train, &train, &case).or(refuses(Path::Infer, &infer, &case)), None, "{case:?}");
            assert!(hints.pins.shape() || hints.pins.hold(&case.problem) || captured.is_some(), "{case:?}");
            let once: BTreeSet<&String> = left_out.iter().collect();
            assert_eq!(once.len(), left_out.len(), "{left_out:?}");
            if let Data::Drawn { regime: crate::subject::attention::Regime::Mirror { span, .. }, .. } = case.data {
                let fits = |s: &crate::subject::attention::Sequence| {
                    s.q > 0 && case.problem.mask.keys(s.q - 1, s.q, s.kv).len() >= span as usize
                };
                assert!(case.problem.alibi_slopes.is_none() && case.problem.sequences.iter().any(fits), "{case:?}");
            }
        }
    }
    assert!(ran > 150 && nothing > 20, "{ran} {nothing}");
}

#[test]
fn an_unlimited_scope_leaves_every_case_as_it_is() {
    for profile in Profile::ALL {
        for index in 0..300 {
            let plain = draw(&mut Stream::new(1, index), profile, &Hints::default());
            let Drawn { case, left_out } = drawn(&scope(Capabilities::default(), Capabilities::default()), profile, index);
            assert_eq!((case, left_out), (plain, Vec::new()));
        }
    }
    assert!(scope(Capabilities::default(), Capabilities { guarded: false, ..Capabilities::default() }).is_everything());
}

/// A knob takes no call away; that a case may name another one is no matter of calls.
#[test]
fn a_knob_is_no_limit() {
    let knob = Knob { name: "threads".into(), values: vec!["1".into(), "2".into()] };
    let knobs = scope(Capabilities::default(), Capabilities { knobs: vec![knob.clone()], ..Capabilities::default() });
    assert!(knobs.takes_every_call() && !knobs.has_limits() && !knobs.is_everything());
    let limited = Capabilities { knobs: vec![knob], max_rows: Some(16), ..Capabilities::default() };
    let limited = scope(Capabilities::default(), limited);
    assert!(!limited.takes_every_call() && limited.has_limits());
    let no_ranks = Scope::of(&Declares::default(), &Declares::default());
    assert!(!no_ranks.takes_every_call() && !no_ranks.has_limits());
    let but = |left_out: Feature| {
        let features = Feature::ALL.into_iter().filter(|it| *it != left_out).collect();
        scope(Capabilities::default(), Capabilities { features: Some(features), ..Capabilities::default() })
    };
    assert!(!but(Feature::ContextParallel).takes_every_call() && !but(Feature::ContextParallel).has_limits());
    assert!(but(Feature::Softcap).has_limits());
}

/// The reasons of a campaign, each with its count.
fn reasons(scope: &Scope, cases: u64) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for reason in (0..cases).flat_map(|index| drawn(scope, Profile::Mixed, index).left_out) {
        *counts.entry(reason).or_default() += 1;
    }
    counts
}

#[test]
fn reasons_name_the_side_and_what_it_lacks() {
    let features = Feature::ALL.into_iter().filter(|it| !matches!(it, Feature::Window | Feature::Fp8Kv));
    let infer = Capabilities {
        features: Some(features.collect()),
        page_sizes: Some(vec![16, 256]),
        head_dims: Some(HeadDims::UpTo { max: 256, multiple_of: 8 }),
        no_empty_sequences: true,
        ..Capabilities::default()
    };
    let train = Capabilities {
        forms: Some(vec![Form::Varlen]),
        no_empty_rows: true,
        max_rows: Some(100),
        ..formats(&["f32", "bf16", "bf16->f32", "f32->bf16"])
    };
    let counts = reasons(&scope(train.clone(), infer.clone()), 2000);
    for reason in [
        "window (infer does not do it)",
        "8-bit keys and values with scales (infer does not do it)",
        "f16 storage (train: f32, bf16)",
        "page sizes (infer: 16, 256)",
        "head dims (infer: multiples of 8 up to 256)",
        "empty rows (train)",
        "empty sequences (infer)",
        "bucket padding, whose entries are empty (infer)",
        "more than 100 rows or keys in a call (train)",
        "dense_left calls (train does not do it)",
        "dense_right calls (train does not do it)",
    ] {
        assert!(counts.get(reason).is_some_and(|&count| count > 10), "{reason}: {counts:?}");
    }
    assert_eq!(counts.len(), 11, "{counts:?}");
    // A declared anchor is a limit of its own.
    let mut anchored = can(Capabilities::default());
    anchored.means.set("anchor", "bottom_right").unwrap();
    let counts = reasons(&Scope::of(&anchored, &can(Capabilities::default())), 500);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["top-left causal mask (train declares anchor bottom_right)"]);
    let dense = Capabilities { forms: Some(vec![Form::DenseRight]), no_ragged: true, ..Capabilities::default() };
    let counts = reasons(&scope(dense, Capabilities::default()), 500);
    let expected = ["dense_left calls (train does not do it)", "ragged lengths (train)", "varlen calls (train does not do it)"];
    assert_eq!(counts.keys().collect::<Vec<_>>(), expected);
}

/// What is listed comes: output formats beside the usual ones, far page sizes, head dims of a list.
#[test]
fn all_that_is_listed_is_drawn() {
    let listed = ["bf16", "bf16->f32", "f32->bf16", "f16->f32"];
    let pairs = vec![(64, 64), (128, 128), (192, 128)];
    let infer = Capabilities {
        page_sizes: Some(vec![16, 256]),
        head_dims: Some(HeadDims::Only(pairs.clone())),
        ..Capabilities::default()
    };
    let scope = scope(formats(&listed), infer);
    let cases: Vec<Case> = (0..600).map(|index| drawn(&scope, Profile::Quick, index).case).collect();
    let count = |holds: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| holds(case)).count();
    for text in listed {
        let format = format(text);
        let seen = count(&|it| (it.problem.dtype, it.problem.out_dtype) == (format.storage, format.out));
        assert!(seen > 30, "{text}: {seen}");
    }
    for pair in pairs {
        assert!(count(&|it| (it.problem.d_qk, it.problem.d_v) == pair) > 60, "{pair:?}");
    }
    for size in [16, 256] {
        let of = |it: &Case| matches!(it.infer.cache, Cache::Paged { page, .. } if page == size);
        assert!(count(&of) > 150, "{size}");
    }
}

#[test]
fn one_length_for_all_where_a_form_needs_it() {
    let dense =
        Capabilities { forms: Some(vec![Form::DenseRight, Form::Contiguous]), no_ragged: true, ..Capabilities::default() };
    let scope = scope(dense.clone(), dense);
    let mut crowds = 0;
    for index in 0..300 {
        let case = drawn(&scope, Profile::Mixed, index).case;
        crowds += u64::from(case.problem.sequences.len() > 1);
        assert!(even(&case.problem.sequences) && matches!(case.train.layout, TrainLayout::Dense { .. }));
        // Every engine step holds the same rows and keys of each.
        for step in crate::subject::attention::drive::schedule(&case.problem, &case.infer) {
            assert!(step.windows(2).all(|it| (it[0].rows, it[0].kv) == (it[1].rows, it[1].kv)), "{case:?}");
            assert_eq!(step.len(), case.problem.sequences.len(), "{case:?}");
        }
    }
    assert!(crowds > 100, "{crowds}");
}

#[test]
fn a_run_without_common_cases_is_refused() {
    let start = |train: Capabilities, infer: Capabilities, pins: &str| {
        let pins: Pins = pins.parse().unwrap();
        scope(train, infer).start(&pins, None).unwrap_err()
    };
    let any = Capabilities::default;
    let forms = |forms: &[Form]| Capabilities { forms: Some(forms.to_vec()), ..any() };
    let dims = |dims: HeadDims| Capabilities { head_dims: Some(dims), ..any() };
    let features = |features: &[Feature]| Capabilities { features: Some(features.to_vec()), ..any() };
    let knobs = |list: &[(&str, &[&str])]| Capabilities {
        knobs: list
            .iter()
            .map(|(name, values)| Knob { name: name.to_string(), values: values.iter().map(|it| it.to_string()).collect() })
            .collect(),
        ..any()
    };
    for (error, reason) in [
        (start(any(), knobs(&[("a-b", &["1"])]), "none"), "the infer kernel declares a knob `a-b` that is no name"),
        (start(knobs(&[("a", &["1"]), ("a", &["2"])]), any(), "none"), "the train kernel declares a knob `a` twice"),
        (start(any(), knobs(&[("a", &[])]), "none"), "`a` without values"),
        (start(any(), knobs(&[("a", &["1", "2\n3"])]), "none"), "one of several lines"),
        (
            start(formats(&["f32"]), formats(&["bf16", "f16"]), "none"),
            "no format in common: train does f32, infer does bf16, f16",
        ),
        (start(any(), forms(&[Form::Varlen]), "none"), "the infer kernel has no form of its path: it does varlen; one of paged"),
        (start(any(), Capabilities { page_sizes: Some(vec![]), ..forms(&[Form::Paged]) }, "none"), "it does none"),
        (
            start(dims(HeadDims::Only(vec![(64, 64)])), dims(HeadDims::UpTo { max: 32, multiple_of: 8 }), "none"),
            "no pair of head dims in common: train does 64/64, infer does multiples of 8 up to 32",
        ),
        (
            start(features(&[Feature::Causal]), features(&[Feature::NotCausal]), "none"),
            "no mask in common: train does causal, infer does not_causal",
        ),
        (
            start(formats(&["bf16"]), any(), "dtype=f16"),
            "--pin dtype=f16 asks for what a kernel does not do: f16 storage (train: bf16)",
        ),
        (start(any(), dims(HeadDims::UpTo { max: 32, multiple_of: 1 }), "d=64"), "--pin d_qk=64,d_v=64 asks for"),
        (start(any(), features(&[Feature::Causal]), "heads=4/2"), "grouped heads (infer does not do it)"),
        (start(any(), features(&[Feature::Causal]), "causal=none"), "mask that is not causal (infer does not do it)"),
        (start(any(), features(&[Feature::Causal]), "kv_dtype=e4m3"), "8-bit keys and values with scales (infer"),
    ] {
        assert!(error.contains(reason), "{error}");
    }
    assert!(scope(any(), dims(HeadDims::UpTo { max: 32, multiple_of: 1 })).start(&Pins::default(), Some((64, 64))).is_err());
    assert_eq!(scope(any(), any()).start(&"d=512,heads=4/2,kv_dtype=e5m2".parse().unwrap(), Some((64, 64))), Ok(()));
}

#[test]
fn head_dims_of_both() {
    let up_to = |max, multiple_of| HeadDims::UpTo { max, multiple_of };
    assert_eq!(up_to(256, 8).and(&up_to(128, 12)), up_to(128, 24));
    assert_eq!(up_to(256, 16).and(&up_to(512, 8)), up_to(256, 16));
    assert_eq!(up_to(256, 0).and(&up_to(512, 8)), up_to(256, 8));
    let pairs = HeadDims::Only(vec![(64, 64), (192, 128), (20, 20)]);
    assert_eq!(pairs.and(&up_to(128, 8)), HeadDims::Only(vec![(64, 64)]));
    assert_eq!(up_to(256, 64).and(&pairs), HeadDims::Only(vec![(64, 64), (192, 128)]));
}
