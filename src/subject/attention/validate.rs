//! What a case may ask for. Everything that runs has passed [`validate`], so that no file, however short, can ask for more memory
//! or time than the caps below allow.

use super::{Cache, Case, ContextParallel, Data, Fp8Kv, InferPlan, Literal, Mask, Problem, Regime, Request, TrainLayout};
use crate::input_error::{InputError, shorten};
use crate::number::{Class, Dtype};
use std::collections::HashSet;
use std::fmt;

/// Sequences in a batch. Company effects show with a handful; 64 is the largest bucket.
pub const MAX_SEQUENCES: usize = 64;
/// New rows of a sequence, positions of a sequence, padding, slots of a page: beyond it a scalar reference takes too long.
pub const MAX_LENGTH: u32 = 65_536;
/// Positions of all sequences, and new rows of all sequences: each may be an engine step of its own.
pub const MAX_TOKENS: usize = 262_144;
/// Head dims. Real kernels end at 512 (MLA's latent).
pub const MAX_DIM: u32 = 512;
/// Query heads.
pub const MAX_HEADS: usize = 256;
/// Elements in any one layout (packed, padded, or the cache with its spare slots): 128 MiB at four bytes a lane, and a run holds
/// at most about eight such layouts at a time, so 1 GiB.
pub const MAX_ELEMENTS: u64 = 1 << 25;
/// Multiplications of one pass of either path: `q * kv * heads * (d_qk + d_v + PAIR_WORK)` summed over the sequences, rows that are
/// computed again included. About a minute of the scalar reference.
pub const MAX_WORK: u64 = 1 << 35;
/// What the mask, the exponential and the bookkeeping of one score cost, in multiplications (measured).
pub const PAIR_WORK: u64 = 32;
/// [`MAX_WORK`] where every element goes through MPFR, which takes some hundred times as long.
pub const MAX_MPFR_WORK: u64 = MAX_WORK >> 6;
/// Spare pages of a pool.
pub const MAX_SPARE_PAGES: u32 = 4096;
/// The batch may be padded to a multiple of this many entries.
pub const MAX_BUCKET: u32 = 64;
/// The last engine step at which a request may join.
pub const MAX_JOIN: u32 = 4096;
/// Context-parallel and head-parallel ranks of a plan.
pub const MAX_RANKS: u32 = 64;
/// Knobs of a plan.
pub const MAX_KNOBS: usize = 64;
/// Explicit chunks, over all requests.
pub const MAX_CHUNKS: usize = 4096;
/// Literal elements of q, k and v together; as hex text they still fit a case file (see [`super::text::MAX_TEXT`]).
pub const MAX_LITERAL: usize = 1 << 18;

/// A rule that a case breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, as a path in the case text: `infer.requests[1].hit`.
    pub field: String,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl FieldError {
    /// The same error, about a file.
    pub fn in_file(self, file: &str) -> InputError {
        InputError::new(file, self.reason).field(self.field)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for FieldError {}

type Checked = Result<(), FieldError>;

/// Fails with the reason unless the rule holds.
fn ensure(holds: bool, field: impl fmt::Display, reason: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(FieldError { field: field.to_string(), reason: reason() }) }
}

fn in_range(value: u32, least: u32, most: u32, field: impl fmt::Display) -> Checked {
    ensure((least..=most).contains(&value), field, || format!("is {value}; allowed are {least} to {most}"))
}

/// Checks every rule of geometry, plans and data.
///
/// The empty batch, `kv = 0` and `q > kv` are valid cases.
///
/// # Errors
/// The first rule that is broken, in the order problem, train, infer, data.
pub fn validate(case: &Case) -> Result<(), FieldError> {
    problem(&case.problem)?;
    train(case)?;
    infer(case)?;
    data(case)
}

fn problem(problem: &Problem) -> Checked {
    for (field, dtype) in [("problem.dtype", problem.dtype), ("problem.out_dtype", problem.out_dtype)] {
        ensure(matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16), field, || {
            format!("`{dtype}` is not f32, f16 or bf16 (8-bit keys and values are problem.kv_dtype)")
        })?;
    }
    if let Some(kv) = &problem.fp8_kv {
        fp8_kv(problem, kv)?;
    }
    in_range(problem.d_qk, 1, MAX_DIM, "problem.d_qk")?;
    in_range(problem.d_v, 1, MAX_DIM, "problem.d_v")?;
    labels(&problem.kv_head_ids, "problem.kv_head_ids")?;
    labels(&problem.group_ids, "problem.group_ids")?;
    // A query head's data is named by `kv label * 64 + group label`.
    ensure(problem.group_ids.iter().all(|&id| id < 64), "problem.group_ids", || "a label is above 63".into())?;
    ensure(problem.q_heads() <= MAX_HEADS, "problem.group_ids", || {
        format!(
            "{} KV heads with {} query heads each; {MAX_HEADS} query heads are the most",
            problem.kv_heads(),
            problem.group_ids.len()
        )
    })?;
    ensure(problem.softmax_scale.is_finite() && problem.softmax_scale > 0.0, "problem.softmax_scale", || {
        format!("is {:?}; it must be finite and above zero", problem.softmax_scale)
    })?;
    mask(&problem.mask)?;
    if let Some(cap) = problem.softcap {
        ensure(cap.is_finite() && cap > 0.0, "problem.softcap", || format!("is {cap:?}; it must be finite and above zero"))?;
    }
    per_head(problem, problem.sinks.as_deref(), "problem.sinks", "finite", |sink| sink.is_finite())?;
    let slope_rule = |slope: f32| slope.is_finite() && slope >= 0.0;
    per_head(problem, problem.alibi_slopes.as_deref(), "problem.alibi_slopes", "finite and not negative", slope_rule)?;
    sequences(problem)
}

fn fp8_kv(problem: &Problem, kv: &Fp8Kv) -> Checked {
    ensure(matches!(kv.dtype, Dtype::E4M3 | Dtype::E5M2), "problem.kv_dtype", || {
        format!("`{}` is not e4m3 or e5m2; leave it out for keys and values in problem.dtype", kv.dtype)
    })?;
    for (field, scales) in [("problem.k_scales", &kv.k_scales), ("problem.v_scales", &kv.v_scales)] {
        ensure(scales.len() == 1 || scales.len() == problem.kv_heads(), field, || {
            format!("has {} values; one, or one for each of {} KV heads", scales.len(), problem.kv_heads())
        })?;
        for (n, &scale) in scales.iter().enumerate() {
            ensure(scale.is_finite() && scale > 0.0, format_args!("{field}[{n}]"), || {
                format!("is {scale:?}; it must be finite and above zero")
            })?;
        }
    }
    Ok(())
}

/// Ranks of both plans.
fn ranks(problem: &Problem, side: &str, context: Option<ContextParallel>, head_ranks: u32) -> Checked {
    if let Some(context) = context {
        in_range(context.ranks, 2, MAX_RANKS, format_args!("{side}.context_ranks"))?;
        in_range(context.length, 1, MAX_LENGTH, format_args!("{side}.context_length"))?;
    }
    in_range(head_ranks, 1, MAX_RANKS, format_args!("{side}.head_ranks"))?;
    ensure(problem.divides_heads(head_ranks), format_args!("{side}.head_ranks"), || {
        format!(
            "{} query heads over {} KV heads cannot be divided between {head_ranks} ranks",
            problem.q_heads(),
            problem.kv_heads()
        )
    })
}

/// Whether a kernel's knob may have this name.
pub(super) fn is_knob_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

fn knobs(knobs: &[(String, String)], field: &str) -> Checked {
    ensure(knobs.len() <= MAX_KNOBS, field, || format!("has {} knobs; {MAX_KNOBS} are the most", knobs.len()))?;
    for (name, value) in knobs {
        ensure(is_knob_name(name), field, || format!("`{}` is no name of a knob: letters, digits and _", shorten(name)))?;
        ensure(!value.chars().any(char::is_control), format_args!("{field}.{name}"), || {
            "must be one line without control characters".into()
        })?;
    }
    let sorted = knobs.windows(2).all(|pair| pair[0].0 < pair[1].0);
    ensure(sorted, field, || "must be sorted by name, each once".into())
}

fn labels(labels: &[u32], field: &str) -> Checked {
    ensure(!labels.is_empty(), field, || "is empty; at least one head is needed".into())?;
    let mut seen = HashSet::new();
    for (n, label) in labels.iter().enumerate() {
        ensure(seen.insert(label), format_args!("{field}[{n}]"), || {
            format!("label {label} stands there twice; labels name data")
        })?;
    }
    Ok(())
}

fn mask(mask: &Mask) -> Checked {
    let conflict = mask.causal.is_some() && mask.window_right.is_some();
    ensure(!conflict, "problem.window_right", || {
        "conflicts with `causal`, which already ends at the row's own position; drop one of the two".into()
    })
}

fn per_head(problem: &Problem, values: Option<&[f32]>, field: &str, rule: &str, holds: impl Fn(f32) -> bool) -> Checked {
    let Some(values) = values else { return Ok(()) };
    ensure(values.len() == problem.q_heads(), field, || {
        format!("has {} values for {} query heads; one each is needed", values.len(), problem.q_heads())
    })?;
    for (n, &value) in values.iter().enumerate() {
        ensure(holds(value), format_args!("{field}[{n}]"), || format!("is {value:?}; it must be {rule}"))?;
    }
    Ok(())
}

fn sequences(problem: &Problem) -> Checked {
    let field = "problem.sequences";
    let count = problem.sequences.len();
    ensure(count <= MAX_SEQUENCES, field, || format!("has {count} sequences; {MAX_SEQUENCES} are the most"))?;
    let mut seen = HashSet::new();
    for (n, sequence) in problem.sequences.iter().enumerate() {
        ensure(seen.insert(sequence.id), format_args!("{field}[{n}].id"), || {
            format!("{} stands there twice; the id names the sequence's data", sequence.id)
        })?;
        in_range(sequence.q, 0, MAX_LENGTH, format_args!("{field}[{n}].q"))?;
        in_range(sequence.kv, 0, MAX_LENGTH, format_args!("{field}[{n}].kv"))?;
    }
    for (what, tokens) in [("new rows", problem.total_q()), ("positions", problem.total_kv())] {
        ensure(tokens <= MAX_TOKENS, field, || format!("{tokens} {what} in all; {MAX_TOKENS} are the most"))?;
    }
    let (rows, slots) = (problem.total_q() as u64, problem.total_kv() as u64);
    elements(field, "the packed tensors", query_elements(problem, rows) + key_elements(problem, slots))
}

/// Elements of q and o for so many rows.
fn query_elements(problem: &Problem, rows: u64) -> u64 {
    rows * problem.q_heads() as u64 * u64::from(problem.d_qk + problem.d_v)
}

/// Elements of k and v for so many slots.
fn key_elements(problem: &Problem, slots: u64) -> u64 {
    slots * problem.kv_heads() as u64 * u64::from(problem.d_qk + problem.d_v)
}

/// Elements of a dense training call.
fn padded_elements(problem: &Problem, pad_q: u32, pad_kv: u32) -> u64 {
    let batch = problem.sequences.len() as u64;
    let (rows, slots) = longest(problem);
    query_elements(problem, batch * (rows + u64::from(pad_q))) + key_elements(problem, batch * (slots + u64::from(pad_kv)))
}

/// Elements of the KV cache.
fn cache_elements(problem: &Problem, cache: Cache) -> u64 {
    let slots = match cache {
        Cache::Contiguous { spare } => problem.sequences.len() as u64 * (longest(problem).1 + u64::from(spare)),
        Cache::Paged { page, spare, .. } => {
            let needed: u64 = problem.sequences.iter().map(|s| u64::from(s.kv.div_ceil(page))).sum();
            // One page stays dead, whatever `spare` says.
            (needed + u64::from(spare.max(1))) * u64::from(page)
        }
    };
    key_elements(problem, slots)
}

/// Elements of the larger of a valid case's two layouts: the training call's and the cache's. See [`MAX_ELEMENTS`].
pub fn layout_elements(case: &Case) -> u64 {
    let problem = &case.problem;
    let train = match case.train.layout {
        TrainLayout::Dense { pad_q, pad_kv, .. } => padded_elements(problem, pad_q, pad_kv),
        TrainLayout::Varlen => {
            query_elements(problem, problem.total_q() as u64) + key_elements(problem, problem.total_kv() as u64)
        }
    };
    train.max(cache_elements(problem, case.infer.cache))
}

fn elements(field: &str, layout: &str, elements: u64) -> Checked {
    ensure(elements <= MAX_ELEMENTS, field, || format!("{layout} would hold {elements} elements; {MAX_ELEMENTS} are the most"))
}

fn longest(problem: &Problem) -> (u64, u64) {
    let longest = |length: fn(&super::Sequence) -> u32| problem.sequences.iter().map(length).max().unwrap_or(0);
    (u64::from(longest(|s| s.q)), u64::from(longest(|s| s.kv)))
}

fn permutation(order: &[u32], count: usize, field: &str) -> Checked {
    let mut seen = vec![false; count];
    let holds = order.len() == count
        && order.iter().all(|&index| seen.get_mut(index as usize).is_some_and(|slot| !std::mem::replace(slot, true)));
    ensure(holds, field, || format!("is not a permutation: each sequence's index, 0 to {count} exclusive, must stand there once"))
}

fn train(case: &Case) -> Checked {
    let (problem, plan) = (&case.problem, &case.train);
    if let TrainLayout::Dense { pad_q, pad_kv, .. } = plan.layout {
        in_range(pad_q, 0, MAX_LENGTH, "train.pad_q")?;
        in_range(pad_kv, 0, MAX_LENGTH, "train.pad_kv")?;
        elements("train.layout", "the padded tensors", padded_elements(problem, pad_q, pad_kv))?;
    }
    permutation(&plan.order, problem.sequences.len(), "train.order")?;
    in_range(plan.block_q, 1, MAX_LENGTH, "train.block_q")?;
    ranks(problem, "train", plan.context, plan.head_ranks)?;
    knobs(&plan.knobs, "train.knobs")
}

fn infer(case: &Case) -> Checked {
    let (problem, plan) = (&case.problem, &case.infer);
    cache(problem, plan)?;
    let count = problem.sequences.len();
    permutation(&plan.order, count, "infer.order")?;
    in_range(plan.bucket, 1, MAX_BUCKET, "infer.bucket")?;
    if let Some(budget) = plan.budget {
        ensure(budget >= 1, "infer.budget", || "is 0; a step needs at least one row".into())?;
    }
    ensure(plan.requests.len() == count, "infer.requests", || {
        format!("has {} requests for {count} sequences; one each is needed, in their order", plan.requests.len())
    })?;
    let chunks: usize = plan.requests.iter().map(|request| request.chunks.len()).sum();
    ensure(chunks <= MAX_CHUNKS, "infer.requests", || format!("{chunks} chunks in all; {MAX_CHUNKS} are the most"))?;
    for (n, (request, sequence)) in plan.requests.iter().zip(&problem.sequences).enumerate() {
        self::request(request, sequence.q, &format!("infer.requests[{n}]"))?;
    }
    ranks(problem, "infer", plan.context, plan.head_ranks)?;
    knobs(&plan.knobs, "infer.knobs")?;
    stepwise(case)?;
    bounded_work(case)
}

fn cache(problem: &Problem, plan: &InferPlan) -> Checked {
    match plan.cache {
        Cache::Contiguous { spare } => {
            in_range(spare, 0, MAX_LENGTH, "infer.spare")?;
            elements("infer.cache", "the cache", cache_elements(problem, plan.cache))
        }
        Cache::Paged { page, spare, .. } => {
            in_range(page, 1, MAX_LENGTH, "infer.page")?;
            in_range(spare, 0, MAX_SPARE_PAGES, "infer.spare")?;
            elements("infer.page", "the page pool", cache_elements(problem, plan.cache))
        }
    }
}

fn request(request: &Request, q: u32, field: &str) -> Checked {
    ensure(request.hit < q || request.hit == 0, format_args!("{field}.hit"), || {
        format!("is {}, but the sequence has {q} new rows; at least one must be left to compute", request.hit)
    })?;
    in_range(request.join, 0, MAX_JOIN, format_args!("{field}.join"))?;
    let mut left = q - request.hit;
    for (n, &chunk) in request.chunks.iter().enumerate() {
        let field = format_args!("{field}.chunks[{n}]");
        ensure(chunk >= 1, field, || "is 0; a chunk holds at least one row".into())?;
        ensure(chunk <= left, field, || format!("chunk past the end: {chunk} rows, but {left} are left to compute"))?;
        left -= chunk;
    }
    // A larger one means nothing, and would only invite overflow.
    in_range(request.then, 1, MAX_LENGTH, format_args!("{field}.then"))?;
    ensure(request.reject < request.then, format_args!("{field}.reject"), || {
        format!("is {}, but a step has {} rows; at least one must be accepted", request.reject, request.then)
    })?;
    ensure(request.preempt != Some(0), format_args!("{field}.preempt"), || {
        "is 0; a request can lose its pages only after a step of its own".into()
    })
}

/// A step sees only the keys that exist by then. Where a row sees keys of later rows, or its own position depends on rows that
/// are yet to come, the only inference plan that computes the problem is one step with all rows.
fn stepwise(case: &Case) -> Checked {
    let (problem, plan) = (&case.problem, &case.infer);
    let kind = match problem.mask.causal {
        Some(super::Anchor::BottomRight) => return Ok(()),
        Some(super::Anchor::TopLeft) => "a top-left causal mask",
        None => "a mask that is not causal",
    };
    let why =
        |what: &str| format!("{what} under {kind}: its rows must all go in one step (a bottom-right causal mask allows it)");
    for (n, (request, sequence)) in plan.requests.iter().zip(&problem.sequences).enumerate() {
        let field = format!("infer.requests[{n}]");
        let q = sequence.q;
        ensure(request.hit == 0, format_args!("{field}.hit"), || why("a prefix hit"))?;
        ensure(request.chunks.is_empty() || request.chunks == [q], format_args!("{field}.chunks"), || why("a chunk"))?;
        let whole = request.then >= q || request.chunks == [q];
        ensure(whole, format_args!("{field}.then"), || why(&format!("steps of {} of {q} rows", request.then)))?;
        ensure(request.reject == 0, format_args!("{field}.reject"), || why("rejected rows"))?;
        ensure(request.preempt.is_none(), format_args!("{field}.preempt"), || why("preemption"))?;
    }
    match plan.budget {
        Some(budget) => ensure(budget as usize >= problem.total_q(), "infer.budget", || {
            why(&format!("a budget of {budget} for {} rows", problem.total_q()))
        }),
        None => Ok(()),
    }
}

/// Multiplications of one pass, see [`MAX_WORK`].
pub fn work(case: &Case) -> u64 {
    let problem = &case.problem;
    let pair = problem.q_heads() as u64 * (u64::from(problem.d_qk + problem.d_v) + PAIR_WORK);
    let mut work = 0u64;
    for (request, sequence) in case.infer.requests.iter().zip(&problem.sequences) {
        // At most 64 * 2^16 * 2^17 * 2^16 * 2^19 without the caps on tokens; saturating, so that no order of checks matters.
        let rows = rows_computed(request, sequence.q);
        work = work.saturating_add(rows.saturating_mul(pair).saturating_mul(u64::from(sequence.kv.max(1))));
    }
    work
}

/// Rows that the inference path computes for a request, those computed again included.
fn rows_computed(request: &Request, q: u32) -> u64 {
    let q = u64::from(q);
    // Each later step keeps `then - reject` rows and computes `reject` more again; a preempted request starts over once.
    let steps = q.div_ceil(u64::from(request.then - request.reject));
    q + steps * u64::from(request.reject).min(q) + if request.preempt.is_some() { q } else { 0 }
}

fn bounded_work(case: &Case) -> Checked {
    // Every production of a row is kept until it has been compared.
    let problem = &case.problem;
    let pairs = case.infer.requests.iter().zip(&problem.sequences);
    let rows: u64 = pairs.map(|(request, sequence)| rows_computed(request, sequence.q)).sum();
    let results = rows.saturating_mul(problem.q_heads() as u64 * u64::from(problem.d_v + 1));
    elements("infer.requests", "the results of all steps", results)?;
    let work = work(case);
    ensure(work <= MAX_WORK, "problem.sequences", || {
        format!("a pass would take {work} multiplications (scores and rows computed again included); {MAX_WORK} are the most")
    })
}

fn data(case: &Case) -> Checked {
    match &case.data {
        Data::Drawn { regime, .. } => self::regime(&case.problem, regime),
        Data::Literal(literal) => self::literal(&case.problem, literal),
        Data::Captured { sha256 } => {
            let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
            ensure(sha256.len() == 64 && sha256.bytes().all(hex), "data.sha256", || "is not 64 lower-case hex digits".into())
        }
    }
}

fn regime(problem: &Problem, regime: &Regime) -> Checked {
    match *regime {
        Regime::Dominant { gap, .. } => {
            ensure(gap.is_finite() && gap > 0.0, "data.gap", || format!("is {gap:?}; it must be finite and above zero"))
        }
        Regime::Deep { level } => {
            ensure(level.is_finite() && level < 0.0, "data.level", || format!("is {level:?}; it must be finite and below zero"))
        }
        Regime::Rising { step } => {
            ensure(step.is_finite() && step > 0.0, "data.step", || format!("is {step:?}; it must be finite and above zero"))
        }
        Regime::Mirror { span, .. } => {
            in_range(span, 2, MAX_LENGTH, "data.span")?;
            ensure(problem.alibi_slopes.is_none(), "data.regime", || {
                "mirror with problem.alibi_slopes: the biases of a pair differ, so nothing would cancel".into()
            })
        }
        _ => Ok(()),
    }
}

fn literal(problem: &Problem, literal: &Literal) -> Checked {
    let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
    let tensors = [
        ("data.q", &literal.q, "rows", rows_of(problem, |s| s.q), problem.q_heads(), d_qk),
        ("data.k", &literal.k, "positions", rows_of(problem, |s| s.kv), problem.kv_heads(), d_qk),
        ("data.v", &literal.v, "positions", rows_of(problem, |s| s.kv), problem.kv_heads(), d_v),
    ];
    let total: usize = tensors.iter().map(|(_, bits, ..)| bits.len()).sum();
    ensure(total <= MAX_LITERAL, "data", || format!("{total} literal elements; {MAX_LITERAL} are the most"))?;
    for (field, bits, what, lengths, heads, dim) in tensors {
        let dtype = if field == "data.q" { problem.dtype } else { problem.kv_dtype() };
        let rows: usize = lengths.iter().map(|&(_, length)| length).sum();
        ensure(bits.len() == rows * heads * dim, field, || {
            format!("has {} elements; {rows} {what} x {heads} heads x {dim} lanes need {}", bits.len(), rows * heads * dim)
        })?;
        let wrong = |&pattern: &u32| u64::from(pattern) >> dtype.bits() != 0 || !dtype.class(pattern).is_finite();
        if let Some(at) = bits.iter().position(wrong) {
            let what = match dtype.class(bits[at]) {
                _ if u64::from(bits[at]) >> dtype.bits() != 0 => format!("pattern 0x{:x}, wider than {dtype}", bits[at]),
                Class::Nan => "NaN".into(),
                _ => "an infinity".into(),
            };
            let place = place(&lengths, at / (heads * dim));
            let (head, lane) = (at / dim % heads, at % dim);
            ensure(false, field, || format!("{what} at {place}, head {head}, lane {lane}: literal values must be finite"))?;
        }
    }
    Ok(())
}

fn rows_of(problem: &Problem, length: fn(&super::Sequence) -> u32) -> Vec<(u32, usize)> {
    problem.sequences.iter().map(|s| (s.id, length(s) as usize)).collect()
}

fn place(lengths: &[(u32, usize)], mut row: usize) -> String {
    for &(id, length) in lengths {
        if row < length {
            return format!("sequence {id}, row {row}");
        }
        row -= length;
    }
    format!("row {row} past the end")
}
