//! What is revealed of planted orders.

use super::planted::{Adder, Planted, in_f32};
use lastbit::number::Dtype::{self, BF16, F16, F32};
use lastbit::reveal::{Accumulator, Fused, Mask, Revealed, Summation, reveal};
use lastbit::tree::Tree;
use proptest::prelude::*;

const SINGLE: Adder = Adder(F32);

fn leaves(range: std::ops::Range<usize>) -> impl DoubleEndedIterator<Item = Tree> {
    range.map(|leaf| Tree::Leaf(leaf as u32))
}

fn sequential(n: usize) -> Tree {
    Tree::sum(leaves(0..n)).unwrap()
}

fn reversed(n: usize) -> Tree {
    Tree::sum(leaves(0..n).rev()).unwrap()
}

fn pairwise(n: usize) -> Tree {
    Tree::pairwise(0, n as u32, 0).unwrap()
}

fn lanes(n: usize, count: usize) -> Tree {
    let mut lanes: Vec<Option<Tree>> =
        (0..count).map(|lane| Tree::sum((lane..n).step_by(count).map(|leaf| Tree::Leaf(leaf as u32)))).collect();
    while lanes.len() > 1 {
        let upper = lanes.split_off(lanes.len() / 2);
        lanes = lanes.into_iter().zip(upper).map(|(low, high)| Tree::sum(low.into_iter().chain(high))).collect();
    }
    lanes.pop().flatten().unwrap()
}

fn parts(n: usize, length: usize) -> impl Iterator<Item = Tree> {
    (0..n).step_by(length).filter_map(move |start| Tree::sum(leaves(start..n.min(start + length))))
}

fn blocks(n: usize, block: usize) -> Tree {
    Tree::sum(parts(n, block)).unwrap()
}

fn splits(n: usize, count: usize) -> Tree {
    Tree::over_slots((0..).zip(parts(n, n.div_ceil(count))).collect()).unwrap()
}

fn fused(n: usize, w: usize) -> Tree {
    (0..n).step_by(w).fold(None, |sum, start| Tree::fused(sum.into_iter().chain(leaves(start..n.min(start + w))))).unwrap()
}

/// Reveals a sum and compares; gives the probes it took.
#[track_caller]
fn check(sum: &mut dyn Summation, expected: Tree) -> Revealed {
    let revealed = reveal(sum).unwrap_or_else(|refusal| panic!("{refusal}\n{:?}", refusal.candidate().map(Tree::to_string)));
    assert_eq!(revealed.tree.to_string(), expected.canonical().to_string());
    assert_eq!(revealed.tree, revealed.tree.canonical());
    assert!(sum.leaves() < 3 || revealed.established.telling > 0);
    revealed
}

#[test]
fn sequential_and_reversed_sums_take_a_probe_or_two_for_each_term() {
    for n in [1, 2, 3, 7, 64, 512] {
        let sum = check(&mut in_f32(n, |x| SINGLE.sequential(x)), sequential(n));
        assert_eq!(sum.probes, n as u64 - 1);
        assert_eq!(sum.established.confirmed, if n < 3 { 0 } else { n as u64 });
        let sum = check(&mut in_f32(n, |x| SINGLE.reversed(x)), reversed(n));
        // The first leaf meets all others at once; the rest is then asked from its last leaf on.
        assert_eq!(sum.probes, (2 * n as u64).saturating_sub(3));
    }
}

#[test]
fn pairwise_sums() {
    for (n, probes) in [(2, 1), (16, 32), (128, 448), (512, 2304)] {
        assert_eq!(check(&mut in_f32(n, |x| SINGLE.pairwise(x)), pairwise(n)).probes, probes);
    }
    for n in [3, 5, 100, 129, 383] {
        check(&mut in_f32(n, |x| SINGLE.pairwise(x)), pairwise(n));
    }
}

#[test]
fn eight_and_sixteen_lanes() {
    for n in [5, 8, 16, 17, 100, 128, 512] {
        for count in [2, 8, 16] {
            check(&mut in_f32(n, |x| SINGLE.lanes(x, count)), lanes(n, count));
        }
    }
    assert_eq!(check(&mut in_f32(128, |x| SINGLE.lanes(x, 8)), lanes(128, 8)).probes, 312);
}

#[test]
fn blocks_of_4_to_176() {
    for block in [4, 16, 32, 64, 80, 96, 112, 128, 160, 176] {
        for n in [block, block + 1, 2 * block - 1, 512] {
            check(&mut in_f32(n, |x| SINGLE.blocks(x, block)), blocks(n, block));
        }
    }
}

#[test]
fn splits_of_2_to_7() {
    for count in 2..=7 {
        for n in [count, 16, 129, 512] {
            check(&mut in_f32(n, |x| SINGLE.splits(x, count)), splits(n, count));
        }
    }
}

#[test]
fn fused_additions_come_out_as_nodes_of_many_terms() {
    for n in [4, 5, 16, 63, 128, 512] {
        for w in [4, 8, 16] {
            let revealed = check(&mut in_f32(n, |x| SINGLE.fused(x, w)), fused(n, w));
            assert_eq!(revealed.established.arithmetic.fused, Fused::Nearest);
        }
    }
    assert_eq!(check(&mut in_f32(128, |x| SINGLE.fused(x, 4)), fused(128, 4)).probes, 411);
}

#[test]
fn the_arithmetic_of_tensor_cores_is_told_from_exact_fused_additions() {
    for inputs in [F16, BF16, F32] {
        let mask = Mask::of(inputs, F32, F32);
        let mut sum = Planted { leaves: 128, mask, sum: |x: &[f32]| SINGLE.aligned(x) };
        let Revealed { probes, established, .. } = check(&mut sum, fused(128, 4));
        assert_eq!(probes, 316);
        assert_eq!(established.arithmetic.fused, Fused::Aligned(23), "{inputs:?}");
        assert_eq!(established.indistinct, []);
    }
}

/// All the orders, in a format, up to what its masks reach.
fn every_order(inputs: Dtype, accumulate: Dtype, output: Dtype, sizes: &[usize]) {
    let mask = Mask::of(inputs, accumulate, output);
    let adder = Adder(accumulate);
    for &n in sizes {
        let go = |sum: &mut dyn FnMut(&[f32]) -> f32, tree: Tree| {
            let established = check(&mut Planted { leaves: n, mask, sum }, tree).established;
            let all = [&[established.arithmetic], &established.indistinct[..]].concat();
            let accumulators: Vec<Accumulator> = all.iter().map(|arithmetic| arithmetic.accumulate).collect();
            assert!(accumulators.contains(&Accumulator::Of(accumulate)), "{accumulators:?}");
            assert!(accumulate == F32 || accumulators.len() == 1, "{accumulators:?}");
        };
        go(&mut |x| adder.sequential(x), sequential(n));
        go(&mut |x| adder.reversed(x), reversed(n));
        go(&mut |x| adder.pairwise(x), pairwise(n));
        go(&mut |x| adder.lanes(x, 8), lanes(n, 8));
        go(&mut |x| adder.blocks(x, 16), blocks(n, 16));
        go(&mut |x| adder.splits(x, 3), splits(n, 3));
    }
}

#[test]
fn f16_within_and_beyond_what_its_masks_reach() {
    every_order(F16, F32, F32, &[40, 512]);
    every_order(F16, F32, F16, &[40, 512]);
    every_order(F16, F16, F16, &[40, 512]);
    for n in [2048, 2049, 2500] {
        let mask = Mask::of(F16, F32, F16);
        let revealed = check(&mut Planted { leaves: n, mask, sum: |x: &[f32]| SINGLE.sequential(x) }, sequential(n));
        let parts = (n - 2).div_ceil(2046) as u64;
        assert_eq!(revealed.probes, parts * (n as u64 - 1), "beyond the reach each probe is asked in parts");
    }
}

#[test]
fn bf16_within_and_beyond_what_its_masks_reach() {
    every_order(BF16, F32, F32, &[40, 512]);
    every_order(BF16, F32, BF16, &[40, 256, 300]);
    every_order(BF16, BF16, BF16, &[40, 256]);
}

#[test]
fn flushed_subnormals_leave_masks_of_32_terms_which_still_do() {
    let flush = |x: f32| if x.abs() < 2f32.powi(-14) { 0.0 } else { x };
    let mask = Mask::flushed(F16, F32, F32);
    assert_eq!(mask.reach, 32);
    let sum = |x: &[f32]| SINGLE.blocks(&x.iter().copied().map(flush).collect::<Vec<_>>(), 16);
    check(&mut Planted { leaves: 200, mask, sum }, blocks(200, 16));
}

#[test]
fn what_is_summed_in_f64_is_one_node() {
    let sum = |x: &[f32]| x.iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
    check(&mut in_f32(64, sum), Tree::fused(leaves(0..64)).unwrap());
    let blocks = |x: &[f32]| x.chunks(8).map(sum).fold(0.0, |sum, x| SINGLE.add(sum, x));
    let nodes = (0..64).step_by(8).filter_map(|start| Tree::fused(leaves(start..start + 8)));
    check(&mut in_f32(64, blocks), Tree::sum(nodes).unwrap());
}

/// Any tree over the leaves `0..n`, in any order, nodes of up to five children.
fn trees() -> impl Strategy<Value = Tree> {
    (1usize..40, any::<bool>()).prop_flat_map(|(n, wide)| {
        let order = Just((0..n as u32).collect::<Vec<_>>()).prop_shuffle();
        (order, proptest::collection::vec((any::<u16>(), 2usize..6), n)).prop_map(move |(order, joins)| {
            let mut nodes: Vec<Tree> = order.into_iter().map(Tree::Leaf).collect();
            for (place, count) in joins {
                if nodes.len() == 1 {
                    break;
                }
                let count = if wide { count.min(nodes.len()) } else { 2 };
                let start = usize::from(place) % (nodes.len() - count + 1);
                let children: Vec<Tree> = nodes.drain(start..start + count).collect();
                nodes.insert(start, if count == 2 { Tree::sum(children) } else { Tree::fused(children) }.unwrap());
            }
            Tree::sum(nodes).unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_trees(tree in trees()) {
        let n = tree.leaves().len();
        check(&mut in_f32(n, |x| tree.evaluate(&|leaf| x[leaf as usize])), tree.clone());
    }

    #[test]
    fn random_trees_in_parts(tree in trees(), reach in 3usize..9) {
        let mut sum = in_f32(tree.leaves().len(), |x| tree.evaluate(&|leaf| x[leaf as usize]));
        sum.mask.reach = reach;
        check(&mut sum, tree.clone());
    }
}
