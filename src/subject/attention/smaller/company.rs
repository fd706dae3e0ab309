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
}
