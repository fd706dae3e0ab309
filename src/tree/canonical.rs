//! One form for all trees that differ in operands' places alone.

use super::Tree;
use std::cmp::Reverse;

/// A tree in canonical form, with what orders it among its siblings.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) tree: Tree,
    pub(crate) leaves: usize,
    least: u32,
}

impl Ordered {
    pub(crate) fn leaf(n: u32) -> Self {
        Ordered { tree: Tree::Leaf(n), leaves: 1, least: n }
    }

    /// The node over these: an addition of two, or a multi-term addition of more.
    pub(crate) fn node(mut children: Vec<Ordered>) -> Self {
        children.sort_by_key(|child| (Reverse(child.leaves), child.least));
        let leaves = children.iter().map(|child| child.leaves).sum();
        let least = children.iter().map(|child| child.least).min().unwrap_or_default();
        let add = if children.len() == 2 { Tree::sum } else { Tree::fused };
        let tree = add(children.into_iter().map(|child| child.tree).collect::<Vec<_>>());
        Ordered { tree: tree.unwrap_or(Tree::Leaf(0)), leaves, least }
    }

    fn of(tree: &Tree) -> Self {
        match tree {
            Tree::Leaf(n) => Ordered::leaf(*n),
            Tree::Sum(children) => {
                let nodes = children.iter().map(Ordered::of);
                nodes.reduce(|sum, x| Ordered::node(vec![sum, x])).unwrap_or(Ordered::leaf(0))
            }
            Tree::Fused(children) => Ordered::node(children.iter().map(Ordered::of).collect()),
        }
    }
}

impl Tree {
    /// The same order with the operands of each addition in a fixed order: the one with more terms first, then the one with the
    /// least term. Addition commutes, so that trees with one canonical form give one result; a multi-term addition of two terms is an
    /// addition. Nodes that are not first have at most half of the terms, so that chains come out flat.
    ///
    /// A `Fused` node that is not exact in f64 may change in [`Tree::evaluate`].
    #[must_use]
    pub fn canonical(&self) -> Tree {
        Ordered::of(self).tree
    }
}
