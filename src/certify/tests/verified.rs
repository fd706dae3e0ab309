//! What a certificate rests on besides its cases: an earlier certificate, planted faults and controls, and its counterexamples.

use super::{PASSING, cases, random};
use crate::certify::build::{Asked, Earlier, build};
use crate::certify::certificate::{Certificate, ClaimResult, Counterexample, Previous, Status, Waiver};
use crate::certify::claim::Claim;
use crate::certify::counterexample::{Failing, counterexample};
use crate::certify::digest::sha256;
use crate::certify::kernel_text::kernel_text;
use crate::certify::record::{CaseRecord, Record};
use crate::certify::statement::Statement;
use crate::certify::verify::{intact, load_intact, named_previous, same_content, same_counterexamples, same_previous};
use crate::certify::work::{Unit, Work};
use crate::finding::Path;
use crate::subject::attention::Attention;
use crate::subject::attention::battery::{Battery, Part, Size};
use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::reference::Reference;
use std::sync::LazyLock;

/// The work of [`PASSING`] with an earlier certificate: it has the same units.
static AGAINST: LazyLock<Work> = LazyLock::new(|| {
    let battery = &PASSING.0.battery;
    Work::new(Battery::new(battery.size, battery.seed, &battery.attention), Claim::ALL.to_vec())
});

/// The certificate of the passing records after a change.
fn made(change: impl FnOnce(&mut Vec<Record>), previous: Option<Earlier>) -> Certificate {
    let work = if previous.is_some() { &*AGAINST } else { &PASSING.0 };
    let mut records = PASSING.1.clone();
    change(&mut records);
    let text = |side| kernel_text(side, "ref:aligned", work.battery.attention.pair.side(side)).expect("a part of this crate");
    let asked = Asked { work, kernels: Path::BOTH.map(text), floor: 1.0, waivers: Vec::new(), previous, jobs: 0 };
    build(&asked, records.into_iter().map(Ok)).expect("records of this work").predicate.lastbit
}

fn there(certificate: &Certificate) -> Option<Earlier> {
    Some(Earlier::There(Box::new(certificate.clone())))
}

fn version_equal(certificate: &Certificate) -> &ClaimResult {
    certificate.claims.iter().find(|it| it.claim == Claim::VersionEqual.name()).expect("the claim")
}

#[test]
fn two_versions_are_equal_only_where_nothing_is_missing() {
    let earlier = made(|_| {}, None);
    let expect = |certificate: &Certificate, status: Status, reason: &str| {
        let claim = version_equal(certificate);
        assert!(claim.status == status && claim.reason.contains(reason), "{}: {}", claim.status, claim.reason);
    };
    let equal = made(|_| {}, there(&earlier));
    expect(&equal, Status::Pass, "have the same output bits");
    assert_eq!(equal.previous, Some(Previous::of(&earlier)));
    assert_eq!(earlier.previous, None);
    // Both versions refused the same calls: the bits of these are equal, there being none.
    let refused = |it: &mut Vec<Record>| {
        for case in cases(it).filter(|it| it.part == Part::Random.name()).skip(3) {
            let skipped = vec![("infer".to_owned(), "infer: no".to_owned())];
            *case = CaseRecord { part: case.part.clone(), index: case.index, skipped, ..CaseRecord::default() };
        }
    };
    expect(&made(refused, there(&made(refused, None))), Status::Unverifiable, "times infer: no");
    // Other blocks or limits put other cases at an index: their bits are not to be held against each other.
    let mut other = earlier.clone();
    other.strata.iter_mut().filter(|it| it.name == "random").for_each(|it| it.cases = "0".repeat(64));
    expect(&made(|_| {}, there(&other)), Status::Unverifiable, "gave the earlier certificate other cases in random");
    type Change = fn(&mut CaseRecord);
    let missing: [(Change, &str); 3] = [
        (|it| it.skipped.push(("pair".into(), "empty rows".into())), "not compared: 1 times empty rows"),
        (|it| it.set_aside = 1, "1 differences of a kernel that does not repeat itself"),
        (|it| it.failures.push(("fault infer failed".into(), vec!["rejects_or_correct".into()])), "1 cases ended in a fault"),
    ];
    for (change, reason) in missing {
        expect(&made(|it| change(random(it)), there(&earlier)), Status::Unverifiable, reason);
    }
    expect(&made(|it| random(it).outputs = "0".repeat(64), there(&earlier)), Status::Fail, "output bits changed in random;");
    let mut other = earlier.clone();
    other.battery.seed += 1;
    expect(&made(|_| {}, there(&other)), Status::Unverifiable, "is of another battery");
}

/// Without the earlier certificate a pass still needs all that the records show, and its name stays what it was.
#[test]
fn an_earlier_certificate_is_named_and_held_to_its_name() {
    let earlier = made(|_| {}, None);
    let equal = made(|_| {}, there(&earlier));
    same_content(&equal, &made(|_| {}, named_previous(&equal)), false).unwrap();
    let changed = made(|it| random(it).outputs = "0".repeat(64), there(&earlier));
    same_content(&changed, &made(|it| random(it).outputs = "0".repeat(64), named_previous(&changed)), false).unwrap();
    let mut forged = made(|it| random(it).set_aside = 1, there(&earlier));
    forged.claims.iter_mut().for_each(|it| it.status = Status::Pass);
    let again = made(|it| random(it).set_aside = 1, named_previous(&forged));
    assert_eq!(version_equal(&again).status, Status::Unverifiable, "{}", version_equal(&again).reason);
    // No reason for an open claim makes a pass.
    let mut forged = equal.clone();
    let claim = forged.claims.last_mut().expect("claims");
    claim.reason = "the earlier certificate is of another battery".into();
    assert_eq!(version_equal(&made(|_| {}, named_previous(&forged))).status, Status::Unverifiable);
    assert!(named_previous(&earlier).is_none());

    same_previous(&equal, &earlier).unwrap();
    let mut other = earlier.clone();
    other.kernels[1].measured_sha256 = Some(sha256("another build"));
    let reason = same_previous(&equal, &other).unwrap_err();
    assert!(reason.contains("previous.kernels.1.measured_sha256") || reason.contains("kernels.1.measured_sha256"), "{reason}");
    assert!(same_previous(&equal, &changed).unwrap_err().contains("digest"));
}

#[test]
fn an_earlier_certificate_that_was_changed_is_not_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = Statement::new(made(|_| {}, None)).print();
    std::fs::write(file.path(), &text).unwrap();
    load_intact(file.path()).unwrap();
    assert!(text.contains("\"planted\": 55"));
    std::fs::write(file.path(), text.replace("\"planted\": 55", "\"planted\": 54")).unwrap();
    let reason = load_intact(file.path()).unwrap_err().to_string();
    assert!(reason.contains("the seal does not hold"), "{reason}");
    // A field twice, of which this reader takes the second and another one the first; the same in one line.
    let twice = text.replacen("\"result\": ", "\"result\": \"FAILED\",\n    \"result\": ", 1);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for other in [twice, value.to_string()] {
        assert_ne!(other, text);
        std::fs::write(file.path(), other).unwrap();
        let reason = load_intact(file.path()).unwrap_err().to_string();
        assert!(reason.contains("the text is not the one that was written"), "{reason}");
    }
}

/// Terms on which `certify` writes nothing, sealed anew.
#[test]
fn terms_that_cannot_be_asked_for_are_not_intact() {
    let plain = made(|_| {}, None);
    let reason = |change: fn(&mut Certificate)| {
        let mut certificate = plain.clone();
        change(&mut certificate);
        let statement = Statement::new(certificate);
        intact(&statement, &statement.print()).unwrap_err()
    };
    assert!(reason(|it| it.power.mutants.floor = -1.0).contains("power.mutants.floor: -1 is no share"));
    let waiver = |issue: &str, until: &str| Waiver { claim: "accurate".into(), issue: issue.into(), until: until.into() };
    let whole = waiver("https://example.org/1", "2026-11-30");
    assert!(intact(&Statement::new(plain.clone()), &Statement::new(plain.clone()).print()).is_ok());
    for (waiver, expected) in [
        (waiver("ask Bob", "2026-11-30"), "waivers[0].issue: `ask Bob` is no link"),
        (waiver("https://example.org/1", "never"), "waivers[0].until: `never` is no day"),
        (Waiver { claim: "acurate".into(), ..whole }, "waivers[0].claim: "),
    ] {
        let mut certificate = plain.clone();
        certificate.waivers.push(waiver);
        let statement = Statement::new(certificate);
        let reason = intact(&statement, &statement.print()).unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    }
}

/// Every field of their lines counts, also those that no sum is made of.
#[test]
fn planted_faults_and_controls_are_under_a_digest() {
    let digest = made(|_| {}, None).power.records;
    for last in [false, true] {
        let changed = made(
            |it| {
                let mut hunts = it.iter_mut().filter_map(|it| match it {
                    Record::Mutant(hunt) | Record::Control(hunt) => Some(hunt),
                    Record::Case(_) => None,
                });
                let hunt = if last { hunts.next_back() } else { hunts.next() };
                hunt.expect("hunts").cases += 1;
            },
            None,
        );
        assert_ne!(changed.power.records, digest);
    }
}

#[test]
fn a_hunt_is_done_again_by_the_case_that_it_names() {
    let (work, records) = &*PASSING;
    let mut scratch = work.scratch();
    let hunt = |is_control: bool| {
        let kind = |unit| matches!((unit, is_control), (Unit::Mutant(_), false) | (Unit::Control(_), true));
        (0..work.units()).find(|&n| kind(work.unit(n))).expect("a unit")
    };
    for n in [hunt(false), hunt(true)] {
        let (unit, record) = (work.unit(n), &records[n as usize]);
        assert_eq!(work.run_beside(unit, record, &mut scratch), *record, "{unit:?}");
        let edit = |change: &dyn Fn(&mut crate::certify::record::HuntRecord)| {
            let mut forged = record.clone();
            if let Record::Mutant(hunt) | Record::Control(hunt) = &mut forged {
                change(hunt);
            }
            forged
        };
        for forged in [
            edit(&|it| it.signature = Some("mismatch nothing".into())),
            edit(&|it| it.found = Some("kept 0".into())),
            edit(&|it| it.found = Some("pairs 99999999".into())),
            edit(&|it| it.found = None),
            edit(&|it| it.name = "another".into()),
            // These kernels take all calls: there is no elsewhere.
            edit(&|it| it.elsewhere = true),
            records[0].clone(),
        ] {
            let again = work.run_beside(unit, &forged, &mut scratch);
            assert!(again == *record && again != forged, "{forged:?}");
        }
    }
}

/// A certificate with a counterexample, and the work that it is of.
fn failing() -> (Work, Certificate) {
    let kernel = |words: &str| Implementation::reference(Reference::parse(words).expect("a kernel"));
    let (train, infer) = (kernel("ref:aligned"), kernel("ref:aligned,softmax.block=16"));
    let attention = Attention::of(Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: true });
    let work = Work::new(Battery::new(Size::Quick, 1, &attention), PASSING.0.claims.clone());
    let mut scratch = work.scratch();
    let part = Part::Random;
    let found = (0..work.battery.cases(part)).find_map(|index| {
        let Record::Case(record) = work.run(Unit::Case(part, index), &mut scratch) else { return None };
        let (signature, _) = record.failures.into_iter().find(|(signature, _)| signature == "mismatch o")?;
        Some(Failing { part, index, signature, claims: vec![Claim::TrainEqInfer] })
    });
    let example = counterexample(&work, &found.expect("a failing case")).expect("it fails again");
    let mut certificate = made(|_| {}, None);
    certificate.claims[0].counterexamples = vec![example.sha256.clone()];
    certificate.counterexamples = vec![example];
    (work, certificate)
}

#[test]
fn a_counterexample_is_what_its_case_makes() {
    let (work, certificate) = failing();
    same_counterexamples(&certificate, &work).unwrap();
    let refusal = |edit: &dyn Fn(&mut Counterexample)| {
        let mut forged = certificate.clone();
        edit(&mut forged.counterexamples[0]);
        same_counterexamples(&forged, &work).expect_err("forged")
    };
    type Edit<'a> = &'a dyn Fn(&mut Counterexample);
    let edits: [(Edit<'_>, &str); 12] = [
        (&|it| it.cause = "order: none".into(), "cause"),
        (&|it| it.kind = "order".into(), "kind"),
        (&|it| it.verdict = "all is well".into(), "verdict"),
        (&|it| it.size = "1 row".into(), "size"),
        (&|it| it.kv = 1, "kv"),
        (&|it| it.file = "../../other.case".into(), "file"),
        (&|it| it.replay = "true".into(), "replay"),
        (&|it| it.claims.push("accurate".into()), "does not fail accurate"),
        (&|it| it.claims.clear(), "fails no claim"),
        (&|it| it.from = "outside 0".into(), "no case of the battery"),
        (&|it| it.from = "pairs 99999999".into(), "no case of the battery"),
        (&|it| it.text.push('\n'), "digest"),
    ];
    for (edit, reason) in edits {
        let found = refusal(edit);
        assert!(found.contains(reason), "{reason}: {found}");
    }
    // Sealed anew over another text.
    let text = |from: &str, to: &str| {
        refusal(&|it| {
            assert!(it.text.contains(from), "{from}: {}", it.text);
            it.text = it.text.replace(from, to);
            it.sha256 = sha256(&it.text);
        })
    };
    assert!(text("# mismatch o", "# all is well").contains("text"));
    assert!(text("format = 1", "format = 77").contains("is no case"));
    let mut unnamed = certificate.clone();
    unnamed.claims[0].counterexamples.clear();
    assert!(same_counterexamples(&unnamed, &work).unwrap_err().contains("counterexamples of train_eq_infer"));
}

/// Tensors that nobody has given are a reason, and no panic.
#[test]
fn a_counterexample_of_captured_tensors_needs_those_of_its_stratum() {
    let (work, certificate) = failing();
    let mut forged = certificate.clone();
    let it = &mut forged.counterexamples[0];
    let mut file = crate::subject::attention::text::parse(&it.text, "a.case").unwrap();
    file.case.data = crate::subject::attention::Data::Captured { sha256: sha256("tensors") };
    it.text = crate::subject::attention::text::print(&file);
    it.sha256 = sha256(&it.text);
    let reason = same_counterexamples(&forged, &work).unwrap_err();
    assert!(reason.contains("is of captured tensors"), "{reason}");
}
