//! `lastbit probe`: declarations that do not hold are caught, kernels that differ are described, and the pages keep their looks.

mod binary;

use binary::{Folder, code, stderr, stdout};
use lastbit::finding::{Axis, Breakage};
use lastbit::number::Dtype;
use lastbit::subject::attention::capabilities::{Capabilities, Form, Format};
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{AttentionKernel, Identity, KernelError, Outputs, VarlenCall};
use lastbit::subject::attention::per_sequence::{PerSequence, SequenceCall};
use lastbit::subject::attention::probe::page::{Answer, Break, Change, Outcome, Page, Relation, Repeated, Seen};
use lastbit::subject::attention::probe::{Options, probe};
use lastbit::subject::attention::reference::Reference;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn page(kernel: Implementation, cases: u64) -> Page {
    probe("k", &kernel, Options { cases: Some(cases), seed: 1 }, &mut |_| {})
}

fn reference(name: &str) -> Implementation {
    Implementation::reference(Reference::parse(name).expect("a kernel's name"))
}

/// Textbook attention in f64, bottom-right causal; `squeeze` is applied to each result.
fn textbook(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32], squeeze: impl Fn(f64) -> f32) -> Result<(), KernelError> {
    let it = call.attributes;
    it.only(&[lastbit::subject::attention::feature::Feature::Causal])?;
    for row in 0..call.rows {
        for head in 0..it.q_heads {
            let keys = (row + 1 + call.keys).saturating_sub(call.rows).min(call.keys);
            let q = &call.q[(row * it.q_heads + head) * it.d_qk..][..it.d_qk];
            let score = |key: usize| -> f64 {
                let k = &call.k[(key * it.kv_heads + head) * it.d_qk..][..it.d_qk];
                q.iter().zip(k).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() * f64::from(it.softmax_scale)
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            lse[row * it.q_heads + head] = if keys == 0 { f32::NEG_INFINITY } else { (max + sum.ln()) as f32 };
            for lane in 0..it.d_v {
                let v = |key: usize| f64::from(call.v[(key * it.kv_heads + head) * it.d_v + lane]);
                let value: f64 = scores.iter().enumerate().map(|(key, s)| (s - max).exp() / sum * v(key)).sum();
                o[(row * it.q_heads + head) * it.d_v + lane] = squeeze(value);
            }
        }
    }
    Ok(())
}

fn relation(page: &Page, storage: Dtype, change: Change) -> &Relation {
    let format = page.formats.iter().find(|it| it.format.storage == storage).expect("the format");
    format.relations.iter().find(|it| it.change == change).expect("the relation")
}

fn breaks(relation: &Relation) -> Option<&Break> {
    match &relation.seen {
        Seen::Tried(tried) => tried.breaks.as_ref(),
        Seen::NotTried(why) => panic!("{}: {why}", relation.about),
    }
}

/// Wraps a function of one sequence with declarations of its own.
struct Declares<K> {
    kernel: K,
    capabilities: Capabilities,
}

impl<K: AttentionKernel> AttentionKernel for Declares<K> {
    fn identity(&self) -> Identity {
        self.kernel.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.kernel.varlen(call, outputs)
    }
}

fn only_varlen(storage: Dtype) -> Capabilities {
    Capabilities {
        forms: Some(vec![Form::Varlen]),
        features: Some(vec![lastbit::subject::attention::feature::Feature::Causal]),
        formats: Some(vec![Format { storage, out: storage }]),
        no_empty_sequences: true,
        ..Capabilities::default()
    }
}

#[test]
fn a_top_left_mask_declared_bottom_right_is_caught() {
    let page = page(reference("ref:aligned,actual.anchor=top_left"), 6);
    let causal = page.trials.iter().find(|it| it.what == "causal").expect("a trial");
    let Outcome::Wrong(why) = &causal.outcome else { panic!("{causal:?}") };
    assert!(why.ends_with("the results are those of a top-left causal mask"), "{why}");
    let wrong = &page.wrong[0];
    // One root, not one entry for each thing declared.
    assert!(wrong.what.starts_with("declares form varlen, form dense_left") && page.wrong.len() < 8, "{:#?}", page.wrong);
    let minimal = wrong.minimal.as_ref().expect("a small case");
    assert!(minimal.positions <= 2, "{minimal:?}");
}

#[test]
fn bf16_behind_a_declared_f16_is_caught() {
    let forward = |call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]| {
        textbook(call, o, lse, |value| Dtype::BF16.squeeze(value as f32))
    };
    let kernel = Declares { kernel: PerSequence::new("liar", "1", forward), capabilities: only_varlen(Dtype::F16) };
    let page = page(Implementation::kernel(Arc::new(kernel)), 6);
    let f16 = page.trials.iter().find(|it| it.what == "f16").expect("a trial");
    let Outcome::Wrong(why) = &f16.outcome else { panic!("{f16:?}") };
    assert!(why.contains("results are bf16 numbers, so it computes in bf16"), "{why}");
    assert!(page.formats[0].accuracy.beyond > 0);
    // The recipe says which rounding it is.
    let name = "results rounded to bf16 first".to_owned();
    assert_eq!(page.formats[0].recipes[0].answer, Answer::One(name));
}

#[test]
fn a_write_outside_is_caught() {
    struct Outside;
    impl AttentionKernel for Outside {
        fn identity(&self) -> Identity {
            Identity::cpu("outside", "1")
        }

        fn capabilities(&self) -> Capabilities {
            only_varlen(Dtype::F32)
        }

        fn varlen(&self, _: &VarlenCall<'_>, _: Outputs<'_>) -> Result<(), KernelError> {
            Err(KernelError::Broken { breakage: Breakage::WroteOutside, detail: "16 bytes behind o".to_owned() })
        }
    }
    let page = page(Implementation::kernel(Arc::new(Outside)), 3);
    let form = &page.trials[0];
    assert_eq!(form.outcome, Outcome::Fails("wrote outside its output: 16 bytes behind o".to_owned()));
    assert!(
        page.wrong[0].what.starts_with("declares form varlen, ") && page.wrong[0].what.contains(": wrote outside its output"),
        "{:?}",
        page.wrong[0]
    );
    // Nothing was compared, and nothing is said to hold.
    let seen = &page.formats[0].relations.iter().find(|it| it.change == Change::Axis(Axis::Position)).expect("it").seen;
    assert!(matches!(seen, Seen::NotTried(_)), "{seen:?}");
    assert!(matches!(page.repeats[0].seen, Repeated::NotTried(_)));
}

#[test]
fn a_kernel_that_does_not_repeat_itself_is_caught() {
    let calls = AtomicU32::new(0);
    let forward = move |call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]| {
        textbook(call, o, lse, |value| value as f32)?;
        if calls.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
            o[0] = o[0].next_up();
        }
        Ok(())
    };
    let kernel = Declares { kernel: PerSequence::new("restless", "1", forward), capabilities: only_varlen(Dtype::F32) };
    let page = page(Implementation::kernel(Arc::new(kernel)), 3);
    assert!(matches!(page.repeats[0].seen, Repeated::Differs { .. }), "{:?}", page.repeats);
    assert!(page.wrong[0].what.starts_with("does not repeat itself: the same call 8 times"), "{:?}", page.wrong[0]);
}

#[test]
fn relations_break_where_they_should_and_nothing_is_wrong() {
    let page = page(reference("ref:uncached-split,grid.split=fixed_size:16"), 60);
    assert!(page.wrong.is_empty(), "{:?}", page.wrong);
    let prefix = breaks(relation(&page, Dtype::F32, Change::Axis(Axis::Prefix))).expect("the grid moves with the hit");
    assert!(prefix.positions < 17, "{prefix:?}");
    for storage in [Dtype::F32, Dtype::BF16] {
        for change in [Change::FullAgainstStep, Change::FullAgainstDecode, Change::Axis(Axis::Chunk)] {
            assert_eq!(breaks(relation(&page, storage, change)), None, "{storage} {change:?}");
        }
    }
}

#[test]
fn the_first_batch_and_the_cause_are_named() {
    // Two SMs: a batch of two has fewer splits than one sequence alone.
    let page = page(reference("ref:flash-decoding,softmax.block=16,grid.split=rule:occupancy:2"), 60);
    let company = breaks(relation(&page, Dtype::F32, Change::Axis(Axis::Company)));
    let company = company.or_else(|| {
        let all = page.formats[0].relations.iter().filter(|it| it.change == Change::Axis(Axis::Company));
        all.filter_map(breaks).next()
    });
    let company = company.expect("the splits follow the batch");
    assert!(company.batch.is_some_and(|batch| (2..=8).contains(&batch)), "{company:?}");
    let minimal = company.minimal.as_ref().expect("a small case");
    assert!(minimal.cause.is_some() && minimal.text.contains("[run]"), "{minimal:?}");
}

#[test]
fn pages_look_as_they_did() {
    let folder = Folder::new();
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots/probe");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let moving = "ref:uncached-split,grid.split=fixed_size:16";
    let output = folder.lastbit(&["probe", moving, "--cases", "30"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    settings.bind(|| insta::assert_snapshot!("terminal", stdout(&output)));
    let arguments = ["probe", "ref:aligned,actual.anchor=top_left", moving, "--cases", "12", "--format", "markdown"];
    let output = folder.lastbit(&[&arguments[..], &["--page", "kernels.md", "--out", "cases"]].concat());
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let written = std::fs::read_to_string(folder.path("kernels.md")).expect("the page");
    settings.bind(|| insta::assert_snapshot!("results", written));
    // Every case that the page names is there, and shows what it was kept for.
    let mut replayed = 0;
    for name in written.split('`').filter(|code| code.ends_with(".case")) {
        let file = folder.path("cases").join(name);
        let output = folder.lastbit(&["replay", file.to_str().expect("a name")]);
        assert_eq!(code(&output), 1, "{name}: {}{}", stdout(&output), stderr(&output));
        replayed += 1;
    }
    assert!(replayed > 3, "{written}");
}

#[test]
fn json_has_the_numbers() {
    let folder = Folder::new();
    let output = folder.lastbit(&["probe", "ref:p-bf16", "--cases", "6", "--format", "json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let page: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    let bf16 = &page["formats"][2];
    assert_eq!((bf16["format"].as_str(), page["kernel"].as_str()), (Some("bf16"), Some("ref:p-bf16")));
    assert_eq!(bf16["recipes"][0]["not_excluded"][0], "rounds unnormalised P to bf16");
    assert!(bf16["recipes"][0]["detail"][0].as_str().is_some_and(|it| it.starts_with("blocks of 64 keys, first to last")));
    assert!(bf16["accuracy"]["worst_of_bound"].as_f64().is_some_and(|worst| worst > 0.0 && worst <= 1.0));
    let output = folder.lastbit(&["probe", "ref:no-such"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}
