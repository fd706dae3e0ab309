//! The knobs of a case, read off it.

use super::cover::OPEN;
use super::value::{
    Batch, Causal, Context, HeadRanks, Heads, Hit, Join, Kind, Kv8, Layout, Length, Pool, Rows, Scale, StepOrder, Steps, Switch,
    TrainOrder, Window, at,
};
use super::{Row, Space, lead};
use crate::number::Dtype;
use crate::subject::attention::capabilities::{Format, Knob};
use crate::subject::attention::drive::{StepEntry, schedule};
use crate::subject::attention::{
    Anchor, Cache, Case, ContextParallel, Data, InferPlan, Problem, Regime, Request, Shards, Side, TrainLayout,
};

impl Space {
    /// The values of a case's knobs. One that lies outside all of a knob's values has none.
    pub fn read(&self, case: &Case) -> Row {
        let (problem, train, infer) = (&case.problem, &case.train, &case.infer);
        let mut row = vec![OPEN; self.knobs.len()];
        let mut put = |knob: usize, value: Option<usize>| row[knob] = value.map_or(OPEN, |it| it as u16);
        let format = Format { storage: problem.dtype, out: problem.out_dtype };
        put(at::FORMAT, self.formats.iter().position(|it| *it == format));
        put(at::KV8, Some(kv8(problem) as usize));
        put(at::BATCH, batch(problem).map(|it| it as usize));
        put(at::HEADS, Some(heads(problem.kv_heads(), problem.group_ids.len()) as usize));
        put(at::DIMS, self.dims.iter().position(|it| it.kind.holds(problem.d_qk, problem.d_v)));
        put(at::CAUSAL, Some(causal(problem.mask.causal) as usize));
        put(at::WINDOW, Some(window(problem) as usize));
        put(at::SOFTCAP, Some(switch(problem.softcap.is_some())));
        put(at::SINKS, Some(switch(problem.sinks.is_some())));
        put(at::ALIBI, Some(switch(problem.alibi_slopes.is_some())));
        put(at::SCALE, Some(scale(problem.softmax_scale, problem.d_qk) as usize));
        put(at::LAYOUT, Some(layout(train.layout) as usize));
        let ascending = |order: &[u32]| order.is_sorted();
        let order = if ascending(&train.order) { TrainOrder::Ascending } else { TrainOrder::Permuted };
        put(at::TRAIN_ORDER, Some(order as usize));
        let order = match (infer.rotate && problem.sequences.len() > 1, ascending(&infer.order)) {
            (true, _) => StepOrder::Rotating,
            (false, true) => StepOrder::Ascending,
            (false, false) => StepOrder::Permuted,
        };
        put(at::STEP_ORDER, Some(order as usize));
        let (page, pool, spare) = match infer.cache {
            Cache::Contiguous { spare } => (None, Pool::Ascending, spare),
            Cache::Paged { page, spare, recycled: true, .. } => (Some(page), Pool::Recycled, spare),
            Cache::Paged { page, spare, shuffle: 0, .. } => (Some(page), Pool::Ascending, spare),
            Cache::Paged { page, spare, .. } => (Some(page), Pool::Shuffled, spare),
        };
        put(at::CACHE, self.caches.iter().position(|it| *it == page));
        put(at::POOL, Some(pool as usize));
        put(at::SPARE, Some(switch(spare > 0)));
        let joins = infer.requests.windows(2).all(|pair| pair[0].join == pair[1].join);
        put(at::JOIN, Some(if joins { Join::Together } else { Join::Apart } as usize));
        put(at::BUCKET, Some(switch(infer.bucket > 1)));
        put(at::TRAIN_CONTEXT, context(train.context).map(|it| it as usize));
        put(at::INFER_CONTEXT, context(infer.context).map(|it| it as usize));
        put(at::TRAIN_HEAD_RANKS, Some(head_ranks(problem, train.head_ranks) as usize));
        put(at::INFER_HEAD_RANKS, Some(head_ranks(problem, infer.head_ranks) as usize));
        put(at::REGIME, kind(&case.data).map(|it| it as usize));
        if let Some((n, sequence, request)) = lead::of(case) {
            put(at::LENGTH, self.lengths.class(sequence.kv).map(|it: Length| it as usize));
            let rows = lead::rows(sequence.q, sequence.kv).filter(|_| sequence.kv > 0);
            put(at::ROWS, rows.map(|it: Rows| it as usize));
            if rows.is_some() {
                let left = sequence.q - request.hit;
                put(at::STEPS, steps(request, left, infer, problem.total_q()).map(|it| it as usize));
                let hit = if request.hit == 0 { Hit::None } else { self.lengths.hit(sequence.kv, left) };
                put(at::HIT, Some(hit as usize));
                // What became of a request shows in the steps alone.
                let own: Vec<StepEntry> = schedule(problem, infer).into_iter().flatten().filter(|it| it.sequence == n).collect();
                put(at::REJECT, Some(switch(own.iter().any(|it| it.kept < it.kv))));
                put(at::PREEMPT, Some(switch(own.iter().any(|it| it.rebuilt))));
            }
        }
        for (n, (knob, of_train)) in self.kernel_knobs.iter().enumerate() {
            put(at::COUNT + n, kernel_knob(knob, if *of_train { &train.knobs } else { &infer.knobs }));
        }
        Row(row)
    }
}

fn switch(on: bool) -> usize {
    if on { Switch::On as usize } else { Switch::Off as usize }
}

fn kv8(problem: &Problem) -> Kv8 {
    match &problem.fp8_kv {
        None => Kv8::Plain,
        Some(kv) if kv.dtype == Dtype::E4M3 => Kv8::E4m3,
        Some(_) => Kv8::E5m2,
    }
}

fn batch(problem: &Problem) -> Option<Batch> {
    let empty = problem.sequences.iter().filter(|it| it.q == 0 || it.kv == 0).count();
    match problem.sequences.len() {
        0 => None,
        1 => Some(Batch::One),
        2 => Some(Batch::Two),
        _ if empty == 0 => Some(Batch::Three),
        count if empty < count => Some(Batch::Mixed),
        _ => None,
    }
}

pub(super) fn heads(kv: usize, group: usize) -> Heads {
    match (kv, group) {
        (1, 1) => Heads::One,
        (_, 1) => Heads::Equal,
        (1, _) => Heads::Single,
        _ => Heads::Grouped,
    }
}

fn causal(causal: Option<Anchor>) -> Causal {
    match causal {
        Some(Anchor::BottomRight) => Causal::BottomRight,
        Some(Anchor::TopLeft) => Causal::TopLeft,
        None => Causal::None,
    }
}

fn window(problem: &Problem) -> Window {
    match (problem.mask.window_left.is_some(), problem.mask.window_right.is_some()) {
        (false, false) => Window::None,
        (true, false) => Window::Left,
        (false, true) => Window::Right,
        (true, true) => Window::Both,
    }
}

/// The scale that models use.
pub(super) fn usual_scale(d_qk: u32) -> f32 {
    (1.0 / f64::from(d_qk).sqrt()) as f32
}

pub(super) fn scale(scale: f32, d_qk: u32) -> Scale {
    match scale {
        it if it == usual_scale(d_qk) => Scale::Usual,
        it if it.is_normal() && it.to_bits() << 9 == 0 => Scale::Power,
        _ => Scale::Any,
    }
}

fn layout(layout: TrainLayout) -> Layout {
    match layout {
        TrainLayout::Varlen => Layout::Varlen,
        TrainLayout::Dense { side: Side::Left, .. } => Layout::DenseLeft,
        TrainLayout::Dense { side: Side::Right, .. } => Layout::DenseRight,
    }
}

fn context(context: Option<ContextParallel>) -> Option<Context> {
    match context.map(|it| (it.ranks, it.shards)) {
        None => Some(Context::One),
        Some((2, _)) => Some(Context::Two),
        Some((3, Shards::Zigzag)) => Some(Context::ThreeZigzag),
        Some((4.., _)) => Some(Context::Four),
        Some(_) => None,
    }
}

fn head_ranks(problem: &Problem, ranks: u32) -> HeadRanks {
    match ranks {
        1 => HeadRanks::One,
        _ if problem.kv_heads().is_multiple_of(ranks as usize) => HeadRanks::Divided,
        _ => HeadRanks::Replicated,
    }
}

/// How a request with so many rows left goes on.
fn steps(request: &Request, left: u32, plan: &InferPlan, total_q: usize) -> Option<Steps> {
    match plan.budget {
        Some(budget) if budget < left => return Some(Steps::Budget),
        // Who is cut depends on the company.
        Some(budget) if (budget as usize) < total_q => return None,
        _ => {}
    }
    Some(match (request.chunks.as_slice(), request.then) {
        ([all], _) if *all == left => Steps::Whole,
        ([], then) if then >= left => Steps::Whole,
        ([] | [_], 1) => Steps::Decode,
        ([_], _) => Steps::Verify,
        _ => Steps::Chunks,
    })
}

fn kind(data: &Data) -> Option<Kind> {
    let Data::Drawn { regime, .. } = data else { return None };
    Some(match regime {
        Regime::Normal => Kind::Normal,
        Regime::Equal => Kind::Equal,
        Regime::Dominant { .. } => Kind::Dominant,
        Regime::Deep { .. } => Kind::Deep,
        Regime::Overflow => Kind::Overflow,
        Regime::Subnormal => Kind::Subnormal,
        Regime::Quantised => Kind::Quantised,
        Regime::Tail => Kind::Tail,
        Regime::ZeroPeak => Kind::ZeroPeak,
        Regime::Rising { .. } => Kind::Rising,
        Regime::Wide => Kind::Wide,
        Regime::OnehotV => Kind::OnehotV,
        Regime::ConstantV => Kind::ConstantV,
        Regime::Mirror { .. } => Kind::Mirror,
    })
}

/// The value of a kernel's knob; its default where the plan does not name it.
fn kernel_knob(knob: &Knob, plan: &[(String, String)]) -> Option<usize> {
    match plan.iter().find(|(name, _)| *name == knob.name) {
        None => Some(0),
        Some((_, value)) => knob.values.iter().position(|it| it == value),
    }
}
