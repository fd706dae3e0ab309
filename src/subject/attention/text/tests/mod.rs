//! The text against itself: canonical forms and round trips.

mod arbitrary;
mod refused;

use super::{CaseFile, External, KernelText, MAX_TEXT, parse, print};
use crate::subject::attention::validate::validate;
use crate::subject::attention::{Data, Literal, Request, Sequence};
use arbitrary::case_file;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_round_trips(file in case_file()) {
        prop_assert_eq!(validate(&file.case), Ok(()));
        let text = print(&file);
        let parsed = parse(&text, "x.case").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&parsed, &file);
        prop_assert_eq!(print(&parsed), text);
    }

    #[test]
    fn shown_in_words_without_panic(file in case_file()) {
        let shown = crate::subject::attention::show::show(&file.case, &[]);
        prop_assert!(shown.contains("0 engine steps"));
        prop_assert_eq!(crate::subject::attention::show::summary(&file.case).lines().count(), 1);
    }

    #[test]
    fn damaged_text_never_panics(file in case_file(), at in any::<prop::sample::Index>(), with in any::<char>(), cut in any::<bool>()) {
        let text: Vec<char> = print(&file).chars().collect();
        let at = at.index(text.len());
        let mut damaged: String = text[..at].iter().collect();
        if !cut {
            damaged.push(with);
            damaged.extend(&text[at + 1..]);
        }
        if let Err(error) = parse(&damaged, "x.case") {
            prop_assert!(error.to_string().starts_with("x.case"));
        }
    }

    #[test]
    fn floats_round_trip(bits in any::<u32>()) {
        let mut file = example();
        file.case.problem.sinks = Some(vec![f32::from_bits(bits), 0.1]);
        prop_assume!(f32::from_bits(bits).is_finite());
        let parsed = parse(&print(&file), "x.case").unwrap();
        prop_assert_eq!(parsed.case.problem.sinks.unwrap()[0].to_bits(), bits);
    }
}

/// The case of the module's page, in canonical form.
const EXAMPLE: &str = r#"# top-left anchor against bottom-right: semantics
# shrunk from a case of three sequences
format = 1

[problem]
dtype = "f32"
out_dtype = "bf16"
d_qk = 2
d_v = 1
kv_head_ids = [0]
group_ids = [0, 1]
softmax_scale = 0.35355338
causal = "bottom_right"
window_left = 4
sequences = [
  { id = 0, q = 4, kv = 9 },
  { id = 3, q = 1, kv = 0 },
]

[train]
layout = "dense"
side = "right"
pad_q = 0
pad_kv = 2
order = [1, 0]
block_q = 64

[infer]
cache = "paged"
page = 4
spare = 1
shuffle = "0x8000000000000000"
recycled = false
order = [0, 1]
rotate = false
bucket = 1
requests = [
  { hit = 1, chunks = [2] },
  {},
]

[data]
from = "drawn"
seed = 7
regime = "mirror"
span = 4
phase = 0

[run]
oracle = "enclosure"
expect = "mismatch o"

[run.train]
kernel = "ref"
score.order = "sequential"
score.fma = true
actual.anchor = "top_left"

[run.infer]
kernel = "ref"
softmax.block = 64
softmax.max_init = "-inf"
"#;

fn example() -> CaseFile {
    parse(EXAMPLE, "example.case").unwrap()
}

/// The example with literal data: `d_qk` 1, one KV head, one sequence.
const LITERAL: &str = r#"[data]
from = "literal"
q = [
  # sequence 0
  "3f800000 bf800000 | 00000000 80000000",  # 1.0 -1.0 0.0 -0.0
]
k = [
  # sequence 0
  "00000001 7f7fffff",  # 1e-45 3.4028235e38
  "3dcccccd 4b800000",  # 0.1 16777216.0
]
v = [
  # sequence 0
  "3f800000",  # 1.0
  "3f800000",  # 1.0
]
"#;

/// `EXAMPLE` with one sequence of `q` 1, `kv` 2 and `LITERAL`'s data.
fn literal_text() -> String {
    let (start, end) = (EXAMPLE.find("[data]").unwrap(), EXAMPLE.find("[run]").unwrap());
    let text = format!("{}{LITERAL}\n{}", &EXAMPLE[..start], &EXAMPLE[end..]);
    text.replace("  { id = 0, q = 4, kv = 9 },\n  { id = 3, q = 1, kv = 0 },\n", "  { id = 0, q = 1, kv = 2 },\n")
        .replace("order = [1, 0]", "order = [0]")
        .replace("order = [0, 1]", "order = [0]")
        .replace("  { hit = 1, chunks = [2] },\n  {},\n", "  {},\n")
}

#[test]
fn the_example_is_canonical() {
    let file = example();
    assert_eq!(print(&file), EXAMPLE);
    assert_eq!(file.comment, "top-left anchor against bottom-right: semantics\nshrunk from a case of three sequences");
    let fields = |kernel: KernelText| match kernel {
        KernelText::Reference(fields) => fields.0,
        KernelText::External(external) => panic!("{external}"),
    };
    assert_eq!(fields(file.run.train)[1], ("score.fma".to_string(), "true".to_string()));
    assert_eq!(fields(file.run.infer)[0], ("softmax.block".to_string(), "64".to_string()));
}

/// `EXAMPLE` with an external kernel for inference.
fn external_text() -> String {
    let start = EXAMPLE.find("[run.infer]").unwrap();
    format!("{}[run.infer]\nkernel = \"external\"\nname = \"tiny\"\nversion = \"0.1.0\"\ndevice = \"cpu\"\n", &EXAMPLE[..start])
}

#[test]
fn an_external_kernel_is_named_in_canonical_form() {
    let file = parse(&external_text(), "x.case").unwrap();
    assert_eq!(print(&file), external_text());
    let (digest, source) = (None, None);
    let named = External { name: "tiny".into(), version: "0.1.0".into(), device: "cpu".into(), digest, source };
    assert_eq!(named.to_string(), "tiny 0.1.0 (cpu)");
    assert_eq!(file.run.infer, KernelText::External(named.clone()));
    let whole = format!("{}digest = \"00ff\"\nsource = \"process:python 'my kernel.py'\"\n", external_text());
    let file = parse(&whole, "x.case").unwrap();
    assert_eq!(print(&file), whole);
    let (digest, source) = (Some("00ff".into()), Some("process:python 'my kernel.py'".into()));
    assert_eq!(file.run.infer, KernelText::External(External { digest, source, ..named }));
    for (from, to, field, reason) in [
        ("version = \"0.1.0\"\n", "", "run.infer.version", "missing field"),
        ("device", "score.order = \"sequential\"\ndevice", "run.infer.score", "unknown field `score`"),
        ("\"tiny\"", "\"ti\\nny\"", "run.infer.name", "must be one line"),
        ("\"tiny\"", "7", "run.infer.name", "expected a string"),
        ("device", "source = \"process:a\\u001b[2J\"\ndevice", "run.infer.source", "must be one line"),
        ("\"external\"", "\"extern\"", "run.infer.kernel", "unknown kernel `extern`"),
    ] {
        let refused = parse(&external_text().replace(from, to), "x.case").unwrap_err().to_string();
        assert!(refused.contains(&format!("{field}: {reason}")), "{refused}");
    }
}

#[test]
fn literal_data_is_canonical_and_shows_decimals() {
    let text = literal_text();
    let file = parse(&text, "x.case").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let Data::Literal(literal) = &file.case.data else { panic!("not literal") };
    assert_eq!(literal.q, [0x3f80_0000, 0xbf80_0000, 0, 0x8000_0000]);
    assert_eq!(print(&file), text);
}

#[test]
fn the_largest_literal_case_fits_a_file() {
    use crate::subject::attention::validate::{MAX_LITERAL, MAX_SEQUENCES};
    let mut file = example();
    // One value in a row costs the most text.
    let problem = &mut file.case.problem;
    (problem.d_qk, problem.d_v, problem.group_ids) = (1, 1, vec![7]);
    let kv = (MAX_LITERAL / 2 / MAX_SEQUENCES) as u32;
    problem.sequences = (0..MAX_SEQUENCES as u32).map(|id| Sequence { id, q: 0, kv }).collect();
    let request = Request { hit: 0, join: 0, chunks: vec![], then: 1, reject: 0, preempt: None };
    file.case.infer.requests = vec![request; MAX_SEQUENCES];
    file.case.infer.order = (0..MAX_SEQUENCES as u32).collect();
    file.case.train.order = file.case.infer.order.clone();
    let values = vec![0x3f80_0001; MAX_LITERAL / 2];
    file.case.data = Data::Literal(Literal { q: vec![], k: values.clone(), v: values });
    let text = print(&file);
    assert!(text.len() < MAX_TEXT, "{} bytes", text.len());
    assert_eq!(parse(&text, "x.case").unwrap(), file);
}

#[test]
fn hand_written_forms_are_accepted_and_made_canonical() {
    let text = EXAMPLE
        .replace("softmax_scale = 0.35355338", "softmax_scale = \"0x3eb504f3\"")
        .replace("shuffle = \"0x8000000000000000\"", "shuffle = 0")
        .replace("{ hit = 1, chunks = [2] }", "{ then = 1, chunks = [ 2 ], hit = 0x1, reject = 0, join = 0 }")
        .replace("softmax.block = 64", "softmax.block = \"64\"")
        .replace("block_q = 64", "block_q = 6_4 # rows\nhead_ranks = 1")
        .replace("softmax.max_init = \"-inf\"", "softmax.max_init = -inf")
        .replace('\n', "\r\n");
    let parsed = parse(&text, "x.case").unwrap();
    assert_eq!(print(&parsed), EXAMPLE.replace("shuffle = \"0x8000000000000000\"", "shuffle = 0"));
}
