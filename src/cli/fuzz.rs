//! `lastbit fuzz`: the main job.

use super::out_folder::OutFolder;
use super::progress::Progress;
use super::run_summary::{human, json_summary};
use super::{Failure, complain, kernel, note, pins, print};
use crate::exit_code;
use crate::finding::{Finding, Kind, Verdict};
use crate::lab::{Campaign, Flow, Length, Statistics, run as run_campaign};
use crate::shrink::{BUDGET, shrink};
use crate::subject::Subject;
use crate::subject::attention::captured::Captured;
use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::Profile;
use crate::subject::attention::explain::{Explanation, explain};
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::text::print as print_case;
use crate::subject::attention::trial::Trial;
use crate::subject::attention::{Attention, Case, file};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Args)]
pub(super) struct Options {
    /// Training kernel: ref:<preset>[,field=value...], see `lastbit kernels`
    #[arg(long, value_name = "K", default_value = "ref:aligned")]
    pub(super) train: String,
    /// Inference kernel
    #[arg(long, value_name = "K", default_value = "ref:aligned")]
    pub(super) infer: String,
    /// Cases to run [default: 10000]
    #[arg(long, value_name = "N", conflicts_with = "time")]
    cases: Option<u64>,
    /// Begin cases until this time has passed, e.g. 30s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Seed of the campaign: same seed, same cases, same bytes
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(super) seed: u64,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Folder of the run; an earlier run there becomes DIR.old
    #[arg(long, value_name = "DIR", default_value = "lastbit.out")]
    out: PathBuf,
    /// How the true value is found: enclosure, mpfr or off
    #[arg(long, value_name = "MODE", default_value = "enclosure")]
    pub(super) oracle: Mode,
    /// Size of the cases: quick, mixed or long
    #[arg(long, value_name = "PROFILE", default_value = "mixed")]
    profile: Profile,
    /// Hold every case to features of a model: d=128, d_qk=192,d_v=128, heads=16/2 (query heads/KV heads), dtype=bf16,
    /// causal=bottom_right or none; repeated, or separated by commas
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub(super) pin: Vec<String>,
    /// Take values from captured tensors q, k, v, cu_seqlens
    #[arg(long, value_name = "FILE.safetensors")]
    data: Option<PathBuf>,
    /// Run on after a finding; the first of each signature is shrunk, the rest counted
    #[arg(long)]
    keep_going: bool,
    /// What stdout gets
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
}

/// Parses `30s`, `5m`, `2h`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no time; write 30s, 5m or 2h"))?;
    let seconds = match unit {
        "" | "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        _ => return Err(format!("unknown unit `{unit}` (one of s, m, h)")),
    };
    seconds
        .filter(|&s| s <= 10 * 365 * 86_400)
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` is longer than ten years"))
}

/// A finding that is kept: the first of its signature.
pub(super) struct Found {
    pub(super) index: u64,
    trial: Trial,
    pub(super) finding: Finding,
    pub(super) file: PathBuf,
}

pub(super) fn run(options: &Options) -> Result<u8, Failure> {
    let captured = options.data.as_deref().map(Captured::load).transpose()?.map(Arc::new);
    let pair = Pair {
        train: kernel("--train", &options.train)?,
        infer: kernel("--infer", &options.infer)?,
        oracle: options.oracle,
        captured,
        witness: true,
    };
    let pins = pins(&options.pin)?;
    if pair.captured.is_some() && pins.shape() {
        return Err(Failure::Usage(
            "--pin: head dims and heads are those of --data; pin dtype or causal, or leave one of them out".into(),
        ));
    }
    let attention = Attention { pair, profile: options.profile, pins };
    let length = match (options.time, options.cases) {
        (Some(limit), _) => Length::Time(limit),
        (None, cases) => Length::Cases(cases.unwrap_or(10_000)),
    };
    let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = options.jobs.map_or_else(cores, usize::from);
    let mut folder = OutFolder::create(&options.out)?;
    let mut statistics = Statistics::default();
    let mut found: Vec<Found> = Vec::new();
    let mut failure = None;
    let started = Instant::now();
    let mut progress = Progress::new(length);
    run_campaign(&attention, Campaign { seed: options.seed, length, jobs }, |done| {
        let problem = &done.trial.case.problem;
        let longest = problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0);
        statistics.add(&done.verdict, problem.out_dtype, longest);
        progress.update(&statistics);
        let mut stop = Flow::Continue;
        let mut written = folder.verdict(&verdict_line(done.index, &done.verdict), done.verdict.failure().is_some());
        let mut families = Vec::new();
        for finding in done.verdict.findings.iter().filter(|finding| finding.kind().is_failure()) {
            if !options.keep_going {
                stop = Flow::Stop;
            }
            // Over a run, each signature is kept once; `o` and `lse` of one case are kept as one defect.
            let family = finding.family();
            let known = found.iter().any(|it| it.finding.signature() == finding.signature());
            if written.is_err() || known || families.contains(&family) {
                continue;
            }
            families.push(family);
            match save_found(&mut folder, &attention.pair, options.seed, done.index, &done.trial, finding) {
                Ok(it) => found.push(it),
                Err(error) => written = Err(error),
            }
        }
        if let Err(error) = written {
            failure = Some(error);
            stop = Flow::Stop;
        }
        stop
    });
    progress.finish();
    let seconds = started.elapsed().as_secs_f64();
    if failure.is_none() {
        failure = folder.finish().err();
    }
    let mut report = Vec::new();
    let mut scratch = attention.scratch();
    for it in &found {
        match shrink_found(&mut folder, &attention, it, &mut scratch) {
            Ok(shrunk) => report.push((it, shrunk)),
            Err(error) => {
                failure = failure.or(Some(error));
                report.push((it, None));
            }
        }
    }
    let summary = json_summary(options, &statistics, seconds, &report);
    if let Err(error) = folder.save("", "summary.json", &format!("{summary:#}\n")) {
        failure = failure.or(Some(error));
    }
    match options.format {
        Format::Json => print(&format!("{summary}\n"))?,
        Format::Human => print(&human(options, &statistics, seconds, &report, folder.path()))?,
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(verdict_code(&statistics)),
    }
}

fn verdict_code(statistics: &Statistics) -> u8 {
    if !statistics.signatures.is_empty() {
        exit_code::FINDING
    } else if statistics.of(Kind::Undecided) + statistics.of(Kind::Skipped) > 0 {
        exit_code::UNDECIDED
    } else if statistics.cases == 0 || statistics.elements == 0 {
        exit_code::NOTHING
    } else {
        exit_code::MATCH
    }
}

/// One line of the verdict file: no times, no paths.
fn verdict_line(index: u64, verdict: &Verdict) -> String {
    let headline = match verdict.headline() {
        Some(finding) => finding.kind().name(),
        None if verdict.compared == 0 => "empty",
        None => "match",
    };
    let mut line = json!({ "case": index, "verdict": headline, "elements": verdict.compared });
    if let Some(sensitive) = verdict.order_sensitive {
        line["order_sensitive"] = sensitive.into();
    }
    if !verdict.findings.is_empty() {
        line["findings"] = verdict.findings.iter().map(Finding::signature).collect();
    }
    line.to_string()
}

fn slug(signature: &str) -> String {
    signature.replace(' ', "-")
}

fn save_found(
    folder: &mut OutFolder,
    pair: &Pair,
    seed: u64,
    index: u64,
    trial: &Trial,
    finding: &Finding,
) -> Result<Found, Failure> {
    let signature = finding.signature();
    let comment = format!("{signature}: case {index} of seed {seed}");
    let content = print_case(&file::file(comment, pair, trial, Some(finding)));
    let file = folder.save("found", &format!("{index:08}-{}.case", slug(&signature)), &content)?;
    Ok(Found { index, trial: trial.clone(), finding: finding.clone(), file })
}

/// A shrunk finding and its explanation.
pub(super) struct Small {
    pub(super) path: PathBuf,
    pub(super) case: Case,
    pub(super) explanation: Explanation,
}

fn shrink_found(
    folder: &mut OutFolder,
    attention: &Attention,
    found: &Found,
    scratch: &mut <Attention as Subject>::Scratch,
) -> Result<Option<Small>, Failure> {
    let signature = found.finding.signature();
    note(&format!("shrinking case {}: {signature}", found.index));
    let Some(shrunk) = shrink(attention, &found.trial, &signature, BUDGET, scratch) else {
        complain(&format!("case {} does not show `{signature}` again: a kernel does not repeat itself", found.index));
        return Ok(None);
    };
    let mut file = file::file(String::new(), &attention.pair, &shrunk.trial, Some(&shrunk.finding));
    let name = format!("{:08}-{}.case", found.index, slug(&signature));
    let whole = file::replayed(&attention.pair, &shrunk.trial, &shrunk.finding);
    let explanation = explain(&attention.pair, &whole, &name, Some(&signature));
    let cause = explanation.cause.as_ref().map_or("cause unknown".to_owned(), |cause| cause.to_string());
    file.comment = format!("{signature}: {cause}");
    let path = folder.save("shrunk", &name, &print_case(&file))?;
    let explanation = explain(&attention.pair, &whole, &path.display().to_string(), Some(&signature));
    Ok(Some(Small { path, case: shrunk.trial.case, explanation }))
}
