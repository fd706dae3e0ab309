//! What a probe found, as a value. How it looks is the command line's.

use crate::finding::{Accuracy, Axis, Path};
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::kernel::Identity;

/// Everything that a probe found of one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// As the command line names the kernel.
    pub name: String,
    /// Who it is.
    pub identity: Identity,
    /// What its calls mean, as declared.
    pub conventions: Conventions,
    /// What is wrong, as against merely different. Empty for most kernels.
    pub wrong: Vec<Wrong>,
    /// What it declares, tried.
    pub trials: Vec<Trial>,
    /// Whether it repeats itself.
    pub repeats: Vec<Repeat>,
    /// One for each storage format.
    pub formats: Vec<FormatPage>,
}

impl Page {
    /// Whether the kernel gave any result at all. One that refused every call has shown nothing, neither right nor wrong.
    pub fn answered(&self) -> bool {
        self.trials.iter().any(|trial| trial.cases > 0) || self.formats.iter().any(|it| it.accuracy.accuracy.judged > 0)
    }
}

/// Something that no kernel should do.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// In one line.
    pub what: String,
    /// The smallest case that shows it.
    pub minimal: Option<Minimal>,
}

/// The smallest case found for a difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Minimal {
    /// The case in one line.
    pub summary: String,
    /// The relation under which it shows; `None` for train against infer and for results beyond their bound.
    pub relation: Option<String>,
    /// The first element in one line.
    pub element: String,
    /// Why, where that is known.
    pub cause: Option<String>,
    /// Positions of its longest sequence.
    pub positions: u32,
    /// A file name for it.
    pub file: String,
    /// The file's text.
    pub text: String,
}

/// What became of something that a kernel declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every case tried gave results within their bounds.
    Works,
    /// The kernel says that it cannot.
    Refused(String),
    /// A call failed, a slot was left unwritten, the process broke.
    Fails(String),
    /// Results beyond the bound of the declared arithmetic, or a wrong result where the conventions fix it.
    Wrong(String),
    /// Nothing was run, for this reason.
    NotTried(String),
}

impl Outcome {
    /// Whether the kernel does what it declares, or at least does nothing wrong.
    pub fn is_wrong(&self) -> bool {
        matches!(self, Outcome::Fails(_) | Outcome::Wrong(_))
    }
}

/// What kind of capability a trial is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the fields of `Capabilities`
pub enum Declared {
    Forms,
    Formats,
    Features,
    HeadDims,
    PageSizes,
    Limits,
}

impl Declared {
    /// Every kind, in the order of a page.
    pub const ALL: [Declared; 6] =
        [Declared::Forms, Declared::Formats, Declared::Features, Declared::HeadDims, Declared::PageSizes, Declared::Limits];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Declared::Forms => "forms",
            Declared::Formats => "formats",
            Declared::Features => "features",
            Declared::HeadDims => "head dims",
            Declared::PageSizes => "page sizes",
            Declared::Limits => "limits",
        }
    }
}

/// One thing declared, tried on small cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// What kind.
    pub of: Declared,
    /// Which one, in the words of declarations.
    pub what: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Cases that were run.
    pub cases: u64,
}

/// One way of calling again.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// What was done between a call and its repetition.
    pub what: &'static str,
    /// What was seen.
    pub seen: Repeated,
}

/// Whether calls that were made again gave the same bits.
#[derive(Clone, Debug, PartialEq)]
pub enum Repeated {
    /// They could not be made, for this reason.
    NotTried(String),
    /// They did, in so many comparisons of whole results.
    Same(u64),
    /// Some did not.
    Differs {
        /// Comparisons that differ.
        differing: u64,
        /// Comparisons.
        comparisons: u64,
        /// The first case in which they do, in one line.
        first: String,
    },
}

/// What was found in one storage format.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatPage {
    /// The format.
    pub format: Format,
    /// One for each change of surroundings.
    pub relations: Vec<Relation>,
    /// Results against the true values.
    pub accuracy: Judged,
    /// Which arithmetic it follows: one for both paths where they give one answer.
    pub recipes: Vec<Recipe>,
}

/// What changes around a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The full sequence in training against one step over a cache.
    FullAgainstStep,
    /// Against cached decode, one row at a time.
    FullAgainstDecode,
    /// Against a prefill in chunks of so many rows.
    FullAgainstChunks(u32),
    /// A change on one path.
    Axis(Axis),
}

/// What was seen of one change.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// The change.
    pub change: Change,
    /// The path it is made on; `None` for training against inference.
    pub path: Option<Path>,
    /// The change in words.
    pub about: String,
    /// What was seen.
    pub seen: Seen,
}

/// Elements that were compared, and those that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Elements with other bits.
    pub differing: u64,
    /// Elements.
    pub compared: u64,
}

impl Share {
    /// Adds elements.
    pub fn add(&mut self, differing: u64, compared: u64) {
        self.differing += differing;
        self.compared += compared;
    }
}

/// What was seen of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// Nothing was compared, for this reason.
    NotTried(String),
    /// Something was.
    Tried(Box<Tried>),
}

/// What comparisons along one change showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    /// Cases in which elements were compared.
    pub comparisons: u64,
    /// Cases that were not compared: the kernel refused them, or failed.
    pub left_out: u64,
    /// Why the first of them was not.
    pub why_left_out: Option<String>,
    /// Positions of the shortest and longest sequence compared.
    pub lengths: Option<(u32, u32)>,
    /// Batch sizes compared, where the change is one of company: the fewest and the most.
    pub batches: Option<(u32, u32)>,
    /// Elements of `o` on normally distributed data: what a user's tensors would show.
    pub normal: Share,
    /// Elements of `o` on data made to show order and blocking.
    pub designed: Share,
    /// Elements of `lse`, on all data.
    pub lse: Share,
    /// Where it first breaks; `None` where it holds.
    pub breaks: Option<Break>,
}

/// Where a relation first breaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Break {
    /// The fewest positions of a sequence.
    pub positions: u32,
    /// The smallest batch, where the change is one of company.
    pub batch: Option<u32>,
    /// The first value, as declared, where the change is one of a knob.
    pub value: Option<String>,
    /// The smallest case found; `None` where the case did not show it again.
    pub minimal: Option<Minimal>,
}

/// Results against the true values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Cases that were judged.
    pub cases: u64,
    /// Cases that were not: the kernel refused them, or failed.
    pub left_out: u64,
    /// Elements that the oracle left undecided.
    pub undecided: u64,
    /// Counts over all elements.
    pub accuracy: Accuracy,
    /// Elements beyond the bound computed for the declared arithmetic.
    pub beyond: u64,
}

/// A class of arithmetic, and what the results say to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// In words: "rounds unnormalised P to bf16".
    pub name: String,
    /// Results that were held against it: all, or those up to the problem that refutes it.
    pub held: u64,
    /// Those that have only one pattern under it, in any order of f32 operations.
    pub decided: u64,
    /// Those that it excludes.
    pub refuted: u64,
    /// The first of them in words.
    pub witness: Option<String>,
}

/// Which arithmetic a kernel follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The path it was read from; `None` where both gave one answer.
    pub path: Option<Path>,
    /// The answer.
    pub answer: Answer,
    /// Results that were held against every class.
    pub results: u64,
    /// The classes, in the order they were tried.
    pub classes: Vec<Class>,
    /// What is known of blocks and of order, in words.
    pub detail: Vec<String>,
}

/// The answer of [`Recipe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Results exclude every class but this one.
    One(String),
    /// These were not told apart.
    Several(Vec<String>),
    /// Results exclude every class.
    None,
    /// No results, for this reason.
    NotTried(String),
}
