//! The case space, counted by another reader: features are read off the cases here, with code of its own.

mod harness;

use harness::{against, references};
use lastbit::number::Dtype;
use lastbit::subject::Subject;
use lastbit::subject::attention::battery::space::{Row, Space, TOO_MUCH_WORK};
use lastbit::subject::attention::battery::{Battery, Part, Size};
use lastbit::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims, Knob};
use lastbit::subject::attention::draw::Profile;
use lastbit::subject::attention::drive::schedule;
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::kernel::{AttentionKernel, Identity};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::{Anchor, Attention, Cache, Case, Data, Regime, Shards, Side, TrainLayout, validate};
use std::collections::BTreeMap;

/// A kernel that only declares.
struct Declares(Capabilities);

impl AttentionKernel for Declares {
    fn identity(&self) -> Identity {
        Identity::cpu("declares", "1")
    }
    fn capabilities(&self) -> Capabilities {
        self.0.clone()
    }
    fn context_parallel(&self) -> bool {
        true
    }
}

/// Few formats, one page size, no softcap.
fn narrow() -> Capabilities {
    let format = |storage, out| Format { storage, out };
    Capabilities {
        forms: Some(vec![Form::Paged]),
        features: Some(vec![Feature::Causal, Feature::NotCausal, Feature::GroupedHeads, Feature::Alibi, Feature::Window]),
        formats: Some(vec![format(Dtype::BF16, Dtype::F32), format(Dtype::F32, Dtype::F32)]),
        page_sizes: Some(vec![16]),
        ..Capabilities::default()
    }
}

/// The kernels that are looked at, and their block lengths.
fn looked_at() -> [(&'static str, Attention, &'static [u32]); 3] {
    [
        ("aligned", references("ref:aligned", "ref:aligned", Mode::Enclosure), &[64]),
        ("fa3", references("ref:fa3", "ref:fa3", Mode::Enclosure), &[128, 160, 192]),
        ("narrow", against(Declares(narrow()), Mode::Enclosure), &[64]),
    ]
}

/// What a case has of each knob, in words.
fn features(case: &Case, blocks: &[u32]) -> BTreeMap<String, String> {
    let (problem, train, infer) = (&case.problem, &case.train, &case.infer);
    let mut has: BTreeMap<String, String> = BTreeMap::new();
    let mut put = |knob: &str, value: &str| {
        has.insert(knob.into(), value.into());
    };
    let switch = |on: bool| if on { "on" } else { "off" };
    let out = if problem.out_dtype == problem.dtype { String::new() } else { format!("->{}", problem.out_dtype) };
    put("format", &format!("{}{out}", problem.dtype));
    put("kv format", problem.fp8_kv.as_ref().map_or("as q", |kv| if kv.dtype == Dtype::E4M3 { "e4m3" } else { "e5m2" }));
    let (batch, empty) = (&problem.sequences, problem.sequences.iter().any(|it| it.q * it.kv == 0));
    let all_empty = batch.iter().all(|it| it.q * it.kv == 0);
    match batch.len() {
        0 => {}
        1 => put("batch", "1"),
        2 => put("batch", "2"),
        _ if !empty => put("batch", "3 or more"),
        _ if !all_empty => put("batch", "3 or more, an empty one among them"),
        _ => {}
    }
    let (kv_heads, group) = (problem.kv_head_ids.len() as u32, problem.group_ids.len());
    put(
        "heads",
        if group == 1 {
            if kv_heads == 1 { "1/1" } else { "n/n" }
        } else if kv_heads == 1 {
            "n/1"
        } else {
            "grouped"
        },
    );
    match (problem.d_qk, problem.d_v) {
        (1 | 3 | 5 | 7 | 9 | 11 | 13 | 15, d_v) if d_v == problem.d_qk => put("head dims", "equal, odd, up to 15"),
        (d_qk, d_v) if d_qk > d_v => put("head dims", "d_qk > d_v"),
        (d_qk, d_v) if d_qk < d_v => put("head dims", "d_qk < d_v"),
        (d, _) => put("head dims", &format!("{d}/{d}")),
    }
    let mask = problem.mask;
    put(
        "causal",
        match mask.causal {
            Some(Anchor::BottomRight) => "bottom-right",
            Some(Anchor::TopLeft) => "top-left",
            None => "none",
        },
    );
    put(
        "window",
        match (mask.window_left, mask.window_right) {
            (None, None) => "none",
            (Some(_), None) => "left",
            (None, Some(_)) => "right",
            (Some(_), Some(_)) => "both sides",
        },
    );
    put("softcap", switch(problem.softcap.is_some()));
    put("sinks", switch(problem.sinks.is_some()));
    put("alibi", switch(problem.alibi_slopes.is_some()));
    let (scale, usual) = (problem.softmax_scale, (1.0 / f64::from(problem.d_qk).sqrt()) as f32);
    let power = (-100..100).any(|n| scale == 2f32.powi(n));
    put(
        "scale",
        if scale == usual {
            "1/sqrt(d_qk)"
        } else if power {
            "another power of two"
        } else {
            "any other"
        },
    );
    put(
        "layout",
        match train.layout {
            TrainLayout::Varlen => "varlen",
            TrainLayout::Dense { side: Side::Left, .. } => "dense, padded left",
            TrainLayout::Dense { side: Side::Right, .. } => "dense, padded right",
        },
    );
    let listed: Vec<u32> = (0..batch.len() as u32).collect();
    put("train order", if train.order == listed { "as listed" } else { "permuted" });
    let rotating = infer.rotate && batch.len() > 1;
    put(
        "step order",
        if rotating {
            "rotating"
        } else if infer.order == listed {
            "as listed"
        } else {
            "permuted"
        },
    );
    let spare = match infer.cache {
        Cache::Contiguous { spare } => {
            put("cache", "contiguous");
            put("pages", "ascending");
            spare
        }
        Cache::Paged { page, spare, shuffle, recycled } => {
            put("cache", &format!("page {page}"));
            put(
                "pages",
                if recycled {
                    "recycled"
                } else if shuffle != 0 {
                    "shuffled"
                } else {
                    "ascending"
                },
            );
            spare
        }
    };
    put("spare slots", switch(spare != 0));
    put("joins", if infer.requests.iter().any(|it| it.join != infer.requests[0].join) { "apart" } else { "together" });
    put("bucket padding", switch(infer.bucket != 1));
    for (name, context) in [("train context ranks", train.context), ("infer context ranks", infer.context)] {
        match context.map(|it| (it.ranks, it.shards)) {
            None => put(name, "1"),
            Some((2, _)) => put(name, "2"),
            Some((3, Shards::Zigzag)) => put(name, "3, zigzag"),
            Some((3, Shards::Contiguous)) => {}
            Some(_) => put(name, "4 or more"),
        }
    }
    for (name, ranks) in [("train head ranks", train.head_ranks), ("infer head ranks", infer.head_ranks)] {
        put(
            name,
            if ranks == 1 {
                "1"
            } else if kv_heads % ranks == 0 {
                "KV heads divided"
            } else {
                "KV heads replicated"
            },
        );
    }
    if let Data::Drawn { regime, .. } = &case.data {
        put(
            "regime",
            match regime {
                Regime::Normal => "normal",
                Regime::Equal => "equal",
                Regime::Dominant { .. } => "dominant",
                Regime::Deep { .. } => "deep",
                Regime::Overflow => "overflow",
                Regime::Subnormal => "subnormal",
                Regime::Quantised => "quantised",
                Regime::Tail => "tail",
                Regime::ZeroPeak => "zero_peak",
                Regime::Rising { .. } => "rising",
                Regime::Wide => "wide",
                Regime::OnehotV => "onehot_v",
                Regime::ConstantV => "constant_v",
                Regime::Mirror { .. } => "mirror",
            },
        );
    }
    for (side, knobs) in [("train", &train.knobs), ("infer", &infer.knobs)] {
        knobs.iter().for_each(|(name, value)| put(&format!("{side} {name}"), value));
    }
    // The leading sequence.
    let mut lead = 0;
    for n in 1..batch.len() {
        lead = if batch[n].kv > batch[lead].kv { n } else { lead };
    }
    let Some(&it) = batch.get(lead).filter(|it| it.kv > 0) else { return has };
    let at = |sizes: &dyn Fn(u32) -> u32| blocks.iter().any(|&block| sizes(block) == it.kv);
    put(
        "length",
        match it.kv {
            1 => "1",
            2049.. => "2049 and more",
            516.. => "516 and more",
            _ if at(&|g| g - 1) => "g-1",
            _ if at(&|g| g) => "g",
            _ if at(&|g| g + 1) => "g+1",
            _ if at(&|g| 2 * g + 1) => "2g+1",
            _ => "elsewhere below 516",
        },
    );
    if it.q == 0 {
        return has;
    }
    let more = if it.q > it.kv { "more than keys" } else { "several after a context" };
    put(
        "rows",
        if it.q == 1 {
            "one"
        } else if it.q == it.kv {
            "all, two or more"
        } else {
            more
        },
    );
    let request = &infer.requests[lead];
    let left = it.q - request.hit;
    let end = i64::from(it.kv) - i64::from(left);
    let on = end > 0 && blocks.iter().any(|&block| end % i64::from(block) == 0);
    put(
        "prefix hit",
        if request.hit == 0 {
            "none"
        } else if on {
            "on a multiple of g"
        } else {
            "elsewhere"
        },
    );
    let total: u32 = batch.iter().map(|it| it.q).sum();
    let budget = infer.budget.unwrap_or(u32::MAX);
    let first: u32 = request.chunks.iter().sum();
    if budget < left {
        put("steps", "cut by a token budget");
    } else if budget >= total {
        let whole = request.chunks.len() == 1 && first == left || request.chunks.is_empty() && request.then >= left;
        let decode = request.chunks.len() < 2 && request.then == 1;
        let verify = request.chunks.len() == 1;
        let later = if verify { "a prefill, then several rows at a time" } else { "chunks" };
        put(
            "steps",
            if whole {
                "one step"
            } else if decode {
                "one row at a time"
            } else {
                later
            },
        );
    }
    let steps: Vec<_> = schedule(problem, infer).into_iter().flatten().filter(|it| it.sequence == lead).collect();
    put("rejected drafts", switch(steps.iter().any(|it| it.kept != it.kv)));
    put("preemption", switch(steps.iter().any(|it| it.rebuilt)));
    has
}

/// Values of all knobs, numbered through.
struct Numbers {
    first: Vec<usize>,
    all: usize,
}

impl Numbers {
    fn of(space: &Space) -> Numbers {
        let (mut first, mut all) = (Vec::new(), 0);
        for (_, values) in space.knobs() {
            first.push(all);
            all += values.len();
        }
        Numbers { first, all }
    }

    /// The values of a case, ascending.
    fn values(&self, space: &Space, case: &Case, blocks: &[u32]) -> Vec<usize> {
        let has = features(case, blocks);
        let mut values = Vec::new();
        for (n, (knob, names)) in space.knobs().iter().enumerate() {
            let default = (!has.contains_key(knob) && knob.contains("threads")).then(|| names[0].clone());
            let value = has.get(knob).or(default.as_ref()).and_then(|value| names.iter().position(|it| it == value));
            values.extend(value.map(|value| self.first[n] + value));
        }
        values
    }

    fn knob_of(&self, value: usize) -> usize {
        self.first.partition_point(|&first| first <= value) - 1
    }
}

/// Which pairs and triples of values were seen.
struct Seen {
    of: usize,
    pairs: Vec<bool>,
    triples: Vec<bool>,
}

impl Seen {
    fn new(of: usize) -> Seen {
        Seen { of, pairs: vec![false; of * of], triples: vec![false; of * of * of] }
    }

    fn add(&mut self, values: &[usize]) {
        for (n, &a) in values.iter().enumerate() {
            for (m, &b) in values.iter().enumerate().skip(n + 1) {
                self.pairs[a * self.of + b] = true;
                for &c in &values[m + 1..] {
                    self.triples[(a * self.of + b) * self.of + c] = true;
                }
            }
        }
    }

    fn has(&self, values: &[usize]) -> bool {
        match *values {
            [a, b] => self.pairs[a * self.of + b],
            [a, b, c] => self.triples[(a * self.of + b) * self.of + c],
            _ => panic!("pairs and triples"),
        }
    }
}

/// Combinations of `t` values of different knobs, ascending.
fn combinations(numbers: &Numbers, t: usize) -> Vec<Vec<usize>> {
    let mut list: Vec<Vec<usize>> = (0..numbers.all).map(|value| vec![value]).collect();
    for _ in 1..t {
        let longer = |it: &Vec<usize>| {
            let next = numbers.knob_of(*it.last().unwrap()) + 1;
            let from = numbers.first.get(next).copied().unwrap_or(numbers.all);
            (from..numbers.all).map(|value| [it.as_slice(), &[value]].concat()).collect::<Vec<_>>()
        };
        list = list.iter().flat_map(longer).collect();
    }
    list
}

/// The cases of all rows, each what its row says.
fn cases(name: &str, attention: &Attention, space: &Space, rows: &[Row]) -> Vec<Case> {
    let scope = attention.pair.scope();
    let case = |(n, row): (usize, &Row)| {
        let case = space.case(row, n as u64);
        validate(&case).unwrap_or_else(|error| panic!("{name} {n}: {error}"));
        assert_eq!(scope.outside(&case), None, "{name} {n}");
        assert!(attention.pins.hold(&case.problem), "{name} {n}");
        assert_eq!(space.read(&case), *row, "{name} {n}");
        case
    };
    rows.iter().enumerate().map(case).collect()
}

/// Every combination that is not excluded is in the cases, none that is; by an own count of both. Gives the number of valid ones.
fn covered(name: &str, attention: &Attention, blocks: &[u32], t: usize) -> usize {
    let space = Space::new(attention);
    let rows = space.rows(t);
    let numbers = Numbers::of(&space);
    let impossible: std::collections::BTreeSet<Vec<usize>> = space
        .impossible(t)
        .into_iter()
        .map(|(values, _)| values.into_iter().map(|(knob, value)| numbers.first[knob] + value).collect())
        .collect();
    let cases = cases(name, attention, &space, &rows);
    let mut seen = Seen::new(numbers.all);
    cases.iter().for_each(|case| seen.add(&numbers.values(&space, case, blocks)));
    let all = combinations(&numbers, t);
    for combination in &all {
        let excluded = impossible.contains(combination);
        assert_eq!(seen.has(combination), !excluded, "{name}: {:?}", words(&space, &numbers, combination));
    }
    // The space's own count says the same, and notices what is missing.
    let read: Vec<Row> = cases.iter().map(|case| space.read(case)).collect();
    let ways = space.ways(t, &read);
    assert_eq!((ways.all, ways.valid, ways.covered), (all.len() as u64, (all.len() - impossible.len()) as u64, ways.valid));
    assert_eq!(ways.excluded.values().sum::<u64>(), impossible.len() as u64);
    assert!(ways.missing.is_empty());
    // The last row was made for a combination that no other had.
    let fewer = space.ways(t, &read[..read.len() - 1]);
    assert!(fewer.covered < fewer.valid && !fewer.missing.is_empty(), "{name}");
    assert_eq!(space.ways(t, []).covered, 0);
    all.len() - impossible.len()
}

fn words(space: &Space, numbers: &Numbers, values: &[usize]) -> Vec<String> {
    let word = |&value: &usize| {
        let knob = numbers.knob_of(value);
        let (name, names) = &space.knobs()[knob];
        format!("{name}: {}", names[value - numbers.first[knob]])
    };
    values.iter().map(word).collect()
}

#[test]
fn every_pair_is_covered() {
    for (name, attention, blocks) in looked_at() {
        let valid = covered(name, &attention, blocks, 2);
        assert!(valid > 2_000, "{name}: {valid}");
        // Work leaves out triples alone.
        assert!(!Space::new(&attention).ways(2, []).excluded.contains_key(TOO_MUCH_WORK), "{name}");
    }
}

#[test]
fn every_triple_is_covered() {
    for (name, attention, blocks) in looked_at() {
        let valid = covered(name, &attention, blocks, 3);
        assert!(valid > 30_000, "{name}: {valid}");
    }
}

/// What the rules exclude, the generator never draws, though it knows nothing of them.
#[test]
fn what_is_excluded_is_never_drawn() {
    for (name, mut attention, blocks) in looked_at() {
        let space = Space::new(&attention);
        let numbers = Numbers::of(&space);
        let mut seen = Seen::new(numbers.all);
        for (seed, (profile, count)) in
            [(Profile::Quick, 6_000), (Profile::Mixed, 12_000), (Profile::Long, 2_000)].into_iter().enumerate()
        {
            attention.profile = profile;
            for index in 0..count {
                seen.add(&numbers.values(&space, &attention.draw(seed as u64, index).case, blocks));
            }
        }
        for t in [2, 3] {
            for (combination, reason) in space.impossible(t) {
                let values: Vec<usize> = combination.into_iter().map(|(knob, value)| numbers.first[knob] + value).collect();
                let drawn = reason != TOO_MUCH_WORK && seen.has(&values);
                assert!(!drawn, "{name}: {:?}, excluded since {reason}, was drawn", words(&space, &numbers, &values));
            }
        }
        // Not since it draws little: much of what is valid comes.
        let pairs = combinations(&numbers, 2);
        let drawn = pairs.iter().filter(|it| seen.has(it)).count();
        assert!(2 * drawn > pairs.len(), "{name}: {drawn} of {}", pairs.len());
    }
}

#[test]
fn rows_and_cases_are_the_same_on_every_run() {
    let (_, attention, _) = &looked_at()[0];
    let (one, other) = (Space::new(attention), Space::new(attention));
    assert_eq!(one.rows(2), other.rows(2));
    let row = &one.rows(2)[17];
    assert_eq!(one.case(row, 17), other.case(row, 17));
    let Data::Drawn { seed, .. } = one.case(row, 17).data else { panic!("data is drawn") };
    let Data::Drawn { seed: next, .. } = one.case(row, 18).data else { panic!("data is drawn") };
    assert_ne!(seed, next);
}

/// Limits of every kind, and pins: still each pair has a case.
#[test]
fn limits_and_pins_leave_every_other_pair() {
    let any = Capabilities::default;
    let knob = Knob { name: "threads".into(), values: ["1", "2", "7"].map(String::from).to_vec() };
    let kernels = [
        ("no empty rows", Capabilities { no_empty_rows: true, ..any() }, "none"),
        ("no empty sequences", Capabilities { no_empty_sequences: true, ..any() }, "none"),
        ("no ragged batches", Capabilities { no_ragged: true, ..any() }, "none"),
        ("few rows", Capabilities { max_rows: Some(70), ..any() }, "none"),
        ("head dims", Capabilities { head_dims: Some(HeadDims::Only(vec![(64, 64), (96, 96), (192, 128)])), ..any() }, "none"),
        ("knobs", Capabilities { knobs: vec![knob], ..any() }, "none"),
        ("pins", any(), "d_qk=80,heads=16/2,dtype=bf16,kv_dtype=e4m3"),
        ("a top-left mask", any(), "causal=top_left"),
    ];
    for (name, can, pins) in kernels {
        let mut attention = against(Declares(can), Mode::Enclosure);
        attention.pins = pins.parse().unwrap();
        let valid = covered(name, &attention, &[64], 2);
        assert!(valid > 900, "{name}: {valid}");
    }
}

#[test]
fn boundaries_are_all_there() {
    for (name, attention, blocks) in looked_at() {
        let space = Space::new(&attention);
        let cases = space.boundary_cases();
        assert!((150..=1_500).contains(&cases.len()), "{name}: {}", cases.len());
        let scope = attention.pair.scope();
        for case in &cases {
            validate(case).unwrap();
            assert_eq!(scope.outside(case), None);
        }
        let usual = [16, 64, 128];
        for g in blocks.iter().chain(&usual) {
            for kv in [1, g - 1, *g, g + 1, 2 * g, 2 * g + 1, 3 * g - 1] {
                let here: Vec<&Case> = cases.iter().filter(|it| it.problem.sequences[0].kv == kv).collect();
                let decoded = here.iter().any(|it| it.infer.requests[0].then == 1);
                let mirrored = here.iter().any(|it| matches!(it.data, Data::Drawn { regime: Regime::Mirror { .. }, .. }));
                assert!(decoded && mirrored, "{name}: {kv}");
            }
        }
    }
}

/// What a bound on a failure rate may count: kernels that compile get each shape several times, and cases of one shape fail together.
#[test]
fn a_draw_has_one_shape() {
    for (compiles, expected) in [(false, 600), (true, 75)] {
        let attention = against(Declares(Capabilities { compiles, ..Capabilities::default() }), Mode::Off);
        let battery = Battery::new(Size::Quick, 1, &attention);
        assert_eq!(battery.cases(Part::Random), 600);
        let mut shapes: BTreeMap<[u64; 2], Case> = BTreeMap::new();
        for index in 0..600 {
            let Case { problem, train, infer, .. } = battery.trial(Part::Random, index).expect("a case").case;
            let shape = Case { problem, train, infer, data: Data::Drawn { seed: 0, regime: Regime::Normal } };
            let first = shapes.entry(battery.draw(index)).or_insert_with(|| shape.clone());
            assert_eq!(*first, shape, "{index}");
        }
        assert_eq!((shapes.len(), battery.repeats_shapes()), (expected, compiles));
    }
}
