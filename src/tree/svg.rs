//! Trees as drawings: SVG text, self-contained, the same bytes for the same tree.
//!
//! A bar is a sum over what hangs below it, added from left to right; a double bar is a running sum that takes what hangs below it at
//! once. Runs of terms, and whole subtrees that have a name, are one box, so that blocks and splits are seen at a glance; of many
//! children the middle ones are left out, and counted.

use super::{Shape, Tree, ranges};
use std::fmt::Write;

impl Tree {
    /// The tree, drawn in [canonical](Tree::canonical) form, as an SVG document that is readable on light and dark grounds and holds no
    /// script and no reference to anything outside. `title` stands above it.
    pub fn svg(&self, title: &str) -> String {
        self.drawing(title, true, "xmlns=\"http://www.w3.org/2000/svg\" ", STYLE)
    }

    /// The same drawing as a part of an HTML page, whose style sheet has to colour the classes `ground`, `box`, `more`, `sum`, `fused`
    /// and `edge`: a style of its own would reach out of the drawing. `title` is for those who cannot see it.
    pub fn figure(&self, title: &str) -> String {
        self.drawing(title, false, "class=\"tree\" ", "")
    }

    fn drawing(&self, title: &str, titled: bool, attributes: &str, style: &str) -> String {
        let tree = self.canonical();
        let drawn = Drawn::of(&tree);
        let form = Shape::of(&tree).to_string();
        let count = tree.leaves().len();
        let lines = [title.to_string(), format!("{count} term{}: {form}", if count == 1 { "" } else { "s" })];
        let shown = if titled { &lines[..] } else { &[] };
        let top = LINE * shown.len() + 16;
        let text_width = shown.iter().map(|line| wide(line)).max().unwrap_or_default();
        let width = drawn.width().max(text_width) + 2 * MARGIN;
        let height = top + drawn.height() + MARGIN;
        let mut svg = format!(
            "<svg {attributes}width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\">\n<title>{}</title>\n{style}<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n",
            escaped(&lines.join(", "))
        );
        for (n, line) in shown.iter().enumerate() {
            let y = LINE + LINE * n;
            let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(line));
        }
        drawn.draw(&mut svg, MARGIN, top);
        svg.push_str("</svg>\n");
        svg
    }
}

const STYLE: &str = "<style>\n\
    .ground{fill:#ffffff}text{fill:#1f2328;font:12px ui-monospace,Menlo,Consolas,monospace}\n\
    .box{fill:#ddf4ff;stroke:#0969da}.more{fill:none;stroke:#59636e;stroke-dasharray:3 3}\n\
    .sum{fill:#d1d9e0;stroke:#59636e}.fused{fill:#fff8c5;stroke:#9a6700;stroke-width:2}.edge{stroke:#59636e}\n\
    @media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#f0f6fc}\n\
    .box{fill:#121d2f;stroke:#4493f8}.more{stroke:#9198a1}\n\
    .sum{fill:#3d444d;stroke:#9198a1}.fused{fill:#272115;stroke:#d29922}.edge{stroke:#9198a1}}\n\
    </style>\n";

const MARGIN: usize = 12;
const LINE: usize = 18;
const BOX: usize = 26;
const BAR: usize = 18;
const GAP: usize = 12;
/// Children that are drawn; of more the first and the last few are.
const SHOWN: usize = 9;
const FIRST: usize = 5;
const LAST: usize = 3;

/// Pixels of a line of text: eight a character are enough for a monospaced font of 12.
fn wide(text: &str) -> usize {
    8 * text.chars().count()
}

enum Drawn {
    /// Terms, and how they are summed where that has a name.
    Terms(String),
    /// Children that were left out.
    More(String),
    /// A sum.
    Node { fused: bool, label: String, children: Vec<Drawn> },
}

impl Drawn {
    fn of(tree: &Tree) -> Drawn {
        let terms = tree.leaves();
        let (children, fused) = match tree {
            Tree::Leaf(term) => return Drawn::Terms(term.to_string()),
            Tree::Sum(children) => (children.iter().map(std::slice::from_ref).collect(), false),
            Tree::Fused(children) => (steps(children), true),
        };
        match Shape::of(tree) {
            Shape::Sequential if terms.len() > 2 => return Drawn::Terms(ranges(&terms)),
            form @ (Shape::Reversed | Shape::AtOnce | Shape::Pairwise) if terms.len() > 4 => {
                return Drawn::Terms(format!("{} {form}", ranges(&terms)));
            }
            form @ Shape::Parts { .. } => {
                let parts = form.split(tree).into_iter().map(|part| (Drawn::of(&part), part.leaves())).collect();
                let label = match form {
                    Shape::Parts { count: 3.., join, .. } => format!("+ {join}"),
                    _ => "+".to_string(),
                };
                return Drawn::node(false, &label, elided(parts));
            }
            _ => {}
        }
        let mut drawn: Vec<(Drawn, Vec<u32>)> = Vec::new();
        let mut run: Vec<u32> = Vec::new();
        for child in children {
            match child {
                // Neighbouring terms that a running sum takes one by one are one box, as long as they go up or down evenly.
                [Tree::Leaf(term)] if !fused => {
                    if let [.., a, b] = run[..]
                        && i64::from(*term) - i64::from(b) != i64::from(b) - i64::from(a)
                    {
                        drawn.push(terms_of(std::mem::take(&mut run)));
                    }
                    run.push(*term);
                }
                _ => {
                    drawn.extend((!run.is_empty()).then(|| terms_of(std::mem::take(&mut run))));
                    let terms: Vec<u32> = child.iter().flat_map(Tree::leaves).collect();
                    match child {
                        [one] => drawn.push((Drawn::of(one), terms)),
                        _ if child.iter().all(|child| matches!(child, Tree::Leaf(_))) => drawn.push(terms_of(terms)),
                        _ => drawn.push((Drawn::node(true, "at once", child.iter().map(Drawn::of).collect()), terms)),
                    }
                }
            }
        }
        drawn.extend((!run.is_empty()).then(|| terms_of(run)));
        if drawn.len() == 1
            && let Some((only, _)) = drawn.pop()
        {
            return only;
        }
        let label = if fused { "step by step, each at once" } else { "+" };
        Drawn::node(fused, label, elided(drawn))
    }

    fn node(fused: bool, label: &str, children: Vec<Drawn>) -> Drawn {
        Drawn::Node { fused, label: label.to_string(), children }
    }

    fn width(&self) -> usize {
        match self {
            Drawn::Terms(text) | Drawn::More(text) => wide(text) + 16,
            Drawn::Node { label, children, .. } => {
                let row: usize = children.iter().map(Drawn::width).sum();
                (row + GAP * children.len().saturating_sub(1)).max(wide(label) + 16)
            }
        }
    }

    fn height(&self) -> usize {
        match self {
            Drawn::Terms(_) | Drawn::More(_) => BOX,
            Drawn::Node { children, .. } => BAR + GAP + children.iter().map(Drawn::height).max().unwrap_or_default(),
        }
    }

    fn draw(&self, svg: &mut String, x: usize, y: usize) {
        let width = self.width();
        let mut plate = |class: &str, height: usize, text: &str| {
            let (middle, line) = (x + width / 2, y + height / 2 + 4);
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>\
                 <text x=\"{middle}\" y=\"{line}\" text-anchor=\"middle\">{}</text>",
                escaped(text)
            );
        };
        match self {
            Drawn::Terms(text) => plate("box", BOX, text),
            Drawn::More(text) => plate("more", BOX, text),
            Drawn::Node { fused, label, children } => {
                plate(if *fused { "fused" } else { "sum" }, BAR, label);
                let mut left = x;
                for child in children {
                    let middle = left + child.width() / 2;
                    let (top, bottom) = (y + BAR, y + BAR + GAP);
                    let _ = writeln!(svg, "<line class=\"edge\" x1=\"{middle}\" y1=\"{top}\" x2=\"{middle}\" y2=\"{bottom}\"/>");
                    child.draw(svg, left, bottom);
                    left += child.width() + GAP;
                }
            }
        }
    }
}

/// Children with their terms; of many, a note in the place of the middle ones.
fn elided(mut children: Vec<(Drawn, Vec<u32>)>) -> Vec<Drawn> {
    if children.len() > SHOWN {
        let left_out: Vec<_> = children.splice(FIRST..children.len() - LAST, []).collect();
        let terms: Vec<u32> = left_out.iter().flat_map(|(_, terms)| terms.iter().copied()).collect();
        children.insert(FIRST, (Drawn::More(format!("{} more: {}", left_out.len(), ranges(&terms))), terms));
    }
    children.into_iter().map(|(drawn, _)| drawn).collect()
}

/// Terms in a box, in the order in which they are added.
fn terms_of(terms: Vec<u32>) -> (Drawn, Vec<u32>) {
    let falls = terms.len() > 2 && terms[0] > terms[1] && terms[1] > terms[2];
    let text = if falls { format!("{} reversed", ranges(&terms)) } else { ranges(&terms) };
    (Drawn::Terms(text), terms)
}

/// What a chain of multi-term additions takes at each step, the first step first.
fn steps(children: &[Tree]) -> Vec<&[Tree]> {
    let mut steps = Vec::new();
    let mut node = children;
    while let [Tree::Fused(first), rest @ ..] = node {
        steps.push(rest);
        node = first;
    }
    steps.push(node);
    steps.reverse();
    steps
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(terms: std::ops::Range<u32>) -> Tree {
        Tree::sum(terms.map(Tree::Leaf)).unwrap()
    }

    /// The texts of a drawing, from the top down and left to right.
    fn texts(tree: &Tree) -> Vec<String> {
        let svg = tree.svg("t");
        let texts =
            svg.split("<text").skip(3).filter_map(|rest| Some(rest.split_once('>')?.1.split_once("</text>")?.0.to_string()));
        texts.collect()
    }

    #[test]
    fn blocks_and_splits_are_boxes() {
        assert_eq!(texts(&run(0..128)), ["0..=127"]);
        let blocks = Tree::sum((0..4).map(|block| run(16 * block..16 * block + 16))).unwrap();
        assert_eq!(texts(&blocks), ["+ left to right", "0..=15", "16..=31", "32..=47", "48..=63"]);
        let splits = Tree::sum([blocks.clone(), blocks.map(&|term| term + 64)]).unwrap();
        let block = |start: u32| (0..4).map(move |n| format!("{}..={}", start + 16 * n, start + 16 * n + 15));
        let bar = |text: &str| std::iter::once(text.to_string());
        let expected = bar("+").chain(bar("+ left to right")).chain(block(0)).chain(bar("+ left to right")).chain(block(64));
        assert_eq!(texts(&splits), expected.collect::<Vec<_>>());
        let lanes = "((0 4 8) (2 6 10) ((1 5 9) (3 7 11)))".parse::<Tree>().unwrap();
        assert_eq!(texts(&lanes), ["+ half to half", "0..=8 by 4", "1..=9 by 4", "2..=10 by 4", "3..=11 by 4"]);
        assert_eq!(texts(&"[[0 1 2 3] 4 5 6 7]".parse().unwrap()), ["step by step, each at once", "0..=3", "4..=7"]);
        assert_eq!(texts(&"[0 1 2 (3 4)]".parse().unwrap()), ["at once", "3, 4", "0", "1", "2"]);
    }

    #[test]
    fn of_many_children_the_middle_ones_are_counted() {
        let blocks = Tree::sum((0..256).map(|block| run(16 * block..16 * block + 16))).unwrap();
        let texts = texts(&blocks);
        assert_eq!(texts.len(), 1 + SHOWN);
        assert_eq!(texts[6], "248 more: 80..=4047");
        assert_eq!(texts[9], "4080..=4095");
    }

    #[test]
    fn every_term_of_a_small_tree_is_drawn_once() {
        for text in ["(0 2 (1 3))", "((3 1) (0 2) 4)", "[(0 5) 3 (1 2) 4]", "(5 4 3 1 0 2)"] {
            let tree: Tree = text.parse().unwrap();
            let mut numbers: Vec<u32> = Vec::new();
            for text in texts(&tree) {
                match text.trim_end_matches(" reversed").split_once("..=") {
                    Some((a, b)) => numbers.extend(a.parse::<u32>().unwrap()..=b.parse().unwrap()),
                    None => numbers.extend(text.split(", ").filter_map(|part| part.parse::<u32>().ok())),
                }
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..tree.leaves().len() as u32).collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn the_document_stands_alone() {
        let svg = run(0..9).svg("<a & \"b\">");
        assert!(svg.contains("&lt;a &amp; &quot;b&quot;&gt;"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert!(svg.contains("9 terms: sequential"));
        for outside in ["<script", "href", "url(", "@import"] {
            assert!(!svg.contains(outside), "{outside}");
        }
        assert_eq!(svg, run(0..9).svg("<a & \"b\">"));
    }
}
