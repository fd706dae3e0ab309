//! Further probes, which a tree must predict.

use super::probe::Prober;
use super::solve::{Loss, Solved};
use super::{Pair, Refusal};
use crate::source::{Source, Stream};
use crate::tree::Tree;

/// Asks as many random pairs as there are leaves; every other one with about half of the leaves present, as far as masks reach.
pub(super) fn confirm(prober: &mut Prober<'_>, solved: &Solved) -> Result<(), Refusal> {
    let leaves = prober.leaves;
    if leaves < 3 {
        return Ok(());
    }
    let mut source = Stream::new(SEED, 0);
    for n in 0..leaves {
        let i = source.below(leaves as u64) as usize;
        let j = (i + 1 + source.below(leaves as u64 - 1) as usize) % leaves;
        let all = n % 2 == 0 && leaves <= prober.reach;
        // One in two, or as few as are half of what masks reach; were more drawn, the last ones stay away.
        let one_in = (2 * leaves).div_ceil(prober.reach).max(2) as u64;
        let mut room = if all { leaves } else { prober.reach - 2 };
        let present: Vec<bool> = (0..leaves)
            .map(|leaf| {
                let here = leaf == i || leaf == j || ((all || source.below(one_in) == 0) && room > 0);
                room -= usize::from(here && leaf != i && leaf != j);
                here
            })
            .collect();
        let counted = prober.ask(i, j, if all { None } else { Some(&present) })?;
        let expected = under(solved, i as u32, j as u32, &present);
        if counted != expected {
            let pair = Pair { plus: i, minus: j, present: present.iter().filter(|&&here| here).count() };
            return Err(Refusal::NotConfirmed { tree: Box::new(solved.tree.clone()), pair, counted, expected });
        }
    }
    Ok(())
}

/// A stream of its own, so that no other draw moves these.
const SEED: u64 = 0x636f_6e66_6972_6d00;

/// Leaves present that are lost when the masks of two leaves meet.
fn under(solved: &Solved, i: u32, j: u32, present: &[bool]) -> usize {
    let count = |tree: &Tree| tree.leaves().iter().filter(|&&leaf| present[leaf as usize]).count();
    let mut node = &solved.tree;
    loop {
        let (children, fused) = match node {
            Tree::Leaf(_) => return count(node),
            Tree::Sum(children) => (children, false),
            Tree::Fused(children) => (children, true),
        };
        let holder = |leaf: u32| children.iter().position(|child| child.leaves().contains(&leaf)).unwrap_or_default();
        let (a, b) = (holder(i), holder(j));
        node = match (a == b, fused, solved.loss) {
            (true, ..) => &children[a],
            (false, true, Some(Loss::Exact)) => return count(&children[a]) + count(&children[b]),
            (false, true, _) => return count(node),
            // A running sum has met all children up to the later one.
            (false, false, _) => return children[..=a.max(b)].iter().map(count).sum(),
        };
    }
}
