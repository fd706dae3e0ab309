//! Keeping a regression.
//!
//! A finding ends as a *case file*: TOML, small, and complete. It names both kernels, the problem, both plans, the values in bits,
//! the relation that failed and what a replay must show; see [`text`](crate::subject::attention::text). Case files load for ever.
//!
//! # In a crate of your own
//!
//! A failing test of a [suite](crate::suite) writes one below `target/` and prints how to run it again, alone:
//!
//! ```text
//! LASTBIT_CASE=target/tmp/tiny-attention-chunk.case cargo test chunk
//! ```
//!
//! That runs the kernel as it is now on exactly that case: edit, run, repeat. `lastbit show FILE` puts it in words. When it is fixed,
//! copy the file to a folder, and say in its first line why it is kept:
//!
//! ```text
//! # the causal mask forgot the keys before the new rows (decode)
//! ```
//!
//! `attention_suite!(suite, kept: "tests/kept")` stamps one more test, `kept`, which replays every case file of the folder. There,
//! each must be *right* now; what `expect` says was so when it was found. The program cannot replay such a file, since only your
//! crate holds the kernel; with `--train` and `--infer` it runs the case on reference kernels.
//!
//! # In this repository
//!
//! `lastbit fuzz` writes `lastbit.out/shrunk/*.case`. Copied to `corpora/regressions/attention/`, a file becomes a test of its own that
//! must still show what it was kept for (reference kernels with a fault do not get fixed), and gets a snapshot of its full verdict.
