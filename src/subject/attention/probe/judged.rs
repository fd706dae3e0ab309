//! Results against the true values: the kernel's accuracy where nothing is special about a call.

use super::Probing;
use super::page::{Judged, Wrong};
use super::sample::{Place, Shape, data, places};
use crate::finding::{Finding, Kind};
use crate::source::mix;
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Data, Regime};

/// Regimes beside those of the sample, each for what it is known to break.
const REGIMES: [Regime; 7] = [
    Regime::Equal,
    Regime::Dominant { gap: 20.0, lane: 0 },
    Regime::Quantised,
    Regime::Tail,
    Regime::Wide,
    Regime::OnehotV,
    Regime::ConstantV,
];

/// A third of the cases: the oracle takes longer than a kernel, and every row is judged.
const SHARE: u64 = 3;

/// Judges a format. What is beyond its bound is wrong.
pub(super) fn judged(probing: &mut Probing<'_>, format: Format, wrong: &mut Vec<Wrong>) -> Judged {
    probing.progress(&format!("{}: against the true values", format.storage));
    let mut judged = Judged::default();
    let mut first: Option<(Trial, Finding)> = None;
    for place in places(&probing.terms, probing.options.cases(&probing.terms).div_ceil(SHARE)) {
        let data = data_of(place, probing.options.seed);
        let case = Shape::of(&probing.terms, format, &[(place.length, place.length)]).case(data);
        let trial = Trial::new(case, Checks::Only { oracle: true, pair: false, relation: None });
        let verdict = probing.attention.pair.check(&trial, &mut probing.scratch);
        if verdict.accuracy.judged == 0 {
            judged.left_out += 1;
        } else {
            judged.cases += 1;
        }
        judged.accuracy.add(&verdict.accuracy);
        for finding in &verdict.findings {
            match finding {
                Finding::Inaccurate(it) => judged.beyond += it.exceeding,
                Finding::Undecided { elements, .. } => judged.undecided += elements,
                _ => {}
            }
        }
        if first.is_none() {
            let failed = verdict.findings.into_iter().find(|it| matches!(it.kind(), Kind::Inaccurate | Kind::Fault));
            first = failed.map(|finding| (trial, finding));
        }
    }
    if let Some((trial, finding)) = first {
        let what = match &finding {
            Finding::Inaccurate(it) => format!(
                "{}: {} of {} results lie beyond the bound computed for the declared arithmetic, first in {} of {}",
                format.storage, judged.beyond, judged.accuracy.judged, it.output, it.path
            ),
            other => format!("{}: {}", format.storage, other.signature()),
        };
        probing.wrong(wrong, what, &trial, &finding);
    }
    judged
}

/// Normal data and the sample's own, and every other regime in turn.
fn data_of(place: Place, seed: u64) -> Data {
    if !place.index.is_multiple_of(3) {
        return data(place, seed);
    }
    let regime = REGIMES[(place.index / 3) as usize % REGIMES.len()];
    Data::Drawn { seed: mix(seed, place.index) & 0xffff_ffff, regime }
}
