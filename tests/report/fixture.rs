//! Certificates as they come: all PASS, several FAIL with their minimal cases, one UNVERIFIABLE.

use lastbit::certify::certificate::*;
use lastbit::certify::statement::{Outcome, PREDICATE, Predicate, Resource, STATEMENT, Statement};
use lastbit::tree::Tree;
use std::collections::BTreeMap;

const CASE: &str = include_str!("../../corpora/regressions/attention/blocking-fa3-decode-tile-bf16.case");

const CLAIMS: [(&str, &str); 12] = [
    ("train_eq_infer", "Training and inference give the same bits of o and lse."),
    ("repeatable", "Each kernel gives the same bits when it is called again."),
    ("batch_invariant", "A sequence has the same bits whatever else is in its batch."),
    ("position_invariant", "A sequence has the same bits at any place in its batch."),
    ("padding_invariant", "Padding and what stands in it changes no bit."),
    ("page_invariant", "Page size and page order change no bit."),
    ("chunk_invariant", "Prefill in chunks of any size has the bits of prefill in one."),
    ("prefix_invariant", "A hit of the prefix cache changes no bit."),
    ("split_invariant", "Splits of the keys over workers change no bit."),
    ("parallel_invariant", "Two and four ranks have the bits of one."),
    ("accurate", "Every result lies within the bound computed for its arithmetic."),
    ("rejects_or_correct", "What a kernel does not do it refuses; what it answers is right."),
];

fn digest(seed: u64) -> String {
    (0..4u64).map(|n| format!("{:016x}", (seed + n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))).collect()
}

fn counts(pairs: &[(&str, u64)]) -> Counts {
    pairs.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
}

/// Every claim PASS: `ref:aligned` against itself.
pub fn passing() -> Statement {
    let claims = CLAIMS.iter().enumerate().map(|(n, &(claim, sentence))| ClaimResult {
        claim: claim.into(),
        sentence: sentence.into(),
        status: Status::Pass,
        reason: format!("no bit differs in {} elements of {} cases", 1_204_117 + 31_337 * n as u64, 4096 - 117 * n as u64),
        cases: 4096 - 117 * n as u64,
        failed: 0,
        elements: 1_204_117 + 31_337 * n as u64,
        differing: 0,
        counterexamples: vec![],
        waived: None,
    });
    finished(certificate("ref:aligned", claims.collect()))
}

/// `ref:fa3` against itself: its tile in decode is another than in prefill, and its splits follow the batch.
pub fn failing() -> Statement {
    let Statement { predicate: Predicate { lastbit: certificate, .. }, .. } = passing();
    let mut it = Certificate { kernels: ["train", "infer"].map(|side| kernel(side, "ref:fa3")), ..certificate };
    let blocking = counterexample(
        0,
        CASE,
        &["train_eq_infer", "chunk_invariant"],
        "mismatch o",
        "1 sequence (q 2, kv 129), 1 head, d_qk 1, d_v 1, bf16",
        129,
        ("blocking", "blocking: blocks: 0..128, 128..129 against 0..129"),
        "mismatch o, 1 of 2 elements differ\n  o[seq=0 row=1 head=0 d=0]: train 3bfb (0.007659912)  infer 3bfa (0.0076293945)  1 ULP apart\n  \
         true 3bfb (0.007659912), train nearer\nfirst divergence (seq=0 row=1 head=0, position 128): Training cuts at 128, inference sums \
         keys 0..129 in one block.\nblocks: 128 in training (batch 1, 2 rows at most, 129 keys), 192 in inference (batch 1, 1 row at most, \
         129 keys)",
    );
    let order = counterexample(
        1,
        &CASE.replace("kv = 129", "kv = 577"),
        &["batch_invariant", "split_invariant"],
        "not invariant to company (infer) o",
        "2 sequences (q 1, kv 577; q 1, kv 1), 1 head, d_qk 1, d_v 1, f16",
        577,
        ("order", "order: splits: 1 against 4, of 160 keys each"),
        "not invariant to company (infer), o, 1 of 1 elements differ\n  o[seq=0 row=0 head=0 d=0]: alone 2c00 (0.0625)  with company 2bff \
         (0.06244)  1 ULP apart\nfirst divergence (seq=0 row=0 head=0, position 160): alone sums keys 0..577 in one split.",
    );
    let fails = [
        ("train_eq_infer", 231, 18_211, &blocking, "18,211 of 1,204,117 elements differ, the largest distance is 3 ULP"),
        ("batch_invariant", 64, 901, &order, "901 elements of 64 cases have other bits beside other sequences"),
        ("chunk_invariant", 202, 15_004, &blocking, "a chunk with one row takes the tile of decode"),
        ("split_invariant", 71, 1_117, &order, "the number of splits follows the batch"),
    ];
    for claim in &mut it.claims {
        if let Some((_, failed, differing, case, why)) = fails.iter().find(|(name, ..)| *name == claim.claim) {
            claim.status = Status::Fail;
            claim.failed = *failed;
            claim.differing = *differing;
            claim.reason = (*why).into();
            claim.counterexamples = vec![case.sha256.clone()];
        }
        if claim.claim == "split_invariant" {
            claim.waived = Some("https://example.org/kernels/issues/417".into());
        }
        if claim.claim == "parallel_invariant" {
            claim.status = Status::Unverifiable;
            claim.reason = "ring with a rank boundary inside a block was never reached".into();
        }
    }
    it.counterexamples = vec![blocking, order];
    it.waivers = vec![Waiver {
        claim: "split_invariant".into(),
        issue: "https://example.org/kernels/issues/417".into(),
        until: "2027-03-31".into(),
    }];
    it.power.unreached = vec!["ring_inside_block".into()];
    it.power.mutants =
        Mutants { planted: 55, killed: 54, elsewhere: vec!["D-M9".into()], survived: vec!["D-M15".into()], floor: 0.95 };
    it.results.differing = 18_211;
    it.results.distances = vec![17_020, 1_003, 188, 0, 0, 0, 0, 0, 0];
    it.bound = FailureBound { failed: 117, upper: 0.067_21, ..it.bound };
    for (n, stratum) in it.strata.iter_mut().enumerate() {
        stratum.failed = stratum.run / (7 + n as u64);
        stratum.differing = stratum.elements / 90;
    }
    for bin in &mut it.coverage.lengths {
        if bin.up_to > 128 {
            bin.mismatched = bin.cases * (bin.up_to.ilog2() as u64 - 6) / 11;
            bin.failed = bin.mismatched + bin.cases / 19;
        }
    }
    for (m, map) in it.coverage.maps.iter_mut().enumerate() {
        for (r, row) in map.cells.iter_mut().enumerate() {
            for (c, cell) in row.iter_mut().enumerate() {
                let long = if m == 0 { c >= 4 } else { (r * 5 + c * 3).is_multiple_of(4) };
                if long && cell[0] > 3 {
                    let failed = cell[0] / (2 + (r + c) as u64);
                    *cell = [cell[0] - failed, failed, cell[2]];
                }
            }
        }
    }
    let block = |from: u32, to: u32| Tree::sum((from..to).map(Tree::Leaf)).unwrap();
    let blocks = |size: u32| {
        let starts: Vec<u32> = (0..400).step_by(size as usize).collect();
        Tree::sum(starts.into_iter().rev().map(|start| block(start, 400.min(start + size)))).unwrap()
    };
    it.trees = vec![
        tree("train", "PV over 400 keys, prefill against decode", &blocks(128), "blocks of 128, last first"),
        tree("infer", "PV over 400 keys, prefill against decode", &blocks(192), "blocks of 192, last first"),
        tree("train", "QK over 8 dims", &Tree::pairwise(0, 8, 0).unwrap(), "pairwise"),
        tree("infer", "QK over 8 dims", &Tree::pairwise(0, 8, 0).unwrap(), "pairwise"),
    ];
    finished(it)
}

/// `ref:aligned` run too short: nothing fails, and one claim is not shown.
pub fn unverifiable() -> Statement {
    let mut it = passing().predicate.lastbit;
    it.claims[8].status = Status::Unverifiable;
    it.claims[8].reason = "no case with more than one split ran; the kernels allow it".into();
    it.power.unreached = vec!["split_without_keys".into()];
    it.power.controls[2].failed_at = None;
    finished(it)
}

/// What follows from the rest.
pub fn finished(mut it: Certificate) -> Statement {
    let names = |fits: &dyn Fn(&ClaimResult) -> bool| -> Vec<String> {
        it.claims.iter().filter(|claim| fits(claim)).map(|claim| claim.claim.clone()).collect()
    };
    let passed_tests = names(&|claim| claim.status == Status::Pass);
    let failed_tests = names(&|claim| claim.status == Status::Fail && claim.waived.is_none());
    let warned_tests =
        names(&|claim| claim.status == Status::Unverifiable || (claim.status == Status::Fail && claim.waived.is_some()));
    let number = |status| it.claims.iter().filter(|claim| claim.status == status).count();
    let mut status = format!("lastbit: {} claims, {} PASS", it.claims.len(), number(Status::Pass));
    for other in [Status::Fail, Status::Unverifiable] {
        if number(other) > 0 {
            status += &format!(", {} {other}", number(other));
        }
    }
    let result = match (failed_tests.is_empty(), warned_tests.is_empty()) {
        (false, _) => Outcome::Failed,
        (true, false) => Outcome::Warned,
        (true, true) => Outcome::Passed,
    };
    it.status = status;
    let subject = it.kernels.iter().map(|kernel| Resource::new(&kernel.side, &kernel.contract.numerics)).collect();
    let configuration = vec![Resource::new("battery", &it.battery.sha256)];
    Statement {
        kind: STATEMENT.into(),
        subject,
        predicate_type: PREDICATE.into(),
        predicate: Predicate { result, configuration, passed_tests, warned_tests, failed_tests, lastbit: it },
    }
}

fn kernel(side: &str, words: &str) -> KernelText {
    let fields = [
        ("score.order", "sequential"),
        ("score.scale", "folded_log2e"),
        ("softmax.block", "rule(fa3)"),
        ("softmax.traverse", "backward"),
        ("probs.dtype", "bf16"),
        ("grid.split", "none"),
        ("declared.anchor", "as_called"),
    ];
    KernelText {
        side: side.into(),
        words: words.into(),
        name: words.into(),
        version: "0.1.0".into(),
        declared_sha256: None,
        measured_sha256: None,
        contract: Contract { semantics: digest(1), numerics: digest(2), deployment: digest(3) },
        fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    }
}

fn tree(side: &str, of: &str, tree: &Tree, shape: &str) -> TreeText {
    TreeText { side: side.into(), of: of.into(), tree: tree.to_string(), shape: shape.into() }
}

#[allow(clippy::too_many_arguments)] // as many as a counterexample has fields
fn counterexample(
    n: u64,
    text: &str,
    claims: &[&str],
    signature: &str,
    size: &str,
    kv: u32,
    (kind, cause): (&str, &str),
    verdict: &str,
) -> Counterexample {
    let name = format!("{}-{kv}.case", signature.split_whitespace().next().unwrap_or_default());
    Counterexample {
        sha256: digest(90 + n),
        claims: claims.iter().map(|&claim| claim.into()).collect(),
        signature: signature.into(),
        from: format!("pairs {}", 17 + 40 * n),
        size: size.into(),
        kv,
        cause: cause.into(),
        kind: kind.into(),
        verdict: verdict.into(),
        replay: format!("lastbit replay counterexamples/{name}"),
        file: name,
        text: text.into(),
    }
}

fn certificate(words: &str, claims: Vec<ClaimResult>) -> Certificate {
    let strata = [
        ("pairs", "every pair of knob values", 212),
        ("triples", "every triple of knob values", 1480),
        ("boundary", "lengths beside every block, page and split", 604),
        ("splits", "splits of every count, with empty ones", 96),
        ("random", "drawn as `fuzz` draws", 2000),
        ("kept", "kept seeds and regressions", 61),
        ("outside", "what the kernels do not claim to do", 48),
    ];
    Certificate {
        format: FORMAT,
        lastbit: "0.1.0".into(),
        battery: BatteryText {
            name: "standard".into(),
            version: 1,
            seed: 1,
            claims: claims.iter().map(|claim| claim.claim.clone()).collect(),
            strata: strata.iter().map(|&(name, _, n)| (name.to_owned(), n)).collect(),
            limits: vec![],
            sha256: digest(10),
        },
        kernels: ["train", "infer"].map(|side| kernel(side, words)),
        previous: None,
        status: String::new(),
        claims,
        strata: strata
            .iter()
            .enumerate()
            .map(|(n, &(name, about, generated))| StratumResult {
                name: name.into(),
                about: about.into(),
                generated,
                run: generated - generated / 50,
                skipped: if generated < 50 {
                    Counts::new()
                } else {
                    counts(&[("out of range: scores beyond f16", generated / 50)])
                },
                left_out: if n == 4 {
                    counts(&[("lse is not asked for", 120), ("alibi with a window", 33)])
                } else {
                    Counts::new()
                },
                failed: 0,
                undecided: u64::from(n == 4),
                elements: generated * 2_831,
                differing: 0,
                cases: digest(60 + n as u64),
                outputs: digest(20 + n as u64),
                records: digest(40 + n as u64),
            })
            .collect(),
        coverage: coverage(),
        power: Power {
            order_sensitive: BTreeMap::from([
                ("bf16".to_owned(), [1302, 811]),
                ("f16".to_owned(), [1275, 1102]),
                ("f32".to_owned(), [1410, 1402]),
            ]),
            witness: words.into(),
            reach: counts(&[
                ("prefix_hit", 811),
                ("split_without_keys", 12),
                ("stale_page_tail", 402),
                ("preempted", 77),
                ("rejected_draft", 93),
            ]),
            unreached: vec![],
            mutants: Mutants { planted: 55, killed: 55, elsewhere: vec![], survived: vec![], floor: 0.95 },
            controls: [
                ("train_eq_infer", "ref:p-bf16 in inference", "pairs 0"),
                ("repeatable", "a kernel with a call counter", "pairs 0"),
                ("batch_invariant", "ref:fa2 with splits by batch", "pairs 3"),
                ("page_invariant", "ref:page-blocks", "pairs 1"),
                ("accurate", "ref:aligned with a truncating store", "pairs 0"),
            ]
            .iter()
            .map(|&(claim, kernel, at)| Control { claim: claim.into(), kernel: kernel.into(), failed_at: Some(at.into()) })
            .collect(),
            records: digest(60),
        },
        results: Results {
            compared: 1_204_117,
            differing: 0,
            distances: vec![0; 9],
            judged: 2_408_234,
            correctly_rounded: 2_391_020,
            above: 1_198_113,
            below: 1_203_870,
            unbounded: 0,
            out_of_range: 412,
            errors: vec![1_310_224, 1_080_796, 16_902, 301, 11, 0, 0, 0, 0],
            worst: 0.8137,
            worst_case: Some("random 1187".into()),
        },
        bound: FailureBound {
            distribution: "cases as `lastbit fuzz` draws them with seed 1".into(),
            cases: 1960,
            failed: 0,
            confidence: 0.95,
            upper: 0.001_527_3,
        },
        counterexamples: vec![],
        trees: vec![],
        waivers: vec![],
        voids: vec![
            "another version or build of either kernel, of its compiler or of a library that it calls".into(),
            "another device, driver or environment variable that the kernel reads".into(),
            "a call form, mask or format that is not in the ranges above".into(),
        ],
        digest: digest(7),
        environment: Environment {
            platform: "linux x86_64".into(),
            processor: "2 cores".into(),
            devices: ["cpu".into(), "cpu".into()],
            programs_sha256: [digest(8)].into(),
            shards: 1,
            threads: 2,
            finished: "2026-11-30T03:22:43Z".into(),
            seconds: 412.7,
        },
        seal: digest(9),
    }
}

fn coverage() -> Coverage {
    let knobs = [
        ("dtype", vec!["bf16", "f16", "f32"]),
        ("mask", vec!["none", "causal", "window", "causal window", "sinks", "alibi"]),
        ("kv", vec!["1", "16", "64", "128", "129", "512", "4096"]),
        ("layout", vec!["varlen", "dense right", "dense left"]),
        ("cache", vec!["contiguous", "page 1", "page 16", "page 64"]),
    ];
    let named = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let lengths = ["1", "2-16", "17-64", "65-128", "129-256", "257-1k", "1k-4k", "4k-8k"];
    let map = |down: &str, rows: &[&str], across: &str, columns: &[&str], seed: u64| Map {
        down: down.into(),
        across: across.into(),
        rows: named(rows),
        columns: named(columns),
        cells: (0..rows.len() as u64)
            .map(|r| {
                (0..columns.len() as u64)
                    .map(|c| {
                        let n = (seed * 7 + r * 31 + c * 17 + r * c * 5) % 97;
                        match n % 23 {
                            1 => [0, 0, 0],
                            5 => [0, 0, 3 + n % 4],
                            n2 => [1 + n * (1 + n2 / 4), 0, if n2 == 7 { 2 } else { 0 }],
                        }
                    })
                    .collect()
            })
            .collect(),
    };
    let boundary = |name: &str, size: u32, n: u64| Boundary {
        name: name.into(),
        size,
        hits: counts(&[
            ("1", 40 + n),
            ("g-1", 61 + n),
            ("g", 77 - n),
            ("g+1", 90),
            ("2g", 31),
            ("2g+1", 30),
            ("3g-1", if size > 150 { 0 } else { 12 }),
            ("other multiple", 55),
            ("elsewhere", 3800),
        ]),
    };
    Coverage {
        ranges: [
            ("kv", [1, 8192]),
            ("q", [1, 513]),
            ("batch", [1, 8]),
            ("q_heads", [1, 16]),
            ("kv_heads", [1, 8]),
            ("d_qk", [1, 256]),
            ("d_v", [1, 256]),
            ("page", [1, 64]),
            ("ranks", [1, 4]),
        ]
        .map(|(name, range)| (name.to_owned(), range))
        .into(),
        values: [
            ("dtype", counts(&[("bf16", 1502), ("f16", 1480), ("f32", 1519)])),
            ("mask", counts(&[("none", 602), ("causal", 1811), ("causal window", 1204), ("sinks", 420), ("alibi", 464)])),
            ("regime", counts(&[("normal", 1200), ("mirror", 604), ("tail", 777), ("zero_peak", 101), ("one_hot", 333)])),
        ]
        .map(|(name, values)| (name.to_owned(), values))
        .into(),
        pairs: Ways {
            knobs: knobs.iter().map(|(name, values)| ((*name).to_owned(), named(values))).collect(),
            all: 218,
            excluded: counts(&[("a window needs a causal mask", 11), ("page 1 with dense left", 3)]),
            valid: 204,
            covered: 204,
            missing: vec![],
        },
        triples: Some(Ways {
            knobs: knobs.iter().map(|(name, values)| ((*name).to_owned(), named(values))).collect(),
            all: 1_622,
            excluded: counts(&[("a window needs a causal mask", 204)]),
            valid: 1_418,
            covered: 1_416,
            missing: named(&["dtype f16, mask alibi, cache page 1", "kv 4096, layout dense left, cache page 64"]),
        }),
        boundaries: vec![boundary("page 16", 16, 4), boundary("block 128", 128, 0), boundary("block 192", 192, 9)],
        maps: vec![
            map("mask", &["none", "causal", "window", "causal window", "sinks", "alibi"], "kv", &lengths, 3),
            map("dtype", &["bf16", "f16", "f32"], "cache", &["contiguous", "page 1", "page 16", "page 64"], 1),
            map(
                "data",
                &["normal", "mirror", "tail", "zero_peak", "one_hot"],
                "layout",
                &["varlen", "dense right", "dense left"],
                8,
            ),
        ],
        lengths: [
            (0, 0),
            (1, 121),
            (2, 90),
            (4, 160),
            (8, 233),
            (16, 402),
            (32, 377),
            (64, 410),
            (128, 601),
            (256, 702),
            (512, 520),
        ]
        .into_iter()
        .chain([(1024, 431), (2048, 260), (4096, 131), (8192, 63)])
        .map(|(up_to, cases)| LengthBin { up_to, cases, failed: 0, mismatched: 0 })
        .collect(),
    }
}
