//! What one unit of work leaves behind: one line of JSON. Everything else (certificates, joined shards, resumed runs, verification) is made of
//! these lines and of the battery, and of nothing else.

use super::claim::Claim;
use crate::finding::{Accuracy, Finding, Skip, Verdict};
use crate::subject::attention::battery::Part;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "nearly all are cases")]
pub enum Record {
    /// A case of a stratum.
    Case(CaseRecord),
    /// A planted fault.
    Mutant(HuntRecord),
    /// A negative control.
    Control(HuntRecord),
}

/// What a case showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaseRecord {
    /// Stratum.
    pub part: String,
    /// Index in it.
    pub index: u64,
    /// SHA-256 over the output bits of every run. Empty: no case was drawn.
    pub outputs: String,
    /// Elements compared, train against infer, and those that differ.
    #[serde(skip_serializing_if = "is_zero")]
    pub pair: [u64; 2],
    /// By what relations changed (`pages`, `knob num_splits`): elements compared, and those that differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub along: BTreeMap<String, [u64; 2]>,
    /// Differing elements of the pair by distance; zeros at the end are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<u64>,
    /// judged, correctly rounded, above, below, unbounded, out of range.
    #[serde(skip_serializing_if = "is_zero6")]
    pub accuracy: [u64; 6],
    /// The largest error as a share of its bound.
    #[serde(skip_serializing_if = "is_zero_f64")]
    pub worst: f64,
    /// Judged elements by error; zeros at the end are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<u64>,
    /// Failures: signature and the claims that they speak against.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<(String, Vec<String>)>,
    /// Elements beyond their bound.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub exceeding: u64,
    /// Elements that the oracle left undecided.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub undecided: u64,
    /// What was not run or not compared, as [`Skip`] writes it, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<(String, String)>,
    /// What was drawn, or related, and left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Findings set aside since the kernel does not repeat itself.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub set_aside: u64,
    /// Ways that the runs took, as bits.
    #[serde(skip_serializing_if = "is_zero_u32")]
    pub reach: u32,
    /// Whether a changed order changes its bits; missing where no row has three keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<bool>,
    /// Of a case outside what a kernel does: it refused.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub refused: u64,
}

/// What a search for a fault came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HuntRecord {
    /// The fault, or the claim that a control must fail.
    pub name: String,
    /// The first case that fails, as `stratum index`; `None`: it survived.
    pub found: Option<String>,
    /// It was found only with calls that the kernels do not take, or that pins exclude.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// The failure.
    pub signature: Option<String>,
    /// Cases run.
    pub cases: u64,
}

fn is_zero(it: &[u64; 2]) -> bool {
    *it == [0; 2]
}

fn is_zero6(it: &[u64; 6]) -> bool {
    *it == [0; 6]
}

fn is_zero_f64(it: &f64) -> bool {
    *it == 0.0
}

fn is_zero_u64(it: &u64) -> bool {
    *it == 0
}

fn is_zero_u32(it: &u32) -> bool {
    *it == 0
}

/// Without the zeros at its end.
fn trimmed(bins: &[u64]) -> Vec<u64> {
    let len = bins.iter().rposition(|&it| it != 0).map_or(0, |last| last + 1);
    bins[..len].to_vec()
}

impl CaseRecord {
    /// Of a verdict.
    pub fn new(part: Part, index: u64, outputs: String, verdict: &Verdict) -> CaseRecord {
        // Every field by name: one that is added must be thought of here, or this does not compile.
        let Verdict {
            findings,
            compared,
            capable: _,
            order_sensitive,
            escalations: _,
            accuracy,
            relations: _,
            related: _,
            along,
            left_out,
            relations_left_out,
            set_aside,
            reach,
        } = verdict;
        let Accuracy { judged, correctly_rounded, above, below, unbounded, out_of_range, worst, errors } = accuracy;
        let mut record = CaseRecord {
            part: part.name().to_owned(),
            index,
            outputs,
            pair: [*compared, 0],
            along: along.clone(),
            accuracy: [*judged, *correctly_rounded, *above, *below, *unbounded, *out_of_range],
            worst: *worst,
            errors: trimmed(errors),
            left_out: left_out.iter().chain(relations_left_out).cloned().collect(),
            set_aside: *set_aside,
            reach: reach.bits(),
            sensitive: *order_sensitive,
            ..CaseRecord::default()
        };
        let mut distances = [0; crate::finding::DISTANCE_BINS];
        for finding in findings {
            match finding {
                Finding::Mismatch(it) => {
                    record.pair[1] += it.differing;
                    distances.iter_mut().zip(it.distances).for_each(|(sum, more)| *sum += more);
                }
                Finding::Inaccurate(it) => record.exceeding += it.exceeding,
                Finding::Undecided { elements, .. } => record.undecided += elements,
                Finding::Skipped { what, reason } => record.skipped.push((what.to_string(), reason.clone())),
                Finding::NotInvariant { .. } | Finding::Fault { .. } => {}
            }
            if finding.kind().is_failure() {
                let claims = Claim::against(finding, part).iter().map(|it| it.name().to_owned()).collect();
                record.failures.push((finding.signature(), claims));
            }
        }
        record.distances = trimmed(&distances);
        record
    }

    /// Its address, `stratum index`.
    pub fn address(&self) -> String {
        format!("{} {}", self.part, self.index)
    }

    /// Elements compared under any relation, and those that differ.
    pub fn related(&self) -> [u64; 2] {
        self.along.values().fold([0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]])
    }

    /// Whether a failure speaks against a claim.
    pub fn fails(&self, claim: Claim) -> bool {
        self.failures.iter().any(|(_, claims)| claims.iter().any(|it| it == claim.name()))
    }

    /// What was not run or not compared, and why.
    pub fn skips(&self) -> impl Iterator<Item = (Skip, &str)> {
        self.skipped.iter().map(|(what, reason)| (Skip::parse(what), reason.as_str()))
    }

    /// Whether a kernel failed at it.
    pub fn has_fault(&self) -> bool {
        self.failures.iter().any(|(signature, _)| signature.starts_with("fault"))
    }

    /// Whether a case was drawn, gave results, and neither path stopped short.
    pub fn has_run(&self) -> bool {
        let results = self.accuracy[0] > 0 || self.pair[0] > 0 || self.related()[0] > 0;
        let short = self.skips().any(|(what, _)| matches!(what, Skip::Case | Skip::Run(_)));
        !self.outputs.is_empty() && results && !short && !self.has_fault()
    }

    /// Whether everything matched, and something was compared.
    pub fn is_match(&self) -> bool {
        self.failures.is_empty() && self.skipped.is_empty() && self.undecided == 0 && self.pair[0] > 0
    }
}
