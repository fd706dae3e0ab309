//! Multi-term additions whose terms are added exactly, in a wider format, and rounded once.
//!
//! The masks of a sum swamp its units in f64 too, so that such an addition looks like a running sum of its terms. A smaller mask, which
//! swamps in f32 and is exact in f64, tells whether a partial sum is rounded before the next term joins.

use crate::reveal::{Mask, Refusal, Summation};
use crate::tree::Tree;

/// The tree with additions joined where nothing is rounded between them.
pub(super) fn joined(sum: &mut dyn Summation, tree: &Tree) -> Result<Tree, Refusal> {
    let children = match tree {
        Tree::Leaf(_) => return Ok(tree.clone()),
        Tree::Sum(children) | Tree::Fused(children) => children,
    };
    let inner = children.iter().map(|child| joined(sum, child)).collect::<Result<Vec<_>, _>>()?;
    if matches!(tree, Tree::Fused(_)) {
        return Ok(Tree::Fused(inner));
    }
    let first = |child: usize| children[child].leaves()[0] as usize;
    let mut terms = inner.into_iter().enumerate().peekable();
    let mut so_far = terms.next().map_or(Tree::Leaf(0), |(_, tree)| tree);
    while let Some((child, tree)) = terms.next() {
        let mut group = vec![tree];
        let mut last = child;
        while terms.peek().is_some() && survives(sum, first(0), first(last), first(last + 1))? {
            let Some((child, tree)) = terms.next() else { break };
            (last, group) = (child, [group, vec![tree]].concat());
        }
        let all = std::iter::once(so_far).chain(group.iter().cloned());
        let node = if group.len() == 1 { Tree::sum(all) } else { Tree::fused(all) };
        so_far = node.unwrap_or(Tree::Leaf(0));
    }
    Ok(so_far.canonical())
}

/// Whether a unit that was added to a mask is still there once the mask has gone: with either sign.
fn survives(sum: &mut dyn Summation, mask: usize, unit: usize, next: usize) -> Result<bool, Refusal> {
    let Mask { inputs, output, .. } = sum.mask();
    // Both are exact together in 53 bits, and not in 26.
    let (large, small) =
        if inputs.max_finite() > 1e30 { (1.5 * 2f32.powi(40), 1.0) } else { (1.5 * 2f32.powi(15), 2f32.powi(-14)) };
    for large in [large, -large] {
        let mut values = vec![0.0; sum.leaves()];
        (values[mask], values[unit], values[next]) = (large, small, -large);
        if output.to_f32(sum.run(&values)?) == 0.0 {
            return Ok(false);
        }
    }
    Ok(true)
}
