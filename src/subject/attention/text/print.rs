//! A case to its canonical text.

use super::{CaseFile, External, FORMAT, KERNELS, KernelFields, KernelText, Run};
use crate::number::Dtype;
use crate::subject::attention::{
    Anchor, Cache, ContextParallel, Data, InferPlan, Literal, Problem, Regime, Request, Sequence, Shards, Side, TrainLayout,
    TrainPlan,
};
use std::fmt::{self, Display, Write as _};

/// Literal rows of at most this many values also show them as decimals, in a comment; more would hide the bits.
const DECIMALS_PER_ROW: usize = 8;
/// Decimals are left out altogether where the case has more literal values than this.
const DECIMALS_PER_CASE: usize = 1024;

/// The canonical text of a case.
///
/// Any case can be printed; only valid ones ([`crate::subject::attention::validate::validate`]) can be parsed again.
pub fn print(file: &CaseFile) -> String {
    let mut out = Text(String::new());
    out.comment(&file.comment);
    out.field("format", FORMAT);
    out.problem(&file.case.problem);
    out.train(&file.case.train);
    out.infer(&file.case.infer);
    out.data(&file.case.problem, &file.case.data);
    out.run(&file.run);
    out.0
}

struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("{name} = {value}"));
    }

    fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    fn section(&mut self, name: &str) {
        self.line(format_args!("\n[{name}]"));
    }

    fn comment(&mut self, comment: &str) {
        if comment.is_empty() {
            return;
        }
        for line in comment.split('\n') {
            let line: String = line.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect();
            self.line(if line.is_empty() { "#".into() } else { format!("# {line}") });
        }
    }

    fn problem(&mut self, problem: &Problem) {
        self.section("problem");
        self.field("dtype", quoted(problem.dtype.name()));
        self.field("out_dtype", quoted(problem.out_dtype.name()));
        self.field("d_qk", problem.d_qk);
        self.field("d_v", problem.d_v);
        self.field("kv_head_ids", list(&problem.kv_head_ids));
        self.field("group_ids", list(&problem.group_ids));
        self.field("softmax_scale", F32(problem.softmax_scale));
        self.optional("causal", problem.mask.causal.map(anchor).map(quoted));
        self.optional("window_left", problem.mask.window_left);
        self.optional("window_right", problem.mask.window_right);
        self.optional("softcap", problem.softcap.map(F32));
        let floats = |values: &Vec<f32>| list(&values.iter().copied().map(F32).collect::<Vec<_>>());
        self.optional("sinks", problem.sinks.as_ref().map(floats));
        self.optional("alibi_slopes", problem.alibi_slopes.as_ref().map(floats));
        if let Some(kv) = &problem.fp8_kv {
            self.field("kv_dtype", quoted(kv.dtype.name()));
            self.field("k_scales", floats(&kv.k_scales));
            self.field("v_scales", floats(&kv.v_scales));
        }
        self.rows("sequences", problem.sequences.iter().map(|s| format!("{{ id = {}, q = {}, kv = {} }}", s.id, s.q, s.kv)));
    }

    /// An array with one element a line.
    fn rows(&mut self, name: &str, rows: impl ExactSizeIterator<Item = String>) {
        if rows.len() == 0 {
            return self.field(name, "[]");
        }
        self.line(format_args!("{name} = ["));
        for row in rows {
            self.line(format_args!("  {row},"));
        }
        self.line("]");
    }

    fn train(&mut self, plan: &TrainPlan) {
        self.section("train");
        match plan.layout {
            TrainLayout::Dense { side, pad_q, pad_kv } => {
                self.field("layout", quoted("dense"));
                self.field("side", quoted(side_name(side)));
                self.field("pad_q", pad_q);
                self.field("pad_kv", pad_kv);
            }
            TrainLayout::Varlen => self.field("layout", quoted("varlen")),
        }
        self.field("order", list(&plan.order));
        self.field("block_q", plan.block_q);
        self.ranks(plan.context, plan.head_ranks);
        self.knobs(&plan.knobs);
    }

    fn ranks(&mut self, context: Option<ContextParallel>, head_ranks: u32) {
        if let Some(context) = context {
            self.field("context_ranks", context.ranks);
            let shards = match context.shards {
                Shards::Contiguous => "contiguous",
                Shards::Zigzag => "zigzag",
            };
            self.field("context_shards", quoted(shards));
            self.field("context_length", context.length);
        }
        self.optional("head_ranks", (head_ranks != 1).then_some(head_ranks));
    }

    fn knobs(&mut self, knobs: &[(String, String)]) {
        if !knobs.is_empty() {
            let knobs: Vec<String> = knobs.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
            self.field("knobs", format_args!("{{ {} }}", knobs.join(", ")));
        }
    }

    fn infer(&mut self, plan: &InferPlan) {
        self.section("infer");
        match plan.cache {
            Cache::Contiguous { spare } => {
                self.field("cache", quoted("contiguous"));
                self.field("spare", spare);
            }
            Cache::Paged { page, spare, shuffle, recycled } => {
                self.field("cache", quoted("paged"));
                self.field("page", page);
                self.field("spare", spare);
                self.field("shuffle", U64(shuffle));
                self.field("recycled", recycled);
            }
        }
        self.field("order", list(&plan.order));
        self.field("rotate", plan.rotate);
        self.optional("budget", plan.budget);
        self.field("bucket", plan.bucket);
        self.ranks(plan.context, plan.head_ranks);
        self.knobs(&plan.knobs);
        self.rows("requests", plan.requests.iter().map(request));
    }

    fn data(&mut self, problem: &Problem, data: &Data) {
        self.section("data");
        match data {
            Data::Drawn { seed, regime } => {
                self.field("from", quoted("drawn"));
                self.field("seed", U64(*seed));
                self.field("regime", quoted(regime_name(regime)));
                match *regime {
                    Regime::Dominant { gap, lane } => {
                        self.field("gap", F32(gap));
                        self.field("lane", lane);
                    }
                    Regime::Deep { level } => self.field("level", F32(level)),
                    Regime::Rising { step } => self.field("step", F32(step)),
                    Regime::Mirror { span, phase } => {
                        self.field("span", span);
                        self.field("phase", phase);
                    }
                    _ => {}
                }
            }
            Data::Literal(literal) => {
                self.field("from", quoted("literal"));
                self.literal(problem, literal);
            }
            Data::Captured { sha256 } => {
                self.field("from", quoted("captured"));
                self.field("sha256", quoted(sha256));
            }
        }
    }

    fn literal(&mut self, problem: &Problem, literal: &Literal) {
        let decimals = literal.q.len() + literal.k.len() + literal.v.len() <= DECIMALS_PER_CASE;
        let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
        let mut tensor = |name: &str, dtype: Dtype, bits: &[u32], length: fn(&Sequence) -> u32, heads: usize, dim: usize| {
            if bits.is_empty() {
                return self.field(name, "[]");
            }
            self.line(format_args!("{name} = ["));
            let mut rows = bits.chunks(heads * dim);
            for sequence in &problem.sequences {
                self.line(format_args!("  # sequence {}", sequence.id));
                for row in rows.by_ref().take(length(sequence) as usize) {
                    self.literal_row(dtype, row, dim, decimals);
                }
            }
            self.line("]");
        };
        let kv = problem.kv_dtype();
        tensor("q", problem.dtype, &literal.q, |s| s.q, problem.q_heads(), d_qk);
        tensor("k", kv, &literal.k, |s| s.kv, problem.kv_heads(), d_qk);
        tensor("v", kv, &literal.v, |s| s.kv, problem.kv_heads(), d_v);
    }

    fn literal_row(&mut self, dtype: Dtype, row: &[u32], dim: usize, decimals: bool) {
        self.0.push_str("  \"");
        for (n, &bits) in row.iter().enumerate() {
            if n > 0 {
                self.0.push_str(if n % dim == 0 { " | " } else { " " });
            }
            self.0.push_str(&dtype.hex(bits));
        }
        self.0.push_str("\",");
        if decimals && row.len() <= DECIMALS_PER_ROW {
            self.0.push_str("  #");
            for &bits in row {
                let _ = write!(self.0, " {:?}", dtype.to_f32(bits));
            }
        }
        self.0.push('\n');
    }

    fn run(&mut self, run: &Run) {
        self.section("run");
        self.field("oracle", quoted(&run.oracle));
        self.optional("relation", run.relation.as_deref().map(quoted));
        self.field("expect", quoted(&run.expect));
        for (name, kernel) in [("run.train", &run.train), ("run.infer", &run.infer)] {
            self.section(name);
            match kernel {
                KernelText::Reference(KernelFields(pairs)) => {
                    self.field("kernel", quoted(KERNELS[0]));
                    for (field, value) in pairs {
                        self.line(format_args!("{} = {}", dotted(field), kernel_value(value)));
                    }
                }
                KernelText::External(External { name, version, device, digest, source }) => {
                    self.field("kernel", quoted(KERNELS[1]));
                    self.field("name", quoted(name));
                    self.field("version", quoted(version));
                    self.field("device", quoted(device));
                    self.optional("digest", digest.as_deref().map(quoted));
                    self.optional("source", source.as_deref().map(quoted));
                }
            }
        }
    }
}

fn request(request: &Request) -> String {
    let off = |name: &str, value: u32, default: u32| (value != default).then(|| format!("{name} = {value}"));
    let chunks = (!request.chunks.is_empty()).then(|| format!("chunks = {}", list(&request.chunks)));
    let fields: Vec<String> = [
        off("hit", request.hit, 0),
        off("join", request.join, 0),
        chunks,
        off("then", request.then, 1),
        off("reject", request.reject, 0),
        request.preempt.map(|steps| format!("preempt = {steps}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if fields.is_empty() { "{}".into() } else { format!("{{ {} }}", fields.join(", ")) }
}

fn anchor(anchor: Anchor) -> &'static str {
    match anchor {
        Anchor::BottomRight => "bottom_right",
        Anchor::TopLeft => "top_left",
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

pub(in crate::subject::attention) fn regime_name(regime: &Regime) -> &'static str {
    match regime {
        Regime::Normal => "normal",
        Regime::Equal => "equal",
        Regime::Dominant { .. } => "dominant",
        Regime::Deep { .. } => "deep",
        Regime::Overflow => "overflow",
        Regime::Subnormal => "subnormal",
        Regime::Quantised => "quantised",
        Regime::Tail => "tail",
        Regime::ZeroPeak => "zero_peak",
        Regime::Rising { .. } => "rising",
        Regime::Wide => "wide",
        Regime::OnehotV => "onehot_v",
        Regime::ConstantV => "constant_v",
        Regime::Mirror { .. } => "mirror",
    }
}

fn list(values: &[impl Display]) -> String {
    let values: Vec<String> = values.iter().map(|value| value.to_string()).collect();
    format!("[{}]", values.join(", "))
}

/// Booleans and plain integers stand bare, everything else as a string.
fn kernel_value(value: &str) -> String {
    let plain = |n: i64| n.to_string() == value;
    if matches!(value, "true" | "false") || value.parse().is_ok_and(plain) { value.into() } else { quoted(value) }
}

/// A dotted key; parts that TOML does not allow bare are quoted.
fn dotted(field: &str) -> String {
    let bare = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let parts: Vec<String> = field.split('.').map(|part| if bare(part) { part.into() } else { quoted(part) }).collect();
    parts.join(".")
}

/// A TOML basic string.
fn quoted(text: impl AsRef<str>) -> String {
    let mut out = String::from("\"");
    for c in text.as_ref().chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The shortest decimal that gives the same `f32` when read as `f64` and rounded; hex where there is none.
struct F32(f32);

impl Display for F32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = format!("{:?}", self.0);
        let exact = self.0.is_finite() && decimal.parse::<f64>().is_ok_and(|x| (x as f32).to_bits() == self.0.to_bits());
        if exact { f.write_str(&decimal) } else { write!(f, "\"0x{:08x}\"", self.0.to_bits()) }
    }
}

/// An integer where TOML promises to keep it, else a hex string.
struct U64(u64);

impl Display for U64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if i64::try_from(self.0).is_ok() { write!(f, "{}", self.0) } else { write!(f, "\"0x{:x}\"", self.0) }
    }
}
