//! What children do, by name.

use lastbit::external::frame::{Body, HEADER, Header, Kind, Layout, frame};
use lastbit::external::message::answer;
use lastbit::external::message::hello::Hello;
use lastbit::external::message::received::{Kept, Received};
use lastbit::external::message::welcome::Welcome;
use lastbit::external::process::{Command, Limits, ProcessKernel};
use lastbit::external::serve::serve;
use lastbit::finding::Breakage;
use lastbit::number::Dtype;
use lastbit::subject::attention::capabilities::Capabilities;
use lastbit::subject::attention::kernel::{
    AttentionKernel, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use lastbit::subject::attention::numerics::Numerics;
use lastbit::subject::attention::reference::Reference;
use lastbit::tensor::Tensor;
use rustix::process::{Signal, getpid, kill_process};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::time::Duration;

/// The environment variable that makes this binary a child.
pub const ROLE: &str = "LASTBIT_TEST_CHILD";
/// What a role is about: a file, a welcome.
pub const ABOUT: &str = "LASTBIT_TEST_ABOUT";

/// This binary in a role.
pub fn command(role: &str) -> Command {
    let binary = std::env::current_exe().expect("this binary").display().to_string();
    Command { argv: vec![binary], environment: vec![(ROLE.into(), role.into())], folder: None }
}

/// This binary in a role that is about something.
pub fn command_about(role: &str, about: &str) -> Command {
    let mut command = command(role);
    command.environment.push((ABOUT.into(), about.into()));
    command
}

/// `lastbit serve` with a kernel.
pub fn serving(kernel: &str) -> Command {
    let argv = [env!("CARGO_BIN_EXE_lastbit"), "serve", kernel].map(str::to_owned).to_vec();
    Command { argv, environment: Vec::new(), folder: None }
}

/// Limits that a loaded machine keeps.
pub fn patient() -> Limits {
    Limits { start: Duration::from_secs(60), call: Duration::from_secs(60), compile: Duration::ZERO, memory: 4 << 30 }
}

/// Limits for children that never answer.
pub fn short() -> Limits {
    Limits { call: Duration::from_millis(300), ..patient() }
}

/// Starts a child.
pub fn start(command: Command, limits: Limits) -> ProcessKernel {
    ProcessKernel::start(command, limits).expect("a kernel process")
}

pub fn play(role: &str) -> ExitCode {
    match role {
        "parent" => parent(),
        "exits_before_its_welcome" => {
            eprintln!("ImportError: no module named kernels");
            return ExitCode::from(7);
        }
        "never_welcomes" => hang(),
        "leaks_alone" => leak(),
        "prints_first" => print("Loading checkpoint shards: 100%\n"),
        "starts_once" if restarted() => {
            eprintln!("the device is gone");
            return ExitCode::from(9);
        }
        "huge_welcome" => {
            let mut pipe = Pipe;
            pipe.next();
            pipe.write(&Header { kind: Kind::Welcome, shared: false, id: 0, length: 3 << 30 }.to_bytes());
            hang();
        }
        "welcome" => {
            let mut pipe = Pipe;
            pipe.next();
            pipe.write(&frame(Kind::Welcome, 0, &Body::default().scalar("kernel", about())));
            hang();
        }
        "welcome_in_file" => {
            let mut pipe = Pipe;
            pipe.next();
            let welcome = std::fs::read_to_string(about()).expect("a welcome");
            pipe.write(&frame(Kind::Welcome, 0, &Body::default().scalar("kernel", welcome)));
            hang();
        }
        "other_protocol" => {
            let mut pipe = Pipe;
            pipe.next();
            pipe.write(&frame(Kind::Failed, 0, &Body::default().scalar("reason", "speaks version 9 only")));
            return ExitCode::from(3);
        }
        "raw_deaf" => {
            let mut pipe = Pipe;
            pipe.next();
            pipe.write(&frame(Kind::Welcome, 0, &Welcome::of(&Reference::default(), false).body()));
            hang();
        }
        "stale" => stale(),
        "honest_by_pipe" => {
            let mut pipe = Pipe;
            pipe.next();
            let hello = frame(Kind::Hello, 0, &Hello::new(None).body());
            let kernel = Trick::here("honest");
            serve(&kernel, (&hello[..]).chain(std::io::stdin().lock()), std::io::stdout().lock()).expect("frames");
        }
        "loses_its_device_in_shared_memory" => return lost_in_shared_memory(),
        role if role.starts_with("raw_") => return raw(role),
        _ => {
            let version = if role == "other_version" && std::fs::exists(about()).unwrap_or(false) { "2" } else { "1" };
            let kernel = Trick { role: role.to_owned(), version: version.to_owned(), reference: Reference::default() };
            serve(&kernel, std::io::stdin().lock(), std::io::stdout().lock()).expect("frames");
        }
    }
    ExitCode::SUCCESS
}

fn about() -> String {
    std::env::var(ABOUT).expect("what the role is about")
}

/// Whether the file that the role is about is there already; makes it.
fn restarted() -> bool {
    let before = std::fs::exists(about()).expect("a folder");
    std::fs::write(about(), "").expect("a file");
    before
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// To 2 GiB, should nobody stop it.
fn leak() -> ! {
    let mut leaked: Vec<Vec<u8>> = Vec::new();
    for _ in 0..256 {
        leaked.push(vec![1; 8 << 20]);
        std::thread::sleep(Duration::from_millis(2));
    }
    hang()
}

fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).expect("stdout");
}

fn segfault() -> ! {
    loop {
        // Once is not enough: Rust's own handler lets the first one pass.
        let _ = kill_process(getpid(), Signal::SEGV);
    }
}

/// A child of its own that stays for long.
#[allow(clippy::zombie_processes, reason = "nobody waits for it: that is what is tested")]
fn sleeper() {
    std::process::Command::new("sleep").arg("1000").spawn().expect("sleep");
}

/// A parent that calls a child which hangs, and so never ends by itself.
fn parent() {
    let kernel = start(command(&about()), patient());
    let _ = super::calls::call(&kernel, 8);
}

/// The reference kernel with something wrong.
pub struct Trick {
    role: String,
    version: String,
    reference: Reference,
}

impl Trick {
    /// In the process of the test.
    pub fn here(role: &str) -> Trick {
        Trick { role: role.to_owned(), version: "1".into(), reference: Reference::default() }
    }

    fn run(&self, call: Call<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let long = longest(call) >= 129;
        match self.role.as_str() {
            "honest" => {}
            "segfaults_at_129" if long => segfault(),
            "exits_at_129" if long => {
                eprintln!("fatal: workspace too small");
                std::process::exit(3);
            }
            "hangs_at_129" if long => hang(),
            "hangs_with_a_child_of_its_own" => {
                sleeper();
                hang();
            }
            "leaves_a_child_behind" => {
                sleeper();
            }
            "ends_and_leaves_a_child" => {
                sleeper();
                std::process::exit(4);
            }
            "leaks_at_129" if long => leak(),
            "child_leaks" => {
                // The memory is its child's.
                let child = command("leaks_alone");
                let status = std::process::Command::new(&child.argv[0]).env(ROLE, "leaks_alone").status();
                panic!("a child that leaks for ever has ended: {status:?}");
            }
            "answers_late" => std::thread::sleep(Duration::from_secs(2)),
            "slow_first" => std::thread::sleep(Duration::from_millis(700)),
            "nan" => {
                outputs.o.bits.fill(outputs.o.dtype.nan_bits());
                outputs.lse.bits.fill(Dtype::F32.nan_bits());
                return Ok(());
            }
            "panics_at_129" if long => panic!("index out of range"),
            "refuses" => return Err(KernelError::Unsupported("head dim 8".into())),
            "loses_its_device_at_129" if long => {
                let detail = "CUDA error: an illegal memory access was encountered".into();
                return Err(KernelError::Broken { breakage: Breakage::DeviceError, detail });
            }
            "starts_once" | "other_version" if long => std::process::exit(5),
            _ => {}
        }
        match call {
            Call::Varlen(call) => self.reference.varlen(call, outputs),
            Call::Dense(call) => self.reference.dense(call, outputs),
            Call::Paged(call) => self.reference.paged(call, outputs),
        }
    }
}

/// Answers every call in shared memory: the first with what it computed, the others with what still lies there.
fn stale() {
    let mut pipe = Pipe;
    let (_, body) = pipe.next().expect("hello");
    let layout = Layout::read(&mut &body[..], body.len() as u64).expect("a body");
    let told = Hello::parse(&layout).expect("hello").shared_memory.expect("shared memory");
    let file = std::fs::File::options().read(true).write(true).open(&told.path).expect("the regions");
    pipe.write(&frame(Kind::Welcome, 0, &Welcome::of(&Reference::default(), true).body()));
    let mut first = None;
    while let Some((header, _)) = pipe.next().filter(|(header, _)| header.kind == Kind::Call) {
        assert!(header.shared, "the call is too small");
        let length = *first.get_or_insert_with(|| {
            let mut request = vec![0; header.length as usize];
            file.read_exact_at(&mut request, 0).expect("a request");
            let call = Received::read(&mut &request[..], header.length, &mut Kept::default()).expect("a call");
            let (dtype, dims) = call.output().expect("outputs");
            let (o, lse) = (Tensor::filled(dtype, &dims, 0), Tensor::filled(Dtype::F32, &dims[..dims.len() - 1], 0));
            let answer = frame(Kind::Result, 0, &answer::result(&o, Some(&lse)));
            file.write_all_at(&answer[HEADER..], told.request_bytes).expect("an answer");
            (answer.len() - HEADER) as u64
        });
        pipe.write(&Header { kind: Kind::Result, shared: true, id: header.id, length }.to_bytes());
    }
}

fn longest(call: Call<'_>) -> u32 {
    let lengths: Vec<u32> = match call {
        Call::Varlen(call) => call.cu_seqlens_k.windows(2).map(|it| it[1] - it[0]).collect(),
        Call::Dense(call) => call.lengths_kv.to_vec(),
        Call::Paged(call) => call.cache_seqlens.to_vec(),
    };
    lengths.into_iter().max().unwrap_or(0)
}

impl AttentionKernel for Trick {
    fn identity(&self) -> Identity {
        if self.role == "other_version" {
            std::fs::write(about(), "").expect("a file");
        }
        Identity::cpu("trick", &self.version)
    }
    fn numerics(&self) -> Option<Numerics> {
        self.reference.numerics()
    }
    fn context_parallel(&self) -> bool {
        // Without, it would list all other features.
        self.role == "refuses"
    }
    fn capabilities(&self) -> Capabilities {
        if self.role == "refuses" {
            // What is declared in so many words and refused is wrong, which is more than to pass nothing.
            return Capabilities::default();
        }
        let page_sizes = (self.role == "endless_pages").then(|| vec![u32::MAX]);
        Capabilities { page_sizes, ..self.reference.capabilities() }
    }
    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Varlen(call), outputs)
    }
    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Dense(call), outputs)
    }
    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Paged(call), outputs)
    }
}

/// Frames by hand.
struct Pipe;

impl Pipe {
    fn next(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut stdin = std::io::stdin().lock();
        let mut header = [0; HEADER];
        stdin.read_exact(&mut header).ok()?;
        let header = Header::parse(&header).expect("a header");
        let mut body = vec![0; if header.shared { 0 } else { header.length as usize }];
        stdin.read_exact(&mut body).expect("a body");
        Some((header, body))
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).expect("stdout");
    }
}

/// A child that answers with zeros, and spoils the answer to each call of 129 keys or more.
fn raw(role: &str) -> ExitCode {
    let mut pipe = Pipe;
    let (_, body) = pipe.next().expect("hello");
    let layout = Layout::read(&mut &body[..], body.len() as u64).expect("a body");
    Hello::parse(&layout).expect("hello");
    pipe.write(&frame(Kind::Welcome, 0, &Welcome::of(&Reference::default(), false).body()));
    if role == "raw_unasked" {
        pipe.write(&frame(Kind::Result, 5, &Body::default()));
    }
    while let Some((header, body)) = pipe.next() {
        if header.kind == Kind::Bye {
            break;
        }
        let id = header.id;
        let call = Received::read(&mut &body[..], header.length, &mut Kept::default()).expect("a call");
        let (dtype, dims) = call.output().expect("outputs");
        let heads = &dims[..dims.len() - 1];
        let long = call.make(longest).expect("a call") >= 129;
        let o = Tensor::filled(dtype, &dims, 0);
        let lse = Tensor::filled(Dtype::F32, heads, 0);
        let good = frame(Kind::Result, id, &answer::result(&o, Some(&lse)));
        if !long {
            pipe.write(&good);
            continue;
        }
        match role {
            "raw_noise" => {
                print("step 12: loss 0.25\n");
                pipe.write(&good);
            }
            "raw_half" => {
                pipe.write(&good[..good.len() / 2]);
                return ExitCode::SUCCESS;
            }
            "raw_half_then_segfault" => {
                pipe.write(&good[..good.len() / 2]);
                segfault();
            }
            "raw_half_then_hang" => {
                pipe.write(&good[..good.len() / 2]);
                hang();
            }
            "raw_huge" => {
                let mut header = Header { kind: Kind::Result, shared: false, id, length: 0 }.to_bytes();
                header[16..].copy_from_slice(&(10u64 << 30).to_le_bytes());
                pipe.write(&header);
                hang();
            }
            "raw_large" => {
                // Within the protocol, and beyond what the call can need.
                pipe.write(&Header { kind: Kind::Result, shared: false, id, length: 3 << 30 }.to_bytes());
                let zeros = vec![0; 1 << 20];
                let mut stdout = std::io::stdout().lock();
                while stdout.write_all(&zeros).is_ok() {}
                hang();
            }
            "raw_other_id" => pipe.write(&frame(Kind::Result, id + 1000, &answer::result(&o, Some(&lse)))),
            "raw_old_id" => pipe.write(&frame(Kind::Result, id - 1, &answer::result(&o, Some(&lse)))),
            "raw_twice" => {
                pipe.write(&[&good[..], &good[..]].concat());
            }
            "raw_ends" => {
                pipe.write(&good);
                return ExitCode::SUCCESS;
            }
            "raw_kind" => pipe.write(&frame(Kind::Welcome, id, &Body::default())),
            "raw_unknown_kind" => {
                let mut bytes = good.clone();
                bytes[6] = 99;
                pipe.write(&bytes);
            }
            "raw_version" => {
                let mut bytes = good.clone();
                bytes[4] = 2;
                pipe.write(&bytes);
            }
            "raw_shared" => pipe.write(&Header { kind: Kind::Result, shared: true, id, length: 64 }.to_bytes()),
            "raw_shape" => {
                let mut dims = dims.clone();
                dims.push(1);
                let o = Tensor { dtype, dims, bits: o.bits.clone() };
                pipe.write(&frame(Kind::Result, id, &answer::result(&o, Some(&lse))));
            }
            "raw_dtype" => {
                let other = if dtype == Dtype::F32 { Dtype::BF16 } else { Dtype::F32 };
                let o = Tensor::filled(other, &dims, 0);
                pipe.write(&frame(Kind::Result, id, &answer::result(&o, Some(&lse))));
            }
            "raw_no_lse" => pipe.write(&frame(Kind::Result, id, &answer::result(&o, None))),
            "raw_extra" => {
                let body = answer::result(&o, Some(&lse)).tensor("scores", &lse);
                pipe.write(&frame(Kind::Result, id, &body));
            }
            "raw_no_body" => {
                let mut bytes = good.clone();
                bytes[HEADER..].fill(b'x');
                pipe.write(&bytes);
            }
            "raw_closes_stdout" => {
                let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
                hang();
            }
            other => panic!("no role `{other}`"),
        }
    }
    ExitCode::SUCCESS
}

/// A child that says through shared memory that its device is lost, and fails every call from then on.
fn lost_in_shared_memory() -> ExitCode {
    let mut pipe = Pipe;
    let (_, body) = pipe.next().expect("hello");
    let layout = Layout::read(&mut &body[..], body.len() as u64).expect("a body");
    let told = Hello::parse(&layout).expect("hello").shared_memory.expect("shared memory");
    pipe.write(&frame(Kind::Welcome, 0, &Welcome::of(&Reference::default(), true).body()));
    let mut lost = false;
    loop {
        let mut header = [0; HEADER];
        if std::io::stdin().lock().read_exact(&mut header).is_err() {
            return ExitCode::SUCCESS;
        }
        let Header { kind, shared, id, length } = Header::parse(&header).expect("a header");
        if kind == Kind::Bye {
            return ExitCode::SUCCESS;
        }
        if shared {
            let error = KernelError::Broken { breakage: Breakage::DeviceError, detail: "the device is lost".into() };
            let (kind, body) = answer::error(&error);
            let bytes = body.head();
            let file = std::fs::File::options().write(true).open(&told.path).expect("the regions");
            file.write_all_at(&bytes, told.request_bytes).expect("the answer region");
            pipe.write(&Header { kind, shared: true, id, length: bytes.len() as u64 }.to_bytes());
            lost = true;
            continue;
        }
        let mut body = vec![0; length as usize];
        std::io::stdin().lock().read_exact(&mut body).expect("a body");
        if lost {
            pipe.write(&frame(Kind::Failed, id, &Body::default().scalar("reason", "the device is still lost")));
            continue;
        }
        let call = Received::read(&mut &body[..], length, &mut Kept::default()).expect("a call");
        let (dtype, dims) = call.output().expect("outputs");
        let (o, lse) = (Tensor::filled(dtype, &dims, 0), Tensor::filled(Dtype::F32, &dims[..dims.len() - 1], 0));
        pipe.write(&frame(Kind::Result, id, &answer::result(&o, Some(&lse))));
    }
}
