//! Where two trees part.

use super::{Shape, Tree, ranges};
use std::fmt;

/// Where two trees part, on the way from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeDifference {
    /// Terms that have met in both before the place where they part, in the same order: those of the running sum there.
    pub before: Vec<u32>,
    /// Child numbers from the root to the first differing node, depth first.
    pub path: Vec<usize>,
    /// That node in the first tree; `None` if only the second has it.
    pub left: Option<Tree>,
    /// That node in the second tree.
    pub right: Option<Tree>,
}

impl Tree {
    /// The first node, depth first, in which two trees differ; `None` for equal trees.
    pub fn first_difference(&self, other: &Tree) -> Option<TreeDifference> {
        let mut path = Vec::new();
        let (left, right) = Self::descend(Some(self), Some(other), &mut path)?;
        let mut before = Vec::new();
        let mut node = self;
        for &child in &path {
            if let Tree::Sum(children) | Tree::Fused(children) = node {
                before = if matches!(node, Tree::Sum(_)) {
                    children[..child].iter().flat_map(Tree::leaves).collect()
                } else {
                    Vec::new()
                };
                node = children.get(child).unwrap_or(node);
            }
        }
        Some(TreeDifference { before, path, left: left.cloned(), right: right.cloned() })
    }

    fn descend<'a>(
        a: Option<&'a Tree>,
        b: Option<&'a Tree>,
        path: &mut Vec<usize>,
    ) -> Option<(Option<&'a Tree>, Option<&'a Tree>)> {
        match (a, b) {
            (Some(Tree::Sum(x)), Some(Tree::Sum(y))) | (Some(Tree::Fused(x)), Some(Tree::Fused(y))) => {
                for n in 0..x.len().max(y.len()) {
                    path.push(n);
                    if let Some(found) = Self::descend(x.get(n), y.get(n), path) {
                        return Some(found);
                    }
                    path.pop();
                }
                None
            }
            _ if a == b => None,
            _ => Some((a, b)),
        }
    }
}

impl fmt::Display for TreeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.before.is_empty() {
            write!(f, "after {}: ", ranges(&self.before))?;
        }
        let show = |side: &Option<Tree>| side.as_ref().map_or("nothing".to_string(), named);
        write!(f, "{} against {} at {:?}", show(&self.left), show(&self.right), self.path)
    }
}

/// A tree as text, or its terms and shape where that is long.
fn named(tree: &Tree) -> String {
    let text = tree.to_string();
    match text.len() {
        ..=60 => text,
        _ => format!("{} ({})", ranges(&tree.leaves()), Shape::of(tree)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_subtree_is_named_with_what_has_met_before() {
        let text = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| text.parse::<Tree>().unwrap());
            a.first_difference(&b).map(|difference| difference.to_string())
        };
        assert_eq!(text("(0 1 2 3)", "(0 1 2 3)"), None);
        assert_eq!(text("(0 1 2 3 (4 5))", "(0 1 2 3 4 5)").unwrap(), "after 0..=3: (4 5) against 4 at [4]");
        assert_eq!(text("(0 1 (2 3 4))", "(0 1 (2 (3 4)))").unwrap(), "after 2: 3 against (3 4) at [2, 1]");
        assert_eq!(text("[0 1 (2 3)]", "[0 1 2]").unwrap(), "(2 3) against 2 at [2]");
        assert_eq!(text("(0 1)", "(0 1 2)").unwrap(), "after 0, 1: nothing against 2 at [2]");
        let blocks = |length: usize| {
            let part = |start: usize| Tree::sum((start..start + length).map(|leaf| Tree::Leaf(leaf as u32)));
            Tree::sum((0..256).step_by(length).filter_map(part)).unwrap()
        };
        let difference = blocks(64).first_difference(&blocks(128)).unwrap();
        assert_eq!(difference.to_string(), "after 0..=63: 64..=127 (sequential) against 64 at [64]");
    }
}
