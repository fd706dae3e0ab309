//! A tree on random values, bit for bit.

use super::draw::{DRAWS, values};
use super::{Established, Refusal, Summation};
use crate::source::{Choose, Stream};
use crate::tree::Tree;

/// Runs the sum on draws of values, and looks for arithmetics under which the tree gives the same bits in all of them.
pub(super) fn replay(sum: &mut dyn Summation, tree: &Tree) -> Result<Established, Refusal> {
    let (mask, leaves) = (sum.mask(), sum.leaves());
    let mut draws = Vec::with_capacity(DRAWS as usize);
    for draw in 0..DRAWS {
        let values = values(&mask, leaves, draw);
        let (first, second) = (sum.run(&values)?, sum.run(&values)?);
        if first != second {
            return Err(Refusal::ReplayChanges { tree: Box::new(tree.clone()), draw, first, second });
        }
        draws.push((values, first));
    }
    let arithmetics = sum.arithmetics();
    let mut fitting = Vec::new();
    // Of those that do not fit, the one that went furthest: the draw and the bits it gave there.
    let mut furthest = (0, 0);
    for &arithmetic in &arithmetics {
        let miss = draws.iter().enumerate().find_map(|(draw, (values, bits))| {
            let expected = sum.evaluate(tree, arithmetic, values);
            (expected != *bits).then_some((draw, expected))
        });
        match miss {
            None => fitting.push(arithmetic),
            Some(miss) if miss.0 >= furthest.0 => furthest = miss,
            Some(_) => {}
        }
    }
    let Some((&arithmetic, indistinct)) = fitting.split_first() else {
        let (draw, expected) = furthest;
        let bits = draws.get(draw).map_or(0, |(_, bits)| *bits);
        let tree = Box::new(tree.clone());
        return Err(Refusal::NotReplayed { tree, draw: draw as u32, bits, expected, tried: arithmetics.len() });
    };
    let rival = rival(tree, leaves);
    let tells =
        |(values, bits): &&(Vec<f32>, u32)| rival.as_ref().is_some_and(|rival| sum.evaluate(rival, arithmetic, values) != *bits);
    let telling = draws.iter().filter(tells).count() as u32;
    let established = Established {
        arithmetic,
        indistinct: indistinct.to_vec(),
        confirmed: 0,
        draws: DRAWS,
        telling,
        runs: 2 * u64::from(DRAWS),
    };
    match rival {
        Some(_) if telling == 0 => Err(Refusal::NotTelling { tree: Box::new(tree.clone()), established: Box::new(established) }),
        _ => Ok(established),
    }
}

/// Another order of the same terms: the same shape with its leaves shuffled, or a running sum. `None` if there is none.
fn rival(tree: &Tree, leaves: usize) -> Option<Tree> {
    let order = Stream::new(0, 0).permutation(leaves);
    let shuffled = tree.map(&|leaf| order[leaf as usize]);
    let running = Tree::sum((0..leaves as u32).map(Tree::Leaf))?;
    [shuffled, running].into_iter().map(|rival| rival.canonical()).find(|rival| rival != tree)
}
