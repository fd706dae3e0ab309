//! The words that this crate uses, each for one thing.
//!
//! | word | meaning |
//! |---|---|
//! | [case](crate::subject::attention::Case) | everything that fixes one test: problem, training plan, inference plan, data |
//! | [problem](crate::subject::attention::Problem) | what is computed: sequences (`q` new rows, `kv` positions each), heads, head dims, mask, scale, formats |
//! | plan | how one path lays the problem out and schedules it: padding or packing ([training](crate::subject::attention::TrainPlan)); pages, chunks, prefix hits, company ([inference](crate::subject::attention::InferPlan)) |
//! | path, side | training or inference: a plan driven through a kernel |
//! | [kernel](crate::subject::attention::kernel) | an implementation behind three call forms: varlen, dense, paged |
//! | [numerics](crate::subject::attention::numerics) | the arithmetic contract of a kernel, written out in full |
//! | [conventions](crate::subject::attention::conventions) | what a kernel means: anchor, window, empty row, base of lse; declared, and for the reference actual |
//! | [recipe](crate::subject::attention::recipe) | a row's key ranges, summation tree and merges; equal recipes give equal bits, nothing else is promised |
//! | [oracle](crate::subject::attention::oracle) | the true value, correctly rounded, with proof; or undecided |
//! | bound | the error that a kernel's numerics allow in a row, [computed](crate::subject::attention::accuracy) from the row's own sums |
//! | [relation](crate::subject::attention::relation) | the same row of one kernel in other surroundings must keep its bits |
//! | axis | what a relation changes: repeat, recompute, company, position, padding, poison, pages, chunk, prefix, prefix_stability, ranks, knob |
//! | ranks | [context-parallel](crate::subject::attention::ContextParallel): they share the keys of a sequence, and one call stands for all of them; head-parallel: they share the heads, and each has calls of its own |
//! | rule | a launcher's table that picks a tile or a number of splits from the facts of a call; see [`numerics`](crate::subject::attention::numerics) |
//! | poison | what dead slots hold: NaN, or under the poison relation the largest finite number |
//! | witness | evidence that a case could have failed: a changed order changes its bits |
//! | [finding, verdict](crate::finding) | one thing wrong or undecided; all of a case's findings in check order |
//! | signature | a finding without its numbers, e.g. `not_invariant infer chunk o`; what shrinking keeps |
//! | [suite](crate::suite) | named tests over a kernel of your own |
//! | lse | natural log-sum-exp of a row's scores; compared beside the output |
//! | ULP | the distance between neighbouring numbers of a format; two patterns are `n` ULP apart if `n` steps lead from one to the other |
