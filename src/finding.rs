//! What can be wrong with a case, and the only comparison of bits in the crate.

use crate::number::{Class, Dtype, Ulps, ulp_distance};
use crate::reach::Reach;
use crate::tensor::Index;
use std::collections::BTreeMap;
use std::fmt;

/// Differing elements kept in full; the rest are counted.
pub const ELEMENTS_KEPT: usize = 8;

/// Which side of the comparison a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// The training path.
    Train,
    /// The inference path.
    Infer,
}

impl Path {
    /// Both, training first.
    pub const BOTH: [Path; 2] = [Path::Train, Path::Infer];
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Train => "train",
            Path::Infer => "infer",
        })
    }
}

/// Which side of a pair lies closer to the true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearer {
    /// The first.
    First,
    /// The second.
    Second,
    /// Equally near.
    Same,
    /// No decided true value to measure from.
    Unknown,
}

/// One differing element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Where.
    pub index: Index,
    /// Position in the compared slices.
    pub offset: usize,
    /// Both patterns.
    pub bits: [u32; 2],
    /// Their distance.
    pub ulps: Ulps,
    /// The true value, correctly rounded, where the oracle decided it.
    pub truth: Option<u32>,
    /// Which side is nearer to it.
    pub nearer: Nearer,
}

/// Two runs of one output that do not have the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// `o` or `lse`.
    pub output: &'static str,
    /// Format of the elements.
    pub dtype: Dtype,
    /// What the two runs are called, e.g. `train` and `infer`.
    pub names: [String; 2],
    /// The first differing elements, at most [`ELEMENTS_KEPT`].
    pub elements: Vec<Element>,
    /// How many differ.
    pub differing: u64,
    /// How many were compared.
    pub compared: u64,
    /// The differing elements by their distance: 1 ULP, 2, 3 to 4, 5 to 8 and so on; the last bin has those without one (NaN or an infinity
    /// against something else, +0 against -0).
    pub distances: [u64; DISTANCE_BINS],
}

/// Bins of [`Difference::distances`].
pub const DISTANCE_BINS: usize = 34;

/// The bin of a distance between two patterns that differ.
fn distance_bin(ulps: Ulps) -> usize {
    match ulps {
        Ulps::Steps(0) | Ulps::Incomparable => DISTANCE_BINS - 1,
        // The smallest power of two that is no less.
        Ulps::Steps(steps) => steps.next_power_of_two().trailing_zeros() as usize,
    }
}

/// Whether two patterns count as the same result: equal bits, or both NaN. +0 and -0 differ.
#[inline]
pub fn same(dtype: Dtype, a: u32, b: u32) -> bool {
    a == b || (dtype.class(a) == Class::Nan && dtype.class(b) == Class::Nan)
}

/// Collects differences between two runs of one output, row by row.
#[derive(Debug)]
pub struct Comparison {
    difference: Difference,
}

impl Comparison {
    /// Starts with nothing compared.
    pub fn new(output: &'static str, dtype: Dtype, names: [&str; 2]) -> Self {
        let names = names.map(str::to_owned);
        let distances = [0; DISTANCE_BINS];
        Comparison { difference: Difference { output, dtype, names, elements: Vec::new(), differing: 0, compared: 0, distances } }
    }

    /// Compares two equally long slices. `index` names the element at a position of the slices; `offset` is the position of
    /// their first element in the whole output.
    ///
    /// # Panics
    /// When the lengths differ: shapes are checked before bits.
    pub fn slices(&mut self, a: &[u32], b: &[u32], offset: usize, index: impl Fn(usize) -> Index) {
        assert_eq!(a.len(), b.len(), "shapes are checked before bits");
        let found = &mut self.difference;
        found.compared += a.len() as u64;
        if a == b {
            return;
        }
        for (n, (&x, &y)) in a.iter().zip(b).enumerate() {
            if same(found.dtype, x, y) {
                continue;
            }
            found.differing += 1;
            let ulps = ulp_distance(found.dtype, x, y);
            found.distances[distance_bin(ulps)] += 1;
            if found.elements.len() < ELEMENTS_KEPT {
                let (offset, index) = (offset + n, index(n));
                found.elements.push(Element { index, offset, bits: [x, y], ulps, truth: None, nearer: Nearer::Unknown });
            }
        }
    }

    /// Elements compared so far.
    pub fn compared(&self) -> u64 {
        self.difference.compared
    }

    /// Elements of these that differ.
    pub fn differing(&self) -> u64 {
        self.difference.differing
    }

    /// The difference, if any element differs.
    pub fn finish(self) -> Option<Difference> {
        (self.difference.differing > 0).then_some(self.difference)
    }
}

/// A result outside the bound computed for its arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub struct Inaccuracy {
    /// Whose result.
    pub path: Path,
    /// `o` or `lse`.
    pub output: &'static str,
    /// Format of the elements.
    pub dtype: Dtype,
    /// The worst element: the one furthest beyond its bound.
    pub index: Index,
    /// Its pattern.
    pub bits: u32,
    /// The true value, correctly rounded, where decided.
    pub truth: Option<u32>,
    /// `|value - true|`; infinite for a non-finite result.
    pub error: f64,
    /// What its arithmetic allows, computed.
    pub bound: f64,
    /// One ULP at the true value.
    pub ulp: f64,
    /// Elements beyond their bound.
    pub exceeding: u64,
    /// Elements judged.
    pub judged: u64,
}

/// The thing a metamorphic relation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names are the glossary's; `Relation` documents what each changes
pub enum Axis {
    Repeat,
    Recompute,
    Company,
    Position,
    Padding,
    Poison,
    Pages,
    Chunk,
    Prefix,
    PrefixStability,
    Ranks,
    Knob,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Axis::Repeat => "repeat",
            Axis::Recompute => "recompute",
            Axis::Company => "company",
            Axis::Position => "position",
            Axis::Padding => "padding",
            Axis::Poison => "poison",
            Axis::Pages => "pages",
            Axis::Chunk => "chunk",
            Axis::Prefix => "prefix",
            Axis::PrefixStability => "prefix_stability",
            Axis::Ranks => "ranks",
            Axis::Knob => "knob",
        })
    }
}

/// How a kernel, or the process that holds it, broke. Shrinking keeps it: a crash does not become a hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Breakage {
    /// Its process ended: a signal, or an early exit.
    Crashed,
    /// No answer within the time allowed; the process was ended.
    TimedOut,
    /// An answer that is none: noise, half a frame, another request's number, an unknown kind.
    Garbled,
    /// An answer whose tensors do not have the shapes or formats that were asked for.
    Misshapen,
    /// Its process grew beyond the memory allowed, and was ended.
    OutOfMemory,
    /// It wrote outside its output.
    WroteOutside,
    /// The device reported an error that stays; the process was restarted.
    DeviceError,
    /// Its process could not be started.
    NotStarted,
}

impl Breakage {
    /// In the words of verdicts and of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Breakage::Crashed => "crashed",
            Breakage::TimedOut => "timed_out",
            Breakage::Garbled => "garbled",
            Breakage::Misshapen => "misshapen",
            Breakage::OutOfMemory => "out_of_memory",
            Breakage::WroteOutside => "wrote_outside",
            Breakage::DeviceError => "device_error",
            Breakage::NotStarted => "not_started",
        }
    }
}

impl fmt::Display for Breakage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Breakage::Crashed => "the process ended",
            Breakage::TimedOut => "no answer in time",
            Breakage::Garbled => "the answer is none",
            Breakage::Misshapen => "the answer has other tensors than asked for",
            Breakage::OutOfMemory => "the process grew beyond its memory",
            Breakage::WroteOutside => "wrote outside its output",
            Breakage::DeviceError => "the device reported an error",
            Breakage::NotStarted => "the process did not start",
        })
    }
}

/// A kernel that did not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An output slot still holds the canary.
    Unwritten {
        /// `o` or `lse`.
        output: &'static str,
        /// Where.
        index: Index,
    },
    /// The call reported a failure, or panicked.
    Failed(String),
    /// The kernel, or the process that holds it, broke.
    Broken {
        /// In which way.
        breakage: Breakage,
        /// What was seen.
        detail: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unwritten { output, index } => write!(f, "{output}[{index}] was not written"),
            Fault::Failed(reason) => write!(f, "the call failed: {reason}"),
            Fault::Broken { breakage, detail } => write!(f, "{breakage}: {detail}"),
        }
    }
}

/// One thing wrong with a case, or not decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A kernel did not do its work.
    Fault {
        /// Whose.
        path: Path,
        /// What happened.
        fault: Fault,
        /// The concrete change under which it happened, as `[run] relation` spells it; `None` for the case as it is.
        relation: Option<String>,
    },
    /// A result beyond its computed bound, or non-finite where the true value is finite.
    Inaccurate(Inaccuracy),
    /// The two paths' bits differ.
    Mismatch(Difference),
    /// The same row of one path has other bits in other surroundings.
    NotInvariant {
        /// What was changed.
        axis: Axis,
        /// Whose row.
        path: Path,
        /// The concrete change, as `[run] relation` spells it.
        relation: String,
        /// Base run against changed run.
        difference: Difference,
    },
    /// The oracle could not settle some elements.
    Undecided {
        /// `o` or `lse`.
        output: &'static str,
        /// How many.
        elements: u64,
        /// The first.
        index: Index,
    },
    /// The case, or part of it, was not run.
    Skipped {
        /// Why; counted by this text.
        reason: String,
    },
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names are `Finding`'s
pub enum Kind {
    Fault,
    Inaccurate,
    Mismatch,
    NotInvariant,
    Undecided,
    Skipped,
}

impl Kind {
    /// Every kind, in check order.
    pub const ALL: [Kind; 6] =
        [Kind::Fault, Kind::Inaccurate, Kind::Mismatch, Kind::NotInvariant, Kind::Undecided, Kind::Skipped];

    /// True for the four kinds that fail a run; undecided and skipped fail nothing and pass nothing.
    pub fn is_failure(self) -> bool {
        !matches!(self, Kind::Undecided | Kind::Skipped)
    }

    /// The name in verdict files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fault => "fault",
            Kind::Inaccurate => "inaccurate",
            Kind::Mismatch => "mismatch",
            Kind::NotInvariant => "not_invariant",
            Kind::Undecided => "undecided",
            Kind::Skipped => "skipped",
        }
    }
}

impl Finding {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Finding::Fault { .. } => Kind::Fault,
            Finding::Inaccurate(_) => Kind::Inaccurate,
            Finding::Mismatch(_) => Kind::Mismatch,
            Finding::NotInvariant { .. } => Kind::NotInvariant,
            Finding::Undecided { .. } => Kind::Undecided,
            Finding::Skipped { .. } => Kind::Skipped,
        }
    }

    /// What shrinking must keep: kind, side, output and axis, without the numbers. Also the `expect` line of a case file.
    pub fn signature(&self) -> String {
        match self {
            Finding::Fault { path, fault: Fault::Unwritten { output, .. }, .. } => format!("fault {path} unwritten {output}"),
            Finding::Fault { path, fault: Fault::Failed(_), .. } => format!("fault {path} failed"),
            Finding::Fault { path, fault: Fault::Broken { breakage, .. }, .. } => format!("fault {path} {}", breakage.name()),
            Finding::Inaccurate(it) => format!("inaccurate {} {}", it.path, it.output),
            Finding::Mismatch(it) => format!("mismatch {}", it.output),
            Finding::NotInvariant { path, difference, .. } => {
                format!("not_invariant {path} {} {}", self.changed().unwrap_or_default(), difference.output)
            }
            Finding::Undecided { output, .. } => format!("undecided {output}"),
            Finding::Skipped { reason } => format!("skipped {reason}"),
        }
    }

    /// One defect of a case: its `o` and `lse`, or its many fault texts, count as one, and the first of them is kept.
    pub fn family(&self) -> String {
        match self {
            Finding::NotInvariant { path, .. } => format!("not_invariant {path} {}", self.changed().unwrap_or_default()),
            Finding::Inaccurate(it) => format!("inaccurate {}", it.path),
            Finding::Fault { path, .. } => format!("fault {path}"),
            other => other.kind().name().to_owned(),
        }
    }

    /// What a row is not invariant to: the axis, and of the kernel's own knobs the name.
    pub fn changed(&self) -> Option<String> {
        let Finding::NotInvariant { axis, relation, .. } = self else { return None };
        Some(match axis {
            Axis::Knob => {
                // `infer knob num_splits=2`
                let knob = relation.split(' ').nth(2).unwrap_or_default();
                format!("{axis} {}", knob.split('=').next().unwrap_or_default())
            }
            _ => axis.to_string(),
        })
    }

    /// The concrete change under which it was found, as `[run] relation` spells it; `None` for the case as it is.
    pub fn relation(&self) -> Option<&str> {
        match self {
            Finding::NotInvariant { relation, .. } | Finding::Fault { relation: Some(relation), .. } => Some(relation),
            _ => None,
        }
    }

    /// The difference in bits behind the finding, if it is one.
    pub fn difference(&self) -> Option<&Difference> {
        match self {
            Finding::Mismatch(difference) | Finding::NotInvariant { difference, .. } => Some(difference),
            _ => None,
        }
    }
}

/// Counts of accuracy, over the judged elements of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// Elements measured against a true value.
    pub judged: u64,
    /// Elements equal to the correctly rounded true value.
    pub correctly_rounded: u64,
    /// Elements above the true value.
    pub above: u64,
    /// Elements below it.
    pub below: u64,
    /// Elements whose bound is infinite: never a pass of an accuracy claim.
    pub unbounded: u64,
    /// Elements for which an overflow of an intermediate is predicted.
    pub out_of_range: u64,
    /// The largest error as a share of its computed bound; above 1 is `Inaccurate`. (A maximum in ULPs says nothing beside zero.)
    pub worst: f64,
    /// Elements by their error in ULP of the true value: up to 2^-2, 2^-1, 1, 2, 4 and so on; the last bin has everything beyond, and what
    /// is not finite.
    pub errors: [u64; ERROR_BINS],
}

/// Bins of [`Accuracy::errors`].
pub const ERROR_BINS: usize = 14;

/// The bin of an error in ULP: the smallest power of two that is no less.
#[inline]
pub fn error_bin(ulps: f64) -> usize {
    if ulps <= 0.25 {
        return 0;
    }
    let bits = ulps.to_bits();
    // The exponent of a positive number, rounded up; NaN and infinity have the largest.
    let exponent = (bits >> 52) as i64 - 1023 + i64::from(bits & ((1 << 52) - 1) != 0);
    (exponent + 2).min(ERROR_BINS as i64 - 1) as usize
}

impl Accuracy {
    /// Adds another count.
    pub fn add(&mut self, other: &Accuracy) {
        self.judged += other.judged;
        self.correctly_rounded += other.correctly_rounded;
        self.above += other.above;
        self.below += other.below;
        self.unbounded += other.unbounded;
        self.out_of_range += other.out_of_range;
        self.worst = self.worst.max(other.worst);
        self.errors.iter_mut().zip(other.errors).for_each(|(count, more)| *count += more);
    }
}

/// A case's findings in check order, and what was done to get them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Empty for a match. The first is the headline.
    pub findings: Vec<Finding>,
    /// Elements whose bits were compared, train against infer.
    pub compared: u64,
    /// Some row has at least three valid keys.
    pub capable: bool,
    /// A changed recipe of the same kernel changed its bits. `None` when the witness was not asked for or not capable.
    pub order_sensitive: Option<bool>,
    /// Elements the oracle's f64 step left open.
    pub escalations: u64,
    /// Accuracy of both sides.
    pub accuracy: Accuracy,
    /// Metamorphic relations that were run.
    pub relations: u64,
    /// Elements of `o` and of `lse` whose bits were compared under relations.
    pub related: [u64; 2],
    /// By what was changed: elements compared, and those of them that differ.
    pub along: BTreeMap<Axis, [u64; 2]>,
    /// What was not drawn, or not compared, since a kernel does not do it: reasons, each once. No part of the verdict.
    pub left_out: Vec<String>,
    /// Relations that were not run since the changed case is beyond the kernel, with the reason.
    pub relations_left_out: Vec<String>,
    /// Findings that were dropped since the kernel does not repeat itself: what changed its bits cannot be known.
    pub set_aside: u64,
    /// Ways that the runs of both paths took, as the subject numbers them.
    pub reach: Reach,
}

impl Verdict {
    /// The first finding that fails a run.
    pub fn failure(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.kind().is_failure())
    }

    /// The headline: the first failure, else the first finding of any kind.
    pub fn headline(&self) -> Option<&Finding> {
        self.failure().or(self.findings.first())
    }

    /// True when bits were compared and nothing at all was found.
    pub fn is_match(&self) -> bool {
        self.findings.is_empty() && self.compared > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(dtype: Dtype, a: &[u32], b: &[u32]) -> Option<Difference> {
        let mut comparison = Comparison::new("o", dtype, ["train", "infer"]);
        comparison.slices(a, b, 0, |n| Index(vec![("n", n as u64)]));
        comparison.finish()
    }

    /// Every pair of classes: only equal bits and NaN against NaN agree.
    #[test]
    fn class_pairs() {
        for dtype in Dtype::ALL {
            let mut samples = vec![0, dtype.sign_mask(), 1, dtype.sign_mask() | 1, dtype.max_finite_bits(), dtype.nan_bits()];
            samples.extend(dtype.infinity_bits().into_iter().flat_map(|bits| [bits, bits | dtype.sign_mask()]));
            samples.push(dtype.nan_bits() | dtype.sign_mask());
            for &a in &samples {
                for &b in &samples {
                    let both_nan = dtype.class(a) == Class::Nan && dtype.class(b) == Class::Nan;
                    assert_eq!(compare(dtype, &[a], &[b]).is_none(), a == b || both_nan, "{dtype} {a:x} {b:x}");
                }
            }
        }
    }

    #[test]
    fn all_nan_against_numbers_differs_everywhere() {
        let found = compare(Dtype::F32, &[0x7fc0_0000; 20], &[0; 20]).unwrap();
        assert_eq!((found.differing, found.compared, found.elements.len()), (20, 20, ELEMENTS_KEPT));
        assert_eq!(found.elements[0].ulps, Ulps::Incomparable);
    }

    #[test]
    fn distances_and_errors_are_counted_by_powers_of_two() {
        let one = 1.0f32.to_bits();
        let other = [one + 1, one + 2, one + 3, one + 4, one + 5, one | 1 << 31, Dtype::F32.nan_bits()];
        let found = compare(Dtype::F32, &[one; 7], &other).unwrap();
        assert_eq!((found.distances[..4].to_vec(), found.distances[31]), (vec![1, 1, 2, 1], 1));
        assert_eq!((found.distances[DISTANCE_BINS - 1], found.distances.iter().sum::<u64>()), (1, found.differing));
        let zeros = compare(Dtype::F16, &[0], &[Dtype::F16.sign_mask()]).unwrap();
        assert_eq!(zeros.distances[DISTANCE_BINS - 1], 1);
        let bins = [0.0, 0.25, 0.26, 0.5, 0.51, 1.0, 1.5, 2.0, 2.1, 1e9, f64::INFINITY, f64::NAN].map(error_bin);
        assert_eq!(bins, [0, 0, 1, 1, 2, 2, 3, 3, 4, 13, 13, 13]);
    }

    #[test]
    fn nothing_compared_is_no_match() {
        assert!(!Verdict::default().is_match());
    }

    fn one_lane(output: &'static str) -> Difference {
        let mut comparison = Comparison::new(output, Dtype::F16, ["train", "infer"]);
        comparison.slices(&[1, 2], &[1, 3], 6, |n| Index(vec![("n", n as u64)]));
        comparison.slices(&[4, 5, 6], &[4, 5, 7], 8, |n| Index(vec![("n", n as u64)]));
        assert_eq!(comparison.compared(), 5);
        comparison.finish().expect("two elements differ")
    }

    /// Offsets are those of the whole output, however many slices it was compared in.
    #[test]
    fn differing_elements_say_where_they_lie() {
        let found = one_lane("o");
        let places: Vec<_> = found.elements.iter().map(|it| (it.offset, it.index.to_string(), it.bits)).collect();
        assert_eq!(places, [(7, "n=1".to_owned(), [2, 3]), (10, "n=2".to_owned(), [6, 7])]);
        assert_eq!((found.differing, found.compared), (2, 5));
    }

    fn fault(fault: Fault, relation: Option<&str>) -> Finding {
        Finding::Fault { path: Path::Infer, fault, relation: relation.map(str::to_owned) }
    }

    fn changed(axis: Axis, relation: &str, output: &'static str) -> Finding {
        Finding::NotInvariant { axis, path: Path::Infer, relation: relation.into(), difference: one_lane(output) }
    }

    fn inaccurate() -> Finding {
        Finding::Inaccurate(Inaccuracy {
            path: Path::Train,
            output: "lse",
            dtype: Dtype::F32,
            index: Index::default(),
            bits: 0,
            truth: None,
            error: 1.0,
            bound: 0.5,
            ulp: 0.25,
            exceeding: 1,
            judged: 2,
        })
    }

    /// Signatures stand in case files, and are what shrinking keeps: every kind has its own, and only `o` and `lse` of one defect,
    /// or the words of one fault, share a family.
    #[test]
    fn signatures_and_families() {
        let unwritten = Fault::Unwritten { output: "o", index: Index::default() };
        let crashed = Fault::Broken { breakage: Breakage::Crashed, detail: "signal 11".into() };
        let findings = [
            (fault(unwritten, None), "fault infer unwritten o", "fault infer"),
            (fault(Fault::Failed("no".into()), None), "fault infer failed", "fault infer"),
            (fault(crashed, Some("infer poison nan")), "fault infer crashed", "fault infer"),
            (inaccurate(), "inaccurate train lse", "inaccurate train"),
            (Finding::Mismatch(one_lane("o")), "mismatch o", "mismatch"),
            (Finding::Mismatch(one_lane("lse")), "mismatch lse", "mismatch"),
            (changed(Axis::Pages, "infer pages 16", "o"), "not_invariant infer pages o", "not_invariant infer pages"),
            (
                changed(Axis::Knob, "infer knob num_splits=2", "lse"),
                "not_invariant infer knob num_splits lse",
                "not_invariant infer knob num_splits",
            ),
            (Finding::Undecided { output: "o", elements: 1, index: Index::default() }, "undecided o", "undecided"),
            (Finding::Skipped { reason: "softcap".into() }, "skipped softcap", "skipped"),
        ];
        for (finding, signature, family) in &findings {
            assert_eq!((finding.signature().as_str(), finding.family().as_str()), (*signature, *family));
            // A campaign counts by kind, and a reader looks the kind up in the signature.
            assert_eq!(finding.signature().split(' ').next(), Some(finding.kind().name()));
        }
    }

    #[test]
    fn a_finding_under_a_relation_names_it() {
        let knob = changed(Axis::Knob, "infer knob num_splits=2", "o");
        assert_eq!((knob.relation(), knob.changed().as_deref()), (Some("infer knob num_splits=2"), Some("knob num_splits")));
        let failed = fault(Fault::Failed("no".into()), Some("train poison nan"));
        assert_eq!((failed.relation(), failed.changed(), failed.difference()), (Some("train poison nan"), None, None));
        assert_eq!(fault(Fault::Failed("no".into()), None).relation(), None);
        let mismatch = Finding::Mismatch(one_lane("o"));
        assert_eq!((mismatch.relation(), mismatch.changed()), (None, None));
        assert_eq!((mismatch.difference(), knob.difference()), (Some(&one_lane("o")), Some(&one_lane("o"))));
    }

    /// What was not decided, or not run, neither fails a run nor hides what does; and it is no match.
    #[test]
    fn the_headline_is_the_first_failure() {
        let undecided = || Finding::Undecided { output: "o", elements: 1, index: Index::default() };
        let skipped = || Finding::Skipped { reason: "softcap".into() };
        let of = |findings: Vec<Finding>| Verdict { findings, compared: 9, ..Verdict::default() };
        let open = of(vec![undecided(), skipped()]);
        assert_eq!((open.failure(), open.headline(), open.is_match()), (None, Some(&undecided()), false));
        let failing = of(vec![undecided(), inaccurate(), Finding::Mismatch(one_lane("o"))]);
        assert_eq!((failing.failure(), failing.headline()), (Some(&inaccurate()), Some(&inaccurate())));
        for finding in [fault(Fault::Failed("no".into()), None), changed(Axis::Pages, "infer pages 16", "o")] {
            assert!(of(vec![finding]).failure().is_some());
        }
        assert!(of(Vec::new()).is_match());
        assert_eq!(of(Vec::new()).headline(), None);
    }

    #[test]
    fn accuracies_add_up_and_keep_the_worst() {
        let (low, high) = (
            Accuracy {
                judged: 1,
                correctly_rounded: 2,
                above: 3,
                below: 4,
                unbounded: 5,
                out_of_range: 6,
                worst: 0.25,
                errors: [1; ERROR_BINS],
            },
            Accuracy {
                judged: 10,
                correctly_rounded: 20,
                above: 30,
                below: 40,
                unbounded: 50,
                out_of_range: 60,
                worst: 0.5,
                errors: [2; ERROR_BINS],
            },
        );
        let both = Accuracy {
            judged: 11,
            correctly_rounded: 22,
            above: 33,
            below: 44,
            unbounded: 55,
            out_of_range: 66,
            worst: 0.5,
            errors: [3; ERROR_BINS],
        };
        for (mut sum, other) in [(low, high), (high, low)] {
            sum.add(&other);
            assert_eq!(sum, both);
        }
    }

    /// A word that two ways to break shared could not be told apart in a case file, nor by a reader.
    #[test]
    fn words_are_distinct() {
        use Breakage::*;
        let ways = [Crashed, TimedOut, Garbled, Misshapen, OutOfMemory, WroteOutside, DeviceError, NotStarted];
        let distinct = |words: Vec<String>| {
            let count = words.len();
            assert_eq!(words.into_iter().collect::<std::collections::BTreeSet<_>>().len(), count);
        };
        distinct(ways.iter().map(|way| way.name().to_owned()).collect());
        distinct(ways.iter().map(Breakage::to_string).collect());
        distinct(Kind::ALL.iter().map(|kind| kind.name().to_owned()).collect());
        distinct(Path::BOTH.iter().map(Path::to_string).collect());
        let (unwritten, crashed) = (
            Fault::Unwritten { output: "lse", index: Index(vec![("row", 3)]) },
            Fault::Broken { breakage: Crashed, detail: "signal 11".into() },
        );
        assert_eq!(unwritten.to_string(), "lse[row=3] was not written");
        assert_eq!(Fault::Failed("no".into()).to_string(), "the call failed: no");
        assert_eq!(crashed.to_string(), "the process ended: signal 11");
    }
}
