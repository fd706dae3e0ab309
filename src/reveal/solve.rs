//! From counts to a tree.
//!
//! Two kinds of multi-term nodes show in two ways. In one that *swamps* (it cuts off what is far below its largest term), `M` takes
//! the units of all children with it: `l` counts the whole node. In one that is *exact* and rounds at its end, the masks meet before
//! anything is rounded, and only the units that stood under the same child as a mask are lost: `l` is the sum of two children.

use super::Refusal;
use super::probe::Prober;
use crate::tree::{Ordered, Tree};
use std::collections::BTreeMap;

/// What multi-term nodes lose when two masks meet in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The units of all children.
    Swamped,
    /// The units of the two children that hold the masks.
    Exact,
}

/// What the probes say.
pub(super) struct Solved {
    pub(super) tree: Tree,
    /// `None` where no node has more than two children.
    pub(super) loss: Option<Loss>,
}

/// A subtree as it grows from its first leaf towards the root.
struct Growing {
    first: usize,
    /// Children of the node at the top; the first one holds the first leaf. One child: that is the top.
    top: Vec<Ordered>,
    /// Leaves under the top.
    leaves: usize,
    /// Leaves of the node at the top, those outside of this set included, where it swamps; else as `leaves`.
    span: usize,
    /// What joins on the way up: leaves that share a count, largest count first.
    groups: Vec<(usize, Vec<usize>)>,
    /// Whether the set was asked from its last leaf.
    backward: bool,
}

impl Growing {
    /// Asks the first leaf of a set, or its last, against all others.
    fn start(prober: &mut Prober<'_>, mut set: Vec<usize>, backward: bool) -> Result<Self, Refusal> {
        let first = if backward { set.pop() } else { Some(set.remove(0)) }.unwrap_or_default();
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for leaf in set {
            groups.entry(prober.under(first, leaf)?).or_default().push(leaf);
        }
        let groups = groups.into_iter().rev().collect();
        Ok(Growing { first, top: vec![Ordered::leaf(first as u32)], leaves: 1, span: 1, groups, backward })
    }

    /// The top as one subtree.
    fn close(&mut self) -> Ordered {
        Ordered::node(std::mem::take(&mut self.top))
    }
}

/// The tree of a sum.
pub(super) fn solve(prober: &mut Prober<'_>) -> Result<Solved, Refusal> {
    let all = prober.leaves;
    let mut loss = None;
    // A stack of its own: a chain may be as deep as it has leaves.
    let mut stack = vec![Growing::start(prober, (0..all).collect(), false)?];
    loop {
        let Some(top) = stack.last() else { return Err(Refusal::NoLeaves) };
        if let Some((_, group)) = top.groups.last() {
            // Where all leaves join at once, the sum is likelier to begin at the other end.
            let backward = top.backward != (top.groups.len() == 1 && top.leaves == 1);
            let next = Growing::start(prober, group.clone(), backward)?;
            stack.push(next);
            continue;
        }
        let Some(mut done) = stack.pop() else { return Err(Refusal::NoLeaves) };
        match stack.last_mut() {
            Some(below) => join(prober, below, done, &mut loss)?,
            None if done.span == all => return Ok(Solved { tree: done.close().tree, loss }),
            None => return Err(misfit(done.first, done.first, done.span, all)),
        }
    }
}

fn misfit(first: usize, second: usize, counted: usize, expected: usize) -> Refusal {
    Refusal::NotATree { first, second, counted, expected }
}

/// Joins a finished group to the subtree that it meets.
fn join(prober: &mut Prober<'_>, below: &mut Growing, mut done: Growing, loss: &mut Option<Loss>) -> Result<(), Refusal> {
    let Some((count, group)) = below.groups.pop() else { return Ok(()) };
    let held = below.leaves + group.len();
    let refused = Err(misfit(below.first, done.first, count, held));
    let mut seen = None;
    let open = done.span > done.leaves;
    if open && done.span != count {
        return refused;
    }
    if count >= held {
        // One more addition; or a node that swamps, of which more stands in the group, or outside of both.
        let more = if open { std::mem::take(&mut done.top) } else { vec![done.close()] };
        if open || count > held {
            seen = Some(Loss::Swamped);
        }
        if count > held && !below.groups.is_empty() {
            return refused;
        }
        let so_far = below.close();
        below.top = vec![so_far];
        below.top.extend(more);
    } else {
        if open {
            return refused;
        }
        // Fewer than stand here: an exact node, in which each leaf of the group is lost with its own child only. How large that
        // is shows without the rest of the subtree.
        seen = Some(Loss::Exact);
        let child = prober.among(below.first, done.first, &group)? - 1;
        let more = if child == group.len() { vec![done.close()] } else { done.top };
        if more.iter().any(|part| part.leaves != child) {
            return refused;
        }
        if count == below.leaves + child {
            let so_far = below.close();
            below.top = vec![so_far];
        } else if below.top.len() < 2 || count != below.top[0].leaves + child {
            return refused;
        }
        below.top.extend(more);
    }
    if seen.is_some() {
        if loss.is_some() && *loss != seen {
            return refused;
        }
        *loss = seen;
    }
    below.leaves = held;
    below.span = count.max(held);
    Ok(())
}
