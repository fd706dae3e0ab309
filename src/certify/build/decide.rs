//! What becomes of a claim: FAIL with a failing case, PASS where nothing is missing, else UNVERIFIABLE with all that is.

use super::{Asked, ClaimSum, Earlier, Stratum, Sums, Unjudged, battery_text};
use crate::certify::certificate::{Counts, Mutants, Results, Status};
use crate::certify::claim::Claim;
use crate::subject::attention::battery::Part;

impl Sums {
    /// A claim's status, and why.
    pub(super) fn decide(&self, claim: Claim, asked: &Asked<'_>, missing: &[String], uncovered: u64) -> (Status, String) {
        if claim == Claim::VersionEqual
            && let Some(decided) = self.another_version(asked)
        {
            return decided;
        }
        let sum = &self.claims[&claim];
        let what = match claim {
            Claim::Accurate | Claim::RejectsOrCorrect => "beyond their bound, or not written",
            _ => "differ",
        };
        if sum.failed > 0 {
            return (
                Status::Fail,
                format!("{} of {} cases fail; {} of {} elements {what}", sum.failed, sum.cases, sum.differing, sum.elements),
            );
        }
        let outside_asked = asked.work.battery.cases(Part::Outside) > 0;
        let mut reasons = Vec::new();
        if sum.elements == 0 {
            reasons.push(format!("nothing was compared{}", self.why_nothing(claim)));
        }
        if !missing.is_empty() {
            reasons.push(format!("never reached: {}", missing.join(", ")));
        }
        if uncovered > 0 {
            reasons.push(format!("{uncovered} pairs of knob values were not covered"));
        }
        if !self.not_run.is_empty() && claim != Claim::RejectsOrCorrect {
            reasons.push(format!("not run: {}", words(&self.not_run)));
        }
        if !self.partly.is_empty() && matches!(claim, Claim::TrainEqInfer | Claim::Accurate | Claim::VersionEqual) {
            reasons.push(format!("not compared: {}", words(&self.partly)));
        }
        if !sum.not_run.is_empty() {
            reasons.push(format!("changes not run: {}", words(&sum.not_run)));
        }
        if self.faults > 0 && claim != Claim::RejectsOrCorrect {
            reasons.push(format!("{} cases ended in a fault", self.faults));
        }
        if self.set_aside > 0 && !matches!(claim, Claim::Accurate | Claim::RejectsOrCorrect) {
            reasons.push(format!("{} differences of a kernel that does not repeat itself were set aside", self.set_aside));
        }
        if matches!(claim, Claim::Accurate | Claim::RejectsOrCorrect) {
            let Unjudged { undecided, unbounded, out_of_range } = match claim {
                Claim::Accurate => self.unjudged,
                _ => self.unjudged.and(self.unjudged_outside),
            };
            for (count, what) in [
                (undecided, "elements that the oracle left undecided"),
                (unbounded, "elements whose bound is infinite"),
                (out_of_range, "elements for which the declared arithmetic may overflow inside"),
            ] {
                if count > 0 {
                    reasons.push(format!("{count} {what}"));
                }
            }
        } else {
            let blind: Vec<&str> = self.sensitive.iter().filter(|(_, it)| it[1] == 0).map(|(out, _)| out.as_str()).collect();
            if blind.len() == self.sensitive.len() {
                reasons.push("no case whose bits follow the order of its sums: none could have failed".to_owned());
            } else if !blind.is_empty() {
                let blind = blind.join(", ");
                reasons.push(format!("no case with outputs in {blind} whose bits follow the order of its sums"));
            }
        }
        if claim == Claim::RejectsOrCorrect && self.strata[&Part::Outside].result.generated == 0 && outside_asked {
            reasons.push("no case outside what the kernels declare was drawn".to_owned());
        }
        if self.mutants.killed < (self.mutants.floor * self.mutants.planted as f64).ceil() as u64 || self.mutants.planted == 0 {
            let Mutants { killed, planted, floor, survived, .. } = &self.mutants;
            let survived = survived.join(", ");
            reasons.push(format!("{killed} of {planted} planted faults were found, below the floor of {floor}: not {survived}"));
        }
        // What two versions are held against each other by is a digest: no kernel is disturbed for it.
        if claim != Claim::VersionEqual && !self.controls.iter().any(|it| it.claim == claim.name() && it.failed_at.is_some()) {
            reasons.push("its negative control did not fail".to_owned());
        }
        if !reasons.is_empty() {
            return (Status::Unverifiable, reasons.join("; "));
        }
        (Status::Pass, self.why_pass(claim, sum))
    }

    fn why_pass(&self, claim: Claim, sum: &ClaimSum) -> String {
        let ClaimSum { cases, elements, .. } = sum;
        let share = |n: u64| 100.0 * n as f64 / self.results.judged.max(1) as f64;
        match claim {
            Claim::Accurate => {
                let Results { correctly_rounded, above, below, worst, .. } = &self.results;
                format!(
                    "{elements} elements in {cases} cases, {:.2} % correctly rounded, {:.2} % above and {:.2} % below the true value, \
                     the largest error {:.4} of its bound",
                    share(*correctly_rounded),
                    share(*above),
                    share(*below),
                    // Rounded down: a bound that is kept must not look reached.
                    (worst * 1e4).floor() / 1e4
                )
            }
            Claim::RejectsOrCorrect => match self.strata[&Part::Outside].result.generated {
                0 => format!(
                    "{elements} elements in {cases} cases; the kernels declare no limit of their calls, so no case is outside"
                ),
                outside => {
                    format!("{elements} elements and refusals in {cases} cases, {outside} of them outside what is declared")
                }
            },
            Claim::VersionEqual => {
                let strata = || self.strata.values().map(|it| it.result.generated).filter(|&cases| cases > 0);
                let drawn: u64 = strata().sum();
                format!("{drawn} cases in {} strata have the same output bits", strata().count())
            }
            _ => format!("{elements} elements in {cases} cases, none differs"),
        }
    }

    /// What was left out that a claim is about.
    fn why_nothing(&self, claim: Claim) -> String {
        let about = |reason: &&String| claim.axes().iter().any(|axis| reason.starts_with(&format!("{axis}:")));
        let left_out = self.strata.values().flat_map(|it| it.result.left_out.keys()).find(about);
        match left_out {
            Some(reason) => format!(": {reason}"),
            None if claim == Claim::SplitInvariant && self.strata[&Part::Splits].result.generated == 0 => {
                ": none of the long rows that were drawn is a case that the kernels do".to_owned()
            }
            None => String::new(),
        }
    }

    /// Stratum by stratum, against an earlier certificate. `None`: no bit changed, and what else is missing decides.
    fn another_version(&self, asked: &Asked<'_>) -> Option<(Status, String)> {
        let previous = match &asked.previous {
            None => return Some((Status::Unverifiable, "no earlier certificate was given".to_owned())),
            // Whether bits changed cannot be seen without it; what a pass needs besides can.
            Some(Earlier::Named(_, Status::Fail, reason)) => return Some((Status::Fail, reason.clone())),
            Some(Earlier::Named(.., reason)) => {
                let other = reason == OTHER_BATTERY || reason.starts_with(OTHER_CASES);
                return other.then(|| (Status::Unverifiable, reason.clone()));
            }
            Some(Earlier::There(certificate)) => certificate,
        };
        if !battery_text(&asked.work.battery, &asked.work.claims).asks_as(&previous.battery) {
            return Some((Status::Unverifiable, OTHER_BATTERY.to_owned()));
        }
        let (mut changed, mut others) = (Vec::new(), Vec::new());
        for Stratum { result, cases, outputs, .. } in self.strata.values() {
            let then = previous.strata.iter().find(|it| it.name == result.name).filter(|it| it.generated > 0);
            match then {
                None if result.generated == 0 => {}
                // The sizes that lengths lie around, and what is drawn at all, follow from the kernels.
                Some(it) if it.cases == cases.so_far() && it.outputs == outputs.so_far() => {}
                Some(it) if it.cases == cases.so_far() => changed.push(result.name.as_str()),
                _ => others.push(result.name.as_str()),
            }
        }
        if changed.is_empty() && !others.is_empty() {
            return Some((Status::Unverifiable, format!("{OTHER_CASES} in {}", others.join(", "))));
        }
        let other = match others.is_empty() {
            true => String::new(),
            false => format!("; {OTHER_CASES} in {}", others.join(", ")),
        };
        let changed_in = changed.join(", ");
        let reason = || format!("output bits changed in {changed_in}{other}; `lastbit compare` finds the smallest case");
        (!changed.is_empty()).then(|| (Status::Fail, reason()))
    }
}

/// Begins the reason where strata hold other cases than an earlier certificate's.
const OTHER_CASES: &str = "other sizes or limits of the kernels gave the earlier certificate other cases";

/// Why nothing is said of an earlier version.
const OTHER_BATTERY: &str = "the earlier certificate is of another battery";

/// The most frequent reason, and how many there are.
fn words(counts: &Counts) -> String {
    let total: u64 = counts.values().sum();
    let most = counts.iter().max_by_key(|(reason, count)| (**count, std::cmp::Reverse(reason.as_str())));
    most.map_or(String::new(), |(reason, count)| match counts.len() {
        1 => format!("{count} times {reason}"),
        _ => format!("{total} times, most often ({count}) {reason}"),
    })
}
