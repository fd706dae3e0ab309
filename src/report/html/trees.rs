//! Orders of addition of the two sides, beside each other.

use super::super::words::count;
use super::Section;
use super::parts::{Room, drawing, fold, scroll, text, wrapped};
use crate::certify::certificate::{Certificate, TreeText};
use crate::tree::Tree;
use maud::{Markup, html};

/// A text of more bytes is folded.
const LONG: usize = 400;

/// A text of more bytes, some three thousand terms, is not drawn: finding the shape of an irregular tree takes the square of them.
const DRAWABLE: usize = 1 << 14;

/// Stack of the thread that draws. A tree from outside is read without recursion, but its shape is found with as much as it has terms.
const STACK: usize = 256 << 20;

pub(super) fn section(it: &Certificate, room: &mut Room) -> Section {
    let body = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || all(&it.trees, room));
        match thread.map(|thread| thread.join()) {
            Ok(Ok(body)) => body,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => html! { p.quiet { "The trees cannot be drawn: no thread: " (error) } },
        }
    });
    let about = html! {
        p { "In which order a sum is added. A bar is a sum over what hangs below it, from left to right; numbers are positions." }
    };
    Section { id: "trees", title: "Orders of addition", about, body }
}

fn all(trees: &[TreeText], room: &mut Room) -> Markup {
    let mut subjects: Vec<&str> = Vec::new();
    for tree in trees {
        if !subjects.contains(&tree.of.as_str()) {
            subjects.push(&tree.of);
        }
    }
    html! {
        @if subjects.is_empty() { p.quiet { "The certificate has no trees." } }
        @for (n, subject) in subjects.iter().enumerate() {
            (pair(n, subject, &trees.iter().filter(|tree| tree.of == *subject).collect::<Vec<_>>(), room))
        }
    }
}

fn pair(n: usize, subject: &str, sides: &[&TreeText], room: &mut Room) -> Markup {
    let trees: Vec<Result<Tree, String>> = sides.iter().map(|side| read(&side.tree)).collect();
    let difference = match &trees[..] {
        [Ok(first), Ok(second)] => Some(first.canonical().first_difference(&second.canonical())),
        _ => None,
    };
    let same = matches!(difference, Some(None));
    html! {
        h3 { (subject) }
        @match &difference {
            Some(None) => { p { "Both sides add in the same order." } },
            Some(Some(difference)) => { p.parted { b { "They part: " } (difference) } },
            None => {},
        }
        div.pair {
            @for (place, (side, tree)) in sides.iter().zip(&trees).enumerate() {
                @if place == 0 || !same { (one(n, place, side, tree, same, room)) }
            }
        }
    }
}

fn read(text: &str) -> Result<Tree, String> {
    if text.len() > DRAWABLE { Err(format!("its text has {} bytes", count(text.len() as u64))) } else { text.parse() }
}

fn one(n: usize, place: usize, side: &TreeText, tree: &Result<Tree, String>, same: bool, room: &mut Room) -> Markup {
    let title = match side.side.as_str() {
        _ if same => "Both sides",
        "train" => "Training",
        "infer" => "Inference",
        other => other,
    };
    let name = |what: &str| format!("{what} {}.{}, {title}", n + 1, place + 1);
    let drawn = tree.as_ref().map(|tree| tree.figure(title)).map_err(Clone::clone);
    html! {
        div.side {
            h4 { (title) span.quiet { " " (side.shape) } }
            @match drawn {
                Err(reason) => p.quiet { "The tree cannot be drawn: " (reason) },
                Ok(svg) if room.take(&svg) => (scroll(&name("Tree"), &drawing(svg))),
                Ok(_) => p.quiet { "The drawing is too large for this page." },
            }
            @if !room.take(&side.tree) {
                p.quiet { "The text of the tree is in the certificate; it is too long for this page." }
            } @else if side.tree.len() > LONG {
                (fold(&html! { "Tree as text" }, &text(&name("Text of tree"), &side.tree)))
            } @else {
                (wrapped(&side.tree))
            }
        }
    }
}
