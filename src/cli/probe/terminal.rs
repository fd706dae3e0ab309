//! A page for a terminal: aligned, without colours.

use super::words;
use crate::subject::attention::probe::page::{FormatPage, Minimal, Page};
use std::fmt::Write;

/// Columns that text is wrapped to.
const WIDTH: usize = 120;

/// Columns of the names on the left.
const NAMES: usize = 14;

/// The whole page.
pub(super) fn page(page: &Page) -> String {
    let mut out = format!("\n{}\n{}\n\n", page.name, "=".repeat(page.name.chars().count()));
    for (name, value) in words::identity(&page.identity) {
        row(&mut out, 2, &name, &value);
    }
    row(&mut out, 2, "conventions", &words::conventions(&page.conventions));
    row(&mut out, 2, "in short", &words::verdict(page));
    wrong(&mut out, page);
    out.push_str("\nDeclared, and tried\n");
    for (name, value) in words::trials(&page.trials) {
        row(&mut out, 2, &name, &value);
    }
    out.push_str("\nDoes it repeat itself?\n");
    let repeats: Vec<(String, String)> = page.repeats.iter().map(words::repeat).collect();
    let widest = repeats.iter().map(|it| it.0.len()).max().unwrap_or(0);
    for (what, seen) in repeats {
        let _ = writeln!(out, "  {what:<widest$}  {seen}");
    }
    for format in &page.formats {
        one_format(&mut out, format);
    }
    out
}

fn wrong(out: &mut String, page: &Page) {
    if page.wrong.is_empty() {
        return;
    }
    out.push_str("\nWRONG\n");
    for it in &page.wrong {
        wrapped(out, "  * ", "    ", &words::line(&it.what));
        if let Some(minimal) = &it.minimal {
            smallest(out, 4, minimal);
        }
    }
}

fn one_format(out: &mut String, page: &FormatPage) {
    let name = words::format(page.format);
    let _ = writeln!(out, "\n{name}\n{}", "-".repeat(name.len()));
    for recipe in &page.recipes {
        let lines = words::recipe(recipe);
        row(out, 2, "recipe", &format!("{}{}", words::recipe_path(recipe), lines[0]));
        for line in &lines[1..] {
            row(out, 2, "", line);
        }
        let evidence = words::evidence(recipe);
        if !evidence.is_empty() {
            row(out, 2, "", &evidence);
        }
    }
    for (n, line) in words::accuracy(&page.accuracy).iter().enumerate() {
        row(out, 2, if n == 0 { "accuracy" } else { "" }, line);
    }
    out.push('\n');
    let words::Table { mut lines, caption } = words::relations(page);
    lines.insert(0, ["relation", "path", "", "normal data", "designed", ""].map(str::to_owned));
    let widths: Vec<usize> = (0..5).map(|n| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0)).collect();
    for line in &lines {
        let cells: Vec<String> = line[..5].iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "  {}", format!("{}  {}", cells.join("  "), line[5]).trim_end());
    }
    if !caption.is_empty() {
        let _ = writeln!(out, "\n  {caption}.");
    }
    let minimals = words::minimals(page);
    if !minimals.is_empty() {
        out.push_str("\n  Smallest cases\n");
    }
    for (change, minimal) in minimals {
        let _ = writeln!(out, "    {change}");
        smallest(out, 6, minimal);
    }
}

fn smallest(out: &mut String, indent: usize, minimal: &Minimal) {
    let pad = " ".repeat(indent);
    wrapped(out, &pad, &pad, &minimal.summary);
    let element = match &minimal.relation {
        Some(relation) => format!("`{relation}`: {}", minimal.element),
        None => minimal.element.clone(),
    };
    wrapped(out, &pad, &pad, &element);
    let cause = minimal.cause.as_ref().map_or(String::new(), |cause| format!("{cause}  "));
    wrapped(out, &pad, &pad, &format!("{cause}->  {}", minimal.file));
}

/// A name and a text that is wrapped beside it.
fn row(out: &mut String, indent: usize, name: &str, text: &str) {
    let first = format!("{}{name:<NAMES$}", " ".repeat(indent));
    // A longer name has its text beside it all the same.
    let first = if name.chars().count() >= NAMES { format!("{first} ") } else { first };
    wrapped(out, &first, &" ".repeat(indent + NAMES), text);
}

fn wrapped(out: &mut String, first: &str, later: &str, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            line = later.to_owned();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}
