//! A page's parts in words, the same for a terminal and for Markdown.

use crate::subject::attention::capabilities::Format;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::kernel::Identity;
use crate::subject::attention::probe::page::{
    Answer, Break, Change, Class, Declared, FormatPage, Judged, Minimal, Outcome, Page, Recipe, Relation, Repeat, Repeated, Seen,
    Share, Trial,
};

/// Hex digits of a digest that are shown.
const DIGEST: usize = 12;

/// A count with its thousands apart.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in percent, two or three digits of it; `none` where nothing differs, so that a small share is never taken for none.
pub(super) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    if part == 0 {
        return "none".to_owned();
    }
    if part == whole {
        return "all".to_owned();
    }
    let share = 100.0 * part as f64 / whole as f64;
    match share {
        // Rounding must not turn nearly all into all.
        _ if share >= 99.95 => "99.9%".to_owned(),
        _ if share >= 10.0 => format!("{share:.1}%"),
        _ if share >= 0.1 => format!("{share:.2}%"),
        _ if share >= 0.001 => format!("{share:.4}%"),
        _ => "below 0.001%".to_owned(),
    }
}

fn share(it: Share) -> String {
    percent(it.differing, it.compared)
}

/// Name, version, device, digest, then what else bits may depend on.
pub(super) fn identity(identity: &Identity) -> Vec<(String, String)> {
    let mut rows =
        vec![("kernel", identity.name.clone()), ("version", identity.version.clone()), ("device", identity.device.clone())];
    if let Some(digest) = &identity.digest {
        rows.push(("digest", digest.chars().take(DIGEST).collect()));
    }
    let mut rows: Vec<(String, String)> = rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    rows.extend(identity.details.iter().cloned());
    // What a kernel calls itself must not break a table.
    rows.into_iter().map(|(name, value)| (line(&name), line(&value))).collect()
}

/// Text without line breaks.
pub(super) fn line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Those that are not the usual ones.
pub(super) fn conventions(declared: &Conventions) -> String {
    let usual = Conventions::default();
    let fields = Conventions::FIELDS.iter().filter(|field| declared.get(field) != usual.get(field));
    let other: Vec<String> = fields.map(|field| format!("{field}={}", declared.get(field).unwrap_or_default())).collect();
    if other.is_empty() { "the usual ones".to_owned() } else { other.join(", ") }
}

pub(super) fn format(format: Format) -> String {
    format.to_string()
}

/// What works of one kind of capability, and a line for each that does not.
pub(super) fn trials(all: &[Trial]) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for of in Declared::ALL {
        let tried: Vec<&Trial> = all.iter().filter(|trial| trial.of == of).collect();
        let works: Vec<&str> = tried.iter().filter(|it| it.outcome == Outcome::Works).map(|it| it.what.as_str()).collect();
        let mut name = of.name().to_owned();
        if !works.is_empty() {
            rows.push((std::mem::take(&mut name), works.join(", ")));
        }
        for trial in &tried {
            let outcome = match &trial.outcome {
                Outcome::Works => continue,
                Outcome::Refused(why) => format!("refused: {}", line(why)),
                Outcome::Fails(why) => format!("FAILS: {}", line(why)),
                Outcome::Wrong(why) => format!("WRONG: {}", line(why)),
                Outcome::NotTried(why) => format!("not tried: {why}"),
            };
            rows.push((std::mem::take(&mut name), format!("{}  {outcome}", trial.what)));
        }
    }
    rows
}

pub(super) fn repeat(repeat: &Repeat) -> (String, String) {
    let seen = match &repeat.seen {
        Repeated::NotTried(why) => format!("not tried: {why}"),
        Repeated::Same(comparisons) => format!("same bits, {} results", count(*comparisons)),
        Repeated::Differs { differing, comparisons, first } => {
            format!("DIFFERS in {} of {} results; first {first}", count(*differing), count(*comparisons))
        }
    };
    (repeat.what.to_owned(), seen)
}

pub(super) fn change(change: Change) -> String {
    match change {
        Change::FullAgainstStep => "full = one step".to_owned(),
        Change::FullAgainstDecode => "full = decode".to_owned(),
        Change::FullAgainstChunks(rows) => format!("full = chunks of {rows}"),
        Change::Axis(axis) => axis.to_string().replace('_', " "),
    }
}

/// The table of relations.
pub(super) struct Table {
    /// The change, its path, what was seen, the shares on normal and on designed data, and what was changed.
    pub(super) lines: Vec<[String; 6]>,
    /// The sample that the lines have in common.
    pub(super) caption: String,
}

pub(super) fn relations(page: &FormatPage) -> Table {
    let samples: Vec<String> = page.relations.iter().filter_map(sample).collect();
    let common = samples.iter().max_by_key(|sample| samples.iter().filter(|it| it == sample).count()).cloned();
    let mut lines: Vec<[String; 6]> = Vec::new();
    for relation in &page.relations {
        let path = relation.path.map_or("both".to_owned(), |path| path.to_string());
        let [verdict, normal, designed, about] = seen(relation, common.as_deref());
        let new = [change(relation.change), path, verdict, normal, designed, about];
        // Each path alike: one line.
        let same = |it: &[String; 6]| it[1] == "train" && new[1] == "infer" && it[0] == new[0] && it[2..] == new[2..];
        match lines.iter_mut().rev().take(2).find(|it| same(it)) {
            Some(line) => line[1] = "each".to_owned(),
            None => lines.push(new),
        }
    }
    let caption = common.map_or(String::new(), |common| format!("Each asked of {common} unless it says otherwise"));
    Table { lines, caption }
}

/// Lengths and number of the cases of a relation; `None` where there are none.
fn sample(relation: &Relation) -> Option<String> {
    let Seen::Tried(tried) = &relation.seen else { return None };
    let (least, most) = tried.lengths?;
    Some(format!("{} cases of {least} to {most} positions", count(tried.comparisons)))
}

fn seen(relation: &Relation, common: Option<&str>) -> [String; 4] {
    match &relation.seen {
        Seen::NotTried(why) => ["not tried".to_owned(), String::new(), String::new(), line(why)],
        Seen::Tried(tried) => {
            let verdict = match &tried.breaks {
                None => "holds".to_owned(),
                Some(it) => breaks(it),
            };
            let mut about = if relation.path.is_some() { vec![relation.about.clone()] } else { Vec::new() };
            about.extend(sample(relation).filter(|it| Some(it.as_str()) != common));
            if tried.lse.differing > 0 && tried.normal.differing + tried.designed.differing == 0 {
                about.push(format!("{} of lse alone", share(tried.lse)));
            }
            if tried.left_out > 0 {
                let why = tried.why_left_out.as_deref().unwrap_or("failed");
                about.push(format!("{} left out: {}", count(tried.left_out), line(why)));
            }
            [verdict, share(tried.normal), share(tried.designed), about.join("; ")]
        }
    }
}

/// "breaks at 17": the fewest positions, and the smallest batch or the first value of a knob.
pub(super) fn breaks(it: &Break) -> String {
    let batch = it.batch.map_or(String::new(), |batch| format!(", batch {batch}"));
    let value = it.value.as_ref().map_or(String::new(), |value| format!(", {value}"));
    format!("breaks at {}{batch}{value}", it.positions)
}

/// The command that replays a case of this kernel: a file never starts a kernel from outside, so its words are given.
pub(super) fn replay(kernel: &str) -> String {
    if kernel.starts_with("ref:") {
        return "lastbit replay FILE".to_owned();
    }
    let words = shell_words::quote(kernel);
    format!("lastbit replay FILE --train {words} --infer {words}")
}

/// The smallest cases of a format, with the change that they are of.
pub(super) fn minimals(page: &FormatPage) -> Vec<(String, &Minimal)> {
    let of = |relation: &Relation| match &relation.path {
        Some(path) => format!("{} ({path})", change(relation.change)),
        None => change(relation.change),
    };
    page.relations
        .iter()
        .filter_map(|relation| match &relation.seen {
            Seen::Tried(tried) => tried.breaks.as_ref()?.minimal.as_ref().map(|it| (of(relation), it)),
            Seen::NotTried(_) => None,
        })
        .collect()
}

/// Correct rounding, the worst error, the balance of signs.
pub(super) fn accuracy(judged: &Judged) -> Vec<String> {
    let it = &judged.accuracy;
    if it.judged == 0 {
        return vec!["nothing was judged".to_owned()];
    }
    let mut lines = vec![
        format!("{} of {} results correctly rounded", percent(it.correctly_rounded, it.judged), count(it.judged)),
        format!("worst error {} of the bound computed for its arithmetic", times(it.worst)),
        format!("{} above the true value, {} below", percent(it.above, it.judged), percent(it.below, it.judged)),
    ];
    let more = [
        (judged.beyond, "BEYOND their bound"),
        (it.unbounded, "without a bound"),
        (it.out_of_range, "not judged: an intermediate may overflow"),
        (judged.undecided, "undecided"),
        (judged.left_out, "cases left out: refused or failed"),
    ];
    lines.extend(more.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(n))));
    lines
}

/// A share of a bound. Below the bound never reads as 1.00, and beyond it neither.
pub(super) fn times(share: f64) -> String {
    match share {
        _ if share > 0.0 && share < 0.01 => "below 0.01".to_owned(),
        _ if (0.995..1.0).contains(&share) => "0.99".to_owned(),
        _ if share > 1.0 && share < 1.005 => "1.01".to_owned(),
        _ => format!("{share:.2}"),
    }
}

/// The answer, then what is known beside it.
pub(super) fn recipe(recipe: &Recipe) -> Vec<String> {
    let mut lines = vec![match &recipe.answer {
        Answer::One(name) => name.clone(),
        Answer::Several(names) => format!("not told apart: {}", names.join("; ")),
        Answer::None => "none of these".to_owned(),
        Answer::NotTried(why) => format!("not tried: {}", line(why)),
    }];
    lines.extend(recipe.detail.iter().cloned());
    lines
}

/// How the results speak for the answer, and what they say to the class that stood longest against them.
pub(super) fn evidence(recipe: &Recipe) -> String {
    let mut parts = Vec::new();
    let left: Vec<&Class> = recipe.classes.iter().filter(|class| class.refuted == 0).collect();
    if let [one] = left[..] {
        let decided = match one.decided {
            0 => String::new(),
            decided => format!(", {} of them the only pattern it has", count(decided)),
        };
        parts.push(format!("all {} results as it allows{decided}", count(recipe.results)));
    }
    let excluded = recipe.classes.iter().filter(|class| class.refuted > 0);
    // Of equals the first.
    if let Some(nearest) = excluded.clone().reduce(|a, b| if b.held > a.held { b } else { a }) {
        let others = if left.is_empty() { "classes" } else { "others" };
        let of = format!("{} of {} results", count(nearest.refuted), count(nearest.held));
        parts.push(format!("{} {others} excluded, last \"{}\" by {of}", excluded.count(), nearest.name));
    }
    parts.join("; ")
}

/// The path a recipe was read from.
pub(super) fn recipe_path(recipe: &Recipe) -> String {
    recipe.path.map_or(String::new(), |path| match path {
        crate::finding::Path::Train => "full: ".to_owned(),
        crate::finding::Path::Infer => "decode: ".to_owned(),
    })
}

/// One line on everything: the summary under the name.
pub(super) fn verdict(page: &Page) -> String {
    match page.wrong.len() {
        0 if !page.answered() => "NOTHING ANSWERED: every call was refused".to_owned(),
        0 => "nothing wrong".to_owned(),
        1 => "1 thing WRONG".to_owned(),
        n => format!("{n} things WRONG"),
    }
}

/// Whether a kernel repeats itself, in a cell.
pub(super) fn repeats(page: &Page) -> &'static str {
    let differs = page.repeats.iter().any(|it| matches!(it.seen, Repeated::Differs { .. }));
    let tried = page.repeats.iter().any(|it| matches!(it.seen, Repeated::Same(_)));
    match (differs, tried) {
        (true, _) => "**WRONG**",
        (false, true) => "yes",
        (false, false) => "not tried",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_bound_itself_reads_as_one() {
        for (share, text) in [
            (0.0, "0.00"),
            (1e-9, "below 0.01"),
            (0.994_9, "0.99"),
            (0.996, "0.99"),
            (1.0f64.next_down(), "0.99"),
            (1.0, "1.00"),
            (1.0f64.next_up(), "1.01"),
            (1.3, "1.30"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(times(share), text, "{share:?}");
        }
    }

    #[test]
    fn nearly_all_is_not_all_and_few_are_not_none() {
        for (part, text) in [(0, "none"), (1, "below 0.001%"), (999_999, "99.9%"), (1_000_000, "all")] {
            assert_eq!(percent(part, 1_000_000), text);
        }
        assert_eq!(percent(0, 0), "-", "nothing was compared");
    }
}
