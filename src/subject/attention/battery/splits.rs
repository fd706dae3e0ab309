//! Few rows over many keys: what launchers split. Relations then change what the number of splits follows from
//! ([`RelationSet::Splits`](crate::subject::attention::trial::RelationSet::Splits)).

use crate::number::Dtype;
use crate::source::{Source, Stream};
use crate::subject::attention::{Anchor, Cache, Case, Data, InferPlan, Mask, Problem, Regime};

/// Stream of the first case, apart from those of a campaign.
const STREAM: u64 = 1 << 40;

/// Lengths where nothing is known of the kernel: past four tiles of 128 (hopper/heuristics.h splits from there on), and past the split sizes
/// of deterministic serving.
const LENGTHS: [u32; 4] = [513, 1025, 2049, 4097];

/// A case of one sequence: up to four rows at the end of a context, tiny heads, data that shows order.
pub(super) fn case(seed: u64, index: u64, granules: &[u32], head_dims: &[u32]) -> Case {
    let mut source = Stream::new(seed, STREAM + index);
    let mut of = |many: u32| source.below(u64::from(many)) as u32;
    // Beyond four tiles of each size in play, in turn with the fixed lengths.
    let lengths: Vec<u32> = granules.iter().map(|g| (4 * g + 1).min(LENGTHS[3])).chain(LENGTHS).collect();
    let kv = lengths[index as usize % lengths.len()] + of(3);
    let q = 1 + of(4);
    let (kv_heads, group) = [(1, 1), (1, 2), (2, 1), (1, 4)][of(4) as usize];
    let dims: Vec<u32> = [4, 8].into_iter().chain(head_dims.iter().copied()).collect();
    let d = dims[of(dims.len() as u32) as usize];
    let (dtype, out_dtype) = match of(4) {
        0 => (Dtype::BF16, Dtype::BF16),
        1 => (Dtype::F16, Dtype::F16),
        2 => (Dtype::BF16, Dtype::F32),
        _ => (Dtype::F32, Dtype::F32),
    };
    let causal = of(4) > 0;
    let regime = match of(3) {
        0 => Regime::Mirror { span: 2 + of(30), phase: of(16) },
        1 => Regime::Wide,
        _ => Regime::Normal,
    };
    let cache = match of(2) {
        0 => Cache::Contiguous { spare: 0 },
        _ => Cache::Paged { page: 16 << of(3), spare: 1, shuffle: u64::from(of(1 << 16)), recycled: false },
    };
    let data = Data::Drawn { seed: u64::from(of(u32::MAX)), regime };
    let problem = Problem {
        mask: Mask { causal: causal.then_some(Anchor::BottomRight), ..Mask::default() },
        softmax_scale: (1.0 / f64::from(d).sqrt()) as f32,
        out_dtype,
        ..Problem::plain(&[(q, kv)], [kv_heads, group], [d, d], dtype)
    };
    let plain = Case::plain(problem, data);
    Case { infer: InferPlan { cache, ..plain.infer }, ..plain }
}

#[cfg(test)]
mod tests {
    use super::case;
    use crate::subject::attention::validate;

    #[test]
    fn cases_are_valid_and_long() {
        for index in 0..200 {
            let case = case(1, index, &[64, 128, 176], &[128]);
            assert!(validate(&case).is_ok(), "{case:?}");
            assert!(case.problem.sequences[0].kv > 4 * 64);
        }
    }
}
