//! What a call of a kernel process costs over the call itself: small calls per second, and how fast large tensors go.
//!
//! `cargo bench --bench process`. The child is this binary with a kernel that does nothing, so that all time is the protocol's. Exit code 1
//! where a limit is missed.
//!
//! How large tensors are counted: the bytes of a call's tensors and of its results, once each, over the time of the whole call, against
//! the bytes per second of `copy_from_slice` between two buffers of the same size whose pages are there, measured in between. A copy reads and
//! writes each byte; it is counted once there too.

use lastbit::external::frame::{HEADER, Header, Kind, frame};
use lastbit::external::message::hello::Hello;
use lastbit::external::process::{Command, Limits, ProcessKernel};
use lastbit::external::serve::serve;
use lastbit::number::Dtype;
use lastbit::subject::attention::kernel::{AttentionKernel, Attributes, Identity, KernelError, Outputs, VarlenCall};
use lastbit::subject::attention::{Anchor, Mask};
use lastbit::tensor::Tensor;
use std::hint::black_box;
use std::io::Read;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Makes this binary the child; `pipe` is one that maps no shared memory.
const CHILD: &str = "LASTBIT_BENCH_CHILD";
/// Small calls per second, whatever the number of threads.
const SMALL_LEAST: f64 = 5000.0;
/// Share of the speed of memory copy.
const LARGE_LEAST: f64 = 0.5;
const LARGE: usize = 64 << 20;
const ROUNDS: usize = 9;

struct Nothing;

impl AttentionKernel for Nothing {
    fn identity(&self) -> Identity {
        Identity::cpu("nothing", "1")
    }

    fn varlen(&self, _: &VarlenCall<'_>, _: Outputs<'_>) -> Result<(), KernelError> {
        Ok(())
    }
}

/// The tensors of one call: one head of 64 lanes.
struct Tensors {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
}

impl Tensors {
    fn new(q: usize, kv: usize) -> Self {
        let tensor = |rows: usize| Tensor::filled(Dtype::F32, &[rows, 1, 64], 0x3f80_0000);
        let lse = Tensor::filled(Dtype::F32, &[q, 1], 0);
        Tensors { q: tensor(q), k: tensor(kv), v: tensor(kv), o: tensor(q), lse }
    }

    fn bytes(&self) -> usize {
        [&self.q, &self.k, &self.v, &self.o, &self.lse].map(|it| it.bits.len() * 4).iter().sum()
    }

    fn call(&mut self, kernel: &ProcessKernel) {
        let attributes = Attributes {
            q_heads: 1,
            kv_heads: 1,
            d_qk: 64,
            d_v: 64,
            softmax_scale: 0.125,
            mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
            softcap: None,
            sinks: None,
            alibi_slopes: None,
            block_q: 64,
            kv_scales: None,
            context: None,
            out_dtype: Dtype::F32,
            knobs: &[],
        };
        let lengths = [self.q.dims[0] as u32, self.k.dims[0] as u32];
        let call = VarlenCall {
            attributes: &attributes,
            q: &self.q,
            k: &self.k,
            v: &self.v,
            cu_seqlens_q: &[0, lengths[0]],
            cu_seqlens_k: &[0, lengths[1]],
        };
        kernel.varlen(&call, Outputs { o: &mut self.o, lse: &mut self.lse }).expect("an answer");
    }
}

fn small(kernel: &ProcessKernel, threads: usize) -> f64 {
    let calls = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut tensors = Tensors::new(1, 8);
                while begun.elapsed() < Duration::from_millis(700) {
                    tensors.call(kernel);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    calls.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// Bytes per second of a copy, and of the call; the best of interleaved rounds.
fn large(kernel: &ProcessKernel, tensors: &mut Tensors) -> [f64; 2] {
    let from = vec![1u32; LARGE / 4];
    let mut to = vec![2u32; LARGE / 4];
    let mut best = [0f64; 2];
    tensors.call(kernel); // pages are made
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        best[0] = best[0].max(LARGE as f64 / begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        tensors.call(kernel);
        best[1] = best[1].max(tensors.bytes() as f64 / begun.elapsed().as_secs_f64());
    }
    best
}

/// Seconds of one call, the best of rounds.
fn seconds(kernel: &ProcessKernel, tensors: &mut Tensors) -> f64 {
    let once = |_| {
        let begun = Instant::now();
        tensors.call(kernel);
        begun.elapsed().as_secs_f64()
    };
    (0..40).map(once).fold(f64::INFINITY, f64::min)
}

fn child(kind: &str) {
    let (stdin, stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    if kind == "pipe" {
        // The hello of a side that has no shared memory, in place of the one that comes.
        let mut stdin = stdin;
        let mut header = [0; HEADER];
        stdin.read_exact(&mut header).expect("a header");
        let length = Header::parse(&header).expect("a header").length;
        std::io::copy(&mut stdin.by_ref().take(length), &mut std::io::sink()).expect("a body");
        let hello = frame(Kind::Hello, 0, &Hello::new(None).body());
        serve(&Nothing, (&hello[..]).chain(stdin), stdout).expect("frames");
    } else {
        serve(&Nothing, stdin, stdout).expect("frames");
    }
}

fn start(kind: &str) -> ProcessKernel {
    let binary = std::env::current_exe().expect("this binary").display().to_string();
    let command = Command { argv: vec![binary], environment: vec![(CHILD.into(), kind.into())], folder: None };
    ProcessKernel::start(command, Limits::default()).expect("a kernel process")
}

fn main() -> ExitCode {
    if let Ok(kind) = std::env::var(CHILD) {
        child(&kind);
        return ExitCode::SUCCESS;
    }
    // `-- small`, `-- sizes` or `-- large` measures one of the three.
    let wanted = |name: &str| !std::env::args().skip(1).any(|it| !it.starts_with("--") && it != name);
    let kernel = start("mapped");
    let mut missed = false;
    if wanted("small") {
        println!("small calls, 1 row and 8 keys of 64 lanes (at least {SMALL_LEAST:.0}/s)");
        for threads in [1, 4, 8] {
            let best = (0..3).map(|_| small(&kernel, threads)).fold(0.0, f64::max);
            missed |= best < SMALL_LEAST;
            println!("  {threads} threads  {best:8.0}/s");
        }
    }
    if wanted("sizes") {
        let pipe = start("pipe");
        println!("time of a call by its bytes, with shared memory where lastbit uses it, and by the pipe alone");
        for kib in [32, 64, 128, 256, 512, 1024, 4096] {
            // q and o take nearly all.
            let mut tensors = Tensors::new(kib * 1024 / 512, 1);
            let [mapped, piped] = [&kernel, &pipe].map(|kernel| seconds(kernel, &mut tensors) * 1e6);
            println!("  {kib:5} KiB  {mapped:7.0} us  {piped:7.0} us");
        }
    }
    if wanted("large") {
        println!("large tensors, f32 (at least {LARGE_LEAST} of memory copy)");
        let rows = LARGE / 4 / 64;
        let shapes = [("k and v of 64 MiB each", Tensors::new(1, rows)), ("q and o of 64 MiB each", Tensors::new(rows, 8))];
        for (name, mut tensors) in shapes {
            let [copy, call] = large(&kernel, &mut tensors);
            let share = call / copy;
            missed |= share < LARGE_LEAST;
            println!("  {name}: {:.2} GB/s, copy {:.2} GB/s, {share:.2}", call / 1e9, copy / 1e9);
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
