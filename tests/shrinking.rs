//! What the shrinker promises, on failing trials of several kinds.

mod harness;

use harness::{against, references};
use lastbit::finding::Finding;
use lastbit::lab::{Campaign, Flow, Length, run};
use lastbit::shrink::{BUDGET, Shrunk, shrink};
use lastbit::subject::Subject;
use lastbit::subject::attention::conventions::Conventions;
use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use lastbit::subject::attention::numerics::Numerics;
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::trial::Trial;
use lastbit::subject::attention::{Attention, file, text, validate};
use std::sync::atomic::{AtomicU64, Ordering};

/// Pairs, and the start of the signatures to shrink.
const PAIRS: [(&str, &str, &str); 13] = [
    ("ref:aligned", "ref:aligned,softmax.block=4", "mismatch o"),
    ("ref:aligned", "ref:fixed-split", "mismatch"),
    ("ref:aligned", "ref:p-bf16", "mismatch o"),
    ("ref:aligned", "ref:folded-log2e", "mismatch lse"),
    ("ref:aligned", "ref:aligned,actual.anchor=top_left", "mismatch"),
    ("ref:aligned", "ref:aligned,actual.window=one_more", "mismatch lse"),
    ("ref:uncached-split,grid.split=fixed_size(4)", "ref:uncached-split,grid.split=fixed_size(4)", "not_invariant"),
    ("ref:aligned,grid.anchor=buffer,softmax.block=3", "ref:aligned", "not_invariant train padding"),
    ("ref:scores-bf16,profile=aligned", "ref:scores-bf16,profile=aligned", "inaccurate"),
    ("ref:fixed-split,grid.context=gather_partials", "ref:fixed-split,grid.context=gather_partials", "not_invariant infer ranks"),
    ("ref:aligned", "ref:aligned,grid.context=ring_lse", "mismatch"),
    ("ref:aligned", "ref:aligned,kv.descale=folded", "mismatch"),
    ("ref:aligned", "ref:aligned,actual.kv_scales=ignored", "mismatch lse"),
];

/// Failing trials of each pair.
const PER_PAIR: usize = 3;

fn failing(attention: &Attention, wanted: &str) -> Vec<(Trial, Finding)> {
    let mut found = Vec::new();
    run(attention, Campaign { seed: 3, first: 0, length: Length::Cases(1000), jobs: 1 }, |done| {
        let hit = done.verdict.findings.into_iter().find(|finding| finding.signature().starts_with(wanted));
        found.extend(hit.map(|finding| (done.trial, finding)));
        if found.len() < PER_PAIR { Flow::Continue } else { Flow::Stop }
    });
    assert_eq!(found.len(), PER_PAIR, "`{wanted}` was not found often enough");
    found
}

fn shrunk(attention: &Attention, trial: &Trial, signature: &str, budget: u64) -> Shrunk<Trial> {
    shrink(attention, trial, signature, budget, &mut attention.scratch()).expect("a failing trial")
}

fn fails(attention: &Attention, trial: &Trial, signature: &str) -> Option<Finding> {
    let verdict = attention.check(trial, &mut attention.scratch());
    verdict.findings.into_iter().find(|finding| finding.signature() == signature)
}

fn promises(attention: &Attention, trial: &Trial, signature: &str) -> Shrunk<Trial> {
    let small = shrunk(attention, trial, signature, BUDGET);
    assert!(!small.exhausted);
    validate(&small.trial.case).expect("a valid case");
    assert!(attention.size(&small.trial) <= attention.size(trial), "{signature}");
    assert_eq!(fails(attention, &small.trial, signature).as_ref(), Some(&small.finding), "the result still fails");

    let again = shrunk(attention, trial, signature, BUDGET);
    assert_eq!((&again.trial, &again.finding, again.evaluations), (&small.trial, &small.finding, small.evaluations));
    let fixed = shrunk(attention, &small.trial, signature, BUDGET);
    assert_eq!((&fixed.trial, &fixed.finding), (&small.trial, &small.finding), "shrinking a shrunk trial changes nothing");

    let size = attention.size(&small.trial);
    let (mut pass, mut steps) = (0, 0);
    while let Some(positions) = attention.positions(&small.trial, pass) {
        for position in 0..positions {
            for candidate in attention.smaller(&small.trial, pass, position) {
                validate(&candidate.trial.case).unwrap_or_else(|error| panic!("a step to an invalid case: {error}"));
                if attention.size(&candidate.trial) < size {
                    steps += 1;
                    let still = fails(attention, &candidate.trial, signature);
                    assert!(still.is_none(), "{signature}: pass {pass}, position {position} is smaller and still fails");
                }
            }
        }
        pass += 1;
    }
    println!("{signature}: {} evaluations, {steps} smaller steps tried", small.evaluations);
    assert!(steps > 0);
    small
}

fn budgets(attention: &Attention, trial: &Trial, signature: &str, full: &Shrunk<Trial>) {
    for budget in [2, 3, 10, full.evaluations / 2, full.evaluations - 1] {
        let part = shrunk(attention, trial, signature, budget);
        // The trial is run twice before anything is tried.
        assert!(part.exhausted && part.evaluations <= budget.max(2), "{} of {budget}", part.evaluations);
        assert!(attention.size(&part.trial) >= attention.size(&full.trial));
        assert!(fails(attention, &part.trial, signature).is_some());
    }
    let exact = shrunk(attention, trial, signature, full.evaluations);
    assert!(!exact.exhausted, "a fixed point reached with the last evaluation is one");
    assert_eq!(exact.trial, full.trial);
}

/// The file of a shrunk case loads to the same case, kernels and verdict, and meets what it expects.
fn round_trip(attention: &Attention, small: &Shrunk<Trial>) {
    let written = file::file("why it is kept".into(), &attention.pair, &small.trial, Some(&small.finding));
    let printed = text::print(&written);
    assert_eq!(text::parse(&printed, "x.case").expect("printed text parses"), written);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.case");
    std::fs::write(&path, &printed).expect("written");
    let loaded = file::load(&path, None).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(loaded.trial.case, small.trial.case);
    let check = |pair: &lastbit::subject::attention::check::Pair| pair.check(&small.trial, &mut pair.scratch());
    assert_eq!(check(&loaded.pair), check(&attention.pair));
    let explanation = explain(&loaded.pair, &loaded.trial, "x.case", None);
    assert!(explanation.meets(&loaded.file.run.expect), "{}", explanation.text);
}

fn check_pair(n: usize) {
    let (train, infer, wanted) = PAIRS[n];
    let oracle = if wanted == "inaccurate" { Mode::Enclosure } else { Mode::Off };
    let attention = references(train, infer, oracle);
    for (n, (trial, finding)) in failing(&attention, wanted).into_iter().enumerate() {
        let signature = finding.signature();
        let small = promises(&attention, &trial, &signature);
        round_trip(&attention, &small);
        if n == 0 {
            budgets(&attention, &trial, &signature, &small);
        }
    }
}

macro_rules! pairs {
    ($($name:ident $n:literal)+) => {
        $(#[test]
        fn $name() {
            check_pair($n);
        })+
    };
}
pairs! {
    blocks 0 splits 1 weights 2 exponentials 3 anchors 4 windows 5 prefixes 6 padding 7 accuracy 8 gathered 9 rings 10 descaling 11 scales 12
}

/// Fails on every call with seven keys or more in an entry.
struct Short(Reference);

impl AttentionKernel for Short {
    fn identity(&self) -> Identity {
        Identity::cpu("short", "1")
    }
    fn conventions(&self) -> Conventions {
        self.0.conventions()
    }
    fn numerics(&self) -> Option<Numerics> {
        None
    }
    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.0.varlen(call, outputs)
    }
    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.0.dense(call, outputs)
    }
    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        match call.cache_seqlens.iter().find(|&&kv| kv >= 7) {
            Some(kv) => Err(KernelError::Failed(format!("{kv} keys"))),
            None => self.0.paged(call, outputs),
        }
    }
}

#[test]
fn faults() {
    let attention = against(Short(Reference::default()), Mode::Off);
    for (trial, finding) in failing(&attention, "fault infer failed") {
        let small = promises(&attention, &trial, &finding.signature());
        let sequences = &small.trial.case.problem.sequences;
        assert_eq!((sequences.len(), sequences[0].q, sequences[0].kv), (1, 1, 7));
    }
}

#[test]
fn a_signature_that_does_not_occur() {
    let attention = references("ref:aligned", "ref:aligned", Mode::Off);
    let trial = attention.draw(1, 0);
    assert!(shrink(&attention, &trial, "mismatch o", BUDGET, &mut attention.scratch()).is_none());
}

/// A kernel that does not repeat itself: shrinking ends and never claims a finding that it has not seen.
#[test]
fn a_flaky_kernel_ends() {
    struct Flaky(Reference, AtomicU64);
    impl AttentionKernel for Flaky {
        fn identity(&self) -> Identity {
            Identity::cpu("flaky", "1")
        }
        fn conventions(&self) -> Conventions {
            self.0.conventions()
        }
        fn numerics(&self) -> Option<Numerics> {
            None
        }
        fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            self.0.varlen(call, outputs)
        }
        fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            self.0.dense(call, outputs)
        }
        fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
            match self.1.fetch_add(1, Ordering::Relaxed) % 3 {
                0 => Err(KernelError::Failed("out of luck".into())),
                _ => self.0.paged(call, outputs),
            }
        }
    }
    let attention = against(Flaky(Reference::default(), AtomicU64::new(0)), Mode::Off);
    let mut shrunk = 0;
    for index in 0..30 {
        let trial = attention.draw(1, index);
        let result = shrink(&attention, &trial, "fault infer failed", 2000, &mut attention.scratch());
        if let Some(small) = result {
            shrunk += 1;
            assert!(small.evaluations <= 2000);
            assert_eq!(small.finding.signature(), "fault infer failed");
        }
    }
    assert!(shrunk > 0);
}
