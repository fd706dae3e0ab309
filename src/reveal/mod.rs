//! The order of a sum, found from outside: which summation tree a black box adds its terms in.
//!
//! The way is that of FPRev (Xie, Gao, Wang, Xue, "FPRev: Revealing the Order of Floating-Point Summation", USENIX ATC 2025). All
//! terms are a small unit, term `i` is `M` and term `j` is `-M`, with `M` so large that every sum of units added to it vanishes. What
//! meets `M` before the two cancel is lost, the rest survives: with `k` units left of `n` terms, `l = n - k` terms stand under the
//! lowest node that holds both `i` and `j`. The terms that share the same `l` with a first term are the subtrees on its way to the
//! root, smallest first, and each is asked in the same way. Where `l` is not the number of terms that have met so far, they meet in a
//! multi-term (fused) node: more, where the node cuts off what is small beside its largest term; fewer, where it is exact. A running sum of `n` terms takes `n - 1` probes, a balanced tree
//! `n/2 log2 n`, the worst order all `n (n - 1) / 2`.
//!
//! # What is checked
//!
//! A tree that is merely consistent is not believed.
//!
//! - Each probe runs four times: `(i, j)` and `(j, i)`, each twice. A sum that changes from call to call, or masks that do not swamp,
//!   differ there.
//! - A measurement is a whole count, with `l` in `2..=n`. Nothing is rounded into one.
//! - Subtrees must nest, and the counts of all levels add up.
//! - As many further pairs as there are terms are asked, half of them with only some terms present and the others 0: the tree must
//!   predict each. An order that skips zeros moves there.
//! - The tree is evaluated on random values, cancelling ones and zeros among them, and must give the bits of the sum in every draw,
//!   under one of the arithmetics that the sum may have ([`Arithmetic`]). Draws count only where another order gives other bits. An order
//!   that depends on the values (sorting), a compensated or an exact sum end here, if not before.
//!
//! # What is not established
//!
//! Addition commutes: a tree says which partial sums meet, not which stood left of the plus. Trees are given in
//! [canonical](Tree::canonical) form. Partial sums in f64 are exact for all that is probed and drawn, so that their order does not show: what
//! is summed in f64 before it is rounded is one multi-term node. Orders that depend on something else than the values (a batch size, a tuning table) hold for the
//! call that was asked.
//!
//! ```
//! use lastbit::number::Dtype;
//! use lastbit::reveal::{Mask, Refusal, Summation, reveal};
//!
//! /// Even terms, then odd ones, in f32.
//! struct TwoLanes(usize);
//!
//! impl TwoLanes {
//!     fn sum(&self, values: &[f32]) -> f32 {
//!         let lane = |first| values.iter().skip(first).step_by(2).fold(0.0f32, |sum, x| sum + x);
//!         lane(0) + lane(1)
//!     }
//! }
//!
//! impl Summation for TwoLanes {
//!     fn leaves(&self) -> usize {
//!         self.0
//!     }
//!     fn mask(&self) -> Mask {
//!         Mask::of(Dtype::F32, Dtype::F32, Dtype::F32)
//!     }
//!     fn run(&mut self, values: &[f32]) -> Result<u32, Refusal> {
//!         Ok(self.sum(values).to_bits())
//!     }
//! }
//!
//! let revealed = reveal(&mut TwoLanes(6))?;
//! assert_eq!(revealed.tree.to_string(), "(0 2 4 (1 3 5))");
//! # Ok::<(), Refusal>(())
//! ```

mod arithmetic;
mod confirm;
mod draw;
mod mask;
mod probe;
mod refusal;
mod replay;
mod solve;

pub use arithmetic::{Accumulator, Arithmetic, Fused};
pub use mask::Mask;
pub use refusal::{Pair, Refusal};

use crate::tree::Tree;

/// A sum that can be asked from outside.
///
/// [`leaves`](Summation::leaves), [`mask`](Summation::mask) and [`run`](Summation::run) are enough for a plain sum of values. A kernel
/// that does more than add (divides by a row sum, reads its result from another output) overrides [`probe`](Summation::probe), and
/// [`evaluate`](Summation::evaluate) to match.
pub trait Summation {
    /// Terms of the sum.
    fn leaves(&self) -> usize;

    /// The masks and the unit that suit its formats, and how many terms they reach in one probe. With more leaves than that, probes are
    /// asked in parts, the other terms 0.
    fn mask(&self) -> Mask;

    /// Runs the sum with `M` at `plus`, `-M` at `minus`, the unit at the other leaves of `present` (`None`: all of them) and 0
    /// elsewhere, and gives the number of units that survive: result over unit, **as measured**, never rounded to a count.
    ///
    /// Where the result was divided by something on the way out (a row sum that is no power of two), give the count whose quotient
    /// rounds to exactly these bits, and the plain quotient, which is then refused, where there is none.
    ///
    /// # Errors
    /// [`Refusal::Call`] if the sum cannot be run.
    fn probe(&mut self, plus: usize, minus: usize, present: Option<&[bool]>) -> Result<f64, Refusal> {
        let mask = self.mask();
        let values: Vec<f32> = (0..self.leaves())
            .map(|leaf| match leaf {
                _ if leaf == plus => mask.large as f32,
                _ if leaf == minus => -mask.large as f32,
                _ if present.is_none_or(|present| present[leaf]) => mask.unit as f32,
                _ => 0.0,
            })
            .collect();
        Ok(self.mask().output.to_f64(self.run(&values)?) / mask.unit)
    }

    /// Runs the sum on these values, one for each leaf, each exact in the [mask](Mask)'s `inputs`; gives the result's bit pattern in its
    /// `output`.
    ///
    /// # Errors
    /// [`Refusal::Call`] if the sum cannot be run.
    fn run(&mut self, values: &[f32]) -> Result<u32, Refusal>;

    /// What [`run`](Summation::run) gives if the sum has this tree and this arithmetic.
    fn evaluate(&self, tree: &Tree, arithmetic: Arithmetic, values: &[f32]) -> u32 {
        self.mask().output.round_f64(arithmetic.sum(tree, &|leaf| values[leaf as usize]))
    }

    /// The arithmetics that it may have; the first that reproduces all draws is reported. All that are known, by default.
    fn arithmetics(&self) -> Vec<Arithmetic> {
        Arithmetic::ALL.to_vec()
    }
}

/// A tree that was found, and what vouches for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Revealed {
    /// The order, in [canonical](Tree::canonical) form.
    pub tree: Tree,
    /// Pairs of leaves that were asked to find it. Each was run four times: both signs, twice.
    pub probes: u64,
    /// What was checked afterwards.
    pub established: Established,
}

/// What vouches for a tree beyond the probes that it was found by.
#[derive(Clone, Debug, PartialEq)]
pub struct Established {
    /// The arithmetic under which the tree gives the bits of the sum, the first of those that do.
    pub arithmetic: Arithmetic,
    /// The others that do as well: what the replay could not tell apart.
    pub indistinct: Vec<Arithmetic>,
    /// Further pairs that were asked, all as the tree predicts.
    pub confirmed: u64,
    /// Draws of values that the tree was evaluated on, all equal bit for bit.
    pub draws: u32,
    /// Of those, the draws in which another order would have given other bits.
    pub telling: u32,
    /// Runs of the sum in all.
    pub runs: u64,
}

/// Finds the order of a sum, and checks it.
///
/// # Errors
/// Whatever keeps the order from being established; [`Refusal::candidate`] is the tree that the probes agreed on, if they did.
pub fn reveal(sum: &mut dyn Summation) -> Result<Revealed, Refusal> {
    let mut prober = probe::Prober::new(sum)?;
    let solved = solve::solve(&mut prober)?;
    let probes = prober.probes;
    confirm::confirm(&mut prober, &solved)?;
    let confirmed = prober.probes - probes;
    let probed = prober.runs;
    let tree = solved.tree;
    let mut established = replay::replay(prober.sum, &tree)?;
    established.confirmed = confirmed;
    established.runs += probed;
    Ok(Revealed { tree, probes, established })
}
