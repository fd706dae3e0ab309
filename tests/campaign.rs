//! The loop: its output does not depend on threads or the clock, its memory is bounded, and nothing that panics makes it hang.

mod harness;

use harness::references;
use lastbit::finding::{Fault, Finding, Path, Skip, Verdict};
use lastbit::lab::{Campaign, Done, Flow, Length, OTHER_REASONS, SKIP_REASONS, Statistics, run};
use lastbit::number::Dtype;
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::{Candidate, Subject};
use lastbit::tensor::Index;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

/// A subject whose case is its index and whose check is a closure.
struct Stub<F: Fn(u64) -> Verdict + Sync> {
    drawn: AtomicU64,
    check: F,
}

impl<F: Fn(u64) -> Verdict + Sync> Stub<F> {
    fn new(check: F) -> Self {
        Stub { drawn: AtomicU64::new(0), check }
    }
}

impl<F: Fn(u64) -> Verdict + Sync> Subject for Stub<F> {
    type Trial = u64;
    type Scratch = ();

    fn scratch(&self) {}
    fn draw(&self, _seed: u64, index: u64) -> u64 {
        self.drawn.fetch_add(1, SeqCst);
        index
    }
    fn check(&self, trial: &u64, (): &mut ()) -> Verdict {
        (self.check)(*trial)
    }
    fn focus(&self, trial: &u64, _finding: &Finding) -> u64 {
        *trial
    }
    fn size(&self, trial: &u64) -> Vec<u64> {
        vec![*trial]
    }
    fn positions(&self, _trial: &u64, _pass: usize) -> Option<usize> {
        None
    }
    fn smaller(&self, _trial: &u64, _pass: usize, _position: usize) -> Vec<Candidate<u64>> {
        Vec::new()
    }
    fn redraw(&self, _trial: &u64, _n: u32) -> Option<u64> {
        None
    }
}

fn cases(count: u64, jobs: usize) -> Campaign {
    Campaign { seed: 5, first: 0, length: Length::Cases(count), jobs }
}

/// Runs on another thread and fails when that has not ended in time, where the campaign would hang.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(Duration::from_secs(30)).expect("the campaign hangs")
}

#[test]
fn verdicts_do_not_depend_on_threads_or_the_clock() {
    let mut attention = references("ref:aligned", "ref:aligned,softmax.block=4", Mode::Enclosure);
    attention.pair.witness = true;
    let collect = |campaign: Campaign| {
        let mut all = Vec::new();
        run(&attention, campaign, |Done { index, trial, verdict }| {
            assert_eq!(index, all.len() as u64, "in order, without gaps");
            all.push((trial, verdict));
            Flow::Continue
        });
        all
    };
    let one = collect(cases(250, 1));
    assert_eq!(one.len(), 250);
    assert!(one.iter().any(|(_, verdict)| verdict.failure().is_some()) && one.iter().any(|(_, verdict)| verdict.is_match()));
    for jobs in [2, 5] {
        assert!(collect(cases(250, jobs)) == one, "{jobs} threads");
    }
    for (jobs, milliseconds) in [(1, 20), (2, 40), (3, 0)] {
        let length = Length::Time(Duration::from_millis(milliseconds));
        let timed = collect(Campaign { seed: 5, first: 0, length, jobs });
        assert_eq!(timed.is_empty(), milliseconds == 0, "{} cases", timed.len());
        let shared = timed.len().min(one.len());
        assert!(timed[..shared] == one[..shared], "the shorter run is a prefix of the longer");
    }
    for (first, jobs) in [(100, 1), (249, 3), (250, 2), (300, 2)] {
        let mut rest = Vec::new();
        run(&attention, Campaign { first, ..cases(250, jobs) }, |done| {
            assert_eq!(done.index, first + rest.len() as u64);
            rest.push((done.trial, done.verdict));
            Flow::Continue
        });
        assert!(rest == one[(first as usize).min(250)..], "a later part, from case {first}");
    }
    let other_seed = attention.draw(6, 0);
    assert!(other_seed != one[0].0, "the seed matters");
}

#[test]
fn stopping_drops_later_cases() {
    for jobs in [1, 2, 5] {
        let seen = in_time(move || {
            let mut seen = Vec::new();
            run(&Stub::new(|_| Verdict::default()), cases(u64::MAX, jobs), |done| {
                seen.push(done.index);
                if done.index == 20 { Flow::Stop } else { Flow::Continue }
            });
            seen
        });
        assert_eq!(seen, (0..=20).collect::<Vec<_>>(), "{jobs} threads");
    }
}

#[test]
fn no_cases() {
    let stub = Stub::new(|_| Verdict::default());
    run(&stub, cases(0, 3), |_| panic!("there is no case"));
    assert_eq!(stub.drawn.load(SeqCst), 0);
    // No threads would be no work: one is the least.
    let mut seen = 0;
    run(&stub, cases(3, 0), |_| {
        seen += 1;
        Flow::Continue
    });
    assert_eq!(seen, 3);
}

#[test]
fn a_panic_in_a_check_surfaces() {
    for jobs in [1, 2, 5] {
        let (panicked, seen) = in_time(move || {
            let stub = Stub::new(|index| {
                assert!(index != 7, "case seven");
                Verdict::default()
            });
            let mut seen = Vec::new();
            let result = catch_unwind(AssertUnwindSafe(|| {
                run(&stub, cases(u64::MAX, jobs), |done| {
                    seen.push(done.index);
                    Flow::Continue
                });
            }));
            (result.is_err(), seen)
        });
        assert!(panicked, "{jobs} threads");
        assert!(seen.iter().copied().eq(0..seen.len() as u64) && seen.len() <= 7, "{jobs} threads: {seen:?}");
    }
}

#[test]
fn a_panic_of_the_caller_surfaces() {
    for jobs in [1, 2, 5] {
        let panicked = in_time(move || {
            let stub = Stub::new(|_| Verdict::default());
            catch_unwind(AssertUnwindSafe(|| run(&stub, cases(u64::MAX, jobs), |_| panic!("the caller's")))).is_err()
        });
        assert!(panicked, "{jobs} threads");
    }
}

/// Finished cases wait for a slow one, but only so many.
#[test]
fn memory_is_bounded() {
    const WINDOW: u64 = 64;
    for jobs in [2, 5] {
        let stub = Arc::new(Stub::new(|index| {
            if index == 0 {
                std::thread::sleep(Duration::from_millis(300));
            }
            Verdict::default()
        }));
        let mut waiting = 0;
        run(&*stub, cases(4 * WINDOW * jobs, jobs as usize), |done| {
            let written = done.index + 1;
            waiting = waiting.max(stub.drawn.load(SeqCst).saturating_sub(written));
            Flow::Continue
        });
        // All others were drawn while case 0 slept, up to the window and no further.
        assert!(waiting <= WINDOW * jobs, "{waiting} cases wait with {jobs} threads");
        assert!(waiting >= WINDOW * jobs - 1, "only {waiting} cases wait with {jobs} threads");
        assert_eq!(stub.drawn.load(SeqCst), 4 * WINDOW * jobs);
    }
}

/// A kernel may word its refusals as it likes: what is kept of them does not grow with the cases, and each is counted.
#[test]
fn statistics_are_bounded_and_count_every_case_once() {
    let mut statistics = Statistics::default();
    let skipped = |reason: String| Finding::Skipped { what: Skip::Case, reason };
    let undecided = || Finding::Undecided { output: "o", elements: 1, index: Index(Vec::new()) };
    let fault = || Finding::Fault { path: Path::Train, fault: Fault::Failed("no memory".into()), relation: None };
    for n in 0..10 * SKIP_REASONS {
        let reason = format!("kv = {n} is too long");
        let mut add = |findings, compared| statistics.add(&Verdict { findings, compared, ..Verdict::default() }, Dtype::F32, 1);
        add(vec![undecided(), skipped(reason.clone())], 1);
        add(vec![undecided()], 1);
        add(vec![skipped(reason), fault()], 0);
        add(Vec::new(), 1);
        add(Vec::new(), 0);
    }
    let each = 10 * SKIP_REASONS as u64;
    let it = &statistics;
    assert_eq!([it.skipped, it.undecided, it.failed, it.matches, it.empty], [each; 5]);
    assert_eq!(it.cases, 5 * each);
    assert_eq!(it.skips.len(), SKIP_REASONS + 1);
    assert_eq!(it.skips["kv = 0 is too long"], 2);
    assert_eq!(it.skips[OTHER_REASONS], 2 * (each - SKIP_REASONS as u64));
    assert_eq!(it.skips.values().sum::<u64>(), 2 * each);
}
