//! Welcomes: what is understood, and what is refused by the name of its field.

use lastbit::external::frame::Layout;
use lastbit::external::message::hello::{Hello, SharedMemory};
use lastbit::external::message::welcome::Welcome;
use lastbit::external::serve::serve;
use lastbit::number::Dtype;
use lastbit::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims, Knob};
use lastbit::subject::attention::conventions::{Conventions, EmptyRow};
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::kernel::{AttentionKernel, Identity};
use lastbit::subject::attention::numerics::Numerics;
use lastbit::subject::attention::reference::Reference;

pub const TESTS: &[(&str, fn())] = &[
    ("a_welcome_says_all", a_welcome_says_all),
    ("a_short_welcome_leaves_all_open", a_short_welcome_leaves_all_open),
    ("the_page_holds", the_page_holds),
    ("what_cannot_be_is_refused", what_cannot_be_is_refused),
    ("hello_comes_back", hello_comes_back),
    ("a_stranger_is_refused", a_stranger_is_refused),
];

/// A kernel with something to say about everything.
struct Talkative;

impl AttentionKernel for Talkative {
    fn identity(&self) -> Identity {
        Identity {
            name: "talkative".into(),
            version: "1.2".into(),
            device: "NVIDIA H200".into(),
            digest: Some("0123456789abcdef".repeat(4)),
            details: vec![("threads".into(), "2".into()), ("a".into(), "\"b\"".into())],
        }
    }
    fn conventions(&self) -> Conventions {
        Conventions { empty_row: EmptyRow::Nan, ..Conventions::default() }
    }
    fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        let name = if storage == Dtype::F32 { "ref:aligned" } else { "ref:aligned,probs.dtype=bf16,score.order=lanes(8)" };
        Some(Reference::parse(name).expect("a kernel").numerics)
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            forms: Some(vec![Form::Varlen, Form::Paged]),
            features: Some(vec![Feature::Causal, Feature::Sinks, Feature::ContextParallel]),
            formats: Some(vec![
                Format { storage: Dtype::BF16, out: Dtype::F32 },
                Format { storage: Dtype::F16, out: Dtype::F16 },
            ]),
            head_dims: Some(HeadDims::Only(vec![(64, 64), (192, 128)])),
            page_sizes: Some(vec![16, 256]),
            max_rows: Some(4096),
            no_empty_rows: true,
            no_empty_sequences: true,
            no_ragged: true,
            knobs: vec![Knob { name: "num_splits".into(), values: vec!["1".into(), "2".into()] }],
            compiles: true,
            guarded: true,
        }
    }
    fn has_lse(&self) -> bool {
        false
    }
    fn context_parallel(&self) -> bool {
        true
    }
}

fn over_the_pipe(welcome: &Welcome) -> Welcome {
    let bytes = lastbit::external::frame::frame(lastbit::external::frame::Kind::Welcome, 0, &welcome.body());
    let body = &bytes[lastbit::external::frame::HEADER..];
    Welcome::read(&Layout::read(&mut &body[..], body.len() as u64).expect("a body")).expect("a welcome")
}

fn a_welcome_says_all() {
    let welcome = Welcome::of(&Talkative, true);
    let read = over_the_pipe(&welcome);
    assert_eq!(read, welcome);
    assert_eq!(read.identity, Talkative.identity());
    assert_eq!(read.capabilities, Talkative.capabilities());
    assert_eq!(read.conventions, Talkative.conventions());
    for storage in Dtype::ALL {
        assert_eq!(read.numerics_for(storage), Talkative.numerics_for(storage));
    }
    // A kernel that says nothing of ranks is not asked to be some.
    struct Plain;
    impl AttentionKernel for Plain {
        fn identity(&self) -> Identity {
            Identity::cpu("plain", "1")
        }
    }
    let features = over_the_pipe(&Welcome::of(&Plain, false)).capabilities.features.expect("a list");
    assert_eq!(features.len(), Feature::ALL.len() - 1);
    assert!(!features.contains(&Feature::ContextParallel));
}

fn a_short_welcome_leaves_all_open() {
    let welcome = Welcome::parse(r#"{"identity": {"name": "k", "version": "1", "device": "cpu"}}"#).expect("a welcome");
    let expected = Welcome {
        identity: Identity::cpu("k", "1"),
        shared_memory: false,
        lse: true,
        conventions: Conventions::default(),
        // Guards are declared, never assumed.
        capabilities: Capabilities { guarded: false, ..Capabilities::default() },
        numerics: Vec::new(),
    };
    assert_eq!(welcome, expected);
    assert_eq!(welcome.numerics_for(Dtype::BF16), None);
}

/// The example on the protocol's page is one that this version takes.
fn the_page_holds() {
    let page = include_str!("../../docs/protocol.md");
    let example = page.split("```json\n").find(|block| block.contains("\"identity\"")).expect("an example");
    let example = example.split("\n```").next().expect("its end");
    let example = example.replace("\"sha256 in hex, or null\"", "null");
    let welcome = Welcome::parse(&example).expect("a welcome");
    assert!(!welcome.lse && welcome.shared_memory && !welcome.capabilities.no_ragged);
    assert_eq!(welcome.capabilities.features.expect("features"), Feature::ALL);
    assert_eq!(welcome.capabilities.forms.expect("forms"), Form::ALL);
}

fn what_cannot_be_is_refused() {
    let identity = r#""identity": {"name": "k", "version": "1", "device": "cpu"}"#;
    let endless = format!(r#""page_sizes": {:?}"#, (1..100_000).collect::<Vec<u32>>());
    let cases = [
        (&endless[..], "welcome.page_sizes: the list has 99999 items; 4096 are the most"),
        (r#""lsee": false"#, "welcome: unknown field `lsee`"),
        (r#""lse": "no""#, "welcome.lse: \"no\" is neither true nor false"),
        (r#""forms": []"#, "welcome.forms: the list is empty"),
        (r#""forms": "varlen""#, "welcome.forms: \"varlen\" is no list"),
        (r#""forms": ["varlen", "varlen"]"#, "welcome.forms[1]: \"varlen\" is there twice"),
        (r#""forms": ["dense"]"#, "welcome.forms[0]: unknown form `dense`"),
        (r#""features": ["sinks"]"#, "welcome.features: every call has one of causal, causal_top_left, not_causal"),
        (r#""features": ["causal", 3]"#, "welcome.features[1]: 3 is no text"),
        (r#""formats": ["e4m3"]"#, "welcome.formats[0]: q and o are not stored as e4m3"),
        (r#""formats": ["bf16->f8"]"#, "welcome.formats[0]: unknown dtype `f8`"),
        (r#""head_dims": {"max": 0}"#, "welcome.head_dims.max: 0 is no number from 1"),
        (r#""head_dims": {"max": 8, "multiple_of": 16}"#, "welcome.head_dims: no multiple of 16 is at most 8"),
        (r#""head_dims": {"maximum": 8}"#, "welcome.head_dims: unknown field `maximum`"),
        (r#""head_dims": {"multiple_of": 8}"#, "welcome.head_dims.max: missing"),
        (r#""head_dims": [[64]]"#, "welcome.head_dims[0]: [64] is no pair"),
        (r#""page_sizes": [0]"#, "welcome.page_sizes[0]: 0 is no number from 1"),
        (r#""page_sizes": [16, 65537]"#, "welcome.page_sizes: 65537 is more than a page of a case may have, 65536 slots"),
        (r#""page_sizes": [16], "forms": ["varlen"]"#, "welcome.page_sizes: welcome.forms lack paged"),
        (r#""max_rows": -1"#, "welcome.max_rows: -1 is no number from 1"),
        (r#""max_rows": 5000000000"#, "welcome.max_rows: 5000000000 is no number"),
        (r#""knobs": {"num splits": ["1"]}"#, "welcome.knobs.num splits: a knob's name has letters"),
        (r#""knobs": {"n": []}"#, "welcome.knobs.n: the list is empty"),
        (r#""knobs": {"n": [1]}"#, "welcome.knobs.n[0]: 1 is no text"),
        (r#""knobs": {"n": ["a\nb"]}"#, "welcome.knobs.n[0]: \"a\\nb\" is no text of one line"),
        (r#""conventions": {"anchor": "left"}"#, "welcome.conventions.anchor: `left` is not one of"),
        (r#""conventions": {"anchors": "strict"}"#, "welcome.conventions.anchors: unknown convention `anchors`"),
        (
            r#""conventions": {"anchor": "top_left"}, "features": ["causal"]"#,
            "welcome.conventions.anchor: top_left contradicts welcome.features, which lack causal_top_left",
        ),
        (r#""numerics": {"bf16": "alined"}"#, "welcome.numerics.bf16: kernel `ref:alined`: unknown preset"),
        (r#""numerics": {"bf15": "aligned"}"#, "welcome.numerics.bf15: unknown dtype `bf15`"),
        (
            r#""numerics": {"*": "aligned,declared.lse_base=2"}"#,
            "welcome.numerics.*: `aligned,declared.lse_base=2` has words about",
        ),
        (r#""shared_memory": 1"#, "welcome.shared_memory: 1 is neither"),
    ];
    for (field, words) in cases {
        let reason = Welcome::parse(&format!("{{{identity}, {field}}}")).expect_err(field);
        assert!(reason.contains(words), "{field}: {reason}");
    }
    let identities = [
        (r#"{"version": "1", "device": "cpu"}"#, "welcome.identity.name: missing"),
        (r#"{"name": " ", "version": "1", "device": "cpu"}"#, "welcome.identity.name: empty"),
        (r#"{"name": "k", "version": 1, "device": "cpu"}"#, "welcome.identity.version: 1 is no text"),
        (r#"{"name": "k", "version": "1", "device": "cpu", "digest": "abc"}"#, "welcome.identity.digest: `abc` is no SHA-256"),
        (
            r#"{"name": "k", "version": "1", "device": "cpu", "details": {"threads": 2}}"#,
            "welcome.identity.details.threads: 2 is no text",
        ),
        (r#"{"name": "k", "version": "1", "device": "cpu", "owner": "me"}"#, "welcome.identity: unknown field `owner`"),
        ("3", "welcome.identity: 3 is no JSON object"),
    ];
    for (identity, words) in identities {
        let reason = Welcome::parse(&format!("{{\"identity\": {identity}}}")).expect_err(identity);
        assert!(reason.contains(words), "{identity}: {reason}");
    }
    for text in ["", "[]", "{", "null"] {
        Welcome::parse(text).expect_err(text);
    }
}

fn hello_comes_back() {
    let shared = SharedMemory { path: "/proc/1/fd/\"3".into(), request_bytes: 5, answer_bytes: u64::MAX };
    for hello in [Hello::new(None), Hello::new(Some(shared))] {
        let head = hello.body().head();
        assert_eq!(Hello::parse(&Layout::read(&mut &head[..], head.len() as u64).expect("a body")), Ok(hello));
    }
}

/// A side that speaks no version that this one does is told so, and `serve` ends.
fn a_stranger_is_refused() {
    use lastbit::external::frame::{HEADER, Header, Kind, frame};
    let hello = Hello { versions: vec![8, 9], shared_memory: None };
    let mut answers = Vec::new();
    let error = serve(&Talkative, &frame(Kind::Hello, 0, &hello.body())[..], &mut answers).expect_err("no common version");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    let header = Header::parse(answers.first_chunk().expect("a header")).expect("a header");
    assert_eq!(header.kind, Kind::Failed);
    let layout = Layout::read(&mut &answers[HEADER..], header.length).expect("a body");
    assert_eq!(layout.scalar("reason"), Some("speaks version 1 of the protocol, not [8, 9]"));
}
