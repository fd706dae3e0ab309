use super::*;
use crate::number::Dtype;
use crate::source::{Choices, Stream};
use crate::subject::attention::{Anchor, Cache, ContextParallel, Data, Regime, Shards, Side, TrainLayout};
use std::collections::BTreeMap;

fn campaign(profile: Profile, cases: u64, granules: &[u32]) -> impl Iterator<Item = Case> {
    let hints = Hints { granules: granules.to_vec(), ..Hints::default() };
    (0..cases).map(move |index| draw(&mut Stream::new(1, index), profile, &hints))
}

fn is_permutation(order: &[u32], n: usize) -> bool {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted == (0..n as u32).collect::<Vec<_>>()
}

/// The ranks of both plans.
fn plans(case: &Case) -> [(Option<ContextParallel>, u32); 2] {
    [(case.train.context, case.train.head_ranks), (case.infer.context, case.infer.head_ranks)]
}

/// The rules a case must keep, written out once more.
fn check_rules(case: &Case) {
    let p = &case.problem;
    let n = p.sequences.len();
    assert!(n <= 4 && p.d_qk >= 1 && p.d_v >= 1 && p.q_heads() >= 1 && p.q_heads() <= 8);
    assert!(p.softmax_scale.is_finite() && p.softmax_scale > 0.0);
    assert!(p.mask.window_right.is_none() || p.mask.causal.is_none());
    assert!(p.softcap.is_none_or(|cap| cap > 0.0));
    for list in [&p.sinks, &p.alibi_slopes].into_iter().flatten() {
        assert!(list.len() == p.q_heads() && list.iter().all(|x| x.is_finite()));
    }
    assert!(is_permutation(&case.train.order, n) && is_permutation(&case.infer.order, n) && case.train.block_q >= 1);
    assert!(case.infer.requests.len() == n && case.infer.bucket >= 1 && case.infer.budget != Some(0));
    if let Cache::Paged { page, .. } = case.infer.cache {
        assert!(page >= 1);
    }
    if let Some(kv) = &p.fp8_kv {
        for scales in [&kv.k_scales, &kv.v_scales] {
            assert!(scales.len() == 1 || scales.len() == p.kv_heads());
            assert!(scales.iter().all(|scale| (0.015..=4.0).contains(scale)), "{kv:?}");
        }
    }
    let stepwise = p.mask.causal == Some(Anchor::BottomRight);
    assert!(stepwise || case.infer.budget.is_none());
    for (context, head_ranks) in plans(case) {
        assert!(context.is_none_or(|it| [2, 3, 4, 8].contains(&it.ranks) && it.length >= 1));
        let (ranks, kv_heads) = (head_ranks as usize, p.kv_heads());
        assert!(p.q_heads().is_multiple_of(ranks) && (kv_heads.is_multiple_of(ranks) || ranks.is_multiple_of(kv_heads)));
    }
    for (sequence, request) in p.sequences.iter().zip(&case.infer.requests) {
        assert!(request.hit < sequence.q || request.hit == 0);
        assert!(request.then >= 1 && request.reject < request.then && request.preempt != Some(0));
        assert!(request.chunks.iter().all(|&chunk| chunk >= 1));
        assert!(request.hit + request.chunks.iter().sum::<u32>() <= sequence.q);
        if !stepwise {
            assert!(request.hit == 0 && request.chunks.is_empty() && request.then == sequence.q.max(1));
            assert!(request.reject == 0 && request.preempt.is_none());
        }
    }
    if let Data::Drawn { regime: Regime::Mirror { span, phase }, .. } = case.data {
        assert!(p.alibi_slopes.is_none() && span >= 3 && phase < span);
        let fits = |s: &crate::subject::attention::Sequence| s.q > 0 && p.mask.keys(s.q - 1, s.q, s.kv).len() >= span as usize;
        assert!(p.sequences.iter().any(fits), "{case:?}");
    }
}

fn work(case: &Case) -> u64 {
    let p = &case.problem;
    let pairs: u64 = p.sequences.iter().map(|s| u64::from(s.q) * u64::from(s.kv)).sum();
    pairs * p.q_heads() as u64 * u64::from(p.d_qk + p.d_v)
}

#[test]
fn every_case_keeps_the_rules() {
    for profile in Profile::ALL {
        campaign(profile, 20_000, &[64, 16]).for_each(|case| check_rules(&case));
        campaign(profile, 2_000, &[1, 4096, u32::MAX]).for_each(|case| check_rules(&case));
    }
    // Replayed and mutilated choices keep them too.
    for index in 0..2_000 {
        let mut stream = Stream::new(9, index);
        let mut recorder = Choices::record(&mut stream);
        let drawn = draw(&mut recorder, Profile::Mixed, &Hints::default());
        let mut list = recorder.list().to_vec();
        assert_eq!(draw(&mut Choices::replay(list.clone()), Profile::Mixed, &Hints::default()), drawn);
        let at = index as usize % list.len();
        list[at] = u64::MAX;
        check_rules(&draw(&mut Choices::replay(list.clone()), Profile::Mixed, &Hints::default()));
        list.truncate(at);
        check_rules(&draw(&mut Choices::replay(list), Profile::Mixed, &Hints::default()));
    }
}

#[test]
fn no_bytes_are_the_smallest_case() {
    use arbitrary::Arbitrary;
    let case = Case::arbitrary(&mut arbitrary::Unstructured::new(&[])).unwrap();
    let p = &case.problem;
    assert_eq!(p.sequences.iter().map(|s| (s.id, s.q, s.kv)).collect::<Vec<_>>(), [(0, 1, 1)]);
    assert_eq!((&p.kv_head_ids[..], &p.group_ids[..], p.d_qk, p.d_v), (&[0][..], &[0][..], 1, 1));
    assert_eq!((p.softmax_scale, p.dtype, p.out_dtype), (1.0, Dtype::F32, Dtype::F32));
    assert!(p.mask == Default::default() && p.softcap.is_none() && p.sinks.is_none() && p.alibi_slopes.is_none());
    assert_eq!(case.train.layout, TrainLayout::Dense { side: Side::Right, pad_q: 0, pad_kv: 0 });
    assert_eq!(case.infer.cache, Cache::Contiguous { spare: 0 });
    assert_eq!((case.infer.bucket, case.infer.budget, case.infer.rotate), (1, None, false));
    assert_eq!(case.data, Data::Drawn { seed: 0, regime: Regime::Normal });
    for length in 0..200 {
        let bytes: Vec<u8> = (0..length).map(|n| (n * 37 + length) as u8).collect();
        check_rules(&Case::arbitrary(&mut arbitrary::Unstructured::new(&bytes)).unwrap());
    }
}

#[test]
fn cases_are_fixed_for_ever() {
    use sha2::Digest;
    let mut digest = sha2::Sha256::new();
    for profile in Profile::ALL {
        // Plans had no knobs when the digest was taken.
        campaign(profile, 50, &[64]).for_each(|case| digest.update(format!("{case:?}").replace(", knobs: []", "")));
    }
    let hex: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "500a8f74a451e4ca");
}

/// What a case has, as names to count.
fn features(case: &Case) -> Vec<String> {
    let p = &case.problem;
    let mut names = Vec::new();
    let mut add = |name: String| names.push(name);
    add(format!("sequences {}", p.sequences.len()));
    add(format!("dtype {} out {}", p.dtype, p.out_dtype));
    match &p.fp8_kv {
        None => add("plain kv".into()),
        Some(kv) => {
            add(format!("kv {} q {} out {}", kv.dtype, p.dtype, p.out_dtype));
            let kind = |scale: f32| match scale {
                1.0 => "1",
                scale if scale.to_bits() << 9 == 0 => "2^n",
                _ => "any",
            };
            for (name, scales) in [("k_scales", &kv.k_scales), ("v_scales", &kv.v_scales)] {
                add(format!("{name} {} {}", if scales.len() > 1 { "per head" } else { "per tensor" }, kind(scales[0])));
            }
        }
    }
    add(format!("causal {:?}", p.mask.causal));
    add(format!("heads {}x{}", p.kv_heads(), p.group_ids.len()));
    let optional = [
        ("window left", p.mask.window_left.is_some()),
        ("window right", p.mask.window_right.is_some()),
        ("softcap", p.softcap.is_some()),
        ("softcap, no mask", p.softcap.is_some() && p.mask == Default::default()),
        ("sinks", p.sinks.is_some()),
        ("alibi", p.alibi_slopes.is_some()),
        ("odd d", p.d_qk % 2 == 1 && p.d_qk > 1),
        ("d_qk != d_v", p.d_qk != p.d_v),
        ("scale not 1/sqrt d", p.softmax_scale != (1.0 / f64::from(p.d_qk).sqrt()) as f32),
        ("budget", case.infer.budget.is_some()),
        ("rotate", case.infer.rotate),
        ("bucket", case.infer.bucket > 1),
        ("train order", !case.train.order.is_sorted()),
        ("infer order", !case.infer.order.is_sorted()),
        ("join", case.infer.requests.iter().any(|r| r.join > 0)),
        ("hit", case.infer.requests.iter().any(|r| r.hit > 0)),
        ("reject", case.infer.requests.iter().any(|r| r.reject > 0)),
        ("preempt", case.infer.requests.iter().any(|r| r.preempt.is_some())),
        ("chunks", case.infer.requests.iter().any(|r| r.chunks.len() > 1)),
        ("decode", case.infer.requests.iter().zip(&p.sequences).any(|(r, s)| r.then == 1 && s.q > 1)),
        ("verify", case.infer.requests.iter().any(|r| r.then > 1 && r.chunks.len() == 1)),
    ];
    optional.into_iter().filter(|(_, has)| *has).for_each(|(name, _)| add(name.into()));
    match case.train.layout {
        TrainLayout::Dense { side, pad_q, pad_kv } => add(format!("dense {side:?} padded {}", pad_q + pad_kv > 0)),
        TrainLayout::Varlen => add("varlen".into()),
    }
    match case.infer.cache {
        Cache::Contiguous { spare } => add(format!("contiguous spare {}", spare > 0)),
        Cache::Paged { page, spare, shuffle, recycled } => {
            add(format!("pages spare {} shuffled {} recycled {recycled}", spare > 0, shuffle != 0));
            if [1, 3, 4, 5, 15, 16, 17, 63, 64].contains(&page) {
                add(format!("page {page}"));
            }
        }
    }
    for ((context, head_ranks), path) in plans(case).into_iter().zip(["train", "infer"]) {
        if let Some(it) = context {
            add(format!("{path} {:?} {}", it.shards, it.ranks));
            let inside = |s: &crate::subject::attention::Sequence| it.chunk_of(i64::from(s.kv) - 1);
            let last = p.sequences.iter().map(inside).max().unwrap_or(0);
            for (name, has) in [
                ("boundary inside", last > 0),
                ("three chunks hit", last > 1),
                ("empty rank", it.shards == Shards::Contiguous && last + 1 < it.ranks),
                ("one chunk hit", last == 0),
                ("no empty chunk", last + 1 == it.chunks()),
                ("boundaries on 16", last > 1 && it.length.is_multiple_of(16)),
            ] {
                if has {
                    add(format!("{path} {name}"));
                }
            }
        }
        for (name, has) in [
            ("head ranks", head_ranks > 1),
            ("KV heads replicated", head_ranks > p.kv_heads() as u32),
            ("whole groups", head_ranks > 1 && head_ranks <= p.kv_heads() as u32),
        ] {
            if has {
                add(format!("{path} {name}"));
            }
        }
    }
    for s in &p.sequences {
        let around = [1, 15, 16, 17, 32, 33, 47, 63, 64, 65, 128, 129, 191, 256, 257, 512, 513];
        around.into_iter().filter(|&kv| kv == s.kv).for_each(|kv| add(format!("kv {kv}")));
        for (name, has) in [
            ("kv = 0", s.kv == 0),
            ("q = 0", s.q == 0),
            ("q > kv", s.q > s.kv),
            ("q = kv", s.q == s.kv),
            ("q = 1 < kv", s.q == 1 && s.kv > 1),
            ("1 < q < kv", s.q > 1 && s.q < s.kv),
        ] {
            if has {
                add(name.into());
            }
        }
        if let Some(left) = p.mask.window_left {
            let all = s.kv.max(1);
            for (name, has) in [
                ("window 0", left == 0),
                ("window kv - 1", left == all - 1),
                ("window kv", left == all),
                ("window kv + 1", left > all),
                ("window 15", left == 15),
                ("window 16", left == 16),
            ] {
                if has {
                    add(name.into());
                }
            }
        }
    }
    if let Data::Drawn { regime, .. } = case.data {
        let name = match regime {
            Regime::Mirror { .. } => "Mirror".into(),
            Regime::Dominant { gap, .. } => format!("Dominant {gap}"),
            Regime::Deep { level } => format!("Deep {level}"),
            other => format!("{other:?}"),
        };
        add(format!("out {}: {}", p.out_dtype, name.split(' ').next().unwrap_or_default()));
        add(name);
    }
    names
}

/// Features that do not follow from a list of values.
const REACHED: &[&str] = &[
    "sequences 0",
    "sequences 1",
    "sequences 2",
    "sequences 3",
    "sequences 4",
    "dtype f32 out f32",
    "dtype bf16 out bf16",
    "dtype f16 out f16",
    "dtype bf16 out f32",
    "dtype f16 out f32",
    "plain kv",
    "kv e4m3 q bf16 out bf16",
    "kv e4m3 q f16 out f16",
    "kv e4m3 q bf16 out f32",
    "kv e4m3 q f32 out f32",
    "kv e5m2 q bf16 out bf16",
    "kv e5m2 q f16 out f16",
    "kv e5m2 q f16 out f32",
    "kv e5m2 q f32 out f32",
    "k_scales per tensor 1",
    "k_scales per tensor 2^n",
    "k_scales per tensor any",
    "k_scales per head 2^n",
    "k_scales per head any",
    "v_scales per tensor any",
    "v_scales per head 2^n",
    "v_scales per head any",
    "causal None",
    "causal Some(BottomRight)",
    "causal Some(TopLeft)",
    "heads 1x1",
    "heads 2x1",
    "heads 1x2",
    "heads 2x2",
    "heads 2x3",
    "heads 3x2",
    "heads 4x2",
    "heads 2x4",
    "heads 1x8",
    "heads 8x1",
    "window left",
    "window right",
    "window 0",
    "window kv - 1",
    "window kv",
    "window kv + 1",
    "window 15",
    "window 16",
    "softcap",
    "softcap, no mask",
    "sinks",
    "alibi",
    "odd d",
    "d_qk != d_v",
    "scale not 1/sqrt d",
    "budget",
    "rotate",
    "bucket",
    "train order",
    "infer order",
    "join",
    "hit",
    "reject",
    "preempt",
    "chunks",
    "decode",
    "verify",
    "dense Left padded false",
    "dense Left padded true",
    "dense Right padded false",
    "dense Right padded true",
    "varlen",
    "contiguous spare false",
    "contiguous spare true",
    "pages spare false shuffled false recycled false",
    "pages spare true shuffled true recycled true",
    "page 1",
    "page 15",
    "page 16",
    "page 17",
    "page 63",
    "page 64",
    "kv = 0",
    "q = 0",
    "q > kv",
    "q = kv",
    "q = 1 < kv",
    "1 < q < kv",
    "kv 1",
    "kv 15",
    "kv 16",
    "kv 17",
    "kv 32",
    "kv 33",
    "kv 47",
    "kv 63",
    "kv 64",
    "kv 65",
    "kv 128",
    "kv 129",
    "kv 191",
    "kv 257",
    "kv 513",
    "train Contiguous 2",
    "train Contiguous 3",
    "train Contiguous 4",
    "train Contiguous 8",
    "train Zigzag 2",
    "train Zigzag 3",
    "train Zigzag 4",
    "train Zigzag 8",
    "train boundary inside",
    "train three chunks hit",
    "train empty rank",
    "train one chunk hit",
    "train no empty chunk",
    "train boundaries on 16",
    "train head ranks",
    "train KV heads replicated",
    "train whole groups",
    "infer Contiguous 2",
    "infer Contiguous 3",
    "infer Contiguous 4",
    "infer Contiguous 8",
    "infer Zigzag 2",
    "infer Zigzag 3",
    "infer Zigzag 4",
    "infer Zigzag 8",
    "infer boundary inside",
    "infer three chunks hit",
    "infer empty rank",
    "infer one chunk hit",
    "infer no empty chunk",
    "infer boundaries on 16",
    "infer head ranks",
    "infer KV heads replicated",
    "infer whole groups",
    "Dominant 1",
    "Dominant 20",
    "Dominant 88",
    "Dominant 10000",
    "Deep -1000",
    "Deep -10000",
    "Deep -60000",
    "Deep -300000000000000000000000000000000000000",
];

/// The generator reaches every feature and boundary, and every regime with every output dtype, within 4000 cases.
#[test]
fn everything_is_reached() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for case in campaign(Profile::Mixed, 4_000, &[16, 64]) {
        let mut names = features(&case);
        names.sort();
        names.dedup();
        names.into_iter().for_each(|name| *seen.entry(name).or_default() += 1);
    }
    let mut wanted: Vec<String> = REACHED.iter().map(|name| name.to_string()).collect();
    for &(kind, _, _) in table::REGIMES {
        wanted.extend(["f32", "bf16", "f16"].map(|out| format!("out {out}: {kind:?}")));
    }
    let missing: Vec<&String> = wanted.iter().filter(|&name| !seen.contains_key(name)).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}; reached: {seen:#?}");
    // A few common ones, so that a slip in a weight shows.
    let fp8: u32 = seen.iter().filter(|(name, _)| name.starts_with("kv e")).map(|(_, count)| count).sum();
    assert!((560..760).contains(&fp8), "8-bit KV in {fp8} of 4000, one in six is meant");
    for (name, least) in [
        ("Mirror", 1_800),
        ("causal Some(BottomRight)", 2_800),
        ("decode", 1_000),
        ("hit", 600),
        ("kv 65", 150),
        ("train three chunks hit", 300),
        ("infer KV heads replicated", 150),
    ] {
        assert!(seen[name] >= least, "{name}: {}", seen[name]);
    }
}

/// The mean work sets the pace of a campaign.
#[test]
fn the_mean_work_is_small() {
    for (profile, cases) in [(Profile::Quick, 4_000), (Profile::Mixed, 4_000), (Profile::Long, 1_000)] {
        let mut works: Vec<u64> = campaign(profile, cases, &[16, 64]).map(|case| work(&case)).collect();
        works.sort_unstable();
        let mean = works.iter().sum::<u64>() / cases;
        let mut kvs: Vec<u32> = campaign(profile, cases, &[16, 64])
            .flat_map(|case| case.problem.sequences.iter().map(|s| s.kv).collect::<Vec<_>>())
            .collect();
        kvs.sort_unstable();
        println!(
            "{profile}: work mean {mean}, median {}, 99% {}, most {}; kv median {} 90% {} most {}",
            works[cases as usize / 2],
            works[cases as usize * 99 / 100],
            works[cases as usize - 1],
            kvs[kvs.len() / 2],
            kvs[kvs.len() * 9 / 10],
            kvs[kvs.len() - 1]
        );
        assert!(mean <= if profile == Profile::Long { 400_000 } else { 150_000 });
        if profile == Profile::Long {
            assert!(kvs[kvs.len() - 1] > 4_096);
        }
    }
}

#[test]
fn captured_shapes_are_kept() {
    let shape = CapturedShape {
        sha256: "ab".repeat(32),
        lengths: vec![20, 156, 5],
        kv_heads: 12,
        groups: 1,
        d_qk: 32,
        d_v: 32,
        softmax_scale: 0.176_776_69,
    };
    let hints = Hints { granules: vec![64], captured: Some(&shape), ..Hints::default() };
    let (mut ids, mut heads) = ([0; 3], [0; 12]);
    for index in 0..3_000 {
        let case = draw(&mut Stream::new(4, index), Profile::Mixed, &hints);
        check_rules(&case);
        assert_eq!((case.problem.d_qk, case.problem.d_v, case.problem.softmax_scale), (32, 32, shape.softmax_scale));
        assert_eq!(case.data, Data::Captured { sha256: shape.sha256.clone() });
        let mut own: Vec<u32> = case.problem.sequences.iter().map(|s| s.id).collect();
        own.sort_unstable();
        own.dedup();
        assert_eq!(own.len(), case.problem.sequences.len());
        for s in &case.problem.sequences {
            assert!(s.kv <= shape.lengths[s.id as usize]);
            ids[s.id as usize] += 1;
        }
        case.problem.kv_head_ids.iter().for_each(|&head| heads[head as usize] += 1);
    }
    assert!(ids.iter().all(|&n| n > 500) && heads.iter().all(|&n| n > 100), "{ids:?} {heads:?}");
}

#[test]
fn profiles_have_names() {
    for profile in Profile::ALL {
        assert_eq!(profile.to_string().parse(), Ok(profile));
    }
    assert!("tiny".parse::<Profile>().unwrap_err().contains("quick, mixed, long"));
}
