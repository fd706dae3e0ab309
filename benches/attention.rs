//! What the loop costs, in units of R: one scalar reference training pass of the same case.
//!
//! Criterion reports absolute times. They depend on the machine, so the promises are ratios: the run ends with a table
//! `limit  measured` from interleaved measurements, and with exit code 1 if a ratio is over its limit.
//!
//! `cargo bench --bench attention`; `cargo bench --bench attention -- ratios` prints the table alone.

use criterion::{BenchmarkId, Criterion};
use lastbit::finding::Path;
use lastbit::lab::{self, Campaign, Flow, Length};
use lastbit::number::Dtype;
use lastbit::subject::attention::check::Pair;
use lastbit::subject::attention::drive::{self, Poison};
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::oracle::{Mode, Oracle};
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::relation::{Relation, SidedRelation};
use lastbit::subject::attention::trial::{Checks, Trial};
use lastbit::subject::attention::{
    Anchor, Attention, Cache, Case, Data, InferPlan, Inputs, Mask, Problem, Regime, Request, Sequence, Side, TrainLayout,
    validate,
};
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// R against a textbook loop.
const REFERENCE_LIMIT: f64 = 3.0;
/// Both paths, oracle and comparison, in R.
const CHECK_LIMIT: f64 = 8.0;
/// The values of a case, drawn: less than its reference pass.
const VALUES_LIMIT: f64 = 1.0;
/// How many times faster than MPFR at 200 bits the enclosure must be.
const ORACLE_LEAST: f64 = 80.0;
/// A relation, in R: the changed pass, its layout and the comparison. "About 1": decode against a cache costs more than R does.
const RELATION_LIMIT: f64 = 2.0;
/// The whole check of the long case, in seconds.
const LONG_LIMIT: f64 = 10.0;

/// Least number of interleaved rounds behind a ratio.
const ROUNDS: usize = 11;
/// Least time behind a ratio.
const MEASURED: Duration = Duration::from_millis(800);

/// One sequence of `q` rows and `kv` keys, one head, normal values, packed in training; in inference two thirds of the rows as a
/// prefill, the others one by one, on shuffled pages of 16.
fn case(q: u32, kv: u32, d: u32, dtype: Dtype) -> Case {
    let prefill = (q * 2 / 3).max(1);
    let problem = Problem {
        mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
        softmax_scale: 1.0 / (d as f32).sqrt(),
        ..Problem::plain(&[(q, kv)], [1, 1], [d, d], dtype)
    };
    let plain = Case::plain(problem, Data::Drawn { seed: 1, regime: Regime::Normal });
    let infer = InferPlan {
        cache: Cache::Paged { page: 16, spare: 2, shuffle: 7, recycled: false },
        requests: vec![Request { chunks: vec![prefill], ..Request::one_step(1) }],
        ..plain.infer
    };
    Case { infer, ..plain }
}

/// Every row a step of its own.
fn all_decode(mut case: Case) -> Case {
    case.infer.requests[0].chunks.clear();
    case
}

/// Two sequences, two KV heads with two query heads each, padded.
fn grouped(mut case: Case) -> Case {
    let first = case.problem.sequences[0];
    case.problem.sequences.push(Sequence { id: 1, ..first });
    (case.problem.kv_head_ids, case.problem.group_ids) = (vec![0, 1], vec![0, 1]);
    case.train.order = vec![0, 1];
    case.train.layout = TrainLayout::Dense { side: Side::Left, pad_q: 3, pad_kv: 5 };
    case.infer.requests.push(case.infer.requests[0].clone());
    case.infer.order = vec![1, 0];
    case
}

fn shapes() -> Vec<(&'static str, Case)> {
    let shapes = vec![
        ("64x64 d=64 f32", case(64, 64, 64, Dtype::F32)),
        ("64x64 d=64 bf16", case(64, 64, 64, Dtype::BF16)),
        ("64x64 d=64 f32, all decode", all_decode(case(64, 64, 64, Dtype::F32))),
        ("33x33 d=16 f16", case(33, 33, 16, Dtype::F16)),
        ("256x256 d=64 bf16", case(256, 256, 64, Dtype::BF16)),
        ("256x256 d=64 f32, all decode", all_decode(case(256, 256, 64, Dtype::F32))),
        ("2 x 48x80 d=32 bf16, 4 heads on 2", grouped(case(48, 80, 32, Dtype::BF16))),
    ];
    for (name, case) in &shapes {
        validate(case).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    shapes
}

fn pair(oracle: Mode) -> Pair {
    let aligned = || Implementation::reference(Reference::default());
    Pair { train: aligned(), infer: aligned(), oracle, captured: None, witness: true }
}

fn both_paths(case: &Case) -> Trial {
    Trial::new(case.clone(), Checks::Only { oracle: true, pair: true, relation: None })
}

/// What an author of kernels would write first: a row at a time, dot products one after another, online softmax over blocks of 64.
/// The numerics of `aligned`: the bits must be equal. Returns `o` and `lse`, `[total_q, q_heads, d_v]` and `[total_q, q_heads]`.
fn textbook(problem: &Problem, inputs: &Inputs) -> (Vec<u32>, Vec<u32>) {
    let (q, k, v) = (inputs.q.to_f32(), inputs.k.to_f32(), inputs.v.to_f32());
    let (heads, kv_heads) = (problem.q_heads(), problem.kv_heads());
    let (d_qk, d_v) = (problem.d_qk as usize, problem.d_v as usize);
    let mut out = Vec::with_capacity(problem.total_q() * heads * d_v);
    let mut lse = Vec::with_capacity(problem.total_q() * heads);
    let mut acc = vec![0.0f32; d_v];
    let mut scores = [0.0f32; 64];
    for (n, sequence) in problem.sequences.iter().enumerate() {
        for row in 0..sequence.q {
            let end = (row + 1 + sequence.kv).saturating_sub(sequence.q) as usize;
            for head in 0..heads {
                let kv_head = head / (heads / kv_heads);
                let q = &q[((inputs.q_start[n] + row as usize) * heads + head) * d_qk..][..d_qk];
                let key = |j: usize| &k[((inputs.kv_start[n] + j) * kv_heads + kv_head) * d_qk..][..d_qk];
                let value = |j: usize| &v[((inputs.kv_start[n] + j) * kv_heads + kv_head) * d_v..][..d_v];
                let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0f32);
                acc.fill(0.0);
                for block in (0..end).step_by(64) {
                    let keys = block..end.min(block + 64);
                    let mut block_max = max;
                    for (score, j) in scores.iter_mut().zip(keys.clone()) {
                        let mut dot = 0.0;
                        for (q, k) in q.iter().zip(key(j)) {
                            dot += q * k;
                        }
                        *score = dot * problem.softmax_scale;
                        block_max = block_max.max(*score);
                    }
                    if block > 0 && block_max > max {
                        let factor = core_math::expf(max - block_max);
                        sum *= factor;
                        acc.iter_mut().for_each(|x| *x *= factor);
                    }
                    max = block_max;
                    let mut block_sum = 0.0;
                    for score in &mut scores[..keys.len()] {
                        *score = core_math::expf(*score - max);
                        block_sum += *score;
                    }
                    sum += block_sum;
                    for (weight, j) in scores.iter().zip(keys) {
                        for (acc, v) in acc.iter_mut().zip(value(j)) {
                            *acc += weight * v;
                        }
                    }
                }
                out.extend(acc.iter().map(|x| problem.out_dtype.round_f32(x / sum)));
                lse.push((max + core_math::logf(sum)).to_bits());
            }
        }
    }
    (out, lse)
}

fn reference_pass(kernel: &Reference, case: &Case, inputs: &Inputs) -> drive::Produced {
    drive::train(kernel, &case.problem, &case.train, inputs, Poison::Nan, None).expect("the reference supports every case")
}

/// Every row and head through an oracle.
fn ask(oracle: &mut Oracle, case: &Case, inputs: &Inputs) {
    oracle.begin(&case.problem, &inputs.q, &inputs.k, &inputs.v);
    for (n, sequence) in case.problem.sequences.iter().enumerate() {
        for row in 0..sequence.q {
            for head in 0..case.problem.q_heads() {
                black_box(oracle.row(n, row, head, &[]));
            }
        }
    }
}

/// One relation of each kind that fits a case of one sequence, and both paths.
fn relations() -> Vec<SidedRelation> {
    let on = |path| move |relation| SidedRelation { path, relation };
    let train = [
        Relation::Repeat,
        Relation::Neighbour { q: 1, kv: 9, count: 1 },
        Relation::Padding { side: Side::Left, pad_q: 3, pad_kv: 5 },
        Relation::PrefixStability { seq: 0, drop: 3 },
    ];
    let infer = [
        Relation::Repeat,
        Relation::Neighbour { q: 1, kv: 9, count: 1 },
        Relation::Bucket { size: 4 },
        Relation::Poison,
        Relation::Pages { page: 7, shuffle: 3 },
        Relation::Chunk { rows: 16 },
        Relation::Prefix { hit: 24 },
        Relation::PrefixStability { seq: 0, drop: 3 },
    ];
    train.into_iter().map(on(Path::Train)).chain(infer.into_iter().map(on(Path::Infer))).collect()
}

/// Seconds that this thread has run; where the system does not say, seconds since the first call.
fn cpu_seconds() -> f64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    // Linux brings the count up to date when a thread yields (proc(5), `schedstat`: nanoseconds on the CPU come first).
    std::thread::yield_now();
    let count = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = count.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| FIRST.get_or_init(Instant::now).elapsed().as_secs_f64(), |it| it * 1e-9)
}

/// A quantity computed from one time for each piece of work, in seconds: the least of its times over interleaved rounds. Whatever
/// else the machine does only ever adds to a time, and on a busy one medians measure the others.
fn measure<const N: usize>(mut work: [&mut dyn FnMut(); N], of: impl Fn([f64; N]) -> f64) -> f64 {
    // Reading the clock takes microseconds: short work is repeated until that is nothing beside it.
    let repeats = work.each_mut().map(|work| {
        work();
        let started = Instant::now();
        work();
        (1e-3 / started.elapsed().as_secs_f64().max(1e-9)).ceil().clamp(1.0, 1e5) as u32
    });
    let mut timed = |n: usize| {
        let started = cpu_seconds();
        (0..repeats[n]).for_each(|_| work[n]());
        (cpu_seconds() - started) / f64::from(repeats[n])
    };
    // Caches and scratch grow in the first rounds, which the least time forgets.
    let mut least = [f64::INFINITY; N];
    let started = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS || started.elapsed() < MEASURED {
        for (n, least) in least.iter_mut().enumerate() {
            // A second call in a row finds its own data in the caches.
            let time = timed(n).min(timed(n));
            *least = least.min(time);
        }
        rounds += 1;
    }
    of(least)
}

/// The table: prints a line for each ratio, and remembers whether one is over its limit.
struct Table {
    held: bool,
}

impl Table {
    fn line(&mut self, what: &str, limit: f64, at_least: bool, measured: f64) {
        let holds = if at_least { measured >= limit } else { measured <= limit };
        self.held &= holds;
        let sign = if at_least { ">=" } else { "<=" };
        println!("{what:<76} {sign} {limit:>5.1} {measured:>9.2}  {}", if holds { "ok" } else { "OVER" });
    }
}

fn ratios() -> bool {
    let mut table = Table { held: true };
    println!("\n{:<76} {:>8} {:>9}", "ratio", "limit", "measured");
    let kernel = Reference::default();
    let pair = pair(Mode::Enclosure);
    for (name, case) in shapes() {
        let inputs = pair.inputs(&case);
        let produced = reference_pass(&kernel, &case, &inputs);
        let (o, lse) = textbook(&case.problem, &inputs);
        assert!(o == produced.o.bits && lse == produced.lse.bits, "{name}: the textbook loop has other numerics");
        let mut reference = || drop(black_box(reference_pass(&kernel, &case, &inputs)));
        let mut plain = || drop(black_box(textbook(&case.problem, &inputs)));
        let ratio = measure([&mut reference, &mut plain], |[r, textbook]| r / textbook);
        table.line(&format!("R / textbook loop, {name}"), REFERENCE_LIMIT, false, ratio);

        let (trial, mut scratch) = (both_paths(&case), pair.scratch());
        assert!(pair.check(&trial, &mut scratch).is_match(), "{name}");
        let mut check = || drop(black_box(pair.check(&trial, &mut scratch)));
        // The check draws the case's values first; their cost is a line of its own.
        let mut values = || drop(black_box(pair.inputs(&case)));
        let ratio = measure([&mut check, &mut values, &mut reference], |[check, values, r]| (check - values) / r);
        table.line(&format!("both paths, oracle, comparison / R, {name}"), CHECK_LIMIT, false, ratio);
        let ratio = measure([&mut values, &mut reference], |[values, r]| values / r);
        table.line(&format!("drawing the values / R, {name}"), VALUES_LIMIT, false, ratio);

        let (mut fast, mut slow) = (Oracle::new(Mode::Enclosure), Oracle::new(Mode::Mpfr));
        let mut enclosure = || ask(&mut fast, &case, &inputs);
        let mut mpfr = || ask(&mut slow, &case, &inputs);
        let ratio = measure([&mut mpfr, &mut enclosure], |[mpfr, enclosure]| mpfr / enclosure);
        table.line(&format!("MPFR at 200 bits / enclosure, {name}"), ORACLE_LEAST, true, ratio);
    }
    let mut base = case(64, 64, 64, Dtype::BF16);
    base.train.layout = TrainLayout::Dense { side: Side::Right, pad_q: 0, pad_kv: 0 };
    let inputs = pair.inputs(&base);
    for relation in relations() {
        let checks = Checks::Only { oracle: false, pair: false, relation: Some(relation.clone()) };
        let (trial, mut scratch) = (Trial::new(base.clone(), checks), pair.scratch());
        let verdict = pair.check(&trial, &mut scratch);
        assert!(verdict.findings.is_empty() && verdict.relations == 1, "{relation}: {:?}", verdict.findings);
        let mut with = || drop(black_box(pair.check(&trial, &mut scratch)));
        let mut without = || {
            let inputs = pair.inputs(&base);
            drop(black_box(pair.drive(relation.path, &base, &inputs, Poison::Nan, None)));
        };
        let mut reference = || drop(black_box(reference_pass(&kernel, &base, &inputs)));
        let ratio = measure([&mut with, &mut without, &mut reference], |[with, without, r]| (with - without) / r);
        table.line(&format!("relation / R, {relation}, 64x64 d=64 bf16"), RELATION_LIMIT, false, ratio);
    }
    let mut long = case(128, 8192, 128, Dtype::BF16);
    long.infer.requests[0].chunks = vec![112];
    validate(&long).expect("the long case is valid");
    let started = Instant::now();
    assert!(pair.check(&both_paths(&long), &mut pair.scratch()).is_match());
    table.line(
        "seconds, inputs, both paths, oracle, comparison, 128x8192 d=128",
        LONG_LIMIT,
        false,
        started.elapsed().as_secs_f64(),
    );
    table.held
}

fn times(criterion: &mut Criterion) {
    let kernel = Reference::default();
    let pair = pair(Mode::Enclosure);
    let chosen = ["64x64 d=64 bf16", "256x256 d=64 bf16"];
    for (name, case) in shapes().into_iter().filter(|(name, _)| chosen.contains(name)) {
        let inputs = pair.inputs(&case);
        let mut group = criterion.benchmark_group(name);
        group.bench_function("textbook loop", |b| b.iter(|| textbook(&case.problem, &inputs)));
        group.bench_function("train pass (R)", |b| b.iter(|| reference_pass(&kernel, &case, &inputs)));
        group.bench_function("infer pass", |b| b.iter(|| pair.drive(Path::Infer, &case, &inputs, Poison::Nan, None)));
        let mut oracle = Oracle::new(Mode::Enclosure);
        group.bench_function("oracle", |b| b.iter(|| ask(&mut oracle, &case, &inputs)));
        let (trial, mut scratch) = (both_paths(&case), pair.scratch());
        group.bench_function("check", |b| b.iter(|| pair.check(&trial, &mut scratch)));
        group.finish();
    }
    let subject = Attention::of(pair);
    let mut group = criterion.benchmark_group("campaign of 200 cases");
    for jobs in [1, 2] {
        group.bench_with_input(BenchmarkId::new("jobs", jobs), &jobs, |b, &jobs| {
            let campaign = Campaign { seed: 1, first: 0, length: Length::Cases(200), jobs };
            b.iter(|| {
                lab::run(&subject, campaign, |done| if done.verdict.compared == u64::MAX { Flow::Stop } else { Flow::Continue })
            })
        });
    }
    group.finish();
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |argument: &str| arguments.iter().any(|it| it == argument);
    if !has("ratios") {
        let short = Duration::from_millis(500);
        let mut criterion =
            Criterion::default().sample_size(10).warm_up_time(short).measurement_time(2 * short).configure_from_args();
        times(&mut criterion);
        criterion.final_summary();
    }
    // `cargo test --benches` only asks whether everything runs; a list or a profile of one benchmark is not about ratios.
    if !has("--bench") || has("--list") || has("--profile-time") {
        return ExitCode::SUCCESS;
    }
    if ratios() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
