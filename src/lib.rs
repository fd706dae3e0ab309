//! Finds where a training attention path and a paged inference path part in the last bit, shrinks the case and explains it.
//!
//! In RL post-training a rollout engine (paged KV cache, token by token) records log-probabilities and a training engine
//! (FlashAttention, the whole sequence) recomputes them. They are equal on paper and differ in the last bits, for four causes:
//! attention **semantics** (which positions are valid), reduction **order**, online-softmax **blocking**, and **precision**
//! along the way. `lastbit` generates cases, drives both paths and an oracle that proves its rounding, and makes any case that
//! differs by one ULP into a regression that is small enough to read.
//!
//! # One case, by hand
//!
//! ```
//! use lastbit::lab::check_one;
//! use lastbit::subject::Subject;
//! use lastbit::subject::attention::Attention;
//! use lastbit::subject::attention::check::Pair;
//! use lastbit::subject::attention::implementation::Implementation;
//! use lastbit::subject::attention::explain::explain;
//! use lastbit::subject::attention::oracle::Mode;
//! use lastbit::subject::attention::reference::Reference;
//!
//! let kernel = |name: &str| Reference::parse(name).map(Implementation::reference);
//! let pair = Pair {
//!     train: kernel("ref:aligned")?,
//!     infer: kernel("ref:p-bf16")?, // rounds the weights before the product with V
//!     oracle: Mode::Enclosure,
//!     captured: None,
//!     witness: true,
//! };
//! let attention = Attention::of(pair);
//! let mut scratch = attention.scratch();
//! // Case 0 of seed 1 already shows it.
//! let trial = attention.draw(1, 0);
//! let verdict = check_one(&attention, &trial, &mut scratch);
//! let finding = verdict.failure().expect("P in bf16 changes bits");
//! let shrunk = lastbit::shrink::shrink(&attention, &trial, &finding.signature(), 10_000, &mut scratch).expect("it fails");
//! let explanation = explain(&attention.pair, &shrunk.trial, "found.case", None);
//! assert!(explanation.text.contains("cause: precision: probs.dtype: f32 against bf16"), "{}", explanation.text);
//! # Ok::<(), String>(())
//! ```
//!
//! # How data flows
//!
//! ```text
//! bytes | seed | file -> Case -> Inputs
//!   -> drive(train plan) -> kernel -> o, lse \
//!   -> drive(infer plan) -> kernel -> o, lse  > check -> Verdict
//!   -> oracle            -> proven bits      /
//!   -> shrink (the same finding must persist) -> .case file + snapshot
//! ```
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | [case](subject::attention::Case) | everything that fixes one test: problem, training plan, inference plan, data |
//! | plan | how one path lays the problem out and schedules it |
//! | [numerics](subject::attention::numerics) | the arithmetic contract of a kernel, written out in full |
//! | [conventions](subject::attention::conventions) | what a kernel means: anchor, window, empty row, base of lse; declared, and for the reference actual |
//! | [recipe](subject::attention::recipe) | a row's key ranges, summation tree and merges; equal recipes give equal bits, nothing else is promised |
//! | [kernel](subject::attention::kernel) | an implementation behind three call forms: varlen, dense, paged |
//! | [oracle](subject::attention::oracle) | the true value, correctly rounded, with proof; or undecided |
//! | [relation](subject::attention::relation) | the same row of one kernel in other surroundings must keep its bits |
//! | witness | evidence that a case could have failed: a changed order changes its bits |
//! | [finding, verdict](finding) | one thing wrong or undecided; all of a case's findings in check order |
//!
//! # Reading a verdict
//!
//! *Mismatch*: train and infer differ in bits. *Inaccurate*: a result is further from the true value than the bound computed for
//! its numerics, or not finite where the true value is. *NotInvariant*: one kernel gave a row other bits in other surroundings.
//! *Fault*: a kernel failed, panicked or left a slot unwritten. *Undecided* and *Skipped* are never a pass, and neither is a case
//! in which nothing was compared.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod cli;
pub mod exit_code;
pub mod finding;
pub mod fuzz;
pub mod input_error;
pub mod lab;
pub mod number;
pub mod shrink;
pub mod source;
pub mod subject;
pub mod suite;
pub mod tensor;
pub mod tree;
