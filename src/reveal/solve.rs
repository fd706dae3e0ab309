//! From counts to a tree.

use super::Refusal;
use super::probe::Prober;
use crate::tree::{Ordered, Tree};
use std::collections::BTreeMap;

/// A subtree as it grows from its first leaf towards the root.
struct Growing {
    first: usize,
    node: Ordered,
    /// Children of the node at the top, if leaves of that node are still outside of this subtree.
    open: Option<Vec<Ordered>>,
    /// Leaves under the node at the top, those outside included.
    span: usize,
    /// What joins on the way up: leaves that share a count, largest count first.
    groups: Vec<(usize, Vec<usize>)>,
    /// Whether leaves are asked from the last one on.
    backward: bool,
}

/// The tree of a sum.
pub(super) fn solve(prober: &mut Prober<'_>) -> Result<Tree, Refusal> {
    let leaves = prober.leaves;
    // A stack of its own: a chain is as deep as it has leaves.
    let mut stack = vec![grow(prober, (0..leaves).collect(), false)?];
    loop {
        let top = stack.len() - 1;
        if let Some((_, group)) = stack[top].groups.last() {
            // Where all leaves join at once, the other end is likelier to be where the sum begins.
            let backward = stack[top].backward != (stack[top].groups.len() == 1 && stack[top].span == 1);
            let group = group.clone();
            stack.push(grow(prober, group, backward)?);
            continue;
        }
        let Some(done) = stack.pop() else { continue };
        match stack.last_mut() {
            Some(below) => join(below, done)?,
            None if done.span == leaves && done.open.is_none() => return Ok(done.node.tree),
            None => {
                return Err(Refusal::NotATree { first: done.first, second: done.first, counted: done.span, expected: leaves });
            }
        }
    }
}

/// Asks the first leaf of a set against all others.
fn grow(prober: &mut Prober<'_>, mut leaves: Vec<usize>, backward: bool) -> Result<Growing, Refusal> {
    let first = if backward { leaves.pop() } else { Some(leaves.remove(0)) }.unwrap_or_default();
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for leaf in leaves {
        groups.entry(prober.under(first, leaf)?).or_default().push(leaf);
    }
    Ok(Growing {
        first,
        node: Ordered::leaf(first as u32),
        open: None,
        span: 1,
        groups: groups.into_iter().rev().collect(),
        backward,
    })
}

/// Joins a finished group to the subtree that it meets.
fn join(below: &mut Growing, done: Growing) -> Result<(), Refusal> {
    let Some((count, group)) = below.groups.pop() else { return Ok(()) };
    let misfit = |expected| Refusal::NotATree { first: below.first, second: done.first, counted: count, expected };
    let children = match done.open {
        None => vec![done.node],
        Some(children) if done.span == count => children,
        Some(_) => return Err(misfit(done.span)),
    };
    let held = below.node.leaves + group.len();
    let mut all = vec![std::mem::replace(&mut below.node, Ordered::leaf(0))];
    all.extend(children);
    match count {
        _ if count == held => below.node = Ordered::node(all),
        // More than is here, and nothing left to come: the rest of this node stands outside.
        _ if count > held && below.groups.is_empty() => {
            below.node.leaves = held;
            below.open = Some(all);
        }
        _ => return Err(misfit(held)),
    }
    below.span = count;
    Ok(())
}
