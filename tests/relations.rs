//! Relations and the engine's schedule, over many drawn cases: every variant is a valid case, every row is computed with the right
//! keys, and everything that can be drawn is drawn.

use lastbit::finding::Path;
use lastbit::source::{Choose, Source, Stream};
use lastbit::subject::attention::data::Known;
use lastbit::subject::attention::draw::{Hints, Profile, draw};
use lastbit::subject::attention::drive::{StepEntry, schedule};
use lastbit::subject::attention::relation::{Relation, SidedRelation, rotate};
use lastbit::subject::attention::{Anchor, Cache, Case, ContextParallel, Data, Inputs, Literal, Request, Shards, Side, validate};
use std::collections::BTreeSet;

fn drawn(index: u64) -> Case {
    let profile = [Profile::Quick, Profile::Mixed][index as usize % 2];
    draw(&mut Stream::new(11, index), profile, &Hints::default())
}

/// A relation of any kind on any path, whether it fits or not.
fn any_relation(case: &Case, source: &mut Stream) -> SidedRelation {
    use Relation::*;
    let ids: Vec<u32> = case.problem.sequences.iter().map(|it| it.id).chain([77, u32::MAX]).collect();
    let seq = source.pick(&ids);
    let mut n = |most: u32| source.range(0, most);
    let relation = match n(16) {
        0 => Repeat,
        1 => Alone { seq },
        2 => Neighbour { q: n(9), kv: n(20), count: 1 + n(2) },
        3 => NeighbourLength { seq, q: n(9), kv: n(20) },
        4 => NeighbourJoins { seq, join: n(6) },
        5 => Position { rotate: n(4) },
        6 => Padding { side: if n(1) == 0 { Side::Left } else { Side::Right }, pad_q: n(6), pad_kv: n(9) },
        7 => Bucket { size: 1 + n(8) },
        8 => Poison,
        9 => Pages { page: n(9), shuffle: source.below(u64::MAX) },
        10 => Chunk { rows: n(9) },
        11 => Prefix { hit: n(9) },
        12 => PrefixStability { seq, drop: n(9) },
        13 => Recompute,
        14 => HeadRanks { ranks: 1 + n(8) },
        15 => {
            let value = ["2", "", "a b=c \u{e9}"][n(2) as usize];
            Knob { name: ["num_splits", "1"][n(1) as usize].into(), value: (n(3) > 0).then(|| value.into()) }
        }
        _ => {
            let shards = if n(1) == 0 { Shards::Contiguous } else { Shards::Zigzag };
            let context = ContextParallel { ranks: 2 + n(6), shards, length: 1 + n(20) };
            ContextRanks { context: (n(5) > 0).then_some(context) }
        }
    };
    SidedRelation { path: Path::BOTH[source.below(2) as usize], relation }
}

#[test]
fn text_round_trips() {
    let mut source = Stream::new(12, 0);
    for index in 0..3000 {
        let relation = any_relation(&drawn(index % 50), &mut source);
        let text = relation.to_string();
        assert_eq!(text.parse().as_ref(), Ok(&relation), "{text}");
    }
    for index in 0..500 {
        let case = drawn(index);
        for relation in rotate(&case, index, 24, &mut source) {
            assert_eq!(relation.to_string().parse().as_ref(), Ok(&relation));
        }
    }
}

#[test]
fn bad_text_is_refused() {
    for text in [
        "",
        "train",
        "repeat",
        "both repeat",
        "train  repeat",
        "train repeat ",
        "train repeat x=1",
        "train repaet",
        "infer chunk",
        "infer chunk rows=",
        "infer chunk rows=-1",
        "infer chunk rows=01",
        "infer chunk rows=1 rows=2",
        "infer chunk rows=99999999999999999999",
        "infer chunk rows=65537",
        "infer chunk 3",
        "train padding_left pad_q=1",
        "train context_none ranks=2",
        "train context_zigzag ranks=1 length=4",
        "train context_contiguous ranks=2",
        "infer head_ranks ranks=0",
        "infer knob",
        "infer knob ",
        "infer knob =2",
        "infer knob a-b=2",
        "infer knob a=2\n",
    ] {
        assert!(text.parse::<SidedRelation>().is_err(), "`{text}` was accepted");
    }
    let error = "train repaet".parse::<SidedRelation>().unwrap_err();
    assert!(error.contains("repeat"), "{error}");
}

/// A new neighbour gets a free id, also where the largest is taken.
#[test]
fn a_neighbour_of_the_largest_id() {
    let mut case = drawn(0);
    case.problem.sequences[0].id = u32::MAX;
    let relation: SidedRelation = "infer neighbour q=1 kv=2".parse().expect("a relation");
    validate(&relation.apply(&case).expect("a variant").case).expect("a valid case");
}

/// The same case on literal bits, which selections must cut and neighbours must lengthen.
fn literal(case: &Case) -> Case {
    let inputs = Inputs::new(case, None);
    let data = Data::Literal(Literal { q: inputs.q.bits, k: inputs.k.bits, v: inputs.v.bits });
    Case { data, ..case.clone() }
}

#[test]
fn variants_are_valid_and_simpler_forms_too() {
    let mut applied = 0;
    for index in 0..600 {
        let mut source = Stream::new(13, index);
        let case = if index % 3 == 0 { literal(&drawn(index)) } else { drawn(index) };
        validate(&case).expect("a drawn case");
        let mut relations = rotate(&case, index, 24, &mut source);
        relations.extend((0..10).map(|_| any_relation(&case, &mut source)));
        for relation in relations {
            let Some(variant) = relation.apply(&case) else { continue };
            applied += 1;
            validate(&variant.case).unwrap_or_else(|error| panic!("case {index}, {relation}: {error}"));
            let inputs = [&case, &variant.case].map(|case| Inputs::new(case, None));
            let known = Known { problem: &case.problem, inputs: &inputs[0] };
            assert_eq!(Inputs::with(&variant.case, None, Some(known)), inputs[1], "rows made before are not what is made anew");
            if variant.same_inputs {
                assert_eq!(inputs[0], inputs[1], "case {index}, {relation}");
            }
            // Rows that are compared have the same keys and queries in both: the same position, the same data.
            for (n, it) in variant.case.problem.sequences.iter().enumerate() {
                let Some(base) = case.problem.sequences.iter().position(|other| other.id == it.id) else { continue };
                if variant.except == Some(it.id) {
                    continue;
                }
                let original = case.problem.sequences[base];
                for i in 0..it.q {
                    let mask = case.problem.mask;
                    let keys = mask.keys(i, it.q, it.kv);
                    assert_eq!(keys, mask.keys(i, original.q, original.kv), "case {index}, {relation}, row {i}");
                    let row = |inputs: &Inputs, n: usize| inputs.q.row(inputs.q_start[n] + i as usize).to_vec();
                    assert_eq!(row(&inputs[0], base), row(&inputs[1], n), "case {index}, {relation}, row {i}");
                }
                for j in 0..it.kv as usize {
                    let key = |inputs: &Inputs, n: usize| inputs.k.row(inputs.kv_start[n] + j).to_vec();
                    assert_eq!(key(&inputs[0], base), key(&inputs[1], n), "case {index}, {relation}, key {j}");
                }
            }
            for simpler in relation.simpler() {
                assert!(simpler.relation.size() < relation.relation.size(), "{relation} to {simpler}");
                if let Some(variant) = simpler.apply(&case) {
                    validate(&variant.case).unwrap_or_else(|error| panic!("case {index}, {simpler}: {error}"));
                }
            }
        }
    }
    assert!(applied > 5000, "{applied}");
}

#[test]
fn every_kind_is_drawn() {
    let mut seen = BTreeSet::new();
    for index in 0..500 {
        let case = drawn(index);
        for relation in rotate(&case, index, 2, &mut Stream::new(index, 0)) {
            let text = relation.to_string();
            seen.insert(text.split(' ').take(2).collect::<Vec<_>>().join(" "));
        }
    }
    let expected = [
        "infer alone",
        "infer bucket",
        "infer chunk",
        "infer context_contiguous",
        "infer context_none",
        "infer context_zigzag",
        "infer head_ranks",
        "infer neighbour",
        "infer neighbour_joins",
        "infer neighbour_length",
        "infer pages",
        "infer poison",
        "infer position",
        "infer prefix",
        "infer prefix_stability",
        "infer recompute",
        "infer repeat",
        "train alone",
        "train context_contiguous",
        "train context_none",
        "train context_zigzag",
        "train head_ranks",
        "train neighbour",
        "train neighbour_length",
        "train padding_left",
        "train padding_right",
        "train poison",
        "train position",
        "train prefix_stability",
        "train repeat",
    ];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

/// Plans bent further than drawn ones: every feature at once, also where drawing would leave it out.
fn bend(case: &mut Case, source: &mut Stream) {
    let stepwise = case.problem.mask.causal == Some(Anchor::BottomRight);
    let sequences = case.problem.sequences.clone();
    for (it, request) in sequences.iter().zip(&mut case.infer.requests) {
        request.join = source.range(0, 5);
        if !stepwise || it.q == 0 {
            continue;
        }
        let hit = source.range(0, it.q - 1);
        let then = source.range(1, 6);
        let mut left = it.q - hit;
        let mut chunks = Vec::new();
        while left > 0 && source.chance(1, 2) {
            let chunk = source.range(1, left);
            chunks.push(chunk);
            left -= chunk;
        }
        let preempt = source.chance(1, 2).then(|| source.range(1, 4));
        *request = Request { hit, join: request.join, chunks, then, reject: source.range(0, then - 1), preempt };
    }
    if stepwise {
        case.infer.budget = source.chance(1, 2).then(|| source.range(1, 12));
    }
    case.infer.rotate = source.chance(1, 2);
}

fn check_schedule(case: &Case) -> [bool; 4] {
    let problem = &case.problem;
    let stepwise = problem.mask.causal == Some(Anchor::BottomRight);
    let steps = schedule(problem, &case.infer);
    assert_eq!(steps, schedule(problem, &case.infer), "a pure function");
    let mut computed: Vec<Vec<u32>> = problem.sequences.iter().map(|it| vec![0; it.q as usize]).collect();
    let mut next: Vec<u32> = case.infer.requests.iter().map(|it| it.hit).collect();
    let mut rebuilt = vec![0; problem.sequences.len()];
    let mut ended = vec![false; problem.sequences.len()];
    for step in &steps {
        assert!(!step.is_empty(), "a step without rows");
        let rows: u32 = step.iter().map(|it| it.rows).sum();
        assert!(rows <= case.infer.budget.unwrap_or(u32::MAX), "{rows} rows in a step");
        let members: BTreeSet<usize> = step.iter().map(|it| it.sequence).collect();
        assert_eq!(members.len(), step.len(), "a sequence twice in a step");
        for &StepEntry { sequence: n, first_row, rows, kv, rebuilt: again, last, .. } in step {
            let (it, request) = (problem.sequences[n], &case.infer.requests[n]);
            assert!(rows > 0 && first_row + rows <= it.q && !ended[n]);
            assert!(first_row >= request.hit, "a row of the prefix hit is computed");
            // Rows go on where they were, fall back by rejected drafts, or start again after a preemption.
            assert!(first_row <= next[n], "rows {}..{first_row} were left out", next[n]);
            if first_row < next[n] {
                let back = next[n] - first_row;
                assert!(again && first_row == request.hit || back <= request.reject, "{back} rows back");
            }
            rebuilt[n] += u32::from(again);
            next[n] = first_row + rows;
            computed[n][first_row as usize..next[n] as usize].iter_mut().for_each(|count| *count += 1);
            if stepwise {
                // In the call row `i` of `rows` stands at `i + kv - rows`: where it stands in the whole. What is at a negative
                // position sees nothing, there as here.
                let before = i64::from(it.kv) - i64::from(it.q) + i64::from(first_row + rows);
                assert_eq!(i64::from(kv), before.max(0));
                for i in 0..rows {
                    let keys = problem.mask.keys(i, rows, kv);
                    let whole = problem.mask.keys(first_row + i, it.q, it.kv);
                    assert!(keys == whole || (keys.is_empty() && whole.is_empty()), "{keys:?} for {whole:?}");
                }
            } else {
                assert_eq!((first_row, rows, kv), (0, it.q, it.kv), "other masks take the whole sequence at once");
            }
            ended[n] = last;
        }
    }
    let mut features = [false; 4];
    for (n, it) in problem.sequences.iter().enumerate() {
        let request = &case.infer.requests[n];
        for (row, &count) in computed[n].iter().enumerate() {
            assert_eq!(count > 0, row as u32 >= request.hit, "row {row} was computed {count} times");
        }
        assert_eq!(ended[n], it.q > 0, "the last step is marked");
        assert!(rebuilt[n] <= u32::from(request.preempt.is_some()), "preempted once at most");
        features[0] |= request.hit > 0;
        features[1] |= rebuilt[n] > 0;
        features[2] |= rebuilt[n] == 0 && computed[n].iter().any(|&count| count > 1);
    }
    features[3] = case.infer.budget.is_some();
    features
}

#[test]
fn schedules_compute_every_row_with_its_keys() {
    let mut seen = [[0; 4]; 2];
    for index in 0..3000 {
        let mut case = drawn(index);
        let bent = index % 2 == 1;
        if bent {
            bend(&mut case, &mut Stream::new(14, index));
            validate(&case).unwrap_or_else(|error| panic!("case {index}: {error}"));
        }
        for (count, it) in seen[usize::from(bent)].iter_mut().zip(check_schedule(&case)) {
            *count += u32::from(it);
        }
    }
    // Prefix hits, preemptions, rejected drafts, token budgets: all occur.
    assert!(seen.iter().flatten().all(|&count| count > 20), "{seen:?}");
}

/// What plans can hold is drawn within so many cases.
#[test]
fn every_plan_feature_is_drawn() {
    let mut seen = BTreeSet::new();
    for index in 0..500 {
        let case = drawn(index);
        match case.infer.cache {
            Cache::Contiguous { .. } => seen.insert("contiguous"),
            Cache::Paged { recycled, shuffle, spare, .. } => {
                seen.extend(recycled.then_some("recycled"));
                seen.extend((shuffle != 0).then_some("permuted"));
                seen.extend((spare > 0).then_some("spare"));
                seen.insert("paged")
            }
        };
        for (it, request) in case.problem.sequences.iter().zip(&case.infer.requests) {
            seen.extend((request.hit > 0).then_some("hit"));
            seen.extend((request.join > 0).then_some("join"));
            seen.extend((request.chunks.len() > 1).then_some("chunks"));
            seen.extend((request.then == 1 && it.q > 1).then_some("decode"));
            seen.extend((request.reject > 0).then_some("reject"));
            seen.extend(request.preempt.map(|_| "preempt"));
        }
        seen.extend(case.infer.budget.map(|_| "budget"));
        seen.extend((case.infer.bucket > 1).then_some("bucket"));
        seen.extend(case.infer.rotate.then_some("rotate"));
    }
    let all = "bucket budget chunks contiguous decode hit join paged permuted preempt recycled reject rotate spare";
    assert_eq!(seen.into_iter().collect::<Vec<_>>().join(" "), all);
}
