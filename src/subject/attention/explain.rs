//! The full verdict of a case in words: what differs, where it first differs inside the kernel, why, and how to see it again.
//!
//! `replay` prints it and the snapshots hold it, so it has no times and no paths but the one it is given.

use super::cause::{self, Cause};
use super::check::Pair;
use super::drive::{Observed, Poison};
use super::fault_text::in_words;
use super::implementation::Implementation;
use super::kernel::Call;
use super::launched::{Launched, notes};
use super::recipe::{Recipe, RecipeDifference};
use super::reference::Reference;
use super::reference::trace::{Divergence, Trace, first_divergence};
use super::relation::{Relation, SidedRelation};
use super::trial::Trial;
use super::{
    Case, Data,
    file::{EXPECT_MATCH, EXPECT_NOTHING, replay_command},
    show,
};
use crate::finding::{Difference, Element, Finding, Kind, Nearer, Path, Verdict};
use crate::input_error::tame;
use crate::number::{Class, Dtype, Ulps};
use crate::tensor::Index;
use std::fmt::Write;

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
    /// Everything in words, ending in a newline.
    pub text: String,
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
    let mut text = format!("case: {}\n", show::summary(&trial.case));
    for path in Path::BOTH {
        let _ = writeln!(text, "{path}: {}", tame(&pair.side(path).kernel.identity().name, NAME));
    }
    let mut the_cause = None;
    let wanted = verdict.findings.iter().find(|it| expected == Some(it.signature().as_str()));
    match wanted.or(verdict.headline()) {
        None if verdict.compared == 0 => text.push_str("verdict: nothing was compared\n"),
        None => {
            let _ = writeln!(text, "verdict: match, {} elements compared", verdict.compared);
        }
        Some(headline) => {
            for finding in &verdict.findings {
                describe(&mut text, finding);
            }
            let mut runs = runs(pair, trial, headline);
            if runs.divergence.is_none() {
                // A difference in bits shows more than a distance from the truth: two runs can be laid side by side.
                let shown = verdict.findings.iter().find(|it| it.difference().is_some()).unwrap_or(headline);
                runs.divergence = self::runs(pair, trial, shown).divergence;
            }
            if let Some(sentence) = runs.divergence {
                let _ = writeln!(text, "first divergence: {sentence}");
            }
            for line in &runs.launches {
                let _ = writeln!(text, "{line}");
            }
            let found = cause::find(pair, trial, headline, &runs.recipes, &mut scratch);
            if headline.kind().is_failure() {
                let outside = Path::BOTH.into_iter().any(|path| pair.side(path).reference.is_none());
                let _ = match &found {
                    Ok(cause) => writeln!(text, "cause: {cause}"),
                    // A fault has said what it is.
                    Err(_) if outside && headline.kind() == Kind::Fault => Ok(()),
                    Err(unknown) if outside => writeln!(text, "cause: {unknown}; {PROBE}"),
                    Err(unknown) => writeln!(text, "cause: {unknown}"),
                };
            }
            the_cause = found.ok();
        }
    }
    for reason in &verdict.left_out {
        let _ = writeln!(text, "left out: {reason}");
    }
    if verdict.set_aside > 0 {
        let _ = writeln!(text, "set aside: {} differences of a kernel that does not repeat itself", verdict.set_aside);
    }
    let _ = writeln!(text, "replay: {command}");
    Explanation { verdict, cause: the_cause, text }
}

fn describe(text: &mut String, finding: &Finding) {
    let _ = match finding {
        Finding::Mismatch(it) => {
            let counts = format!("{} of {} elements differ", it.differing, it.compared);
            writeln!(text, "verdict: mismatch {}, {counts}", it.output)
        }
        Finding::NotInvariant { path, relation, difference, .. } => {
            let axis = finding.changed().unwrap_or_default();
            let counts = format!("{} of {} elements differ", difference.differing, difference.compared);
            writeln!(text, "verdict: not invariant to {axis} ({path}), {}, {counts} under `{relation}`", difference.output)
        }
        Finding::Inaccurate(it) => {
            let value = |bits| format!("{} {}", it.dtype.hex(bits), number(it.dtype, bits));
            let truth = it.truth.map_or("unknown".into(), value);
            let counts = format!("{} of {} elements beyond their bound", it.exceeding, it.judged);
            let _ = writeln!(text, "verdict: inaccurate {} ({}), {counts}", it.output, it.path);
            // Beside zero an ULP is the least subnormal, and counts of it say nothing.
            let distance = |x: f64| match it.truth.is_some_and(|bits| it.dtype.class(bits) == Class::Normal) {
                true => format!("{:.3} ULP", x / it.ulp),
                false => format!("{x:.3e}"),
            };
            let (error, bound) = (distance(it.error), distance(it.bound));
            let (output, index, bits) = (it.output, &it.index, value(it.bits));
            writeln!(text, "  {output}[{index}]: {bits}  true {truth}  error {error}, bound {bound}")
        }
        Finding::Fault { path, fault, relation } => {
            let words = in_words(fault);
            let (first, rest) = words.split_once('\n').map_or((words.as_str(), None), |(first, rest)| (first, Some(rest)));
            let under = relation.as_ref().map_or(String::new(), |relation| format!(", under `{relation}`"));
            let result = writeln!(text, "verdict: fault ({path}): {first}{under}");
            rest.map_or(result, |rest| writeln!(text, "{rest}"))
        }
        Finding::Undecided { output, elements, index } => {
            writeln!(text, "verdict: undecided: {elements} elements of {output}, first {output}[{index}]")
        }
        Finding::Skipped { reason } => writeln!(text, "verdict: skipped: {}", tame(reason, NAME)),
    };
    if let Some(difference) = finding.difference() {
        for element in &difference.elements {
            describe_element(text, difference, element);
        }
        let more = difference.differing - difference.elements.len() as u64;
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
    }
}

fn describe_element(text: &mut String, difference: &Difference, element: &Element) {
    let value = |bits| format!("{} {}", difference.dtype.hex(bits), number(difference.dtype, bits));
    let [a, b] = &difference.names;
    let [x, y] = element.bits;
    let _ = write!(text, "  {}[{}]: {a} {}  {b} {}", difference.output, element.index, value(x), value(y));
    let _ = match element.ulps {
        Ulps::Steps(0) => write!(text, "  signs of zero differ"),
        Ulps::Steps(n) => write!(text, "  {n} ULP apart"),
        Ulps::Incomparable => write!(text, "  no distance"),
    };
    if let Some(truth) = element.truth {
        let _ = write!(text, "  true {}", value(truth));
    }
    let _ = match element.nearer {
        Nearer::First => write!(text, ", {a} nearer"),
        Nearer::Second => write!(text, ", {b} nearer"),
        Nearer::Same => write!(text, ", equally near"),
        Nearer::Unknown => Ok(()),
    };
    text.push('\n');
}

/// The value of a pattern, short and exact.
fn number(dtype: Dtype, bits: u32) -> String {
    let value = dtype.to_f32(bits);
    let plain = value == 0.0 || !value.is_finite() || (1e-4..1e7).contains(&value.abs());
    if plain { format!("({value})") } else { format!("({value:e})") }
}

/// What the two runs behind a finding did on its first row.
#[derive(Default)]
struct Runs {
    divergence: Option<String>,
    recipes: Vec<RecipeDifference>,
    /// What the kernels' rules gave, where it differs.
    launches: Vec<String>,
}

/// One run of one row: its recipe and its steps.
struct RowRun {
    recipe: Option<Recipe>,
    trace: Option<Trace>,
    launched: Option<Launched>,
}

fn runs(pair: &Pair, trial: &Trial, finding: &Finding) -> Runs {
    let case = &trial.case;
    match finding {
        Finding::Mismatch(difference) => {
            let Some(element) = difference.elements.first() else { return Runs::default() };
            let train = row_run(pair, Path::Train, case, Poison::Nan, &element.index);
            let infer = row_run(pair, Path::Infer, case, Poison::Nan, &element.index);
            between(train, infer, ["Training", "inference"])
        }
        Finding::NotInvariant { path, relation, difference, .. } => {
            let (Some(element), Ok(relation)) = (difference.elements.first(), relation.parse::<SidedRelation>()) else {
                return Runs::default();
            };
            let Some(variant) = relation.apply(case) else { return Runs::default() };
            let poison = match relation.relation {
                Relation::Poison => Poison::Huge,
                _ => Poison::Nan,
            };
            let mut first = element.index.clone();
            let recomputed = relation.relation == Relation::Recompute;
            if recomputed {
                // One run: a later production, which the index names, against the first.
                first.0.retain(|&(axis, _)| axis != "again");
            }
            let base = row_run(pair, *path, case, Poison::Nan, &first);
            let changed = row_run(pair, *path, &variant.case, poison, &element.index);
            let names = if recomputed { ["The first time", "the later time"] } else { ["The base run", "the changed run"] };
            between(base, changed, names)
        }
        // Only the truth to compare with: the kernel as it claims to be stands in for it.
        Finding::Inaccurate(it) => {
            let Some(reference) = pair.side(it.path).reference.as_deref() else { return Runs::default() };
            let mut claimed = reference.clone();
            claimed.numerics = reference.profile.unwrap_or(reference.numerics);
            claimed.actual = reference.declared;
            if claimed.numerics == reference.numerics && claimed.actual == reference.actual {
                return Runs::default();
            }
            let mut honest = pair.clone();
            match it.path {
                Path::Train => honest.train = Implementation::reference(claimed),
                Path::Infer => honest.infer = Implementation::reference(claimed),
            }
            let claimed = row_run(&honest, it.path, case, Poison::Nan, &it.index);
            let actual = row_run(pair, it.path, case, Poison::Nan, &it.index);
            between(claimed, actual, ["The kernel it claims to be", "this kernel"])
        }
        _ => Runs::default(),
    }
}

fn between(a: RowRun, b: RowRun, names: [&str; 2]) -> Runs {
    let recipes = match (&a.recipe, &b.recipe) {
        (Some(x), Some(y)) => x.differences(y),
        _ => Vec::new(),
    };
    let divergence = match (&a.trace, &b.trace) {
        (Some(x), Some(y)) => first_divergence(x, y).map(|it| {
            let mut text = sentence(&it, names);
            // Work that leaves no step of its own in one of the runs: a lone split whose sink is merged, say.
            if it.structure.is_none() && recipes.iter().any(|it| it.field == "partials") {
                let (with, without) = if a.recipe.as_ref().is_some_and(|it| it.partials) { (0, 1) } else { (1, 0) };
                let clause = format!(
                    "{} passes its result through split partials and their merge, {} does not. ",
                    names[with], names[without]
                );
                text.insert_str(0, &(clause[..1].to_uppercase() + &clause[1..]));
            }
            text
        }),
        _ => None,
    };
    let launches = match (&a.launched, &b.launched) {
        (Some(x), Some(y)) => notes([x, y], names),
        _ => Vec::new(),
    };
    Runs { divergence, recipes, launches }
}

/// The divergence with the runs called by their names.
fn sentence(divergence: &Divergence, [first, second]: [&str; 2]) -> String {
    let mut text = String::new();
    if let Some(structure) = &divergence.structure {
        let _ = write!(text, "{} ", structure.replace("Training", first).replace("inference", second));
    }
    let _ = match &divergence.value {
        None => write!(text, "No value that both compute differs."),
        Some(it) => {
            let value = |bits| format!("{bits:08x} {}", number(Dtype::F32, bits));
            let (a, b) = (value(it.train), value(it.infer));
            write!(text, "First differing value: {}: {first} {a}, {second} {b}.", it.label)
        }
    };
    text
}

/// Runs one path again and watches the call that first computes a row.
fn row_run(pair: &Pair, path: Path, case: &Case, poison: Poison, index: &Index) -> RowRun {
    let mut found = RowRun { recipe: None, trace: None, launched: None };
    let Some(reference) = pair.side(path).reference.clone() else { return found };
    let at = |axis: &str| index.0.iter().find(|(name, _)| *name == axis).map_or(0, |&(_, n)| n);
    let inputs = pair.inputs(case);
    let Some(sequence) = case.problem.sequences.iter().position(|it| u64::from(it.id) == at("seq")) else { return found };
    let packed = inputs.q_start[sequence] + at("row") as usize;
    let head = at("head") as usize;
    let mut earlier = at("again");
    let mut observer = |seen: Observed<'_>| {
        if found.trace.is_none()
            && seen.heads.contains(&head)
            && let Some(row) = seen.rows.iter().position(|&row| row as usize == packed)
        {
            // Productions of the row before the one that differs; a path that has fewer shows its only one.
            if earlier > 0 && path == Path::Infer {
                earlier -= 1;
            } else {
                watch(&mut found, &reference, seen.call, row, head - seen.heads.start);
            }
        }
    };
    // The result was seen before; only the calls matter here.
    let _ = pair.drive(path, case, &inputs, poison, Some(&mut observer));
    found
}

fn watch(found: &mut RowRun, reference: &Reference, call: Call<'_>, row: usize, head: usize) {
    found.recipe = reference.recipe(call, row);
    found.trace = reference.trace(call, row, head);
    found.launched = Reference::launch(call, row).map(|launch| Launched { numerics: reference.numerics, launch });
}
