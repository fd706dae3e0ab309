//! The order of f32 sums, read from bits: a modest set of reference kernels, of which the results are compared with the kernel's own.
//! Intervals cannot tell orders apart; equal bits on many results can.

use super::{Probing, usual};
use crate::finding::{Path, same};
use crate::number::Dtype;
use crate::subject::attention::capabilities::Format;
use crate::subject::attention::check::Pair;
use crate::subject::attention::drive::{Poison, Produced};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::AttentionKernel;
use crate::subject::attention::numerics::{Block, Finish, Numerics, Order, Passes, ScaleAt, Softmax, Traverse};
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::probe::sample::Shape;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::{Case, Data, Regime};

const ORDERS: [Order; 6] =
    [Order::Sequential, Order::Lanes(4), Order::Lanes(8), Order::Lanes(16), Order::Pairwise, Order::Fused(8)];

/// Keys of the problems that narrow the set down: within one block first, then past several.
const LENGTHS: [u32; 3] = [5, 13, 300];

/// The reference kernels that give the kernel's bits, in words.
pub(super) fn order(probing: &mut Probing<'_>, format: Format, path: Path) -> String {
    let seed = probing.options.seed;
    let mut left = plain();
    let mut elements = 0;
    for keys in LENGTHS {
        if !probing.terms.holds(keys) {
            break;
        }
        if keys == LENGTHS[LENGTHS.len() - 1] {
            left = left.into_iter().flat_map(blocked).collect();
        }
        let sequence = usual(&probing.terms, path, keys);
        for n in 0..3 {
            let data = Data::Drawn { seed: (seed + n) & 0xffff_ffff, regime: Regime::Normal };
            let mut case = Shape::of(&probing.terms, format, &[sequence]).case(data);
            // A power of two would hide where it enters.
            case.problem.softmax_scale = 0.3;
            let Some(own) = run(&probing.attention.pair.train, path, &case) else { break };
            let lse = probing.terms.kernel.kernel.has_lse();
            left.retain(|numerics| {
                let reference = Reference { numerics: *numerics, ..Reference::default() };
                run(&Implementation::reference(reference), path, &case).is_some_and(|it| alike(&own, &it, lse))
            });
            elements += own.o.bits.len();
        }
        if left.is_empty() {
            return format!("order not identified: none of {} reference orders gives its bits", plain().len());
        }
    }
    if elements == 0 {
        return "order not tried: no call gave results".to_owned();
    }
    let names: Vec<String> =
        left.iter().map(|numerics| Reference { numerics: *numerics, ..Reference::default() }.identity().name).collect();
    match names.len() {
        1 => format!("the bits of {} on all {elements} elements", names[0]),
        count => {
            let more = if count > 2 { format!(", and of {} more", count - 2) } else { String::new() };
            format!("the bits of {}{more}, on all {elements} elements", names[..2].join(", and of "))
        }
    }
}

/// Orders, fused or not, each place of the scale, one pass or two, both ways to divide; blocks that a short row does not see.
fn plain() -> Vec<Numerics> {
    let base = Reference::default().numerics;
    let mut all = Vec::new();
    for score in ORDERS {
        for value in ORDERS {
            for rowsum in ORDERS {
                for fma in [false, true] {
                    for scale in [ScaleAt::OnScore, ScaleAt::OnQuery, ScaleAt::FoldedLog2e] {
                        for finish in [Finish::Divide, Finish::Reciprocal] {
                            let mut numerics = base;
                            (numerics.score.order, numerics.value.order, numerics.rowsum.order) = (score, value, rowsum);
                            (numerics.score.fma, numerics.value.fma) = (fma, fma);
                            (numerics.score.scale, numerics.finish) = (scale, finish);
                            all.push(numerics);
                            if finish == Finish::Divide {
                                numerics.softmax.passes = Passes::TwoPass;
                                numerics.softmax.block = Block::Whole;
                                numerics.probs.normalised = true;
                                all.push(numerics);
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

/// The same with every block length, from either end.
fn blocked(numerics: Numerics) -> Vec<Numerics> {
    let mut all = vec![Numerics { softmax: Softmax { block: Block::Whole, ..numerics.softmax }, ..numerics }];
    if numerics.probs.normalised {
        return all;
    }
    for block in [16, 32, 64, 128, 256].map(Block::Size) {
        for traverse in [Traverse::Forward, Traverse::Backward] {
            for passes in [Passes::Online, Passes::TwoPass] {
                let mut numerics = numerics;
                (numerics.softmax.block, numerics.softmax.traverse, numerics.softmax.passes) = (block, traverse, passes);
                all.push(numerics);
            }
        }
    }
    all
}

fn run(kernel: &Implementation, path: Path, case: &Case) -> Option<Produced> {
    let pair = Pair { train: kernel.clone(), infer: kernel.clone(), oracle: Mode::Off, captured: None, witness: false };
    pair.drive(path, case, &pair.inputs(case), Poison::Nan, None).ok()
}

fn alike(own: &Produced, other: &Produced, lse: bool) -> bool {
    let equal = |dtype: Dtype, a: &[u32], b: &[u32]| a.iter().zip(b).all(|(&a, &b)| same(dtype, a, b));
    equal(own.o.dtype, &own.o.bits, &other.o.bits) && (!lse || equal(Dtype::F32, &own.lse.bits, &other.lse.bits))
}
