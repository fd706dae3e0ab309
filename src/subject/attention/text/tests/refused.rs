//! Bad input: each fault is named with its line, field and reason, and nothing panics or takes much memory.

use super::super::{MAX_TEXT, load, parse};
use super::{EXAMPLE, example, literal_text};

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
    ("pad_kv = 2\n", "", "20", "train.pad_kv", "missing field"),
    ("{ id = 3, q = 1, kv = 0 }", "{ id = 3, q = 1 }", "17", "problem.sequences[1].kv", "missing field"),
    ("{ hit = 1, chunks = [2] }", "{ hit = 1, chunk = [2] }", "38", "infer.requests[0].chunk", "did you mean `chunks`?"),
    ("d_v = 1", "d_v = 1.5", "9", "problem.d_v", "expected an integer, found `1.5`"),
    ("d_v = 1", "d_v = -1", "9", "problem.d_v", "from 0 to 4294967295, found `-1`"),
    ("d_v = 1", "d_v = 99999999999999999999999999999999999", "9", "problem.d_v", "from 0 to 4294967295"),
    ("d_v = 1", "d_v = [1]", "9", "problem.d_v", "found an array"),
    ("d_v = 1", "d_v = 1979-05-27", "9", "problem.d_v", "found a date"),
    ("group_ids = [0, 1]", "group_ids = [0, true]", "11", "problem.group_ids[1]", "expected an integer, found `true`"),
    ("group_ids = [0, 1]", "group_ids = 2", "11", "problem.group_ids", "expected an array"),
    ("rotate = false", "rotate = 0", "35", "infer.rotate", "expected true or false"),
    ("seed = 7", "seed = -7", "44", "data.seed", "2^64 - 1"),
    ("seed = 7", "seed = \"7\"", "44", "data.seed", "2^64 - 1"),
    ("shuffle = \"0x8000000000000000\"", "shuffle = \"0x80000000000000000\"", "32", "infer.shuffle", "2^64 - 1"),
    ("softmax_scale = 0.35355338", "softmax_scale = \"0.3\"", "12", "problem.softmax_scale", "0x3f800000"),
    ("softmax_scale = 0.35355338", "softmax_scale = true", "12", "problem.softmax_scale", "expected a number"),
    ("causal = \"bottom_right\"", "causal = \"botom_right\"", "13", "problem.causal", "did you mean `bottom_right`?"),
    ("dtype = \"f32\"", "dtype = \"f23\"", "6", "problem.dtype", "unknown dtype `f23` (known: f32"),
    ("layout = \"dense\"", "layout = \"varlen\"", "22", "train.side", "only with layout = \"dense\""),
    ("cache = \"paged\"", "cache = \"contiguous\"", "30", "infer.page", "only with cache = \"paged\""),
    ("regime = \"mirror\"", "regime = \"normal\"", "46", "data.span", "only with regime = \"mirror\""),
    ("regime = \"mirror\"", "regime = \"miror\"", "45", "data.regime", "did you mean `mirror`?"),
    ("from = \"drawn\"", "from = \"captured\"", "44", "data.seed", "only with from = \"drawn\""),
    ("from = \"drawn\"", "from = \"drawn\"\nsha256 = \"\"", "44", "data.sha256", "only with from = \"captured\""),
    ("block_q = 64", "block_q = 64\ncontext_ranks = 2", "20", "train.context_shards", "missing field"),
    ("bucket = 1", "bucket = 1\nhead_ranks = 3", "37", "infer.head_ranks", "cannot be divided between 3 ranks"),
    ("block_q = 64", "block_q = 64\nknobs = 2", "27", "train.knobs", "expected a table"),
    ("block_q = 64", "block_q = 64\nknobs = { splits = 2 }", "27", "train.knobs.splits", "expected a string"),
    ("bucket = 1", "bucket = 1\nknobs = { splits = \"a\\nb\" }", "37", "infer.knobs.splits", "must be one line"),
    ("bucket = 1", "bucket = 1\nknobs = { a-b = \"2\" }", "37", "infer.knobs", "`a-b` is no name of a knob"),
    ("bucket = 1", "bucket = 1\nknobs = { a = { b = \"2\" } }", "37", "infer.knobs", "`a.b` is no name of a knob"),
    ("oracle = \"enclosure\"", "oracle = \"enclosures\"", "50", "run.oracle", "did you mean `enclosure`?"),
    ("expect = \"mismatch o\"", "expect = \"a\\nb\"", "51", "run.expect", "must be one line"),
    ("expect = \"mismatch o\"\n", "", "49", "run.expect", "missing field"),
    ("kernel = \"ref\"\nscore", "score", "53", "run.train.kernel", "missing field"),
    (
        "kernel = \"ref\"\nscore",
        "kernel = \"reff\"\nscore",
        "54",
        "run.train.kernel",
        "unknown kernel `reff`; did you mean `ref`?",
    ),
    ("score.fma = true", "score.fma = [true]", "56", "run.train.score.fma", "found an array"),
    ("score.fma = true", "\"score.order\" = 1", "56", "run.train.score.order", "a quoted key with a dot"),
    // The problem.
    ("dtype = \"f32\"\n", "dtype = \"e4m3\"\n", "6", "problem.dtype", "8-bit keys and values are problem.kv_dtype"),
    ("out_dtype = \"bf16\"", "out_dtype = \"e5m2\"", "7", "problem.out_dtype", "8-bit keys and values are problem.kv_dtype"),
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
    // The plans.
    ("pad_q = 0", "pad_q = 65537", "23", "train.pad_q", "allowed are 0 to 65536"),
    ("pad_kv = 2", "pad_kv = 4294967295", "24", "train.pad_kv", "allowed are 0 to 65536"),
    ("order = [1, 0]", "order = [1, 1]", "25", "train.order", "is not a permutation"),
    ("order = [1, 0]", "order = [1]", "25", "train.order", "is not a permutation"),
    ("order = [1, 0]", "order = [1, 2]", "25", "train.order", "is not a permutation"),
    ("block_q = 64", "block_q = 0", "26", "train.block_q", "is 0; allowed are 1"),
    ("page = 4", "page = 0", "30", "infer.page", "is 0; allowed are 1"),
    ("spare = 1", "spare = 4097", "31", "infer.spare", "is 4097; allowed are 0 to 4096"),
    ("page = 4\nspare = 1", "page = 65536\nspare = 4096", "30", "infer.page", "the page pool would hold"),
    ("order = [0, 1]\nrotate", "order = [0, 2]\nrotate", "34", "infer.order", "is not a permutation"),
    ("bucket = 1", "bucket = 0", "36", "infer.bucket", "is 0; allowed are 1 to 64"),
    ("bucket = 1", "bucket = 65", "36", "infer.bucket", "is 65; allowed are 1 to 64"),
    ("bucket = 1", "bucket = 1\nbudget = 0", "37", "infer.budget", "at least one row"),
    ("  {},\n", "", "37", "infer.requests", "has 1 requests for 2 sequences"),
    ("hit = 1", "hit = 4", "38", "infer.requests[0].hit", "is 4, but the sequence has 4 new rows"),
    ("  {},\n", "  { hit = 1 },\n", "39", "infer.requests[1].hit", "at least one must be left"),
    ("hit = 1", "join = 4097", "38", "infer.requests[0].join", "is 4097; allowed are 0 to 4096"),
    ("chunks = [2]", "chunks = [2, 0]", "38", "infer.requests[0].chunks[1]", "is 0; a chunk holds at least one row"),
    ("chunks = [2]", "chunks = [2, 2]", "38", "infer.requests[0].chunks[1]", "chunk past the end: 2 rows, but 1 are left"),
    ("chunks = [2]", "chunks = [4294967295]", "38", "infer.requests[0].chunks[0]", "chunk past the end"),
    ("chunks = [2]", "then = 0", "38", "infer.requests[0].then", "is 0; allowed are 1"),
    ("chunks = [2]", "then = 2, reject = 2", "38", "infer.requests[0].reject", "at least one must be accepted"),
    ("chunks = [2]", "preempt = 0", "38", "infer.requests[0].preempt", "after a step of its own"),
    // Masks that allow one step only.
    ("bottom_right", "top_left", "38", "infer.requests[0].hit", "a prefix hit under a top-left causal mask"),
    ("causal = \"bottom_right\"\n", "", "37", "infer.requests[0].hit", "a prefix hit under a mask that is not causal"),
    // The data.
    ("regime = \"mirror\"\nspan = 4\nphase = 0", "regime = \"dominant\"\ngap = 0\nlane = 1", "46", "data.gap", "above zero"),
    ("regime = \"mirror\"\nspan = 4\nphase = 0", "regime = \"deep\"\nlevel = 1", "46", "data.level", "below zero"),
    ("regime = \"mirror\"\nspan = 4\nphase = 0", "regime = \"deep\"\nlevel = -inf", "46", "data.level", "finite"),
    ("span = 4", "span = 1", "46", "data.span", "is 1; allowed are 2"),
    ("window_left = 4", "alibi_slopes = [0.5, 0.25]", "45", "data.regime", "mirror with problem.alibi_slopes"),
    (
        "from = \"drawn\"\nseed = 7\nregime = \"mirror\"\nspan = 4\nphase = 0",
        "from = \"captured\"\nsha256 = \"ABC\"",
        "44",
        "data.sha256",
        "is not 64 lower-case hex digits",
    ),
];

/// Checks one refusal and says how it differs. An empty line is any line, an empty field none.
fn differs(text: &str, line: &str, field: &str, reason: &str) -> Option<String> {
    let shown = match parse(text, "bad.case") {
        Err(error) => error.to_string(),
        Ok(_) => return Some(format!("accepted, wanted {field}: {reason}\n{text}")),
    };
    let start = match (line, field) {
        ("", _) => "bad.case:".to_string(),
        (_, "") => format!("bad.case:{line}: "),
        _ => format!("bad.case:{line}: {field}: "),
    };
    let as_wanted = shown.starts_with(&start) && shown.contains(field) && shown.contains(reason);
    (!as_wanted).then(|| format!("wanted {start}...{reason}\n   got {shown}"))
}

#[track_caller]
fn refused(text: &str, line: &str, field: &str, reason: &str) {
    if let Some(difference) = differs(text, line, field, reason) {
        panic!("{difference}");
    }
}

#[test]
fn everything_wrong_is_refused_with_line_field_and_reason() {
    let wrong = |&(from, to, line, field, reason): &(&str, &str, &str, &str, &str)| {
        assert!(EXAMPLE.contains(from), "{from}");
        differs(&EXAMPLE.replacen(from, to, 1), line, field, reason)
    };
    let wrong: Vec<String> = REFUSED.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
        refused(&base.replace("then = 4", to), "37", &field, reason);
    }
    refused(&base.replace("bucket = 1", "bucket = 1\nbudget = 4"), "36", "infer.budget", "a budget of 4 for 5 rows under");
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
    refused(&contiguous, "25", "infer.cache", "the cache would hold");
    let long = EXAMPLE.replace("q = 4, kv = 9", "q = 65536, kv = 65536").replace("d_qk = 2", "d_qk = 8");
    refused(&long, "15", "problem.sequences", "multiplications");
    // Rejected rows multiply the work.
    let fair = EXAMPLE.replace("q = 4, kv = 9", "q = 8192, kv = 8192");
    parse(&fair, "x.case").unwrap();
    refused(&fair.replace("chunks = [2]", "then = 512, reject = 511"), "15", "problem.sequences", "multiplications");
    // Scores cost time even where the head dims are 1.
    let narrow = EXAMPLE.replace("d_qk = 2", "d_qk = 1").replace("hit = 1, chunks = [2]", "then = 64");
    parse(&narrow.replace("q = 4, kv = 9", "q = 16384, kv = 16384"), "x.case").unwrap();
    let narrow = narrow.replace("q = 4, kv = 9", "q = 32768, kv = 32768");
    refused(&narrow, "15", "problem.sequences", "multiplications");
    let chunks = format!("chunks = [{}]", "1,".repeat(4097));
    refused(&fair.replace("chunks = [2]", &chunks), "38", "infer.requests[0].chunks", "has 4097 elements; 4096 are the most");
    let heads = format!("{:?}", (0..257).collect::<Vec<_>>());
    refused(&EXAMPLE.replace("group_ids = [0, 1]", &format!("group_ids = {heads}")), "11", "problem.group_ids", "257 elements");
    let heads = format!("{:?}", (0..60).collect::<Vec<_>>());
    let text = EXAMPLE
        .replace("group_ids = [0, 1]", &format!("group_ids = {heads}"))
        .replace("kv_head_ids = [0]", "kv_head_ids = [0, 1, 2, 3, 4]");
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
