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
const CHECKS: usize = 6000;

/// How far scores rise or fall over all keys, in natural units: by less and by more than what a lazy rescale waits for.
const STAIRS: [f64; 4] = [0.5, 2.0, 8.0, 24.0];

/// With equal scores every weight is one and every rescale a product with one, so that two kernels of the same order hold the same sums. What
/// then still differs is how the sum is divided (two roundings at most on each side) and stored (one): at most 4 ULP apart.
const DIVIDED: u64 = 4;

/// Looks for the data that tell order from blocking.
pub(super) fn boundary(pair: &Pair, trial: &Trial, finding: &Finding) -> Option<Cause> {
    let mut look = Look { pair, trial, family: finding.family(), scratch: pair.scratch(), left: CHECKS };
    let longest = trial.case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
    let saw = |kind, what: String| Some(seen(kind, Method::Boundaries, what));
    if look.sums_of_two_differ() {
        let what =
            "with equal scores and two keys, a sum of two that has one order, results differ; both lie within their bounds";
        return saw(CauseKind::Precision, what.into());
    }
    let equal = look.equal_scores(longest);
    if let Some(Equal { sums: true, at }) = &equal {
        return saw(CauseKind::Order, format!("with equal scores and values that cancel, {at}: the sums themselves differ"));
    }
    if let Some(what) = look.order_of_dot(longest) {
        return saw(CauseKind::Order, what);
    }
    let length = look.first_length(longest)?;
    let axis = finding.changed().map_or(String::new(), |axis| format!(" under a change of {axis}"));
    if length <= 2 {
        // A sum of two has one order, and its second block, if it has one, is rescaled by what multiplies the weight otherwise.
        let keys = if length == 1 { "one key" } else { "two keys" };
        let what = format!("results differ{axis} from {keys} on, where there is one order; both lie within their bounds");
        return saw(CauseKind::Precision, what);
    }
    if let Some(Equal { at, .. }) = &equal {
        // A division or a store that rounds otherwise shows with two keys; a rescale does not show here.
        let what =
            format!("results differ{axis} from kv = {length} on, also with equal scores, where nothing is rescaled ({at})");
        return saw(CauseKind::Order, what);
    }
    let differ = |shows: bool| if shows { "differ" } else { "do not" };
    match [-1.0, 1.0].map(|direction| look.stairs(longest, direction)) {
        [false, false] => None,
        // Splits begin anew, whichever end has the largest score.
        [true, true] => {
            let what =
                format!("results differ{axis} from kv = {length} on, also where the running maximum never moves, at either end");
            saw(CauseKind::Order, what)
        }
        // A block that does not move the maximum adds what any other block would.
        [falling, rising] => {
            let what = format!(
                "results differ{axis} from kv = {length} on (a block of {} and one key) where the running maximum moves, and only there: \
                 with falling scores they {}, with rising ones they {}",
                length - 1,
                differ(falling),
                differ(rising)
            );
            saw(CauseKind::Blocking, what)
        }
    }
}

/// A difference with equal scores.
struct Equal {
    /// Too far apart for the division and the store.
    sums: bool,
    /// Where, and how far apart.
    at: String,
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

    /// Equal scores and values that cancel: a difference there is one of the sums, if it is large. The largest is given first.
    fn equal_scores(&mut self, longest: u32) -> Option<Equal> {
        let mut spans: Vec<u32> =
            [2, 3, 4, 8, 16, 64, longest].into_iter().filter(|&span| (2..=longest).contains(&span)).collect();
        spans.sort_unstable();
        spans.dedup();
        let mut near = None;
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
                for difference in self.differences(case) {
                    for it in &difference.elements {
                        let (sums, apart) = match it.ulps {
                            Ulps::Steps(n) => (n > DIVIDED, format!("{n} ULP apart")),
                            Ulps::Incomparable => (true, "not comparable".into()),
                        };
                        let found = Equal {
                            sums: sums && difference.output == "o",
                            at: format!("{}[{}] is {apart}", difference.output, it.index),
                        };
                        if found.sums {
                            return Some(found);
                        }
                        near.get_or_insert(found);
                    }
                }
            }
        }
        near
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

    /// The least length at which anything differs, in f32 outputs if the kernels have them, else in the case's own.
    fn first_length(&mut self, longest: u32) -> Option<u32> {
        [true, false].into_iter().find_map(|wide| self.scan(longest, wide))
    }

    /// Scans lengths upwards; where that would take too long, halves the range first.
    fn scan(&mut self, longest: u32, wide: bool) -> Option<u32> {
        let (mut low, mut high) = (1, longest);
        while ((high.saturating_sub(low)) as usize + 1) * draws(1).count() > CHECKS / 4 {
            let middle = low + (high - low) / 2;
            if self.differs_at(middle, wide) { high = middle } else { low = middle + 1 }
        }
        (low..=high).find(|&length| self.differs_at(length, wide))
    }

    /// Whether anything differs at a length.
    fn differs_at(&mut self, length: u32, wide: bool) -> bool {
        draws(length).any(|(regime, seed)| {
            let mut case = shortened(&self.trial.case, length);
            case.data = Data::Drawn { seed, regime };
            if wide {
                design::wide_output(&mut case);
            }
            !self.differences(case).is_empty()
        })
    }

    /// Whether anything differs where scores rise (above zero) or fall from key to key: in an online softmax that goes forward the running
    /// maximum stands still from the first block on where they fall, and in one that goes backward where they rise.
    fn stairs(&mut self, longest: u32, direction: f64) -> bool {
        let draws = (1..=2 * SEEDS).flat_map(|seed| STAIRS.map(|height| (seed, direction * height / f64::from(longest.max(1)))));
        draws.flat_map(|(seed, step)| [(seed, step, true), (seed, step, false)]).any(|(seed, step, wide)| {
            let mut case = self.trial.case.clone();
            case.problem.alibi_slopes = None;
            case.problem.sinks = None;
            case.data = Data::Drawn { seed, regime: Regime::Normal };
            let mut case = design::with(self.pair, &case, |problem, inputs| design::stairs(problem, inputs, step));
            if wide {
                design::wide_output(&mut case);
            }
            !self.differences(case).is_empty()
        })
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
