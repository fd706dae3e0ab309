//! What a battery finds, beside what recipes promise.

use super::claim::Claim;
use super::work::case_on;
use crate::ordered::{Flow, ordered};
use crate::subject::attention::Attention;
use crate::subject::attention::battery::{Battery, Part, Size};
use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::invariance::digest;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::reference::preset::PRESETS;
use std::collections::BTreeSet;

fn alone(kernel: &Implementation) -> Attention {
    let (train, infer) = (kernel.clone(), kernel.clone());
    // Digests of recipes are no results that an oracle could judge.
    Attention::of(Pair { train, infer, oracle: Mode::Off, captured: None, witness: false })
}

/// The claims that fail over a battery's cases. The oracle is off: those that need it are left out.
fn failing(battery: &Battery, attention: &Attention, most: u64) -> BTreeSet<Claim> {
    let cases: Vec<(Part, u64)> =
        Part::ALL.into_iter().flat_map(|part| (0..battery.cases(part).min(most)).map(move |index| (part, index))).collect();
    let mut claims = BTreeSet::new();
    let jobs = std::thread::available_parallelism().map_or(1, |it| it.get());
    ordered(
        jobs,
        |n| n >= cases.len() as u64,
        || attention.pair.scratch(),
        |n, scratch| case_on(battery, attention, cases[n as usize].0, cases[n as usize].1, scratch),
        |_, record| {
            let failures = record.map_or_else(Vec::new, |it| it.failures);
            claims.extend(failures.iter().flat_map(|(_, claims)| claims).map(|name| name.parse::<Claim>().expect("a claim")));
            Flow::Continue
        },
    );
    claims
}

/// The claims that fail in bits, and those that the recipes do not promise.
fn bits_and_recipes(preset: &str, size: Size, most: u64) -> [BTreeSet<Claim>; 2] {
    let kernel = Implementation::reference(Reference::parse(&format!("ref:{preset}")).expect("a preset"));
    let recipes = digest::kernel(&kernel).expect("a preset has recipes");
    let battery = Battery::new(size, 1, &alone(&kernel));
    [kernel, recipes].map(|it| failing(&battery, &alone(&it), most))
}

/// Exactly the claims fail that the recipes do not promise: each difference between two recipes has been seen in bits, and no bit differs
/// where recipes do not.
fn fails_as_its_recipe(preset: &str, size: Size, most: u64) -> BTreeSet<Claim> {
    let [bits, recipes] = bits_and_recipes(preset, size, most);
    assert_eq!(bits, recipes, "{preset}: bits, then recipes");
    bits
}

#[test]
fn a_preset_fails_what_its_recipe_does_not_promise() {
    assert!(fails_as_its_recipe("aligned", Size::Quick, 200).is_empty());
    assert!(fails_as_its_recipe("fixed-split", Size::Quick, 200).contains(&Claim::ParallelInvariant));
    assert!(fails_as_its_recipe("uncached-split", Size::Quick, 200).contains(&Claim::PrefixInvariant));
    // Head ranks change its splits too, which shows in too few of so few cases: no more than the recipe leaves open fails.
    let [bits, recipes] = bits_and_recipes("flash-decoding", Size::Quick, 200);
    assert!(bits.is_subset(&recipes) && bits.contains(&Claim::SplitInvariant), "{bits:?} of {recipes:?}");
}

#[test]
#[ignore = "a quarter of an hour: cargo test --release --lib certify -- --ignored"]
fn every_preset_fails_what_its_recipe_does_not_promise() {
    for preset in PRESETS {
        let claims = fails_as_its_recipe(preset.name, Size::Standard, u64::MAX);
        let names: Vec<&str> = claims.iter().map(|it| it.name()).collect();
        println!("{}: {}", preset.name, if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    }
}
