//! Puts the questions to a kernel: how much differs, and where each relation first breaks.

use super::Probing;
use super::minimal::minimal;
use super::page::{Break, Minimal, Relation, Seen, Tried, Wrong};
use super::question::{Asked, Question, questions};
use super::sample::{Place, places};
use crate::finding::{Comparison, Finding, Path, Verdict};
use crate::number::Dtype;
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::check::{Pair, Scratch, stopped};
use crate::subject::attention::drive::{Poison, element_index, row_index};
use crate::subject::attention::scope::Scope;
use crate::subject::attention::trial::{Checks, Trial};
use crate::tensor::Index;

/// A case in which a question's answer is "differs".
struct Breaking {
    place: Place,
    batch: Option<u32>,
    value: Option<(usize, String)>,
    trial: Trial,
    finding: Finding,
}

/// Every relation of a kernel in one format.
pub(super) fn relations(probing: &mut Probing<'_>, format: Format, wrong: &mut Vec<Wrong>) -> Vec<Relation> {
    let all = questions(&probing.terms);
    all.into_iter()
        .map(|(question, may)| {
            probing.progress(&format!("{}: {}", format.storage, question.about));
            let seen = match may {
                Err(reason) => Seen::NotTried(reason),
                Ok(()) => put(probing, format, &question, wrong),
            };
            Relation { change: question.change, path: question.path, about: question.about, seen }
        })
        .collect()
}

/// Faults before anything was compared after which a question is given up: the kernel breaks in every call, and each may cost a process.
const FAULTS: u32 = 3;

fn put(probing: &mut Probing<'_>, format: Format, question: &Question, wrong: &mut Vec<Wrong>) -> Seen {
    let mut tried = Tried::default();
    let mut fault: Option<(Trial, Finding)> = None;
    let mut faults = 0;
    let mut breaking: Vec<Breaking> = Vec::new();
    let scope = probing.attention.pair.scope();
    for place in places(&probing.terms, probing.options.cases(&probing.terms)) {
        let Some(asked) = question.ask(&probing.terms, format, place, probing.options.seed) else { continue };
        if let Some(reason) = beyond(&scope, &asked) {
            tried.left_out += 1;
            tried.why_left_out.get_or_insert(reason);
            continue;
        }
        let verdict = verdict(&probing.attention.pair, &asked, &mut probing.scratch);
        let Compared { o, lse, finding, stopped } = read(&verdict);
        if let Some(stopped) = stopped {
            tried.left_out += 1;
            match stopped {
                Finding::Skipped { reason, .. } => {
                    tried.why_left_out.get_or_insert_with(|| reason.clone());
                }
                other => {
                    fault.get_or_insert_with(|| (trial(&asked), other.clone()));
                    faults += 1;
                }
            }
            if faults == FAULTS && tried.comparisons == 0 {
                break;
            }
            continue;
        }
        if o.1 == 0 {
            continue;
        }
        tried.comparisons += 1;
        widen(&mut tried.lengths, place.length);
        if let Some(batch) = asked.batch {
            widen(&mut tried.batches, batch);
        }
        let share = if place.normal { &mut tried.normal } else { &mut tried.designed };
        share.add(o.0, o.1);
        tried.lse.add(lse.0, lse.1);
        if let Some(finding) = finding {
            breaking.push(Breaking {
                place,
                batch: asked.batch,
                value: asked.value.clone(),
                trial: trial(&asked),
                finding: finding.clone(),
            });
        }
    }
    if let Some((trial, finding)) = fault {
        let what = format!("{}: {}: {}", format.storage, question.about, finding.signature());
        probing.wrong(wrong, what, &trial, &finding);
    }
    if tried.comparisons == 0 {
        let nothing = "the question fits no case of the sample".to_owned();
        let failed = if tried.left_out > 0 { "every call failed".to_owned() } else { nothing };
        return Seen::NotTried(tried.why_left_out.unwrap_or(failed));
    }
    tried.breaks = first_break(probing, &question.file_name(format), breaking);
    Seen::Tried(Box::new(tried))
}

/// Why the kernel does not say that it can do a case.
fn beyond(scope: &Scope, asked: &Asked) -> Option<String> {
    let variant = asked.relation.as_ref().and_then(|relation| Some((relation.path, relation.apply(&asked.case)?.case)));
    match variant {
        Some((path, changed)) => [&asked.case, &changed].into_iter().find_map(|case| scope.side(path).outside(case)),
        None => Path::BOTH.into_iter().find_map(|path| scope.side(path).outside(&asked.case)),
    }
}

fn widen(range: &mut Option<(u32, u32)>, value: u32) {
    let (least, most) = range.unwrap_or((value, value));
    *range = Some((least.min(value), most.max(value)));
}

fn trial(asked: &Asked) -> Trial {
    let checks = Checks::Only { oracle: false, pair: asked.relation.is_none(), relation: asked.relation.clone() };
    Trial::new(asked.case.clone(), checks)
}

/// What a case of a question says.
struct Compared<'a> {
    /// Elements of `o` that differ, and all.
    o: (u64, u64),
    lse: (u64, u64),
    finding: Option<&'a Finding>,
    /// Why nothing was compared.
    stopped: Option<&'a Finding>,
}

fn read(verdict: &Verdict) -> Compared<'_> {
    let differing = |output: &str| {
        let of = verdict.findings.iter().filter_map(Finding::difference).filter(|it| it.output == output);
        of.map(|it| it.differing).sum()
    };
    let [o, lse] = verdict.related;
    let finding = verdict.findings.iter().find(|it| it.difference().is_some());
    // A kernel without lse skips that comparison alone.
    let nothing = o == 0 || verdict.findings.iter().any(|it| matches!(it, Finding::Fault { .. }));
    let stopped = verdict.findings.iter().find(|it| matches!(it, Finding::Fault { .. } | Finding::Skipped { .. }));
    let stopped = stopped.filter(|_| nothing);
    Compared { o: (differing("o"), o), lse: (differing("lse"), lse), finding, stopped }
}

/// Runs a case of a question. Of training against inference only the rows that the question is about are compared.
fn verdict(pair: &Pair, asked: &Asked, scratch: &mut Scratch) -> Verdict {
    if asked.relation.is_some() {
        return pair.check(&trial(asked), scratch);
    }
    let (case, problem) = (&asked.case, &asked.case.problem);
    let inputs = pair.inputs(case);
    let mut verdict = Verdict::default();
    let mut sides = Vec::new();
    for path in Path::BOTH {
        match pair.drive(path, case, &inputs, Poison::Nan, None) {
            Ok(produced) => sides.push(produced),
            Err(stop) => verdict.findings.push(stopped(path, stop, None)),
        }
    }
    let [train, infer] = &sides[..] else { return verdict };
    let names = ["train", "infer"];
    let mut o = Comparison::new("o", problem.out_dtype, names);
    let mut lse = Comparison::new("lse", Dtype::F32, names);
    let has_lse = pair.train.kernel.has_lse();
    for row in asked.from_row as usize..problem.total_q() {
        let (at_o, at_lse) = (|n| element_index(problem, row, n), |n| -> Index { row_index(problem, row, n) });
        let width = train.o.row(row).len();
        o.slices(train.o.row(row), infer.o.row(row), row * width, at_o);
        if has_lse {
            let heads = train.lse.row(row).len();
            lse.slices(train.lse.row(row), infer.lse.row(row), row * heads, at_lse);
        }
    }
    verdict.related = [o.compared(), lse.compared()];
    verdict.findings.extend([o.finish(), lse.finish()].into_iter().flatten().map(Finding::Mismatch));
    verdict
}

/// The fewest positions and the smallest batch at which a relation breaks.
fn first_break(probing: &mut Probing<'_>, file: &str, mut breaking: Vec<Breaking>) -> Option<Break> {
    breaking.sort_by_key(|it| (it.place.length, it.batch));
    let batch = breaking.iter().filter_map(|it| it.batch).min();
    let value = breaking.iter().filter_map(|it| it.value.clone()).min().map(|(_, value)| value);
    let mut positions = breaking.first()?.place.length;
    let mut smallest = None;
    for it in breaking.iter().take(probing.options.starts(&probing.terms)) {
        let Some(found) = minimal(probing, &it.trial, &it.finding, file) else { continue };
        positions = positions.min(found.positions);
        let best = smallest.as_ref().is_none_or(|best: &Minimal| found.positions < best.positions);
        if best {
            smallest = Some(found);
        }
    }
    Some(Break { positions, batch, value, minimal: smallest })
}

impl Question {
    fn file_name(&self, format: Format) -> String {
        let slug = |text: &str| -> String {
            let dashed: String = text.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
            dashed.split('-').filter(|it| !it.is_empty()).collect::<Vec<_>>().join("-")
        };
        let path = self.path.map_or(String::new(), |path| format!("-{path}"));
        format!("{}{path}-{}.case", format.storage, slug(&self.about))
    }
}
