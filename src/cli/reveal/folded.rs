//! Trees as text that fits a line or two.

use crate::tree::Tree;
use std::fmt::Write;

/// Characters that a folded tree may have.
const ROOM: usize = 200;

/// The text of a tree; folded, neighbours `3 4 5` are `3..5`, and what is deep is `{0..63}`, its terms without their order.
pub(super) fn text(tree: &Tree, full: bool) -> String {
    if full {
        return tree.to_string();
    }
    let fits = |depth: &usize| folded(tree, *depth).chars().count() <= ROOM;
    let depth = (1..=16).rev().find(fits).unwrap_or(1);
    let text = folded(tree, depth);
    match text.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

fn folded(tree: &Tree, depth: usize) -> String {
    let (children, open, close) = match tree {
        Tree::Leaf(n) => return n.to_string(),
        Tree::Sum(children) => (children, '(', ')'),
        Tree::Fused(children) => (children, '[', ']'),
    };
    if depth == 0 {
        let mut leaves = tree.leaves();
        leaves.sort_unstable();
        return format!("{{{}}}", runs(&leaves));
    }
    let mut parts = Vec::new();
    let mut run = Vec::new();
    for child in children {
        match child {
            Tree::Leaf(n) => run.push(*n),
            _ => {
                if !run.is_empty() {
                    parts.push(runs(&std::mem::take(&mut run)));
                }
                parts.push(folded(child, depth - 1));
            }
        }
    }
    if !run.is_empty() {
        parts.push(runs(&run));
    }
    format!("{open}{}{close}", parts.join(" "))
}

/// Numbers, three and more that count up by one as a range.
pub(super) fn runs(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < numbers.len() {
        let length = numbers[at..].windows(2).take_while(|it| it[0].checked_add(1) == Some(it[1])).count() + 1;
        let taken = if length < 3 { 1 } else { length };
        let space = if at > 0 { " " } else { "" };
        let _ = match taken {
            1 => write!(text, "{space}{}", numbers[at]),
            _ => write!(text, "{space}{}..{}", numbers[at], numbers[at + taken - 1]),
        };
        at += taken;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_fold_and_deep_nodes_lose_their_order() {
        let tree = |text: &str| text.parse::<Tree>().expect("a tree");
        assert_eq!(text(&tree("(4 5 6 7 0 1 2 3)"), false), "(4..7 0..3)");
        assert_eq!(text(&tree("(4 5 6 7 0 1 2 3)"), true), "(4 5 6 7 0 1 2 3)");
        assert_eq!(folded(&tree("(0 1 (2 3))"), 1), "(0 1 {2 3})");
        let long = Tree::pairwise(0, 300, 0).expect("a tree");
        assert!(text(&long, false).chars().count() <= ROOM + 4);
    }
}
