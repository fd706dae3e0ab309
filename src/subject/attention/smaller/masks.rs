//! Simpler masks, scores and storage of keys and values.

use super::down;
use super::plans::changed;
use super::values::simpler_values;
use crate::number::Dtype;
use crate::subject::attention::select::fit_plans;
use crate::subject::attention::{Anchor, Case, Data, Fp8Kv, Mask, Problem};

pub(super) fn masks(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut problem = |change: &dyn Fn(&mut Problem)| {
        cases.push(changed(case, |case| {
            change(&mut case.problem);
            fit_plans(case);
        }));
    };
    problem(&|it| it.softcap = None);
    problem(&|it| it.sinks = None);
    problem(&|it| it.alibi_slopes = None);
    // A window that cannot go gets narrower: then its sequence can get shorter.
    problem(&|it| it.mask.window_left = None);
    for left in case.problem.mask.window_left.map_or(Vec::new(), |left| down(left, 0)) {
        problem(&|it| it.mask.window_left = Some(left));
    }
    problem(&|it| it.mask.window_right = None);
    for right in case.problem.mask.window_right.map_or(Vec::new(), |right| down(right, 0)) {
        problem(&|it| it.mask.window_right = Some(right));
    }
    problem(&|it| it.mask.causal = None);
    if case.problem.mask.causal == Some(Anchor::TopLeft) {
        problem(&|it| it.mask.causal = Some(Anchor::BottomRight));
    }
    problem(&|it| it.softmax_scale = 1.0);
    cases.extend(narrowest_window(case));
    if let Some(kv) = &case.problem.fp8_kv {
        let scales = |pick: &dyn Fn(&mut Fp8Kv) -> &mut Vec<f32>, scales: Vec<f32>| {
            changed(case, |case| case.problem.fp8_kv.iter_mut().for_each(|kv| *pick(kv) = scales.clone()))
        };
        for scale in simpler_scales(&kv.k_scales) {
            cases.push(scales(&|kv| &mut kv.k_scales, scale));
        }
        for scale in simpler_scales(&kv.v_scales) {
            cases.push(scales(&|kv| &mut kv.v_scales, scale));
        }
    }
    cases
}

/// Each row sees its own key and no other: in place of any mask that is not as simple. Other keys are hidden then, so literal ones are
/// also laid out backwards.
fn narrowest_window(case: &Case) -> Vec<Case> {
    let narrowest = Mask { window_left: Some(0), ..Mask::default() };
    if [narrowest, Mask::default()].contains(&case.problem.mask) {
        return Vec::new();
    }
    let narrow = changed(case, |case| {
        case.problem.mask = narrowest;
        fit_plans(case);
    });
    let Data::Literal(literal) = &narrow.data else { return vec![narrow] };
    let mut backwards = literal.clone();
    for (bits, d) in [(&mut backwards.k, case.problem.d_qk), (&mut backwards.v, case.problem.d_v)] {
        let stride = case.problem.kv_heads() * d as usize;
        let mut at = 0;
        for sequence in &case.problem.sequences {
            let end = at + sequence.kv as usize * stride;
            let rows: Vec<u32> = bits[at..end].chunks_exact(stride).rev().flatten().copied().collect();
            bits[at..end].copy_from_slice(&rows);
            at = end;
        }
    }
    let backwards = Case { data: Data::Literal(backwards), ..narrow.clone() };
    vec![narrow, backwards]
}

/// Keys and values in the format of q: literal ones as what they mean, scale included, as far as that format holds it.
pub(super) fn plain_kv(case: &Case) -> Case {
    let mut plain = case.clone();
    plain.problem.fp8_kv = None;
    let (from, to) = (case.problem.kv_dtype(), case.problem.dtype);
    if let Data::Literal(literal) = &mut plain.data {
        let heads = case.problem.kv_heads();
        let convert = |bits: &mut [u32], d: u32, scale: &dyn Fn(usize) -> f32| {
            for (n, head) in bits.chunks_exact_mut(d as usize).enumerate() {
                let scale = f64::from(scale(n % heads));
                head.iter_mut().for_each(|bits| {
                    let value = from.to_f64(*bits) * scale;
                    *bits = to.round_f64(value.clamp(-to.max_finite(), to.max_finite()));
                });
            }
        };
        convert(&mut literal.k, case.problem.d_qk, &|head| case.problem.kv_scales(head).0);
        convert(&mut literal.v, case.problem.d_v, &|head| case.problem.kv_scales(head).1);
    }
    plain
}

/// All 1; one for all heads; each one alone 1, a power of two, or of fewer significant bits.
fn simpler_scales(scales: &[f32]) -> Vec<Vec<f32>> {
    let mut simpler = vec![vec![1.0]];
    if scales.len() > 1 {
        simpler.extend(scales.iter().map(|&scale| vec![scale]));
    }
    for n in 0..scales.len() {
        let values = simpler_values(Dtype::F32, scales[n].to_bits()).into_iter().map(f32::from_bits);
        for value in values.filter(|&value| value > 0.0) {
            let mut scales = scales.to_vec();
            scales[n] = value;
            simpler.push(scales);
        }
    }
    simpler
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::smaller::tests::{counted, literal_of, plain, shaped, with_values};

    fn of_masks(case: &Case) -> Vec<Mask> {
        masks(case).into_iter().map(|it| it.problem.mask).collect()
    }

    fn mask(causal: Option<Anchor>, window_left: Option<u32>, window_right: Option<u32>) -> Mask {
        Mask { causal, window_left, window_right }
    }

    /// One option goes with each step, and nothing else changes.
    #[test]
    fn options_go_one_by_one() {
        let mut case = plain();
        let problem = &mut case.problem;
        (problem.softcap, problem.sinks, problem.alibi_slopes) = (Some(2.0), Some(vec![1.0]), Some(vec![0.5]));
        (problem.softmax_scale, problem.mask) = (0.5, mask(Some(Anchor::BottomRight), None, None));
        let with = |edit: &dyn Fn(&mut Problem)| {
            let mut case = case.clone();
            edit(&mut case.problem);
            case
        };
        let offered = masks(&case);
        let narrow = Mask { window_left: Some(0), ..Mask::default() };
        for (n, wanted) in [
            with(&|it| it.softcap = None),
            with(&|it| it.sinks = None),
            with(&|it| it.alibi_slopes = None),
            case.clone(),
            case.clone(),
            with(&|it| it.mask.causal = None),
            with(&|it| it.softmax_scale = 1.0),
            with(&|it| it.mask = narrow),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(offered[n], wanted, "step {n}");
        }
        assert_eq!(offered.len(), 8);
    }

    #[test]
    fn windows_get_narrower() {
        let with = |mask: Mask| {
            let mut case = plain();
            case.problem.mask = mask;
            case
        };
        let window = |left: u32, right: u32| mask(None, Some(left), Some(right));
        let (no_left, no_right) = (mask(None, None, Some(2)), mask(None, Some(5), None));
        assert_eq!(
            of_masks(&with(window(5, 2))),
            [
                // Cap, sinks and slopes, of which there are none.
                &[window(5, 2); 3][..],
                &[no_left, window(0, 2), window(3, 2), window(4, 2), no_right, window(5, 0), window(5, 1)],
                // The causal limit and the scale.
                &[window(5, 2); 2],
                &[mask(None, Some(0), None)],
            ]
            .concat()
        );
        let top_left = mask(Some(Anchor::TopLeft), None, None);
        assert_eq!(
            of_masks(&with(top_left)),
            [
                &[top_left; 5][..],
                &[Mask::default(), mask(Some(Anchor::BottomRight), None, None), top_left, mask(None, Some(0), None)],
            ]
            .concat()
        );
        // The narrowest is in place of nothing, and of itself no more.
        assert!(of_masks(&plain()).iter().all(|it| *it == Mask::default()));
        assert!(narrowest_window(&with(mask(None, Some(0), None))).is_empty());
    }

    /// A mask that has no steps leaves none to the schedule.
    #[test]
    fn a_schedule_goes_with_its_mask() {
        let mut case = shaped(&[(4, 4)], [1, 1], [1, 1]);
        case.problem.mask.causal = Some(Anchor::BottomRight);
        case.infer.requests[0].then = 1;
        for it in masks(&case).into_iter().filter(|it| it.problem.mask.causal.is_none()) {
            assert_eq!(it.infer.requests[0].then, 4);
        }
    }

    /// Where each row sees its own key alone, literal keys of each sequence also come backwards.
    #[test]
    fn hidden_keys_change_places() {
        let mut case = counted(shaped(&[(1, 2), (1, 3)], [2, 1], [1, 2]));
        case.problem.mask.causal = Some(Anchor::TopLeft);
        let cases = narrowest_window(&case);
        let [narrow, backwards] = &cases[..] else { panic!("{cases:?}") };
        assert_eq!(narrow.data, case.data);
        let literal = literal_of(backwards);
        assert_eq!(literal.q, literal_of(&case).q);
        assert_eq!(literal.k, [3, 4, 1, 2, 9, 10, 7, 8, 5, 6]);
        assert_eq!(literal.v, [5, 6, 7, 8, 1, 2, 3, 4, 17, 18, 19, 20, 13, 14, 15, 16, 9, 10, 11, 12]);
        assert_eq!(Case { data: case.data.clone(), ..backwards.clone() }, *narrow);
        let drawn = Case { data: plain().data, ..case };
        assert_eq!(narrowest_window(&drawn).len(), 1);
    }

    /// Values times their head's scale, cut off where the wider format ends.
    #[test]
    fn eight_bit_keys_and_values_become_what_they_mean() {
        let mut case = shaped(&[(1, 2)], [2, 1], [1, 2]);
        case.problem.dtype = Dtype::F16;
        case.problem.fp8_kv = Some(Fp8Kv { dtype: Dtype::E4M3, k_scales: vec![2.0, 0.5], v_scales: vec![1024.0] });
        let k = [1.0, 1.0, -3.0, 448.0];
        let v = [1.0, 0.5, 0.25, 448.0, -448.0, 0.0, 2.0, -1.0];
        let plain = plain_kv(&with_values(case.clone(), [&[1.0, 2.0], &k, &v]));
        let mut wanted = case.clone();
        wanted.problem.fp8_kv = None;
        let v = [1024.0, 512.0, 256.0, 65_504.0, -65_504.0, 0.0, 2048.0, -1024.0];
        assert_eq!(plain, with_values(wanted.clone(), [&[1.0, 2.0], &[2.0, 0.5, -6.0, 224.0], &v]));
        assert_eq!(plain_kv(&case), wanted, "drawn values are drawn for the other format");
    }

    #[test]
    fn scales_get_simpler() {
        assert_eq!(simpler_scales(&[1.0]), [[1.0]; 3]);
        let single = simpler_scales(&[3.0]);
        assert!(single.contains(&vec![2.0]) && single.iter().flatten().all(|&it| it > 0.0 && it <= 3.0), "{single:?}");
        let both = simpler_scales(&[2.0, 4.0]);
        assert_eq!(both[..3], [vec![1.0], vec![2.0], vec![4.0]]);
        assert!(
            both[3..].contains(&vec![1.0, 4.0]) && both[3..].contains(&vec![2.0, 1.0]) && both[3..].contains(&vec![2.0, 2.0])
        );

        let mut case = plain();
        case.problem.fp8_kv = Some(Fp8Kv { dtype: Dtype::E4M3, k_scales: vec![4.0], v_scales: vec![8.0] });
        let scales = |case: Case| case.problem.fp8_kv.map(|it| (it.k_scales[0], it.v_scales[0])).expect("8-bit");
        let offered: Vec<_> = masks(&case).into_iter().map(scales).collect();
        assert!(offered.contains(&(1.0, 8.0)) && offered.contains(&(4.0, 1.0)));
        assert!(offered.iter().all(|&(k, v)| k == 4.0 || v == 8.0));
    }
}
