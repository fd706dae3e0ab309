//! The reference that tests of attention kernels compare with: whole rows, no blocks, as `attention_ref` of FlashAttention
//! (`tests/test_flash_attn.py`; scales of 8-bit KV and sinks as in `hopper/test_util.py`, softcap and bias as in both).

use crate::number::Dtype;
use crate::subject::attention::{Anchor, Inputs, Problem};
use crate::tensor::Tensor;
use core_math::{expf, tanhf};

/// How it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// `upcast=True`: everything in f32, the result cast; the scale is on Q.
    Upcast,
    /// `upcast=False, reorder_ops=True`: every tensor in the storage format (products accumulate in f32), the scale is on K.
    Storage,
}

/// `o`, `[total_q, q_heads, d_v]`, in the problem's output format.
pub(super) fn attention(problem: &Problem, inputs: &Inputs, precision: Precision) -> Tensor {
    let (q_heads, d_qk, d_v) = (problem.q_heads(), problem.d_qk as usize, problem.d_v as usize);
    let stored = match precision {
        Precision::Upcast => Dtype::F32,
        Precision::Storage => problem.dtype,
    };
    let round = |x: f32| stored.squeeze(x);
    let scale = problem.softmax_scale;
    let mut out = Tensor::filled(problem.out_dtype, &[problem.total_q(), q_heads, d_v], 0);
    let (mut query, mut scores, mut sums) = (Vec::new(), Vec::new(), vec![0f32; d_v]);
    let [mut keys, mut values] = [Vec::new(), Vec::new()];
    for head in 0..q_heads {
        let kv_head = head / problem.group_ids.len();
        let (k_scale, v_scale) = problem.kv_scales(kv_head);
        let slope = problem.alibi_slopes.as_ref().map(|slopes| slopes[head]);
        for (n, sequence) in problem.sequences.iter().enumerate() {
            // [kv, d] of this head, as the einsum reads it.
            keys.clear();
            values.clear();
            for position in inputs.kv_start[n]..inputs.kv_start[n] + sequence.kv as usize {
                let of = |tensor: &'_ Tensor, d: usize| {
                    let first = (position * problem.kv_heads() + kv_head) * d;
                    first..(first + d).min(tensor.bits.len())
                };
                let on_keys = if precision == Precision::Storage { scale } else { 1.0 };
                keys.extend(inputs.k.decode(of(&inputs.k, d_qk)).map(|k| round(round(k * k_scale) * on_keys)));
                values.extend(inputs.v.decode(of(&inputs.v, d_v)).map(|v| round(v * v_scale)));
            }
            for i in 0..sequence.q {
                let row = inputs.q_start[n] + i as usize;
                let visible = problem.mask.keys(i, sequence.q, sequence.kv);
                let position = match problem.mask.causal {
                    Some(Anchor::TopLeft) => i64::from(i),
                    _ => i64::from(i) + i64::from(sequence.kv) - i64::from(sequence.q),
                };
                query.clear();
                let on_query = if precision == Precision::Upcast { scale } else { 1.0 };
                let first = (row * q_heads + head) * d_qk;
                query.extend(inputs.q.decode(first..first + d_qk).map(|q| q * on_query));
                scores.clear();
                scores.extend(visible.clone().map(|j| {
                    let key = &keys[j as usize * d_qk..][..d_qk];
                    let mut score = round(query.iter().zip(key).fold(0f32, |sum, (q, k)| sum + q * k));
                    if let Some(cap) = problem.softcap {
                        score = round(round(tanhf(round(score / cap))) * cap);
                    }
                    // Slopes are f32, and promote the sum.
                    slope.map_or(score, |slope| score - slope * (position - i64::from(j)).unsigned_abs() as f32)
                }));
                // softmax in f32, stored again.
                let sink = problem.sinks.as_ref().map(|sinks| sinks[head]);
                let max = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
                scores.iter_mut().for_each(|score| *score = expf(*score - max));
                let mass = scores.iter().sum::<f32>() + sink.map_or(0.0, |sink| expf(sink - max));
                sums.fill(0.0);
                for (j, weight) in visible.zip(&scores) {
                    let weight = round(weight / mass);
                    let value = &values[j as usize * d_v..][..d_v];
                    sums.iter_mut().zip(value).for_each(|(sum, v)| *sum += weight * v);
                }
                for (lane, sum) in sums.iter().enumerate() {
                    out.store((row * q_heads + head) * d_v + lane, round(*sum));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Precision, attention};
    use crate::number::Dtype;
    use crate::subject::Subject;
    use crate::subject::attention::Attention;
    use crate::subject::attention::check::Pair;
    use crate::subject::attention::drive::{Poison, train};
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::reference::Reference;
    use crate::subject::attention::{Data, Inputs, Regime};

    /// Over drawn cases of every feature, the textbook in f32 is what the reference kernel computes, to a few units of f32: masks,
    /// heads, softcap, sinks, slopes and scales are read alike. In the storage format it is farther off, and not always elsewhere.
    #[test]
    fn the_textbook_computes_attention() {
        let kernel = Implementation::reference(Reference::default());
        let (train_side, infer) = (kernel.clone(), kernel);
        let attention_of = Attention::of(Pair { train: train_side, infer, oracle: Mode::Off, captured: None, witness: false });
        let (mut worse, mut compared) = (0, 0);
        for case in 0..400 {
            let mut case = attention_of.draw(3, case).case;
            case.data = Data::Drawn { seed: 5, regime: Regime::Normal };
            case.problem.out_dtype = Dtype::F32;
            case.train.context = None;
            let inputs = Inputs::new(&case, None);
            let expected = train(&Reference::default(), &case.problem, &case.train, &inputs, Poison::Nan, None).unwrap();
            let upcast = attention(&case.problem, &inputs, Precision::Upcast);
            let low = attention(&case.problem, &inputs, Precision::Storage);
            // Long sums in another order, of scores up to some tens.
            let near = |a: f32, b: f32| (a - b).abs() <= 1e-4 * (1.0 + a.abs().max(b.abs()));
            for ((x, y), z) in expected.o.to_f32().into_iter().zip(upcast.to_f32()).zip(low.to_f32()) {
                assert!(near(x, y), "{x} against {y}: {case:?}");
                worse += u32::from((z - x).abs() > (y - x).abs());
                compared += 1;
            }
        }
        assert!(compared > 10_000 && worse > compared / 2, "{worse} of {compared}");
    }
}
