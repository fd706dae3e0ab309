//! A kernel over the pipe has the bits it has in this process.

use crate::child::{patient, serving, start};
use lastbit::finding::Path;
use lastbit::number::Dtype;
use lastbit::source::Stream;
use lastbit::subject::Subject;
use lastbit::subject::attention::check::Pair;
use lastbit::subject::attention::drive::Poison;
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::AttentionKernel;
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::{Attention, Cache, TrainLayout};
use std::collections::BTreeSet;
use std::sync::Arc;

pub const TESTS: &[(&str, fn())] =
    &[("same_bits_as_in_process", same_bits_as_in_process), ("a_kernel_declares_itself_unchanged", declared)];

fn pair(kernel: Implementation) -> Pair {
    Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Enclosure, captured: None, witness: false }
}

fn same_bits_as_in_process() {
    let mut seen = BTreeSet::new();
    for name in ["ref:aligned", "ref:aligned,kv.descale=on_load", "ref:p-bf16"] {
        let Ok(reference) = Reference::parse(name) else { continue };
        let reference = Implementation::reference(reference);
        let attention = Attention::of(pair(reference.clone()));
        let here = pair(reference);
        let there = pair(Implementation::kernel(Arc::new(start(serving(name), patient()))));
        for index in 0..150 {
            let trial = attention.draw(7, index);
            let inputs = here.inputs(&trial.case);
            for path in Path::BOTH {
                for poison in [Poison::Nan, Poison::Huge] {
                    let [a, b] = [&here, &there].map(|pair| {
                        let mut features = Vec::new();
                        let mut observe = |seen: lastbit::subject::attention::drive::Observed<'_>| {
                            features.push(format!("{:?}", std::mem::discriminant(&seen.call)))
                        };
                        pair.drive(path, &trial.case, &inputs, poison, Some(&mut observe))
                    });
                    assert_eq!(a, b, "{name}, case {index}, {path}");
                }
            }
            let problem = &trial.case.problem;
            seen.insert(format!("{}", problem.out_dtype));
            if problem.fp8_kv.is_some() {
                seen.insert("fp8_kv".into());
            }
            if problem.sinks.is_some() {
                seen.insert("sinks".into());
            }
            if problem.alibi_slopes.is_some() {
                seen.insert("alibi".into());
            }
            if problem.softcap.is_some() {
                seen.insert("softcap".into());
            }
            if problem.mask.window_left.is_some() {
                seen.insert("window".into());
            }
            if problem.mask.causal.is_none() {
                seen.insert("not_causal".into());
            }
            if trial.case.train.context.is_some() || trial.case.infer.context.is_some() {
                seen.insert("context_parallel".into());
            }
            seen.insert(match trial.case.train.layout {
                TrainLayout::Varlen => "varlen".into(),
                TrainLayout::Dense { side, .. } => format!("dense {side:?}"),
            });
            seen.insert(match trial.case.infer.cache {
                Cache::Paged { .. } => "paged".into(),
                Cache::Contiguous { .. } => "contiguous".into(),
            });
        }
    }
    eprintln!("{seen:?}");
}

fn declared() {
    let name = "ref:p-bf16,declared.lse_base=2,actual.lse_base=2";
    let here = Reference::parse(name).expect("a kernel");
    let there = start(serving(name), patient());
    assert_eq!(there.identity(), here.identity());
    assert_eq!(there.conventions(), here.conventions());
    for storage in Dtype::ALL {
        assert_eq!(there.numerics_for(storage), here.numerics_for(storage));
    }
    assert_eq!(there.has_lse(), here.has_lse());
    assert!(there.context_parallel());
    let _ = (Feature::ALL, Stream::new(0, 0));
}
