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
//! # Where to read on
//!
//! The [guide] has short pages: [words](guide::words), [reading a verdict](guide::verdict), [how the oracle proves](guide::proof),
//! [testing your own kernel](guide::own_kernel),
//! [kernels from outside](guide::outside), [keeping a regression](guide::regression), [what is not covered](guide::limits).
//! The command line is described in the README; `lastbit help` lists it.
//!
//! | to | start at |
//! |---|---|
//! | test a kernel of your own | [`suite`], [`attention_suite!`] |
//! | implement the calls | [`subject::attention::kernel`], [`subject::attention::per_sequence`] |
//! | read or write a case | [`subject::attention::Case`], [`subject::attention::text`] |
//! | run cases | [`lab`], [`shrink`], [`subject::attention::explain`] |
//! | ask for true values | [`subject::attention::oracle`], [`subject::attention::accuracy`] |
//! | round, compare and order bits | [`number`], [`finding`], [`tree`] |
#![deny(missing_docs)]
// Only `external::library` may: calling a C library is nothing else.
#![deny(unsafe_code)]

pub mod certify;
pub mod cli;
pub mod exit_code;
pub mod external;
pub mod finding;
pub mod fuzz;
pub mod guide;
pub mod input_error;
pub mod lab;
pub mod number;
pub mod ordered;
pub mod quantity;
pub mod reach;
pub mod report;
pub mod reveal;
pub mod shrink;
pub mod source;
pub mod subject;
pub mod suite;
pub mod tensor;
pub mod tree;
