use super::*;
use crate::finding::Kind;
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject as _;
use crate::subject::attention::Attention;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::reference::Reference;

fn pair(train: &str, infer: &str) -> Pair {
    let of = |name: &str| Implementation::reference(Reference::parse(name).expect("a kernel's name"));
    Pair { train: of(train), infer: of(infer), oracle: Mode::Enclosure, captured: None, witness: false }
}

/// The causes of the findings of some kind in drawn cases.
fn causes(pair: &Pair, kind: Kind, cases: u64) -> Vec<(Pair, Trial, Finding, Cause)> {
    let attention = Attention::of(pair.clone());
    let mut scratch = attention.scratch();
    let mut found = Vec::new();
    for index in 0..cases {
        let trial = attention.draw(3, index);
        let verdict = attention.check(&trial, &mut scratch);
        let Some(finding) = verdict.findings.iter().find(|it| it.kind() == kind) else { continue };
        let focused = attention.focus(&trial, finding);
        if let Some(cause) = cause(pair, &focused, finding, &[], &mut scratch) {
            found.push((pair.clone(), focused, finding.clone(), cause));
        }
    }
    found
}

/// Making the named fields equal removes the finding, and leaving any of them out brings it back.
#[test]
fn the_set_is_enough_and_none_of_it_can_be_spared() {
    let mut several = 0;
    for (train, infer) in [("ref:fa3", "ref:naive"), ("ref:aligned", "ref:fa2"), ("ref:naive", "ref:fixed-split")] {
        let pair = pair(train, infer);
        for (pair, trial, finding, cause) in causes(&pair, Kind::Mismatch, 6) {
            let Evidence::Fields { fields, least } = &cause.evidence else { panic!("{cause}") };
            assert!(least, "{cause}");
            several += usize::from(fields.len() > 1);
            let shows = |names: &[&Field]| {
                let mut changed = pair.clone();
                let mut kernel = (**changed.infer.reference.as_ref().expect("a reference")).clone();
                for field in names {
                    kernel.numerics.set(&field.name, &field.values[0]).expect("a value");
                }
                if kernel.numerics.validate().is_err() {
                    return true;
                }
                changed.infer = Implementation::reference(kernel);
                let verdict = changed.check(&trial, &mut changed.scratch());
                verdict.findings.iter().any(|it| it.signature() == finding.signature())
            };
            assert!(!shows(&fields.iter().collect::<Vec<_>>()), "{cause}");
            for spared in fields {
                assert!(shows(&fields.iter().filter(|it| *it != spared).collect::<Vec<_>>()), "{} of {cause}", spared.name);
            }
        }
    }
    assert!(several >= 3, "{several} sets of more than one field");
}

#[test]
fn the_headline_is_the_first_kind_of_the_set_and_the_rest_is_grouped() {
    let field = |name: &str| Field { name: name.into(), values: ["a".into(), "b".into()], kind: kind_of(name) };
    let cause = |names: &[&str], least| {
        let fields: Vec<Field> = names.iter().map(|name| field(name)).collect();
        Cause { kind: fields[0].kind, evidence: Evidence::Fields { fields, least } }
    };
    assert_eq!(cause(&["finish"], true).to_string(), "precision: finish: a against b");
    assert_eq!(
        cause(&["grid.split", "finish", "score.fma"], true).to_string(),
        "order: grid.split: a against b; precision: finish: a against b, score.fma: a against b (only together)"
    );
    assert!(cause(&["finish", "score.fma"], false).to_string().ends_with(" (together; perhaps not all of them are needed)"));
}

/// Every field has a kind on purpose: a new one must be put in the table, or be precision.
#[test]
fn the_table_knows_every_field_that_is_no_rounding() {
    let of = |kind| Numerics::FIELDS.iter().copied().filter(|field| kind_of(field) == kind).collect::<Vec<_>>();
    assert_eq!(of(CauseKind::Semantics), Vec::<&str>::new());
    assert_eq!(of(CauseKind::Order).len() + of(CauseKind::Blocking).len(), 13);
}

/// What a kernel claims and does not do, in two fields that only go together.
#[test]
fn a_claim_is_unified_too() {
    let pair = pair("ref:aligned", "ref:naive,probs.dtype=bf16,store=truncate,profile=aligned");
    let found = causes(&pair, Kind::Inaccurate, 30);
    assert!(!found.is_empty());
    for (.., cause) in found {
        assert_eq!(cause.kind, CauseKind::Precision, "{cause}");
        assert!(cause.to_string().contains("claimed as "), "{cause}");
    }
}

/// A kernel with a planted fault on both sides, or on the inference side beside the same kernel without it.
fn planted(mutant: Mutant, both: bool) -> Pair {
    let mutated = Reference::parse(&format!("ref:aligned+{mutant}")).expect("a kernel's name");
    let mut clean = mutated.clone();
    clean.mutant = None;
    let train = if both { mutated.clone() } else { clean };
    let of = Implementation::reference;
    Pair { train: of(train), infer: of(mutated), oracle: Mode::Enclosure, captured: None, witness: false }
}

/// The first finding of a kind in a campaign, shrunk, and its cause.
fn hunted(pair: &Pair, kind: Kind, cases: u64) -> Option<(Trial, Finding, Result<Cause, Unknown>, std::time::Duration)> {
    let attention = Attention::of(pair.clone());
    let mut scratch = attention.scratch();
    let (trial, finding) = (0..cases).find_map(|index| {
        let trial = attention.draw(1, index);
        let finding = attention.check(&trial, &mut scratch).findings.into_iter().find(|it| it.kind() == kind)?;
        Some((trial, finding))
    })?;
    let small = shrink(&attention, &trial, &finding.signature(), BUDGET, &mut scratch)?;
    let started = std::time::Instant::now();
    let found = find(pair, &small.trial, &small.finding, &[], &mut scratch);
    Some((small.trial, small.finding, found, started.elapsed()))
}

#[test]
#[ignore = "a survey"]
fn survey() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for &mutant in Mutant::ALL {
        let entry = mutant.entry();
        if !entry.id.contains(&only) {
            continue;
        }
        for both in [true, false] {
            for (kind, cases) in [(Kind::Inaccurate, 1500), (Kind::Mismatch, 1500), (Kind::NotInvariant, 1500)] {
                if let Some((trial, finding, found, took)) = hunted(&planted(mutant, both), kind, cases) {
                    let s = &trial.case.problem.sequences;
                    let right = found.as_ref().is_ok_and(|it| it.kind == entry.cause);
                    let text = found.as_ref().map_or_else(|it| it.to_string(), |it| it.to_string());
                    let mark = if right { "ok  " } else { "MISS" };
                    println!(
                        "{mark} {} both={both} want {} [{} | {:?} | {}] {:?}: {text}",
                        entry.id,
                        entry.cause,
                        finding.signature(),
                        finding.relation(),
                        s.iter().map(|s| format!("q{} kv{}", s.q, s.kv)).collect::<Vec<_>>().join(","),
                        took
                    );
                }
            }
        }
    }
    for path in std::fs::read_dir("corpora/regressions/attention").unwrap() {
        let path = path.unwrap().path();
        let loaded = crate::subject::attention::file::load(&path, None).unwrap();
        let mut pair = loaded.pair.clone();
        let mut scratch = pair.scratch();
        let verdict = pair.check(&loaded.trial, &mut scratch);
        let finding = verdict.findings.iter().find(|it| it.signature() == loaded.file.run.expect).unwrap();
        pair.train = Implementation::kernel(pair.train.kernel.clone());
        pair.infer = Implementation::kernel(pair.infer.kernel.clone());
        let started = std::time::Instant::now();
        let found = find(&pair, &loaded.trial, finding, &[], &mut scratch);
        let text = found.as_ref().map_or_else(|it| it.to_string(), |it| it.to_string());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let right = found.as_ref().is_ok_and(|it| name.starts_with(&it.kind.to_string()));
        println!("{} {name} {:?}: {text}", if right { "ok  " } else { "MISS" }, started.elapsed());
    }
}
