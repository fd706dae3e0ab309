use super::*;
use crate::number::Dtype;
use crate::subject::attention::validate::validate;
use crate::subject::attention::{
    Anchor, Cache, Data, InferPlan, Literal, Mask, Problem, Regime, Request, Sequence, Side, TrainLayout, TrainPlan,
};
use proptest::prelude::*;

/// A short list of numbers as a source of choices; an exhausted one gives the simplest.
struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next().unwrap_or(0) % n
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 1).then(|| make(self))
    }

    fn positive(&mut self) -> f32 {
        f32::from_bits(1 + self.below(0x7f7f_ffff))
    }

    fn order(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        let turn = if count > 0 { self.below(count as u32) } else { 0 };
        order.rotate_left(turn as usize);
        order
    }

    fn labels(&mut self) -> Vec<u32> {
        let start = self.below(5);
        (0..1 + self.below(3)).map(|n| start + 2 * n).collect()
    }

    fn request(&mut self, sequence: &Sequence, causal: bool) -> Request {
        let q = sequence.q;
        if !causal {
            let whole = q > 0 && self.below(2) == 1;
            let chunks = if whole { vec![q] } else { vec![] };
            return Request { hit: 0, join: self.below(3), chunks, then: q.max(1), reject: 0, preempt: None };
        }
        let hit = if q > 0 { self.below(q) } else { 0 };
        let mut left = q - hit;
        let mut chunks = Vec::new();
        while left > 0 && self.below(2) == 1 {
            chunks.push(1 + self.below(left));
            left -= chunks[chunks.len() - 1];
        }
        let then = 1 + self.below(4);
        Request { hit, join: self.below(3), chunks, then, reject: self.below(then), preempt: self.maybe(|c| 1 + c.below(9)) }
    }

    fn regime(&mut self, alibi: bool) -> Regime {
        match self.below(if alibi { 11 } else { 12 }) {
            0 => Regime::Normal,
            1 => Regime::Equal,
            2 => Regime::Dominant { gap: self.positive(), lane: self.below(9) },
            3 => Regime::Deep { level: -self.positive() },
            4 => Regime::Overflow,
            5 => Regime::Subnormal,
            6 => Regime::Quantised,
            7 => Regime::Tail,
            8 => Regime::Wide,
            9 => Regime::OnehotV,
            10 => Regime::ConstantV,
            _ => Regime::Mirror { span: 2 + self.below(9), phase: self.below(9) },
        }
    }

    fn data(&mut self, problem: &Problem) -> Data {
        match self.below(4) {
            2 => {
                let dtype = problem.dtype;
                let mut bits = |count: usize| -> Vec<u32> {
                    let sign = |c: &mut Self| if c.below(2) == 1 { dtype.sign_mask() } else { 0 };
                    (0..count).map(|_| sign(self) | self.below(dtype.max_finite_bits() + 1)).collect()
                };
                Data::Literal(Literal {
                    q: bits(problem.total_q() * problem.q_heads() * problem.d_qk as usize),
                    k: bits(problem.total_kv() * problem.kv_heads() * problem.d_qk as usize),
                    v: bits(problem.total_kv() * problem.kv_heads() * problem.d_v as usize),
                })
            }
            3 => Data::Captured { sha256: "0123456789abcdef".repeat(4) },
            _ => Data::Drawn {
                seed: u64::from(self.below(u32::MAX)) << 32 | u64::from(self.below(u32::MAX)),
                regime: self.regime(problem.alibi_slopes.is_some()),
            },
        }
    }

    fn problem(&mut self) -> Problem {
        let count = self.below(4);
        let first = self.below(7);
        let sequence = |n| Sequence { id: first + n, q: self.below(9), kv: self.below(12) };
        let sequences: Vec<Sequence> = (0..count).map(sequence).collect();
        let (kv_head_ids, group_ids) = (self.labels(), self.labels());
        let heads = kv_head_ids.len() * group_ids.len();
        let causal = [None, Some(Anchor::BottomRight), Some(Anchor::TopLeft), Some(Anchor::BottomRight)][self.below(4) as usize];
        let window_right = if causal.is_none() { self.maybe(|c| c.below(5)) } else { None };
        let dtypes = [Dtype::F32, Dtype::F16, Dtype::BF16];
        Problem {
            sequences,
            kv_head_ids,
            group_ids,
            d_qk: 1 + self.below(4),
            d_v: 1 + self.below(4),
            mask: Mask { causal, window_left: self.maybe(|c| c.below(5)), window_right },
            softcap: self.maybe(Self::positive),
            sinks: self.maybe(|c| (0..heads).map(|_| c.positive() * [1.0, -1.0][c.below(2) as usize]).collect()),
            alibi_slopes: self.maybe(|c| (0..heads).map(|_| c.positive()).collect()),
            softmax_scale: self.positive(),
            dtype: dtypes[self.below(3) as usize],
            out_dtype: dtypes[self.below(3) as usize],
        }
    }

    fn kernel(&mut self) -> KernelFields {
        let values =
            ["sequential", "true", "64", "lanes(8)", "-inf", "-0", "1e5", "a \"b\" \\ \u{e9}", "", "0x10", "9223372036854775808"];
        let names = ["score.order", "finish", "score.fma", "actual.anchor", "softmax.block", "a b.c", "z"];
        let count = self.below(names.len() as u32 + 1) as usize;
        KernelFields(names[..count].iter().map(|name| (name.to_string(), values[self.below(11) as usize].to_string())).collect())
    }

    fn file(&mut self) -> CaseFile {
        let problem = self.problem();
        let count = problem.sequences.len();
        let causal = problem.mask.causal == Some(Anchor::BottomRight);
        let layout = match self.below(3) {
            0 => TrainLayout::Varlen,
            side => TrainLayout::Dense {
                side: [Side::Left, Side::Right][side as usize - 1],
                pad_q: self.below(5),
                pad_kv: self.below(5),
            },
        };
        let cache = match self.below(2) {
            0 => Cache::Contiguous { spare: self.below(9) },
            _ => Cache::Paged {
                page: 1 + self.below(9),
                spare: self.below(9),
                shuffle: u64::from(self.below(3)) << 62,
                recycled: self.below(2) == 1,
            },
        };
        let infer = InferPlan {
            cache,
            requests: problem.sequences.iter().map(|sequence| self.request(sequence, causal)).collect(),
            order: self.order(count),
            rotate: self.below(2) == 1,
            budget: if causal { self.maybe(|c| 1 + c.below(20)) } else { self.maybe(|_| problem.total_q().max(1) as u32) },
            bucket: 1 + self.below(8),
        };
        let train = TrainPlan { layout, order: self.order(count), block_q: 1 + self.below(99) };
        let data = self.data(&problem);
        let comment = ["", "kept", "two\nlines  ", "\n#", "caf\u{e9}\ttab\n"][self.below(5) as usize];
        CaseFile {
            comment: comment.into(),
            case: Case { problem, train, infer, data },
            run: Run {
                train: self.kernel(),
                infer: self.kernel(),
                oracle: ORACLES[self.below(3) as usize].into(),
                relation: self.maybe(|_| "prefix stability rows=3 \"x\"".into()),
                expect: ["match", "mismatch o", ""][self.below(3) as usize].into(),
            },
        }
    }
}

fn case_file() -> impl Strategy<Value = CaseFile> {
    // Biased to leave some choices at their simplest.
    let choice = prop_oneof![1 => Just(0u32), 3 => any::<u32>()];
    proptest::collection::vec(choice, 0..600).prop_map(|choices| Choices(choices.into_iter()).file())
}

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
    assert_eq!(file.run.train.0[1], ("score.fma".to_string(), "true".to_string()));
    assert_eq!(file.run.infer.0[0], ("softmax.block".to_string(), "64".to_string()));
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

/// `(text to replace, replacement, line, field, part of the reason)`.
const REFUSED: &[(&str, &str, &str, &str, &str)] = &[
    // The text itself.
    ("d_qk = 2", "d_qk = ", "8", "", "not TOML"),
    ("d_qk = 2", "d_qk = 2\nd_qk = 3", "9", "", "duplicate key"),
    ("format = 1", "format = 2", "3", "format", "is 2; this version reads format 1"),
    ("format = 1", "format = 2\nnovel = 3", "3", "format", "this version reads format 1"),
    ("format = 1\n", "", "1", "format", "missing field"),
    ("format = 1", "format = \"1\"", "3", "format", "expected an integer, found the string \"1\""),
    ("format = 1", "format = 1\nprobelm = 2", "4", "probelm", "did you mean `problem`?"),
    ("[run]\n", "[ran]\n", "", "ran", "did you mean `run`?"),
    ("d_v = 1", "d_w = 1", "9", "problem.d_w", "unknown field `d_w`; did you mean `d_v`?"),
    ("d_v = 1", "zebra_crossing_lights = 1", "9", "problem.zebra_crossing_lights", "(known: dtype, out_dtype,"),
    ("d_v = 1\n", "", "5", "problem.d_v", "missing field"),
    ("pad_kv = 2\n", "", "21", "train.pad_kv", "missing field"),
    ("{ id = 3, q = 1, kv = 0 }", "{ id = 3, q = 1 }", "17", "problem.sequences[1].kv", "missing field"),
    ("{ hit = 1, chunks = [2] }", "{ hit = 1, chunk = [2] }", "39", "infer.requests[0].chunk", "did you mean `chunks`?"),
    ("d_v = 1", "d_v = 1.5", "9", "problem.d_v", "expected an integer, found `1.5`"),
    ("d_v = 1", "d_v = -1", "9", "problem.d_v", "from 0 to 4294967295, found `-1`"),
    ("d_v = 1", "d_v = 99999999999999999999999999999999999", "9", "problem.d_v", "from 0 to 4294967295"),
    ("d_v = 1", "d_v = [1]", "9", "problem.d_v", "found an array"),
    ("d_v = 1", "d_v = 1979-05-27", "9", "problem.d_v", "found a date"),
    ("group_ids = [0, 1]", "group_ids = [0, true]", "11", "problem.group_ids[1]", "expected an integer, found `true`"),
    ("group_ids = [0, 1]", "group_ids = 2", "11", "problem.group_ids", "expected an array"),
    ("rotate = false", "rotate = 0", "36", "infer.rotate", "expected true or false"),
    ("seed = 7", "seed = -7", "45", "data.seed", "2^64 - 1"),
    ("seed = 7", "seed = \"7\"", "45", "data.seed", "2^64 - 1"),
    ("shuffle = \"0x8000000000000000\"", "shuffle = \"0x80000000000000000\"", "33", "infer.shuffle", "2^64 - 1"),
    ("softmax_scale = 0.35355338", "softmax_scale = \"0.3\"", "12", "problem.softmax_scale", "0x3f800000"),
    ("softmax_scale = 0.35355338", "softmax_scale = true", "12", "problem.softmax_scale", "expected a number"),
    ("causal = \"bottom_right\"", "causal = \"botom_right\"", "13", "problem.causal", "did you mean `bottom_right`?"),
    ("dtype = \"f32\"", "dtype = \"f23\"", "6", "problem.dtype", "unknown dtype `f23`; did you mean"),
    ("layout = \"dense\"", "layout = \"varlen\"", "22", "train.side", "only with layout = \"dense\""),
    ("cache = \"paged\"", "cache = \"contiguous\"", "31", "infer.page", "only with cache = \"paged\""),
    ("regime = \"mirror\"", "regime = \"normal\"", "47", "data.span", "only with regime = \"mirror\""),
    ("regime = \"mirror\"", "regime = \"miror\"", "46", "data.regime", "did you mean `mirror`?"),
    ("from = \"drawn\"", "from = \"captured\"", "45", "data.seed", "only with from = \"drawn\""),
    ("from = \"drawn\"", "from = \"drawn\"\nsha256 = \"\"", "45", "data.sha256", "only with from = \"captured\""),
    ("block_q = 64", "block_q = 64\ncontext_ranks = 2", "27", "train.context_ranks", "ranks come with a later version"),
    ("bucket = 1", "bucket = 1\nhead_ranks = 2", "38", "infer.head_ranks", "ranks come with a later version"),
    ("oracle = \"enclosure\"", "oracle = \"enclosures\"", "51", "run.oracle", "did you mean `enclosure`?"),
    ("expect = \"mismatch o\"", "expect = \"a\\nb\"", "52", "run.expect", "must be one line"),
    ("expect = \"mismatch o\"\n", "", "50", "run.expect", "missing field"),
    ("kernel = \"ref\"\nscore", "score", "54", "run.train.kernel", "missing field"),
    (
        "kernel = \"ref\"\nscore",
        "kernel = \"reff\"\nscore",
        "55",
        "run.train.kernel",
        "unknown kernel `reff`; did you mean `ref`?",
    ),
    ("score.fma = true", "score.fma = [true]", "57", "run.train.score.fma", "found an array"),
    ("score.fma = true", "\"score.order\" = 1", "57", "run.train.score.order", "a quoted key with a dot"),
    // The problem.
    ("dtype = \"f32\"\n", "dtype = \"e4m3\"\n", "6", "problem.dtype", "KV in fp8 comes with a later version"),
    ("out_dtype = \"bf16\"", "out_dtype = \"e5m2\"", "7", "problem.out_dtype", "KV in fp8 comes with a later version"),
    ("d_qk = 2", "d_qk = 0", "8", "problem.d_qk", "is 0; allowed are 1 to 512"),
    ("d_v = 1", "d_v = 513", "9", "problem.d_v", "is 513; allowed are 1 to 512"),
    ("kv_head_ids = [0]", "kv_head_ids = []", "10", "problem.kv_head_ids", "at least one head"),
    ("kv_head_ids = [0]", "kv_head_ids = [5, 6, 5]", "10", "problem.kv_head_ids[2]", "label 5 stands there twice"),
    ("group_ids = [0, 1]", "group_ids = []", "11", "problem.group_ids", "at least one head"),
    ("group_ids = [0, 1]", "group_ids = [1, 1]", "11", "problem.group_ids[1]", "label 1 stands there twice"),
    ("softmax_scale = 0.35355338", "softmax_scale = 0.0", "12", "problem.softmax_scale", "finite and above zero"),
    ("softmax_scale = 0.35355338", "softmax_scale = -1", "12", "problem.softmax_scale", "finite and above zero"),
    ("softmax_scale = 0.35355338", "softmax_scale = nan", "12", "problem.softmax_scale", "is NaN; it must be finite"),
    ("softmax_scale = 0.35355338", "softmax_scale = 1e39", "12", "problem.softmax_scale", "is inf; it must be finite"),
    ("softmax_scale = 0.35355338", "softmax_scale = \"0x7fc00000\"", "12", "problem.softmax_scale", "is NaN"),
    ("window_left = 4", "window_right = 4", "14", "problem.window_right", "conflicts with `causal`"),
    ("window_left = 4", "softcap = 0.0", "14", "problem.softcap", "finite and above zero"),
    ("window_left = 4", "softcap = inf", "14", "problem.softcap", "finite and above zero"),
    ("window_left = 4", "sinks = [0.5]", "14", "problem.sinks", "has 1 values for 2 query heads"),
    ("window_left = 4", "sinks = [0.5, nan]", "14", "problem.sinks[1]", "is NaN; it must be finite"),
    ("window_left = 4", "sinks = [-inf, 0.5]", "14", "problem.sinks[0]", "is -inf; it must be finite"),
    ("window_left = 4", "alibi_slopes = [0.5, 0.25, 1]", "14", "problem.alibi_slopes", "has 3 values for 2 query heads"),
    ("window_left = 4", "alibi_slopes = [0.5, -0.25]", "14", "problem.alibi_slopes[1]", "finite and not negative"),
    ("id = 3", "id = 0", "17", "problem.sequences[1].id", "0 stands there twice"),
    ("q = 1, kv = 0", "q = 65537, kv = 0", "17", "problem.sequences[1].q", "is 65537; allowed are 0 to 65536"),
    ("q = 1, kv = 0", "q = 1, kv = 65537", "17", "problem.sequences[1].kv", "is 65537; allowed are 0 to 65536"),
    ("q = 4, kv = 9", "q = 65536, kv = 65536", "15", "problem.sequences", "multiplications"),
    // The plans.
    ("pad_q = 0", "pad_q = 65537", "23", "train.pad_q", "allowed are 0 to 65536"),
    ("pad_kv = 2", "pad_kv = 4294967295", "24", "train.pad_kv", "allowed are 0 to 65536"),
    ("order = [1, 0]", "order = [1, 1]", "25", "train.order", "is not a permutation"),
    ("order = [1, 0]", "order = [1]", "25", "train.order", "is not a permutation"),
    ("order = [1, 0]", "order = [1, 2]", "25", "train.order", "is not a permutation"),
    ("block_q = 64", "block_q = 0", "26", "train.block_q", "is 0; allowed are 1"),
    ("page = 4", "page = 0", "31", "infer.page", "is 0; allowed are 1"),
    ("spare = 1", "spare = 4097", "32", "infer.spare", "is 4097; allowed are 0 to 4096"),
    ("page = 4\nspare = 1", "page = 65536\nspare = 4096", "31", "infer.page", "the page pool would hold"),
    ("order = [0, 1]\nrotate", "order = [0, 2]\nrotate", "35", "infer.order", "is not a permutation"),
    ("bucket = 1", "bucket = 0", "37", "infer.bucket", "is 0; allowed are 1 to 64"),
    ("bucket = 1", "bucket = 65", "37", "infer.bucket", "is 65; allowed are 1 to 64"),
    ("bucket = 1", "bucket = 1\nbudget = 0", "38", "infer.budget", "at least one row"),
    ("  {},\n", "", "38", "infer.requests", "has 1 requests for 2 sequences"),
    ("hit = 1", "hit = 4", "39", "infer.requests[0].hit", "is 4, but the sequence has 4 new rows"),
    ("  {},\n", "  { hit = 1 },\n", "40", "infer.requests[1].hit", "at least one must be left"),
    ("hit = 1", "join = 4097", "39", "infer.requests[0].join", "is 4097; allowed are 0 to 4096"),
    ("chunks = [2]", "chunks = [2, 0]", "39", "infer.requests[0].chunks[1]", "is 0; a chunk holds at least one row"),
    ("chunks = [2]", "chunks = [2, 2]", "39", "infer.requests[0].chunks[1]", "chunk past the end: 2 rows, but 1 are left"),
    ("chunks = [2]", "chunks = [4294967295]", "39", "infer.requests[0].chunks[0]", "chunk past the end"),
    ("chunks = [2]", "then = 0", "39", "infer.requests[0].then", "is 0; allowed are 1"),
    ("chunks = [2]", "then = 2, reject = 2", "39", "infer.requests[0].reject", "at least one must be accepted"),
    ("chunks = [2]", "preempt = 0", "39", "infer.requests[0].preempt", "after a step of its own"),
    // Masks that allow one step only.
    ("bottom_right", "top_left", "39", "infer.requests[0].hit", "a prefix hit under a top-left causal mask"),
    ("causal = \"bottom_right\"\n", "", "38", "infer.requests[0].hit", "a prefix hit under a mask that is not causal"),
    // The data.
    ("regime = \"mirror\"\nspan = 4\nphase = 0", "regime = \"dominant\"\ngap = 0\nlane = 1", "47", "data.gap", "above zero"),
    ("regime = \"mirror\"\nspan = 4\nphase = 0", "regime = \"deep\"\nlevel = 1", "47", "data.level", "below zero"),
    ("regime = \"mirror\"\nspan = 4\nphase = 0", "regime = \"deep\"\nlevel = -inf", "47", "data.level", "finite"),
    ("span = 4", "span = 1", "47", "data.span", "is 1; allowed are 2"),
    ("window_left = 4", "alibi_slopes = [0.5, 0.25]", "46", "data.regime", "mirror with problem.alibi_slopes"),
    (
        "from = \"drawn\"\nseed = 7\nregime = \"mirror\"\nspan = 4\nphase = 0",
        "from = \"captured\"\nsha256 = \"ABC\"",
        "45",
        "data.sha256",
        "is not 64 lower-case hex digits",
    ),
];

#[track_caller]
fn refused(text: &str, line: &str, field: &str, reason: &str) {
    let shown = match parse(text, "bad.case") {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted, expected {field}: {reason}\n{text}"),
    };
    let start = match (line, field) {
        ("", _) => "bad.case:".to_string(),
        (_, "") => format!("bad.case:{line}: "),
        _ => format!("bad.case:{line}: {field}: "),
    };
    assert!(
        shown.starts_with(&start) && shown.contains(field) && shown.contains(reason),
        "wanted {start}...{reason}\n   got {shown}"
    );
}

#[test]
fn everything_wrong_is_refused_with_line_field_and_reason() {
    for (from, to, line, field, reason) in REFUSED {
        assert!(EXAMPLE.contains(from), "{from}");
        refused(&EXAMPLE.replacen(from, to, 1), line, field, reason);
    }
}

#[test]
fn one_step_masks_refuse_every_kind_of_second_step() {
    let base = EXAMPLE.replace("causal = \"bottom_right\"\n", "").replace("hit = 1, chunks = [2]", "then = 4");
    parse(&base, "x.case").unwrap();
    parse(&base.replace("then = 4", "chunks = [4]"), "x.case").unwrap();
    parse(&base.replace("bucket = 1", "budget = 5\nbucket = 1"), "x.case").unwrap();
    let row = "infer.requests[0]";
    for (to, field, reason) in [
        ("chunks = [2], then = 4", format!("{row}.chunks"), "a chunk under"),
        ("then = 3", format!("{row}.then"), "steps of 3 of 4 rows under"),
        ("then = 4, reject = 1", format!("{row}.reject"), "rejected rows under"),
        ("then = 4, preempt = 1", format!("{row}.preempt"), "preemption under"),
    ] {
        refused(&base.replace("then = 4", to), "38", &field, reason);
    }
    refused(&base.replace("bucket = 1", "bucket = 1\nbudget = 4"), "37", "infer.budget", "a budget of 4 for 5 rows under");
}

#[test]
fn literal_data_of_the_wrong_shape_or_class_is_refused() {
    let text = literal_text();
    let line = |part: &str| (text[..text.find(part).unwrap()].matches('\n').count() + 1).to_string();
    for (from, to, at, field, reason) in [
        ("3dcccccd 4b800000", "3dcccccd 7fc00000", "k = [", "data.k", "NaN at sequence 0, row 1, head 0, lane 1"),
        ("bf800000 |", "ff800000 |", "q = [", "data.q", "an infinity at sequence 0, row 0, head 0, lane 1"),
        ("bf800000 |", "bf80000 |", "  \"3f800000 bf", "data.q", "`bf80000` is not a f32 pattern of 8 hex digits"),
        ("bf800000 |", "+f800000 |", "  \"3f800000 bf", "data.q", "`+f800000` is not a f32 pattern"),
        ("bf800000 |", "bf800000", "  \"3f800000 bf", "data.q", "a row with 1 heads; 2 are needed"),
        ("bf800000 |", "|", "  \"3f800000 bf", "data.q", "a head with 1 values; 2 are needed"),
        ("  \"00000001 7f7fffff\",", "", "k = [", "data.k", "has 1 rows; the sequences have 2"),
        ("\"3dcccccd 4b800000\"", "7", "  \"3dcccccd", "data.k", "expected an array of strings"),
        ("v = [", "w = [", "v = [", "data.w", "unknown field `w`"),
    ] {
        assert!(text.contains(from));
        refused(&text.replacen(from, to, 1), &line(at), field, reason);
    }
}

#[test]
fn caps_hold_where_a_short_file_would_ask_for_much() {
    let many = |count: u32, each: &str| (0..count).map(|n| format!("{{ id = {n}, {each} }},")).collect::<String>();
    let orders = |count: u32| format!("{:?}", (0..count).collect::<Vec<u32>>());
    let batch = |count: u32, each: &str| {
        EXAMPLE
            .replace("{ id = 0, q = 4, kv = 9 },\n  { id = 3, q = 1, kv = 0 },", &many(count, each))
            .replace("{ hit = 1, chunks = [2] },\n  {},", &"{},".repeat(count as usize))
            .replace("order = [1, 0]", &format!("order = {}", orders(count)))
            .replace("order = [0, 1]", &format!("order = {}", orders(count)))
    };
    parse(&batch(0, ""), "x.case").unwrap();
    parse(&batch(64, "q = 3, kv = 2"), "x.case").unwrap();
    refused(&batch(65, "q = 3, kv = 2"), "15", "problem.sequences", "has 65 elements; 64 are the most");
    refused(&batch(64, "q = 65536, kv = 65536"), "15", "problem.sequences", "new rows in all; 262144 are the most");
    refused(&batch(64, "q = 1, kv = 65536"), "15", "problem.sequences", "positions in all; 262144 are the most");
    let wide = batch(4, "q = 1, kv = 65536").replace("d_qk = 2", "d_qk = 512");
    refused(&wide, "15", "problem.sequences", "the packed tensors would hold");
    // One long sequence among short ones: packed it fits, padded it does not.
    let ragged = batch(64, "q = 1, kv = 2").replace("id = 0, q = 1, kv = 2", "id = 0, q = 1, kv = 65536");
    let ragged = ragged.replace("d_qk = 2", "d_qk = 64");
    refused(&ragged, "20", "train.layout", "the padded tensors would hold");
    let ragged = ragged.replace("layout = \"dense\"\nside = \"right\"\npad_q = 0\npad_kv = 2", "layout = \"varlen\"");
    parse(&ragged, "x.case").unwrap();
    let contiguous = ragged
        .replace("page = 4\n", "")
        .replace("cache = \"paged\"", "cache = \"contiguous\"")
        .replace("shuffle = \"0x8000000000000000\"\nrecycled = false\n", "");
    refused(&contiguous, "26", "infer.cache", "the cache would hold");
    // Rejected rows multiply the work.
    let fair = EXAMPLE.replace("q = 4, kv = 9", "q = 8192, kv = 8192");
    parse(&fair, "x.case").unwrap();
    refused(&fair.replace("chunks = [2]", "then = 512, reject = 511"), "15", "problem.sequences", "multiplications");
    let chunks = format!("chunks = [{}]", "1,".repeat(4097));
    refused(&fair.replace("chunks = [2]", &chunks), "39", "infer.requests[0].chunks", "has 4097 elements; 4096 are the most");
    let heads = format!("{:?}", (0..257).collect::<Vec<_>>());
    refused(&EXAMPLE.replace("group_ids = [0, 1]", &format!("group_ids = {heads}")), "11", "problem.group_ids", "257 elements");
    let heads = format!("{:?}", (0..200).collect::<Vec<_>>());
    let text = EXAMPLE
        .replace("group_ids = [0, 1]", &format!("group_ids = {heads}"))
        .replace("kv_head_ids = [0]", "kv_head_ids = [0, 1]");
    refused(&text, "11", "problem.group_ids", "256 query heads are the most");
}

#[test]
fn hostile_text_is_refused_quickly() {
    let long = |piece: &str| piece.repeat(MAX_TEXT / piece.len());
    let inside = |text: String| EXAMPLE.replace("group_ids = [0, 1]", &text);
    let hostile = [
        String::new(),
        "\0".into(),
        "\u{feff}".into(),
        long("\0"),
        long("["),
        format!("a = {}", &long("[")[8..]),
        format!("a = {}", &long("{a=")[8..]),
        long("a.")[..MAX_TEXT - 2].to_string() + "=1",
        long("#"),
        long("\n"),
        long("a=1\n"),
        format!("{} = 1", &long("x")[8..]),
        format!("format = {}", &long("9")[16..]),
        format!("format = 1\n\"{}\" = 1", &long("\u{1b}")[32..]),
        "x".repeat(10 << 20),
        inside(format!("group_ids = [{}]", "1,".repeat(MAX_TEXT / 2 - 2000))),
        inside(format!("group_ids = [1e{}]", "9".repeat(1 << 20))),
        inside(format!("group_ids = {}{}", "[".repeat(60), "]".repeat(60))),
        inside(format!("group_ids = \"{}\"", "\\u0000".repeat(1 << 18))),
    ];
    for text in hostile {
        let shown = parse(&text, "bad.case").unwrap_err().to_string();
        assert!(
            shown.starts_with("bad.case") && shown.len() < 400 && !shown.contains('\0'),
            "{}",
            &shown[..shown.len().min(600)]
        );
    }
}

#[test]
fn unreadable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.case");
    let shown = |path: &std::path::Path| load(path).unwrap_err().to_string();
    assert!(shown(&path).contains("a.case: cannot read the case: "));
    std::fs::write(&path, [b'#', b'\n', 0xff]).unwrap();
    assert!(shown(&path).ends_with("a.case:2: is not UTF-8 text"));
    std::fs::write(&path, vec![b'#'; MAX_TEXT + 1]).unwrap();
    assert!(shown(&path).contains("is longer than"));
    std::fs::write(&path, EXAMPLE).unwrap();
    assert_eq!(load(&path).unwrap(), example());
}
