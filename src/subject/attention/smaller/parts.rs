//! Fewer sequences, rows, keys, heads and lanes.

use super::down;
use super::plans::changed;
use super::size::DEFAULT_BLOCK_Q;
use crate::subject::attention::select::{Keep, Selection, fit_plans};
use crate::subject::attention::validate::MAX_LENGTH;
use crate::subject::attention::{Anchor, Cache, Case, Data, InferPlan, Mask, Request, TrainLayout, TrainPlan};

pub(super) fn without_sequence(case: &Case, n: usize) -> Case {
    let kept = (0..case.problem.sequences.len()).filter(|&it| it != n);
    Selection::sequences(&case.problem, kept).apply(case)
}

/// Ways to shorten one sequence.
pub(super) const LENGTH_STEPS: usize = 5;

pub(super) fn lengths(case: &Case, n: usize, way: usize) -> Vec<Case> {
    let it = case.problem.sequences[n];
    let cut = |q: std::ops::Range<u32>, kv: std::ops::Range<u32>| {
        let mut selection = Selection::all(&case.problem);
        selection.sequences[n] = Keep::ranges(n, q, kv);
        selection.apply(case)
    };
    match way {
        // The last rows and their keys go: what is left stands where it stood.
        0 => down(it.q, 1).into_iter().map(|q| (q, it.kv.saturating_sub(it.q - q))).map(|(q, kv)| cut(0..q, 0..kv)).collect(),
        // Rows go from one end, the keys stay.
        1 => {
            let some = down(it.q, 1).into_iter().flat_map(|q| [cut(it.q - q..it.q, 0..it.kv), cut(0..q, 0..it.kv)]);
            // A sequence without rows is only there for the others.
            let none = (it.q > 0 && case.problem.sequences.len() > 1).then(|| cut(0..0, 0..it.kv));
            some.chain(none).collect()
        }
        // The first keys go: positions move.
        2 => down(it.kv, 0).into_iter().map(|kv| cut(0..it.q, it.kv - kv..it.kv)).collect(),
        // The last keys go, the rows stay.
        3 => down(it.kv, 0).into_iter().map(|kv| cut(0..it.q, 0..kv)).collect(),
        // Any one key goes. Drawn values belong to positions, so there it would be the same as the last.
        _ if matches!(case.data, Data::Literal(_)) => (0..it.kv)
            .map(|key| {
                let mut selection = Selection::all(&case.problem);
                selection.sequences[n].hole = Some(key);
                selection.apply(case)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// A lone sequence, computed whole by training and row by row by inference from a contiguous cache, with fewer keys: where rules
/// set prefill and decode apart, no other plan needs fewer.
pub(super) fn decoded(case: &Case) -> Vec<Case> {
    let ([it], Data::Drawn { .. }) = (&case.problem.sequences[..], &case.data) else { return Vec::new() };
    let q = it.q.max(2);
    let shorter = down((it.q + it.kv).saturating_sub(q), 3);
    let simplest = changed(case, |case| {
        case.problem.mask = Mask { causal: Some(Anchor::BottomRight), ..Mask::default() };
        case.train = TrainPlan { layout: TrainLayout::Varlen, block_q: DEFAULT_BLOCK_Q, ..case.train.clone() };
        case.infer = InferPlan {
            cache: Cache::Contiguous { spare: 0 },
            requests: vec![Request { hit: 0, join: 0, chunks: Vec::new(), then: 1, reject: 0, preempt: None }],
            budget: None,
            bucket: 1,
            ..case.infer.clone()
        };
    });
    shorter
        .into_iter()
        .map(|kv| {
            changed(&simplest, |case| {
                (case.problem.sequences[0].q, case.problem.sequences[0].kv) = (q, kv);
                fit_plans(case);
            })
        })
        .collect()
}

pub(super) fn heads(case: &Case, position: usize) -> Vec<Case> {
    let kv_heads = case.problem.kv_head_ids.len();
    let select = |kept: Vec<usize>, of_group: bool| {
        let mut selection = Selection::all(&case.problem);
        if of_group {
            selection.groups = kept;
        } else {
            selection.kv_heads = kept;
        }
        selection.apply(case)
    };
    let (n, count, of_group) = match position.checked_sub(kv_heads) {
        None => (position, kv_heads, false),
        Some(n) => (n, case.problem.group_ids.len(), true),
    };
    if count < 2 {
        return Vec::new();
    }
    vec![select(vec![n], of_group), select((0..count).filter(|&it| it != n).collect(), of_group)]
}

pub(super) fn dims(case: &Case, position: usize) -> Vec<Case> {
    let all = Selection::all(&case.problem);
    let of_qk = position == 0;
    let lanes = if of_qk { all.d_qk } else { all.d_v };
    let first = |case: &Case, kept: u32| {
        let selection = if of_qk { Selection { d_qk: kept, ..all.clone() } } else { Selection { d_v: kept, ..all.clone() } };
        selection.apply(case)
    };
    let mut cases: Vec<Case> = down(lanes, 1).into_iter().map(|kept| first(case, kept)).collect();
    // Any one lane stays, any one goes. Drawn values belong to lanes, so there the first are as good.
    if let Data::Literal(literal) = &case.data {
        let reordered = |lane: u32, to_front: bool| {
            let mut literal = literal.clone();
            let tensors = if of_qk { vec![&mut literal.q, &mut literal.k] } else { vec![&mut literal.v] };
            for row in tensors.into_iter().flat_map(|bits| bits.chunks_exact_mut(lanes as usize)) {
                let lane = lane as usize;
                if to_front { row[..=lane].rotate_right(1) } else { row[lane..].rotate_left(1) }
            }
            Case { data: Data::Literal(literal), ..case.clone() }
        };
        cases.extend((1..lanes).map(|lane| first(&reordered(lane, true), 1)));
        if lanes > 2 {
            cases.extend((0..lanes - 1).map(|lane| first(&reordered(lane, false), lanes - 1)));
        }
    }
    cases
}

/// A smaller case over pages that are longer by the factor by which a slot is narrower: where a page begins in memory stays what it was
/// or comes later, and so does the size of the pool. Once for the slots of K, once for those of V.
pub(super) fn longer_pages(case: &Case, smaller: &Case) -> Vec<Case> {
    let Cache::Paged { page, spare, shuffle, recycled } = case.infer.cache else { return Vec::new() };
    let (old, new) = (&case.problem, &smaller.problem);
    let slots = |d: u32, kv_heads: usize| u64::from(d) * kv_heads as u64;
    let grown = |old: u64, new: u64| (u64::from(page) * old).div_ceil(new).min(u64::from(MAX_LENGTH)) as u32;
    let mut pages = vec![
        grown(slots(old.d_qk, old.kv_heads()), slots(new.d_qk, new.kv_heads())),
        grown(slots(old.d_v, old.kv_heads()), slots(new.d_v, new.kv_heads())),
    ];
    pages.retain(|&it| it > page);
    pages.dedup();
    pages
        .into_iter()
        .map(|page| changed(smaller, |case| case.infer.cache = Cache::Paged { page, spare, shuffle, recycled }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::smaller::tests::{counted, literal_of, shaped};

    fn of_first(cases: Vec<Case>) -> Vec<(u32, u32)> {
        cases.into_iter().map(|case| (case.problem.sequences[0].q, case.problem.sequences[0].kv)).collect()
    }

    /// What is left stands where it stood in both plans.
    #[test]
    fn sequences_go_from_plans_too() {
        let mut case = shaped(&[(1, 1), (2, 2), (3, 3)], [1, 1], [1, 1]);
        (case.train.order, case.infer.order) = (vec![2, 0, 1], vec![1, 2, 0]);
        let smaller = without_sequence(&case, 1);
        let kept: Vec<_> = smaller.problem.sequences.iter().map(|it| (it.id, it.q, it.kv)).collect();
        assert_eq!(kept, [(0, 1, 1), (2, 3, 3)]);
        assert_eq!((smaller.train.order, smaller.infer.order), (vec![1, 0], vec![1, 0]));
        assert_eq!(smaller.infer.requests, [case.infer.requests[0].clone(), case.infer.requests[2].clone()]);
    }

    #[test]
    fn lengths_of_a_lone_sequence() {
        let case = shaped(&[(5, 9)], [1, 1], [1, 1]);
        assert_eq!(of_first(lengths(&case, 0, 0)), [(1, 5), (3, 7), (4, 8)]);
        assert_eq!(of_first(lengths(&case, 0, 1)), [(1, 9), (1, 9), (3, 9), (3, 9), (4, 9), (4, 9)]);
        assert_eq!(of_first(lengths(&case, 0, 2)), [(5, 0), (5, 5), (5, 7), (5, 8)]);
        assert_eq!(of_first(lengths(&case, 0, 3)), [(5, 0), (5, 5), (5, 7), (5, 8)]);
        assert!(lengths(&case, 0, 4).is_empty(), "drawn keys are alike");
        // More rows than keys: those without keys go with the last.
        assert_eq!(of_first(lengths(&shaped(&[(4, 1)], [1, 1], [1, 1]), 0, 0)), [(1, 0), (3, 0)]);
        let least = shaped(&[(1, 0)], [1, 1], [1, 1]);
        assert!((0..LENGTH_STEPS).all(|way| lengths(&least, 0, way).is_empty()));
    }

    /// Which rows and keys stay shows in literal values.
    #[test]
    fn lengths_cut_where_they_say() {
        let case = counted(shaped(&[(3, 4)], [1, 1], [1, 1]));
        let cut = |way: usize| -> Vec<[Vec<u32>; 3]> {
            let literals = lengths(&case, 0, way);
            literals.iter().map(literal_of).map(|it| [it.q.clone(), it.k.clone(), it.v.clone()]).collect()
        };
        let (rows, keys) = (vec![1, 2, 3], vec![1, 2, 3, 4]);
        let with = |q: &[u32], kv: &[u32]| [q.to_vec(), kv.to_vec(), kv.to_vec()];
        assert_eq!(cut(0), [with(&[1], &[1, 2]), with(&[1, 2], &[1, 2, 3])]);
        assert_eq!(cut(1), [with(&[3], &keys), with(&[1], &keys), with(&[2, 3], &keys), with(&[1, 2], &keys)]);
        assert_eq!(cut(2), [with(&rows, &[]), with(&rows, &[3, 4]), with(&rows, &[2, 3, 4])]);
        assert_eq!(cut(3), [with(&rows, &[]), with(&rows, &[1, 2]), with(&rows, &[1, 2, 3])]);
        assert_eq!(cut(4), [[2, 3, 4], [1, 3, 4], [1, 2, 4], [1, 2, 3]].map(|keys| with(&rows, &keys)));
    }

    /// Beside others a sequence may lose its last row, and stays.
    #[test]
    fn a_sequence_without_rows_stands_beside_others() {
        let case = shaped(&[(1, 3), (2, 2)], [1, 1], [1, 1]);
        assert_eq!(of_first(lengths(&case, 0, 1)), [(0, 3)]);
        let second = |case: &Case| (case.problem.sequences[0], case.problem.sequences[1].q, case.problem.sequences[1].kv);
        let first = case.problem.sequences[0];
        assert_eq!(lengths(&case, 1, 1).iter().map(second).collect::<Vec<_>>(), [(first, 1, 2), (first, 1, 2), (first, 0, 2)]);
        assert!(lengths(&shaped(&[(0, 3), (2, 2)], [1, 1], [1, 1]), 0, 1).is_empty());
    }

    /// All plans are the plainest ones, and only the lengths differ.
    #[test]
    fn the_plainest_decode() {
        let mut case = shaped(&[(1, 9)], [2, 1], [4, 2]);
        case.problem.mask.window_left = Some(3);
        case.train.layout = TrainLayout::Dense { side: crate::subject::attention::Side::Left, pad_q: 1, pad_kv: 2 };
        case.train.block_q = 16;
        case.infer.cache = Cache::Contiguous { spare: 3 };
        case.infer.bucket = 4;
        let decoded_cases = decoded(&case);
        assert_eq!(of_first(decoded_cases.clone()), [(2, 3), (2, 6), (2, 7)]);
        for it in decoded_cases {
            let mask = Mask { causal: Some(Anchor::BottomRight), window_left: None, window_right: None };
            let mut plain = shaped(&[(2, it.problem.sequences[0].kv)], [2, 1], [4, 2]);
            (plain.problem.mask, plain.infer.requests[0].then) = (mask, 1);
            assert_eq!(it, plain);
        }
        // Three keys are the least that show an order, and nothing that is literal or in company is decoded.
        assert!(decoded(&shaped(&[(2, 3)], [1, 1], [1, 1])).is_empty());
        assert!(decoded(&counted(case)).is_empty());
        assert!(decoded(&shaped(&[(1, 9), (1, 1)], [1, 1], [1, 1])).is_empty());
    }

    #[test]
    fn one_head_stays_or_goes() {
        let case = shaped(&[(1, 1)], [3, 2], [1, 1]);
        let kept = |position: usize| -> Vec<(Vec<u32>, Vec<u32>)> {
            heads(&case, position).into_iter().map(|it| (it.problem.kv_head_ids, it.problem.group_ids)).collect()
        };
        let group = vec![0, 1];
        assert_eq!(kept(0), [(vec![0], group.clone()), (vec![1, 2], group.clone())]);
        assert_eq!(kept(2), [(vec![2], group.clone()), (vec![0, 1], group)]);
        assert_eq!(kept(3), [(vec![0, 1, 2], vec![0]), (vec![0, 1, 2], vec![1])]);
        assert_eq!(kept(4), [(vec![0, 1, 2], vec![1]), (vec![0, 1, 2], vec![0])]);
        let one = shaped(&[(1, 1)], [1, 1], [1, 1]);
        assert!(heads(&one, 0).is_empty() && heads(&one, 1).is_empty());
    }

    #[test]
    fn the_first_lanes_stay() {
        let pairs = |case: &Case, position: usize| -> Vec<(u32, u32)> {
            dims(case, position).into_iter().map(|it| (it.problem.d_qk, it.problem.d_v)).collect()
        };
        let case = shaped(&[(1, 1)], [1, 1], [8, 4]);
        assert_eq!(pairs(&case, 0), [(1, 4), (5, 4), (7, 4)]);
        assert_eq!(pairs(&case, 1), [(8, 1), (8, 3)]);
        let one = shaped(&[(1, 1)], [1, 1], [1, 1]);
        assert!(pairs(&one, 0).is_empty() && pairs(&one, 1).is_empty());
        let counted = counted(one);
        assert!(pairs(&counted, 0).is_empty() && pairs(&counted, 1).is_empty());
    }

    /// Only literal values tell which lane it is: one of two, in the tensors that have it, in every row.
    #[test]
    fn any_lane_of_literal_values_stays_or_goes() {
        let case = counted(shaped(&[(2, 1)], [1, 1], [3, 2]));
        let values = |position: usize| -> Vec<[Vec<u32>; 3]> {
            let cases = dims(&case, position);
            cases.iter().map(literal_of).map(|it| [it.q.clone(), it.k.clone(), it.v.clone()]).collect()
        };
        let lanes = |q: &[u32], k: &[u32]| [q.to_vec(), k.to_vec(), vec![1, 2]];
        let first = [lanes(&[1, 4], &[1]), lanes(&[1, 2, 4, 5], &[1, 2])];
        let one = [lanes(&[2, 5], &[2]), lanes(&[3, 6], &[3])];
        let gone = [lanes(&[2, 3, 5, 6], &[2, 3]), lanes(&[1, 3, 4, 6], &[1, 3])];
        assert_eq!(values(0), [first, one, gone].concat());
        let (q, k) = (vec![1, 2, 3, 4, 5, 6], vec![1, 2, 3]);
        assert_eq!(values(1), [[q.clone(), k.clone(), vec![1]], [q, k, vec![2]]]);
    }

    /// The pool keeps its size, in elements of K or of V, up to the longest page that there is.
    #[test]
    fn pages_grow_as_slots_get_narrow() {
        let paged = |kv_heads: u32, dims: [u32; 2], page: u32| {
            let mut case = shaped(&[(1, 1)], [kv_heads, 1], dims);
            case.infer.cache = Cache::Paged { page, spare: 2, shuffle: 3, recycled: true };
            case
        };
        let grown = |case: &Case, smaller: &Case| -> Vec<u32> {
            let page = |it: Case| match it.infer.cache {
                Cache::Paged { page, spare: 2, shuffle: 3, recycled: true } => {
                    let same = Case { infer: smaller.infer.clone(), ..it };
                    assert_eq!(same, *smaller);
                    page
                }
                other => panic!("{other:?}"),
            };
            longer_pages(case, smaller).into_iter().map(page).collect()
        };
        let case = paged(2, [6, 29], 63);
        assert_eq!(grown(&case, &paged(2, [6, 1], 63)), [63 * 29]);
        assert_eq!(grown(&case, &paged(2, [4, 29], 63)), [95], "rounded up");
        assert_eq!(grown(&case, &paged(1, [6, 29], 63)), [126]);
        assert_eq!(grown(&case, &paged(1, [3, 29], 63)), [252, 126]);
        assert_eq!(grown(&case, &case), [0; 0]);
        assert_eq!(grown(&paged(1, [1, 2], 40_000), &paged(1, [1, 1], 40_000)), [65_536]);
        let contiguous = shaped(&[(1, 1)], [1, 1], [2, 2]);
        assert!(longer_pages(&contiguous, &shaped(&[(1, 1)], [1, 1], [1, 1])).is_empty());
    }
}
