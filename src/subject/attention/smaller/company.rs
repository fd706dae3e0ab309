//! Steps under a relation: its own parameters, and what leaves the case for the relation.

use crate::subject::Candidate;
use crate::subject::attention::relation::{Relation, SidedRelation};
use crate::subject::attention::select::Selection;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Case, Problem};

/// A rotation of the batch goes one place less far where a sequence is gone.
pub(super) fn one_place_less(trial: &Trial, case: Case) -> Option<Candidate<Trial>> {
    let Checks::Only { oracle, pair, relation: Some(sided) } = &trial.checks else { return None };
    let Relation::Position { rotate: rotate @ 2.. } = sided.relation else { return None };
    let relation = Some(SidedRelation { relation: Relation::Position { rotate: rotate - 1 }, path: sided.path });
    let checks = Checks::Only { oracle: *oracle, pair: *pair, relation };
    Some(Candidate { trial: Trial::new(case, checks), redraw: true })
}

/// Fewer heads under a neighbour that grows by the same factor: launchers multiply its rows with the heads of a group, and the
/// batch with the KV heads.
pub(super) fn rescaled(trial: &Trial, case: &Case) -> Vec<Candidate<Trial>> {
    let Checks::Only { relation: Some(sided), .. } = &trial.checks else { return Vec::new() };
    let Relation::Neighbour { q, kv, count } = sided.relation else { return Vec::new() };
    let (old, new) = (&trial.case.problem, &case.problem);
    let grown = |n: usize, of: fn(&Problem) -> usize| (n * of(old)).div_ceil(of(new)) as u32;
    let batch = old.sequences.len();
    let rows = grown(q as usize, |it| it.group_ids.len());
    let crowd = grown(batch + count as usize, Problem::kv_heads) - batch as u32;
    [(rows, count), (q, crowd)]
        .into_iter()
        .filter(|&it| it != (q, count))
        .map(|(q, count)| {
            with_relation(trial, case.clone(), SidedRelation { relation: Relation::Neighbour { q, kv, count }, path: sided.path })
        })
        .collect()
}

/// One sequence fewer in the case and one neighbour more: the changed batch stays as large.
pub(super) fn joined(trial: &Trial, case: &Case) -> Option<Candidate<Trial>> {
    let Checks::Only { relation: Some(sided), .. } = &trial.checks else { return None };
    let Relation::Neighbour { q, kv, count } = sided.relation else { return None };
    let relation = Relation::Neighbour { q, kv, count: count + 1 };
    Some(with_relation(trial, case.clone(), SidedRelation { relation, path: sided.path }))
}

pub(super) fn with_relation(trial: &Trial, case: Case, relation: SidedRelation) -> Candidate<Trial> {
    let mut trial = Trial { case, ..trial.clone() };
    if let Checks::Only { relation: it, .. } = &mut trial.checks {
        *it = Some(relation);
    }
    Candidate { trial, redraw: true }
}

pub(super) fn relations(trial: &Trial) -> Vec<Candidate<Trial>> {
    let Checks::Only { relation: Some(sided), .. } = &trial.checks else { return Vec::new() };
    sided.simpler().into_iter().map(|simpler| with_relation(trial, trial.case.clone(), simpler)).collect()
}

/// The neighbours of a company relation leave the case and come with the relation: what they are then costs no length.
pub(super) fn apart(trial: &Trial) -> Option<Candidate<Trial>> {
    let Checks::Only { relation: Some(sided), .. } = &trial.checks else { return None };
    let problem = &trial.case.problem;
    let stays = |id: u32| match sided.relation {
        Relation::Alone { seq } => Some(id == seq),
        Relation::NeighbourLength { seq, .. } | Relation::NeighbourJoins { seq, .. } => Some(id != seq),
        _ => None,
    };
    let mut kept = Vec::new();
    let mut gone = Vec::new();
    for (n, sequence) in problem.sequences.iter().enumerate() {
        if stays(sequence.id)? { kept.push(n) } else { gone.push(*sequence) }
    }
    let q = gone.iter().map(|it| it.q).max()?;
    let kv = gone.iter().map(|it| it.kv).max()?;
    let relation = Relation::Neighbour { q, kv, count: gone.len() as u32 };
    Some(with_relation(
        trial,
        Selection::sequences(problem, kept).apply(&trial.case),
        SidedRelation { relation, path: sided.path },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Path;
    use crate::source::Stream;
    use crate::subject::attention::Sequence;
    use crate::subject::attention::draw::{Hints, Profile, draw};
    use crate::subject::attention::smaller::tests;

    fn company(case: &Case, q: u32, count: u32) -> Trial {
        let relation = SidedRelation { path: Path::Infer, relation: Relation::Neighbour { q, kv: 7, count } };
        Trial::new(case.clone(), Checks::Only { oracle: false, pair: false, relation: Some(relation) })
    }

    /// `[kv_heads, group]` heads and that many sequences.
    fn shaped(case: &Case, [heads, group]: [u32; 2], sequences: usize) -> Case {
        let mut case = case.clone();
        case.problem.kv_head_ids = (0..heads).collect();
        case.problem.group_ids = (0..group).collect();
        case.problem.sequences = vec![Sequence { id: 0, q: 1, kv: 1 }; sequences];
        case
    }

    /// Rows times the heads of a group, and the batch, neighbours included, times the KV heads, stay at least what they were.
    #[test]
    fn neighbours_grow_as_heads_go() {
        let case = shaped(&draw(&mut Stream::new(1, 0), Profile::Quick, &Hints::default()), [8, 6], 2);
        let neighbours = |smaller: &Case| -> Vec<(u32, u32)> {
            let candidates = rescaled(&company(&case, 5, 3), smaller).into_iter();
            candidates
                .map(|candidate| match candidate.trial.checks {
                    Checks::Only {
                        relation: Some(SidedRelation { relation: Relation::Neighbour { q, kv: 7, count }, .. }),
                        ..
                    } => (q, count),
                    other => panic!("{other:?}"),
                })
                .collect()
        };
        // 5 rows of 6 heads are 8 rows of 4; 2 + 3 sequences of 8 heads are 2 + 12 of 3, rounded up.
        assert_eq!(neighbours(&shaped(&case, [8, 4], 2)), [(8, 3)]);
        assert_eq!(neighbours(&shaped(&case, [3, 6], 2)), [(5, 12)]);
        assert_eq!(neighbours(&shaped(&case, [4, 1], 2)), [(30, 3), (5, 8)]);
        assert!(neighbours(&case).is_empty());
    }

    /// Only a rotation by more than one place goes one place less far, and the case is the smaller one.
    #[test]
    fn a_rotation_follows_the_batch() {
        let (case, smaller) = (tests::shaped(&[(1, 1); 3], [1, 1], [1, 1]), tests::shaped(&[(1, 1); 2], [1, 1], [1, 1]));
        let less = |relation: &str| one_place_less(&tests::under(case.clone(), relation), smaller.clone());
        let candidate = less("infer position rotate=2").expect("a step");
        assert_eq!((tests::relation_of(&candidate.trial), candidate.redraw), ("infer position rotate=1".to_owned(), true));
        assert_eq!(candidate.trial.case, smaller);
        assert!(less("infer position rotate=1").is_none() && less("infer alone seq=1").is_none());
        assert!(one_place_less(&tests::compared(case), smaller).is_none());
    }

    #[test]
    fn a_sequence_becomes_a_neighbour() {
        let (case, smaller) = (tests::shaped(&[(1, 1); 3], [1, 1], [1, 1]), tests::shaped(&[(1, 1); 2], [1, 1], [1, 1]));
        let more = |relation: &str| joined(&tests::under(case.clone(), relation), &smaller);
        let candidate = more("train neighbour q=2 kv=5 count=2").expect("a step");
        assert_eq!(
            (tests::relation_of(&candidate.trial), candidate.redraw),
            ("train neighbour q=2 kv=5 count=3".to_owned(), true)
        );
        assert_eq!(candidate.trial.case, smaller);
        assert!(more("infer alone seq=1").is_none() && joined(&tests::compared(case), &smaller).is_none());
    }

    /// What a relation takes away or changes leaves the case; what it compares stays.
    #[test]
    fn neighbours_leave_the_case() {
        let case = tests::shaped(&[(1, 2), (5, 1), (3, 4)], [1, 1], [1, 1]);
        let left = |relation: &str| {
            let candidate = apart(&tests::under(case.clone(), relation))?;
            let ids: Vec<u32> = candidate.trial.case.problem.sequences.iter().map(|it| it.id).collect();
            Some((ids, tests::relation_of(&candidate.trial)))
        };
        let wanted = |ids: &[u32], relation: &str| Some((ids.to_vec(), relation.to_owned()));
        assert_eq!(left("infer alone seq=1"), wanted(&[1], "infer neighbour q=3 kv=4 count=2"));
        assert_eq!(left("train alone seq=0"), wanted(&[0], "train neighbour q=5 kv=4 count=2"));
        assert_eq!(left("train neighbour_length seq=2 q=1 kv=1"), wanted(&[0, 1], "train neighbour q=3 kv=4"));
        assert_eq!(left("infer neighbour_joins seq=0 join=2"), wanted(&[1, 2], "infer neighbour q=1 kv=2"));
        assert_eq!(left("infer neighbour q=1 kv=1"), None);
        assert_eq!(left("infer neighbour_joins seq=9 join=2"), None, "nobody leaves");
        assert!(apart(&tests::compared(case)).is_none());
    }

    /// The relation's own parameters, on the same case.
    #[test]
    fn relations_get_simpler() {
        let case = tests::shaped(&[(1, 1)], [1, 1], [1, 1]);
        let candidates = relations(&tests::under(case.clone(), "infer neighbour q=2 kv=0 count=3"));
        assert!(candidates.iter().all(|it| it.redraw && it.trial.case == case));
        let simpler: Vec<String> = candidates.iter().map(|it| tests::relation_of(&it.trial)).collect();
        assert_eq!(simpler, ["infer neighbour q=2 kv=0", "infer neighbour q=2 kv=0 count=2", "infer neighbour q=1 kv=0 count=3"]);
        assert!(relations(&tests::under(case.clone(), "infer neighbour q=1 kv=0")).is_empty());
        assert!(relations(&tests::compared(case)).is_empty());
    }

    #[test]
    fn heads_grow_nothing_but_neighbours() {
        let case = shaped(&tests::plain(), [2, 2], 1);
        let smaller = shaped(&case, [1, 1], 1);
        assert!(rescaled(&tests::compared(case.clone()), &smaller).is_empty());
        assert!(rescaled(&tests::under(case, "infer alone seq=0"), &smaller).is_empty());
    }
}
