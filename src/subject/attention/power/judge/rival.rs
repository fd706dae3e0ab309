//! The checks that the field uses, as it uses them.

use super::{Evidence, Judge, is_fault, rows};
use crate::finding::Path;
use crate::number::Dtype;
use crate::subject::attention::drive::Produced;
use crate::tensor::Tensor;

/// The rivals, in the order of the table.
pub static RIVALS: [&dyn Judge; 3] = [&AssertClose, &Twice, &Exact];

/// `torch.testing.assert_close(out, out_ref)` with its defaults, against the f32 reference cast to the output format.
struct AssertClose;

impl Judge for AssertClose {
    fn name(&self) -> &'static str {
        "assert_close"
    }

    fn about(&self) -> &'static str {
        "torch.testing.assert_close(out, out_ref) with its default tolerances"
    }

    fn rejects(&self, evidence: &Evidence<'_>) -> bool {
        match evidence.side(Path::Infer) {
            Ok(infer) => !all_close(infer, evidence.upcast()),
            Err(stop) => is_fault(stop),
        }
    }
}

/// Whether every row is close to its reference. No rows are close.
pub(super) fn all_close(side: &Produced, reference: &Tensor) -> bool {
    rows(side).all(|(row, o)| o.iter().zip(reference.row(row)).all(|(&a, &b)| close(reference.dtype, a, b)))
}

/// `torch.isclose` with the defaults of `assert_close` (`_DTYPE_PRECISIONS` in `torch/testing/_comparison.py`; `equal_nan=False`):
/// equal, or `|a - b| <= atol + rtol |b|` and finite. Each operation rounds to the tensors' format, as torch's do.
fn close(dtype: Dtype, actual: u32, expected: u32) -> bool {
    let (rtol, atol) = match dtype {
        Dtype::F16 => (1e-3, 1e-5),
        Dtype::BF16 => (1.6e-2, 1e-5),
        _ => (1.3e-6, 1e-5),
    };
    let (a, b) = (dtype.to_f32(actual), dtype.to_f32(expected));
    let error = dtype.squeeze(a - b).abs();
    a == b || (error.is_finite() && error <= dtype.squeeze(atol + dtype.squeeze(rtol * b).abs()))
}

/// The rule of FlashAttention's tests: `(out - out_ref).abs().max() <= 2 * (out_pt - out_ref).abs().max() + 1e-5`
/// (`tests/test_flash_attn.py`, causal and varlen tests; those of the KV cache allow 3 and 5 times).
struct Twice;

impl Judge for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }

    fn about(&self) -> &'static str {
        "largest error at most twice that of a low-precision reference, plus 1e-5"
    }

    fn rejects(&self, evidence: &Evidence<'_>) -> bool {
        let infer = match evidence.side(Path::Infer) {
            Ok(infer) => infer,
            Err(stop) => return is_fault(stop),
        };
        let (reference, low) = (evidence.upcast(), evidence.low());
        let dtype = reference.dtype;
        // As torch's: the difference rounds to the tensors' format, and a maximum over a NaN is NaN.
        let error = |a: u32, b: u32| f64::from(dtype.squeeze(dtype.to_f32(a) - dtype.to_f32(b)).abs());
        let largest = |worst: f64, error: f64| if worst.is_nan() || error.is_nan() { f64::NAN } else { worst.max(error) };
        let (mut ours, mut theirs) = (0.0, 0.0);
        for (row, o) in rows(infer) {
            for ((&out, &out_ref), &out_pt) in o.iter().zip(reference.row(row)).zip(low.row(row)) {
                ours = largest(ours, error(out, out_ref));
                theirs = largest(theirs, error(out_pt, out_ref));
            }
        }
        // A NaN on either side fails the assertion.
        let within = ours <= 2.0 * theirs + 1e-5;
        !within
    }
}

/// `torch.equal(out_train, out_infer)`: values, so that zeros of either sign are equal and a NaN is not.
struct Exact;

impl Judge for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn about(&self) -> &'static str {
        "torch.equal of the two paths' outputs"
    }

    fn rejects(&self, evidence: &Evidence<'_>) -> bool {
        let (train, infer) = match (evidence.side(Path::Train), evidence.side(Path::Infer)) {
            (Ok(train), Ok(infer)) => (train, infer),
            (train, infer) => return [train, infer].into_iter().any(|it| it.as_ref().is_err_and(is_fault)),
        };
        let dtype = train.o.dtype;
        let equal = |a: &[u32], b: &[u32]| a.iter().zip(b).all(|(&a, &b)| dtype.to_f32(a) == dtype.to_f32(b));
        rows(infer).any(|(row, o)| train.present[row] && !equal(train.o.row(row), o))
    }
}

#[cfg(test)]
mod tests {
    use super::close;
    use crate::number::Dtype;

    /// Values taken from `torch.testing.assert_close`'s documentation and its rule, by hand.
    #[test]
    fn close_is_torchs() {
        let f32s = |a: f32, b: f32| close(Dtype::F32, a.to_bits(), b.to_bits());
        assert!(f32s(1.0, 1.0 + 1e-5) && !f32s(1.0, 1.0 + 2e-5));
        assert!(f32s(0.0, 9e-6) && !f32s(0.0, 1.1e-5));
        assert!(f32s(f32::INFINITY, f32::INFINITY) && !f32s(f32::INFINITY, f32::MAX));
        assert!(!f32s(f32::NAN, f32::NAN) && !f32s(f32::NAN, 0.0) && f32s(0.0, -0.0));
        // One ULP of bf16 is at most 1/128 of the value; two are within 1.6% only below the middle of a binade.
        let one = Dtype::BF16.round_f32(1.0);
        assert!(close(Dtype::BF16, one + 1, one) && close(Dtype::BF16, one + 2, one) && !close(Dtype::BF16, one + 3, one));
        let one = Dtype::F16.round_f32(1.0);
        assert!(close(Dtype::F16, one + 1, one) && !close(Dtype::F16, one + 2, one));
    }
}
