//! Reading a verdict, line by line.
//!
//! `lastbit explain`, `lastbit shrink` and a failing test of a [suite](crate::suite) end in the same text; `lastbit replay` leaves out the
//! trees and the growth. Here, a training kernel that
//! sums all keys in one go against a server that splits them at 64:
//!
//! ```text
//! case: bf16 d_qk=1 d_v=1 heads=1/1 scale=1.0 | 1 seq (q 1, kv 65) | varlen, block_q 64 | contiguous, decode | 131 literal values
//! train: ref:aligned
//! infer: ref:aligned,grid.split=fixed_size(64)
//! verdict: mismatch o, 1 of 1 elements differ
//!   o[seq=0 row=0 head=0 d=0]: train c089 (-4.28125)  infer c088 (-4.25)  1 ULP apart  true c088 (-4.25), infer nearer
//! verdict: mismatch lse, 1 of 1 elements differ
//!   lse[seq=0 row=0 head=0]: train 408f75e2 (4.48314)  infer 408f75e3 (4.4831405)  1 ULP apart  true 408f75e2 (4.48314), train nearer
//! first divergence (seq=0 row=0 head=0, position 64): Training sums keys 0..65 in one split, inference splits at 64.
//!   only in training: the maximum over keys 0..65, in block 64..65: 3fa40000 (1.28125)
//!   first differing value: the finished output, lane 0
//!   training c0888a25 (-4.2668633)  inference c0886d6e (-4.263358)  true c0887e4d (-4.2654176), training nearer
//! trees: training (0..64 | 64), inference ((0..64) (64))
//! growth: largest distances at each stage, apart and from the exact value, in ULP; a # for each doubling
//!                   steps     apart     train     infer  nearer
//!   dot product        65         0         0         0          |
//!   score              65         0         0         0          |
//!   maximum             1         0         0         0          |
//!   weight             64         0      0.44      0.44          |
//!   row sum             2         0      1.85      1.85          |
//!   accumulator         1         0      0.80      0.80          |
//!   split               4  only in inference
//!   merge               2  only in inference
//!   output              1      7351      3032      4319  train   |#############
//!   stored              1      1.00      0.51      0.49  infer   |#
//!   lse                 1      1.00      0.17      0.83  train   |#
//! cause: order: grid.split: none against fixed_size(64)
//! ```
//!
//! - **case**: formats, head dims, query heads / KV heads, mask and scale; the sequences; the training layout; the cache and the steps;
//!   where the values come from. This is the smallest case that shrinking found: `kv 65` is the first length at which the split
//!   exists.
//! - **train**, **infer**: the kernels. One kernel may stand on both sides.
//! - **verdict**: one line for each finding, and its first differing elements below it. `c089` is the bf16 pattern, in parentheses its
//!   value; then the distance in steps of the format; then the proven true value and the side nearer to it. Neither side need be
//!   wrong: both may be within what their arithmetic allows.
//! - **first divergence**: the first step inside the two kernels that differs, in the order of the mathematics (scores, maxima, weights, sums,
//!   merges, outputs): how the keys are cut, where that differs; the first step that only one of the two takes; and the first value that
//!   differs, with what exact arithmetic gives for the same step, rounded once. Values are compared where they mean the same: the same keys,
//!   weights against the same key's score, the same units. For reference kernels only; a kernel from outside is a closed box.
//! - **trees**: in which order the products with V are added, over key positions. Brackets as in [`crate::tree`], with runs of keys as
//!   ranges; at a `|` a block ends, and what came before may be rescaled.
//! - **growth**: for each stage the steps that both took, the largest distance between the two, and of each from the exact value, in ULP
//!   of the exact value (of the larger result where that is zero or subnormal; of the output format for what is stored, else of f32), and
//!   which of the two is nearer where they differ. A difference that begins at one stage and vanishes at another was rounded away there.
//! - **cause**: the field that, made equal, makes the finding go away, and which of the four causes that is: semantics, order,
//!   blocking or precision. `unknown` where one of the two is a kernel from outside: ask `lastbit probe` which arithmetic that one follows.
//!
//! # Kinds of finding
//!
//! | text | what it says | where to look |
//! |---|---|---|
//! | `mismatch o` | train and infer differ in bits | the cause line; then which relations fail |
//! | ``not invariant to chunk (infer), o, ... under `infer chunk rows=1` `` | one kernel gave a row other bits when this, and nothing else, changed around it | what the kernel derives from that: a grid from the step's rows, a split from the batch, a length from the padding |
//! | `inaccurate o (infer)` | a result is further from the true value than the bound computed for the declared numerics, or not finite where the truth is | a large error: semantics (mask, head map, stale slots); a small one: a step in a lower precision than declared |
//! | `fault (infer)` | the kernel failed, panicked, or left an element unwritten | the text says which |
//! | `undecided` | the oracle could not settle an element | nothing is wrong, and nothing is passed |
//! | `skipped` | the kernel refused the case, or an overflow was predicted | nothing is wrong, and nothing is passed |
//!
//! In `not invariant`, *base* is the case as it stands and *changed* the same row under the relation; the relation is spelled so that
//! `[run] relation` of a case file replays exactly it. In `inaccurate`, error and bound are in ULPs of the true value, or plain
//! numbers beside zero.
//!
//! A run over many cases says what it *reached*: [plan features](crate::subject::attention::reach::PlanFeature) that its calls really had.
//! One that the kernels can have and that never came makes a quiet run UNVERIFIABLE.
//!
//! A case in which nothing was compared is no match, and has an exit code of its own ([`crate::exit_code`]).

#[cfg(test)]
mod tests {
    /// The page shows what the program says.
    #[test]
    fn the_verdict_shown_is_a_real_one() {
        let page = include_str!("verdict.rs");
        let shown = page.split("```text\n").nth(1).and_then(|rest| rest.split("//! ```").next()).expect("the verdict");
        let shown: String = shown.lines().map(|line| format!("{}\n", line.strip_prefix("//! ").unwrap_or(line))).collect();
        let real = include_str!("../../snapshots/order-fixed-split-bf16.snap");
        assert!(shown.lines().count() > 5 && real.contains(&shown), "{shown}");
    }
}
