//! Summation trees: in which order the terms of a sum are added, as text, as a value to compare, and evaluated.
//!
//! Text: a number is a term; `(a b c)` adds left to right and rounds after each addition; `[a b c]` adds exactly and rounds
//! once (a multi-term adder). So `((0 1) (2 3))` is a balanced tree, and `(0 1 2 3)` a running sum.

mod canonical;
mod difference;
mod shape;
mod svg;

pub(crate) use canonical::Ordered;
pub use difference::TreeDifference;
pub use shape::{Join, Shape, ranges};

use std::fmt;
use std::str::FromStr;

/// The order of a sum. Build nodes with [`Tree::sum`] and [`Tree::fused`], which keep equal orders equal as values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tree {
    /// Term `n`.
    Leaf(u32),
    /// Children added left to right, one f32 rounding for each addition. Never starts with another `Sum`, whose children stand
    /// here instead: `((a + b) + c)` and `(a + b + c)` are one order.
    Sum(Vec<Tree>),
    /// Children added without rounding, rounded once to f32 at the end.
    Fused(Vec<Tree>),
}

/// Nesting that [`Tree::from_str`] accepts.
pub const MAX_DEPTH: usize = 512;

impl Tree {
    /// A left-to-right sum; `None` without children, the child itself if it is the only one.
    pub fn sum(children: impl IntoIterator<Item = Tree>) -> Option<Tree> {
        let mut children = children.into_iter();
        let first = children.next()?;
        let mut rest = children.peekable();
        if rest.peek().is_none() {
            return Some(first);
        }
        let mut terms = match first {
            Tree::Sum(terms) => terms,
            other => vec![other],
        };
        terms.extend(rest);
        Some(Tree::Sum(terms))
    }

    /// A multi-term sum; `None` without children, the child itself if it is the only one.
    pub fn fused(children: impl IntoIterator<Item = Tree>) -> Option<Tree> {
        let mut children: Vec<Tree> = children.into_iter().collect();
        match children.len() {
            0 | 1 => children.pop(),
            _ => Some(Tree::Fused(children)),
        }
    }

    /// The balanced tree over the leaves `first..first + count`, each standing at slot `slot + n`, split at powers of two of the
    /// slots; `None` without leaves. Slots outside are absent and cost no addition.
    pub fn pairwise(first: u32, count: u32, slot: u64) -> Option<Tree> {
        let leaves = (0..count).map(|n| (slot + u64::from(n), Tree::Leaf(first + n))).collect();
        Tree::over_slots(leaves)
    }

    /// As [`Tree::pairwise`], over given subtrees at ascending slots.
    pub fn over_slots(mut nodes: Vec<(u64, Tree)>) -> Option<Tree> {
        while nodes.len() > 1 {
            let mut next: Vec<(u64, Tree)> = Vec::with_capacity(nodes.len() / 2 + 1);
            for (slot, tree) in nodes {
                match next.pop() {
                    Some((half, left)) if half == slot / 2 => next.push((half, Tree::sum([left, tree]).unwrap_or(Tree::Leaf(0)))),
                    Some(other) => next.extend([other, (slot / 2, tree)]),
                    None => next.push((slot / 2, tree)),
                }
            }
            nodes = next;
        }
        nodes.pop().map(|(_, tree)| tree)
    }

    /// The terms, in the order of the text.
    pub fn leaves(&self) -> Vec<u32> {
        let mut leaves = Vec::new();
        self.visit_leaves(&mut |n| leaves.push(n));
        leaves
    }

    fn visit_leaves(&self, visit: &mut impl FnMut(u32)) {
        match self {
            Tree::Leaf(n) => visit(*n),
            Tree::Sum(children) | Tree::Fused(children) => children.iter().for_each(|child| child.visit_leaves(visit)),
        }
    }

    /// The same shape over other terms.
    #[must_use]
    pub fn map(&self, term: &impl Fn(u32) -> u32) -> Tree {
        match self {
            Tree::Leaf(n) => Tree::Leaf(term(*n)),
            Tree::Sum(children) => Tree::Sum(children.iter().map(|child| child.map(term)).collect()),
            Tree::Fused(children) => Tree::Fused(children.iter().map(|child| child.map(term)).collect()),
        }
    }

    /// The sum in f32, `term(n)` being the value of leaf `n`.
    ///
    /// A `Fused` node is summed in f64, which is exact while its terms span fewer than 53 bits.
    pub fn evaluate(&self, term: &impl Fn(u32) -> f32) -> f32 {
        match self {
            Tree::Leaf(n) => term(*n),
            Tree::Sum(children) => children.iter().map(|child| child.evaluate(term)).reduce(|sum, x| sum + x).unwrap_or_default(),
            Tree::Fused(children) => children.iter().map(|child| f64::from(child.evaluate(term))).sum::<f64>() as f32,
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (children, open, close) = match self {
            Tree::Leaf(n) => return write!(f, "{n}"),
            Tree::Sum(children) => (children, '(', ')'),
            Tree::Fused(children) => (children, '[', ']'),
        };
        write!(f, "{open}")?;
        for (n, child) in children.iter().enumerate() {
            if n > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{child}")?;
        }
        write!(f, "{close}")
    }
}

impl FromStr for Tree {
    type Err = String;

    /// Reads the text form; equal orders give equal trees.
    ///
    /// # Errors
    /// What is wrong and at which byte: an empty or unclosed node, a stray character, nesting beyond [`MAX_DEPTH`].
    fn from_str(text: &str) -> Result<Self, String> {
        // Open nodes: their bracket and the children read so far. A loop, not recursion: depth comes from outside.
        let mut open: Vec<(u8, Vec<Tree>)> = Vec::new();
        let mut done: Option<Tree> = None;
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let start = at;
            let byte = bytes[at];
            at += 1;
            let item = match byte {
                b' ' | b'\t' | b'\n' => continue,
                _ if done.is_some() => return Err(format!("byte {start}: text after the end of the tree")),
                b'(' | b'[' if open.len() == MAX_DEPTH => {
                    return Err(format!("byte {start}: nested deeper than {MAX_DEPTH}"));
                }
                b'(' | b'[' => {
                    open.push((byte, Vec::new()));
                    continue;
                }
                b')' | b']' => {
                    let (opened, children) = open.pop().ok_or_else(|| format!("byte {start}: nothing is open here"))?;
                    let node = match (opened, byte) {
                        (b'(', b')') => Tree::sum(children),
                        (b'[', b']') => Tree::fused(children),
                        _ => return Err(format!("byte {start}: `{}` closes `{}`", byte as char, opened as char)),
                    };
                    node.ok_or_else(|| format!("byte {start}: a node without terms"))?
                }
                b'0'..=b'9' => {
                    while at < bytes.len() && bytes[at].is_ascii_digit() {
                        at += 1;
                    }
                    Tree::Leaf(text[start..at].parse().map_err(|e| format!("byte {start}: {e}"))?)
                }
                _ => return Err(format!("byte {start}: neither a term nor a bracket")),
            };
            match open.last_mut() {
                Some((_, children)) => children.push(item),
                None => done = Some(item),
            }
        }
        if !open.is_empty() {
            return Err(format!("{} node(s) left open at the end", open.len()));
        }
        done.ok_or_else(|| "no tree in the text".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trees() -> impl Strategy<Value = Tree> {
        (0u32..1000).prop_map(Tree::Leaf).prop_recursive(5, 40, 5, |inner| {
            (proptest::collection::vec(inner, 1..5), any::<bool>())
                .prop_map(|(children, fused)| if fused { Tree::fused(children) } else { Tree::sum(children) }.unwrap())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn text_round_trips(tree in trees()) {
            prop_assert_eq!(tree.to_string().parse::<Tree>().unwrap(), tree);
        }

        #[test]
        fn difference_is_none_exactly_for_equal_trees(a in trees(), b in trees()) {
            prop_assert_eq!(a.first_difference(&a), None);
            prop_assert_eq!(a.first_difference(&b).is_none(), a == b);
        }

        #[test]
        fn exact_sums_do_not_depend_on_the_tree(tree in trees()) {
            let term = |n: u32| n as f32;
            let exact: u64 = tree.leaves().iter().map(|&n| u64::from(n)).sum();
            prop_assert_eq!(tree.evaluate(&term), exact as f32);
        }

        #[test]
        fn canonical_form_keeps_the_result_and_is_one_for_exchanged_operands(tree in trees(), values in proptest::collection::vec(-(1 << 23)..1 << 23, 1000)) {
            let canonical = tree.canonical();
            prop_assert_eq!(canonical.canonical(), canonical.clone());
            // Sums round in f32, and are exact in f64.
            let term = |n: u32| values[n as usize] as f32;
            prop_assert_eq!(canonical.evaluate(&term).to_bits(), tree.evaluate(&term).to_bits());
            if let Tree::Sum(children) = &tree && let [first, second] = &children[..] {
                prop_assert_eq!(Tree::sum([second.clone(), first.clone()]).unwrap().canonical(), canonical);
            }
        }

        #[test]
        fn pairwise_keeps_the_terms_and_is_shallow(first in 0u32..9, count in 1u32..70, slot in 0u64..70) {
            let tree = Tree::pairwise(first, count, slot).unwrap();
            prop_assert_eq!(tree.leaves(), (first..first + count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn pairwise_splits_at_powers_of_two_of_the_slots() {
        let text = |count, slot| Tree::pairwise(0, count, slot).unwrap().to_string();
        assert_eq!(text(4, 0), "(0 1 (2 3))");
        assert_eq!(text(4, 1), "(0 (1 2) 3)");
        assert_eq!(text(3, 3), "(0 (1 2))");
        assert_eq!(text(1, 5), "0");
    }

    #[test]
    fn orders_that_differ_only_in_brackets_are_equal() {
        let parse = |text: &str| text.parse::<Tree>().unwrap();
        assert_eq!(parse("((0 1) 2)"), parse("(0 1 2)"));
        assert_ne!(parse("(0 (1 2))"), parse("(0 1 2)"));
        assert_eq!(parse("(7)"), Tree::Leaf(7));
        assert_eq!(parse("[7]"), Tree::Leaf(7));
        let difference = parse("(0 (1 2))").first_difference(&parse("(0 1 2)")).unwrap();
        assert_eq!(difference.to_string(), "after 0: (1 2) against 1 at [1]");
    }

    #[test]
    fn evaluation_rounds_where_the_tree_says() {
        let terms = [1.0, 2f32.powi(-24), 2f32.powi(-24)];
        let value = |text: &str| text.parse::<Tree>().unwrap().evaluate(&|n| terms[n as usize]);
        assert_eq!(value("(0 1 2)"), 1.0);
        assert_eq!(value("(0 (1 2))"), 1.0 + 2f32.powi(-23));
        assert_eq!(value("[0 1 2]"), 1.0 + 2f32.powi(-23));
    }

    #[test]
    fn bad_text_is_refused_with_its_place() {
        for (text, reason) in [
            ("", "no tree"),
            ("(", "left open"),
            ("()", "without terms"),
            ("[]", "without terms"),
            ("(0]", "closes"),
            ("0)", "text after"),
            (")", "nothing is open"),
            ("(x)", "neither"),
            ("99999999999", "byte 0"),
        ] {
            let error = text.parse::<Tree>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!("(".repeat(MAX_DEPTH + 1).parse::<Tree>().unwrap_err().contains("deeper"));
    }
}
