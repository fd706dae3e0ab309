//! The text of a relation, as `[run] relation` in a case file: `infer prefix hit=3`.

use super::{Relation, SidedRelation};
use crate::finding::Path;
use crate::input_error::unknown;
use crate::subject::attention::validate::is_knob_name;
use crate::subject::attention::{ContextParallel, Shards, Side};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for SidedRelation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.path)?;
        use Relation::*;
        match self.relation {
            Repeat => write!(f, "repeat"),
            Recompute => write!(f, "recompute"),
            Alone { seq } => write!(f, "alone seq={seq}"),
            // One is not spelled out, as in the first files.
            Neighbour { q, kv, count: 1 } => write!(f, "neighbour q={q} kv={kv}"),
            Neighbour { q, kv, count } => write!(f, "neighbour q={q} kv={kv} count={count}"),
            NeighbourLength { seq, q, kv } => write!(f, "neighbour_length seq={seq} q={q} kv={kv}"),
            NeighbourJoins { seq, join } => write!(f, "neighbour_joins seq={seq} join={join}"),
            Position { rotate } => write!(f, "position rotate={rotate}"),
            Padding { side: Side::Left, pad_q, pad_kv } => write!(f, "padding_left pad_q={pad_q} pad_kv={pad_kv}"),
            Padding { side: Side::Right, pad_q, pad_kv } => write!(f, "padding_right pad_q={pad_q} pad_kv={pad_kv}"),
            Bucket { size } => write!(f, "bucket size={size}"),
            Poison => write!(f, "poison"),
            Pages { page, shuffle } => write!(f, "pages page={page} shuffle={shuffle}"),
            Chunk { rows } => write!(f, "chunk rows={rows}"),
            Prefix { hit } => write!(f, "prefix hit={hit}"),
            PrefixStability { seq, drop } => write!(f, "prefix_stability seq={seq} drop={drop}"),
            ContextRanks { context: None } => write!(f, "context_none"),
            ContextRanks { context: Some(ContextParallel { ranks, shards, length }) } => {
                let shards = match shards {
                    Shards::Contiguous => "contiguous",
                    Shards::Zigzag => "zigzag",
                };
                write!(f, "context_{shards} ranks={ranks} length={length}")
            }
            HeadRanks { ranks } => write!(f, "head_ranks ranks={ranks}"),
            Knob { ref name, value: Some(ref value) } => write!(f, "knob {name}={value}"),
            Knob { ref name, value: None } => write!(f, "knob {name}"),
        }
    }
}

/// `name=value`, or `name` for its default.
fn knob(text: &str) -> Result<Relation, String> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
    let one_line = value.as_ref().is_none_or(|value| !value.chars().any(char::is_control));
    match is_knob_name(name) && one_line {
        true => Ok(Relation::Knob { name: name.to_owned(), value }),
        false => Err(format!("`knob {text}`: a knob is NAME=VALUE, or NAME for its default; its name has letters, digits and _")),
    }
}

/// The largest size a case file may give: beyond it a variant could not be run.
const PARAMETER_MAX: u64 = 65_536;

impl FromStr for SidedRelation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(' ');
        let path = match words.next() {
            Some("train") => Path::Train,
            Some("infer") => Path::Infer,
            _ => return Err(format!("`{text}`: a relation starts with `train` or `infer`")),
        };
        let name = words.next().unwrap_or("");
        if name == "knob" {
            // Its value is the rest of the line.
            return Ok(SidedRelation { path, relation: knob(text.splitn(3, ' ').nth(2).unwrap_or(""))? });
        }
        let mut parameters: Vec<(&str, u64)> = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{text}`: `{word}` is no key=value"))?;
            let value = value.parse().map_err(|_| format!("`{text}`: `{value}` is no number"))?;
            let most = match key {
                // Names and seeds cost nothing, however large.
                "seq" => u64::from(u32::MAX),
                "shuffle" => u64::MAX,
                _ => PARAMETER_MAX,
            };
            if value > most {
                return Err(format!("`{text}`: `{key}` is above {most}"));
            }
            parameters.push((key, value));
        }
        let wide = |key: &str| {
            let found = parameters.iter().find(|(name, _)| *name == key);
            found.map(|&(_, value)| value).ok_or_else(|| format!("`{text}`: `{key}` is missing"))
        };
        let get = |key: &str| wide(key).map(|value| value as u32);
        use Relation::*;
        let context = |shards| -> Result<Relation, String> {
            // Bounds as in a plan: see `validate`.
            let (ranks, length) = (get("ranks")?.max(2), get("length")?.max(1));
            Ok(ContextRanks { context: Some(ContextParallel { ranks, shards, length }) })
        };
        let relation = match name {
            "repeat" => Repeat,
            "recompute" => Recompute,
            "alone" => Alone { seq: get("seq")? },
            "neighbour" => Neighbour { q: get("q")?, kv: get("kv")?, count: get("count").unwrap_or(1).max(1) },
            "neighbour_length" => NeighbourLength { seq: get("seq")?, q: get("q")?, kv: get("kv")? },
            "neighbour_joins" => NeighbourJoins { seq: get("seq")?, join: get("join")? },
            "position" => Position { rotate: get("rotate")? },
            "padding_left" => Padding { side: Side::Left, pad_q: get("pad_q")?, pad_kv: get("pad_kv")? },
            "padding_right" => Padding { side: Side::Right, pad_q: get("pad_q")?, pad_kv: get("pad_kv")? },
            "bucket" => Bucket { size: get("size")?.max(1) },
            "poison" => Poison,
            "pages" => Pages { page: get("page")?, shuffle: wide("shuffle")? },
            "chunk" => Chunk { rows: get("rows")? },
            "prefix" => Prefix { hit: get("hit")? },
            "prefix_stability" => PrefixStability { seq: get("seq")?, drop: get("drop")? },
            "context_none" => ContextRanks { context: None },
            "context_contiguous" => context(Shards::Contiguous)?,
            "context_zigzag" => context(Shards::Zigzag)?,
            "head_ranks" => HeadRanks { ranks: get("ranks")?.max(1) },
            other => {
                let known = [
                    "repeat",
                    "recompute",
                    "alone",
                    "neighbour",
                    "neighbour_length",
                    "neighbour_joins",
                    "position",
                    "padding_left",
                    "padding_right",
                    "bucket",
                    "poison",
                    "pages",
                    "chunk",
                    "prefix",
                    "prefix_stability",
                    "context_none",
                    "context_contiguous",
                    "context_zigzag",
                    "head_ranks",
                    "knob",
                ];
                return Err(unknown("relation", other, &known));
            }
        };
        let sided = SidedRelation { path, relation };
        if sided.to_string() == text { Ok(sided) } else { Err(format!("`{text}` is not in canonical form; expected `{sided}`")) }
    }
}
