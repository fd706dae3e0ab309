//! A row as a case.

use super::choice::{fp8_kv, regime, slope, softmax_scale};
use super::cover::OPEN;
use super::lead::Lead;
use super::request::requests;
use super::rule::{anchor, wanted};
use super::shape::ranks;
use super::value::{
    Batch, Causal, Context, HeadRanks, Join, Kind, Kv8, Layout, Pool, Scale, StepOrder, Switch, TrainOrder, Window, at,
};
use super::{Row, Space};
use crate::finding::Path;
use crate::source::{Choose, Source, Stream, mix};
use crate::subject::attention::case::{Case, Data, Problem, Sequence};
use crate::subject::attention::mask::Mask;
use crate::subject::attention::plan::{Cache, ContextParallel, InferPlan, Shards, Side, TrainLayout, TrainPlan};
use crate::subject::attention::validate;

/// Sets the choices that a row leaves open apart from every campaign's.
const OPEN_CHOICES: u64 = 0x0053_5041_4345;

/// What a row leaves open is drawn again where it did not come out as the row says: a draft that no step had room to reject, say.
const TRIES: u64 = 256;

/// Work of the leading sequence that is aimed at.
const USUAL_WORK: u64 = 1 << 20;

impl Space {
    /// The case of a row, as the `index`-th of its battery: what the row leaves open, and the data's seed, follow from the index. It is
    /// valid, the kernels can do it, and [`Space::read`] gives the row back.
    ///
    /// # Panics
    /// If the row is none of [`Space::rows`].
    pub fn case(&self, row: &Row, index: u64) -> Case {
        assert!(row.0.len() == self.knobs.len() && !row.0.contains(&OPEN), "a row of this space has a value for each knob");
        let cases = (0..TRIES).filter_map(|n| self.attempt(row, &mut Stream::new(mix(OPEN_CHOICES, n), index)));
        let mut cases =
            cases.filter(|case| validate(case).is_ok() && self.scope.outside(case).is_none() && self.read(case) == *row);
        cases.next().unwrap_or_else(|| panic!("a row without a case: {}", self.named_row(row)))
    }

    fn named_row(&self, row: &Row) -> String {
        let word = |(n, (name, values)): (usize, &(String, Vec<String>))| Some(format!("{name}: {}", values[row.value(n)?]));
        self.knobs.iter().enumerate().filter_map(word).collect::<Vec<_>>().join("; ")
    }

    fn attempt(&self, row: &Row, source: &mut Stream) -> Option<Case> {
        let of = |knob: usize| usize::from(row.0[knob]);
        let on = |knob: usize| of(knob) == Switch::On as usize;
        let format = self.formats[of(at::FORMAT)];
        let (batch, causal, window) = (Batch::ALL[of(at::BATCH)], Causal::ALL[of(at::CAUSAL)], Window::ALL[of(at::WINDOW)]);
        let layout = Layout::ALL[of(at::LAYOUT)];
        let page = self.caches[of(at::CACHE)];
        let even = self.even(layout, page.is_none());
        let [train_ranks, infer_ranks] = [at::TRAIN_HEAD_RANKS, at::INFER_HEAD_RANKS].map(|knob| HeadRanks::ALL[of(knob)]);

        // Heads and head dims: any, or the smallest where lengths are large.
        let shared = |shape: &(u32, u32)| !ranks(train_ranks, *shape).is_empty() && !ranks(infer_ranks, *shape).is_empty();
        let mut shapes: Vec<(u32, u32)> = self.shapes[of(at::HEADS)].iter().copied().filter(shared).collect();
        shapes.sort_by_key(|(kv, group)| kv * group);
        let dims = &self.dims[of(at::DIMS)].pairs;
        let values = [at::LENGTH, at::ROWS, at::HIT, at::STEPS, at::REJECT, at::PREEMPT].map(of);
        let wanted = wanted(&values);
        let (cheapest, any) = ((*shapes.first()?, *dims.first()?), (source.pick(&shapes), source.pick(dims)));
        let cost = |((kv, group), (d_qk, d_v)): ((u32, u32), (u32, u32))| u64::from(kv * group) * u64::from(d_qk + d_v);
        let members = self.lengths.members(wanted.length);
        // Of the lengths elsewhere there are hundreds.
        let mut lengths: Vec<u32> = (0..members.len().min(12)).map(|_| source.pick(members)).collect();
        lengths.extend(members.iter().take(48));
        let leads: Vec<Lead> = lengths.iter().flat_map(|&kv| self.lengths.leads(&wanted, kv)).collect();
        let leads =
            if leads.is_empty() { members.iter().flat_map(|&kv| self.lengths.leads(&wanted, kv)).collect() } else { leads };
        let limited = self.scope.max_rows().is_some();
        let pairs = |lead: &Lead| u64::from(lead.q) * u64::from(lead.kv);
        let affordable = |pair: u64| -> Vec<Lead> { leads.iter().copied().filter(|it| pairs(it) * pair <= USUAL_WORK).collect() };
        let mut heads = any;
        let mut fitting = affordable(cost(any));
        if fitting.is_empty() || limited {
            heads = cheapest;
            fitting = affordable(cost(cheapest));
        }
        let smallest = || leads.iter().copied().min_by_key(pairs);
        let lead = if fitting.is_empty() || limited && source.chance(1, 2) { smallest()? } else { source.pick(&fitting) };
        let ((kv_heads, group), (d_qk, d_v)) = heads;

        let (sequences, place) = self.sequences(source, lead, batch, even, limited);
        let mask = Mask { causal: anchor(causal), ..Mask::default() };
        let mask = self.window(source, mask, window, lead);
        let q_heads = (kv_heads * group) as usize;
        let last = mask.keys(lead.q - 1, lead.q, lead.kv);
        let problem = Problem {
            sequences,
            kv_head_ids: (0..kv_heads).collect(),
            group_ids: (0..group).collect(),
            d_qk,
            d_v,
            mask,
            softcap: on(at::SOFTCAP).then(|| source.pick(&[1.0, 2.0, 15.0, 30.0, 50.0])),
            sinks: on(at::SINKS).then(|| (0..q_heads).map(|_| source.pick(&[0.0, 0.75, -0.5, 1.5, 4.0, -1.0, 8.0])).collect()),
            alibi_slopes: on(at::ALIBI).then(|| (0..q_heads).map(|head| slope(source, head)).collect()),
            softmax_scale: softmax_scale(source, Scale::ALL[of(at::SCALE)], d_qk),
            dtype: format.storage,
            fp8_kv: fp8_kv(source, Kv8::ALL[of(at::KV8)], kv_heads as usize),
            out_dtype: format.out,
        };
        let regime = regime(source, Kind::ALL[of(at::REGIME)], &problem, last);
        let padding = |source: &mut Stream| if limited { 0 } else { source.pick(&[0, 1, 3, 7, 16, 65]) };
        let dense = |side, source: &mut Stream| TrainLayout::Dense { side, pad_q: padding(source), pad_kv: padding(source) };
        let (count, shape) = (problem.sequences.len(), (kv_heads, group));
        let permuted = TrainOrder::ALL[of(at::TRAIN_ORDER)] == TrainOrder::Permuted;
        let train = TrainPlan {
            layout: match layout {
                Layout::Varlen => TrainLayout::Varlen,
                Layout::DenseLeft => dense(Side::Left, source),
                Layout::DenseRight => dense(Side::Right, source),
            },
            order: order(source, count, permuted),
            block_q: source.pick(&[1, 16, 64, 128]),
            context: self.context(source, Context::ALL[of(at::TRAIN_CONTEXT)], lead.kv),
            head_ranks: head_ranks(source, train_ranks, shape),
            knobs: self.own_knobs(row, Path::Train),
        };
        let step_order = StepOrder::ALL[of(at::STEP_ORDER)];
        let (requests, budget) = requests(source, &problem, place, lead, &wanted, causal == Causal::BottomRight);
        let permuted_steps = step_order == StepOrder::Permuted || step_order == StepOrder::Rotating && source.chance(1, 2);
        let mut infer = InferPlan {
            cache: cache(source, page, Pool::ALL[of(at::POOL)], on(at::SPARE)),
            requests,
            order: order(source, count, permuted_steps),
            rotate: step_order == StepOrder::Rotating,
            budget,
            bucket: if !on(at::BUCKET) {
                1
            } else if limited {
                2
            } else {
                source.pick(&[2, 3, 4, 8])
            },
            context: self.context(source, Context::ALL[of(at::INFER_CONTEXT)], lead.kv),
            head_ranks: head_ranks(source, infer_ranks, shape),
            knobs: self.own_knobs(row, Path::Infer),
        };
        if Join::ALL[of(at::JOIN)] == Join::Apart {
            let first = source.below(2) as u32;
            infer.requests.iter_mut().enumerate().for_each(|(n, it)| it.join = (n as u32 + first) % 3);
        }
        if even && page.is_none() {
            let own = infer.requests[place].clone();
            infer.requests.fill(own);
        }
        // 32 bits, so that a case's text stays short.
        let data = Data::Drawn { seed: source.below(1 << 32), regime };
        Some(Case { problem, train, infer, data })
    }

    /// The batch, and where its leading sequence stands.
    fn sequences(&self, source: &mut Stream, lead: Lead, batch: Batch, even: bool, limited: bool) -> (Vec<Sequence>, usize) {
        let count = match batch {
            Batch::One => 1,
            Batch::Two => 2,
            Batch::Three | Batch::Mixed if limited => 3,
            Batch::Three | Batch::Mixed => source.range(3, 4),
        };
        // The first of the longest leads: company as long stands behind it.
        let place = if even || lead.kv == 1 { 0 } else { source.range(0, count - 1) };
        let empty = (batch == Batch::Mixed).then(|| (place + source.range(1, count - 1)) % count);
        let sequence = |id: u32| {
            if id == place || even {
                return Sequence { id, q: lead.q, kv: lead.kv };
            }
            let most = if limited { 1 } else { (lead.kv.max(2) - 1).min(9) };
            let kv = source.range(1, most);
            let q = source.range(1, kv);
            let (q, kv) = match empty {
                Some(empty) if empty == id => match source.below(3) {
                    _ if limited => (0, 0),
                    0 => (0, kv),
                    // A row without a key.
                    1 if self.scope.no_empty_rows().is_none() => (q, 0),
                    _ => (0, 0),
                },
                _ => (q, kv),
            };
            Sequence { id, q, kv }
        };
        ((0..count).map(sequence).collect(), place as usize)
    }

    /// Windows around what is telling, wide enough that no row is without keys where that cannot be.
    fn window(&self, source: &mut Stream, mut mask: Mask, window: Window, lead: Lead) -> Mask {
        let least = if self.scope.no_empty_rows().is_some() { lead.q.saturating_sub(lead.kv) + 1 } else { 0 };
        let near = self.lengths.granules[0];
        let size = |source: &mut Stream| source.pick(&[0, 1, 3, near - 1, near, lead.kv / 2, lead.kv]).max(least);
        if matches!(window, Window::Left | Window::Both) {
            mask.window_left = Some(size(source));
        }
        if matches!(window, Window::Right | Window::Both) {
            mask.window_right = Some(size(source));
        }
        mask
    }

    fn context(&self, source: &mut Stream, context: Context, kv: u32) -> Option<ContextParallel> {
        let (ranks, shards) = match context {
            Context::One => return None,
            Context::Two => (2, source.pick(&[Shards::Contiguous, Shards::Zigzag])),
            Context::ThreeZigzag => (3, Shards::Zigzag),
            Context::Four => (4, source.pick(&[Shards::Zigzag, Shards::Contiguous])),
        };
        let mut context = ContextParallel { ranks, shards, length: 1 };
        let even = kv.div_ceil(context.chunks());
        let granule = source.pick(&self.lengths.granules);
        context.length = source.pick(&[even, even, granule, even + 1]).max(1);
        Some(context)
    }

    fn own_knobs(&self, row: &Row, path: Path) -> Vec<(String, String)> {
        let own = self.kernel_knobs.iter().enumerate().filter(|(_, (_, train))| *train == (path == Path::Train));
        let changed = own.filter(|(n, _)| row.0[at::COUNT + n] > 0);
        let mut knobs: Vec<(String, String)> =
            changed.map(|(n, (knob, _))| (knob.name.clone(), knob.values[usize::from(row.0[at::COUNT + n])].clone())).collect();
        knobs.sort();
        knobs
    }
}

/// A permutation: the ascending one, or any other.
fn order(source: &mut Stream, count: usize, permuted: bool) -> Vec<u32> {
    let ascending: Vec<u32> = (0..count as u32).collect();
    if !permuted {
        return ascending;
    }
    let order = source.permutation(count);
    if order == ascending { ascending.into_iter().rev().collect() } else { order }
}

fn head_ranks(source: &mut Stream, class: HeadRanks, shape: (u32, u32)) -> u32 {
    source.pick(&ranks(class, shape))
}

fn cache(source: &mut Stream, page: Option<u32>, pool: Pool, spare: bool) -> Cache {
    let spare = if spare { source.pick(&[1, 2, 5]) } else { 0 };
    match page {
        None => Cache::Contiguous { spare },
        Some(page) => {
            let shuffle = match pool {
                Pool::Ascending => 0,
                Pool::Shuffled | Pool::Recycled => 1 + source.below((1 << 32) - 1),
            };
            Cache::Paged { page, spare, shuffle, recycled: pool == Pool::Recycled }
        }
    }
}
