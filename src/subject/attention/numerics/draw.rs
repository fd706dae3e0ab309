//! Numerics from a source of choices: any value of any field can be drawn.

use super::{
    Block, BlockRule, Context, Descale, Exp, Finish, GridAnchor, MaxInit, Merge, Numerics, Order, Passes, Rescale, ScaleAt,
    Scope, Split, SplitRule, Store, SumOf, Traverse,
};
use crate::number::Dtype;
use crate::source::{Choose, Source};

/// How a field gets another value.
type Draw = fn(&mut Numerics, &mut dyn Source);

/// One line for each of [`Numerics::FIELDS`], in their order.
const DRAWS: &[(&str, Draw)] = &[
    ("kv.descale", |it, source| it.kv.descale = source.pick(Descale::ALL)),
    ("score.order", |it, source| it.score.order = order(source)),
    ("score.fma", |it, source| it.score.fma = flag(source)),
    ("score.acc", |it, source| it.score.acc = wide(source)),
    ("score.store", |it, source| it.score.store = wide(source)),
    ("score.scale", |it, source| it.score.scale = source.pick(ScaleAt::ALL)),
    ("softmax.passes", |it, source| it.softmax.passes = source.pick(Passes::ALL)),
    ("softmax.block", |it, source| it.softmax.block = block(source)),
    ("softmax.traverse", |it, source| it.softmax.traverse = source.pick(Traverse::ALL)),
    ("softmax.rescale", |it, source| it.softmax.rescale = rescale(source)),
    ("softmax.scope", |it, source| it.softmax.scope = source.pick(Scope::ALL)),
    ("softmax.exp", |it, source| it.softmax.exp = exp(source)),
    ("softmax.max_init", |it, source| it.softmax.max_init = max_init(source)),
    ("probs.dtype", |it, source| it.probs.dtype = wide(source)),
    ("probs.normalised", |it, source| it.probs.normalised = flag(source)),
    ("rowsum.order", |it, source| it.rowsum.order = order(source)),
    ("rowsum.acc", |it, source| it.rowsum.acc = wide(source)),
    ("rowsum.of", |it, source| it.rowsum.of = source.pick(SumOf::ALL)),
    ("value.order", |it, source| it.value.order = order(source)),
    ("value.fma", |it, source| it.value.fma = flag(source)),
    ("value.acc", |it, source| it.value.acc = wide(source)),
    ("grid.anchor", |it, source| it.grid.anchor = source.pick(GridAnchor::ALL)),
    ("grid.split", |it, source| it.grid.split = split(source)),
    ("grid.merge", |it, source| it.grid.merge = source.pick(Merge::ALL)),
    ("grid.lse_dtype", |it, source| it.grid.lse_dtype = wide(source)),
    ("grid.partial_dtype", |it, source| it.grid.partial_dtype = wide(source)),
    ("grid.context", |it, source| it.grid.context = source.pick(Context::ALL)),
    ("finish", |it, source| it.finish = source.pick(Finish::ALL)),
    ("store", |it, source| it.store = source.pick(Store::ALL)),
];

impl Numerics {
    /// Draws `times` fields anew, one after another; a value that conflicts with the others (see [`Numerics::validate`]) is left
    /// out, so valid numerics stay valid. From any numerics every other can be reached.
    pub fn redraw(&mut self, times: u32, source: &mut dyn Source) {
        for _ in 0..times {
            let mut changed = *self;
            DRAWS[source.below(DRAWS.len() as u64) as usize].1(&mut changed, source);
            if changed.validate().is_ok() {
                *self = changed;
            }
        }
    }
}

fn flag(source: &mut dyn Source) -> bool {
    source.chance(1, 2)
}

fn wide(source: &mut dyn Source) -> Dtype {
    source.pick(&[Dtype::F32, Dtype::BF16, Dtype::F16])
}

fn order(source: &mut dyn Source) -> Order {
    match source.below(4) {
        0 => Order::Sequential,
        1 => Order::Pairwise,
        2 => Order::Lanes(1 << source.range(0, 6)),
        _ => Order::Fused(source.range(1, 64)),
    }
}

/// Mostly so short that a small case is cut by it; now and then any length there is.
fn length(source: &mut dyn Source, most: u32) -> u32 {
    match source.below(8) {
        0..=4 => source.range(1, most.min(8)),
        5 | 6 => source.boundary(&[16, 64], most.min(200)),
        _ => source.range(1, most),
    }
}

fn block(source: &mut dyn Source) -> Block {
    match source.below(8) {
        0 => Block::Whole,
        7 => Block::Rule(source.pick(BlockRule::ALL)),
        _ => Block::Size(length(source, u32::MAX)),
    }
}

fn split(source: &mut dyn Source) -> Split {
    match source.below(8) {
        0 | 1 => Split::None,
        2 | 3 => Split::FixedSize(length(source, u32::MAX)),
        4 | 5 => Split::FixedCount(length(source, 128)),
        6 => Split::CacheBoundary,
        // Few multiprocessors are filled by small cases.
        _ => Split::Rule(source.pick(SplitRule::ALL), length(source, 1024)),
    }
}

/// A finite number of at least +0: every pattern below that of infinity.
fn magnitude(source: &mut dyn Source) -> f32 {
    f32::from_bits(source.below(0x7f80_0000) as u32)
}

fn rescale(source: &mut dyn Source) -> Rescale {
    match source.below(4) {
        0 => Rescale::Always,
        1 | 2 => Rescale::Threshold(source.pick(&[8.0, 0.0, 0.5, 4.0])),
        _ => Rescale::Threshold(magnitude(source)),
    }
}

fn exp(source: &mut dyn Source) -> Exp {
    match source.below(2) {
        0 => Exp::CorrectlyRounded,
        _ => Exp::Exp2Poly(source.range(2, 8)),
    }
}

fn max_init(source: &mut dyn Source) -> MaxInit {
    match source.below(4) {
        0 | 1 => MaxInit::NegInf,
        2 => MaxInit::Finite(source.pick(&[-5.0, 0.0, -1e4, -50_000.0])),
        _ => {
            let magnitude = magnitude(source);
            MaxInit::Finite(if flag(source) { -magnitude } else { magnitude })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Choices, Stream};
    use crate::subject::attention::reference::Reference;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_field_is_drawn() {
        let drawn: Vec<&str> = DRAWS.iter().map(|&(field, _)| field).collect();
        assert_eq!(drawn, Numerics::FIELDS, "one line for each field, in the same order");
        for &(field, draw) in DRAWS {
            // The line changes its own field and no other.
            let base = Reference::default().numerics;
            let mut changed = 0;
            for index in 0..100 {
                let mut numerics = base;
                draw(&mut numerics, &mut Stream::new(1, index));
                for other in Numerics::FIELDS {
                    assert!(*other == field || numerics.get(other) == base.get(other), "{field} changes {other}");
                }
                changed += u32::from(numerics.get(field) != base.get(field));
            }
            assert!(changed > 10, "{field}: {changed}");
        }
    }

    /// The forms that a field's values may take, from their description: `lanes`, `whole`, a number.
    fn forms(field: &str) -> BTreeSet<String> {
        let values = Numerics::values(field).expect("a field");
        let values = values.split_once(" (needs").map_or(values, |(values, _)| values);
        values.split(", ").map(|value| form(value.strip_prefix("or ").unwrap_or(value))).collect()
    }

    fn form(value: &str) -> String {
        match value {
            "a length" | "a number" => "number".into(),
            "-inf" => value.into(),
            _ if value.parse::<f32>().is_ok() => "number".into(),
            _ => value.split('(').next().unwrap_or(value).into(),
        }
    }

    #[test]
    fn every_value_is_reached_in_the_end() {
        let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut source = Stream::new(1, 0);
        for _ in 0..1000 {
            let mut numerics = Reference::default().numerics;
            numerics.redraw(29, &mut source);
            numerics.validate().expect("valid numerics stay valid");
            for field in Numerics::FIELDS {
                let value = numerics.get(field).expect("a field");
                let mut parsed = Reference::default().numerics;
                parsed.set(field, &value).expect("a drawn value is one that a name may hold");
                seen.entry(field).or_default().insert(value);
            }
        }
        for field in Numerics::FIELDS {
            let found: BTreeSet<String> = seen[field].iter().map(|value| form(value)).collect();
            assert_eq!(found, forms(field), "{field}");
        }
        let all = |field: &'static str, values: &mut dyn Iterator<Item = String>| {
            let draw = DRAWS.iter().find(|(name, _)| *name == field).expect("a field").1;
            let mut source = Stream::new(2, 0);
            let mut numerics = Reference::default().numerics;
            let mut seen = BTreeSet::new();
            for _ in 0..100_000 {
                draw(&mut numerics, &mut source);
                seen.extend(numerics.get(field));
            }
            for value in values {
                assert!(seen.contains(&value), "{field}={value} was not drawn");
            }
        };
        for field in ["score.order", "rowsum.order", "value.order"] {
            all(field, &mut (0..=6).map(|n| format!("lanes({})", 1 << n)));
            all(field, &mut (1..=64).map(|n| format!("fused({n})")));
        }
        all("softmax.exp", &mut (2..=8).map(|n| format!("exp2_poly({n})")));
        all("grid.split", &mut (1..=128).map(|n| format!("fixed_count({n})")));
        all("grid.split", &mut [1, 2, 7, 16, 63, 64, 65].map(|n| format!("fixed_size({n})")).into_iter());
        all("softmax.block", &mut [1, 2, 7, 16, 63, 64, 65].map(|n| n.to_string()).into_iter());
    }

    #[test]
    fn ends_of_the_ranges_can_be_chosen() {
        let last = |draw: Draw, list: Vec<u64>| {
            let mut numerics = Reference::default().numerics;
            draw(&mut numerics, &mut Choices::replay(list));
            numerics
        };
        let draw = |field: &str| DRAWS.iter().find(|(name, _)| *name == field).expect("a field").1;
        let most = u64::MAX;
        assert_eq!(last(draw("softmax.block"), vec![1, 7, most]).softmax.block, Block::Size(u32::MAX));
        assert_eq!(last(draw("grid.split"), vec![2, 7, most]).grid.split, Split::FixedSize(u32::MAX));
        assert_eq!(last(draw("softmax.rescale"), vec![3, most]).softmax.rescale, Rescale::Threshold(f32::MAX));
        assert_eq!(last(draw("softmax.max_init"), vec![3, most, 1]).softmax.max_init, MaxInit::Finite(f32::MIN));
    }

    #[test]
    fn a_dry_source_gives_the_plainest_values() {
        let mut numerics = Reference::parse("ref:fa2").expect("a preset").numerics;
        for (_, draw) in DRAWS {
            draw(&mut numerics, &mut Choices::replay(vec![]));
        }
        assert_eq!(numerics.score.order, Order::Sequential);
        assert_eq!((numerics.softmax.block, numerics.grid.split), (Block::Whole, Split::None));
        assert_eq!((numerics.softmax.rescale, numerics.softmax.max_init), (Rescale::Always, MaxInit::NegInf));
        assert_eq!((numerics.probs.dtype, numerics.store), (Dtype::F32, Store::Rne));
    }
}
