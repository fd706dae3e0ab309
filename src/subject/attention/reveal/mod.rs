//! The orders in which a kernel adds, found from outside by [`reveal`](crate::reveal).
//!
//! **Over keys**, in the product with V: all scores are equal, so that every weight is 1 and nothing is rescaled; masks stand in V, and the
//! result times the number of keys is the count. KV blocks show where they are summed by themselves or walked backwards, splits always.
//! Partial results that are merged by their `lse` are found first, and asked each alone (`parts`).
//!
//! **Over head-dim lanes**, in q.k: masks stand in the key, and `lse` of one key is its score.
//!
//! **The row sum's order is not reached**: weights are results of an exponential, at most 1 beside the largest, and no mask swamps
//! them.
//!
//! An order that depends on values is refused: see there for what is checked.

mod finishing;
mod order;
mod parting;
mod parts;
mod plan;
mod reading;
mod scores;
mod stand;
mod values;
mod weights;

pub use finishing::{Division, Finishing};
pub use order::{Order, Unknown};
pub use parting::{Parting, parting};
pub use plan::Plan;
pub use reading::{Reading, merge_words, readings};

use super::Case;
use super::capabilities::Format;
use super::implementation::Implementation;
use super::probe::terms::Terms;
use crate::finding::Path;
use crate::number::Dtype;
use stand::Stand;

/// Which sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Product {
    /// Over keys, weights times values.
    Pv,
    /// Over head-dim lanes, query times key.
    Qk,
}

impl Product {
    /// Short, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Product::Pv => "PV",
            Product::Qk => "QK",
        }
    }
}

/// What is asked of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Numbers of keys; empty is [`KEYS`].
    pub kv: Vec<u32>,
    /// Storage; `None` is the widest that the kernel takes.
    pub dtype: Option<Dtype>,
    /// Lanes of q, k and v; `None` is 16, or what it takes.
    pub head_dim: Option<u32>,
    /// Plans; empty is all.
    pub plans: Vec<Plan>,
}

/// Keys that are asked about by default: past two blocks of 128 and one of 176, with a rest.
pub const KEYS: u32 = 300;

/// One sum under one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The plan.
    pub plan: Plan,
    /// The sum.
    pub product: Product,
    /// Keys of the sequence.
    pub kv: u32,
    /// What was found.
    pub answer: Result<Order, Unknown>,
}

/// All orders of a kernel that could be found.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders {
    /// As the kernel was named.
    pub kernel: String,
    /// Formats asked in.
    pub format: Format,
    /// Lanes of q and k, and of v.
    pub head_dims: (u32, u32),
    /// One for each plan, length and sum.
    pub asked: Vec<Asked>,
}

/// Asks a kernel for its orders. `progress` hears what is asked next.
///
/// # Errors
/// In words, when the options ask for what the kernel does not declare.
pub fn orders(name: &str, kernel: &Implementation, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Orders, String> {
    let terms = Terms::of(kernel);
    let format = format(&terms, options.dtype)?;
    let head_dims = head_dims(&terms, options.head_dim)?;
    let plans = if options.plans.is_empty() { Plan::ALL.to_vec() } else { options.plans.clone() };
    let lengths = if options.kv.is_empty() { vec![KEYS] } else { options.kv.clone() };
    let mut asked = Vec::new();
    for &plan in &plans {
        for &kv in &lengths {
            progress(&format!("{plan}, {kv} keys"));
            let answer = plan.case(&terms, format, head_dims, kv).map_err(Unknown::NotAsked);
            let answer = answer.and_then(|(case, row)| of_case(kernel, &case, plan.path(), row, 0));
            asked.push(Asked { plan, product: Product::Pv, kv, answer });
        }
    }
    // Pages, padding and company leave a dot product alone: one plan for each path.
    for plan in
        [Plan::Prefill, Plan::DenseRight, Plan::Decode, Plan::ContiguousDecode].into_iter().filter(|it| plans.contains(it))
    {
        let taken = asked.iter().any(|it| it.product == Product::Qk && it.plan.path() == plan.path() && it.answer.is_ok());
        if !taken {
            progress(&format!("{plan}, {} head-dim lanes", head_dims.0));
            let answer = plan.case(&terms, format, head_dims, 1).map_err(Unknown::NotAsked);
            let answer = answer.and_then(|(case, row)| {
                let mut stand = Stand::new(&*kernel.kernel, &case, plan.path(), row, 0).map_err(Unknown::NotAsked)?;
                let numerics = kernel.kernel.numerics_for(format.storage);
                order::over_lanes(&mut stand, numerics.as_ref(), kernel.kernel.conventions().lse_base)
            });
            asked.push(Asked { plan, product: Product::Qk, kv: 1, answer });
        }
    }
    Ok(Orders { kernel: name.to_owned(), format, head_dims, asked })
}

/// The order over keys by which a path makes one row (packed, as in [`Produced`](super::drive::Produced)) and query head of a case: its
/// lengths, plans, heads, head dims, formats and mask, with values of our own. Softcap, sinks and ALiBi are left out, since scores must be
/// equal. Of a row that is made several times it is the first making.
///
/// # Errors
/// Whatever keeps the order from being established.
pub fn of_case(kernel: &Implementation, case: &Case, path: Path, row: usize, head: usize) -> Result<Order, Unknown> {
    let mut stand = Stand::new(&*kernel.kernel, case, path, row, head).map_err(Unknown::NotAsked)?;
    let numerics = kernel.kernel.numerics_for(case.problem.dtype);
    order::over_keys(&mut stand, numerics.as_ref())
}

/// The format that counts furthest, or the one asked for: results as wide as the kernel gives them.
fn format(terms: &Terms<'_>, dtype: Option<Dtype>) -> Result<Format, String> {
    let mut formats = terms.formats();
    formats.retain(|format| dtype.is_none_or(|dtype| format.storage == dtype));
    // Stable: the usual order of storages where outputs are alike.
    formats.sort_by_key(|format| format.out != Dtype::F32);
    let wanted = dtype.map_or("any format".to_owned(), |dtype| dtype.to_string());
    formats.first().copied().ok_or_else(|| format!("the kernel does not declare {wanted}"))
}

fn head_dims(terms: &Terms<'_>, d: Option<u32>) -> Result<(u32, u32), String> {
    let Some(d) = d else { return Ok(terms.head_dims()) };
    match &terms.capabilities.head_dims {
        Some(dims) if !dims.allow(d, d) => Err(format!("the kernel takes head dims {dims}, not {d}")),
        _ => Ok((d, d)),
    }
}
