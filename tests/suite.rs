//! The suite over small kernels: quiet on an honest one, loud by name on faulty ones, and never passing on nothing.

#[path = "../examples/tiny-attention/src/lib.rs"]
#[allow(unexpected_cfgs, reason = "the feature is the example's own")]
mod tiny_attention;

use lastbit::finding::{Axis, Finding, Kind};
use lastbit::subject::attention::capabilities::{Capabilities, HeadDims};
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{AttentionKernel, Attributes, Identity, KernelError, Outputs, PagedCall};
use lastbit::subject::attention::per_sequence::{PerSequence, SequenceCall};
use lastbit::subject::attention::reference::Reference;
use lastbit::suite::{Failure, Found, Suite, Test};
use std::path::Path;
use std::sync::Arc;
use tiny_attention::{Shape, attention};

type Forward = fn(&SequenceCall<'_>, &mut [f32], &mut [f32]) -> Result<(), KernelError>;

fn forward(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]) -> Result<(), KernelError> {
    let supported = [Feature::Causal, Feature::NotCausal, Feature::GroupedHeads, Feature::UnequalHeadDims];
    call.attributes.only(&supported)?;
    let Attributes { q_heads, kv_heads, d_qk, d_v, softmax_scale, mask, .. } = *call.attributes;
    let shape = Shape { q_heads, kv_heads, d_qk, d_v, softmax_scale, causal: mask.causal.is_some() };
    attention(&shape, call.q, call.k, call.v, o, lse);
    Ok(())
}

fn suite(forward: Forward) -> Suite {
    Suite::new(PerSequence::new("tiny", "1", forward)).cases(40).folder(env!("CARGO_TARGET_TMPDIR"))
}

fn found(suite: &Suite, test: Test) -> Found {
    match suite.run(test) {
        Err(Failure::Found(found)) => *found,
        Err(failure) => panic!("{failure}"),
        Ok(report) => panic!("passed: {report}"),
    }
}

// What a kernel author writes, with a budget for this repository's own tests.
lastbit::attention_suite!(suite(forward), kept: "tests/kept");

/// The example's planted fault, from outside: the causal mask forgets the context (NVIDIA/cutlass#2336).
fn forgets_the_context(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]) -> Result<(), KernelError> {
    let Attributes { kv_heads, d_qk, d_v, mask, .. } = *call.attributes;
    let keys = if mask.causal.is_some() { call.rows.min(call.keys) } else { call.keys };
    let call = SequenceCall { keys, k: &call.k[..keys * kv_heads * d_qk], v: &call.v[..keys * kv_heads * d_v], ..*call };
    forward(&call, o, lse)
}

#[test]
fn a_forgotten_context_is_named_as_chunk_and_prefix_on_few_positions() {
    let suite = self::suite(forgets_the_context).cases(200);
    for axis in [Axis::Chunk, Axis::Prefix] {
        let found = found(&suite, Test::Relation(axis));
        let positions: u32 = found.trial.case.problem.sequences.iter().map(|it| it.kv).sum();
        assert!(positions <= 3, "{}", found.text);
        assert!(matches!(&found.finding, Finding::NotInvariant { axis: it, .. } if *it == axis), "{}", found.text);
        let named = format!("verdict: not invariant to {axis} (infer), o, ");
        assert!(found.text.contains(&named), "{}", found.text);
    }
    assert_eq!(found(&suite, Test::TrainAgainstInfer).finding.kind(), Kind::Mismatch);
    assert_eq!(found(&suite, Test::Accuracy).finding.kind(), Kind::Inaccurate);
}

#[test]
fn what_is_found_is_kept_as_a_file_that_replays_with_its_own_kernel_only() {
    let faulty = suite(forgets_the_context).folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept for replay"));
    let found = found(&faulty, Test::Relation(Axis::Chunk));
    let path = found.file.clone().unwrap();
    assert!(found.text.contains(&format!("replay: LASTBIT_CASE='{}' cargo test chunk\n", path.display())), "{}", found.text);
    assert!(found.text.ends_with(&std::fs::read_to_string(&path).unwrap()), "{}", found.text);
    // Again with the fault, the same finding; without it, a match.
    match faulty.replay(&path) {
        Err(Failure::Found(again)) => assert!(again.text.contains("not invariant to chunk"), "{}", again.text),
        other => panic!("{other:?}"),
    }
    let replayed = suite(forward).replay(&path).unwrap();
    assert!(replayed.contains("verdict: match"), "{replayed}");
    // Another kernel's suite, and the program, which holds no kernel but the reference.
    let stranger = Suite::new(PerSequence::new("other", "1", forward)).replay(&path).unwrap_err().to_string();
    assert!(stranger.contains("run.train: is tiny 1 (cpu), a kernel that only its own crate holds"), "{stranger}");
    assert!(stranger.ends_with("(this suite tests other)"), "{stranger}");
    let program = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_lastbit")).args(arguments).arg(&path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = program(&["replay"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("cargo test`, or name another kernel with --train"), "{text}");
    assert_eq!(program(&["show"]).0, Some(0));
    let (code, text) = program(&["replay", "--train", "ref:aligned", "--infer", "ref:aligned"]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn an_unwritten_element_and_a_panic_are_faults() {
    let unwritten = suite(|call, o, lse| {
        let last = o[o.len() - 1];
        forward(call, o, lse)?;
        o[call.rows * call.attributes.q_heads * call.attributes.d_v - 1] = last;
        Ok(())
    });
    let text = found(&unwritten, Test::TrainAgainstInfer).text;
    assert!(text.contains("was not written"), "{text}");
    let panics = suite(|call, o, lse| {
        assert!(call.keys < 2, "{} keys", call.keys);
        forward(call, o, lse)
    });
    let text = found(&panics, Test::RefusedOrRight).text;
    assert!(text.contains("the call failed: panicked: 2 keys"), "{text}");
}

/// A case outside what the kernel supports is computed all the same, and wrongly: here softcap is ignored.
#[test]
fn what_is_not_refused_must_be_right() {
    let ignores_softcap = suite(|call, o, lse| {
        if call.attributes.features().contains(&Feature::Softcap) {
            let plain = Attributes { softcap: None, ..call.attributes.clone() };
            return forward(&SequenceCall { attributes: &plain, ..*call }, o, lse);
        }
        forward(call, o, lse)
    })
    .cases(200);
    // Its author tests what it was written for, and sees nothing.
    let plain = ignores_softcap.clone().only(|problem| problem.softcap.is_none());
    assert!(plain.run(Test::Accuracy).is_ok());
    assert_eq!(found(&plain, Test::RefusedOrRight).finding.kind(), Kind::Inaccurate);
}

/// A rank has fewer heads than the whole: a kernel that cuts its work by their number gives a head other bits there.
#[test]
fn a_sum_that_follows_the_number_of_heads_is_named_as_ranks() {
    fn by_heads(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]) -> Result<(), KernelError> {
        forward(call, o, lse)?;
        if call.attributes.q_heads > 1 {
            o.iter_mut().for_each(|out| *out = f32::from_bits(out.to_bits() ^ 1));
        }
        Ok(())
    }
    let found = found(&suite(by_heads), Test::Relation(Axis::Ranks));
    assert!(matches!(&found.finding, Finding::NotInvariant { axis: Axis::Ranks, .. }), "{}", found.text);
    assert!(found.text.contains("under `train head_ranks ranks=") || found.text.contains("under `infer head_ranks ranks="));
    // Ranks that share a sequence are for kernels that say that they can.
    let report = suite(forward).run(Test::Relation(Axis::Ranks)).unwrap();
    assert!(report.reasons.keys().all(|it| !it.contains("ranks")), "{report}");
}

#[test]
fn nothing_compared_is_a_failure() {
    struct Bare;
    impl AttentionKernel for Bare {
        fn identity(&self) -> Identity {
            Identity::cpu("bare", "1")
        }
    }
    let bare = Suite::new(Bare).cases(3);
    for test in Test::ALL {
        let text = bare.run(test).unwrap_err().to_string();
        assert!(text.starts_with("too few cases were compared: 0 of "), "{test}: {text}");
        let refused = ["the varlen call is not implemented", "the dense call is not implemented", "the paged call is not"];
        assert!(refused.iter().any(|reason| text.contains(reason)), "{test}: {text}");
    }
    // Draws that never fit, and relations that never apply.
    let never = suite(forward).cases(1).only(|problem| problem.d_qk == 7777).run(Test::Accuracy).unwrap_err().to_string();
    assert!(never.contains("4096 drawn, 4096 of them outside `only`"), "{never}");
    let alone = suite(forward).cases(1).only(|problem| problem.sequences.len() == 1).run(Test::Relation(Axis::Position));
    let alone = alone.unwrap_err().to_string();
    assert!(alone.contains("position: 0 cases compared (relations: 0 on the training path, 0 on the inference path)"), "{alone}");
    // Two keys commute.
    let short = suite(forward).cases(5).only(|problem| problem.sequences.iter().all(|it| it.kv < 3));
    let blind = short.run(Test::OrderSensitive).unwrap_err().to_string();
    assert!(blind.starts_with("no compared case could have shown a changed order"), "{blind}");
}

/// A kernel without an lse, of one format only: what is missing is counted, the rest is compared.
#[test]
fn a_narrow_kernel_is_compared_where_it_can_be() {
    let narrow = PerSequence::new("narrow", "1", |call: &SequenceCall<'_>, o: &mut [f32], _: &mut [f32]| {
        if call.attributes.d_qk != 16 {
            return Err(KernelError::Unsupported("d_qk other than 16".into()));
        }
        let mut lse = vec![0.0; call.rows * call.attributes.q_heads];
        forward(call, o, &mut lse)
    });
    let narrow = Suite::new(narrow.without_lse()).cases(10);
    let report = narrow.run(Test::TrainAgainstInfer).unwrap();
    assert_eq!(report.reasons["left out: lse (train has none)"], 10);
    assert!(report.refused > 0 && report.reasons.keys().any(|it| it.ends_with("d_qk other than 16")), "{report}");
    let only = narrow.only(|problem| problem.d_qk == 16 && problem.softcap.is_none() && problem.mask.window_left.is_none());
    let fitted = only.run(Test::TrainAgainstInfer).unwrap();
    assert!(fitted.outside > 0 && fitted.refused < report.refused, "{fitted}");
}

/// Declared limits are drawn within: nothing is refused, and what is left out is said.
#[test]
fn declared_limits_need_no_predicate() {
    let of_16 = |call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]| {
        if call.attributes.d_qk != 16 {
            return Err(KernelError::Unsupported("d_qk other than 16".into()));
        }
        forward(call, o, lse)
    };
    let head_dims = HeadDims::Only(vec![(16, 16), (16, 8)]);
    let features = vec![Feature::Causal, Feature::NotCausal, Feature::GroupedHeads, Feature::UnequalHeadDims];
    let can = Capabilities { head_dims: Some(head_dims), features: Some(features), ..Capabilities::default() };
    let report = Suite::new(PerSequence::new("16", "1", of_16).capabilities(can)).cases(30).run(Test::Accuracy).unwrap();
    assert_eq!((report.compared, report.outside), (30, 0), "{report}");
    assert!(!report.reasons.keys().any(|it| it.contains("other than 16") || it.contains("implement")), "{report}");
    assert!(report.reasons.contains_key("left out: head dims (train: 16/16, 16/8)"), "{report}");
}

/// A server that has only the paged call, against a training kernel of another make.
#[test]
fn a_pair_of_kernels_with_one_call_form_each() {
    struct Served {
        reference: Reference,
        spoils_pages: bool,
    }
    impl AttentionKernel for Served {
        fn identity(&self) -> Identity {
            Identity::cpu("served", "2")
        }
        fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            let shortened: Vec<u32>;
            let mut call = *call;
            // A page size taken for granted: what lies past the second slot of a one-page sequence is not read.
            if self.spoils_pages && call.block_table.is_some() && call.cu_seqlens_q.len() == 2 {
                shortened = call.cache_seqlens.iter().map(|&it| it.min(2)).collect();
                call.cache_seqlens = &shortened;
            }
            self.reference.paged(&call, outputs)
        }
    }
    let suite = |spoils_pages| {
        let served = Served { reference: Reference::default(), spoils_pages };
        let suite = Suite::pair(Implementation::reference(Reference::default()), Implementation::kernel(Arc::new(served)));
        suite.cases(40).folder(env!("CARGO_TARGET_TMPDIR"))
    };
    assert_eq!(suite(false).run(Test::TrainAgainstInfer).unwrap().refused, 0);
    let report = suite(false).run(Test::Relation(Axis::Pages)).unwrap();
    assert!(report.relations[1] >= 40 && report.relations[0] == 0, "{report}");
    let found = found(&suite(true), Test::Relation(Axis::Pages));
    assert!(found.text.contains("verdict: not invariant to pages (infer)"), "{}", found.text);
    assert!(
        found.text.contains("[run.train]\nkernel = \"ref\"\n") && found.text.contains("\nname = \"served\"\n"),
        "{}",
        found.text
    );
    assert!(suite(false).replay(&found.file.unwrap()).unwrap().contains("verdict: match"));
}

#[test]
fn the_readme_shows_the_example() {
    let file = include_str!("../examples/tiny-attention/tests/attention.rs");
    assert!(file.lines().count() < 25);
    let (_, code) = file.split_once("\n\n").unwrap();
    assert!(include_str!("../README.md").contains(code));
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let suite = suite(forward);
    let run = |suite: &Suite| suite.run(Test::RefusedOrRight).unwrap();
    assert_eq!(run(&suite), run(&suite));
    assert_ne!(run(&suite), run(&suite.clone().seed(2)));
}
