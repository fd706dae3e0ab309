//! Kernels with planted faults of the kind that page tables, padding and batches bring: each is found, and as what it is.

mod harness;

use harness::{against, cause_of, first, named, pair, references, shrunk};
use lastbit::finding::{Axis, Fault, Finding, Kind, Path};
use lastbit::lab::{Campaign, Flow, Length, Statistics, run};
use lastbit::number::{Class, Dtype};
use lastbit::subject::Subject;
use lastbit::subject::attention::cause::CauseKind;
use lastbit::subject::attention::conventions::Conventions;
use lastbit::subject::attention::drive::schedule;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{
    AttentionKernel, Attributes, Call, DenseCall, Identity, KernelError, KvScales, Outputs, PagedCall, VarlenCall,
};
use lastbit::subject::attention::numerics::{Numerics, Split};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::trial::{Checks, Trial};
use lastbit::subject::attention::{Attention, Cache, Data, Regime, Side};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A call of the reference kernel with something wrong before, after or in place of it.
type Body = dyn Fn(&Reference, Call<'_>, Outputs<'_>) -> Result<(), KernelError> + Send + Sync;

struct Faulty {
    reference: Reference,
    has_lse: bool,
    body: Box<Body>,
}

fn faulty(body: impl Fn(&Reference, Call<'_>, Outputs<'_>) -> Result<(), KernelError> + Send + Sync + 'static) -> Faulty {
    Faulty { reference: Reference::default(), has_lse: true, body: Box::new(body) }
}

impl AttentionKernel for Faulty {
    fn identity(&self) -> Identity {
        Identity::cpu("faulty", "1")
    }
    fn conventions(&self) -> Conventions {
        self.reference.conventions()
    }
    fn numerics(&self) -> Option<Numerics> {
        self.reference.numerics()
    }
    fn has_lse(&self) -> bool {
        self.has_lse
    }
    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        (self.body)(&self.reference, Call::Varlen(call), outputs)
    }
    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        (self.body)(&self.reference, Call::Dense(call), outputs)
    }
    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        (self.body)(&self.reference, Call::Paged(call), outputs)
    }
}

fn honest(reference: &Reference, call: Call<'_>, outputs: &mut Outputs<'_>) -> Result<(), KernelError> {
    let outputs = Outputs { o: &mut *outputs.o, lse: &mut *outputs.lse };
    match call {
        Call::Varlen(call) => reference.varlen(call, outputs),
        Call::Dense(call) => reference.dense(call, outputs),
        Call::Paged(call) => reference.paged(call, outputs),
    }
}

/// A kernel that spoils the right results.
fn spoiled(spoil: impl Fn(Call<'_>, &mut Outputs<'_>) + Send + Sync + 'static) -> Faulty {
    faulty(move |reference, call, mut outputs| {
        honest(reference, call, &mut outputs)?;
        spoil(call, &mut outputs);
        Ok(())
    })
}

/// Rows of each batch entry of a paged call.
fn entries(call: &PagedCall<'_>) -> Vec<std::ops::Range<usize>> {
    call.cu_seqlens_q.windows(2).map(|it| it[0] as usize..it[1] as usize).collect()
}

/// The cache slot of a position of an entry, live or dead.
fn slot(call: &PagedCall<'_>, entry: usize, position: usize) -> Option<usize> {
    let slots = call.v_cache.dims[1];
    match call.block_table {
        None => (position < slots).then(|| call.cache_rows[entry] as usize * slots + position),
        Some(table) => {
            let n = position / slots;
            (n < table.width).then(|| table.pages[entry * table.width + n] as usize * slots + position % slots)
        }
    }
}

/// Values of the slot after an entry's last key, in its first head.
fn dead_value(call: &PagedCall<'_>, entry: usize) -> Option<f32> {
    let at = slot(call, entry, call.cache_seqlens[entry] as usize)?;
    let stride = call.v_cache.dims[2] * call.v_cache.dims[3];
    Some(call.v_cache.dtype.to_f32(call.v_cache.bits[at * stride]))
}

/// All verdicts of a campaign, and how many of its cases had each signature.
fn campaign(attention: &Attention, cases: u64) -> Statistics {
    let mut statistics = Statistics::default();
    run(attention, Campaign { seed: 1, first: 0, length: Length::Cases(cases), jobs: 1 }, |done| {
        statistics.add(&done.verdict, done.trial.case.problem.out_dtype, 0);
        Flow::Continue
    });
    statistics
}

fn small(attention: &Attention, signature: &str) -> Trial {
    let found = first(attention, 600, |_, finding| finding.signature() == signature);
    let found = found.unwrap_or_else(|| panic!("`{signature}` was not found"));
    let small = shrunk(attention, &found);
    println!("{signature}: case {}, {} evaluations, {:?}", found.index, small.evaluations, small.trial.case.problem.sequences);
    small.trial
}

fn named_pair() -> Attention {
    pair(named("ref:aligned"), named("ref:aligned"), Mode::Off)
}

fn kv(trial: &Trial) -> Vec<u32> {
    trial.case.problem.sequences.iter().map(|it| it.kv).collect()
}

#[test]
fn a_slot_left_unwritten() {
    for output in ["o", "lse"] {
        let kernel = faulty(move |reference, call, mut outputs| {
            let before = [outputs.o.bits[0], outputs.lse.bits[0]];
            honest(reference, call, &mut outputs)?;
            match output {
                "o" => outputs.o.bits[0] = before[0],
                _ => outputs.lse.bits[0] = before[1],
            }
            Ok(())
        });
        let attention = against(kernel, Mode::Enclosure);
        let statistics = campaign(&attention, 100);
        assert_eq!(statistics.matches, 0);
        assert!(statistics.of(Kind::Fault) > 80, "{statistics:?}");
        let trial = small(&attention, &format!("fault infer unwritten {output}"));
        assert_eq!(kv(&trial), [0], "an unwritten slot needs one row and nothing else");
    }
}

#[test]
fn a_panic_at_one_length() {
    let kernel = faulty(|reference, call, mut outputs| {
        if let Call::Paged(call) = call {
            assert!(!call.cache_seqlens.contains(&5), "five keys");
        }
        honest(reference, call, &mut outputs)
    });
    let attention = against(kernel, Mode::Off);
    let trial = small(&attention, "fault infer failed");
    // Under a bottom-right mask a longer request passes through five keys; the shortest that does has five.
    assert_eq!(kv(&trial), [5]);
}

#[test]
fn a_failure_keeps_its_reason() {
    let kernel = faulty(|_, _, _| Err(KernelError::Failed("device lost".into())));
    let attention = against(kernel, Mode::Off);
    let found = first(&attention, 10, |_, finding| finding.kind() == Kind::Fault).expect("a fault");
    let expected = Finding::Fault { path: Path::Infer, fault: Fault::Failed("device lost".into()), relation: None };
    assert_eq!(found.finding, expected);
}

/// A fault that only a changed run shows keeps the change: without it the case would not show it again.
#[test]
fn a_panic_in_company_only() {
    let kernel = faulty(|reference, call, mut outputs| {
        if let Call::Paged(call) = call {
            assert!(call.cache_seqlens.len() < 6, "six entries");
        }
        honest(reference, call, &mut outputs)
    });
    let attention = against(kernel, Mode::Off);
    let relation = |finding: &Finding| match finding {
        Finding::Fault { relation, .. } => relation.clone(),
        _ => None,
    };
    let found = first(&attention, 600, |_, finding| relation(finding).is_some()).expect("a fault under a relation");
    let small = shrunk(&attention, &found);
    assert_eq!(relation(&small.finding).as_deref(), Some("infer bucket size=6"));
    assert_eq!(kv(&small.trial), [0]);
}

#[test]
fn outputs_of_another_shape() {
    let kernel = spoiled(|_, outputs| {
        outputs.o.bits.pop();
    });
    assert_eq!(kv(&small(&against(kernel, Mode::Off), "fault infer failed")), [0]);
    let kernel = spoiled(|_, outputs| outputs.lse.dtype = Dtype::BF16);
    assert_eq!(kv(&small(&against(kernel, Mode::Off), "fault infer failed")), [0]);
}

#[test]
fn unsupported_is_counted_and_never_a_match() {
    let kernel = faulty(|_, _, _| Err(KernelError::Unsupported("no such head dim".into())));
    let statistics = campaign(&against(kernel, Mode::Enclosure), 200);
    assert_eq!((statistics.matches, statistics.elements), (0, 0));
    assert!(statistics.skips["infer: no such head dim"] > 190, "{:?}", statistics.skips);
    assert_eq!(statistics.of(Kind::Skipped) + statistics.empty, 200);
    assert!(statistics.signatures.is_empty());
}

#[test]
fn reads_one_slot_past_the_end() {
    let kernel = faulty(|reference, call, mut outputs| {
        let Call::Paged(call) = call else { return honest(reference, call, &mut outputs) };
        let lengths: Vec<u32> = (0..call.cache_seqlens.len())
            .map(|n| {
                let kv = call.cache_seqlens[n];
                if kv > 0 && slot(call, n, kv as usize).is_some() { kv + 1 } else { kv }
            })
            .collect();
        reference.paged(&PagedCall { cache_seqlens: &lengths, ..*call }, outputs)
    });
    let attention = against(kernel, Mode::Enclosure);
    let statistics = campaign(&attention, 200);
    for signature in ["mismatch o", "inaccurate infer o", "not_invariant infer poison o"] {
        assert!(statistics.signatures.contains_key(signature), "{signature}: {:?}", statistics.signatures);
    }
    assert_eq!(kv(&small(&attention, "inaccurate infer o")), [1]);
}

/// A masked key's weight is 0, but 0 * NaN is NaN.
#[test]
fn multiplies_a_dead_value_by_zero() {
    let kernel = spoiled(|call, outputs| {
        let Call::Paged(call) = call else { return };
        for (n, rows) in entries(call).into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            if dead_value(call, n).is_some_and(|dead| (0.0 * dead).is_nan()) {
                let bits = outputs.o.dtype.nan_bits();
                outputs.o.row_mut(rows.start).fill(bits);
            }
        }
    });
    let attention = against(kernel, Mode::Enclosure);
    let statistics = campaign(&attention, 200);
    for signature in ["mismatch o", "inaccurate infer o", "not_invariant infer poison o"] {
        assert!(statistics.signatures.contains_key(signature), "{signature}: {:?}", statistics.signatures);
    }
    small(&attention, "inaccurate infer o");
}

/// A kernel that replaces NaN by 0 hides what it reads until the stale value is finite.
#[test]
fn reads_a_finite_stale_value() {
    let kernel = || {
        spoiled(|call, outputs| {
            let Call::Paged(call) = call else { return };
            for (n, rows) in entries(call).into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                if dead_value(call, n).is_some_and(|dead| dead.is_finite()) {
                    let bits = outputs.o.dtype.max_finite_bits();
                    outputs.o.row_mut(rows.start).fill(bits);
                }
            }
        })
    };
    let attention = against(kernel(), Mode::Enclosure);
    let signature = "not_invariant infer poison o";
    let trial = small(&attention, signature);
    assert_eq!(trial.case.problem.sequences.len(), 1);
    // Recycled pages bring finite stale values into the base run too.
    let recycled = |trial: &Trial| matches!(trial.case.infer.cache, Cache::Paged { recycled: true, .. });
    let found = first(&attention, 300, |trial, finding| recycled(trial) && finding.kind() == Kind::Mismatch);
    assert!(found.is_some(), "recycled pages show a stale value in the pair");
}

#[test]
fn nan_everywhere_on_both_sides_is_never_a_match() {
    let nan = || {
        let kernel = spoiled(|_, outputs| {
            let bits = [outputs.o.dtype.nan_bits(), outputs.lse.dtype.nan_bits()];
            outputs.o.bits.fill(bits[0]);
            outputs.lse.bits.fill(bits[1]);
        });
        Implementation::kernel(Arc::new(kernel))
    };
    let attention = pair(nan(), nan(), Mode::Enclosure);
    let statistics = campaign(&attention, 300);
    assert_eq!((statistics.matches, statistics.differing), (0, 0));
    let found = statistics.signatures.iter().filter(|(name, _)| !name.starts_with("inaccurate")).collect::<Vec<_>>();
    assert!(found.is_empty(), "NaN is equal to NaN: {found:?}");
    assert!(statistics.of(Kind::Inaccurate) > 270, "{statistics:?}");
    assert_eq!(statistics.accuracy.correctly_rounded, 0);
}

#[test]
fn zero_everywhere_on_both_sides_is_inaccurate() {
    let zero = || {
        let kernel = spoiled(|_, outputs| {
            outputs.o.bits.fill(0);
            outputs.lse.bits.fill(0);
        });
        Implementation::kernel(Arc::new(kernel))
    };
    let attention = pair(zero(), zero(), Mode::Enclosure);
    let statistics = campaign(&attention, 300);
    assert_eq!(statistics.differing, 0);
    assert!(statistics.of(Kind::Inaccurate) > 270 && statistics.matches < 5, "{statistics:?}");
    small(&attention, "inaccurate train o");
}

/// The split follows the longest sequence of the batch, as occupancy rules do.
#[test]
fn depends_on_its_neighbours() {
    let kernel = faulty(|reference, call, mut outputs| {
        let Call::Paged(paged) = call else { return honest(reference, call, &mut outputs) };
        let longest = paged.cache_seqlens.iter().copied().max().unwrap_or(0);
        let mut split = reference.clone();
        split.numerics.grid.split = Split::FixedSize(longest.div_ceil(2).max(1));
        split.paged(paged, outputs)
    });
    let attention = against(kernel, Mode::Enclosure);
    let trial = small(&attention, "not_invariant infer company o");
    assert!(trial.case.problem.sequences.len() <= 2);
    assert_eq!(campaign(&attention, 200).of(Kind::Inaccurate), 0, "every split is accurate");
}

/// flashinfer#4979: the scales of an 8-bit KV cache never reach the kernel.
#[test]
fn ignores_the_scales_of_the_cache() {
    let kernel = faulty(|reference, call, mut outputs| {
        let Call::Paged(call) = call else { return honest(reference, call, &mut outputs) };
        let attributes = Attributes { kv_scales: None, ..call.attributes.clone() };
        reference.paged(&PagedCall { attributes: &attributes, ..*call }, outputs)
    });
    let attention = against(kernel, Mode::Enclosure);
    let statistics = campaign(&attention, 300);
    for signature in ["mismatch o", "mismatch lse", "inaccurate infer o", "inaccurate infer lse"] {
        assert!(statistics.signatures.contains_key(signature), "{signature}: {:?}", statistics.signatures);
    }
    // One key with a value that is not zero, one lane, and a scale that is not 1.
    let trial = small(&attention, "mismatch o");
    let problem = &trial.case.problem;
    let kv8 = problem.fp8_kv.clone().expect("without 8-bit KV there are no scales");
    assert_eq!((problem.sequences.len(), kv(&trial), problem.d_v, problem.q_heads()), (1, vec![1], 1, 1));
    assert_eq!((kv8.k_scales, kv8.v_scales.len()), (vec![1.0], 1));
    assert_ne!(kv8.v_scales, [1.0]);

    // The same fault in the reference names its cause.
    let attention = references("ref:aligned", "ref:aligned,actual.kv_scales=ignored", Mode::Enclosure);
    let trial = small(&attention, "mismatch o");
    let cause = cause_of(&attention, &trial).expect("a cause");
    assert_eq!((cause.kind, cause.fields()[0].name.as_str()), (CauseKind::Semantics, "actual.kv_scales"));
}

/// One scale for the other: with equal ones, or with 1, it would not show.
#[test]
fn takes_the_keys_scale_for_the_values() {
    let kernel = faulty(|reference, call, mut outputs| {
        let Call::Paged(call) = call else { return honest(reference, call, &mut outputs) };
        let swapped = call.attributes.kv_scales.map(|scales| KvScales { k: scales.v, v: scales.k });
        let attributes = Attributes { kv_scales: swapped, ..call.attributes.clone() };
        reference.paged(&PagedCall { attributes: &attributes, ..*call }, outputs)
    });
    assert_eq!(kv(&small(&against(kernel, Mode::Off), "mismatch o")), [1]);
}

/// One head's scale for all.
#[test]
fn takes_the_first_heads_scale_for_all() {
    let kernel = faulty(|reference, call, mut outputs| {
        let Call::Paged(call) = call else { return honest(reference, call, &mut outputs) };
        let first = call.attributes.kv_scales.map(|scales| KvScales { k: &scales.k[..1], v: &scales.v[..1] });
        let attributes = Attributes { kv_scales: first, ..call.attributes.clone() };
        reference.paged(&PagedCall { attributes: &attributes, ..*call }, outputs)
    });
    let trial = small(&against(kernel, Mode::Off), "mismatch o");
    // A key's scale alone takes two keys to show.
    assert!(kv(&trial)[0] <= 2 && trial.case.problem.kv_heads() == 2, "{trial:?}");
}

/// A row that comes back after a preemption or a rejected draft is compared again: a kernel that is wrong only then is found, and in
/// no other case.
#[test]
fn wrong_the_second_time() {
    let mut twice = 0;
    for index in 0..400 {
        let mut trial = named_pair().draw(1, index);
        // The kernel below is one rank, and rows must be told apart by their queries alone.
        (trial.case.infer.context, trial.case.infer.head_ranks) = (None, 1);
        trial.case.data = Data::Drawn { seed: index, regime: Regime::Normal };
        trial.checks = Checks::Only { oracle: false, pair: true, relation: None };
        let seen = Mutex::new(HashSet::new());
        let attention = against(
            faulty(move |reference, call, mut outputs| {
                honest(reference, call, &mut outputs)?;
                let Call::Paged(call) = call else { return Ok(()) };
                for row in entries(call).into_iter().flatten() {
                    if !seen.lock().unwrap().insert(call.q.row(row).to_vec()) {
                        outputs.lse.row_mut(row)[0] ^= 1;
                    }
                }
                Ok(())
            }),
            Mode::Off,
        );
        let problem = &trial.case.problem;
        let mut rows = HashSet::new();
        let steps = schedule(problem, &trial.case.infer);
        let mut all = steps.iter().flatten().flat_map(|it| (0..it.rows).map(|row| (it.sequence, it.first_row + row)));
        let again = !all.all(|row| rows.insert(row));
        let distinct: HashSet<_> = {
            let q = attention.pair.inputs(&trial.case).q;
            (0..problem.total_q()).map(|row| q.row(row).to_vec()).collect()
        };
        let padded = trial.case.infer.bucket > 1;
        if distinct.len() < problem.total_q() || padded {
            continue;
        }
        twice += u32::from(again);
        let verdict = attention.check(&trial, &mut attention.scratch());
        let signatures: Vec<_> = verdict.findings.iter().map(Finding::signature).collect();
        // It remembers rows from run to run, so the mismatch that found it is set aside for a repeat that differs.
        assert_eq!(signatures, if again { vec!["not_invariant infer repeat lse"] } else { vec![] }, "case {index}");
        assert_eq!(verdict.set_aside, u64::from(again), "case {index}");
    }
    assert!(twice > 10, "{twice}");
}

/// Entry 0 is never where such a bug shows.
#[test]
fn depends_on_its_place_in_the_batch() {
    let kernel = faulty(|reference, call, mut outputs| {
        honest(reference, call, &mut outputs)?;
        let Call::Paged(paged) = call else { return Ok(()) };
        let mut split = reference.clone();
        split.numerics.grid.split = Split::FixedSize(2);
        let mut other = [outputs.o.clone(), outputs.lse.clone()];
        let [o, lse] = &mut other;
        split.paged(paged, Outputs { o, lse })?;
        for row in entries(paged).into_iter().skip(1).flatten() {
            outputs.o.row_mut(row).copy_from_slice(o.row(row));
            outputs.lse.row_mut(row).copy_from_slice(lse.row(row));
        }
        Ok(())
    });
    let trial = small(&against(kernel, Mode::Off), "not_invariant infer position o");
    assert_eq!(trial.case.problem.sequences.len(), 2);
}

/// A training kernel that takes left padding for right padding.
#[test]
fn ignores_the_side_of_the_padding() {
    let kernel = faulty(|reference, call, mut outputs| match call {
        Call::Dense(call) => reference.dense(&DenseCall { padding: Side::Right, ..*call }, outputs),
        other => honest(reference, other, &mut outputs),
    });
    let attention = pair(Implementation::kernel(Arc::new(kernel)), named("ref:aligned"), Mode::Enclosure);
    let statistics = campaign(&attention, 200);
    assert!(statistics.signatures.contains_key("fault train unwritten o"), "{:?}", statistics.signatures);
    let trial = small(&attention, "fault train unwritten o");
    assert_eq!(kv(&trial).len(), 1);
}

/// A grid that starts at slot 0 of the buffer moves with left padding.
#[test]
fn counts_blocks_from_the_buffer() {
    let kernel = "ref:aligned,softmax.block=4,grid.anchor=buffer";
    let attention = pair(named(kernel), named(kernel), Mode::Off);
    let trial = small(&attention, "not_invariant train padding o");
    // A longer neighbour pads as well as a padded slot does.
    assert!(kv(&trial).len() <= 2, "{trial:?}");
}

#[test]
fn does_not_repeat_itself() {
    let calls = AtomicU64::new(0);
    let kernel = spoiled(move |_, outputs| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        for bits in outputs.lse.bits.iter_mut().filter(|bits| Dtype::F32.class(**bits) == Class::Normal) {
            *bits += (call % 7) as u32;
        }
    });
    let attention = against(kernel, Mode::Off);
    let repeat = |finding: &Finding| matches!(finding, Finding::NotInvariant { axis: Axis::Repeat, path: Path::Infer, .. });
    assert!(first(&attention, 100, |_, finding| repeat(finding)).is_some());
}

/// Its bits follow the rows of the step, always alike: no fault of repeating itself, but rows made again in larger steps differ.
#[test]
fn makes_rows_otherwise_again() {
    let kernel = spoiled(|_, outputs| {
        if outputs.lse.dims[0] == 1 {
            for bits in outputs.lse.bits.iter_mut().filter(|bits| Dtype::F32.class(**bits) == Class::Normal) {
                *bits += 1;
            }
        }
    });
    let attention = against(kernel, Mode::Off);
    let signatures = campaign(&attention, 1500).signatures;
    assert!(signatures.contains_key("not_invariant infer recompute lse"), "{signatures:?}");
    assert!(signatures.keys().all(|it| !it.contains("repeat")), "{signatures:?}");
}

#[test]
fn lse_off_by_one_ulp() {
    let kernel = spoiled(|_, outputs| {
        for bits in outputs.lse.bits.iter_mut().filter(|bits| Dtype::F32.class(**bits) == Class::Normal) {
            *bits += 1;
        }
    });
    let attention = against(kernel, Mode::Off);
    let statistics = campaign(&attention, 100);
    assert_eq!(statistics.signatures.keys().collect::<Vec<_>>(), ["mismatch lse"]);
    assert_eq!(kv(&small(&attention, "mismatch lse")), [1]);
}

#[test]
fn minus_zero_for_zero() {
    let kernel = spoiled(|_, outputs| {
        let sign = outputs.o.dtype.sign_mask();
        outputs.o.bits.iter_mut().filter(|bits| **bits == 0).for_each(|bits| *bits = sign);
    });
    let attention = against(kernel, Mode::Enclosure);
    let statistics = campaign(&attention, 300);
    // Zeros are signless to the oracle; between two paths +0 and -0 differ.
    assert_eq!(statistics.signatures.keys().collect::<Vec<_>>(), ["mismatch o"]);
    assert_eq!(kv(&small(&attention, "mismatch o")), [0]);
}

#[test]
fn plus_infinity_for_an_empty_row() {
    let kernel = spoiled(|_, outputs| {
        for bits in &mut outputs.lse.bits {
            if f32::from_bits(*bits) == f32::NEG_INFINITY {
                *bits = f32::INFINITY.to_bits();
            }
        }
    });
    let attention = against(kernel, Mode::Enclosure);
    let statistics = campaign(&attention, 300);
    let names: Vec<_> = statistics.signatures.keys().collect();
    assert_eq!(names, ["inaccurate infer lse", "mismatch lse"]);
    assert_eq!(kv(&small(&attention, "mismatch lse")), [0]);
}

#[test]
fn wrong_row_under_a_permuted_block_table() {
    let kernel = spoiled(|call, outputs| {
        let Call::Paged(call) = call else { return };
        let Some(table) = call.block_table else { return };
        let rows = outputs.o.dims[0];
        if rows >= 2 && !table.pages.is_sorted() {
            let (o, lse) = (outputs.o.stride(), outputs.lse.stride());
            outputs.o.bits.rotate_left(o);
            outputs.lse.bits.rotate_left(lse);
        }
    });
    let attention = against(kernel, Mode::Enclosure);
    let statistics = campaign(&attention, 300);
    for signature in ["mismatch o", "not_invariant infer pages o"] {
        assert!(statistics.signatures.contains_key(signature), "{signature}: {:?}", statistics.signatures);
    }
    let trial = small(&attention, "not_invariant infer pages o");
    assert!(kv(&trial).len() <= 2, "{trial:?}");
}

/// `o` is still compared, and what is not compared is said.
#[test]
fn no_lse() {
    let without = |body: Faulty| Faulty { has_lse: false, ..body };
    let plain = without(faulty(|reference, call, mut outputs| {
        let before = outputs.lse.clone();
        honest(reference, call, &mut outputs)?;
        *outputs.lse = before;
        Ok(())
    }));
    let statistics = campaign(&against(plain, Mode::Enclosure), 100);
    assert!(statistics.matches > 80 && statistics.signatures.is_empty() && statistics.skips.is_empty(), "{statistics:?}");
    assert_eq!(statistics.left_out, [("lse (infer has none)".to_owned(), 100)].into());

    let wrong = without(spoiled(|_, outputs| {
        for bits in outputs.o.bits.iter_mut().filter(|bits| **bits & 0x7f != 0) {
            *bits ^= 1;
        }
    }));
    small(&against(wrong, Mode::Off), "mismatch o");
}

/// A bound that no sum has is no licence: where the accumulator may overflow, that is predicted and the case is skipped.
#[test]
fn a_predicted_overflow_is_skipped_even_without_a_bound() {
    let name = "ref:aligned,value.acc=f16";
    let mut attention = pair(named(name), named(name), Mode::Enclosure);
    attention.profile = lastbit::subject::attention::draw::Profile::Long;
    let statistics = campaign(&attention, 120);
    assert!(!statistics.signatures.keys().any(|it| it.starts_with("inaccurate")), "{:?}", statistics.signatures);
    assert!(statistics.skips.keys().any(|it| it.contains("out of range")), "{:?}", statistics.skips);
}

/// A row whose second production differs is explained by that production, not by the first.
#[test]
fn a_later_production_is_the_one_that_is_traced() {
    let kernel = named("ref:aligned,softmax.scope=tile,softmax.rescale=threshold:2");
    let attention = pair(kernel.clone(), kernel, Mode::Off);
    for index in 0..3000 {
        let trial = attention.draw(68, index);
        let verdict = attention.check(&trial, &mut attention.scratch());
        let later = verdict.findings.iter().find_map(|finding| {
            let element = finding.difference()?.elements.first()?;
            let is_later = element.index.0.iter().any(|(axis, _)| *axis == "again");
            (is_later && matches!(finding, lastbit::finding::Finding::Mismatch(_))).then(|| finding.signature())
        });
        if let Some(signature) = later {
            let explanation = lastbit::subject::attention::explain::explain(&attention.pair, &trial, "x.case", Some(&signature));
            assert!(explanation.text.contains("first divergence ("), "{}", explanation.text);
            return;
        }
    }
    panic!("no case in which only a later production differs");
}
