//! The full verdict of a case in words: what differs, where it first differs inside the kernel, how the difference grows, why, and how to
//! see it again.
//!
//! `explain` prints all of it, `replay` a shorter form, and the snapshots hold all of it, so it has no times and no paths but the one it
//! is given.

mod divergence;
mod exact;
mod growth;
mod runs;
mod shape;
mod structure;
mod verdict;

pub use divergence::{Common, Divergence, Steps};
pub use runs::Names;

use super::cause::{self, Cause, Unknown};
use super::check::Pair;
use super::oracle::{Mode, Oracle};
use super::trial::Trial;
use super::{
    Data,
    file::{EXPECT_MATCH, EXPECT_NOTHING, replay_command},
    show,
};
use crate::finding::{Finding, Kind, Path, Verdict};
use crate::input_error::tame;
use exact::Exact;
use growth::growth;
use runs::{Runs, declared};
use shape::shape;
use std::fmt::Write;
use verdict::describe;

/// Characters of a kernel's name that are shown: a reference kernel's has room for every field.
const NAME: usize = 4000;

/// Said after an unknown cause where one of the two is no reference kernel.
const PROBE: &str = "`lastbit probe K` says which arithmetic kernel K follows";

/// A verdict and its explanation.
pub struct Explanation {
    /// The verdict.
    pub verdict: Verdict,
    /// The cause of the headline.
    pub cause: Option<Cause>,
    /// The steps of the two runs behind the headline, where both are reference kernels.
    pub steps: Option<Steps>,
    /// Where those part first.
    pub divergence: Option<Divergence>,
    /// Everything in words, ending in a newline.
    pub text: String,
    /// The same without the shapes of the sums and the growth of the difference.
    pub brief: String,
}

impl Explanation {
    /// Whether the verdict is what a case file expects.
    pub fn meets(&self, expected: &str) -> bool {
        match expected {
            EXPECT_MATCH => self.verdict.is_match(),
            EXPECT_NOTHING => self.verdict.findings.is_empty() && self.verdict.compared == 0,
            signature => self.verdict.findings.iter().any(|finding| finding.signature() == signature),
        }
    }
}

/// Runs a trial and explains one finding: the one with the expected signature, else the headline. `file` is the name in the replay
/// command.
pub fn explain(pair: &Pair, trial: &Trial, file: &str, expected: Option<&str>) -> Explanation {
    let mut command = replay_command(file, pair.train.source.as_deref(), pair.infer.source.as_deref());
    if let (Data::Captured { .. }, Some(captured)) = (&trial.case.data, &pair.captured) {
        let _ = write!(command, " --data {}", shell_words::quote(&captured.file_name));
    }
    explain_with(pair, trial, &command, expected)
}

/// As [`explain`], with the whole command that replays the case.
pub fn explain_with(pair: &Pair, trial: &Trial, command: &str, expected: Option<&str>) -> Explanation {
    let mut scratch = pair.scratch();
    let verdict = pair.check(trial, &mut scratch);
    let mut head = format!("case: {}\n", show::summary(&trial.case));
    for path in Path::BOTH {
        let _ = writeln!(head, "{path}: {}", tame(&pair.side(path).kernel.identity().name, NAME));
    }
    let (mut inside, mut tail) = (Inside::default(), String::new());
    let mut the_cause = None;
    let wanted = verdict.findings.iter().find(|it| expected == Some(it.signature().as_str()));
    match wanted.or(verdict.headline()) {
        None if verdict.compared == 0 => head.push_str("verdict: nothing was compared\n"),
        None => {
            let _ = writeln!(head, "verdict: match, {} elements compared", verdict.compared);
        }
        Some(headline) => {
            for finding in &verdict.findings {
                describe(&mut head, finding);
            }
            let runs = Runs::of(pair, trial, headline);
            if let Some(runs) = &runs {
                inside = Inside::of(pair, trial, runs);
            }
            if inside.divergence.is_none() {
                // A difference in bits shows more than a distance from the truth: two runs can be laid side by side.
                let shown = verdict.findings.iter().find(|it| it.difference().is_some()).unwrap_or(headline);
                if let Some(runs) = Runs::of(pair, trial, shown) {
                    inside = Inside::of(pair, trial, &runs);
                }
            }
            let recipes = runs.as_ref().map_or(Vec::new(), Runs::recipe_differences);
            for line in runs.iter().flat_map(Runs::launches) {
                let _ = writeln!(tail, "{line}");
            }
            let found = cause::find(pair, trial, headline, &recipes, &mut scratch);
            tail.push_str(&cause_line(pair, headline, found.as_ref()));
            the_cause = found.ok();
        }
    }
    for reason in &verdict.left_out {
        let _ = writeln!(tail, "left out: {reason}");
    }
    if verdict.set_aside > 0 {
        let _ = writeln!(tail, "set aside: {} differences of a kernel that does not repeat itself", verdict.set_aside);
    }
    let _ = writeln!(tail, "replay: {command}");
    let Inside { steps, divergence, first, more } = inside;
    let (text, brief) = (format!("{head}{first}{more}{tail}"), format!("{head}{first}{tail}"));
    Explanation { verdict, cause: the_cause, steps, divergence, text, brief }
}

fn cause_line(pair: &Pair, headline: &Finding, cause: Result<&Cause, &Unknown>) -> String {
    let outside = Path::BOTH.into_iter().any(|path| pair.side(path).reference.is_none());
    match cause {
        _ if !headline.kind().is_failure() => String::new(),
        Ok(cause) => format!("cause: {cause}\n"),
        // A fault has said what it is.
        Err(_) if outside && headline.kind() == Kind::Fault => String::new(),
        Err(unknown) if outside => format!("cause: {unknown}; {PROBE}\n"),
        Err(unknown) => format!("cause: {unknown}\n"),
    }
}

/// What went on inside the two runs behind a finding.
#[derive(Default)]
struct Inside {
    steps: Option<Steps>,
    divergence: Option<Divergence>,
    /// The first divergence in words.
    first: String,
    /// The shapes of the sums, and the growth.
    more: String,
}

impl Inside {
    fn of(pair: &Pair, trial: &Trial, runs: &Runs) -> Inside {
        let Some([a, b]) = runs.traces() else { return Inside::default() };
        let problem = &trial.case.problem;
        let (row, head) = (runs.at("row"), runs.at("head"));
        let sequence = problem.sequences.iter().position(|it| u64::from(it.id) == runs.at("seq"));
        let inputs = pair.inputs(&trial.case);
        let mut oracle = Oracle::new(Mode::Enclosure);
        oracle.begin(problem, &inputs.q, &inputs.k, &inputs.v);
        let exact = sequence.and_then(|sequence| oracle.steps(problem, sequence, row as u32, head as usize));
        let mut exact = exact.zip(declared(pair)).map(|(steps, declared)| Exact::new(steps, problem, declared));
        let steps = Steps::of(a, b, |key| exact.as_ref()?.steps.rough_score(key));
        let Some(divergence) = Divergence::of(a, b, &steps, runs.names) else { return Inside::default() };
        let mut first = format!("first divergence (seq={} row={row} head={head}", runs.at("seq"));
        if let Some(sequence) = sequence.map(|n| &problem.sequences[n]) {
            let _ = write!(first, ", position {}", row as i64 + i64::from(sequence.kv) - i64::from(sequence.q));
        }
        first.push_str("): ");
        let recipes = [&runs.runs[0], &runs.runs[1]].map(|run| run.recipe.as_ref());
        if let ([Some(x), Some(y)], None) = (recipes, &divergence.structure)
            && x.partials != y.partials
        {
            // Work that leaves no step of its own in one of the runs: a lone split whose sink is merged, say.
            let (with, without) = if x.partials { (0, 1) } else { (1, 0) };
            let names = [runs.names.first, runs.names.second];
            let _ = write!(
                first,
                "{} passes its result through a split and its merge, {} does not.\n  ",
                names[with], names[without]
            );
        }
        let _ = writeln!(first, "{}", divergence.in_words(runs.names, &mut exact));
        let mut more = String::new();
        if let [Some(x), Some(y)] = recipes.map(|recipe| recipe.map(shape))
            && x != y
        {
            let _ = writeln!(more, "trees: {} {x}, {} {y}", runs.names.first, runs.names.second);
        }
        more.push_str(&growth(&steps, runs.names, &mut exact));
        Inside { steps: Some(steps), divergence: Some(divergence), first, more }
    }
}
