//! What a tree looks like: blocks, splits and lanes read off it.

use super::Tree;
use std::fmt::{self, Write};

/// The form of a tree, where it is exactly one that has a name.
///
/// Trees are compared in [canonical](Tree::canonical) form, and over their own terms, whatever these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One term.
    Leaf,
    /// A running sum, terms ascending. Two terms are one, too.
    Sequential,
    /// A running sum, terms descending.
    Reversed,
    /// A balanced tree over the terms, split at powers of two.
    Pairwise,
    /// A running sum that takes so many terms at once; the last step may take fewer.
    Fused(usize),
    /// All terms in one multi-term addition.
    AtOnce,
    /// Parts that are summed by themselves and then joined.
    Parts {
        /// Which terms a part has: neighbours (blocks, splits), or every so-many-th (lanes).
        strided: bool,
        /// Parts.
        count: usize,
        /// Terms of a part.
        length: usize,
        /// Terms of the last part.
        last: usize,
        /// The form of each full part.
        inner: Box<Shape>,
        /// How they are joined.
        join: Join,
    },
    /// None of these.
    Irregular,
}

/// The order in which parts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// A running sum of parts, ascending; also where they are two.
    LeftToRight,
    /// A running sum of parts, descending.
    RightToLeft,
    /// A balanced tree over the parts, neighbours first.
    Pairwise,
    /// The lower half of the parts plus the upper half, until one is left.
    Halves,
}

impl Join {
    const ALL: [Join; 4] = [Join::LeftToRight, Join::RightToLeft, Join::Pairwise, Join::Halves];

    fn of(self, mut parts: Vec<Tree>) -> Option<Tree> {
        match self {
            Join::LeftToRight => Tree::sum(parts),
            Join::RightToLeft => Tree::sum(parts.into_iter().rev()),
            Join::Pairwise => Tree::over_slots((0..).zip(parts).collect()),
            Join::Halves => {
                while parts.len() > 1 {
                    let upper = parts.split_off(parts.len().div_ceil(2));
                    let mut upper = upper.into_iter();
                    parts = parts.into_iter().filter_map(|low| Tree::sum([low].into_iter().chain(upper.next()))).collect();
                }
                parts.pop()
            }
        }
    }
}

impl Shape {
    /// The form of a tree.
    pub fn of(tree: &Tree) -> Shape {
        let mut terms = tree.leaves();
        terms.sort_unstable();
        let place = |term: u32| terms.binary_search(&term).unwrap_or_default() as u32;
        Shape::over_places(&tree.map(&place).canonical())
    }

    /// The parts of a canonical tree of this form; none if it has no parts.
    pub(super) fn split(&self, tree: &Tree) -> Vec<Tree> {
        let Shape::Parts { strided, count, length, .. } = *self else { return Vec::new() };
        let mut terms = tree.leaves();
        terms.sort_unstable();
        sets(&terms, if strided { count } else { length }, strided).iter().filter_map(|set| held(tree, set)).collect()
    }

    /// Whether fewer terms, `count` of them, summed in this way have that form.
    fn ends_as(&self, other: &Shape, count: usize) -> bool {
        match (self, other) {
            (_, Shape::Leaf) => true,
            (Shape::Sequential | Shape::Reversed | Shape::Pairwise | Shape::Fused(_) | Shape::AtOnce, Shape::Sequential)
                if count == 2 =>
            {
                true
            }
            (Shape::Fused(width), Shape::AtOnce) => count <= *width,
            (Shape::Parts { length, inner, .. }, _) if count <= *length => inner.ends_as(other, count),
            (
                Shape::Parts { strided, length, inner, join, count, .. },
                Shape::Parts {
                    strided: strided_too, length: length_too, inner: inner_too, join: join_too, count: count_too, ..
                },
            ) => {
                let same = if *strided { count == count_too } else { length == length_too };
                same && strided == strided_too && inner == inner_too && join == join_too
            }
            // What has no form has no shorter one.
            (Shape::Irregular, _) => false,
            _ => self == other,
        }
    }

    /// The form of a canonical tree over `0..n`.
    fn over_places(tree: &Tree) -> Shape {
        let n = tree.leaves().len();
        let leaves = || (0..n as u32).map(Tree::Leaf);
        match tree {
            Tree::Leaf(_) => return Shape::Leaf,
            Tree::Fused(children) if children.len() == n => return Shape::AtOnce,
            _ => {}
        }
        let is = |other: Option<Tree>| other.is_some_and(|other| other.canonical() == *tree);
        if is(Tree::sum(leaves())) {
            return Shape::Sequential;
        }
        if is(Tree::sum(leaves().rev())) {
            return Shape::Reversed;
        }
        if is(Tree::pairwise(0, n as u32, 0)) {
            return Shape::Pairwise;
        }
        let path = first_path(tree);
        // The first step of a fused sum has no sum so far: as many terms as it takes.
        if let Some(&width) = path.first()
            && is(fused(n, width))
        {
            return Shape::Fused(width);
        }
        let contiguous = path.iter().filter_map(|&length| parts(tree, n, length, false));
        let strided = path.iter().filter_map(|&length| {
            let stride = n.div_ceil(length);
            (n.div_ceil(stride) == length).then(|| parts(tree, n, stride, true)).flatten()
        });
        contiguous.chain(strided).next().unwrap_or(Shape::Irregular)
    }
}

/// Sizes of the partial sums that hold the first term, the whole tree left out, smallest first.
fn first_path(tree: &Tree) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut node = tree;
    while let Tree::Sum(children) | Tree::Fused(children) = node {
        let counts: Vec<usize> = children.iter().map(|child| child.leaves().len()).collect();
        let holder = children.iter().position(|child| child.leaves().contains(&0)).unwrap_or_default();
        if matches!(node, Tree::Sum(_)) {
            let mut sum = counts[..=holder].iter().sum::<usize>();
            let mut prefixes = Vec::new();
            // The first child itself is no addition of this node.
            for (child, count) in counts.iter().enumerate().skip(1) {
                if child > holder {
                    sum += count;
                }
                if child >= holder && child + 1 < children.len() {
                    prefixes.push(sum);
                }
            }
            sizes.extend(prefixes.into_iter().rev());
        }
        node = &children[holder];
        sizes.push(counts[holder]);
    }
    sizes.retain(|&size| size > 1);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Neighbouring terms, `step` of them in a set, or `step` sets of every `step`-th term.
fn sets(terms: &[u32], step: usize, strided: bool) -> Vec<Vec<u32>> {
    match strided {
        false => terms.chunks(step).map(<[u32]>::to_vec).collect(),
        true => (0..step).map(|lane| terms.iter().copied().skip(lane).step_by(step).collect()).collect(),
    }
}

/// The tree read as parts of neighbours, `step` long, or as `step` parts of every `step`-th term.
fn parts(tree: &Tree, n: usize, step: usize, strided: bool) -> Option<Shape> {
    let terms: Vec<u32> = (0..n as u32).collect();
    let sets = sets(&terms, step, strided);
    let (first, last) = (sets.first()?.len(), sets.last()?.len());
    if sets.len() < 2 || first < 2 {
        return None;
    }
    let trees: Vec<Tree> = sets.iter().map(|set| held(tree, set)).collect::<Option<_>>()?;
    let shapes: Vec<Shape> = trees.iter().map(Shape::of).collect();
    let inner = shapes.first()?.clone();
    let fits =
        |(shape, set): (&Shape, &Vec<u32>)| if set.len() == first { *shape == inner } else { inner.ends_as(shape, set.len()) };
    if !shapes.iter().zip(&sets).all(fits) {
        return None;
    }
    let join = Join::ALL.into_iter().find(|join| join.of(trees.clone()).is_some_and(|joined| joined.canonical() == *tree))?;
    Some(Shape::Parts { strided, count: sets.len(), length: first, last, inner: Box::new(inner), join })
}

/// The partial sum of exactly these terms, ascending, if the tree has it.
fn held(tree: &Tree, set: &[u32]) -> Option<Tree> {
    let mut node = tree.clone();
    loop {
        let (children, running) = match node {
            Tree::Leaf(_) => return (set.len() == 1 && node.leaves() == set).then_some(node),
            Tree::Sum(children) => (children, true),
            Tree::Fused(children) => (children, false),
        };
        let mut terms: Vec<u32> = children.iter().flat_map(Tree::leaves).collect();
        let total = terms.len();
        if running {
            // Partial sums of the node itself, the whole of it among them.
            let mut count = 0;
            let taken = children.iter().take_while(|child| {
                let more = count < set.len();
                count += if more { child.leaves().len() } else { 0 };
                more
            });
            let taken = taken.count();
            let mut prefix = terms[..count].to_vec();
            prefix.sort_unstable();
            if taken > 1 && prefix == set {
                return Tree::sum(children.into_iter().take(taken));
            }
        } else if total == set.len() {
            terms.sort_unstable();
            return (terms == set).then_some(Tree::Fused(children));
        }
        node = children.into_iter().find(|child| child.leaves().contains(&set[0]))?;
    }
}

/// A running sum over `0..n` that takes `width` terms at once.
fn fused(n: usize, width: usize) -> Option<Tree> {
    let groups = (0..n).step_by(width);
    groups.fold(None, |sum, start| {
        let group = (start..n.min(start + width)).map(|term| Tree::Leaf(term as u32));
        Tree::fused(sum.into_iter().chain(group))
    })
}

/// Terms as text: ascending, runs of three and more as `0..=15`, or `0..=120 by 8`.
pub fn ranges(terms: &[u32]) -> String {
    let mut terms = terms.to_vec();
    terms.sort_unstable();
    let mut text = String::new();
    let mut rest = &terms[..];
    while let Some(&first) = rest.first() {
        let step = rest.get(1).map_or(1, |second| second - first);
        let run = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
        let taken = if run >= 3 { run } else { 1 };
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = match (taken, step) {
            (1, _) => write!(text, "{comma}{first}"),
            (_, 1) => write!(text, "{comma}{first}..={}", rest[taken - 1]),
            _ => write!(text, "{comma}{first}..={} by {step}", rest[taken - 1]),
        };
        rest = &rest[taken..];
    }
    text
}

impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Join::LeftToRight => "left to right",
            Join::RightToLeft => "right to left",
            Join::Pairwise => "pairwise",
            Join::Halves => "half to half",
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Leaf => f.write_str("one term"),
            Shape::Sequential => f.write_str("sequential"),
            Shape::Reversed => f.write_str("reversed"),
            Shape::Pairwise => f.write_str("pairwise"),
            Shape::Fused(width) => write!(f, "fused, {width} terms a step"),
            Shape::AtOnce => f.write_str("all terms at once"),
            Shape::Irregular => f.write_str("irregular"),
            Shape::Parts { strided, count, length, last, inner, join } => {
                match (strided, count, join) {
                    (true, ..) => write!(f, "{count} lanes")?,
                    // Two blocks and two splits are one tree; so are a running sum of splits and one of blocks.
                    (false, 2, _) | (false, _, Join::Pairwise | Join::Halves) => write!(f, "{count} splits of {length}")?,
                    (false, ..) => write!(f, "blocks of {length}")?,
                }
                if last != length && !strided {
                    write!(f, " (the last of {last})")?;
                }
                write!(f, ", each {inner}, joined ")?;
                if *count == 2 { f.write_str("at the top") } else { write!(f, "{join}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(terms: impl IntoIterator<Item = u32>) -> Tree {
        Tree::sum(terms.into_iter().map(Tree::Leaf)).unwrap()
    }

    fn blocks(n: u32, length: u32) -> Vec<Tree> {
        (0..n).step_by(length as usize).map(|start| run(start..n.min(start + length))).collect()
    }

    fn lanes(n: u32, count: u32) -> Vec<Tree> {
        (0..count).map(|lane| run((lane..n).step_by(count as usize))).collect()
    }

    fn text(tree: Option<Tree>) -> String {
        Shape::of(&tree.unwrap()).to_string()
    }

    #[test]
    fn plain_orders_are_named() {
        assert_eq!(text(Some(Tree::Leaf(7))), "one term");
        assert_eq!(text(Some(run(0..9))), "sequential");
        assert_eq!(text(Some(run(3..9))), "sequential");
        assert_eq!(text(Some(run((0..9).rev()))), "reversed");
        assert_eq!(text(Tree::pairwise(0, 13, 0)), "pairwise");
        assert_eq!(text(fused(13, 4)), "fused, 4 terms a step");
        assert_eq!(text(fused(16, 8)), "fused, 8 terms a step");
        assert_eq!(text(Tree::fused((0..5).map(Tree::Leaf))), "all terms at once");
        assert_eq!(text("(0 2 (1 3 4))".parse().ok()), "irregular");
        assert_eq!(text("((0 3) (1 2))".parse().ok()), "irregular");
    }

    #[test]
    fn block_and_split_sizes_are_read_off() {
        for length in [4, 16, 80, 176] {
            assert_eq!(
                text(Join::LeftToRight.of(blocks(4 * length, length))),
                format!("blocks of {length}, each sequential, joined left to right")
            );
        }
        assert_eq!(
            text(Join::LeftToRight.of(blocks(50, 16))),
            "blocks of 16 (the last of 2), each sequential, joined left to right"
        );
        assert_eq!(
            text(Join::RightToLeft.of(blocks(50, 16))),
            "blocks of 16 (the last of 2), each sequential, joined right to left"
        );
        assert_eq!(text(Join::LeftToRight.of(blocks(128, 64))), "2 splits of 64, each sequential, joined at the top");
        assert_eq!(text(Join::Pairwise.of(blocks(130, 20))), "7 splits of 20 (the last of 10), each sequential, joined pairwise");
        let nested =
            [Join::LeftToRight.of(blocks(64, 16)), Join::LeftToRight.of(blocks(64, 16)).map(|tree| tree.map(&|n| n + 64))];
        assert_eq!(
            text(Tree::sum(nested.into_iter().flatten())),
            "2 splits of 64, each blocks of 16, each sequential, joined left to right, joined at the top"
        );
        let fused = (0..3).filter_map(|block| fused(32, 8).map(|tree| tree.map(&|n| n + 32 * block)));
        assert_eq!(text(Tree::sum(fused)), "blocks of 32, each fused, 8 terms a step, joined left to right");
        let pairs = (0..5).filter_map(|block| Tree::pairwise(16 * block, 16, 0));
        assert_eq!(text(Tree::sum(pairs)), "blocks of 16, each pairwise, joined left to right");
    }

    #[test]
    fn lanes_and_how_they_are_joined_are_read_off() {
        for (n, count) in [(64, 8), (100, 8), (64, 16), (50, 4)] {
            for (join, how) in
                [(Join::Halves, "half to half"), (Join::Pairwise, "pairwise"), (Join::LeftToRight, "left to right")]
            {
                assert_eq!(text(join.of(lanes(n, count))), format!("{count} lanes, each sequential, joined {how}"));
            }
        }
    }

    #[test]
    fn a_tree_that_is_off_by_one_term_is_irregular() {
        let mut parts = blocks(64, 16);
        parts[2] = run([33, 32].into_iter().chain(34..48));
        assert_eq!(text(Tree::sum(parts)), "blocks of 16, each sequential, joined left to right", "x + y is y + x");
        let mut parts = blocks(64, 16);
        parts[2] = run([34, 32, 33].into_iter().chain(35..48));
        assert_eq!(text(Tree::sum(parts)), "irregular");
    }

    #[test]
    fn ranges_fold_runs() {
        assert_eq!(ranges(&[3, 1, 2]), "1..=3");
        assert_eq!(ranges(&[0, 8, 16, 24]), "0..=24 by 8");
        assert_eq!(ranges(&[0, 1, 5, 6, 7, 9]), "0, 1, 5..=7, 9");
        assert_eq!(ranges(&[]), "");
    }
}
