//! One small call: a row and its keys, one head of eight lanes.

use lastbit::finding::Breakage;
use lastbit::number::Dtype;
use lastbit::subject::attention::kernel::{AttentionKernel, Attributes, KernelError, Outputs, VarlenCall};
use lastbit::subject::attention::{Anchor, Mask};
use lastbit::tensor::Tensor;

/// The results of a call with so many keys.
pub fn call(kernel: &dyn AttentionKernel, keys: usize) -> Result<(Tensor, Tensor), KernelError> {
    call_of(kernel, 1, keys)
}

/// The results of a call with so many rows and keys.
pub fn call_of(kernel: &dyn AttentionKernel, rows: usize, keys: usize) -> Result<(Tensor, Tensor), KernelError> {
    let tensor = |rows: usize, from: usize| {
        let mut tensor = Tensor::filled(Dtype::F32, &[rows, 1, 8], 0);
        for n in 0..rows * 8 {
            tensor.store(n, ((n * 7 + from) % 23) as f32 - 11.0);
        }
        tensor
    };
    let (q, k, v) = (tensor(rows, 1), tensor(keys, 2), tensor(keys, 3));
    let attributes = Attributes {
        q_heads: 1,
        kv_heads: 1,
        d_qk: 8,
        d_v: 8,
        softmax_scale: 0.1,
        mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
        softcap: None,
        sinks: None,
        alibi_slopes: None,
        block_q: 64,
        kv_scales: None,
        context: None,
        out_dtype: Dtype::F32,
        knobs: &[],
    };
    let mut o = Tensor::filled(Dtype::F32, &[rows, 1, 8], 0xffc0_002a);
    let mut lse = Tensor::filled(Dtype::F32, &[rows, 1], 0xffc0_002a);
    let call = VarlenCall {
        attributes: &attributes,
        q: &q,
        k: &k,
        v: &v,
        cu_seqlens_q: &[0, rows as u32],
        cu_seqlens_k: &[0, keys as u32],
    };
    kernel.varlen(&call, Outputs { o: &mut o, lse: &mut lse })?;
    Ok((o, lse))
}

/// How a call with so many keys broke.
#[track_caller]
pub fn broken(kernel: &dyn AttentionKernel, keys: usize) -> (Breakage, String) {
    match call(kernel, keys) {
        Err(KernelError::Broken { breakage, detail }) => (breakage, detail),
        other => panic!("{other:?}"),
    }
}
