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
    html! {
        @if trees.is_empty() { p.quiet { "The certificate has no trees." } }
        @for (n, sides) in pairs(trees).iter().enumerate() { (pair(n, sides, room)) }
    }
}

/// Each tree of training beside that of inference of the same sum, or of the next that has none: prefill on one side and decode on the
/// other are what a reader compares.
fn pairs(trees: &[TreeText]) -> Vec<Vec<&TreeText>> {
    let (mut infer, train): (Vec<&TreeText>, Vec<&TreeText>) = trees.iter().partition(|tree| tree.side == "infer");
    let of_both: Vec<bool> = train.iter().map(|tree| infer.iter().any(|other| other.of == tree.of)).collect();
    let mut pairs = Vec::new();
    for (tree, has_its_own) in train.iter().zip(of_both) {
        let other = infer
            .iter()
            .position(|other| if has_its_own { other.of == tree.of } else { train.iter().all(|tree| tree.of != other.of) });
        pairs.push(std::iter::once(*tree).chain(other.map(|place| infer.remove(place))).collect());
    }
    pairs.extend(infer.into_iter().map(|tree| vec![tree]));
    pairs
}

fn pair(n: usize, sides: &[&TreeText], room: &mut Room) -> Markup {
    let subject = match sides {
        [first, second] if first.of != second.of => format!("{}, against {}", first.of, second.of),
        [first, ..] => first.of.clone(),
        [] => String::new(),
    };
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
