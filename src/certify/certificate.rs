//! What a certificate says, as a value that is written and read as JSON. Everything here but [`Environment`] follows from the kernels and
//! the battery: two machines write the same bytes.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Version of this layout.
pub const FORMAT: u32 = 1;

/// Counts by name.
pub type Counts = BTreeMap<String, u64>;

/// The predicate's part that is this crate's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of lastbit.
    pub lastbit: String,
    /// What was asked.
    pub battery: BatteryText,
    /// The training kernel, then the inference kernel.
    pub kernels: [KernelText; 2],
    /// What `version_equal` was held against; `None`: nothing was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
    /// One line: `lastbit: 12 claims, 11 PASS, 1 UNVERIFIABLE`.
    pub status: String,
    /// Each claim of the battery, in its order.
    pub claims: Vec<ClaimResult>,
    /// Each part of the case space, in the battery's order.
    pub strata: Vec<StratumResult>,
    /// What the cases covered.
    pub coverage: Coverage,
    /// Whether a pass could have been a failure.
    pub power: Power,
    /// What was measured.
    pub results: Results,
    /// What can be said of cases that were not run.
    pub bound: FailureBound,
    /// Small failing cases, at most one for each claim and signature.
    pub counterexamples: Vec<Counterexample>,
    /// Orders of addition found from outside, or read from recipes.
    pub trees: Vec<TreeText>,
    /// Accepted failures.
    pub waivers: Vec<Waiver>,
    /// What ends the certificate's validity, in sentences.
    pub voids: Vec<String>,
    /// SHA-256 over all of the above as compact JSON: equal on two machines that found the same.
    pub digest: String,
    /// Where and when. Not part of [`Certificate::digest`].
    pub environment: Environment,
    /// SHA-256 over the whole statement as compact JSON, this field empty: shows a changed byte. Whoever changes one on purpose can make it
    /// anew; a signature is for that.
    pub seal: String,
}

/// A battery as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatteryText {
    /// `quick`, `standard` or `release`.
    pub name: String,
    /// Grows when its claims or cases change.
    pub version: u32,
    /// Seed of its random strata.
    pub seed: u64,
    /// Names of the claims.
    pub claims: Vec<String>,
    /// Names of the strata and the number of their cases.
    pub strata: Vec<(String, u64)>,
    /// Pins under which cases are drawn, in words; empty: none.
    pub limits: Vec<String>,
    /// SHA-256 over the rest of this record and over the text of a sample of its cases.
    pub sha256: String,
}

impl BatteryText {
    /// Whether both ask for the same: then strata can be compared, index by index, that hold the same cases
    /// ([`StratumResult::cases`]).
    pub fn asks_as(&self, other: &BatteryText) -> bool {
        (&self.name, self.version, self.seed, &self.limits) == (&other.name, other.version, other.seed, &other.limits)
    }
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelText {
    /// `train` or `infer`.
    pub side: String,
    /// As a command line names it.
    pub words: String,
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its source and libraries, as it declares; `None` where it declares none.
    pub declared_sha256: Option<String>,
    /// SHA-256 over the files that were loaded or started, as measured; `None` for one that is part of lastbit.
    pub measured_sha256: Option<String>,
    /// The contract: what it means (conventions, features), how it computes (numerics), where it runs (device, libraries, flags).
    pub contract: Contract,
    /// Every field that the three digests are over.
    pub fields: BTreeMap<String, String>,
}

/// An earlier certificate, by what tells it from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Previous {
    /// Its [`Certificate::digest`].
    pub digest: String,
    /// Its kernels: training, then inference.
    pub kernels: [PreviousKernel; 2],
}

/// A kernel of an earlier certificate, as that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the fields are those of `KernelText`
pub struct PreviousKernel {
    pub name: String,
    pub version: String,
    pub declared_sha256: Option<String>,
    pub measured_sha256: Option<String>,
}

impl Previous {
    /// Names an earlier certificate.
    pub fn of(certificate: &Certificate) -> Previous {
        let kernels = certificate.kernels.each_ref().map(|it| PreviousKernel {
            name: it.name.clone(),
            version: it.version.clone(),
            declared_sha256: it.declared_sha256.clone(),
            measured_sha256: it.measured_sha256.clone(),
        });
        Previous { digest: certificate.digest.clone(), kernels }
    }
}

/// Digests of a kernel's fields, kept apart so that a comparison can say what has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Conventions and capabilities.
    pub semantics: String,
    /// Arithmetic.
    pub numerics: String,
    /// Device, versions, details.
    pub deployment: String,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Held wherever it was looked at, and it could have failed.
    Pass,
    /// There is a counterexample.
    Fail,
    /// Neither: the reason says what is missing.
    Unverifiable,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Pass => "PASS",
            Status::Fail => "FAIL",
            Status::Unverifiable => "UNVERIFIABLE",
        })
    }
}

/// A claim with its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimResult {
    /// Its name, e.g. `batch_invariant`.
    pub claim: String,
    /// The sentence that it stands for.
    pub sentence: String,
    /// PASS, FAIL or UNVERIFIABLE.
    pub status: Status,
    /// Why: what was compared, what failed, or what is missing.
    pub reason: String,
    /// Cases that had something to say of it.
    pub cases: u64,
    /// Cases of these that fail it.
    pub failed: u64,
    /// Elements compared, or judged.
    pub elements: u64,
    /// Elements that differ, or lie beyond their bound.
    pub differing: u64,
    /// Digests of its [counterexamples](Certificate::counterexamples).
    pub counterexamples: Vec<String>,
    /// The issue under which a failure is accepted.
    pub waived: Option<String>,
}

/// A part of the case space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StratumResult {
    /// Its name: `pairs`, `triples`, `boundary`, `splits`, `random`, `kept`, `captured`, `outside`.
    pub name: String,
    /// What it holds, in a sentence.
    pub about: String,
    /// Cases generated.
    pub generated: u64,
    /// Cases of which both paths ran to the end; of those outside what the kernels declare, also the refused ones.
    pub run: u64,
    /// Cases that a kernel refused, or that were not run, by reason.
    pub skipped: Counts,
    /// What was drawn and left out since a kernel does not do it, by reason; draws that gave no case among them.
    pub left_out: Counts,
    /// Cases with a failure.
    pub failed: u64,
    /// Cases with something undecided.
    pub undecided: u64,
    /// Elements compared, train against infer and under relations.
    pub elements: u64,
    /// Elements that differ.
    pub differing: u64,
    /// SHA-256 over the texts of its cases, in index order: strata of two certificates with the same one can be held against each other.
    pub cases: String,
    /// SHA-256 over the digests of each case's output bits, in index order.
    pub outputs: String,
    /// SHA-256 over the lines that the cases left in the record file, in index order.
    pub records: String,
}

/// What the cases covered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// Smallest and largest value of a feature, by name: `kv`, `q`, `batch`, `q_heads`, `kv_heads`, `d_qk`, `d_v`, `page`, `ranks`.
    pub ranges: BTreeMap<String, [u64; 2]>,
    /// Cases with each value of a feature: `dtype`, `mask`, `layout`, `cache`, `regime`.
    pub values: BTreeMap<String, Counts>,
    /// Pairs of knob values.
    pub pairs: Ways,
    /// Triples of knob values, where the battery has them.
    pub triples: Option<Ways>,
    /// For each size in play (`block 64`, `page 16`): cases whose longest sequence has that many positions beyond a multiple of it.
    pub boundaries: Vec<Boundary>,
    /// Failed, passed and not judged cases over two features at a time.
    pub maps: Vec<Map>,
    /// Cases and failures by positions of the longest sequence: bins from 0, then 1, 2, 3-4, 5-8, ... (upper ends).
    pub lengths: Vec<LengthBin>,
}

/// Combinations of knob values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ways {
    /// Names of the knobs and of their values.
    pub knobs: Vec<(String, Vec<String>)>,
    /// Combinations in all.
    pub all: u64,
    /// Combinations that no case can have, or the kernels cannot do, by reason.
    pub excluded: Counts,
    /// Combinations left: those that are to be covered.
    pub valid: u64,
    /// Combinations that a case has that ran to the end.
    pub covered: u64,
    /// Up to 20 that are valid and not covered, in words.
    pub missing: Vec<String>,
}

/// How often cases stood at a boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boundary {
    /// `block 64`.
    pub name: String,
    /// The size.
    pub size: u32,
    /// Cases by place: `1`, `g-1`, `g`, `g+1`, `2g`, `2g+1`, `3g-1`, `other multiple`, `elsewhere`.
    pub hits: Counts,
}

/// A table of cells over two features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// Feature down the side.
    pub down: String,
    /// Feature across.
    pub across: String,
    /// Values down the side, in order.
    pub rows: Vec<String>,
    /// Values across, in order.
    pub columns: Vec<String>,
    /// `[row][column]`: cases that passed, failed, and were not judged (skipped, undecided, or nothing compared).
    pub cells: Vec<Vec<[u64; 3]>>,
}

/// Cases of some lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthBin {
    /// Largest number of positions in the bin.
    pub up_to: u32,
    /// Cases that ran, on both paths, or failed.
    pub cases: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Cases in which the two paths' bits differ.
    pub mismatched: u64,
}

/// Whether a pass could have been a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// By output format: cases with three keys in a row, and those of them whose bits a changed order changed.
    pub order_sensitive: BTreeMap<String, [u64; 2]>,
    /// Whose order was changed: a kernel of the certificate, or the reference that stands in for one from outside.
    pub witness: String,
    /// Cases that took each way.
    pub reach: Counts,
    /// Ways that had to be taken and never were.
    pub unreached: Vec<String>,
    /// Planted faults.
    pub mutants: Mutants,
    /// Kernels that must fail a claim, and whether they did.
    pub controls: Vec<Control>,
    /// SHA-256 over the lines that the planted faults and the controls left in the record file, in order.
    pub records: String,
}

/// Planted faults, put into the reference kernel and run over the strata of this battery (kept cases left out), whose lengths are drawn around
/// the faulty kernel's blocks and splits: with the calls that both kernels take and the outputs that they have first, and where these do
/// not show one, with all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutants {
    /// How many were planted.
    pub planted: u64,
    /// How many were found.
    pub killed: u64,
    /// Those of them that were found only with calls that the kernels do not take, or that pins exclude, by name: the comparison would
    /// see such a fault, the certified cases would not.
    pub elsewhere: Vec<String>,
    /// The others, by name.
    pub survived: Vec<String>,
    /// Share that must be found.
    pub floor: f64,
}

/// A negative control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The claim that it must fail.
    pub claim: String,
    /// What was put in the kernels' place.
    pub kernel: String,
    /// The case of that kernel's battery that failed it, as `stratum index`; `None`: none did, and the claim is not verified.
    pub failed_at: Option<String>,
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// Elements compared, train against infer.
    pub compared: u64,
    /// Elements of these that differ.
    pub differing: u64,
    /// Differing elements by distance in ULP: index 0 is 1, then 2, 3-4, 5-8 and so on; the last is NaN or an infinity against something else, or +0
    /// against -0.
    pub distances: Vec<u64>,
    /// Elements measured against the true value.
    pub judged: u64,
    /// Elements equal to the correctly rounded true value.
    pub correctly_rounded: u64,
    /// Elements above the true value.
    pub above: u64,
    /// Elements below it.
    pub below: u64,
    /// Elements whose bound is infinite.
    pub unbounded: u64,
    /// Elements for which an overflow inside is predicted.
    pub out_of_range: u64,
    /// Elements by error in ULP of the true value: up to 2^-2, 2^-1, 1, 2, 4 and so on; the last is everything beyond.
    pub errors: Vec<u64>,
    /// The largest error as a share of its computed bound.
    pub worst: f64,
    /// The case with it, as `stratum index`.
    pub worst_case: Option<String>,
}

/// A bound on how often cases fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureBound {
    /// The distribution that cases were drawn from; it says nothing of any other.
    pub distribution: String,
    /// Independent draws that were run: cases; for kernels that compile, which get each shape several times, shapes.
    pub cases: u64,
    /// Those that failed, of any claim.
    pub failed: u64,
    /// Confidence of the bound.
    pub confidence: f64,
    /// The share of failing cases is at most this (Clopper-Pearson, one-sided, exact, rounded up).
    pub upper: f64,
}

/// A failing case, made small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counterexample {
    /// SHA-256 of [`Counterexample::text`].
    pub sha256: String,
    /// Claims that it fails.
    pub claims: Vec<String>,
    /// What is wrong: kind, side, axis, output.
    pub signature: String,
    /// The case that it was made of, as `stratum index`.
    pub from: String,
    /// Rows, keys, heads and dims in words.
    pub size: String,
    /// Positions of its longest sequence.
    pub kv: u32,
    /// The cause in words, e.g. `blocking: softmax.block: 176 against 128`; `unknown` with what was looked at.
    pub cause: String,
    /// Its kind: `semantics`, `order`, `blocking`, `precision` or `unknown`.
    pub kind: String,
    /// The verdict in a few lines: what differs, where, first divergent step where one is known.
    pub verdict: String,
    /// Name of the file that it is saved as beside the certificate.
    pub file: String,
    /// The command that shows it again.
    pub replay: String,
    /// The case file.
    pub text: String,
}

/// An order of addition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeText {
    /// `train` or `infer`.
    pub side: String,
    /// Of what, on which plan, in words.
    pub of: String,
    /// The tree as an s-expression.
    pub tree: String,
    /// What it is called: blocks, splits.
    pub shape: String,
}

/// A failure that is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// The claim.
    pub claim: String,
    /// A link to the issue.
    pub issue: String,
    /// Last day on which it holds, `YYYY-MM-DD`.
    pub until: String,
}

/// Where and when the certificate was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Operating system and architecture.
    pub platform: String,
    /// Processor.
    pub processor: String,
    /// Devices of the kernels, train then infer.
    pub devices: [String; 2],
    /// SHA-256 of each lastbit that ran a part of the battery: a resumed run may have had two, and so may shards.
    pub programs_sha256: BTreeSet<String>,
    /// Machines or shards whose records were joined; 1 is one run.
    pub shards: u32,
    /// Threads.
    pub threads: u32,
    /// When it was finished, RFC 3339, UTC.
    pub finished: String,
    /// Seconds spent on cases, all shards together.
    pub seconds: f64,
}
