//! All that this crate needs to be tested: what the kernel supports, the call, and the suite.

use lastbit::subject::attention::kernel::KernelError;
use lastbit::subject::attention::per_sequence::{PerSequence, SequenceCall};
use lastbit::subject::attention::{feature::Feature, kernel::Attributes};
use lastbit::suite::Suite;
use tiny_attention::{Shape, attention};

fn forward(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]) -> Result<(), KernelError> {
    let supported = [Feature::Causal, Feature::NotCausal, Feature::GroupedHeads, Feature::UnequalHeadDims];
    call.attributes.only(&supported)?;
    let Attributes { q_heads, kv_heads, d_qk, d_v, softmax_scale, mask, .. } = *call.attributes;
    let shape = Shape { q_heads, kv_heads, d_qk, d_v, softmax_scale, causal: mask.causal.is_some() };
    attention(&shape, call.q, call.k, call.v, o, lse);
    Ok(())
}

lastbit::attention_suite!(Suite::new(PerSequence::new("tiny-attention", env!("CARGO_PKG_VERSION"), forward)));
