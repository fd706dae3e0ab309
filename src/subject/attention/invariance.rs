//! The table of invariance: which changes of its surroundings leave a kernel's bits alone, and the length at which each of the others
//! first shows. What the [recipes](super::recipe) promise stands beside what the bits did.
//!
//! Bits are looked at twice: rows that differ under equal recipes end the work ([`Broken`]); and where a promise ends, the smallest
//! case in which it does is run with other values until its bits differ too.

pub(crate) mod digest;

use super::check::{Pair, Scratch};
use super::draw::Profile;
use super::fault_text::in_words;
use super::implementation::Implementation;
use super::oracle::Mode;
use super::pin::Pins;
use super::promise::{BrokenPromise, promise};
use super::relation::SidedRelation;
use super::trial::{Checks, RelationSet, Trial};
use super::{Attention, Data};
use crate::finding::{Axis, Fault, Finding, Path, Verdict};
use crate::lab::{Campaign, Done, Flow, run};
use crate::shrink::shrink;
use crate::source::mix;
use crate::subject::{Candidate, Subject};
use std::collections::BTreeMap;
use std::fmt;

/// Evaluations for the shortest case in which a promise ends.
const BUDGET: u64 = 20_000;

/// Other values tried on that case, for its bits to differ.
const REDRAWS: u32 = 64;

/// What changes around a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// One thing, on one path.
    Axis(Axis),
    /// Training against inference.
    Path,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Axis(Axis::PrefixStability) => f.write_str("prefix stability"),
            Change::Axis(axis) => write!(f, "{axis}"),
            Change::Path => f.write_str("train = infer"),
        }
    }
}

/// What was seen of one change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// How often it was looked at.
    pub looks: u64,
    /// The fewest positions at which recipes differ; `None` where all were equal.
    pub promise: Option<u32>,
    /// The fewest positions at which bits were seen to differ; `None` where none did.
    pub bits: Option<u32>,
    /// The kernel has recipes: bits that differ without them were promised not to.
    pub recipes: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.promise, self.bits) {
            _ if self.looks == 0 => f.write_str("not seen"),
            (None, None) => f.write_str("kept"),
            (Some(promise), Some(bits)) if promise == bits => write!(f, "**{bits}**"),
            (Some(promise), Some(bits)) => write!(f, "**{bits}** (recipes: {promise})"),
            (Some(promise), None) => write!(f, "kept (recipes: {promise})"),
            (None, Some(bits)) if self.recipes => write!(f, "**{bits}** (promised)"),
            (None, Some(bits)) => write!(f, "**{bits}**"),
        }
    }
}

/// One kernel's row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kernel.
    pub kernel: String,
    /// What was seen of each change.
    pub cells: BTreeMap<Change, Cell>,
}

/// A fault of the harness, or a kernel that failed.
#[derive(Clone, Debug)]
pub enum Broken {
    /// Unlike bits under equal recipes.
    Promise(Box<BrokenPromise>),
    /// The kernel did not do its work.
    Fault(Fault),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Promise(it) => write!(f, "promised and broken: {it}"),
            Broken::Fault(fault) => write!(f, "fault: {}", in_words(fault)),
        }
    }
}

/// Where something broke: the case, and the pair it was run with.
pub struct BrokenCase {
    /// What.
    pub broken: Broken,
    /// Number of the case.
    pub index: u64,
    /// The case, with the check that shows it.
    pub trial: Trial,
    /// The kernel, twice.
    pub pair: Pair,
}

/// The first trials that show a change on one path: shrinking may end above the least length, so a few are tried.
type Firsts = BTreeMap<(Change, Option<Path>), Vec<(Trial, Finding)>>;

/// Trials kept of a change on one path.
const KEPT: usize = 4;

/// One kernel against itself, over the cases of a campaign.
///
/// # Errors
/// The first case whose bits differ under equal recipes, or on which the kernel fails.
pub fn row(kernel: &Implementation, campaign: Campaign, profile: Profile) -> Result<Row, Box<BrokenCase>> {
    let against_itself = |kernel: &Implementation| Attention {
        pair: Pair { train: kernel.clone(), infer: kernel.clone(), oracle: Mode::Off, captured: None, witness: false },
        profile,
        pins: Pins::default(),
    };
    let bits = against_itself(kernel);
    let mut cells: BTreeMap<Change, Cell> = BTreeMap::new();
    let mut shown = Firsts::new();
    let mut broken = None;
    run(&Changes(&bits), campaign, |done| {
        count(&bits.pair, &done, &mut cells);
        if let Some(it) = look(&bits.pair, &done) {
            broken = Some(it);
            return Flow::Stop;
        }
        keep(&mut shown, &done);
        Flow::Continue
    });
    if let Some(broken) = broken {
        return Err(Box::new(broken));
    }
    let recipes = digest::kernel(kernel).map(|kernel| against_itself(&kernel));
    let mut promises = Firsts::new();
    if let Some(recipes) = &recipes {
        run(&Changes(recipes), campaign, |done| {
            keep(&mut promises, &done);
            Flow::Continue
        });
        let mut scratch = recipes.scratch();
        let each = promises.into_iter().flat_map(|((change, _), kept)| kept.into_iter().map(move |it| (change, it)));
        for (change, (trial, finding)) in each {
            let Some(small) = shrink(&Changes(recipes), &trial, &finding.signature(), BUDGET, &mut scratch) else { continue };
            let cell = cells.entry(change).or_default();
            let length = longest(&small.trial);
            lower(&mut cell.promise, length);
            if cell.bits.is_none_or(|bits| length < bits) && differs(&bits, &small.trial, &finding, &mut scratch) {
                lower(&mut cell.bits, length);
            }
        }
    }
    let mut scratch = bits.scratch();
    let each = shown.into_iter().flat_map(|((change, _), kept)| kept.into_iter().take(1).map(move |it| (change, it)));
    for (change, (trial, finding)) in each {
        let cell = cells.entry(change).or_default();
        // Where the end of the promise shows in bits, nothing shorter can.
        if (cell.bits.is_none() || cell.bits != cell.promise)
            && let Some(small) = shrink(&bits, &trial, &finding.signature(), BUDGET, &mut scratch)
        {
            lower(&mut cell.bits, longest(&small.trial));
        }
    }
    cells.values_mut().for_each(|cell| cell.recipes = recipes.is_some());
    Ok(Row { kernel: kernel.kernel.identity().name, cells })
}

fn lower(least: &mut Option<u32>, length: u32) {
    *least = Some(least.map_or(length, |least| least.min(length)));
}

fn longest(trial: &Trial) -> u32 {
    trial.case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0)
}

/// Counts what a case of a campaign looked at.
fn count(pair: &Pair, done: &Done<Trial>, cells: &mut BTreeMap<Change, Cell>) {
    for relation in pair.relations(&done.trial).0 {
        cells.entry(Change::Axis(relation.relation.axis())).or_default().looks += 1;
    }
    cells.entry(Change::Path).or_default().looks += u64::from(done.verdict.compared > 0);
}

/// Whether a case broke a promise: recipes are asked only where bits differ.
fn look(pair: &Pair, done: &Done<Trial>) -> Option<BrokenCase> {
    let case = &done.trial.case;
    let mut relations = Vec::new();
    let mut differ = false;
    for finding in &done.verdict.findings {
        if let Finding::Fault { fault, .. } = finding {
            let (broken, trial) = (Broken::Fault(fault.clone()), done.trial.clone());
            return Some(BrokenCase { broken, index: done.index, trial, pair: pair.clone() });
        }
        differ |= finding.difference().is_some();
        relations.extend(finding.relation().and_then(|text| text.parse::<SidedRelation>().ok()));
    }
    if !differ {
        return None;
    }
    relations.dedup();
    let broken = promise(pair, case, &pair.inputs(case), &relations).broken?;
    let checks = Checks::Only { oracle: false, pair: broken.relation.is_none(), relation: broken.relation.clone() };
    let trial = Trial::new(case.clone(), checks);
    Some(BrokenCase { broken: Broken::Promise(Box::new(broken)), index: done.index, trial, pair: pair.clone() })
}

/// Keeps a case's differences that are the first of their change and path.
fn keep(firsts: &mut Firsts, done: &Done<Trial>) {
    for finding in &done.verdict.findings {
        let Some(place) = place(finding) else { continue };
        let kept = firsts.entry(place).or_default();
        if kept.len() < KEPT {
            kept.push((done.trial.clone(), finding.clone()));
        }
    }
}

fn place(finding: &Finding) -> Option<(Change, Option<Path>)> {
    match finding {
        Finding::Mismatch(_) => Some((Change::Path, None)),
        Finding::NotInvariant { axis, path, .. } => Some((Change::Axis(*axis), Some(*path))),
        _ => None,
    }
}

/// Whether the bits of a small case differ in the same place as the recipes, under some of its values.
fn differs(bits: &Attention, trial: &Trial, finding: &Finding, scratch: &mut Scratch) -> bool {
    (0..=REDRAWS).any(|n| {
        let trial = if n == 0 { Some(trial.clone()) } else { bits.redraw(trial, n) };
        let Some(trial) = trial else { return false };
        bits.check(&trial, scratch).findings.iter().any(|it| place(it) == place(finding))
    })
}

/// Draws cases that are looked at under every change. Shrinks structure alone: recipes do not look at values, and the bits are to be drawn
/// anew.
struct Changes<'a>(&'a Attention);

impl Subject for Changes<'_> {
    type Trial = Trial;
    type Scratch = Scratch;

    fn scratch(&self) -> Scratch {
        self.0.scratch()
    }

    fn draw(&self, seed: u64, index: u64) -> Trial {
        let checks = Checks::All { seed: mix(seed, index), set: RelationSet::Every, also: None };
        Trial { checks, ..self.0.draw(seed, index) }
    }

    fn check(&self, trial: &Trial, scratch: &mut Scratch) -> Verdict {
        self.0.check(trial, scratch)
    }

    fn focus(&self, trial: &Trial, finding: &Finding) -> Trial {
        self.0.focus(trial, finding)
    }

    fn size(&self, trial: &Trial) -> Vec<u64> {
        self.0.size(trial)
    }

    fn positions(&self, trial: &Trial, pass: usize) -> Option<usize> {
        self.0.positions(trial, pass)
    }

    fn smaller(&self, trial: &Trial, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
        let mut candidates = self.0.smaller(trial, pass, position);
        candidates.retain(|it| !matches!(it.trial.case.data, Data::Literal(_)));
        candidates
    }

    fn redraw(&self, _: &Trial, _: u32) -> Option<Trial> {
        None
    }
}

/// The table in Markdown: a line for each kernel, a column for each change that some kernel was looked at under.
pub fn markdown(rows: &[Row]) -> String {
    let mut changes: Vec<Change> = rows.iter().flat_map(|row| row.cells.keys().copied()).collect();
    changes.sort_unstable();
    changes.dedup();
    let mut text = String::from("| kernel |");
    changes.iter().for_each(|change| text += &format!(" {change} |"));
    text += "\n|---|";
    changes.iter().for_each(|_| text += "---|");
    text.push('\n');
    for row in rows {
        text += &format!("| `{}` |", row.kernel);
        for change in &changes {
            text += &format!(" {} |", row.cells.get(change).copied().unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Length;
    use crate::subject::attention::per_sequence::{PerSequence, SequenceCall};
    use crate::subject::attention::reference::Reference;
    use crate::subject::attention::relation::Relation;
    use std::sync::Arc;

    fn kernel(name: &str) -> Arc<Reference> {
        Arc::new(Reference::parse(name).expect("a kernel's name"))
    }

    fn of(kernel: &Implementation, cases: u64) -> Result<Row, Box<BrokenCase>> {
        row(kernel, Campaign { seed: 1, first: 0, length: Length::Cases(cases), jobs: 2 }, Profile::Quick)
    }

    #[test]
    fn a_moving_grid_is_kept_on_all_axes_but_the_prefix() {
        let moving = Implementation::reference(Reference::parse("ref:uncached-split,grid.split=fixed_size(4)").unwrap());
        let row = of(&moving, 200).map_err(|it| it.broken.to_string()).unwrap();
        for (change, cell) in &row.cells {
            assert!(cell.looks > 10, "{change}: {cell:?}");
            match change {
                // A hit of one cuts two keys in two parts, and two terms have one order: bits need three.
                Change::Axis(Axis::Prefix) | Change::Path => {
                    assert_eq!((cell.promise, cell.bits), (Some(2), Some(3)), "{change}");
                    assert_eq!(cell.to_string(), "**3** (recipes: 2)");
                }
                _ => assert_eq!(cell.to_string(), "kept", "{change}"),
            }
        }
        let table = markdown(&[row]);
        assert!(table.starts_with("| kernel | repeat | recompute | company | position |"), "{table}");
        assert!(table.contains("| train = infer |\n|---|"), "{table}");
    }

    /// A look is a relation that is run: a kernel that does not say that it can work as ranks is not asked to.
    #[test]
    fn relations_that_are_not_run_are_no_looks() {
        let looks = |kernel: Implementation| {
            let pair = Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Off, captured: None, witness: false };
            let attention = Attention { profile: Profile::Quick, ..Attention::of(pair) };
            let several = |it: &SidedRelation| matches!(it.relation, Relation::ContextRanks { context: Some(_) });
            (0..100).flat_map(|n| attention.pair.relations(&Changes(&attention).draw(1, n)).0).filter(several).count()
        };
        let zeros = |_: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]| {
            o.fill(0.0);
            lse.fill(0.0);
            Ok(())
        };
        assert_eq!(looks(Implementation::kernel(Arc::new(PerSequence::new("zeros", "1", zeros)))), 0);
        assert!(looks(Implementation::reference(Reference::default())) > 5);
    }

    #[test]
    fn a_mistake_in_the_promise_is_caught() {
        // Computes on a grid that moves with the prefix hit, and promises one that does not.
        let planted = Implementation {
            kernel: kernel("ref:uncached-split,grid.split=fixed_size(4)"),
            reference: Some(kernel("ref:fixed-split,grid.split=fixed_size(4)")),
            source: None,
        };
        let broken = of(&planted, 1000).expect_err("a promise is broken");
        let text = broken.broken.to_string();
        assert!(text.starts_with("promised and broken: ") && text.contains("and one recipe: keys "), "{text}");
        assert!(matches!(broken.broken, Broken::Promise(_)));
        // The case shows it again.
        let verdict = broken.pair.check(&broken.trial, &mut broken.pair.scratch());
        assert!(verdict.failure().is_some());
    }
}
