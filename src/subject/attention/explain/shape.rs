//! The shape of a row's sum over keys, short enough for a line.
//!
//! `(0..128 | 128)`: keys 0 to 127 one after the other, then a block ends, then key 128. Brackets as in [`crate::tree`]; what adds
//! otherwise than key by key inside a block stands as its tree if it is short, else as its order: `pairwise:0..64`. Splits stand in
//! brackets of their own, in the order of the merge.

use crate::subject::attention::numerics::{Merge, Order};
use crate::subject::attention::recipe::{Cell, Recipe};

/// Leaves up to which a block's own tree is written out.
const WRITTEN_OUT: u32 = 8;
/// Blocks, or splits, that are shown before some are left out.
const SHOWN: usize = 6;

/// The shape of a recipe's sum; `none` for an empty row.
pub(super) fn shape(recipe: &Recipe) -> String {
    let layout = &recipe.layout;
    let part = |cells: &[Cell]| match cells {
        [one] => in_brackets(&cell(recipe, one)),
        _ => format!("({})", abridged(cells.iter().map(|it| cell(recipe, it)).collect(), " | ")),
    };
    let mut parts: Vec<(u32, String)> = layout.parts.iter().map(|it| (it.index, part(layout.cells_of(it)))).collect();
    match parts.len() {
        0 => "none".into(),
        1 => parts.remove(0).1,
        _ if recipe.arithmetic.grid.merge == Merge::Sequential => {
            format!("({})", abridged(parts.into_iter().map(|(_, part)| part).collect(), " "))
        }
        _ => {
            // As `Tree::over_slots`: neighbours under one node of a power-of-two tree.
            while parts.len() > 1 {
                let mut next: Vec<(u32, String)> = Vec::with_capacity(parts.len());
                for (slot, part) in parts {
                    match next.last_mut() {
                        Some((half, left)) if *half == slot / 2 => *left = format!("({left} {part})"),
                        _ => next.push((slot / 2, part)),
                    }
                }
                parts = next;
            }
            parts.remove(0).1
        }
    }
}

/// A block: key by key as a range, else its tree or the name of its order.
fn cell(recipe: &Recipe, cell: &Cell) -> String {
    let (keys, order) = (&cell.keys, recipe.arithmetic.value.order);
    let count = keys.end - keys.start;
    if count == 1 {
        return keys.start.to_string();
    }
    if order == Order::Sequential {
        return format!("{}..{}", keys.start, keys.end);
    }
    match recipe.cell_tree(cell) {
        Some(tree) if count <= WRITTEN_OUT => tree.to_string(),
        _ => format!("{order}:{}..{}", keys.start, keys.end),
    }
}

fn in_brackets(text: &str) -> String {
    if text.starts_with(['(', '[']) { text.to_owned() } else { format!("({text})") }
}

/// The first and the last, where there are many.
fn abridged(mut items: Vec<String>, between: &str) -> String {
    if items.len() > SHOWN {
        let hidden = items.len() + 1 - SHOWN;
        items.splice(SHOWN - 2..SHOWN - 2 + hidden, [format!("... {hidden} more ...")]);
    }
    items.join(between)
}
