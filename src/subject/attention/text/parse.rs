//! The text to a case, strictly.

use super::fields::{Field, Reader, Section};
use super::{CaseFile, External, FORMAT, KERNELS, KernelFields, KernelText, MAX_TEXT, ORACLES, REGIMES, Run};
use crate::input_error::{InputError, shorten};
use crate::number::Dtype;
use crate::subject::attention::validate::{MAX_CHUNKS, MAX_HEADS, MAX_SEQUENCES, validate};
use crate::subject::attention::{
    Anchor, Cache, Case, ContextParallel, Data, Fp8Kv, InferPlan, Literal, Mask, Problem, Regime, Request, Sequence, Shards,
    Side, TrainLayout, TrainPlan,
};
use std::io::Read as _;
use std::path::Path;

/// Reads, parses and validates a case file.
///
/// # Errors
/// An unreadable or oversized file, and everything [`parse`] refuses.
pub fn load(path: &Path) -> Result<CaseFile, InputError> {
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| InputError::new(&name, format!("cannot read the case: {error}"));
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there is more, whatever the file system says of its size.
    std::fs::File::open(path).map_err(unreadable)?.take(MAX_TEXT as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_TEXT {
        return Err(oversized(&name));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count() + 1;
        InputError::new(&name, "is not UTF-8 text").line(line)
    })?;
    parse(&text, &name)
}

fn oversized(file: &str) -> InputError {
    InputError::new(file, format!("is longer than {MAX_TEXT} bytes, the most for a case"))
}

/// Parses and validates a case; `file_name` is for messages.
///
/// # Errors
/// The first thing wrong, with line, field and reason: text that is not TOML, unknown, missing or mistyped fields, another format,
/// literal values of the wrong shape, and whatever [`validate`] refuses.
pub fn parse(text: &str, file_name: &str) -> Result<CaseFile, InputError> {
    if text.len() > MAX_TEXT {
        return Err(oversized(file_name));
    }
    let reader = Reader::new(file_name, text);
    let document = reader.document(FORMAT)?;
    let top = Section::top(&reader, &document, &["format", "problem", "train", "infer", "data", "run"])?;
    top.need("format")?.u32()?;
    let problem = problem(&top.need("problem")?)?;
    let train = train(&top.need("train")?)?;
    let infer = infer(&top.need("infer")?)?;
    let data = data(&top.need("data")?, &problem)?;
    let run = run(&top.need("run")?)?;
    let case = Case { problem, train, infer, data };
    validate(&case).map_err(|error| reader.locate(error))?;
    Ok(CaseFile { comment: comment(text), case, run })
}

/// The comment lines at the very top.
fn comment(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    lines.join("\n")
}

fn problem(field: &Field<'_, '_>) -> Result<Problem, InputError> {
    let section = field.table(&[
        "dtype",
        "out_dtype",
        "d_qk",
        "d_v",
        "kv_head_ids",
        "group_ids",
        "softmax_scale",
        "causal",
        "window_left",
        "window_right",
        "softcap",
        "sinks",
        "alibi_slopes",
        "kv_dtype",
        "k_scales",
        "v_scales",
        "sequences",
    ])?;
    let optional = |name: &str| section.get(name).map(|field| field.u32()).transpose();
    let floats = |name: &str| section.get(name).map(|field| field.floats(MAX_HEADS)).transpose();
    let causal = match section.get("causal") {
        None => None,
        Some(field) => Some([Anchor::BottomRight, Anchor::TopLeft][field.choice("anchor", &["bottom_right", "top_left"])?]),
    };
    let mask = Mask { causal, window_left: optional("window_left")?, window_right: optional("window_right")? };
    let fp8_kv = match section.get("kv_dtype") {
        None => None,
        Some(field) => {
            let scales = |name: &str| section.need(name)?.floats(MAX_HEADS);
            Some(Fp8Kv { dtype: dtype(&field)?, k_scales: scales("k_scales")?, v_scales: scales("v_scales")? })
        }
    };
    section.only_with(&["k_scales", "v_scales"], fp8_kv.is_some(), "kv_dtype")?;
    let sequences = section.need("sequences")?.list(MAX_SEQUENCES)?;
    Ok(Problem {
        sequences: sequences.iter().map(sequence).collect::<Result<_, _>>()?,
        kv_head_ids: section.need("kv_head_ids")?.numbers(MAX_HEADS)?,
        group_ids: section.need("group_ids")?.numbers(MAX_HEADS)?,
        d_qk: section.need("d_qk")?.u32()?,
        d_v: section.need("d_v")?.u32()?,
        mask,
        softcap: section.get("softcap").map(|field| field.f32()).transpose()?,
        sinks: floats("sinks")?,
        alibi_slopes: floats("alibi_slopes")?,
        softmax_scale: section.need("softmax_scale")?.f32()?,
        dtype: dtype(&section.need("dtype")?)?,
        fp8_kv,
        out_dtype: dtype(&section.need("out_dtype")?)?,
    })
}

fn dtype(field: &Field<'_, '_>) -> Result<Dtype, InputError> {
    let names = Dtype::ALL.map(Dtype::name);
    Ok(Dtype::ALL[field.choice("dtype", &names)?])
}

fn sequence(field: &Field<'_, '_>) -> Result<Sequence, InputError> {
    let section = field.table(&["id", "q", "kv"])?;
    Ok(Sequence { id: section.need("id")?.u32()?, q: section.need("q")?.u32()?, kv: section.need("kv")?.u32()? })
}

/// `context_ranks`, `context_shards`, `context_length` and `head_ranks`; absent ranks are 1.
fn ranks(section: &Section<'_, '_>) -> Result<(Option<ContextParallel>, u32), InputError> {
    let head_ranks = section.get("head_ranks").map_or(Ok(1), |field| field.u32())?;
    let ranks = section.get("context_ranks").map_or(Ok(1), |field| field.u32())?;
    section.only_with(&["context_shards", "context_length"], ranks != 1, "context_ranks above 1")?;
    if ranks == 1 {
        return Ok((None, head_ranks));
    }
    let shards = section.need("context_shards")?.choice("shards", &["contiguous", "zigzag"])?;
    let shards = [Shards::Contiguous, Shards::Zigzag][shards];
    Ok((Some(ContextParallel { ranks, shards, length: section.need("context_length")?.u32()? }), head_ranks))
}

/// The kernel's own knobs, sorted by name as they are printed; absent is none.
fn knobs(section: &Section<'_, '_>) -> Result<Vec<(String, String)>, InputError> {
    let Some(field) = section.get("knobs") else { return Ok(Vec::new()) };
    let pair = |(name, field): (String, Field<'_, '_>)| Ok((name, field.one_line()?));
    let mut knobs = field.open()?.leaves()?.into_iter().map(pair).collect::<Result<Vec<_>, InputError>>()?;
    knobs.sort();
    Ok(knobs)
}

/// What both plans have.
const BOTH: &[&str] = &["context_ranks", "context_shards", "context_length", "head_ranks", "knobs"];

fn train(field: &Field<'_, '_>) -> Result<TrainPlan, InputError> {
    let section = field.table(&[&["layout", "side", "pad_q", "pad_kv", "order", "block_q"], BOTH].concat())?;
    let (context, head_ranks) = ranks(&section)?;
    let dense = section.need("layout")?.choice("layout", &["dense", "varlen"])? == 0;
    section.only_with(&["side", "pad_q", "pad_kv"], dense, "layout = \"dense\"")?;
    let layout = if dense {
        TrainLayout::Dense {
            side: [Side::Left, Side::Right][section.need("side")?.choice("side", &["left", "right"])?],
            pad_q: section.need("pad_q")?.u32()?,
            pad_kv: section.need("pad_kv")?.u32()?,
        }
    } else {
        TrainLayout::Varlen
    };
    let order = section.need("order")?.numbers(MAX_SEQUENCES)?;
    Ok(TrainPlan { layout, order, block_q: section.need("block_q")?.u32()?, context, head_ranks, knobs: knobs(&section)? })
}

fn infer(field: &Field<'_, '_>) -> Result<InferPlan, InputError> {
    let own = ["cache", "page", "spare", "shuffle", "recycled", "order", "rotate", "budget", "bucket", "requests"];
    let section = field.table(&[&own[..], BOTH].concat())?;
    let (context, head_ranks) = ranks(&section)?;
    let paged = section.need("cache")?.choice("cache", &["paged", "contiguous"])? == 0;
    section.only_with(&["page", "shuffle", "recycled"], paged, "cache = \"paged\"")?;
    let spare = section.need("spare")?.u32()?;
    let cache = if paged {
        Cache::Paged {
            page: section.need("page")?.u32()?,
            spare,
            shuffle: section.need("shuffle")?.u64()?,
            recycled: section.need("recycled")?.flag()?,
        }
    } else {
        Cache::Contiguous { spare }
    };
    let requests = section.need("requests")?.list(MAX_SEQUENCES)?;
    Ok(InferPlan {
        cache,
        requests: requests.iter().map(request).collect::<Result<_, _>>()?,
        order: section.need("order")?.numbers(MAX_SEQUENCES)?,
        rotate: section.need("rotate")?.flag()?,
        budget: section.get("budget").map(|field| field.u32()).transpose()?,
        bucket: section.need("bucket")?.u32()?,
        context,
        head_ranks,
        knobs: knobs(&section)?,
    })
}

fn request(field: &Field<'_, '_>) -> Result<Request, InputError> {
    let section = field.table(&["hit", "join", "chunks", "then", "reject", "preempt"])?;
    let or = |name: &str, default: u32| section.get(name).map_or(Ok(default), |field| field.u32());
    Ok(Request {
        hit: or("hit", 0)?,
        join: or("join", 0)?,
        chunks: section.get("chunks").map_or(Ok(Vec::new()), |field| field.numbers(MAX_CHUNKS))?,
        then: or("then", 1)?,
        reject: or("reject", 0)?,
        preempt: section.get("preempt").map(|field| field.u32()).transpose()?,
    })
}

fn data(field: &Field<'_, '_>, problem: &Problem) -> Result<Data, InputError> {
    let section =
        field.table(&["from", "seed", "regime", "gap", "lane", "level", "step", "span", "phase", "q", "k", "v", "sha256"])?;
    let from = section.need("from")?.choice("source of data", &["drawn", "literal", "captured"])?;
    section.only_with(&["seed", "regime", "gap", "lane", "level", "step", "span", "phase"], from == 0, "from = \"drawn\"")?;
    section.only_with(&["q", "k", "v"], from == 1, "from = \"literal\"")?;
    section.only_with(&["sha256"], from == 2, "from = \"captured\"")?;
    Ok(match from {
        0 => Data::Drawn { seed: section.need("seed")?.u64()?, regime: regime(&section)? },
        1 => {
            let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
            let read = |name: &str, dtype: Dtype, rows: usize, heads: usize, dim: usize| {
                rows_of_hex(&section.need(name)?, dtype, rows, heads, dim)
            };
            let kv = problem.kv_dtype();
            Data::Literal(Literal {
                q: read("q", problem.dtype, problem.total_q(), problem.q_heads(), d_qk)?,
                k: read("k", kv, problem.total_kv(), problem.kv_heads(), d_qk)?,
                v: read("v", kv, problem.total_kv(), problem.kv_heads(), d_v)?,
            })
        }
        _ => Data::Captured { sha256: section.need("sha256")?.text()?.into() },
    })
}

fn regime(section: &Section<'_, '_>) -> Result<Regime, InputError> {
    let name = REGIMES[section.need("regime")?.choice("regime", &REGIMES)?];
    section.only_with(&["gap", "lane"], name == "dominant", "regime = \"dominant\"")?;
    section.only_with(&["level"], name == "deep", "regime = \"deep\"")?;
    section.only_with(&["step"], name == "rising", "regime = \"rising\"")?;
    section.only_with(&["span", "phase"], name == "mirror", "regime = \"mirror\"")?;
    Ok(match name {
        "normal" => Regime::Normal,
        "equal" => Regime::Equal,
        "dominant" => Regime::Dominant { gap: section.need("gap")?.f32()?, lane: section.need("lane")?.u32()? },
        "deep" => Regime::Deep { level: section.need("level")?.f32()? },
        "overflow" => Regime::Overflow,
        "subnormal" => Regime::Subnormal,
        "quantised" => Regime::Quantised,
        "tail" => Regime::Tail,
        "zero_peak" => Regime::ZeroPeak,
        "rising" => Regime::Rising { step: section.need("step")?.f32()? },
        "wide" => Regime::Wide,
        "onehot_v" => Regime::OnehotV,
        "constant_v" => Regime::ConstantV,
        _ => Regime::Mirror { span: section.need("span")?.u32()?, phase: section.need("phase")?.u32()? },
    })
}

/// One string for each row: `heads` groups, ` | ` between, of `dim` patterns each.
fn rows_of_hex(field: &Field<'_, '_>, dtype: Dtype, rows: usize, heads: usize, dim: usize) -> Result<Vec<u32>, InputError> {
    let strings = field.strings()?;
    if strings.len() != rows {
        return Err(field.error(format!("has {} rows; the sequences have {rows}", strings.len())));
    }
    let mut bits = Vec::new();
    for (text, at) in strings {
        let groups: Vec<&str> = text.split('|').collect();
        if groups.len() != heads {
            return Err(field.error_at(at, format!("a row with {} heads; {heads} are needed (`|` between heads)", groups.len())));
        }
        for group in groups {
            let before = bits.len();
            for word in group.split_ascii_whitespace() {
                let digits = dtype.bytes() * 2;
                let pattern = (word.len() == digits && word.bytes().all(|c| c.is_ascii_hexdigit()))
                    .then(|| u32::from_str_radix(word, 16).ok())
                    .flatten();
                let reason = || format!("`{}` is not a {dtype} pattern of {digits} hex digits", shorten(word));
                bits.push(pattern.ok_or_else(|| field.error_at(at, reason()))?);
            }
            let lanes = bits.len() - before;
            if lanes != dim {
                return Err(field.error_at(at, format!("a head with {lanes} values; {dim} are needed")));
            }
        }
    }
    Ok(bits)
}

fn run(field: &Field<'_, '_>) -> Result<Run, InputError> {
    let section = field.table(&["train", "infer", "oracle", "relation", "expect"])?;
    let oracle = section.need("oracle")?.choice("oracle mode", &ORACLES)?;
    Ok(Run {
        train: kernel(&section.need("train")?)?,
        infer: kernel(&section.need("infer")?)?,
        oracle: ORACLES[oracle].into(),
        relation: section.get("relation").map(|field| field.one_line()).transpose()?,
        expect: section.need("expect")?.one_line()?,
    })
}

fn kernel(field: &Field<'_, '_>) -> Result<KernelText, InputError> {
    let section = field.open()?;
    if section.need("kernel")?.choice("kernel", &KERNELS)? == 1 {
        let section = field.table(&["kernel", "name", "version", "device", "digest", "source"])?;
        let line = |name: &str| section.need(name)?.one_line();
        let maybe = |name: &str| section.get(name).map(|field| field.one_line()).transpose();
        return Ok(KernelText::External(External {
            name: line("name")?,
            version: line("version")?,
            device: line("device")?,
            digest: maybe("digest")?,
            source: maybe("source")?,
        }));
    }
    let mut pairs = Vec::new();
    for (name, field) in section.leaves()? {
        if name != "kernel" {
            pairs.push((name, field.scalar()?));
        }
    }
    Ok(KernelText::Reference(KernelFields(pairs)))
}
