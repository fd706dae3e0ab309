//! A kernel over the pipe has the bits it has in this process.

use crate::calls::{broken, call, call_of};
use crate::child::{command, patient, serving, short, start};
use lastbit::finding::{Breakage, Path};
use lastbit::number::Dtype;
use lastbit::subject::Subject;
use lastbit::subject::attention::Attention;
use lastbit::subject::attention::check::Pair;
use lastbit::subject::attention::drive::{Observed, Poison};
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{AttentionKernel, Call};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use std::collections::BTreeSet;
use std::sync::Arc;

pub const TESTS: &[(&str, fn())] = &[
    ("same_bits_as_in_process", same_bits_as_in_process),
    ("a_kernel_declares_itself_unchanged", a_kernel_declares_itself_unchanged),
    ("large_bodies_with_and_without_shared_memory", large_bodies_with_and_without_shared_memory),
    ("large_and_small_calls_of_many_threads", large_and_small_calls_of_many_threads),
    ("a_child_that_reads_nothing_does_not_hold_the_caller", a_child_that_reads_nothing_does_not_hold_the_caller),
];

/// Cases for each kernel.
const CASES: u64 = 150;

fn pair(kernel: Implementation) -> Pair {
    Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Enclosure, captured: None, witness: false }
}

fn form(call: Call<'_>) -> String {
    match call {
        Call::Varlen(_) => "varlen".into(),
        Call::Dense(call) => format!("dense {:?}", call.padding),
        Call::Paged(call) if call.block_table.is_some() => "paged".into(),
        Call::Paged(_) => "contiguous".into(),
    }
}

fn same_bits_as_in_process() {
    let (mut features, mut forms, mut formats) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for name in ["ref:aligned", "ref:p-bf16", "ref:fa2,grid.context=ring_lse"] {
        let reference = Implementation::reference(Reference::parse(name).expect("a kernel"));
        let attention = Attention::of(pair(reference.clone()));
        let here = pair(reference);
        let there = pair(Implementation::kernel(Arc::new(start(serving(name), patient()))));
        for index in 0..CASES {
            let trial = attention.draw(7, index);
            let inputs = here.inputs(&trial.case);
            for (path, poison) in [(Path::Train, Poison::Nan), (Path::Infer, Poison::Nan), (Path::Infer, Poison::Huge)] {
                let mut observe = |seen: Observed<'_>| {
                    let (attributes, q) = match seen.call {
                        Call::Varlen(call) => (call.attributes, call.q),
                        Call::Dense(call) => (call.attributes, call.q),
                        Call::Paged(call) => (call.attributes, call.q),
                    };
                    features.extend(attributes.features());
                    forms.insert(form(seen.call));
                    formats.insert((q.dtype, attributes.out_dtype));
                };
                let expected = here.drive(path, &trial.case, &inputs, poison, Some(&mut observe));
                let given = there.drive(path, &trial.case, &inputs, poison, None);
                assert_eq!(given, expected, "{name}, case {index}, {path}");
            }
        }
    }
    assert_eq!(features.into_iter().collect::<Vec<_>>(), Feature::ALL, "every feature was asked for");
    assert_eq!(forms.into_iter().collect::<Vec<_>>(), ["contiguous", "dense Left", "dense Right", "paged", "varlen"]);
    assert!(formats.len() >= 4, "{formats:?}");
}

fn a_kernel_declares_itself_unchanged() {
    let name = "ref:p-bf16,declared.lse_base=2,actual.lse_base=2";
    let here = Reference::parse(name).expect("a kernel");
    let there = start(serving(name), patient());
    assert_eq!(there.identity(), here.identity());
    assert_eq!(there.conventions(), here.conventions());
    for storage in Dtype::ALL {
        assert_eq!(there.numerics_for(storage), here.numerics_for(storage));
    }
    assert_eq!(there.numerics(), here.numerics());
    assert!(there.has_lse() && there.context_parallel());
}

fn large_bodies_with_and_without_shared_memory() {
    let reference = Reference::default();
    let [shared, pipe] = ["honest", "honest_by_pipe"].map(|role| start(command(role), patient()));
    assert_eq!(shared.welcome().shared_memory, cfg!(target_os = "linux"));
    assert!(!pipe.welcome().shared_memory);
    for (rows, keys) in [(1, 30_000), (30_000, 3), (4, 5), (20_000, 20_000 / 1000), (30_000, 3)] {
        let expected = call_of(&reference, rows, keys);
        assert_eq!(call_of(&shared, rows, keys), expected, "{rows} rows, {keys} keys");
        assert_eq!(call_of(&pipe, rows, keys), expected, "{rows} rows, {keys} keys, by pipe");
    }
}

fn large_and_small_calls_of_many_threads() {
    let reference = Reference::default();
    for role in ["honest", "honest_by_pipe"] {
        let kernel = start(command(role), patient());
        std::thread::scope(|scope| {
            for thread in 0..6usize {
                let (kernel, reference) = (&kernel, &reference);
                scope.spawn(move || {
                    for n in 0..8usize {
                        let rows = if (n + thread).is_multiple_of(2) { 40_000 + thread } else { 1 + n };
                        assert_eq!(call_of(kernel, rows, 2), call_of(reference, rows, 2));
                    }
                });
            }
        });
    }
}

fn a_child_that_reads_nothing_does_not_hold_the_caller() {
    let kernel = start(command("raw_deaf"), short());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            // Far more than pipes hold.
            scope.spawn(|| call_of(&kernel, 300_000, 1).expect_err("no answer"));
        }
    });
    assert_eq!(broken(&kernel, 8).0, Breakage::TimedOut);
    let honest = start(command("honest"), patient());
    call(&honest, 8).expect("an answer");
}
