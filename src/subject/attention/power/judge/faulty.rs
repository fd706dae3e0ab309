//! A comparison as one writes it by hand, and the same with one fault each: the faults are those of comparisons in use.

use super::rival::all_close;
use super::{Evidence, Judge, is_fault, rows};
use crate::finding::{Path, same};
use crate::number::{Dtype, Ulps, ulp_distance};
use crate::subject::attention::drive::Produced;

/// Both sides close to the reference, and equal bits of `o` and `lse`; nothing compared is a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparator {
    /// Without a fault.
    Sound,
    /// Elements with a NaN on either side are left out (`nanmax`, `nan_to_num` before the comparison).
    NanSkipped,
    /// `|a - b| <= max(1e-2, 1.6e-2 |b|)` in place of equal bits.
    Loose,
    /// Training's outputs are given to the reference's comparison twice, and nobody compares the sides.
    OneSide,
    /// A comparison of nothing is a pass (`all` of an empty list).
    EmptyPasses,
    /// A distance of at most 2 ULP is a pass.
    TwoUlps,
}

impl Comparator {
    pub(super) const FAULTY: [Comparator; 5] =
        [Comparator::NanSkipped, Comparator::Loose, Comparator::OneSide, Comparator::EmptyPasses, Comparator::TwoUlps];

    /// Whether two results count as the same.
    fn agree(self, dtype: Dtype, a: u32, b: u32) -> bool {
        let (x, y) = (dtype.to_f32(a), dtype.to_f32(b));
        same(dtype, a, b)
            || match self {
                Comparator::NanSkipped => x.is_nan() || y.is_nan(),
                Comparator::Loose => (x - y).abs() <= f32::max(1e-2, 1.6e-2 * y.abs()),
                Comparator::TwoUlps => matches!(ulp_distance(dtype, a, b), Ulps::Steps(steps) if steps <= 2),
                Comparator::Sound | Comparator::OneSide | Comparator::EmptyPasses => false,
            }
    }

    fn near_reference(self, evidence: &Evidence<'_>, side: &Produced) -> bool {
        if self != Comparator::NanSkipped {
            return all_close(side, evidence.upcast());
        }
        let mut kept = side.clone();
        let dtype = kept.o.dtype;
        // What is skipped is as good as right.
        for (bits, &right) in kept.o.bits.iter_mut().zip(&evidence.upcast().bits) {
            if dtype.to_f32(*bits).is_nan() {
                *bits = right;
            }
        }
        all_close(&kept, evidence.upcast())
    }
}

impl Judge for Comparator {
    fn name(&self) -> &'static str {
        match self {
            Comparator::Sound => "comparator",
            Comparator::NanSkipped => "NaN skipped",
            Comparator::Loose => "absolute tolerance",
            Comparator::OneSide => "oracle on one side",
            Comparator::EmptyPasses => "empty selection passes",
            Comparator::TwoUlps => "at most 2 ULP",
        }
    }

    fn about(&self) -> &'static str {
        match self {
            Comparator::Sound => "both sides close to the reference, and equal bits of o and lse",
            Comparator::NanSkipped => "elements with a NaN on either side are left out",
            Comparator::Loose => "max(1e-2, 1.6e-2 |b|) in place of equal bits",
            Comparator::OneSide => "the true value is compared with training's outputs twice, and the sides are not compared",
            Comparator::EmptyPasses => "a comparison of nothing passes",
            Comparator::TwoUlps => "a distance of at most 2 ULP in place of equal bits",
        }
    }

    fn rejects(&self, evidence: &Evidence<'_>) -> bool {
        let (train, infer) = match (evidence.side(Path::Train), evidence.side(Path::Infer)) {
            (Ok(train), Ok(infer)) => (train, if *self == Comparator::OneSide { train } else { infer }),
            (train, infer) => return [train, infer].into_iter().any(|it| it.as_ref().is_err_and(is_fault)),
        };
        let compared = rows(infer).filter(|&(row, _)| train.present[row]).count();
        if compared == 0 {
            return *self != Comparator::EmptyPasses;
        }
        let both = |row: usize| train.present[row] && infer.present[row];
        let differ = (0..train.present.len()).filter(|&row| both(row)).any(|row| {
            [(&train.o, &infer.o), (&train.lse, &infer.lse)]
                .into_iter()
                .any(|(a, b)| a.row(row).iter().zip(b.row(row)).any(|(&x, &y)| !self.agree(a.dtype, x, y)))
        });
        differ || [train, infer].into_iter().any(|side| !self.near_reference(evidence, side))
    }
}
