//! A digest of everything that a check's runs gave out.

use crate::number::{Class, Dtype};
use crate::subject::attention::drive::Produced;
use crate::tensor::Tensor;
use sha2::{Digest as _, Sha256};

/// SHA-256 over the output bits of each run, in the order of the check: `o`, `lse`, which rows there are, rows made again. NaNs count as one
/// pattern, as they do everywhere in a comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputDigest {
    digest: Sha256,
    bytes: Vec<u8>,
}

impl OutputDigest {
    /// Takes a run in.
    pub(super) fn add(&mut self, run: &Produced) {
        let Produced { o, lse, present, again, calls: _ } = run;
        self.number(present.len());
        self.digest.update(present.iter().map(|&it| u8::from(it)).collect::<Vec<_>>());
        self.rows(o, present);
        self.rows(lse, present);
        self.number(again.len());
        for it in again {
            self.number(it.row);
            self.bits(o.dtype, &it.o);
            self.bits(lse.dtype, &it.lse);
        }
    }

    /// In lower-case hex.
    pub(crate) fn finish(self) -> String {
        self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn number(&mut self, n: usize) {
        self.digest.update((n as u64).to_le_bytes());
    }

    /// The rows that were made: what stands in the others is no output.
    fn rows(&mut self, tensor: &Tensor, present: &[bool]) {
        for row in (0..present.len()).filter(|&row| present[row]) {
            self.bits(tensor.dtype, tensor.row(row));
        }
    }

    fn bits(&mut self, dtype: Dtype, bits: &[u32]) {
        self.bytes.clear();
        for &it in bits {
            let it = if dtype.class(it) == Class::Nan { dtype.nan_bits() } else { it };
            self.bytes.extend(it.to_le_bytes());
        }
        self.digest.update(&self.bytes);
    }
}
