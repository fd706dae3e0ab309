//! Relations: which are run on a case, and one of them run.

use super::{OutputDigest, Pair, produced, productions, stopped};
use crate::finding::{Comparison, Finding, Path, Verdict};
use crate::number::Dtype;
use crate::source::{Source as _, Stream};
use crate::subject::attention::data::Known;
use crate::subject::attention::drive::{Poison, Produced, element_index, row_index};
use crate::subject::attention::relation::{Relation, SidedRelation, draw_knob, every, rotate, splits};
use crate::subject::attention::scope::SideScope;
use crate::subject::attention::trial::{Checks, RELATIONS_PER_CASE, RelationSet, Trial};
use crate::subject::attention::{Case, Inputs};

/// Stream of the relation draws, apart from the case streams.
pub(crate) const RELATION_STREAM: u64 = u64::MAX;

/// Stream of the draws of relations of knobs.
const KNOB_STREAM: u64 = u64::MAX - 1;

impl Pair {
    /// Why a relation that was drawn is not run: its changed case is more than the kernel can do. The axis, and the reason.
    pub(crate) fn beyond(&self, case: &Case, drawn: &SidedRelation) -> Option<String> {
        let kernel = &*self.side(drawn.path).kernel;
        let side = SideScope::of(drawn.path, kernel);
        if side.is_everything() {
            return None;
        }
        let reason = side.outside(&drawn.apply(case)?.case)?;
        Some(format!("{}: {reason}", drawn.relation.axis()))
    }

    /// The relations that a trial runs, and why others are left out.
    pub(crate) fn relations(&self, trial: &Trial) -> (Vec<SidedRelation>, Vec<String>) {
        match &trial.checks {
            Checks::All { seed, set, also } => self.relations_of_set(&trial.case, *seed, *set, also),
            Checks::Turn(turn) => self.relations_of_turn(&trial.case, *turn),
            Checks::These(relations) => (relations.clone(), Vec::new()),
            Checks::Only { relation, .. } => (relation.iter().cloned().collect(), Vec::new()),
        }
    }

    /// The relations of a case's turn, and why others are left out.
    pub(super) fn relations_of_turn(&self, case: &Case, turn: u64) -> (Vec<SidedRelation>, Vec<String>) {
        let mut drawn = rotate(case, turn, RELATIONS_PER_CASE, &mut Stream::new(turn, RELATION_STREAM));
        // Knobs have a stream of their own: other kernels' relations stay what they are.
        let mut source = Stream::new(turn, KNOB_STREAM);
        for path in Path::BOTH {
            let knobs = self.side(path).kernel.capabilities().knobs;
            if !knobs.is_empty() && source.chance(1, 2) {
                drawn.extend(draw_knob(path, case, &knobs, &mut source));
            }
        }
        let mut left_out = Vec::new();
        drawn.retain(|it| {
            let reason = self.beyond(case, it);
            let stays = reason.is_none();
            left_out.extend(reason);
            stays
        });
        (drawn, left_out)
    }

    /// All relations of a set that fit a case, and why others are left out.
    fn relations_of_set(
        &self,
        case: &Case,
        seed: u64,
        set: RelationSet,
        also: &Option<SidedRelation>,
    ) -> (Vec<SidedRelation>, Vec<String>) {
        let mut source = Stream::new(seed, RELATION_STREAM);
        let mut drawn = match set {
            RelationSet::Every => every(case, &mut source),
            RelationSet::Splits => splits(case, &mut source),
        };
        for path in Path::BOTH {
            for knob in self.side(path).kernel.capabilities().knobs {
                if set == RelationSet::Every || knob.name.contains("split") {
                    drawn.extend(draw_knob(path, case, std::slice::from_ref(&knob), &mut source));
                }
            }
        }
        drawn.extend(also.iter().filter(|it| it.apply(case).is_some()).cloned());
        let mut left_out = Vec::new();
        drawn.retain(|it| {
            let reason = self.beyond(case, it);
            let stays = reason.is_none();
            left_out.extend(reason);
            stays
        });
        left_out.sort();
        left_out.dedup();
        (drawn, left_out)
    }

    /// One relation: runs the changed case on one path and compares the rows that both runs have.
    pub(super) fn relate(
        &self,
        case: &Case,
        inputs: &Inputs,
        base: &Produced,
        relation: &SidedRelation,
        outputs: &mut Option<OutputDigest>,
        verdict: &mut Verdict,
    ) {
        let Some(variant) = relation.apply(case) else { return };
        let poison = if relation.relation == Relation::Poison { Poison::Huge } else { Poison::Nan };
        let known = Known { problem: &case.problem, inputs };
        let captured = self.captured.as_deref().map(|captured| captured as _);
        let fresh = (!variant.same_inputs).then(|| Inputs::with(&variant.case, captured, Some(known)));
        let other_inputs = fresh.as_ref().unwrap_or(inputs);
        // Rows made again are in the base run already.
        let again = relation.relation == Relation::Recompute;
        let changed = match again {
            true => None,
            false => match self.drive(relation.path, &variant.case, other_inputs, poison, None) {
                Ok(changed) => {
                    if let Some(outputs) = outputs {
                        outputs.add(&changed);
                    }
                    Some(changed)
                }
                Err(stop) => return verdict.findings.push(stopped(relation.path, stop, Some(relation))),
            },
        };
        let problem = &case.problem;
        let names = if again { ["first", "again"] } else { ["base", "changed"] };
        let mut o = Comparison::new("o", problem.out_dtype, names);
        let mut lse = Comparison::new("lse", Dtype::F32, names);
        let has_lse = self.side(relation.path).kernel.has_lse();
        for (n, sequence) in variant.case.problem.sequences.iter().enumerate() {
            let Some(ours) = problem.sequences.iter().position(|it| it.id == sequence.id) else { continue };
            if variant.except == Some(sequence.id) {
                continue;
            }
            for i in 0..sequence.q as usize {
                let (row, other) = (inputs.q_start[ours] + i, other_inputs.q_start[n] + i);
                let mut pair = |a: [&[u32]; 2], b: [&[u32]; 2], production| {
                    o.slices(a[0], b[0], row * a[0].len(), |n| produced(element_index(problem, row, n), production));
                    if has_lse {
                        lse.slices(a[1], b[1], row * a[1].len(), |n| produced(row_index(problem, row, n), production));
                    }
                };
                match &changed {
                    Some(changed) => {
                        let both = productions(base, row).zip(productions(changed, other));
                        both.enumerate().for_each(|(production, (a, b))| pair(a, b, production));
                    }
                    None => {
                        let mut ours = productions(base, row);
                        if let Some(first) = ours.next() {
                            ours.enumerate().for_each(|(n, again)| pair(first, again, n + 1));
                        }
                    }
                }
            }
        }
        // A relation that left nothing to compare was not run.
        verdict.relations += u64::from(o.compared() > 0);
        verdict.related[0] += o.compared();
        verdict.related[1] += lse.compared();
        let along = verdict.along.entry(relation.relation.changed()).or_default();
        along[0] += o.compared() + lse.compared();
        along[1] += o.differing() + lse.differing();
        for difference in [o.finish(), lse.finish()].into_iter().flatten() {
            let (axis, path, relation) = (relation.relation.axis(), relation.path, relation.to_string());
            let finding = Finding::NotInvariant { axis, path, relation, difference };
            // Two relations of one axis may show the same.
            if verdict.findings.iter().all(|it| it.signature() != finding.signature()) {
                verdict.findings.push(finding);
            }
        }
    }
}
