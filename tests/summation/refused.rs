//! Orders that are not fixed, and sums that have none: refused, not guessed.

use super::planted::{Adder, Planted, in_f32};
use lastbit::number::Dtype::{BF16, E4M3, F32};
use lastbit::reveal::{Mask, Refusal, Summation, reveal};

const SINGLE: Adder = Adder(F32);

#[track_caller]
fn refusal(sum: &mut dyn Summation) -> Refusal {
    match reveal(sum) {
        Ok(revealed) => panic!("believed: {}", revealed.tree),
        Err(refusal) => refusal,
    }
}

#[test]
fn skipped_zeros() {
    // The terms that are not zero close up, and go to other lanes.
    let compact = |x: &[f32]| SINGLE.lanes(&x.iter().copied().filter(|&x| x != 0.0).collect::<Vec<_>>(), 8);
    for n in [16, 100, 512] {
        let refusal = refusal(&mut in_f32(n, compact));
        assert!(matches!(refusal, Refusal::NotConfirmed { .. }), "{refusal}");
        assert!(refusal.to_string().contains("the order depends on the values (skipped zeros)"), "{refusal}");
    }
    // Whole blocks that are left out change nothing: x + 0 is x.
    let blocks =
        |x: &[f32]| x.chunks(8).filter(|block| block.iter().any(|&x| x != 0.0)).map(|block| SINGLE.sequential(block)).sum();
    assert!(reveal(&mut in_f32(64, blocks)).is_ok());
}

#[test]
fn sorted_by_magnitude() {
    let sorted = |x: &[f32], descending: bool| {
        let mut x = x.to_vec();
        x.sort_by(|a, b| if descending { b.abs().total_cmp(&a.abs()) } else { a.abs().total_cmp(&b.abs()) });
        SINGLE.sequential(&x)
    };
    for n in [4, 64] {
        // Descending, the masks come first and cancel, whichever they are: all units survive, as in an exact node. Ascending, they
        // swamp everything, as in a node that cuts off. Random values say otherwise.
        for descending in [true, false] {
            let refused = refusal(&mut in_f32(n, |x| sorted(x, descending)));
            assert!(matches!(refused, Refusal::NotReplayed { .. }), "{refused}");
            assert_eq!(refused.candidate().map(|tree| tree.to_string().contains("[0 1 2 3")), Some(true));
        }
    }
}

#[test]
fn another_order_each_call() {
    let mut call = 0usize;
    let rotating = |x: &[f32]| {
        call += 1;
        let (head, tail) = x.split_at(call * 7 % x.len());
        SINGLE.sequential(&[tail, head].concat())
    };
    let refused = refusal(&mut in_f32(64, rotating));
    assert!(matches!(refused, Refusal::NotRepeated { .. }), "{refused}");
    // Seldom: so that all probes agree, and the replay has to notice.
    let mut call = 0usize;
    let seldom = |x: &[f32]| {
        call += 1;
        if x[1..].iter().any(|&y| y != x[1]) && x.iter().all(|&y| y.abs() != 1.0) && call.is_multiple_of(5) {
            SINGLE.reversed(x)
        } else {
            SINGLE.sequential(x)
        }
    };
    let refused = refusal(&mut in_f32(64, seldom));
    assert!(matches!(refused, Refusal::ReplayChanges { .. }), "{refused}");
}

#[test]
fn an_order_that_follows_the_sign_of_a_term() {
    let follows = |x: &[f32]| if x[5] < 0.0 { SINGLE.reversed(x) } else { SINGLE.sequential(x) };
    let refused = refusal(&mut in_f32(20, follows));
    assert!(matches!(refused, Refusal::SignsDisagree { .. }), "{refused}");
}

#[test]
fn compensated_sums() {
    let kahan = |x: &[f32]| {
        let (mut sum, mut lost) = (0.0f32, 0.0f32);
        for &x in x {
            let y = x - lost;
            let t = sum + y;
            lost = (t - sum) - y;
            sum = t;
        }
        sum
    };
    let neumaier = |x: &[f32]| {
        let (mut sum, mut lost) = (0.0f32, 0.0f32);
        for &x in x {
            let t = sum + x;
            lost += if sum.abs() >= x.abs() { (sum - t) + x } else { (x - t) + sum };
            sum = t;
        }
        sum + lost
    };
    for n in [4, 33] {
        for refused in [refusal(&mut in_f32(n, kahan)), refusal(&mut in_f32(n, neumaier))] {
            assert!(matches!(refused, Refusal::NotReplayed { .. }), "{refused}");
        }
    }
}

#[test]
fn masks_that_do_not_swamp() {
    let refused = refusal(&mut Planted { leaves: 40, mask: Mask::of(E4M3, F32, F32), sum: |x: &[f32]| SINGLE.sequential(x) });
    assert_eq!(refused, Refusal::NoMask { reach: 0 });
    // Counts beyond what the output holds.
    let mut mask = Mask::of(BF16, F32, BF16);
    mask.reach = 1024;
    let refused = refusal(&mut Planted { leaves: 401, mask, sum: |x: &[f32]| SINGLE.sequential(x) });
    assert!(matches!(refused, Refusal::NotACount { .. }), "{refused}");
}

#[test]
fn no_sum_at_all() {
    assert_eq!(refusal(&mut in_f32(0, |_| 0.0)), Refusal::NoLeaves);
    let maximum = refusal(&mut in_f32(9, |x| x.iter().copied().fold(f32::MIN, f32::max)));
    assert!(matches!(maximum, Refusal::NotACount { .. }), "{maximum}");
    let mean = refusal(&mut in_f32(9, |x| SINGLE.sequential(x) / 9.0));
    assert!(matches!(mean, Refusal::NotACount { .. }), "{mean}");
    let nan = refusal(&mut in_f32(9, |_| f32::NAN));
    assert!(matches!(nan, Refusal::NotACount { .. }), "{nan}");
    struct Broken;
    impl Summation for Broken {
        fn leaves(&self) -> usize {
            4
        }
        fn mask(&self) -> Mask {
            Mask::of(F32, F32, F32)
        }
        fn run(&mut self, _: &[f32]) -> Result<u32, Refusal> {
            Err(Refusal::Call("the device is gone".into()))
        }
    }
    assert_eq!(refusal(&mut Broken).to_string(), "the sum could not be run: the device is gone");
}
