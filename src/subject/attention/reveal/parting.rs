//! Where two orders part.

use crate::source::mix;
use crate::tree::Tree;
use std::collections::HashSet;

/// The smallest sums that only one of two orders makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Of the first order; `None` if every sum of its is one of the second's too.
    pub left: Option<Tree>,
    /// Of the second.
    pub right: Option<Tree>,
}

/// Where two orders part; `None` if they are one. A sum is told by its terms: the first that only one order makes is where the values
/// can begin to differ.
pub fn parting(left: &Tree, right: &Tree) -> Option<Parting> {
    let (left, right) = (left.canonical(), right.canonical());
    if left == right {
        return None;
    }
    let only = |here: &Tree, there: &Tree| {
        let mut sums = HashSet::new();
        visit(there, &mut |terms, _, _| {
            sums.insert(terms);
        });
        let mut least: Option<(usize, Tree)> = None;
        visit(here, &mut |terms, count, node| {
            if !sums.contains(&terms) && least.as_ref().is_none_or(|(fewest, _)| count < *fewest) {
                least = Some((count, node()));
            }
        });
        least.map(|(_, tree)| tree)
    };
    Some(Parting { left: only(&left, &right), right: only(&right, &left) })
}

/// Visits every sum below and at a node, with a digest of its terms, their number, and the sum itself. Gives the node's own.
fn visit(tree: &Tree, see: &mut impl FnMut(u64, usize, &dyn Fn() -> Tree)) -> (u64, usize) {
    match tree {
        Tree::Leaf(n) => (mix(0x7465_726d, u64::from(*n)), 1),
        Tree::Fused(children) => {
            let parts: Vec<(u64, usize)> = children.iter().map(|child| visit(child, see)).collect();
            let all = parts.into_iter().fold((0u64, 0), |(terms, count), it| (terms.wrapping_add(it.0), count + it.1));
            see(all.0, all.1, &|| tree.clone());
            all
        }
        Tree::Sum(children) => {
            let mut all = (0u64, 0);
            for (n, child) in children.iter().enumerate() {
                let it = visit(child, see);
                all = (all.0.wrapping_add(it.0), all.1 + it.1);
                if n > 0 {
                    see(all.0, all.1, &|| Tree::Sum(children[..=n].to_vec()));
                }
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_sums_of_each_are_named() {
        let tree = |text: &str| text.parse::<Tree>().expect("a tree");
        let part = |left, right| {
            let it = parting(&tree(left), &tree(right))?;
            Some((it.left?.to_string(), it.right?.to_string()))
        };
        assert_eq!(part("(0 1 2)", "(1 0 2)"), None);
        assert_eq!(part("(0 1 2 3)", "(3 0 1 2)"), Some(("(0 1)".to_owned(), "(0 3)".to_owned())));
        assert_eq!(part("(0 1 2 3)", "(0 1 (2 3))"), Some(("(0 1 2)".to_owned(), "(2 3)".to_owned())));
    }

    #[test]
    fn a_multi_term_addition_parts_from_a_running_sum_of_the_same_terms() {
        let part = parting(&"[0 1 2]".parse().expect("a tree"), &"(0 1 2)".parse().expect("a tree")).expect("they part");
        assert_eq!((part.left, part.right.map(|it| it.to_string())), (None, Some("(0 1)".to_owned())));
    }
}
