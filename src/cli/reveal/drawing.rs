//! Trees as SVG files.
//!
//! Every sum is a bar over what it adds, first to last from left to right; terms that follow each other in a running sum share a box.
//! A multi-term addition has a heavier bar.

use super::super::out_folder::write_whole;
use super::Failure;
use super::folded::runs;
use crate::subject::attention::reveal::Orders;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Writes each different tree once, named after the first plan that has it.
pub(super) fn write(path: &Path, all: &[Orders]) -> Result<(), Failure> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut seen: Vec<(usize, &Tree)> = Vec::new();
    for (n, orders) in all.iter().enumerate() {
        let side = match all.len() {
            1 => "",
            _ if n == 0 => "train-",
            _ => "infer-",
        };
        for it in &orders.asked {
            let Ok(order) = &it.answer else { continue };
            if seen.contains(&(n, &order.tree)) {
                continue;
            }
            seen.push((n, &order.tree));
            let product = it.product.name().to_lowercase();
            let title = format!("{}: {}, {}, {} terms", orders.kernel, it.product.name(), it.plan, order.terms().len());
            files.insert(format!("{side}{product}-{}-{}.svg", it.plan, it.kv), svg(&order.tree, &title));
        }
    }
    if path.extension().is_some_and(|it| it == "svg") {
        return match files.into_values().collect::<Vec<_>>().as_slice() {
            [one] => write_whole(path, one),
            many => Err(Failure::Usage(format!("--svg {}: there are {} trees; name a folder", path.display(), many.len()))),
        };
    }
    std::fs::create_dir_all(path).map_err(|error| Failure::Output(format!("{}: {error}", path.display())))?;
    let write = |(name, text): (String, String)| write_whole(&PathBuf::from(path).join(name), &text);
    files.into_iter().try_for_each(write)
}

const ROW: f64 = 26.0;
const CHARACTER: f64 = 7.0;
const GAP: f64 = 4.0;

/// A box of the drawing.
enum Drawn {
    /// Terms, added one after the other.
    Terms(String),
    /// A sum over boxes; of several terms at once.
    Sum(Vec<Drawn>, bool),
}

impl Drawn {
    fn of(tree: &Tree) -> Drawn {
        let (children, fused) = match tree {
            Tree::Leaf(n) => return Drawn::Terms(n.to_string()),
            Tree::Sum(children) => (children, false),
            Tree::Fused(children) => (children, true),
        };
        let mut boxes = Vec::new();
        let mut terms = Vec::new();
        for (n, child) in children.iter().enumerate() {
            let next = children.get(n + 1);
            match child {
                Tree::Leaf(term) => {
                    terms.push(*term);
                    // A run ends where the next term is not the neighbour.
                    let goes_on = matches!(next, Some(Tree::Leaf(after)) if *after == term.wrapping_add(1));
                    if !goes_on {
                        boxes.push(Drawn::Terms(runs(&std::mem::take(&mut terms))));
                    }
                }
                _ => boxes.push(Drawn::of(child)),
            }
        }
        match (boxes.len(), fused) {
            (1, false) => boxes.pop().unwrap_or(Drawn::Terms(String::new())),
            _ => Drawn::Sum(boxes, fused),
        }
    }

    fn width(&self) -> f64 {
        match self {
            Drawn::Terms(text) => text.chars().count() as f64 * CHARACTER + 10.0,
            Drawn::Sum(boxes, _) => boxes.iter().map(|it| it.width() + GAP).sum::<f64>() - GAP,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Drawn::Terms(_) => 1,
            Drawn::Sum(boxes, _) => 1 + boxes.iter().map(Drawn::depth).max().unwrap_or(0),
        }
    }

    fn draw(&self, out: &mut String, x: f64, y: f64) {
        let width = self.width();
        let (fill, label) = match self {
            Drawn::Terms(text) => ("#e8eef7", text.as_str()),
            Drawn::Sum(_, false) => ("#cfe3cf", "+"),
            Drawn::Sum(_, true) => ("#f0d9b5", "+ at once"),
        };
        let _ = writeln!(
            out,
            r##"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}" fill="{fill}" stroke="#555"/>"##,
            ROW - GAP
        );
        let _ = writeln!(
            out,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
            x + width / 2.0,
            y + ROW / 2.0 + 2.0
        );
        if let Drawn::Sum(boxes, _) = self {
            let mut at = x;
            for it in boxes {
                it.draw(out, at, y + ROW);
                at += it.width() + GAP;
            }
        }
    }
}

fn svg(tree: &Tree, title: &str) -> String {
    let drawn = Drawn::of(tree);
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let width = (drawn.width() + 20.0).max(title.chars().count() as f64 * CHARACTER + 20.0);
    let height = drawn.depth() as f64 * ROW + 40.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"monospace\" font-size=\"11\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"18\">{title}</text>\n"
    );
    drawn.draw(&mut out, 10.0, 30.0);
    out.push_str("</svg>\n");
    out
}
