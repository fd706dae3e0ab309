//! Recipes in words, and what sets two of them apart.

use super::{Cell, Layout, Mate, Part, Recipe, RecipeDifference, Tile};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::numerics::{Merge, Numerics};
use std::fmt;
use std::ops::Range;

impl Recipe {
    /// The fields in which two recipes differ, structure first; empty for equal recipes.
    pub fn differences(&self, other: &Recipe) -> Vec<RecipeDifference> {
        let mut found = Vec::new();
        let mut note = |field: &str, left: String, right: String| {
            if left != right {
                found.push(RecipeDifference { field: field.into(), left, right });
            }
        };
        let range = |keys: Range<u32>| format!("{}..{}", keys.start, keys.end);
        note("keys", range(self.keys()), range(other.keys()));
        note("splits", self.layout.splits_in_words(), other.layout.splits_in_words());
        let blocks = [&self.layout, &other.layout].map(Layout::sorted_blocks_in_words);
        if blocks[0] == blocks[1] {
            note("visits", self.layout.blocks_in_words(), other.layout.blocks_in_words());
        }
        let [blocks, others] = blocks;
        note("blocks", blocks, others);
        if self.layout.blocks_in_words() == other.layout.blocks_in_words() {
            let slots = |layout: &Layout| format!("{:?}", layout.cells.iter().map(|cell| cell.slot).collect::<Vec<_>>());
            note("slots", slots(&self.layout), slots(&other.layout));
        }
        let position = |recipe: &Recipe| recipe.position.map_or("none".into(), |p| p.to_string());
        note("position", position(self), position(other));
        let tile = |recipe: &Recipe| recipe.tile.as_ref().map_or("none".into(), Tile::to_string);
        note("tile", tile(self), tile(other));
        note("partials", self.partials.to_string(), other.partials.to_string());
        for field in Numerics::FIELDS {
            let value = |recipe: &Recipe| recipe.arithmetic.get(field).unwrap_or_default();
            note(field, value(self), value(other));
        }
        for field in Conventions::FIELDS {
            let value = |recipe: &Recipe| recipe.conventions.get(field).unwrap_or_default();
            note(&format!("actual.{field}"), value(self), value(other));
        }
        found
    }
}

impl Layout {
    /// The key ranges of the parts, in the order of the merge.
    fn splits_in_words(&self) -> String {
        let part = |part: &Part| {
            let index = if part.index > 0 { format!(" (at {})", part.index) } else { String::new() };
            format!("{}{index}", ranges_in_words(self.cells_of(part)))
        };
        self.parts.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    /// The key ranges of the blocks, in the order of visits.
    fn blocks_in_words(&self) -> String {
        let cell = |cell: &Cell| format!("{}..{}", cell.keys.start, cell.keys.end);
        self.cells.iter().map(cell).collect::<Vec<_>>().join(", ")
    }

    /// The key ranges of the blocks, ascending.
    fn sorted_blocks_in_words(&self) -> String {
        let mut sorted = Layout { parts: Vec::new(), cells: self.cells.clone() };
        sorted.cells.sort_by_key(|cell| cell.keys.start);
        sorted.blocks_in_words()
    }
}

/// The keys of some cells: `0..4`, or `0..4+12..16` for the two chunks of a rank.
fn ranges_in_words(cells: &[Cell]) -> String {
    let mut ranges: Vec<Range<u32>> = cells.iter().map(|cell| cell.keys.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let touching = range.end == next.start;
        if touching {
            range.end = next.end;
        }
        touching
    });
    ranges.iter().map(|range| format!("{}..{}", range.start, range.end)).collect::<Vec<_>>().join("+")
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = |mate: Option<&Mate>| mate.map_or(0, |mate| mate.position);
        let (first, last) = (position(self.rows.first()), position(self.rows.last()));
        write!(f, "row {} of a tile of positions {first} to {last}", self.member)?;
        for mate in &self.rows {
            write!(f, "; {}: {} in {}", mate.position, mate.layout.blocks_in_words(), mate.layout.splits_in_words())?;
        }
        Ok(())
    }
}

impl fmt::Display for Recipe {
    /// The cuts in words; the arithmetic is left to [`Recipe::differences`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layout.cells.is_empty() {
            return f.write_str("no keys");
        }
        let keys = self.keys();
        write!(f, "keys {}..{}", keys.start, keys.end)?;
        let plural = |n: usize| if n == 1 { "block" } else { "blocks" };
        let cells = self.layout.cells.len();
        match self.layout.parts.len() {
            1 => write!(f, " in {cells} {}: {}", plural(cells), self.layout.blocks_in_words())?,
            n => {
                write!(f, " in {n} splits: ")?;
                for (i, part) in self.layout.parts.iter().enumerate() {
                    let cells = self.layout.cells_of(part);
                    let text: Vec<String> = cells.iter().map(|c| format!("{}..{}", c.keys.start, c.keys.end)).collect();
                    let gap = if i > 0 { "; " } else { "" };
                    write!(f, "{gap}{} {}", plural(cells.len()), text.join(", "))?;
                }
                match self.arithmetic.grid.merge {
                    Merge::Sequential if self.layout.is_ascending() => f.write_str(", merged left to right")?,
                    Merge::Sequential => f.write_str(", merged as they arrive")?,
                    Merge::Tree => f.write_str(", merged as a tree")?,
                }
            }
        }
        if let Some(tile) = &self.tile {
            write!(f, ", rescaled with {} rows of its tile", tile.rows.len())?;
        }
        Ok(())
    }
}
