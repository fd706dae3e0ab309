//! Testing your own kernel, in Rust; [kernels from outside](super::outside) are Python, C and everything else.
//!
//! Three steps: wrap the kernel, say what it does not do, stamp the tests. `examples/tiny-attention` in the repository is a whole
//! crate of this kind; its test file has under 25 lines.
//!
//! # A function of one sequence
//!
//! [`PerSequence`](crate::subject::attention::per_sequence::PerSequence) makes a kernel of a function over one sequence: it gathers
//! keys from the packed, padded or paged layout, decodes every format to f32, and rounds what the function wrote.
//!
//! ```
//! use lastbit::subject::attention::feature::Feature;
//! use lastbit::subject::attention::kernel::{Attributes, KernelError};
//! use lastbit::subject::attention::per_sequence::{PerSequence, SequenceCall};
//! use lastbit::suite::{Suite, Test};
//!
//! /// One KV head for each query head, every row sees every key.
//! fn forward(call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]) -> Result<(), KernelError> {
//!     call.attributes.only(&[Feature::NotCausal])?; // all else is refused, and counted
//!     let Attributes { q_heads: heads, d_qk: d, softmax_scale, .. } = *call.attributes;
//!     for row in 0..call.rows * heads {
//!         let head = row % heads;
//!         let at = |key: usize| (key * heads + head) * d..(key * heads + head + 1) * d;
//!         let dot = |key: usize| -> f32 { call.q[row * d..][..d].iter().zip(&call.k[at(key)]).map(|(q, k)| q * k).sum() };
//!         let scores: Vec<f32> = (0..call.keys).map(|key| dot(key) * softmax_scale).collect();
//!         let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
//!         let weights: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
//!         let sum: f32 = weights.iter().sum();
//!         for lane in 0..d {
//!             let value: f32 = (0..call.keys).map(|key| weights[key] * call.v[at(key)][lane]).sum();
//!             o[row * d + lane] = if call.keys == 0 { 0.0 } else { value / sum };
//!         }
//!         lse[row] = if call.keys == 0 { f32::NEG_INFINITY } else { max + sum.ln() };
//!     }
//!     Ok(())
//! }
//!
//! let suite = Suite::new(PerSequence::new("mine", "0.1.0", forward))
//!     .only(|problem| problem.mask.causal.is_none() && problem.group_ids.len() == 1) // few cases fit: draw those
//!     .cases(20);
//! let report = suite.run(Test::Accuracy).unwrap_or_else(|failure| panic!("{failure}"));
//! assert_eq!(report.compared, 20);
//! ```
//!
//! What it cannot do it may declare once instead ([`capabilities`](crate::subject::attention::per_sequence::PerSequence::capabilities)):
//! cases are then drawn within that, and what was left out is counted.
//!
//! In `tests/attention.rs`, `lastbit::attention_suite!(suite)` stamps a `#[test]` for each [`Test`](crate::suite::Test) instead; see
//! [`suite`](crate::suite). Optimise `lastbit` in test builds, or the oracle takes most of the time:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 2
//! ```
//!
//! # A kernel with layouts of its own
//!
//! A kernel that walks block tables or `cu_seqlens` itself implements [`AttentionKernel`](crate::subject::attention::kernel::AttentionKernel):
//! one method for its name, and whichever of `varlen`, `dense` and `paged` it has. Training cases need `varlen` or `dense`, inference
//! cases `paged`. Where the two are different kernels, [`Suite::pair`](crate::suite::Suite::pair) takes both; a call form that is
//! missing refuses its cases, and a test that compares too little for that reason fails rather than passes.
//!
//! [`Tensor`](crate::tensor::Tensor) holds bit patterns: [`decode`](crate::tensor::Tensor::decode) gives a run of them as f32, exactly,
//! and [`store`](crate::tensor::Tensor::store) rounds one to nearest even. Padding and unused pages hold NaN: a kernel that reads them shows it.
//!
//! # What it means
//!
//! - **Refuse by name what you do not support.** `refused_or_right` draws everything there is; a feature that is silently ignored fails it.
//! - **Declare other arithmetic** than f32 with one rounding at the end
//!   ([`numerics`](crate::subject::attention::kernel::AttentionKernel::numerics)), or low-precision steps are reported as inaccurate.
//! - **Declare other meanings** ([`conventions`](crate::subject::attention::kernel::AttentionKernel::conventions)): a base-2 lse, an
//!   empty row of +inf.
//! - **Bits that move** with chunks, pages or company are what this crate is about. A kernel that does not promise them stamps
//!   the tests that it does promise: `attention_suite!(suite, tests: [accuracy, repeat, ...])`.
