//! What becomes of a claim: FAIL with a failing case, PASS where nothing is missing, else UNVERIFIABLE with all that is.

use super::{Asked, ClaimSum, Stratum, Sums, battery_text};
use crate::certify::certificate::{Counts, Mutants, Results, Status};
use crate::certify::claim::Claim;
use crate::subject::attention::battery::Part;

impl Sums {
    /// A claim's status, and why.
    pub(super) fn decide(&self, claim: Claim, asked: &Asked<'_>, missing: &[String], uncovered: u64) -> (Status, String) {
        if claim == Claim::VersionEqual {
            return self.version_equal(asked);
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
        if !self.partly.is_empty() && matches!(claim, Claim::TrainEqInfer | Claim::Accurate) {
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
            let [unbounded, out] = [self.results.unbounded, self.results.out_of_range];
            let (undecided, unbounded, out) = match claim {
                Claim::Accurate => (self.undecided, unbounded, out),
                _ => (self.undecided + self.undecided_outside, 0, 0),
            };
            for (count, what) in [
                (undecided, "elements that the oracle left undecided"),
                (unbounded, "elements whose bound is infinite"),
                (out, "elements with a predicted overflow"),
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
        if !self.controls.iter().any(|it| it.claim == claim.name() && it.failed_at.is_some()) {
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
                0 => format!("{elements} elements in {cases} cases; the kernels declare no limit, so no case is outside"),
                outside => {
                    format!("{elements} elements and refusals in {cases} cases, {outside} of them outside what is declared")
                }
            },
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

    /// Stratum by stratum, against an earlier certificate of the same battery.
    fn version_equal(&self, asked: &Asked<'_>) -> (Status, String) {
        let Some(previous) = &asked.previous else {
            return (Status::Unverifiable, "no earlier certificate was given".to_owned());
        };
        if !battery_text(&asked.work.battery, &asked.work.claims).has_cases_of(&previous.battery) {
            return (Status::Unverifiable, "the earlier certificate is of another battery".to_owned());
        }
        let mut changed = Vec::new();
        let (mut equal, mut cases) = (0, 0);
        for Stratum { result: stratum, outputs, .. } in self.strata.values().filter(|it| it.result.generated > 0) {
            match previous.strata.iter().find(|it| it.name == stratum.name) {
                Some(it) if it.outputs == outputs.so_far() => (equal, cases) = (equal + 1, cases + stratum.generated),
                _ => changed.push(stratum.name.clone()),
            }
        }
        match changed.is_empty() {
            // Two runs in which every call was refused have equal outputs too: none.
            true if cases > 0 && self.claims[&Claim::VersionEqual].elements > 0 => {
                (Status::Pass, format!("{cases} cases in {equal} strata have the same output bits"))
            }
            true => (Status::Unverifiable, "no output was made".to_owned()),
            false => {
                let changed = changed.join(", ");
                (Status::Fail, format!("output bits changed in {changed}; `lastbit compare` finds the smallest case"))
            }
        }
    }
}

/// The most frequent reason, and how many there are.
fn words(counts: &Counts) -> String {
    let total: u64 = counts.values().sum();
    let most = counts.iter().max_by_key(|(reason, count)| (**count, std::cmp::Reverse(reason.as_str())));
    most.map_or(String::new(), |(reason, count)| match counts.len() {
        1 => format!("{count} times {reason}"),
        _ => format!("{total} times, most often ({count}) {reason}"),
    })
}
