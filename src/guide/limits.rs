//! What is not covered.
//!
//! **Not computed**: MLA (absorbed against expanded), tree masks of speculative decoding, cascade and shared-prefix merge, CUDA-graph
//! replay, fp8 caches that are quantised on write (a chunk sees its own keys unquantised), 8-bit queries and probabilities, backward.
//!
//! **Not seen**: writes outside the tensors. A Rust kernel without `unsafe` cannot make them; there are no guard pages.
//! A rejected draft leaves poison in the cache, not another token's values.
//!
//! **Not judged**: elements whose bound is infinite (*unbounded*), those for which an overflow of an intermediate is predicted (*out of
//! range*), and those that the oracle leaves undecided (softcap only, in practice). Each is counted. A bound can also be finite and
//! weak: where scores keep no digits, every weighted mean of the visible values is within it.
//!
//! **Not proved**: that there is no such case. A quiet run says "not observed", over so many cases, to such a length, for this seed.
//! Whether those cases could have failed is what the order witness measures.
//!
//! **Through [`PerSequence`](crate::subject::attention::per_sequence::PerSequence)**, the kernel sees neither pages nor padding nor company:
//! relations along those axes hold the function only to repeating itself.
