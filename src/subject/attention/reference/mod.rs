//! The reference kernel: a textbook flash kernel and a paged split-KV kernel over one row core, parameterised by
//! [`Numerics`] and by what its calls actually mean. This scalar code is the definition of the numerics.
//!
//! A sequence's keys and values are decoded once for each KV head; dead slots are never read. Every sum lies on the cells that the
//! row's [recipe](super::recipe) names.

mod arithmetic;
mod draw;
mod exponential;
mod narrow;
mod planted;
pub mod preset;
mod row;
mod spec;
mod sum;
pub mod trace;
mod view;

pub(super) use exponential::Exponential;
pub use spec::Reference;

use super::conventions::Conventions;
use super::kernel::{AttentionKernel, Attributes, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use super::mutant::Mutant;
use super::numerics::{Launch, Numerics, Rescale, ScaleAt, Scope};
use super::recipe::{Layout, Recipe, StepFacts, recipe};
use arithmetic::Arithmetic;
use planted::Operand;
use row::Row;
use std::cell::RefCell;
use std::ops::Range;
use sum::SumScratch;
use trace::{Form, Recorder, Silent, Trace};
use view::{Entry, Gathered, View};

/// Buffers kept between calls, so that inner loops do not allocate.
#[derive(Default)]
struct Scratch {
    /// A few sequences and heads, so that those of a batch find theirs again at the next step.
    gathered: [Gathered; 4],
    query: Vec<f32>,
    rows: Vec<Row>,
    tile: Layout,
    sum: SumScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Part of an entry's work: some of its rows and query heads.
struct Work {
    rows: Range<u32>,
    heads: Range<usize>,
    /// The row whose steps are recorded.
    traced: u32,
}

/// The sequences of a call as recipes see them: the flattened row of `q` at which each begins, and the facts of the step. Row `i` of
/// one has the recipe that follows from its facts and `i`. Nothing for a malformed call.
pub fn facts(call: Call<'_>) -> Vec<(usize, StepFacts)> {
    let Ok(view) = View::new(call) else { return Vec::new() };
    view.entries.iter().map(|entry| (entry.first_row, entry.facts(&view))).collect()
}

impl Reference {
    /// The recipe of a flattened row of the call's `q` (packed row, or `batch * seq_q + slot`); `None` for a row that belongs to no
    /// sequence, a malformed call, or a kernel with a planted fault, which keeps to no recipe.
    pub fn recipe(&self, call: Call<'_>, row: usize) -> Option<Recipe> {
        if self.mutant.is_some() {
            return None;
        }
        let view = View::new(call).ok()?;
        let (entry, row) = view.find(row)?;
        Some(recipe(&self.numerics, &self.actual, &entry.facts(&view), row))
    }

    /// What rules see of the sequence that holds a flattened row; rows as in [`Reference::recipe`].
    pub fn launch(call: Call<'_>, row: usize) -> Option<Launch> {
        let view = View::new(call).ok()?;
        let (entry, _) = view.find(row)?;
        Some(entry.facts(&view).launch())
    }

    /// Computes one row and head again, with the code of the calls, and returns its steps. Rows as in [`Reference::recipe`]; `None`
    /// also for a head that is not there.
    pub fn trace(&self, call: Call<'_>, row: usize, head: usize) -> Option<Trace> {
        let mut view = View::new(call).ok()?;
        let acting = self.acting(&mut view);
        let (entry, row) = view.find(row)?;
        if head >= view.attributes.q_heads {
            return None;
        }
        let facts = entry.facts(&view);
        let rows = if acting.by_tile() { facts.tile(row) } else { row..row + 1 };
        let mut trace = Trace::new(Form::of(&acting.numerics, &view.attributes));
        let work = Work { rows, heads: head..head + 1, traced: row };
        with_scratch(|scratch| acting.compute(&view, entry, &work, scratch, &mut trace, &mut |_, _, _, _| {}));
        Some(trace)
    }

    /// Whether rows of a tile must go in step.
    fn by_tile(&self) -> bool {
        self.numerics.softmax.scope == Scope::Tile && self.numerics.softmax.rescale != Rescale::Always
    }

    fn run(&self, call: Call<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let mut view = View::new(call)?;
        self.refuse(&view.attributes).map_err(KernelError::Unsupported)?;
        let Attributes { q_heads, d_v, .. } = *view.attributes;
        let rows = view.q.bits.len() / (q_heads * view.attributes.d_qk).max(1);
        if outputs.o.bits.len() != rows * q_heads * d_v || outputs.lse.bits.len() != rows * q_heads {
            let dims = (&outputs.o.dims, &outputs.lse.dims);
            return Err(KernelError::Failed(format!("o {:?} and lse {:?} do not fit q {:?}", dims.0, dims.1, view.q.dims)));
        }
        let acting = self.acting(&mut view);
        with_scratch(|scratch| {
            for entry in &view.entries {
                let work = Work { rows: 0..entry.q, heads: 0..q_heads, traced: 0 };
                acting.compute(&view, entry, &work, scratch, &mut Silent, &mut |row, head, o, lse| {
                    let index = (entry.first_row + row as usize) * q_heads + head;
                    outputs.o.bits[index * d_v..(index + 1) * d_v].copy_from_slice(o);
                    // Without a fault it is always there.
                    if let Some(slot) = outputs.lse.bits.get_mut((entry.first_lse + row as usize) * q_heads + head) {
                        *slot = lse.to_bits();
                    }
                });
            }
        });
        Ok(())
    }

    /// What it cannot do, or declares otherwise than the call asks.
    fn refuse(&self, attributes: &Attributes<'_>) -> Result<(), String> {
        let Numerics { score, rowsum, value, .. } = &self.numerics;
        if let Some(acc) = [score.acc, rowsum.acc, value.acc].into_iter().find(|&acc| !narrow::is_accumulator(acc)) {
            return Err(format!("an accumulator of format {acc}"));
        }
        attributes.fit(&self.declared)
    }

    /// The rows and heads of `work`; results go to `place(row, head, o, lse)`.
    fn compute<R: Recorder>(
        &self,
        view: &View<'_>,
        entry: &Entry<'_>,
        work: &Work,
        scratch: &mut Scratch,
        recorder: &mut R,
        place: &mut impl FnMut(u32, usize, &[u32], f32),
    ) {
        let facts = entry.facts(view);
        let mut numerics = self.numerics.resolved(&facts.launch());
        self.relaunch(view, &facts, &mut numerics);
        let keys = self.hull(&numerics, &facts, work.rows.clone());
        let group = self.group(view);
        let mut arithmetic = Arithmetic::new(&numerics, &self.actual, &view.attributes, self.mutant);
        let tile = if self.by_tile() { facts.block_q } else { 1 };
        for n in work.heads.start / group..work.heads.end.div_ceil(group) {
            let kv_head = self.kv_head(view, n);
            let facts = self.facts_of(n, &facts);
            let home = (entry.home(kv_head) % scratch.gathered.len() as u64) as usize;
            arithmetic.at(kv_head);
            arithmetic.unused = view.unused(entry, kv_head, &numerics);
            scratch.gathered[home].read(view, entry, kv_head, arithmetic.on_load, keys.clone());
            let heads = work.heads.start.max(n * group)..work.heads.end.min((n + 1) * group);
            let mut first = work.rows.start;
            while first < work.rows.end {
                let rows = first..first.saturating_add(tile).min(work.rows.end);
                self.lay(view, entry, &numerics, &facts, rows.clone(), scratch);
                for head in heads.clone() {
                    self.go_together(&arithmetic, view, entry, rows.clone(), work.traced, head, home, scratch, recorder);
                    for (n, row) in rows.clone().enumerate() {
                        let state = &mut scratch.rows[n];
                        let lse = if R::ON && row == work.traced {
                            state.finish(&arithmetic, recorder)
                        } else {
                            state.finish(&arithmetic, &mut Silent)
                        };
                        place(row, head, &state.stored, lse);
                    }
                }
                first = rows.end;
            }
        }
    }

    /// The keys that any of the rows takes, as one range.
    fn hull(&self, numerics: &Numerics, facts: &StepFacts, rows: Range<u32>) -> Range<u32> {
        if self.mutant == Some(Mutant::MaskOfFirstHead) {
            return 0..facts.kv;
        }
        let mut hull: Option<Range<u32>> = None;
        for keys in rows.map(|row| self.keys(numerics, facts, row).0).filter(|keys| !keys.is_empty()) {
            hull = Some(hull.map_or(keys.clone(), |hull| hull.start.min(keys.start)..hull.end.max(keys.end)));
        }
        hull.unwrap_or(0..0)
    }

    /// Lays the grid over rows that go together, and over all of them at once.
    fn lay(
        &self,
        view: &View<'_>,
        entry: &Entry<'_>,
        numerics: &Numerics,
        facts: &StepFacts,
        rows: Range<u32>,
        scratch: &mut Scratch,
    ) {
        if scratch.rows.len() < rows.len() {
            scratch.rows.resize_with(rows.len(), Row::default);
        }
        for (row, state) in rows.clone().zip(&mut scratch.rows) {
            let (keys, position) = self.keys(numerics, facts, row);
            state.layout.cut(numerics, facts, row, keys);
            self.reorder(entry, &mut state.layout);
            state.position = position;
            state.flaw = self.flaw(view, numerics, facts, row);
        }
        if rows.len() > 1 {
            scratch.tile.cut(numerics, facts, rows.start, self.hull(numerics, facts, rows));
        }
    }

    /// Runs rows of one head over their cells, in step where there are several.
    #[allow(clippy::too_many_arguments, reason = "one private caller; a struct would only rename them")]
    fn go_together<R: Recorder>(
        &self,
        arithmetic: &Arithmetic<'_>,
        view: &View<'_>,
        entry: &Entry<'_>,
        rows: Range<u32>,
        traced: u32,
        head: usize,
        home: usize,
        scratch: &mut Scratch,
        recorder: &mut R,
    ) {
        let Scratch { gathered, query, rows: states, tile, sum } = scratch;
        let gathered = &gathered[home];
        let states = &mut states[..rows.len()];
        let d = view.attributes.d_qk;
        for (row, state) in rows.clone().zip(&mut *states) {
            let index = (entry.first_row + row as usize) * view.attributes.q_heads + head;
            query.clear();
            view::decode(view.q.dtype, &view.q.bits[index * d..(index + 1) * d], query);
            view.reread(Operand::Query, query);
            if self.numerics.score.scale == ScaleAt::OnQuery {
                query.iter_mut().for_each(|x| *x *= arithmetic.scale);
            }
            if R::ON && row == traced {
                state.begin(arithmetic, head, query, gathered, sum, recorder);
            } else {
                state.begin(arithmetic, head, query, gathered, sum, &mut Silent);
            }
        }
        if let [state] = states {
            while state.next().is_some() {
                state.visit(arithmetic, None, gathered, sum, recorder);
            }
            return;
        }
        for cell in &tile.cells {
            let here = |state: &Row| state.next().is_some_and(|next| cell.keys.contains(&next.keys.start));
            let rescale = states.iter().any(|state| here(state) && state.wants_rescale(arithmetic));
            for (row, state) in rows.clone().zip(&mut *states).filter(|(_, state)| here(state)) {
                if R::ON && row == traced {
                    state.visit(arithmetic, Some(rescale), gathered, sum, recorder);
                } else {
                    state.visit(arithmetic, Some(rescale), gathered, sum, &mut Silent);
                }
            }
        }
    }
}

/// Lends the thread's buffers.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take();
    let result = work(&mut scratch);
    SCRATCH.set(scratch);
    result
}

impl AttentionKernel for Reference {
    fn identity(&self) -> Identity {
        Identity {
            name: self.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            device: "cpu".into(),
            digest: None,
            details: Vec::new(),
        }
    }

    fn conventions(&self) -> Conventions {
        self.declared
    }

    fn numerics(&self) -> Option<Numerics> {
        Some(self.profile.unwrap_or(self.numerics))
    }

    fn context_parallel(&self) -> bool {
        true
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Varlen(call), outputs)
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Dense(call), outputs)
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Paged(call), outputs)
    }
}
