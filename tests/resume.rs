//! Runs of the real binary that are killed, starved or damaged, and go on with `--resume`: nothing found is lost, and the files at the
//! end are those of a run that was never stopped.
//!
//! `LASTBIT_KILLS=200 cargo test --release --test resume killed -- --nocapture` kills 200 times, over longer runs.

mod binary;

use binary::{Folder, assert_same, code, files, last_json, stderr, stdout};
use lastbit::source::mix;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn checkpoint(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("checkpoint.json")).expect("a checkpoint");
    serde_json::from_str(&text).expect("JSON")
}

/// Changes the checkpoint of a run.
fn edit(out: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = checkpoint(out);
    change(&mut value);
    std::fs::write(out.join("checkpoint.json"), value.to_string()).expect("written");
}

const OUT: &str = "lastbit.out";
const QUICK: [&str; 7] = ["fuzz", "--profile", "quick", "--keep-going", "--infer", "ref:aligned,softmax.block=16", "--resume"];

fn quick(more: &[&'static str]) -> Vec<&'static str> {
    QUICK.iter().chain(more).copied().collect()
}

#[cfg(unix)]
mod killed {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::time::Instant;

    const SIGKILL: i32 = 9;

    /// Where kills fell.
    #[derive(Default, Debug)]
    struct Kills {
        before_the_first_case: u32,
        among_cases: u32,
        among_shrinks: u32,
    }

    /// What must hold of a folder at any moment, given the files of the unbroken run.
    fn check(out: &Path, unbroken: &BTreeMap<String, Vec<u8>>) {
        let Ok(verdicts) = std::fs::read(out.join("verdicts.jsonl")) else { return };
        assert!(unbroken["verdicts.jsonl"].starts_with(&verdicts), "the verdicts are a prefix");
        let lines = verdicts.iter().filter(|&&byte| byte == b'\n').count() as u64;
        for (name, bytes) in unbroken {
            let saved = std::fs::read(out.join(name)).ok();
            if let Some(case) = name.strip_prefix("found/") {
                let index: u64 = case.split('-').next().expect("an index").parse().expect("a number");
                assert!(saved.is_some() || index >= lines, "{name} is lost, and its line is there");
            }
            if name.ends_with(".case")
                && let Some(saved) = saved
            {
                assert!(saved == *bytes, "{name} is not whole");
            }
        }
    }

    /// Runs one job unbroken and then, killed so many times, until it ends each time.
    fn torment(job: &[&str], kills: u32, seed: u64) -> Kills {
        let folder = Folder::new();
        let arguments = |out| {
            let mut arguments = vec!["fuzz", "--resume", "--format", "json", "--out", out];
            arguments.extend_from_slice(job);
            arguments
        };
        let begun = Instant::now();
        let first = folder.lastbit(&arguments("run"));
        let whole = begun.elapsed();
        let unbroken = files(&folder.path("run"));
        // The same name for the folder, since the summary has it.
        std::fs::rename(folder.path("run"), folder.path("unbroken")).expect("renamed");
        let out = folder.path("run");
        let mut fell = Kills::default();
        for round in 0.. {
            let draw = mix(seed, round);
            let enough = fell.before_the_first_case + fell.among_cases + fell.among_shrinks == kills;
            let mut command = folder.command(&arguments("run"));
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started");
            if !enough {
                // A quarter of the kills come early, among the first files that are made.
                let span = if draw.is_multiple_of(4) { whole / 20 } else { whole };
                std::thread::sleep(span.mul_f64((draw >> 11) as f64 / (1u64 << 53) as f64));
                child.kill().expect("killed");
            }
            let status = child.wait().expect("ended");
            if out.exists() {
                check(&out, &unbroken);
            }
            if status.signal() == Some(SIGKILL) {
                let at = std::fs::metadata(out.join("checkpoint.json")).map(|_| checkpoint(&out));
                let cases = at.as_ref().map_or(0, |it| it["statistics"]["cases"].as_u64().expect("a count"));
                let all = unbroken["verdicts.jsonl"].iter().filter(|&&byte| byte == b'\n').count() as u64;
                *match cases {
                    0 => &mut fell.before_the_first_case,
                    n if n < all => &mut fell.among_cases,
                    _ => &mut fell.among_shrinks,
                } += 1;
                continue;
            }
            assert_eq!(status.code(), first.status.code(), "seed {seed}, round {round}: {job:?}");
            assert_same(&unbroken, &files(&out), &format!("seed {seed}, round {round}: {job:?}"));
            if enough {
                return fell;
            }
            std::fs::remove_dir_all(&out).expect("removed");
        }
        unreachable!()
    }

    #[test]
    fn killed_runs_end_as_unbroken_ones() {
        let asked: Option<u32> = std::env::var("LASTBIT_KILLS").ok().map(|text| text.parse().expect("LASTBIT_KILLS: a number"));
        let kills = asked.unwrap_or(10);
        let cases = if asked.is_some() { "6000" } else { "1200" };
        let jobs: [&[&str]; 5] = [
            &["--profile", "quick", "--cases", cases, "--keep-going", "--infer", "ref:aligned,softmax.block=16"],
            &[
                "--profile",
                "quick",
                "--cases",
                cases,
                "--keep-going",
                "--train",
                "ref:uncached-split",
                "--infer",
                "ref:uncached-split",
            ],
            // Mostly shrinking.
            &["--cases", "60", "--keep-going", "--train", "ref:uncached-split", "--infer", "ref:uncached-split"],
            // Ends at its first finding, case 466.
            &["--profile", "quick", "--seed", "12", "--infer", "ref:aligned,softmax.rescale=threshold(80)", "--jobs", "1"],
            // Finds nothing.
            &["--profile", "quick", "--cases", cases, "--jobs", "1"],
        ];
        let begun = Instant::now();
        for (n, job) in jobs.into_iter().enumerate() {
            let share = kills / 5 + u32::from((n as u32) < kills % 5);
            let fell = torment(job, share, n as u64);
            println!("{share} kills, {fell:?}: {}", job.join(" "));
        }
        println!("{kills} kills in {:.0} s", begun.elapsed().as_secs_f64());
    }
}

#[test]
fn a_longer_run_is_the_same_in_one_part_or_in_several() {
    let folder = Folder::new();
    assert_eq!(code(&folder.lastbit(&quick(&["--cases", "300"]))), 1);
    let whole = files(&folder.path(OUT));
    std::fs::rename(folder.path(OUT), folder.path("whole")).expect("renamed");
    for (cases, jobs) in [("0", "2"), ("5", "2"), ("120", "1"), ("120", "3"), ("90", "1"), ("300", "2"), ("300", "1")] {
        let output = folder.lastbit(&quick(&["--cases", cases, "--jobs", jobs]));
        assert_ne!(code(&output), 2, "{}", stderr(&output));
    }
    assert_same(&whole, &files(&folder.path(OUT)), "in parts");
    // An option that is left out is that of the run.
    let output = folder.lastbit(&["fuzz", "--resume", "--format", "json"]);
    assert_eq!((code(&output), &last_json(&output)["cases"]), (1, &Value::from(300)));
    assert_same(&whole, &files(&folder.path(OUT)), "once more");
    assert!(!folder.path("lastbit.out.old").exists(), "nothing was rotated");
}

#[test]
fn a_run_that_ended_at_its_first_finding_stays_so() {
    let folder = Folder::new();
    let infer = "ref:aligned,softmax.block=16";
    let first = folder.lastbit(&["fuzz", "--profile", "quick", "--infer", infer]);
    assert_eq!(code(&first), 1);
    let whole = files(&folder.path(OUT));
    let again = folder.lastbit(&["fuzz", "--resume"]);
    assert_eq!(code(&again), 1, "{}", stderr(&again));
    assert_same(&whole, &files(&folder.path(OUT)), "resumed");
    let text = |output| stdout(output).lines().filter(|line| !line.contains("/s)")).collect::<Vec<_>>().join("\n");
    assert_eq!(text(&first), text(&again), "the report is the same");
    // Found files that are gone are made again, shrunk ones too.
    std::fs::remove_dir_all(folder.path("lastbit.out/found")).expect("removed");
    std::fs::remove_dir_all(folder.path("lastbit.out/shrunk")).expect("removed");
    assert_eq!(code(&folder.lastbit(&["fuzz", "--resume"])), 1);
    assert_same(&whole, &files(&folder.path(OUT)), "made again");
}

/// `--time` counts all parts together, and a shorter run is a prefix of a longer one.
#[test]
fn timed_runs_are_prefixes_of_longer_ones() {
    let folder = Folder::new();
    let verdicts = || std::fs::read(folder.path(OUT).join("verdicts.jsonl")).expect("verdicts");
    let cases = |output| last_json(output)["cases"].as_u64().expect("a count");
    let run = |time| folder.lastbit(&["fuzz", "--resume", "--profile", "quick", "--format", "json", "--time", time]);
    let one = run("1s");
    let (short, short_cases) = (verdicts(), cases(&one));
    assert!(short_cases > 0, "{}", stderr(&one));
    let again = run("1s");
    assert_eq!((cases(&again), verdicts() == short), (short_cases, true), "its time is over");
    let two = run("2s");
    let (long, long_cases) = (verdicts(), cases(&two));
    assert!(long_cases > short_cases && long.starts_with(&short));
    let seconds = last_json(&two)["seconds"].as_f64().expect("seconds");
    assert!((2.0..20.0).contains(&seconds), "{seconds}");
    // And of one that counts cases, from the beginning.
    let count = (long_cases + 10).to_string();
    let counted = folder.lastbit(&["fuzz", "--profile", "quick", "--cases", &count]);
    assert_eq!(code(&counted), 0);
    assert!(verdicts().starts_with(&long));
}

#[test]
fn another_job_is_refused_and_names_the_field() {
    let folder = Folder::new();
    let captured = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/minilm-slice.safetensors");
    assert_eq!(code(&folder.lastbit(&["fuzz", "--profile", "quick", "--cases", "200", "--resume"])), 0);
    let before = files(&folder.path(OUT));
    let others: [(&[&str], &[&str]); 8] = [
        (&["--train", "ref:aligned,softmax.block=16"], &["train.softmax.block", "64", "16"]),
        (&["--infer", "ref:p-bf16"], &["infer.probs.dtype", "f32", "bf16"]),
        (&["--infer", "ref:aligned,profile=p-bf16"], &["infer.profile.kv.descale", "not set", "on_load"]),
        (&["--seed", "2"], &["seed", "1", "2"]),
        (&["--profile", "mixed"], &["profile", "quick", "mixed"]),
        (&["--oracle", "off"], &["oracle", "enclosure", "off"]),
        (&["--keep-going"], &["keep_going", "false", "true"]),
        (&["--data", captured], &["data", "none", "the run has none"]),
    ];
    let refused = |arguments: &[&str], parts: &[&str]| {
        let mut all = vec!["fuzz", "--resume", "--cases", "300"];
        all.extend_from_slice(arguments);
        let output = folder.lastbit(&all);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        for part in [&["lastbit.out/checkpoint.json: "], parts].concat() {
            assert!(stderr(&output).contains(part), "{arguments:?}: `{part}` is not in: {}", stderr(&output));
        }
    };
    for (arguments, parts) in others {
        refused(arguments, parts);
        assert_same(&before, &files(&folder.path(OUT)), "a refusal changes nothing");
    }
    for (field, value) in [("lastbit", "0.0.9"), ("generator", "0123")] {
        let was = checkpoint(&folder.path(OUT))["configuration"][field].clone();
        edit(&folder.path(OUT), |it| it["configuration"][field] = value.into());
        refused(&[], &[field, value]);
        edit(&folder.path(OUT), |it| it["configuration"][field] = was);
    }
    edit(&folder.path(OUT), |it| it["found"] = serde_json::json!([{ "case": 3, "finding": "mismatch o" }]));
    let output = folder.lastbit(&["fuzz", "--resume"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("case 3 does not show `mismatch o` again"), "{}", stderr(&output));
}

#[test]
fn damaged_runs_are_made_whole_or_refused() {
    let folder = Folder::new();
    let out = folder.path(OUT);
    let verdicts = out.join("verdicts.jsonl");
    // Where there is no run, one begins.
    let output = folder.lastbit(&quick(&["--cases", "200"]));
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("no run in lastbit.out: beginning one"), "{}", stderr(&output));
    let whole = files(&out);
    let lines = std::fs::read(&verdicts).expect("verdicts");
    let cut = lines.iter().rposition(|&byte| byte == b'{').expect("a last line");
    let mut torn = lines.clone();
    torn.extend_from_slice(b"{\"case\":200,\"verd");
    let mut other = lines.clone();
    other[cut + 8] = b'9';
    for (what, content, again) in [
        ("a torn line", &torn[..], false),
        ("no last line", &lines[..cut], true),
        ("a torn last line", &lines[..lines.len() - 3], true),
        ("another last line", &other[..], true),
        ("nothing", b"", true),
    ] {
        std::fs::write(&verdicts, content).expect("written");
        // What a kill leaves of a file that was being written.
        std::fs::write(out.join("found/.lastbit-aB3xYz.tmp"), "format = ").expect("written");
        let output = folder.lastbit(&["fuzz", "--resume"]);
        assert_eq!(code(&output), 1, "{what}: {}", stderr(&output));
        assert_eq!(stderr(&output).contains("all cases are run again"), again, "{what}: {}", stderr(&output));
        assert_same(&whole, &files(&out), what);
    }
    // Before the first line and the first checkpoint, there is no run.
    std::fs::write(&verdicts, "").expect("written");
    std::fs::remove_file(out.join("checkpoint.json")).expect("removed");
    assert_eq!(code(&folder.lastbit(&quick(&["--cases", "200"]))), 1);
    assert_same(&whole, &files(&out), "begun");
    assert!(!folder.path("lastbit.out.old").exists());
    // Lines without a checkpoint cannot go on.
    for (content, part) in [(None, "cannot be read"), (Some("{"), "is no checkpoint"), (Some("{}"), "format: is missing")] {
        match content {
            None => std::fs::remove_file(out.join("checkpoint.json")).expect("removed"),
            Some(content) => std::fs::write(out.join("checkpoint.json"), content).expect("written"),
        }
        let output = folder.lastbit(&["fuzz", "--resume"]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains("checkpoint.json: ") && stderr(&output).contains(part), "{}", stderr(&output));
    }
    // Neither waited for nor read to its end.
    #[cfg(unix)]
    for (make, part) in [
        ("mkfifo checkpoint.json", "is no plain file"),
        ("ln -s /dev/zero checkpoint.json", "is no plain file"),
        ("mkdir checkpoint.json", "is no plain file"),
        ("truncate -s 9G checkpoint.json", "is larger than any checkpoint"),
        ("printf '\\377' > checkpoint.json", "is not UTF-8 text"),
    ] {
        assert!(folder.shell(&format!("cd {OUT} && rm -rf checkpoint.json && {make}")).status.success(), "{make}");
        let output = folder.lastbit(&["fuzz", "--resume"]);
        assert_eq!(code(&output), 2, "{make}: {}", stderr(&output));
        assert!(stderr(&output).contains("checkpoint.json: cannot be read: ") && stderr(&output).contains(part), "{make}");
    }
    std::fs::create_dir(folder.path("precious")).expect("created");
    std::fs::write(folder.path("precious/thesis.txt"), "years").expect("written");
    let output = folder.lastbit(&["fuzz", "--resume", "--out", "precious"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}

#[test]
fn one_run_at_a_time_writes_into_a_folder() {
    let folder = Folder::new();
    let out = folder.path(OUT);
    let mut first = folder.command(&["fuzz", "--jobs", "1", "--time", "1h", "--keep-going", "--infer", "ref:p-bf16"]);
    let mut first = first.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().expect("started");
    while !out.join("found").is_dir() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let refused = |arguments: &[&str], name: &str| {
        let output = folder.lastbit(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(&format!("{name}: another run writes there")), "{arguments:?}: {}", stderr(&output));
    };
    refused(&["fuzz", "--resume"], OUT);
    refused(&["fuzz", "--cases", "5"], OUT);
    // Nor is it removed when it is in the place of the last run.
    std::fs::create_dir_all(folder.path("run")).expect("created");
    std::fs::copy(out.join("checkpoint.json"), folder.path("run/checkpoint.json")).expect("copied");
    std::fs::write(folder.path("run/verdicts.jsonl"), "{}\n").expect("written");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("lastbit.out", folder.path("run.old")).expect("linked");
        refused(&["fuzz", "--cases", "5", "--out", "run"], "run.old");
    }
    // Killed: the lock is gone with it.
    first.kill().expect("killed");
    first.wait().expect("ended");
    let output = folder.lastbit(&["fuzz", "--resume", "--time", "0s"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn a_run_that_died_of_a_full_disk_goes_on() {
    let folder = Folder::new();
    let fuzz = "exec $LASTBIT fuzz --cases 3000 --profile quick --keep-going --infer ref:aligned,softmax.block=16";
    assert_eq!(code(&folder.shell(&format!("{fuzz} --out {OUT}"))), 1);
    let whole = files(&folder.path(OUT));
    std::fs::rename(folder.path(OUT), folder.path("whole")).expect("renamed");
    // A limit on the size of files acts as a full disk does: a write takes a part, the next one none.
    for blocks in [64, 128] {
        let output = folder.shell(&format!("trap '' XFSZ; ulimit -f {blocks}; {fuzz} --resume"));
        assert_eq!(code(&output), 74, "{}", stderr(&output));
        let verdicts = std::fs::read(folder.path(OUT).join("verdicts.jsonl")).expect("verdicts");
        assert!(verdicts.ends_with(b"\n") && whole["verdicts.jsonl"].starts_with(&verdicts));
        assert!(whole["verdicts.jsonl"] != verdicts);
    }
    let output = folder.shell(&format!("{fuzz} --resume"));
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert_same(&whole, &files(&folder.path(OUT)), "with space again");
    // Nothing has run where not even the checkpoint has a place.
    let output = folder.shell(&format!("trap '' XFSZ; ulimit -f 1; {fuzz} --out none"));
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("--out: cannot write none/checkpoint.json"), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn a_folder_that_only_reads_is_2() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    assert_eq!(code(&folder.lastbit(&["fuzz", "--profile", "quick", "--cases", "200"])), 0);
    let locked = |path: &str, mode| {
        std::fs::set_permissions(folder.path(path), std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    std::fs::create_dir(folder.path("readonly")).expect("created");
    locked("readonly", 0o555);
    locked("lastbit.out/verdicts.jsonl", 0o444);
    // Nothing stops root.
    if std::fs::write(folder.path("readonly/probe"), "").is_ok() {
        return;
    }
    for (arguments, part) in [
        (&["fuzz", "--out", "readonly/run"][..], "--out readonly/run"),
        (&["fuzz", "--resume"], "verdicts.jsonl: cannot be opened"),
    ] {
        let output = folder.lastbit(arguments);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    locked("readonly", 0o755);
}
