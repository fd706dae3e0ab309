//! A kernel that does not repeat itself is found out before anything is blamed on plans: bits that change from run to run differ under
//! every relation, and between the paths too.

use super::Pair;
use crate::finding::{Axis, Finding, Path, Verdict};
use crate::subject::attention::drive::Produced;
use crate::subject::attention::relation::{Relation, SidedRelation};
use crate::subject::attention::{Case, Inputs};

/// The knob, and its value, with which a kernel fills its workspace with garbage before a call.
const DIRTY: (&str, &str) = ("workspace", "dirty");

impl Pair {
    /// Repeats each path of which a difference is to be reported, and whose kernel is no reference kernel: those repeat themselves. Where
    /// the repeat differs, that comes first, and the differences that it explains are dropped and counted.
    pub(super) fn repeat_first(
        &self,
        case: &Case,
        inputs: &Inputs,
        sides: [Option<&Produced>; 2],
        run: &[SidedRelation],
        verdict: &mut Verdict,
    ) {
        for (path, base) in Path::BOTH.into_iter().zip(sides) {
            let Some(base) = base else { continue };
            if self.side(path).reference.is_some() || !verdict.findings.iter().any(|it| blames(it, path)) {
                continue;
            }
            let mut repeats = vec![SidedRelation { path, relation: Relation::Repeat }];
            repeats.extend(self.dirty_workspace(path, case));
            // Those that were drawn have run.
            repeats.retain(|it| !run.contains(it));
            for relation in &repeats {
                self.relate(case, inputs, base, relation, &mut None, verdict);
            }
            if !verdict.findings.iter().any(|it| unrepeatable(it, path)) {
                continue;
            }
            let before = verdict.findings.len();
            verdict.findings.retain(|it| !blames(it, path));
            verdict.set_aside += (before - verdict.findings.len()) as u64;
            // A stable sort: the rest keeps its order.
            verdict.findings.sort_by_key(|it| !Path::BOTH.into_iter().any(|path| unrepeatable(it, path)));
        }
    }

    /// The same call over garbage if the kernel offers that, and over a clean workspace where the case has garbage.
    fn dirty_workspace(&self, path: Path, case: &Case) -> Option<SidedRelation> {
        let (name, value) = DIRTY;
        let knobs = self.side(path).kernel.capabilities().knobs;
        if !knobs.iter().any(|knob| knob.name == name && knob.values.iter().any(|it| it == value)) {
            return None;
        }
        let with = |value: Option<&str>| {
            let relation = Relation::Knob { name: name.to_owned(), value: value.map(str::to_owned) };
            SidedRelation { path, relation }
        };
        let other = |it: &SidedRelation| it.apply(case).is_some_and(|variant| variant.case != *case);
        [with(Some(value)), with(None)].into_iter().find(other)
    }
}

/// Whether a path's bits differ between two runs of one call.
fn unrepeatable(finding: &Finding, path: Path) -> bool {
    match finding {
        Finding::NotInvariant { axis: Axis::Repeat, path: of, .. } => *of == path,
        Finding::NotInvariant { axis: Axis::Knob, path: of, .. } => {
            *of == path && finding.changed().is_some_and(|knob| knob == format!("knob {}", DIRTY.0))
        }
        _ => false,
    }
}

/// Whether a difference says that something other than the run made the bits of a path.
fn blames(finding: &Finding, path: Path) -> bool {
    match finding {
        Finding::Mismatch(_) => true,
        Finding::NotInvariant { path: of, .. } => *of == path && !unrepeatable(finding, path),
        _ => false,
    }
}
