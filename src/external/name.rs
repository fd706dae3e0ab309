//! What a command line calls a kernel: `ref:...`, `process:...`, `lib:...`, or a kernel file.
