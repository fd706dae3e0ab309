//! What a tree says about a kernel: which order, in which blocks, walked in which direction.
//!
//! Nothing is guessed from looks: the trees of the orders that kernels have are built over the same terms, and those that are equal are
//! what the tree may be read as. Several can be: a running sum from the first key to the last has the same tree whatever its blocks.

use crate::subject::attention::numerics::Order;
use crate::subject::attention::recipe::{Cell, cell_tree};
use crate::tree::Tree;
use std::fmt;
use std::ops::Range;

/// A way to read a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Order inside a block.
    pub order: Order,
    /// Terms in a block; `None` if all are in one.
    pub block: Option<u32>,
    /// Blocks are added from the last to the first.
    pub backward: bool,
}

/// Widest multi-term addition that is looked for.
const MAX_FUSED: u32 = 32;

/// All ways to read a tree over consecutive terms; none if it is no order known here, or its terms are not consecutive.
pub fn readings(tree: &Tree) -> Vec<Reading> {
    let mut leaves = tree.leaves();
    leaves.sort_unstable();
    let (Some(&first), Some(&last)) = (leaves.first(), leaves.last()) else { return Vec::new() };
    if (last - first) as usize + 1 != leaves.len() {
        return Vec::new();
    }
    let (terms, tree) = (first..last + 1, tree.canonical());
    let lanes = (1..=6).map(|n| Order::Lanes(1 << n));
    let fused = (2..=MAX_FUSED).map(Order::Fused);
    let orders: Vec<Order> = [Order::Sequential, Order::Pairwise].into_iter().chain(lanes).chain(fused).collect();
    let whole = orders.iter().map(|&order| Reading { order, block: None, backward: false });
    let mut readings: Vec<Reading> = whole.filter(|it| it.tree(&terms) == Some(tree.clone())).collect();
    if readings.is_empty() {
        for block in blocks(&tree).into_iter().filter(|&block| (block as usize) < leaves.len()) {
            for backward in [false, true] {
                let here = orders.iter().map(|&order| Reading { order, block: Some(block), backward });
                readings.extend(here.filter(|it| it.tree(&terms) == Some(tree.clone())));
            }
        }
    }
    readings
}

/// Block lengths that a tree may have: of runs of terms, and of what is added whole.
fn blocks(tree: &Tree) -> Vec<u32> {
    let whole = [tree.clone()];
    let items = match tree {
        Tree::Sum(items) => &items[..],
        _ => &whole[..],
    };
    let (mut lengths, mut run, mut before) = (Vec::new(), 0u32, 0u32);
    let mut last: Option<u32> = None;
    for item in items {
        match item {
            Tree::Leaf(n) if last.is_some_and(|last| last + 1 == *n) => run += 1,
            Tree::Leaf(_) => {
                lengths.push(run);
                run = 1;
            }
            _ => {
                lengths.extend([run, before, item.leaves().len() as u32]);
                run = 0;
            }
        }
        // The first two terms of a running sum may stand in either order.
        last = if let Tree::Leaf(n) = item { Some(*n) } else { None };
        before += item.leaves().len() as u32;
    }
    lengths.extend([run, run + 1]);
    lengths.extend(lengths.clone().iter().map(|length| length + 1));
    lengths.retain(|&length| length > 0);
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

impl Reading {
    /// The tree of these terms, in canonical form.
    fn tree(&self, terms: &Range<u32>) -> Option<Tree> {
        let block = self.block.unwrap_or(terms.end - terms.start);
        let starts = (terms.start..terms.end).step_by(block as usize);
        let cell = |start: u32| Cell { keys: start..terms.end.min(start + block), slot: 0 };
        let mut cells: Vec<Cell> = starts.map(cell).collect();
        if self.backward {
            cells.reverse();
        }
        let tree = match self.order {
            // Terms are added straight into the running sum.
            Order::Sequential => Tree::sum(cells.into_iter().flat_map(|cell| cell.keys.map(Tree::Leaf))),
            order => Tree::sum(cells.iter().filter_map(|cell| cell_tree(order, cell))),
        };
        tree.map(|tree| tree.canonical())
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.block, self.order) {
            (None, Order::Sequential) => f.write_str("one running sum, first to last"),
            (None, order) => write!(f, "{order}"),
            (Some(block), order) => {
                write!(f, "blocks of {block}, {}", if self.backward { "last to first" } else { "first to last" })?;
                match order {
                    Order::Sequential => Ok(()),
                    order => write!(f, ", each {order}"),
                }
            }
        }
    }
}

/// The order in which parts are merged, in words.
pub fn merge_words(tree: &Tree) -> &'static str {
    let count = tree.leaves().len() as u32;
    let left_to_right = Tree::sum((0..count).map(Tree::Leaf)).map(|tree| tree.canonical());
    let right_to_left = Tree::sum((0..count).rev().map(Tree::Leaf)).map(|tree| tree.canonical());
    let balanced = Tree::pairwise(0, count, 0).map(|tree| tree.canonical());
    let tree = Some(tree.canonical());
    match count {
        2 => "the two merged",
        _ if tree == left_to_right => "merged left to right",
        _ if tree == right_to_left => "merged right to left",
        _ if tree == balanced => "merged in a balanced tree",
        _ if tree.is_some_and(|tree| matches!(tree, Tree::Fused(_))) => "merged all at once",
        _ => "merged in the order shown",
    }
}
