//! Two runs that both lie within their bounds, and differ: on which data, and from which length on.

use super::{design, seen};
use crate::finding::{Difference, Finding};
use crate::number::Ulps;
use crate::subject::attention::cause::{Cause, CauseKind, Method};
use crate::subject::attention::check::Pair;
use crate::subject::attention::select::fit_plans;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Case, Data, Regime, validate};

/// Draws of each regime at each length.
const SEEDS: u64 = 4;

/// Checks that one look may take. Lengths up to a few hundred are scanned one by one with all draws.
const CHECKS: usize = 4000;

/// With equal scores every weight is one and every rescale a product with one, so that two kernels of the same order hold the same sums. What
/// then still differs is how the sum is divided (two roundings at most on each side) and stored (one): at most 4 ULP apart.
const DIVIDED: u64 = 4;

/// Looks for the data that tell order from blocking.
pub(super) fn boundary(pair: &Pair, trial: &Trial, finding: &Finding) -> Option<Cause> {
    let mut look = Look { pair, trial, family: finding.family(), scratch: pair.scratch(), left: CHECKS };
    let longest = trial.case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
    if look.sums_of_two_differ() {
        let what =
            "with equal scores and two keys, a sum of two that has one order, results differ; both lie within their bounds";
        return Some(seen(CauseKind::Precision, Method::Boundaries, what.into()));
    }
    if let Some(what) = look.order(longest) {
        return Some(seen(CauseKind::Order, Method::Boundaries, what));
    }
    if let Some(what) = look.order_of_dot(longest) {
        return Some(seen(CauseKind::Order, Method::Boundaries, what));
    }
    let first = look.first_length(longest)?;
    let Onset { length, only_lse } = first;
    let axis = finding.changed().map_or(String::new(), |axis| format!(" under a change of {axis}"));
    if length <= 2 {
        // A sum of two has one order, and its second block, if it has one, is rescaled by what multiplies the weight otherwise.
        let what = format!(
            "results differ{axis} from {length} key{} on, where there is one order and nothing to rescale; both lie within their bounds",
            if length == 1 { "" } else { "s" }
        );
        return Some(seen(CauseKind::Precision, Method::Boundaries, what));
    }
    if only_lse {
        let what = format!("only lse differs{axis}, from kv = {length} on: the row sum is added in another order");
        return Some(seen(CauseKind::Order, Method::Boundaries, what));
    }
    let what = format!(
        "results differ{axis} from kv = {length} on (a block of {} and one key), where the running maximum moves, and with equal \
         scores no sum does",
        length - 1
    );
    Some(seen(CauseKind::Blocking, Method::Boundaries, what))
}

/// The least length at which anything differs.
struct Onset {
    length: u32,
    only_lse: bool,
}

struct Look<'a> {
    pair: &'a Pair,
    trial: &'a Trial,
    family: String,
    scratch: crate::subject::attention::check::Scratch,
    left: usize,
}

impl Look<'_> {
    /// The differences of the finding's family on another case.
    fn differences(&mut self, case: Case) -> Vec<Difference> {
        let Some(left) = self.left.checked_sub(1) else { return Vec::new() };
        self.left = left;
        if validate(&case).is_err() {
            return Vec::new();
        }
        let checks = match &self.trial.checks {
            Checks::Only { pair, relation, .. } => Checks::Only { oracle: false, pair: *pair, relation: relation.clone() },
            turn => turn.clone(),
        };
        let verdict = self.pair.check(&Trial::new(case, checks), &mut self.scratch);
        let own = verdict.findings.into_iter().filter(|it| it.family() == self.family);
        own.filter_map(|it| it.difference().cloned()).collect()
    }

    /// The same sum of two by both, once the weights are alike?
    fn sums_of_two_differ(&mut self) -> bool {
        for (regime, seed) in draws(2) {
            let mut case = shortened(&self.trial.case, 2);
            case.problem.alibi_slopes = None;
            case.problem.sinks = None;
            case.data = Data::Drawn { seed, regime };
            if validate(&case).is_ok() && !self.differences(design::with(self.pair, &case, design::equal_scores)).is_empty() {
                return true;
            }
        }
        false
    }

    /// Equal scores and values that cancel: a difference there is one of the sums.
    fn order(&mut self, longest: u32) -> Option<String> {
        let mut spans: Vec<u32> = [2, 4, 8, 16, 64, longest].into_iter().filter(|&span| (2..=longest).contains(&span)).collect();
        spans.sort_unstable();
        spans.dedup();
        let far = |ulps: &Ulps| match ulps {
            Ulps::Steps(n) => *n > DIVIDED,
            Ulps::Incomparable => true,
        };
        // In f32 more of the sum is seen; a kernel that has no such output gives no differences there.
        for (span, wide) in spans.into_iter().flat_map(|span| [(span, true), (span, false)]) {
            for seed in 1..=SEEDS {
                let mut case = self.trial.case.clone();
                case.problem.alibi_slopes = None;
                case.data = Data::Drawn { seed, regime: Regime::Mirror { span, phase: 0 } };
                if validate(&case).is_err() {
                    continue;
                }
                case = design::with(self.pair, &case, design::equal_scores);
                if wide {
                    design::wide_output(&mut case);
                }
                let differences = self.differences(case);
                if let Some(it) = differences.iter().flat_map(|it| &it.elements).find(|it| far(&it.ulps)) {
                    let apart = match it.ulps {
                        Ulps::Steps(n) => format!("{n} ULP apart"),
                        Ulps::Incomparable => "not comparable".into(),
                    };
                    let at = &it.index;
                    return Some(format!(
                        "with equal scores and values that cancel, [{at}] is {apart}: the sums themselves differ"
                    ));
                }
            }
        }
        None
    }

    /// Queries with many lanes, and with two: a sum of two has one order.
    fn order_of_dot(&mut self, longest: u32) -> Option<String> {
        if self.trial.case.problem.d_qk <= 2 {
            return None;
        }
        let two_lanes = |case: &Case, pair: &Pair| {
            design::with(pair, case, |problem, inputs| {
                let d = problem.d_qk as usize;
                inputs.q.bits.iter_mut().enumerate().filter(|(n, _)| n % d >= 2).for_each(|(_, bits)| *bits = 0);
            })
        };
        let mut shows = false;
        for (regime, seed) in draws(longest) {
            let mut case = self.trial.case.clone();
            case.data = Data::Drawn { seed, regime };
            if validate(&case).is_err() {
                continue;
            }
            if !self.differences(two_lanes(&case, self.pair)).is_empty() {
                return None;
            }
            shows |= !self.differences(case).is_empty();
        }
        shows.then(|| {
            "results differ with many lanes in q, and never with two, whose sum has one order: q.k is added otherwise".into()
        })
    }

    /// Scans lengths upwards; where that would take too long, halves the range first.
    fn first_length(&mut self, longest: u32) -> Option<Onset> {
        let (mut low, mut high) = (1, longest);
        let draws = SEEDS as usize * REGIMES.len();
        while ((high - low) as usize + 1) * draws > CHECKS / 2 {
            let middle = low + (high - low) / 2;
            match self.at(middle) {
                Some(_) => high = middle,
                None => low = middle + 1,
            }
        }
        (low..=high).find_map(|length| self.at(length))
    }

    /// Whether anything differs at a length.
    fn at(&mut self, length: u32) -> Option<Onset> {
        let mut found = None;
        for (regime, seed) in draws(length) {
            let mut case = shortened(&self.trial.case, length);
            case.data = Data::Drawn { seed, regime };
            let differences = self.differences(case);
            if differences.iter().any(|it| it.output == "o") {
                return Some(Onset { length, only_lse: false });
            }
            if !differences.is_empty() {
                found = Some(Onset { length, only_lse: true });
            }
        }
        found
    }
}

/// Where order and blocks show: scores that move the maximum, values that cancel, and neither; and where roundings of scores and
/// exponents show.
const REGIMES: [Regime; 6] = [
    Regime::Rising { step: 0.5 },
    Regime::Mirror { span: 2, phase: 0 },
    Regime::Normal,
    Regime::Wide,
    Regime::Dominant { gap: 20.0, lane: 0 },
    Regime::Deep { level: -1e3 },
];

/// The draws at a length.
fn draws(length: u32) -> impl Iterator<Item = (Regime, u64)> {
    let at = move |regime| match regime {
        Regime::Mirror { phase, .. } => Regime::Mirror { span: length.max(2), phase },
        other => other,
    };
    REGIMES.into_iter().flat_map(move |regime| (1..=SEEDS).map(move |seed| (at(regime), seed)))
}

/// The case with sequences of at most so many keys, and rows.
fn shortened(case: &Case, length: u32) -> Case {
    let mut case = case.clone();
    for sequence in &mut case.problem.sequences {
        let kept = sequence.kv.min(length);
        // Rows without keys stay; else there are at most as many rows as keys.
        let empty = sequence.q.saturating_sub(sequence.kv);
        sequence.q = sequence.q.min(empty + kept.max(1));
        sequence.kv = kept;
    }
    fit_plans(&mut case);
    case
}
