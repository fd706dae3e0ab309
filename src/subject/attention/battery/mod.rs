//! Batteries: named, versioned lists of cases, in parts (*strata*) that each have a reason. A case is a pure function of the battery, its
//! stratum and its index, so that any machine can make any of them.

mod kept;
pub mod space;
mod splits;

pub use kept::{Kept, kept};

use super::check::Pair;
use super::draw::{Hints, Profile, draw};
use super::text::{CaseFile, KernelFields, KernelText, Run, print};
use super::trial::{Checks, RelationSet, Trial};
use super::{Attention, Case};
use crate::finding::Path;
use crate::source::{Stream, mix};
use crate::subject::Subject;
use space::{Row, Space};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Grows whenever the cases or the claims of a battery change.
pub const VERSION: u32 = 1;

/// How large a battery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Seconds.
    Quick,
    /// Minutes.
    Standard,
    /// Twenty minutes on two cores for a reference kernel, hours for one in another process.
    Release,
}

impl Size {
    /// All, smallest first.
    pub const ALL: [Size; 3] = [Size::Quick, Size::Standard, Size::Release];

    /// Its name on the command line and in certificates.
    pub fn name(self) -> &'static str {
        match self {
            Size::Quick => "quick",
            Size::Standard => "standard",
            Size::Release => "release",
        }
    }

    /// Cases of a stratum whose number is free.
    fn cases(self, part: Part) -> u64 {
        let [quick, standard, release] = match part {
            // Rare conditions that must meet: see DESIGN.md, "Weights stay".
            Part::Random => [600, 12_000, 400_000],
            Part::Splits => [12, 60, 600],
            Part::Captured => [50, 500, 5000],
            Part::Outside => [40, 400, 4000],
            Part::Pairs | Part::Triples | Part::Boundary | Part::Kept => return 0,
        };
        match self {
            Size::Quick => quick,
            Size::Standard => standard,
            Size::Release => release,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let known = Size::ALL.into_iter().find(|size| size.name() == text);
        known.ok_or_else(|| format!("unknown battery `{text}` (one of quick, standard, release)"))
    }
}

/// A part of the case space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Every pair of knob values.
    Pairs,
    /// Every triple of knob values.
    Triples,
    /// Lengths around every size in play.
    Boundary,
    /// Few rows over many keys.
    Splits,
    /// The generator's cases.
    Random,
    /// Seeds, regressions, smallest cases of planted faults.
    Kept,
    /// Values from captured tensors.
    Captured,
    /// What a kernel says that it does not do.
    Outside,
}

impl Part {
    /// All, in the order in which they run.
    pub const ALL: [Part; 8] =
        [Part::Pairs, Part::Triples, Part::Boundary, Part::Splits, Part::Random, Part::Kept, Part::Captured, Part::Outside];

    /// Its name in certificates.
    pub fn name(self) -> &'static str {
        match self {
            Part::Pairs => "pairs",
            Part::Triples => "triples",
            Part::Boundary => "boundary",
            Part::Splits => "splits",
            Part::Random => "random",
            Part::Kept => "kept",
            Part::Captured => "captured",
            Part::Outside => "outside",
        }
    }

    /// What it holds, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            Part::Pairs => "every pair of values of two knobs that a case can have and the kernels do, at least once",
            Part::Triples => "every triple of values of three knobs, likewise",
            Part::Boundary => "lengths of 1, g-1, g, g+1, 2g, 2g+1 and 3g-1 for every block, split and page size g in play",
            Part::Splits => "few rows over many keys, beside other numbers of requests and keys: what a split count follows from",
            Part::Random => "cases of the generator (profile mixed, every sixteenth long)",
            Part::Kept => "seeds, every kept regression, and the smallest case of each planted fault",
            Part::Captured => "slices of captured tensors",
            Part::Outside => "cases that a kernel declares it does not do: it must refuse them or be right",
        }
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        Part::ALL.into_iter().find(|part| part.name() == text).ok_or_else(|| format!("`{text}` is no stratum"))
    }
}

/// One random case in so many comes from the long profile.
const LONG: u64 = 16;

fn is_long(index: u64) -> bool {
    index % LONG == LONG - 1
}

/// Sets the cases outside apart from the random ones.
const OUTSIDE: u64 = 3;

/// Draws that are made to find one case that the kernels do, or do not.
const TRIES: u64 = 64;

/// The cases for two kernels.
pub struct Battery {
    /// How large.
    pub size: Size,
    /// Of the random strata.
    pub seed: u64,
    /// The kernels, without captured tensors.
    pub attention: Attention,
    long: Attention,
    captured: Option<Attention>,
    kept: Vec<Kept>,
    granules: Vec<u32>,
    head_dims: Vec<u32>,
    /// Made when first needed: it takes a second.
    space: OnceLock<Space>,
    rows: [OnceLock<Vec<Row>>; 2],
    boundary: OnceLock<Vec<Case>>,
}

impl Battery {
    /// The battery for two kernels, inside what they do and what is pinned. Captured tensors of the pair have a stratum of their own.
    pub fn new(size: Size, seed: u64, attention: &Attention) -> Battery {
        let with =
            |profile, captured| Attention { pair: Pair { captured, ..attention.pair.clone() }, profile, pins: attention.pins };
        let plain = with(Profile::Mixed, None);
        let captured = attention.pair.captured.clone().map(|it| with(Profile::Mixed, Some(it)));
        // What the kernels do not do is no case of theirs.
        let scope = plain.pair.scope();
        let kept = kept().into_iter().filter(|it| scope.outside(&it.case).is_none() && plain.pins.hold(&it.case.problem));
        let (granules, head_dims) = (plain.granules(), plain.head_dims());
        Battery {
            size,
            seed,
            kept: kept.collect(),
            long: with(Profile::Long, None),
            captured,
            granules,
            head_dims,
            attention: plain,
            space: OnceLock::new(),
            rows: [const { OnceLock::new() }; 2],
            boundary: OnceLock::new(),
        }
    }

    /// The knobs that [`Part::Pairs`] and [`Part::Triples`] are over.
    pub fn space(&self) -> &Space {
        self.space.get_or_init(|| Space::new(&self.attention))
    }

    fn rows(&self, t: usize) -> &[Row] {
        self.rows[t - 2].get_or_init(|| self.space().rows(t))
    }

    fn boundary(&self) -> &[Case] {
        self.boundary.get_or_init(|| self.space().boundary_cases())
    }

    /// The kernels of a stratum's cases.
    pub fn attention(&self, part: Part) -> &Attention {
        match (part, &self.captured) {
            (Part::Captured, Some(captured)) => captured,
            _ => &self.attention,
        }
    }

    /// Cases of a stratum.
    pub fn cases(&self, part: Part) -> u64 {
        match part {
            Part::Pairs => self.rows(2).len() as u64,
            // Some thousand cases: minutes.
            Part::Triples | Part::Boundary if self.size == Size::Quick => 0,
            Part::Triples => self.rows(3).len() as u64,
            Part::Boundary => self.boundary().len() as u64,
            Part::Kept => self.kept.len() as u64,
            Part::Captured if self.captured.is_none() => 0,
            Part::Outside if !self.attention.pair.scope().has_limits() => 0,
            Part::Splits | Part::Random | Part::Captured | Part::Outside => self.size.cases(part),
        }
    }

    /// A case with everything that is checked of it. `None`: of the draws for it none was what the kernels do, or, for
    /// [`Part::Outside`], do not.
    pub fn trial(&self, part: Part, index: u64) -> Option<Trial> {
        let seed = mix(mix(self.seed, part as u64), index);
        let all = |set, also| Checks::All { seed, set, also };
        let every = || all(RelationSet::Every, None);
        Some(match part {
            Part::Pairs => Trial::new(self.space().case(&self.rows(2)[index as usize], index), every()),
            Part::Triples => Trial::new(self.space().case(&self.rows(3)[index as usize], index), every()),
            Part::Boundary => Trial::new(self.boundary()[index as usize].clone(), every()),
            Part::Splits => {
                let scope = self.attention.pair.scope();
                let does = |case: &Case| scope.outside(case).is_none() && self.attention.pins.hold(&case.problem);
                let tries = (0..TRIES).map(|n| splits::case(self.seed, index * TRIES + n, &self.granules, &self.head_dims));
                Trial::new(tries.into_iter().find(does)?, all(RelationSet::Splits, None))
            }
            Part::Random | Part::Captured => {
                let long = part == Part::Random && is_long(index);
                let attention = if long { &self.long } else { self.attention(part) };
                Trial { checks: every(), ..attention.draw(self.seed, index) }
            }
            Part::Kept => {
                let kept = &self.kept[index as usize];
                Trial::new(kept.case.clone(), all(RelationSet::Every, kept.relation.clone()))
            }
            Part::Outside => Trial::new(self.outside(index)?, every()),
        })
    }

    /// A case that one of the kernels does not do, by what it declares, and can be asked for all the same.
    fn outside(&self, index: u64) -> Option<Case> {
        let scope = self.attention.pair.scope();
        let hints = Hints { granules: self.granules.clone(), head_dims: self.head_dims.clone(), ..Hints::default() };
        let draws = (0..TRIES).map(|n| Stream::new(mix(self.seed, OUTSIDE), index * TRIES + n));
        // Small cases while they serve; rows and keys beyond a declared limit may take long ones.
        let profile = |n| match n {
            n if n < TRIES / 2 => Profile::Quick,
            n if n < TRIES * 7 / 8 => Profile::Mixed,
            _ => Profile::Long,
        };
        let asked = |case: &Case| Path::BOTH.iter().any(|&path| scope.side(path).can_be_asked(case));
        (0..).zip(draws).map(|(n, mut stream)| draw(&mut stream, profile(n), &hints)).find(asked)
    }

    /// The independent draw that a case of the random stratum belongs to: kernels that compile get each shape several times.
    pub fn draw(&self, index: u64) -> [u64; 2] {
        [u64::from(is_long(index)), self.attention.shape(index)]
    }

    /// Whether several cases of the random stratum may be one draw.
    pub fn repeats_shapes(&self) -> bool {
        self.attention.pair.scope().compiles()
    }

    /// A case as text, without its kernels.
    pub fn text(&self, trial: &Trial) -> String {
        let none = || KernelText::Reference(KernelFields(Vec::new()));
        let run = Run { train: none(), infer: none(), oracle: String::new(), relation: None, expect: String::new() };
        print(&CaseFile { comment: String::new(), case: trial.case.clone(), run })
    }

    /// What a kept case is called.
    pub fn kept_name(&self, index: u64) -> Option<&str> {
        self.kept.get(index as usize).map(|it| it.name.as_str())
    }

    /// SHA-256 of the captured tensors.
    pub fn data(&self) -> Option<&str> {
        self.captured.as_ref()?.pair.captured.as_deref().map(|it| it.sha256.as_str())
    }

    /// Sizes around which lengths are drawn: blocks and splits of both kernels.
    pub fn granules(&self) -> &[u32] {
        &self.granules
    }
}
