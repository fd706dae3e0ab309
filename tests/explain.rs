//! The first step on which two kernels part, for every field in which they can differ: built from known edits, so that the step is known.

use lastbit::subject::Subject;
use lastbit::subject::attention::Attention;
use lastbit::subject::attention::cause::CauseKind;
use lastbit::subject::attention::check::Pair;
use lastbit::subject::attention::conventions::Conventions;
use lastbit::subject::attention::draw::Profile;
use lastbit::subject::attention::explain::{Explanation, explain};
use lastbit::subject::attention::file;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::numerics::Numerics;
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::reference::trace::Stage;
use lastbit::subject::attention::trial::{Checks, Trial};
use std::path::Path;

/// What an edit must show first.
#[derive(Debug)]
enum First {
    /// A value at one of these stages; keys are cut alike.
    Value(&'static [Stage]),
    /// Other keys.
    Keys,
    /// Other splits.
    Splits,
    /// Other blocks.
    Blocks,
    /// The same blocks in another order.
    Visits,
    /// A step at this stage that one of the two does not take; keys are cut alike.
    Alone(Stage),
}

/// The edit, by the field that it sets; what both kernels have besides; and what is seen first.
const EDITS: &[(&str, &str, &str, First)] = &[
    // Where only values have a scale, products with V are in other units, and outputs come first. One key rounds the same either way.
    ("kv.descale", "folded", "", First::Value(&[Stage::Score, Stage::SinkSum, Stage::Finish])),
    ("score.order", "pairwise", "", First::Value(&[Stage::Dot])),
    ("score.order", "lanes(4)", "", First::Value(&[Stage::Dot])),
    ("score.order", "fused(4)", "", First::Value(&[Stage::Dot])),
    ("score.fma", "true", "", First::Value(&[Stage::Dot])),
    ("score.acc", "bf16", "", First::Value(&[Stage::Dot])),
    ("score.store", "bf16", "", First::Value(&[Stage::Score])),
    ("score.scale", "on_query", "", First::Value(&[Stage::Score])),
    ("score.scale", "folded_log2e", "", First::Value(&[Stage::Rescale, Stage::Weight])),
    ("softmax.passes", "two_pass", "", First::Alone(Stage::Rescale)),
    ("softmax.block", "16", "", First::Blocks),
    ("softmax.traverse", "backward", "", First::Visits),
    ("softmax.rescale", "threshold(8)", "", First::Value(&[Stage::Maximum])),
    ("softmax.scope", "tile", ",softmax.block=4,softmax.rescale=threshold(1)", First::Value(&[Stage::Maximum])),
    ("softmax.exp", "exp2_poly(3)", "", First::Value(&[Stage::Rescale, Stage::Weight])),
    ("softmax.max_init", "0", "", First::Value(&[Stage::Maximum])),
    ("probs.dtype", "bf16", "", First::Value(&[Stage::RoundedWeight])),
    ("probs.normalised", "true", ",softmax.passes=two_pass", First::Alone(Stage::Probability)),
    ("rowsum.order", "pairwise", "", First::Value(&[Stage::BlockSum])),
    ("rowsum.acc", "bf16", "", First::Value(&[Stage::BlockSum, Stage::RowSum])),
    ("rowsum.of", "rounded_p", ",probs.dtype=bf16", First::Value(&[Stage::BlockSum])),
    ("value.order", "pairwise", "", First::Value(&[Stage::Accumulator])),
    ("value.order", "lanes(2)", ",value.order=lanes(8)", First::Value(&[Stage::BlockValue])),
    ("value.fma", "true", "", First::Value(&[Stage::Accumulator])),
    ("value.acc", "bf16", "", First::Value(&[Stage::Accumulator])),
    ("grid.anchor", "uncached", "", First::Blocks),
    ("grid.split", "fixed_size(16)", "", First::Splits),
    (
        "grid.merge",
        "tree",
        ",grid.split=fixed_size(16)",
        First::Value(&[Stage::MergedLse, Stage::Merged, Stage::Finish, Stage::Lse]),
    ),
    ("grid.lse_dtype", "bf16", ",grid.split=fixed_size(16)", First::Value(&[Stage::PartialLse, Stage::MergedLse])),
    ("grid.partial_dtype", "bf16", ",grid.split=fixed_size(16)", First::Value(&[Stage::Partial, Stage::Merged])),
    ("grid.context", "ring_lse", "", First::Splits),
    ("finish", "reciprocal", "", First::Value(&[Stage::Finish])),
    ("store", "truncate", "", First::Value(&[Stage::Store])),
    ("actual.anchor", "strict", "", First::Keys),
    ("actual.window", "one_more", "", First::Keys),
    ("actual.empty_row", "nan", "", First::Value(&[Stage::Finish])),
    ("actual.empty_row", "zero_pos_inf", "", First::Value(&[Stage::Lse])),
    ("actual.lse_base", "2", "", First::Value(&[Stage::Lse])),
    ("actual.sink_in_lse", "no", "", First::Value(&[Stage::Lse])),
    ("actual.alibi", "key_index", "", First::Value(&[Stage::Score])),
    ("actual.cap_order", "bias_then_cap", "", First::Value(&[Stage::Score])),
    ("actual.kv_scales", "ignored", "", First::Value(&[Stage::Dot, Stage::Accumulator])),
];

/// Cases that are looked at for each edit, and those among which they must be found.
const CASES: usize = 3;
const DRAWN: u64 = 6000;

#[test]
fn every_edit_is_seen_where_it_was_made() {
    let mut wrong = Vec::new();
    for (field, value, both, first) in EDITS {
        let train = format!("ref:aligned{both}");
        let infer = format!("ref:aligned{both},{field}={value}");
        let mut seen = 0;
        for (index, explanation) in mismatches(&train, &infer).take(CASES) {
            if let Err(reason) = check(first, &explanation) {
                wrong.push(format!("{infer}, case {index}: {reason}\n{}", explanation.text));
            }
            seen += 1;
        }
        if seen < CASES {
            wrong.push(format!("{infer}: only {seen} of {DRAWN} cases differ"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_field_has_an_edit() {
    let conventions = Conventions::FIELDS.iter().map(|field| format!("actual.{field}"));
    for field in Numerics::FIELDS.iter().map(|&field| field.to_owned()).chain(conventions) {
        assert!(EDITS.iter().any(|(edited, ..)| *edited == field), "{field}");
    }
}

fn check(first: &First, explanation: &Explanation) -> Result<(), String> {
    let text = &explanation.text;
    let divergence = explanation.divergence.as_ref().ok_or("no divergence")?;
    let structure = divergence.structure.as_deref();
    let says = |words: &str| structure.is_some_and(|structure| structure.contains(words));
    let alone = divergence.alone.as_ref().map(|(_, step)| step.definition.stage);
    let value = divergence.value.as_ref().map(|value| value.definition.stage);
    let holds = match first {
        First::Value(stages) => structure.is_none() && value.is_some_and(|stage| stages.contains(&stage)),
        First::Keys => says(" sees "),
        // Of a lone split only the merge with a sink, or a rounding, can be seen.
        First::Splits => {
            says("split") || structure.is_none() && text.contains(" passes its result through a split and its merge")
        }
        // A grid that is laid elsewhere may leave the same blocks to a row.
        First::Blocks => says("cuts at"),
        First::Visits => says("the same blocks in another order"),
        First::Alone(stage) => structure.is_none() && alone == Some(*stage),
    };
    if !holds {
        return Err(format!("{first:?} expected"));
    }
    // Everything before the first differing value is equal, and it is where the plot begins to grow.
    if let (Some(value), Some(steps)) = (&divergence.value, &explanation.steps) {
        let before = steps.common.iter().take_while(|step| step.definition != value.definition);
        if before.clone().any(|step| step.differs()) || !text.contains(&value.definition.to_string()) {
            return Err("an earlier step differs, or another one is named".into());
        }
    }
    let growth = |text: &str| text.contains("\ngrowth: ");
    if growth(text) && !growth(&explanation.brief) { Ok(()) } else { Err("the growth is for the long text alone".into()) }
}

/// Explained cases on which two kernels differ.
fn mismatches(train: &str, infer: &str) -> impl Iterator<Item = (u64, Explanation)> + use<> {
    let kernel = |name: &str| Implementation::reference(Reference::parse(name).unwrap_or_else(|reason| panic!("{reason}")));
    let pair = Pair { train: kernel(train), infer: kernel(infer), oracle: Mode::Off, captured: None, witness: false };
    let attention = Attention { profile: Profile::Quick, ..Attention::of(pair) };
    let mut scratch = attention.scratch();
    (0..DRAWN).filter_map(move |index| {
        let checks = Checks::Only { oracle: false, pair: true, relation: None };
        let trial = Trial::new(attention.draw(1, index).case, checks);
        let verdict = attention.check(&trial, &mut scratch);
        let finding = verdict.findings.iter().find(|finding| finding.difference().is_some())?;
        Some((index, explain(&attention.pair, &trial, "drawn.case", Some(&finding.signature()))))
    })
}

fn regression(name: &str) -> Explanation {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpora/regressions/attention/{name}.case"));
    let loaded = file::load(&path, None).unwrap_or_else(|error| panic!("{error}"));
    explain(&loaded.pair, &loaded.trial, "FILE.case", Some(&loaded.file.run.expect))
}

/// One regression of each cause.
#[test]
fn kept_cases_name_their_cause_and_first_step() {
    for (name, kind, step) in [
        ("semantics-window-one-more", CauseKind::Semantics, "only in inference: the dot product of key 0"),
        ("order-value-tree-f16", CauseKind::Order, "the accumulator over keys 0..4, lane 0, in block 0..4"),
        ("order-fixed-split-bf16", CauseKind::Order, "inference splits at 64."),
        ("blocking-64-against-16", CauseKind::Blocking, "inference cuts at 16."),
        ("precision-p-bf16", CauseKind::Precision, "the rounded weight of key 1, in block 0..2"),
        ("precision-scores-bf16-on-both-sides", CauseKind::Precision, "the score of key 0"),
        ("precision-truncated-store", CauseKind::Precision, "the stored output, lane 0"),
    ] {
        let explanation = regression(name);
        assert_eq!(explanation.cause.as_ref().unwrap().kind, kind, "{name}");
        assert!(explanation.text.contains(step), "{name}: `{step}` expected\n{}", explanation.text);
    }
}

/// FlashAttention 3 drops the causal flag in decode: with 129 keys one side has two tiles, the other one.
#[test]
fn fa3_decode_at_129_keys_names_block_step_and_trees() {
    let explanation = regression("blocking-fa3-decode-tile-bf16");
    assert_eq!(explanation.cause.as_ref().unwrap().kind, CauseKind::Blocking);
    for words in [
        "position 128): Training cuts at 128, inference sums keys 0..129 in one block.",
        "only in training: the maximum over key 128, in block 128..129",
        "first differing value: the accumulator over keys 0..129, lane 0, in block 0..128 and block 0..129",
        "trees: training (128 | 0..128), inference (0..129)",
        "blocks: 128 in training (batch 1, 2 rows at most, 129 keys), 192 in inference",
    ] {
        assert!(explanation.text.contains(words), "`{words}` expected\n{}", explanation.text);
    }
}

/// A planted fault on both sides is compared with the kernel that it claims to be.
#[test]
fn a_planted_fault_on_both_sides_is_held_against_the_kernel_without_it() {
    let kernel = || Implementation::reference(Reference::parse("ref:aligned+A-M1").unwrap());
    let pair = Pair { train: kernel(), infer: kernel(), oracle: Mode::Enclosure, captured: None, witness: false };
    let attention = Attention { profile: Profile::Quick, ..Attention::of(pair) };
    let mut scratch = attention.scratch();
    let found = (0..DRAWN).find_map(|index| {
        let trial = Trial::new(attention.draw(1, index).case, Checks::Only { oracle: true, pair: true, relation: None });
        let verdict = attention.check(&trial, &mut scratch);
        let finding = verdict.failure()?;
        Some(explain(&attention.pair, &trial, "drawn.case", Some(&finding.signature())))
    });
    let text = found.expect("a case that shows the fault").text;
    assert!(text.contains("The kernel it claims to be sees "), "{text}");
}
