//! What a battery finds, beside what recipes promise; and what is missing for a PASS, one thing at a time.

mod verified;

use super::build::{Asked, build};
use super::certificate::Status;
use super::claim::Claim;
use super::kernel_text::kernel_text;
use super::record::{CaseRecord, Record};
use super::work::{Work, case_on};
use crate::finding::Path;
use crate::number::Dtype;
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
use std::sync::LazyLock;

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
    let names = |claims: &BTreeSet<Claim>| match claims.is_empty() {
        true => "none".to_owned(),
        false => claims.iter().map(|it| it.name()).collect::<Vec<_>>().join(", "),
    };
    let mut others = Vec::new();
    for preset in PRESETS {
        let [bits, recipes] = bits_and_recipes(preset.name, Size::Standard, u64::MAX);
        println!("{}: {}", preset.name, names(&bits));
        if bits != recipes {
            others.push(format!("{}: bits {}; recipes {}", preset.name, names(&bits), names(&recipes)));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// The quick battery on the kernel that passes it, and its records.
static PASSING: LazyLock<(Work, Vec<Record>)> = LazyLock::new(|| {
    let kernel = Implementation::reference(Reference::default());
    let attention =
        Attention::of(Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Enclosure, captured: None, witness: true });
    let claims = Claim::ALL.into_iter().filter(|&claim| claim != Claim::VersionEqual).collect();
    let work = Work::new(Battery::new(Size::Quick, 1, &attention), claims);
    let mut records = Vec::new();
    let jobs = std::thread::available_parallelism().map_or(1, |it| it.get());
    ordered(
        jobs,
        |n| n >= work.units(),
        || work.scratch(),
        |n, scratch| work.run(work.unit(n), scratch),
        |_, record| {
            records.push(record);
            Flow::Continue
        },
    );
    (work, records)
});

/// The claims of the passing records after a change, each with its status and reason.
fn decided(change: impl FnOnce(&mut Vec<Record>)) -> Result<Vec<(Claim, Status, String)>, String> {
    let (work, records) = &*PASSING;
    let mut records = records.clone();
    change(&mut records);
    let text = |side| kernel_text(side, "ref:aligned", work.battery.attention.pair.side(side)).expect("a part of this crate");
    let kernels = Path::BOTH.map(text);
    let asked = Asked { work, kernels, floor: 1.0, waivers: Vec::new(), previous: None, jobs: 0 };
    let claims = build(&asked, records.into_iter().map(Ok)).map_err(|refused| refused.to_string())?.predicate.lastbit.claims;
    Ok(claims.into_iter().map(|it| (it.claim.parse().expect("a claim"), it.status, it.reason)).collect())
}

/// What is true of each claim that a change touches, and that the others still pass.
fn expect(change: impl FnOnce(&mut Vec<Record>), touched: impl Fn(Claim) -> bool, status: Status, reason: &str) {
    for (claim, found, why) in decided(change).expect("records of this work") {
        match touched(claim) {
            true => assert!(found == status && why.contains(reason), "{claim}: {found}: {why}"),
            false => assert_eq!(found, Status::Pass, "{claim}: {why}"),
        }
    }
}

fn cases(records: &mut [Record]) -> impl Iterator<Item = &mut CaseRecord> {
    records.iter_mut().filter_map(|it| match it {
        Record::Case(case) => Some(case),
        Record::Mutant(_) | Record::Control(_) => None,
    })
}

/// A case of the random stratum, which nothing but a change of it touches.
fn random(records: &mut [Record]) -> &mut CaseRecord {
    cases(records).find(|it| it.part == Part::Random.name() && it.is_match()).expect("a random case")
}

fn of_bits(claim: Claim) -> bool {
    !matches!(claim, Claim::Accurate | Claim::RejectsOrCorrect)
}

#[test]
fn a_claim_passes_only_where_nothing_is_missing() {
    use Status::{Fail, Pass, Unverifiable};
    let nobody = |_: Claim| false;
    expect(|_| {}, nobody, Pass, "");
    let no_company = |it: &mut Vec<Record>| cases(it).for_each(|case| case.along.retain(|axis, _| axis != "company"));
    expect(no_company, |claim| claim == Claim::BatchInvariant, Unverifiable, "nothing was compared");
    let refused = |it: &mut Vec<Record>| {
        let case = random(it);
        *case = CaseRecord {
            skipped: vec![("infer".into(), "infer: no".into())],
            part: case.part.clone(),
            index: case.index,
            ..CaseRecord::default()
        };
    };
    expect(refused, |claim| claim != Claim::RejectsOrCorrect, Unverifiable, "not run: 1 times infer: no");
    let partly = |it: &mut Vec<Record>| random(it).skipped.push(("pair".into(), "empty rows".into()));
    expect(
        partly,
        |claim| matches!(claim, Claim::TrainEqInfer | Claim::Accurate),
        Unverifiable,
        "not compared: 1 times empty rows",
    );
    // One path refused, in whatever words: the other's results are no evidence of a pair, nor is the case one that ran.
    let one_sided = |it: &mut Vec<Record>| random(it).skipped.push(("infer".into(), "infer: page size is out of range".into()));
    expect(
        one_sided,
        |claim| claim != Claim::RejectsOrCorrect,
        Unverifiable,
        "not run: 1 times infer: page size is out of range",
    );
    let one_change = |it: &mut Vec<Record>| random(it).skipped.push(("pages".into(), "infer: no such page".into()));
    expect(one_change, |claim| claim == Claim::PageInvariant, Unverifiable, "changes not run: 1 times infer: no such page");
    let of_nothing_known = |it: &mut Vec<Record>| random(it).skipped.push(("pagez".into(), "infer: no".into()));
    expect(of_nothing_known, |claim| claim != Claim::RejectsOrCorrect, Unverifiable, "not run: 1 times infer: no");
    // Another knob is no evidence of splits.
    let no_splits = |it: &mut Vec<Record>| {
        for case in cases(it) {
            if case.part == Part::Splits.name() {
                case.along = [("knob workspace".to_owned(), [9, 0])].into();
            }
        }
    };
    expect(no_splits, |claim| claim == Claim::SplitInvariant, Unverifiable, "nothing was compared");
    expect(|it| random(it).undecided = 1, |claim| !of_bits(claim), Unverifiable, "1 elements that the oracle left undecided");
    expect(|it| random(it).accuracy[4] = 1, |claim| !of_bits(claim), Unverifiable, "1 elements whose bound is infinite");
    expect(
        |it| random(it).accuracy[5] = 1,
        |claim| !of_bits(claim),
        Unverifiable,
        "1 elements for which the declared arithmetic may overflow inside",
    );
    expect(|it| random(it).set_aside = 1, of_bits, Unverifiable, "1 differences of a kernel that does not repeat itself");
    let blind = |it: &mut Vec<Record>| cases(it).for_each(|case| case.sensitive = case.sensitive.map(|_| false));
    expect(blind, of_bits, Unverifiable, "none could have failed");
    let blind_in_bf16 = |it: &mut Vec<Record>| {
        for case in cases(it) {
            let part: Part = case.part.parse().expect("a stratum");
            let trial = PASSING.0.battery.trial(part, case.index);
            if trial.is_some_and(|it| it.case.problem.out_dtype == Dtype::BF16) {
                case.sensitive = case.sensitive.map(|_| false);
            }
        }
    };
    expect(blind_in_bf16, of_bits, Unverifiable, "no case with outputs in bf16 whose bits follow the order of its sums");
    let straight = |it: &mut Vec<Record>| cases(it).for_each(|case| case.reach = 0);
    expect(straight, |_| true, Unverifiable, "never reached: prefix hit");
    let survivor = |it: &mut Vec<Record>| {
        let mutant = it.iter_mut().find_map(|it| if let Record::Mutant(hunt) = it { Some(hunt) } else { None });
        mutant.expect("a planted fault").found = None;
    };
    expect(survivor, |_| true, Unverifiable, "54 of 55 planted faults were found, below the floor of 1: not A-M1");
    let quiet = |it: &mut Vec<Record>| {
        for record in it {
            if let Record::Control(hunt) = record
                && hunt.name == Claim::PrefixInvariant.name()
            {
                hunt.found = None;
            }
        }
    };
    expect(quiet, |claim| claim == Claim::PrefixInvariant, Unverifiable, "its negative control did not fail");
    let differs = |it: &mut Vec<Record>| random(it).failures.push(("mismatch o".into(), vec!["train_eq_infer".into()]));
    expect(differs, |claim| claim == Claim::TrainEqInfer, Fail, "1 of ");
    let unwritten = |it: &mut Vec<Record>| {
        random(it).failures.push(("fault infer unwritten o".into(), vec![Claim::RejectsOrCorrect.name().into()]));
    };
    for (claim, status, why) in decided(unwritten).expect("records") {
        let expected = if claim == Claim::RejectsOrCorrect { Fail } else { Unverifiable };
        assert_eq!(status, expected, "{claim}: {why}");
    }
    let nothing_ran = |it: &mut Vec<Record>| {
        cases(it).for_each(|case| *case = CaseRecord { part: case.part.clone(), index: case.index, ..CaseRecord::default() });
    };
    expect(nothing_ran, |_| true, Unverifiable, "5808 pairs of knob values were not covered");
}

#[test]
fn records_that_are_not_all_of_the_work_make_no_certificate() {
    assert!(decided(|it| drop(it.pop())).unwrap_err().ends_with("is missing"));
    assert!(decided(|it| it.push(it[0].clone())).unwrap_err().starts_with("there are more than"));
    assert!(decided(|it| it.swap(3, 4)).unwrap_err().starts_with("record 3: is not of"));
    // That a claim could have failed is shown with the calls that it is about, or not at all.
    let elsewhere = |it: &mut Vec<Record>| {
        let Some(Record::Control(control)) = it.last_mut() else { panic!("the last unit is a control") };
        control.elsewhere = true;
    };
    assert!(decided(elsewhere).unwrap_err().contains("is a control that failed with calls that these kernels do not take"));
}
