//! The case in words, with its sequences, pages and engine steps drawn as text.

use super::drive::StepEntry;
use super::text::regime_name;
use super::{
    Anchor, Cache, Case, ContextParallel, Data, InferPlan, Problem, Regime, Request, Sequence, Shards, Side, TrainLayout,
};
use std::fmt::Write as _;

/// Longest bar, in characters; longer sequences are drawn to scale.
const BAR: u32 = 64;
/// Steps that are drawn; more are cut in the middle.
const STEPS: usize = 48;
/// Steps kept at the end when some are cut.
const LAST_STEPS: usize = 8;
/// Sequences (and chunks) named in the one-line summary; more are counted.
const NAMED: usize = 4;

/// The case in one line: `f32 d_qk=8 d_v=8 heads=2/1 causal | 1 seq (q 3, kv 9) | dense right+0 | pages of 4, decode | mirror(4)`.
pub fn summary(case: &Case) -> String {
    format!(
        "{} | {} | {} | {} | {}",
        problem(&case.problem),
        batch(&case.problem.sequences),
        training(case),
        inference(&case.infer),
        data(&case.data)
    )
}

fn problem(problem: &Problem) -> String {
    let mut out = problem.dtype.to_string();
    if problem.out_dtype != problem.dtype {
        let _ = write!(out, "->{}", problem.out_dtype);
    }
    if let Some(kv) = &problem.fp8_kv {
        let list = |scales: &[f32]| scales.iter().map(|scale| format!("{scale:?}")).collect::<Vec<_>>().join(",");
        let _ = write!(out, " kv={} k_scales={} v_scales={}", kv.dtype, list(&kv.k_scales), list(&kv.v_scales));
    }
    let _ = write!(out, " d_qk={} d_v={} heads={}/{}", problem.d_qk, problem.d_v, problem.q_heads(), problem.kv_heads());
    match problem.mask.causal {
        Some(Anchor::BottomRight) => out.push_str(" causal"),
        Some(Anchor::TopLeft) => out.push_str(" causal(top_left)"),
        None => {}
    }
    let mut optional = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(out, " {name}{value}");
        }
    };
    optional("window_left=", problem.mask.window_left.map(|n| n.to_string()));
    optional("window_right=", problem.mask.window_right.map(|n| n.to_string()));
    optional("softcap=", problem.softcap.map(|cap| format!("{cap:?}")));
    optional("sinks", problem.sinks.as_ref().map(|_| String::new()));
    optional("alibi", problem.alibi_slopes.as_ref().map(|_| String::new()));
    optional("scale=", Some(format!("{:?}", problem.softmax_scale)));
    out
}

fn batch(sequences: &[Sequence]) -> String {
    let mut out = format!("{} seq{}", sequences.len(), if sequences.len() == 1 { "" } else { "s" });
    for sequence in sequences.iter().take(NAMED) {
        let _ = write!(out, " (q {}, kv {})", sequence.q, sequence.kv);
    }
    if sequences.len() > NAMED {
        out.push_str(" ...");
    }
    out
}

fn reordered(order: &[u32]) -> &'static str {
    if order.is_sorted() { "" } else { ", reordered" }
}

fn training(case: &Case) -> String {
    let layout = match case.train.layout {
        TrainLayout::Dense { side, pad_q, pad_kv } => {
            let side = match side {
                Side::Left => "left",
                Side::Right => "right",
            };
            if pad_q == pad_kv { format!("dense {side}+{pad_q}") } else { format!("dense {side}+{pad_q}/{pad_kv}") }
        }
        TrainLayout::Varlen => "varlen".into(),
    };
    let ranks = ranks(case.train.context, case.train.head_ranks);
    let knobs = knobs(&case.train.knobs);
    format!("{layout}, block_q {}{}{ranks}{knobs}", case.train.block_q, reordered(&case.train.order))
}

/// `, 3 context ranks with chunks of 16, 2 head ranks`.
fn ranks(context: Option<ContextParallel>, head_ranks: u32) -> String {
    let mut out = String::new();
    if let Some(ContextParallel { ranks, shards, length }) = context {
        let zigzag = if shards == Shards::Zigzag { "zigzag " } else { "" };
        let _ = write!(out, ", {ranks} context ranks with {zigzag}chunks of {length}");
    }
    if head_ranks > 1 {
        let _ = write!(out, ", {head_ranks} head ranks");
    }
    out
}

fn inference(plan: &InferPlan) -> String {
    let mut out = match plan.cache {
        Cache::Contiguous { spare: 0 } => "contiguous".into(),
        Cache::Contiguous { spare } => format!("contiguous, {spare} spare"),
        Cache::Paged { page, spare, shuffle, recycled } => {
            let mut out = format!("pages of {page}");
            if spare > 0 {
                let _ = write!(out, ", {spare} spare");
            }
            if shuffle != 0 {
                out.push_str(", shuffled");
            }
            if recycled {
                out.push_str(", recycled");
            }
            out
        }
    };
    match plan.requests.split_first() {
        None => {}
        Some((first, rest)) if rest.iter().all(|request| request == first) => {
            let _ = write!(out, ", {}", request(first));
        }
        Some(_) => {
            let requests: Vec<String> = plan.requests.iter().take(NAMED).map(request).collect();
            let more = if plan.requests.len() > NAMED { "; ..." } else { "" };
            let _ = write!(out, ", requests ({}{more})", requests.join("; "));
        }
    }
    if let Some(budget) = plan.budget {
        let _ = write!(out, ", budget {budget}");
    }
    if plan.bucket > 1 {
        let _ = write!(out, ", bucket {}", plan.bucket);
    }
    if plan.rotate {
        out.push_str(", rotating");
    }
    out.push_str(reordered(&plan.order));
    out.push_str(&ranks(plan.context, plan.head_ranks));
    out.push_str(&knobs(&plan.knobs));
    out
}

/// `, num_splits=2, layout=HND`.
fn knobs(knobs: &[(String, String)]) -> String {
    knobs.iter().map(|(name, value)| format!(", {name}={value}")).collect()
}

fn request(request: &Request) -> String {
    let mut parts = Vec::new();
    if request.hit > 0 {
        parts.push(format!("hit {}", request.hit));
    }
    if request.join > 0 {
        parts.push(format!("joins at step {}", request.join));
    }
    if !request.chunks.is_empty() {
        let mut chunks: Vec<String> = request.chunks.iter().take(NAMED).map(u32::to_string).collect();
        if request.chunks.len() > NAMED {
            chunks.push("...".into());
        }
        parts.push(format!("chunks {}", chunks.join("+")));
    }
    let then = if parts.is_empty() { "" } else { "then " };
    parts.push(match request.then {
        1 => format!("{then}decode"),
        rows => format!("{then}{rows} rows a step"),
    });
    if request.reject > 0 {
        parts.push(format!("{} rejected", request.reject));
    }
    if let Some(steps) = request.preempt {
        parts.push(format!("preempted after {steps} step{}", if steps == 1 { "" } else { "s" }));
    }
    parts.join(" ")
}

fn data(data: &Data) -> String {
    match data {
        Data::Drawn { regime, .. } => match regime {
            Regime::Rising { step } => format!("rising({step:?})"),
            Regime::Dominant { gap, lane } => format!("dominant({gap:?}, lane {lane})"),
            Regime::Deep { level } => format!("deep({level:?})"),
            Regime::Mirror { span, phase: 0 } => format!("mirror({span})"),
            Regime::Mirror { span, phase } => format!("mirror({span}, phase {phase})"),
            other => regime_name(other).into(),
        },
        Data::Literal(literal) => format!("{} literal values", literal.q.len() + literal.k.len() + literal.v.len()),
        Data::Captured { sha256 } => format!("captured {}", sha256.chars().take(12).collect::<String>()),
    }
}

/// The case in words, its sequences as bars, its pages, and the engine steps of the inference path.
///
/// `steps` is the schedule as it runs: one list of entries for each engine step, in batch order. An entry whose sequence is not in
/// the case is shown as it is.
pub fn show(case: &Case, steps: &[Vec<StepEntry>]) -> String {
    let mut out = String::new();
    for (name, words) in [
        ("problem", problem(&case.problem)),
        ("batch", batch(&case.problem.sequences)),
        ("train", training(case)),
        ("infer", inference(&case.infer)),
        ("data", data(&case.data)),
    ] {
        let _ = writeln!(out, "{name:<8} {words}");
    }
    draw_sequences(&mut out, case);
    draw_steps(&mut out, case, steps);
    out
}

fn draw_sequences(out: &mut String, case: &Case) {
    let sequences = &case.problem.sequences;
    if sequences.is_empty() {
        out.push_str("\nno sequences\n");
        return;
    }
    // A row before position 0 stands left of the bar's origin: it sees no key.
    let longest = sequences.iter().map(|s| s.kv.max(s.q)).max().unwrap_or(0);
    let scale = longest.div_ceil(BAR).max(1);
    let page = match case.infer.cache {
        Cache::Paged { page, .. } => Some(page),
        Cache::Contiguous { .. } => None,
    };
    let drawn_page = page.filter(|_| scale == 1);
    out.push_str("\nsequences   = cached before   + prefix hit   * new rows   - empty rows");
    if drawn_page.is_some() {
        out.push_str("   | page ends   . dead slots");
    }
    if scale > 1 {
        let _ = write!(out, "   (one character is {scale} positions)");
    }
    out.push('\n');
    for (n, sequence) in sequences.iter().enumerate() {
        let hit = case.infer.requests.get(n).map_or(0, |request| request.hit);
        let label = format!("#{} (id {})", n, sequence.id);
        let _ = write!(out, "{label:<12} q {:<5} kv {:<5} {}", sequence.q, sequence.kv, bar(sequence, hit, scale, drawn_page));
        if let (Some(page), false) = (page, sequence.kv == 0) {
            let pages = sequence.kv.div_ceil(page);
            let _ = write!(out, "  {pages} page{}", if pages == 1 { "" } else { "s" });
            let dead = pages * page - sequence.kv;
            if dead > 0 {
                let _ = write!(out, ", {dead} dead");
            }
        }
        out.push('\n');
    }
}

fn bar(sequence: &Sequence, hit: u32, scale: u32, page: Option<u32>) -> String {
    let (q, kv) = (i64::from(sequence.q), i64::from(sequence.kv));
    let mut bar = "-".repeat(((q - kv).max(0) as u32).div_ceil(scale) as usize);
    bar.push('[');
    for cell in 0..sequence.kv.div_ceil(scale) {
        let position = cell * scale;
        if position > 0 && page.is_some_and(|page| position.is_multiple_of(page)) {
            bar.push('|');
        }
        let row = i64::from(position) + q - kv;
        bar.push(match row {
            row if row < 0 => '=',
            row if row < i64::from(hit) => '+',
            _ => '*',
        });
    }
    if let Some(page) = page.filter(|&page| page <= BAR) {
        let tail = sequence.kv.next_multiple_of(page) - sequence.kv;
        bar.extend(std::iter::repeat_n('.', tail as usize));
    }
    bar.push(']');
    bar
}

fn draw_steps(out: &mut String, case: &Case, steps: &[Vec<StepEntry>]) {
    let _ = writeln!(out, "\n{} engine step{}", steps.len(), if steps.len() == 1 { "" } else { "s" });
    let cut = if steps.len() > STEPS { STEPS - LAST_STEPS..steps.len() - LAST_STEPS } else { 0..0 };
    for (n, entries) in steps.iter().enumerate() {
        if cut.contains(&n) {
            if n == cut.start {
                let _ = writeln!(out, "   ...  {} steps not shown", cut.len());
            }
            continue;
        }
        let shown: Vec<String> = entries.iter().map(|entry| step_entry(&case.problem, entry)).collect();
        let _ = writeln!(out, "{n:>6}  {}", if shown.is_empty() { "idle".into() } else { shown.join("   ") });
    }
}

fn step_entry(problem: &Problem, entry: &StepEntry) -> String {
    let StepEntry { sequence, first_row, rows, kv, .. } = *entry;
    let of = problem.sequences.get(sequence).map_or(String::new(), |s| format!("/{}", s.q));
    match rows {
        1 => format!("#{sequence} row {first_row}{of} kv {kv}"),
        _ => format!("#{sequence} rows {first_row}..{}{of} kv {kv}", u64::from(first_row) + u64::from(rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Literal, Mask, TrainPlan};
    use super::*;
    use crate::number::Dtype;

    fn case() -> Case {
        let request = |hit, chunks: &[u32]| Request { hit, chunks: chunks.to_vec(), ..Request::one_step(1) };
        let problem = Problem {
            sequences: vec![Sequence { id: 0, q: 4, kv: 9 }, Sequence { id: 5, q: 3, kv: 1 }],
            mask: Mask { causal: Some(Anchor::BottomRight), window_left: Some(4), window_right: None },
            softmax_scale: 0.5,
            out_dtype: Dtype::BF16,
            ..Problem::plain(&[], [1, 2], [8, 4], Dtype::F32)
        };
        let plain = Case::plain(problem, Data::Drawn { seed: 1, regime: Regime::Mirror { span: 8, phase: 0 } });
        Case {
            train: TrainPlan { layout: TrainLayout::Dense { side: Side::Left, pad_q: 2, pad_kv: 2 }, ..plain.train },
            infer: InferPlan {
                cache: Cache::Paged { page: 4, spare: 1, shuffle: 3, recycled: false },
                requests: vec![request(1, &[2]), request(0, &[])],
                ..plain.infer
            },
            ..plain
        }
    }

    fn entry(sequence: usize, first_row: u32, rows: u32, kv: u32) -> StepEntry {
        StepEntry { sequence, first_row, rows, kv, kept: kv, rebuilt: false, last: false }
    }

    #[test]
    fn the_case_in_words_and_drawn() {
        assert_eq!(
            summary(&case()),
            "f32->bf16 d_qk=8 d_v=4 heads=2/1 causal window_left=4 scale=0.5 | 2 seqs (q 4, kv 9) (q 3, kv 1) | \
             dense left+2, block_q 64 | pages of 4, 1 spare, shuffled, requests (hit 1 chunks 2 then decode; decode) | mirror(8)"
        );
        let steps = [vec![entry(0, 1, 2, 8), entry(1, 0, 1, 0)], vec![], vec![entry(0, 3, 1, 9)]];
        assert_eq!(
            show(&case(), &steps),
            "\
problem  f32->bf16 d_qk=8 d_v=4 heads=2/1 causal window_left=4 scale=0.5
batch    2 seqs (q 4, kv 9) (q 3, kv 1)
train    dense left+2, block_q 64
infer    pages of 4, 1 spare, shuffled, requests (hit 1 chunks 2 then decode; decode)
data     mirror(8)

sequences   = cached before   + prefix hit   * new rows   - empty rows   | page ends   . dead slots
#0 (id 0)    q 4     kv 9     [====|=+**|*...]  3 pages, 3 dead
#1 (id 5)    q 3     kv 1     --[*...]  1 page, 3 dead

3 engine steps
     0  #0 rows 1..3/4 kv 8   #1 row 0/3 kv 0
     1  idle
     2  #0 row 3/4 kv 9
"
        );
    }

    #[test]
    fn long_things_are_drawn_to_scale_and_cut() {
        let mut case = case();
        case.problem.sequences[0] = Sequence { id: 0, q: 5000, kv: 65536 };
        case.data = Data::Literal(Literal { q: vec![0; 3], k: vec![], v: vec![] });
        let steps: Vec<Vec<StepEntry>> = (0..1000).map(|row| vec![entry(0, row, 1, 60536 + row)]).collect();
        let shown = show(&case, &steps);
        assert!(shown.contains("one character is 1024 positions"), "{shown}");
        assert!(shown.contains("952 steps not shown"), "{shown}");
        assert!(shown.lines().count() < 70 && shown.lines().all(|line| line.len() < 140), "{shown}");
        assert!(summary(&case).ends_with("| 3 literal values"));
    }

    #[test]
    fn ranks_are_named() {
        let mut case = case();
        case.train.context = Some(ContextParallel { ranks: 3, shards: Shards::Zigzag, length: 16 });
        case.infer.context = Some(ContextParallel { ranks: 2, shards: Shards::Contiguous, length: 4 });
        case.infer.head_ranks = 2;
        let summary = summary(&case);
        assert!(summary.contains("block_q 64, 3 context ranks with zigzag chunks of 16 | pages"), "{summary}");
        assert!(summary.contains("decode), 2 context ranks with chunks of 4, 2 head ranks | mirror"), "{summary}");
    }

    #[test]
    fn the_empty_batch_is_shown() {
        let mut case = case();
        case.problem.sequences.clear();
        case.infer.requests.clear();
        assert!(show(&case, &[]).contains("\nno sequences\n\n0 engine steps\n"));
    }
}
