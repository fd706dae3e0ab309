//! Kernels from outside: other processes, C libraries, and files that name them.
//!
//! # Names
//!
//! Wherever the command line takes a kernel, it takes one of these:
//!
//! | name | what runs |
//! |---|---|
//! | `ref:PRESET[,field=value...]` | the reference kernel, in this process |
//! | `process:COMMAND LINE` | a command that speaks the protocol (`docs/protocol.md` in the repository) on stdin and stdout |
//! | `lib:PATH` | a C library behind `include/lastbit.h`, in a process of its own; with `--trust` in this one |
//! | `PATH.toml` | what a [kernel file](crate::external::kernel_file) says |
//!
//! The command line of `process:` is split into words as a shell does it, and no shell runs: `~`, `*`, `|` and `$` mean nothing. The program is
//! looked for along `PATH`, everything else is relative to the working directory; in a kernel file, to the folder of that file.
//! `lastbit kernels K` starts a kernel, prints what it says of itself, and ends it.
//!
//! Each side of a pair has a process of its own, also where both have one name. `lastbit serve K` is the other end: it serves any kernel that
//! can be named, and shows what a kernel process does.
//!
//! # What happens when it breaks
//!
//! A kernel that crashes, hangs, grows without end, writes noise where its answer belongs, or answers with other shapes than asked for has a
//! *fault*. It is a finding (exit code 1) like a difference in bits: the case is kept, shrunk and replayed, with the end of what the
//! process wrote to stderr. The process is started again, and the run goes on. The signature of such a finding names the way in which it broke:
//!
//! | signature | what was seen |
//! |---|---|
//! | `fault infer crashed` | the process ended: a signal, or an early exit |
//! | `fault infer timed_out` | no answer within `call` (and `compile`, for the first call of a shape) |
//! | `fault infer out_of_memory` | the process and its children hold more than `memory` |
//! | `fault infer garbled` | the answer is none: noise, half a frame, another request's number |
//! | `fault infer misshapen` | tensors of other shapes or formats than asked for |
//! | `fault infer wrote_outside` | a guard around an output was changed |
//! | `fault infer device_error` | the device's state is lost |
//! | `fault infer not_started` | the process could not be started again, or is another kernel than it was |
//! | `fault infer failed` | the kernel says that it failed |
//! | `fault infer unwritten o` | a slot of a valid row was left as it was |
//!
//! A kernel that cannot be started at all ends the command with exit code 2, before anything has run, and with what it wrote.
//!
//! A small case is run once more where nothing was called before. Where it does not show its finding there, the report says so: *does not show
//! in a fresh process: depends on what was called before*. Then look for a workspace that is not cleared, an autotuner, or memory that
//! is read before it is written.
//!
//! # Limits
//!
//! | limit | default | what it bounds |
//! |---|---|---|
//! | `start` | 120 s | from the start to the welcome: importing a framework takes seconds |
//! | `call` | 30 s | one call |
//! | `compile` | 120 s | more, for the first call of a shape |
//! | `memory` | 16 GiB | resident bytes of the process and its children |
//!
//! They are set in a kernel file. Where a process hits one, it is ended with all of its process group. No child outlives `lastbit`, however that
//! ends. Memory is watched by size, not limited by address space, which CUDA could not live with.
//!
//! # Who it is
//!
//! A kernel says its name, version, device and digest, and what else its bits may depend on (library versions, threads, environment,
//! an autotuned configuration). A kernel file may pin the first, the second and the digest: a kernel that says otherwise is refused, unless the
//! command line has `--accept-changed`. `lastbit fuzz --resume` compares all of it, and refuses to go on with another kernel.
//!
//! # What starts a program, and what does not
//!
//! - A command line does, and a kernel file that it names. Read a kernel file that is not yours before you name it.
//! - A **case file does not**. It holds the words under which its kernels were named, as a note. A replay without a kernel on its command line is
//!   refused, and the refusal prints the command that would replay it, so that it can be read first. The same goes for the folder of
//!   a run that is resumed.
//! - A **library** runs code as soon as it is loaded. In a process of its own it cannot harm the run; with `--trust`, or `trust = true` in a
//!   kernel file, it can: a crash ends `lastbit`, and a stray write may change any result.
//! - A process is isolated so that it cannot endanger the run, not as a sandbox: it has your rights, your files and your network.
//! - What a kernel writes (names, reasons, stderr) is bounded before it is shown, and cannot steer a terminal.
