//! A page in Markdown, and the page of results over many kernels.

use super::words;
use crate::finding::Axis;
use crate::subject::attention::probe::page::{Change, FormatPage, Minimal, Page, Seen};
use std::fmt::Write;

/// One kernel under a heading of this level.
pub(super) fn page(page: &Page, level: usize) -> String {
    let hashes = "#".repeat(level);
    let mut out = format!("{hashes} {}\n\n", code(&page.name));
    let mut identity: Vec<String> =
        words::identity(&page.identity).iter().map(|(name, value)| format!("{name} {}", code(value))).collect();
    identity.push(format!("conventions: {}", words::conventions(&page.conventions)));
    let _ = writeln!(out, "{}. {}.\n", identity.join(", "), bold(&words::verdict(page), !page.wrong.is_empty()));
    for it in &page.wrong {
        let _ = writeln!(out, "- **WRONG** {}", words::line(&it.what));
        if let Some(minimal) = &it.minimal {
            let _ = writeln!(out, "  {}", smallest(minimal));
        }
    }
    if !page.wrong.is_empty() {
        out.push('\n');
    }
    out.push_str("| declared, and tried | |\n|---|---|\n");
    for (name, value) in words::trials(&page.trials) {
        let _ = writeln!(out, "| {name} | {} |", cell(&value));
    }
    out.push_str("\n| called again | |\n|---|---|\n");
    for (what, seen) in page.repeats.iter().map(words::repeat) {
        let _ = writeln!(out, "| {what} | {} |", cell(&seen));
    }
    for format in &page.formats {
        one_format(&mut out, format, &page.name, level + 1);
    }
    out
}

fn one_format(out: &mut String, page: &FormatPage, kernel: &str, level: usize) {
    let _ = writeln!(out, "\n{} {}\n", "#".repeat(level), words::format(page.format));
    for recipe in &page.recipes {
        let lines = words::recipe(recipe);
        let _ = write!(out, "- {}{}", words::recipe_path(recipe), bold(&lines[0], true));
        for line in &lines[1..] {
            let _ = write!(out, "; {line}");
        }
        let _ = writeln!(out, ". {}.", words::evidence(recipe));
    }
    let _ = writeln!(out, "- {}.\n", words::accuracy(&page.accuracy).join("; "));
    let table = words::relations(page);
    let _ = writeln!(out, "| relation | path | | normal data | designed data | |\n|---|---|---|---|---|---|");
    for line in &table.lines {
        let cells: Vec<String> = line.iter().map(|it| cell(it)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    if !table.caption.is_empty() {
        let _ = writeln!(out, "\n{}.", table.caption);
    }
    let minimals = words::minimals(page);
    if !minimals.is_empty() {
        let _ = writeln!(out, "\nSmallest cases, for {}:\n", code(&words::replay(kernel)));
    }
    for (change, minimal) in minimals {
        let _ = writeln!(out, "- {change}: {}", smallest(minimal));
    }
}

fn smallest(it: &Minimal) -> String {
    let relation = it.relation.as_ref().map_or(String::new(), |relation| format!(" under {}", code(relation)));
    let cause = it.cause.as_ref().map_or(String::new(), |cause| format!("; {cause}"));
    format!("{}{relation}; {}{cause}; {}", code(&it.summary), it.element, code(&it.file))
}

/// What the summary table looks at, and the name of its column.
const COLUMNS: [(Change, &str); 6] = [
    (Change::FullAgainstDecode, "full, decode"),
    (Change::FullAgainstChunks(16), "chunks of 16"),
    (Change::FullAgainstChunks(64), "chunks of 64"),
    (Change::Axis(Axis::Company), "batch"),
    (Change::Axis(Axis::Knob), "knobs"),
    (Change::Axis(Axis::PrefixStability), "later rows"),
];

/// All kernels: a table, then each in full.
pub(super) fn results(pages: &[Page], command: &str) -> String {
    let mut out = format!(
        "# Kernels, probed\n\n\
         What `lastbit probe` saw of each kernel. A share is that of the elements of `o` that differ on normally distributed data; *at n* the \
         fewest positions of a sequence at which any data shows a difference; *holds* that none did, over the sample under the kernel's own \
         heading. Different is not wrong: **WRONG** stands where a result lies beyond the bound computed for its arithmetic, a call failed, a \
         declaration does not hold or a kernel does not repeat itself.\n\n\
         Made by `{command}`.\n\n"
    );
    out.push_str("| kernel | format | repeats |");
    COLUMNS.iter().for_each(|(_, name)| {
        let _ = write!(out, " {name} |");
    });
    out.push_str(" correctly rounded | worst of bound | recipe |\n|---|---|---|");
    COLUMNS.iter().for_each(|_| out.push_str("---|"));
    out.push_str("---|---|---|\n");
    for page in pages {
        for format in &page.formats {
            let _ = write!(
                out,
                "| {} | {} | {} |",
                cell(&code(&page.name)),
                cell(&words::format(format.format)),
                words::repeats(page)
            );
            for (change, _) in COLUMNS {
                let _ = write!(out, " {} |", seen(format, change));
            }
            let judged = &format.accuracy.accuracy;
            let beyond = if format.accuracy.beyond > 0 { " **WRONG**" } else { "" };
            let recipes: Vec<String> =
                format.recipes.iter().map(|it| format!("{}{}", words::recipe_path(it), words::recipe(it)[0])).collect();
            let rounded = words::percent(judged.correctly_rounded, judged.judged);
            let worst = if judged.judged == 0 { "-".to_owned() } else { words::times(judged.worst) };
            let _ = writeln!(out, " {rounded} | {worst}{beyond} | {} |", cell(&recipes.join("; ")));
        }
    }
    let wrong: Vec<(&Page, String)> =
        pages.iter().flat_map(|page| page.wrong.iter().map(move |it| (page, words::line(&it.what)))).collect();
    if !wrong.is_empty() {
        out.push_str("\n**WRONG**, as against merely different:\n\n");
        for (page, what) in wrong {
            let _ = writeln!(out, "- {}: {what}", code(&page.name));
        }
    }
    for page in pages {
        let _ = write!(out, "\n{}", self::page(page, 2));
    }
    out
}

/// Every line of a change in one cell: the largest share and the least length.
fn seen(page: &FormatPage, change: Change) -> String {
    let tried: Vec<_> = page
        .relations
        .iter()
        .filter(|relation| relation.change == change)
        .filter_map(|relation| match &relation.seen {
            Seen::Tried(tried) => Some(tried),
            Seen::NotTried(_) => None,
        })
        .collect();
    if tried.is_empty() {
        return "not tried".to_owned();
    }
    let Some(first) = tried.iter().filter_map(|it| it.breaks.as_ref()).map(|it| it.positions).min() else {
        return "holds".to_owned();
    };
    let (differing, compared) = tried.iter().fold((0, 0), |sum, it| (sum.0 + it.normal.differing, sum.1 + it.normal.compared));
    format!("{} at {first}", words::percent(differing, compared))
}

fn bold(text: &str, bold: bool) -> String {
    if bold { format!("**{text}**") } else { text.to_owned() }
}

/// Text as code; a backtick in it would end it.
fn code(text: &str) -> String {
    format!("`{}`", words::line(text).replace('`', "'"))
}

/// Text in a table's cell.
fn cell(text: &str) -> String {
    words::line(text).replace('|', "\\|")
}
