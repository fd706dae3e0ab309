//! One kernel asked everything: what of its declarations works, whether it repeats itself, which relations hold and where the others
//! first break, how near to the true values it is, and which arithmetic it follows.
//!
//! A probe describes. Different is not wrong: what is beyond the bound computed for the declared arithmetic, a fault, a declaration
//! that does not hold and a kernel that does not repeat itself are.

mod arithmetic;
mod judged;
mod minimal;
pub mod page;
mod question;
mod relations;
mod repeat;
pub(super) mod sample;
pub(super) mod terms;
mod trials;

use super::Attention;
use super::capabilities::Format;
use super::check::{Pair, Scratch};
use super::draw::Profile;
use super::implementation::Implementation;
use super::oracle::Mode;
use super::pin::Pins;
use super::trial::Trial;
use crate::finding::{Finding, Path};
use crate::subject::Subject;
use page::{FormatPage, Minimal, Page, Recipe, Wrong};
use terms::Terms;

/// How much a probe does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Cases for each relation and format; `None` is what a kernel does in about two minutes.
    pub cases: Option<u64>,
    /// Seed of all data.
    pub seed: u64,
}

/// Evaluations for one minimal case of a reference kernel.
const BUDGET: u64 = 2_000;

/// The same of a kernel from outside: some dozens of cases are made small, and each evaluation is several calls.
const OUTSIDE_BUDGET: u64 = 400;

/// The same where each shape is compiled.
const COMPILED_BUDGET: u64 = 120;

/// Cases for each relation and format of a reference kernel, of one from outside, and of one that compiles each shape: with the
/// fewest, no length comes twice.
const CASES: [u64; 3] = [180, 24, 6];

impl Options {
    fn cases(&self, terms: &Terms<'_>) -> u64 {
        let [reference, outside, compiled] = CASES;
        self.cases.unwrap_or(match terms.kernel.reference {
            _ if terms.capabilities.compiles => compiled,
            Some(_) => reference,
            None => outside,
        })
    }

    fn budget(&self, terms: &Terms<'_>) -> u64 {
        match terms.kernel.reference {
            _ if terms.capabilities.compiles => COMPILED_BUDGET,
            Some(_) => BUDGET,
            None => OUTSIDE_BUDGET,
        }
    }

    /// Breaking cases from which the smallest is looked for: shrinking may end above the least length.
    fn starts(&self, terms: &Terms<'_>) -> usize {
        if terms.kernel.reference.is_some() { 2 } else { 1 }
    }
}

/// A probe at work.
struct Probing<'a> {
    terms: Terms<'a>,
    attention: Attention,
    options: Options,
    scratch: Scratch,
    /// The smallest case of each fault so far, by its signature and words.
    faults: Vec<(String, String, Option<Minimal>)>,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> Probing<'a> {
    fn new(kernel: &'a Implementation, options: Options, progress: &'a mut dyn FnMut(&str)) -> Self {
        let pair = Pair { train: kernel.clone(), infer: kernel.clone(), oracle: Mode::default(), captured: None, witness: false };
        let attention = Attention { pair, profile: Profile::Quick, pins: Pins::default() };
        let scratch = attention.scratch();
        Probing { terms: Terms::of(kernel), attention, options, scratch, faults: Vec::new(), progress }
    }

    fn progress(&mut self, what: &str) {
        (self.progress)(what);
    }

    /// Adds something wrong, with the smallest case that shows it.
    fn wrong(&mut self, wrong: &mut Vec<Wrong>, what: String, trial: &Trial, finding: &Finding) {
        let name = format!("wrong-{}.case", wrong.len() + 1);
        let minimal = match finding {
            // A kernel that breaks in every call would have its process started again thousands of times to show one thing many times.
            Finding::Fault { fault, .. } => {
                let (signature, words) = (finding.signature(), fault.to_string());
                let known = self.faults.iter().find(|it| it.0 == signature && it.1 == words).map(|it| it.2.clone());
                known.unwrap_or_else(|| {
                    let minimal = minimal::minimal(self, trial, finding, &name);
                    self.faults.push((signature, words, minimal.clone()));
                    minimal
                })
            }
            _ => minimal::minimal(self, trial, finding, &name),
        };
        wrong.push(Wrong { what, minimal });
    }
}

/// Probes a kernel; `progress` is told what comes next.
pub fn probe(name: &str, kernel: &Implementation, options: Options, progress: &mut dyn FnMut(&str)) -> Page {
    let mut probing = Probing::new(kernel, options, progress);
    let mut wrong = Vec::new();
    let repeats = repeat::repeats(&mut probing, &mut wrong);
    let trials = trials::trials(&mut probing, &mut wrong);
    let formats = probing.terms.storages().into_iter().map(|format| format_page(&mut probing, format, &mut wrong)).collect();
    Page {
        name: name.to_owned(),
        identity: kernel.kernel.identity(),
        conventions: kernel.kernel.conventions(),
        wrong,
        trials,
        repeats,
        formats,
    }
}

fn format_page(probing: &mut Probing<'_>, format: Format, wrong: &mut Vec<Wrong>) -> FormatPage {
    let accuracy = judged::judged(probing, format, wrong);
    let [train, infer] = Path::BOTH.map(|path| arithmetic::recipe(probing, format, path));
    let recipes = if train.answer == infer.answer && train.detail == infer.detail {
        vec![Recipe { path: None, ..train }]
    } else {
        vec![train, infer]
    };
    let relations = relations::relations(probing, format, wrong);
    FormatPage { format, relations, accuracy, recipes }
}
