//! The order of one row's sums: asked, checked, and put together.

use super::finishing::{Finishing, finishing};
use super::parts::{Merges, Merging, partition};
use super::scores::Scores;
use super::stand::Stand;
use super::values::Values;
use super::weights::Weights;
use crate::number::Dtype;
use crate::reveal::{Arithmetic, Refusal, Revealed, reveal};
use crate::source::{Choose, Source, Stream};
use crate::subject::attention::conventions::LseBase;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::preset::ALIGNED;
use crate::tree::Tree;
use std::fmt;

/// An order that was found, and how far it is established.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Over key positions, or head-dim lanes; in [canonical](Tree::canonical) form.
    pub tree: Tree,
    /// Over keys: the sums that are normalised before they are merged, in the order of their first keys; one where nothing is merged.
    pub parts: Vec<Tree>,
    /// The order of merges, over numbers of parts.
    pub merges: Option<Tree>,
    /// Pairs that were asked to find it.
    pub probes: u64,
    /// Further pairs, all as the tree predicts.
    pub confirmed: u64,
    /// Draws of random values, each equal bit for bit, and each run twice.
    pub draws: u32,
    /// Runs of the plan in all; one run carries several probes.
    pub runs: u64,
    /// How nodes round.
    pub arithmetic: Arithmetic,
    /// Other arithmetics that fit as well.
    pub indistinct: usize,
    /// Over keys: what becomes of a finished sum.
    pub finishing: Option<Finishing>,
    /// What could not be established.
    pub open: Vec<String>,
}

impl Order {
    /// The terms, ascending.
    pub fn terms(&self) -> Vec<u32> {
        let mut terms = self.tree.leaves();
        terms.sort_unstable();
        terms
    }
}

/// Why there is no order.
#[derive(Clone, Debug, PartialEq)]
pub enum Unknown {
    /// The kernel or the plan cannot be asked.
    NotAsked(String),
    /// It was asked, and the answers do not establish a tree.
    Refused(Box<Refusal>),
    /// One value among zeros comes back as no quotient that is known here.
    Division,
}

impl From<Refusal> for Unknown {
    fn from(refusal: Refusal) -> Self {
        Unknown::Refused(Box::new(refusal))
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::NotAsked(reason) => f.write_str(reason),
            Unknown::Refused(refusal) => refusal.fmt(f),
            Unknown::Division => f.write_str(
                "one value among zeros, at equal scores, does not come back as its quotient by the number of keys under any division \
                 known here (quotient, reciprocal, weights divided first; f32 or f64; to nearest or cut off), so that nothing can be counted",
            ),
        }
    }
}

/// Accumulators that masks are made for: the declared one, or the usual ones in turn.
fn accumulators(declared: Option<Dtype>) -> Vec<Dtype> {
    declared.map_or(vec![Dtype::F32, Dtype::F16], |it| vec![it])
}

/// Asks with the masks of each accumulator until one cancels and counts.
fn first_that_counts(
    accumulators: Vec<Dtype>,
    mut ask: impl FnMut(Dtype) -> Result<Revealed, Refusal>,
) -> Result<Revealed, Refusal> {
    let mut last = Err(Refusal::NoLeaves);
    for accumulator in accumulators {
        last = ask(accumulator);
        if !matches!(last, Err(Refusal::NotACount { .. } | Refusal::SignsDisagree { .. })) {
            break;
        }
    }
    last
}

/// The order over keys in the product with V.
pub(super) fn over_keys(stand: &mut Stand<'_>, declared: Option<&Numerics>) -> Result<Order, Unknown> {
    let all = Weights::all(stand);
    let finishing = finishing(stand, &all, declared)?;
    // Also where results look undivided: partials of equal length can merge without a rounding error.
    let parts = partition(stand)?;
    let merges = (parts.len() > 1).then(|| merged(stand, parts, declared));
    match (finishing, merges) {
        (_, Some(Ok(order))) => Ok(order),
        (Some(finishing), _) => {
            let revealed = sum_of(stand, &all, finishing, declared.map(|it| it.value.acc))?;
            Ok(plain(revealed, all.carriers(), finishing, stand.runs))
        }
        (None, Some(Err(unknown))) => Err(unknown),
        (None, None) => Err(Unknown::Division),
    }
}

fn sum_of(
    stand: &mut Stand<'_>,
    weights: &Weights,
    finishing: Finishing,
    accumulator: Option<Dtype>,
) -> Result<Revealed, Refusal> {
    first_that_counts(accumulators(accumulator), |accumulator| reveal(&mut Values::new(stand, weights, finishing, accumulator)))
}

/// One sum, nothing merged.
fn plain(revealed: Revealed, keys: &[u32], finishing: Finishing, runs: u64) -> Order {
    let Revealed { tree, probes, established } = revealed;
    let tree = tree.map(&|leaf| keys[leaf as usize]);
    Order {
        parts: vec![tree.clone()],
        tree,
        merges: None,
        probes,
        confirmed: established.confirmed,
        draws: established.draws,
        runs,
        arithmetic: established.arithmetic,
        indistinct: established.indistinct.len(),
        finishing: Some(finishing),
        open: Vec::new(),
    }
}

/// Draws of values over all parts at once.
const DRAWS: u32 = 32;

/// Partial results, each asked alone, and the order in which they are merged.
fn merged(stand: &mut Stand<'_>, parts: Vec<Vec<u32>>, declared: Option<&Numerics>) -> Result<Order, Unknown> {
    let accumulator = declared.map(|it| it.value.acc);
    let mut orders = Vec::with_capacity(parts.len());
    for keys in &parts {
        let weights = Weights::only(keys.clone());
        let finishing = finishing(stand, &weights, declared)?.ok_or(Unknown::Division)?;
        let revealed = sum_of(stand, &weights, finishing, accumulator)?;
        orders.push((plain(revealed, keys, finishing, 0), finishing));
    }
    let mut open = Vec::new();
    let merging = || Merging::new(declared.unwrap_or(&ALIGNED));
    let representatives = parts.iter().map(|keys| keys[0]).collect();
    let (mut probes, mut confirmed) = (0, 0);
    let merges = match reveal(&mut Merges { stand, keys: representatives, merging: merging() }) {
        Ok(revealed) => {
            (probes, confirmed) = (revealed.probes, revealed.established.confirmed);
            revealed.tree
        }
        Err(refusal) => match refusal.candidate() {
            // Each partial is established, and the probes agree on the merges; how these round is another matter.
            Some(tree) if matches!(refusal, Refusal::NotReplayed { .. } | Refusal::NotTelling { .. }) => {
                open.push(format!("the order of the merges: the probes agree on it, but {refusal}"));
                tree.clone()
            }
            _ => return Err(refusal.into()),
        },
    };
    let trees: Vec<Tree> = orders.iter().map(|(order, _)| order.tree.clone()).collect();
    let merging = merging();
    let replayed = replay_merged(stand, &merging, &merges, &orders)?;
    if replayed < DRAWS {
        let assumed = if declared.is_some() { "declared" } else { "of the reference kernel, none being declared" };
        open.push(format!(
            "the merges' arithmetic: with the one {assumed} the whole tree does not give the bits of random values (draw {replayed}), \
             though each partial does; the tree is not replayed as a whole"
        ));
    }
    let first = &orders[0].0;
    Ok(Order {
        tree: graft(&merges, &trees).canonical(),
        parts: trees,
        merges: Some(merges),
        probes: probes + orders.iter().map(|(it, _)| it.probes).sum::<u64>(),
        confirmed: confirmed + orders.iter().map(|(it, _)| it.confirmed).sum::<u64>(),
        draws: orders.iter().map(|(it, _)| it.draws).sum::<u32>() + if replayed == DRAWS { DRAWS } else { 0 },
        runs: stand.runs,
        arithmetic: first.arithmetic,
        indistinct: first.indistinct,
        finishing: first.finishing,
        open,
    })
}

/// The tree over parts with each part's own tree in its place.
fn graft(tree: &Tree, parts: &[Tree]) -> Tree {
    let of = |children: &[Tree]| children.iter().map(|child| graft(child, parts)).collect::<Vec<_>>();
    match tree {
        Tree::Leaf(n) => parts[*n as usize].clone(),
        Tree::Sum(children) => Tree::sum(of(children)).unwrap_or(Tree::Leaf(0)),
        Tree::Fused(children) => Tree::fused(of(children)).unwrap_or(Tree::Leaf(0)),
    }
}

/// Runs random values of all keys through the plan and through the whole tree; how many draws gave the same bits before one did not.
fn replay_merged(stand: &mut Stand<'_>, merging: &Merging, merges: &Tree, orders: &[(Order, Finishing)]) -> Result<u32, Refusal> {
    let keys = stand.keys();
    Weights::all(stand).put(stand);
    let (inputs, output) = (stand.inputs(), stand.output());
    let precision = inputs.precision();
    for draw in 0..DRAWS {
        let mut source = Stream::new(0x6d65_7267_6564, u64::from(draw));
        let mut values = vec![0.0f32; keys.len()];
        // Pairs that cancel beside small terms: what is left shows every rounding.
        for pair in source.permutation(keys.len()).chunks(2) {
            let significand = (1u64 << (precision - 1)) + source.below(1 << (precision - 1));
            let value = (significand as f64 * 2f64.powi(source.below(9) as i32 - precision as i32)) as f32;
            match *pair {
                [a, b] if source.chance(7, 8) => (values[a as usize], values[b as usize]) = (value, -value),
                _ => pair.iter().for_each(|&place| values[place as usize] = value / 16.0),
            }
        }
        stand.clear_values();
        for (key, &value) in keys.clone().zip(&values) {
            stand.set_value(key, 0, value);
        }
        let (first, second) = (stand.run()?.o[0], stand.run()?.o[0]);
        let value = |key: u32| values[(key - keys.start) as usize];
        let (merged, _) = merging.merged(merges, &|part| {
            let (order, finishing) = &orders[part as usize];
            merging.partial(finishing, order.arithmetic.sum(&order.tree, &value))
        });
        if first != second || first != merging.stored(output, merged) {
            return Ok(draw);
        }
    }
    Ok(DRAWS)
}

/// The order over head-dim lanes in a score.
pub(super) fn over_lanes(stand: &mut Stand<'_>, declared: Option<&Numerics>, base: LseBase) -> Result<Order, Unknown> {
    if !stand.has_lse() {
        return Err(Unknown::NotAsked("it gives no lse to read a score from".to_owned()));
    }
    let revealed = first_that_counts(accumulators(declared.map(|it| it.score.acc)), |accumulator| {
        let mut numerics = *declared.unwrap_or(&ALIGNED);
        numerics.score.acc = accumulator;
        reveal(&mut Scores::new(stand, numerics, base))
    })?;
    let Revealed { tree, probes, established } = revealed;
    Ok(Order {
        tree,
        parts: Vec::new(),
        merges: None,
        probes,
        confirmed: established.confirmed,
        draws: established.draws,
        runs: stand.runs,
        arithmetic: established.arithmetic,
        indistinct: established.indistinct.len(),
        finishing: None,
        open: Vec::new(),
    })
}
