//! The driver: lays a case out, calls the kernel, and gathers the results row by row.
//!
//! It owns layouts, page tables, canaries, poison and the sequence of steps. A kernel only computes. Of parallel ranks it owns those
//! that share out the heads: each makes calls of its own. A context-parallel group is one call ([`Attributes::context`]), since its
//! ranks must talk to each other.

mod cache;
mod heads;
mod infer;
mod schedule;
mod train;

pub use infer::infer;
pub use schedule::{StepEntry, schedule};
pub use train::train;

use super::kernel::{AttentionKernel, Attributes, Call, KernelError, Outputs};
use super::{Inputs, Problem};
use crate::finding::Fault;
use crate::number::Dtype;
use crate::tensor::{Index, Tensor};
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What dead slots hold: padding, spare and freed pages, tails of last pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// NaN: `0 * dead` shows.
    Nan,
    /// The largest finite number: a stale value that a NaN check would miss.
    Huge,
    /// Zeros, as freshly allocated memory often has them: what a test that does not poison runs with.
    Zero,
}

impl Poison {
    fn bits(self, dtype: Dtype) -> u32 {
        match self {
            Poison::Nan => dtype.nan_bits(),
            Poison::Huge => dtype.max_finite_bits(),
            Poison::Zero => 0,
        }
    }
}

/// A NaN that no kernel computes: outputs hold it until they are written.
pub(crate) fn canary(dtype: Dtype) -> u32 {
    dtype.nan_bits() | dtype.sign_mask() | if dtype.bits() > 8 { 0x2a } else { 0 }
}

/// Why a side has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The kernel cannot do this case, and says so.
    Unsupported(String),
    /// It failed.
    Fault(Fault),
}

/// A row that was computed once more (a rebuilt cache, a rejected draft).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// Packed row.
    pub row: usize,
    /// `[q_heads, d_v]`.
    pub o: Vec<u32>,
    /// `[q_heads]`.
    pub lse: Vec<u32>,
}

/// One side's results, packed over the sequences in problem order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// `[total_q, q_heads, d_v]`, in the output dtype.
    pub o: Tensor,
    /// `[total_q, q_heads]`, F32.
    pub lse: Tensor,
    /// `[total_q]`: rows that were computed (a prefix hit leaves some out).
    pub present: Vec<bool>,
    /// Further productions of the same rows, sorted by row, in the order they were made.
    pub again: Vec<Again>,
    /// Kernel calls.
    pub calls: usize,
}

impl Produced {
    /// The further productions of a row.
    pub fn again_of(&self, row: usize) -> &[Again] {
        let from = self.again.partition_point(|it| it.row < row);
        let to = self.again.partition_point(|it| it.row <= row);
        &self.again[from..to]
    }
}

/// A call as the driver makes it.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The call.
    pub call: Call<'a>,
    /// `rows[n]` is the packed row of the call's flattened query row `n`, or [`NO_ROW`].
    pub rows: &'a [u32],
    /// The problem's query heads that it computes: all of them, or a head-parallel rank's.
    pub heads: Range<usize>,
}

/// Sees every call before it is made.
pub type Observer<'a> = &'a mut dyn FnMut(Observed<'_>);

/// A query slot of a call that belongs to no row: padding.
pub const NO_ROW: u32 = u32::MAX;

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a kernel call: a panic there is caught and becomes a finding, so a panic hook need not report it.
pub fn in_kernel() -> bool {
    IN_KERNEL.get()
}

/// Refuses a case whose meaning is not what the kernel declares (comparing it would raise a false alarm), and ranks that it does
/// not say it can work as.
fn refuse(kernel: &dyn AttentionKernel, attributes: &Attributes<'_>) -> Result<(), Stop> {
    if let Some(context) = attributes.context.filter(|_| !kernel.context_parallel()) {
        return Err(Stop::Unsupported(format!(
            "{} context-parallel ranks, and the kernel does not say that it can",
            context.ranks
        )));
    }
    attributes.fit(&kernel.conventions()).map_err(Stop::Unsupported)
}

/// Collects rows from calls.
struct Gather<'a> {
    problem: &'a Problem,
    has_lse: bool,
    produced: Produced,
}

impl<'a> Gather<'a> {
    fn new(problem: &'a Problem, has_lse: bool) -> Self {
        let (rows, heads) = (problem.total_q(), problem.q_heads());
        let produced = Produced {
            o: Tensor::filled(problem.out_dtype, &[rows, heads, problem.d_v as usize], 0),
            lse: Tensor::filled(Dtype::F32, &[rows, heads], 0),
            present: vec![false; rows],
            again: Vec::new(),
            calls: 0,
        };
        Gather { problem, has_lse, produced }
    }

    /// Makes a call with canary-filled outputs of the given leading dims, and takes its rows.
    fn call(
        &mut self,
        leading: &[usize],
        rows: &[u32],
        run: impl FnOnce(Outputs<'_>) -> Result<(), KernelError>,
    ) -> Result<(), Stop> {
        let (heads, d_v) = (self.problem.q_heads(), self.problem.d_v as usize);
        let dtype = self.problem.out_dtype;
        let dims = |tail: &[usize]| [leading, tail].concat();
        let mut o = Tensor::filled(dtype, &dims(&[heads, d_v]), canary(dtype));
        let mut lse = Tensor::filled(Dtype::F32, &dims(&[heads]), canary(Dtype::F32));
        let shapes = [&o, &lse].map(|it| (it.dtype, it.dims.clone(), it.bits.len()));
        let outputs = Outputs { o: &mut o, lse: &mut lse };
        // A kernel is somebody's code: its panic is a finding, not the end of the run. Its outputs are dropped on a panic, so
        // nothing half-written is seen.
        IN_KERNEL.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| run(outputs)));
        IN_KERNEL.set(false);
        self.produced.calls += 1;
        match result {
            Ok(Ok(())) => {}
            Ok(Err(KernelError::Unsupported(reason))) => return Err(Stop::Unsupported(reason)),
            Ok(Err(KernelError::Failed(reason))) => return Err(Stop::Fault(Fault::Failed(reason))),
            Ok(Err(KernelError::Broken { breakage, detail })) => return Err(Stop::Fault(Fault::Broken { breakage, detail })),
            Err(payload) => return Err(Stop::Fault(Fault::Failed(format!("panicked: {}", panic_text(&*payload))))),
        }
        for ((name, after), before) in [("o", &o), ("lse", &lse)].into_iter().zip(shapes) {
            let after = (after.dtype, after.dims.clone(), after.bits.len());
            if after != before {
                let [(asked, dims, _), (dtype, given, elements)] = [before, after];
                let reason = format!("{name} is {dtype} {given:?} with {elements} elements; the call asked for {asked} {dims:?}");
                return Err(Stop::Fault(Fault::Failed(reason)));
            }
        }
        for (n, &row) in rows.iter().enumerate() {
            if row == NO_ROW {
                continue;
            }
            let row = row as usize;
            let o_row = &o.bits[n * heads * d_v..(n + 1) * heads * d_v];
            let lse_row = &lse.bits[n * heads..(n + 1) * heads];
            self.take(row, o_row, lse_row)?;
        }
        Ok(())
    }

    fn take(&mut self, row: usize, o_row: &[u32], lse_row: &[u32]) -> Result<(), Stop> {
        let d_v = self.problem.d_v as usize;
        let unwritten = |output, index| Err(Stop::Fault(Fault::Unwritten { output, index }));
        if let Some(n) = o_row.iter().position(|&bits| bits == canary(self.problem.out_dtype)) {
            let mut index = row_index(self.problem, row, n / d_v);
            index.0.push(("d", (n % d_v) as u64));
            return unwritten("o", index);
        }
        if self.has_lse
            && let Some(head) = lse_row.iter().position(|&bits| bits == canary(Dtype::F32))
        {
            return unwritten("lse", row_index(self.problem, row, head));
        }
        if self.produced.present[row] {
            self.produced.again.push(Again { row, o: o_row.to_vec(), lse: lse_row.to_vec() });
        } else {
            self.produced.present[row] = true;
            self.produced.o.row_mut(row).copy_from_slice(o_row);
            self.produced.lse.row_mut(row).copy_from_slice(lse_row);
        }
        Ok(())
    }

    fn finish(mut self) -> Produced {
        self.produced.again.sort_by_key(|it| it.row);
        self.produced
    }
}

/// Names a packed row and head: sequence id, row in the sequence, head.
pub fn row_index(problem: &Problem, row: usize, head: usize) -> Index {
    let (sequence, row) = sequence_of(problem, row);
    let id = problem.sequences[sequence].id;
    Index(vec![("seq", u64::from(id)), ("row", u64::from(row)), ("head", head as u64)])
}

/// Names element `n` of a packed row's `[q_heads, d_v]` results.
pub fn element_index(problem: &Problem, row: usize, n: usize) -> Index {
    let d_v = problem.d_v as usize;
    let mut index = row_index(problem, row, n / d_v);
    index.0.push(("d", (n % d_v) as u64));
    index
}

/// The sequence index and the row in it of a packed row.
///
/// # Panics
/// When there is no such row.
pub fn sequence_of(problem: &Problem, row: usize) -> (usize, u32) {
    let mut rest = row;
    for (n, sequence) in problem.sequences.iter().enumerate() {
        if rest < sequence.q as usize {
            return (n, rest as u32);
        }
        rest -= sequence.q as usize;
    }
    panic!("row {row} of {}", problem.total_q())
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a payload that is no text").to_owned()
}

/// Copies `count` rows of a packed tensor into another tensor whose row length is the same.
fn copy_rows(from: &Tensor, first: usize, count: usize, stride: usize, to: &mut Tensor, at: usize) {
    to.bits[at * stride..(at + count) * stride].copy_from_slice(&from.bits[first * stride..(first + count) * stride]);
}

/// Elements in one row of q, k and v.
fn strides(inputs: &Inputs) -> [usize; 3] {
    [inputs.q.stride(), inputs.k.stride(), inputs.v.stride()]
}
