//! What metamorphic relations change.

use std::fmt;

/// The thing a metamorphic relation changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names are the glossary's; `Relation` documents what each changes
pub enum Axis {
    Repeat,
    Recompute,
    Company,
    Position,
    Padding,
    Poison,
    Pages,
    Chunk,
    Prefix,
    PrefixStability,
    Ranks,
    Knob,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Axis::Repeat => "repeat",
            Axis::Recompute => "recompute",
            Axis::Company => "company",
            Axis::Position => "position",
            Axis::Padding => "padding",
            Axis::Poison => "poison",
            Axis::Pages => "pages",
            Axis::Chunk => "chunk",
            Axis::Prefix => "prefix",
            Axis::PrefixStability => "prefix_stability",
            Axis::Ranks => "ranks",
            Axis::Knob => "knob",
        })
    }
}
