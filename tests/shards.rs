//! Jobs that are spread over machines: shards joined by `lastbit merge` are one run, byte for byte apart from times.

mod binary;

use binary::{Folder, assert_same, code, files, stderr, stdout};
use serde_json::Value;
use std::path::Path;

/// Runs all shards of a command, each into a folder `s1`, `s2`, ...; gives their exit codes.
fn shards(folder: &Folder, count: usize, command: &[&str]) -> Vec<i32> {
    let run = |number: usize| {
        let (shard, out) = (format!("{number}/{count}"), format!("s{number}"));
        let output = folder.lastbit(&[command, &["--shard", &shard, "--out", &out]].concat());
        assert!([0, 1, 3, 4].contains(&code(&output)), "{shard}: {}{}", stdout(&output), stderr(&output));
        code(&output)
    };
    (1..=count).map(run).collect()
}

fn merge(folder: &Folder, count: usize, more: &[&str]) -> std::process::Output {
    // In no order.
    let names: Vec<String> = (1..=count).rev().map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    folder.lastbit(&[&["merge"], &names[..], more].concat())
}

/// One run and its shards, joined: every file, what is printed, and the exit code.
fn assert_joins(count: usize, command: &[&str]) -> i32 {
    let what = format!("{count} shards of {command:?}");
    let (one, many) = (Folder::new(), Folder::new());
    let whole = one.lastbit(&[command, &["--out", "run", "--format", "json"]].concat());
    shards(&many, count, command);
    let joined = merge(&many, count, &["--out", "run", "--format", "json"]);
    assert_eq!(code(&joined), code(&whole), "{what}: {}{}", stdout(&joined), stderr(&joined));
    assert_same(&files(&one.path("run")), &files(&many.path("run")), &what);
    let printed = |text: &str| {
        let mut value: Value = serde_json::from_str(text).expect("JSON");
        for time in ["seconds", "cases_per_second"] {
            value.as_object_mut().expect("an object").remove(time).expect("a time");
        }
        value.to_string()
    };
    assert_eq!(printed(&stdout(&joined)), printed(&stdout(&whole)), "{what}");
    code(&whole)
}

const QUICK: [&str; 4] = ["fuzz", "--profile", "quick", "--cases"];

#[test]
fn seven_shards_without_a_finding_are_one_run() {
    assert_eq!(assert_joins(7, &[&QUICK[..], &["200"]].concat()), 0);
    // More shards than cases: some have none.
    assert_eq!(assert_joins(5, &[&QUICK[..], &["3"]].concat()), 3);
}

/// A run ends at its first finding, whichever shard has it, and however far the others have gone.
#[test]
fn shards_end_where_one_run_ends() {
    for (count, seed) in [(2, "1"), (3, "2"), (7, "3")] {
        for infer in ["ref:aligned+D-M1", "ref:p-bf16"] {
            let command = [&QUICK[..], &["150", "--seed", seed, "--train", "ref:aligned", "--infer", infer]].concat();
            assert_eq!(assert_joins(count, &command), 1);
        }
    }
}

/// Of each signature the first is kept, of a case's failures that are one defect the first: over all shards together.
#[test]
fn shards_keep_what_one_run_keeps() {
    for (count, seed, infer) in [(2, "1", "ref:p-bf16"), (3, "5", "ref:aligned+A-M1"), (5, "2", "ref:fa2")] {
        let command = [&QUICK[..], &["120", "--keep-going", "--seed", seed, "--infer", infer]].concat();
        assert_eq!(assert_joins(count, &command), 1);
    }
}

#[test]
fn a_shard_that_stopped_goes_on_and_joins() {
    let (one, many) = (Folder::new(), Folder::new());
    let command = [&QUICK[..], &["90", "--keep-going", "--infer", "ref:aligned,softmax.block=16"]].concat();
    one.lastbit(&[&command[..], &["--out", "run"]].concat());
    shards(&many, 3, &command);
    // The second shard, killed: its checkpoint is of 7 cases, and beyond them stands half a line.
    let short = [&QUICK[..], &["21", "--keep-going", "--infer", "ref:aligned,softmax.block=16"]].concat();
    assert_eq!(code(&many.lastbit(&[&short[..], &["--shard", "2/3", "--out", "s2"]].concat())), 1);
    let mut lines = std::fs::read(many.path("s2").join("verdicts.jsonl")).expect("lines");
    lines.extend(b"{\"case\":22,\"ver");
    std::fs::write(many.path("s2").join("verdicts.jsonl"), lines).expect("written");
    let refused = merge(&many, 3, &["--out", "run"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("cases: s1 has 90, s2 has 21"), "{}", stderr(&refused));
    // Everything but --cases is the folder's own.
    let resumed = many.lastbit(&["fuzz", "--resume", "--out", "s2", "--cases", "90"]);
    assert_eq!(code(&resumed), 1, "{}", stderr(&resumed));
    assert_eq!(code(&merge(&many, 3, &["--out", "run"])), 1);
    assert_same(&files(&one.path("run")), &files(&many.path("run")), "resumed");
    let other = many.lastbit(&["fuzz", "--resume", "--out", "s2", "--shard", "3/3"]);
    assert_eq!(code(&other), 2);
    assert!(stderr(&other).contains("shard: the run has 2/3, --resume asks for 3/3"), "{}", stderr(&other));
}

#[test]
fn what_does_not_join_is_2_and_named() {
    let folder = Folder::new();
    let command = [&QUICK[..], &["30"]].concat();
    shards(&folder, 3, &command);
    let refusal = |arguments: &[&str], part: &str| {
        let output = folder.lastbit(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
        assert!(!folder.path("run").exists(), "{arguments:?}: something was written");
    };
    refusal(&["merge", "s1", "s3", "--out", "run"], "missing: shard 2/3");
    refusal(&["merge", "s1", "s2", "s3", "s2", "--out", "run"], "shard 2/3 is there twice: s2 and s2");
    refusal(&["merge", "s1", "s2", "s3"], "--out: is missing");
    refusal(&["merge", "s1", "s2", "s3", "--out", "s1"], "--out s1: is a shard's folder");
    refusal(&["merge", "s1", "s2", "s3", "-o", "x.json"], "--output: not for shards of fuzz");
    refusal(&["merge", "nothing", "--out", "run"], "nothing: is no folder of a shard");
    refusal(&["merge", "--out", "run"], "<DIR>...");
    for (more, field) in [
        (&["--seed", "2"][..], "seed: s1 has 1, other has 2"),
        (&["--infer", "ref:aligned,softmax.block=16"], "infer.softmax.block: s1 has"),
        (&["--pin", "causal=none"], "pins: s1 has"),
        (&["--oracle", "off"], "oracle: s1 has enclosure, other has off"),
        (&["--keep-going"], "keep_going: s1 has false, other has true"),
    ] {
        folder.lastbit(&[&command[..], &["--shard", "2/3", "--out", "other"], more].concat());
        refusal(&["merge", "s1", "other", "s3", "--out", "run"], field);
    }
    folder.lastbit(&[&command[..], &["--shard", "2/4", "--out", "other"]].concat());
    refusal(&["merge", "s1", "other", "s3", "--out", "run"], "number of shards: s1 has 3, other has 4");
    folder.lastbit(&[&command[..], &["--out", "other"]].concat());
    refusal(&["merge", "s1", "other", "s3", "--out", "run"], "other: is a whole run and no shard");
    let text = std::fs::read_to_string(folder.path("s2").join("checkpoint.json")).expect("a checkpoint");
    assert!(text.contains("\"lastbit\": \""));
    std::fs::write(folder.path("s2").join("checkpoint.json"), text.replace("\"lastbit\": \"", "\"lastbit\": \"9."))
        .expect("written");
    refusal(&["merge", "s1", "s2", "s3", "--out", "run"], "lastbit: s1 has ");
    std::fs::write(folder.path("s2").join("checkpoint.json"), text.replace("\"verdict_bytes\": ", "\"verdict_bytes\": 1"))
        .expect("written");
    let lines = std::fs::read_to_string(folder.path("s2").join("verdicts.jsonl")).expect("lines");
    let edited = |lines: String, part: &str| {
        std::fs::write(folder.path("s2").join("verdicts.jsonl"), lines).expect("written");
        refusal(&["merge", "s1", "s2", "s3", "--out", "run"], part);
    };
    edited(lines.lines().take(4).map(|line| format!("{line}\n")).collect(), "s2: shard 2/3: has not come to case 13 of 30");
    edited(lines.lines().skip(1).map(|line| format!("{line}\n")).collect(), "verdicts.jsonl:1: case: is 4, should be 1");
    edited(lines.replace("\"counts\"", "\"count\""), "verdicts.jsonl:1: counts: is missing");
}

#[test]
fn a_shard_by_time_or_beyond_its_number_is_refused() {
    for (arguments, part) in [
        (&["fuzz", "--shard", "1/2", "--time", "1s"][..], "cannot be used with"),
        (&["fuzz", "--shard", "3/2"], "write I/N"),
        (&["power", "--shard", "1/2"], "--out"),
        (&["power", "--out", "x"], "--shard"),
        (&["power", "--shard", "1/2", "--out", "x", "--floor", "1"], "cannot be used with"),
    ] {
        let output = Folder::new().lastbit(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    let folder = Folder::new();
    shards(&folder, 1, &[&QUICK[..], &["5"]].concat());
    let output = folder.lastbit(&["fuzz", "--resume", "--out", "s1", "--time", "1s"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--shard: not with --time"), "{}", stderr(&output));
}

/// A kernel from outside must be named again: what was kept is run with it, and a folder starts no program.
#[test]
fn a_kernel_from_outside_is_named_again() {
    let folder = Folder::new();
    let serve = format!("process:{} serve ref:aligned", env!("CARGO_BIN_EXE_lastbit"));
    let command = [&QUICK[..], &["12", "--infer", &serve]].concat();
    shards(&folder, 2, &command);
    let output = merge(&folder, 2, &["--out", "run"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("`lastbit merge s2 s1 --out run --infer "), "{}", stderr(&output));
    let output = merge(&folder, 2, &["--out", "run", "--infer", &serve]);
    assert!([0, 3].contains(&code(&output)), "{}", stderr(&output));
}

/// Takes the times out, at any depth.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("seconds");
            fields.values_mut().for_each(without_times);
        }
        Value::Array(values) => values.iter_mut().for_each(without_times),
        _ => {}
    }
}

fn power_json(path: &Path) -> String {
    let mut value = serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON");
    without_times(&mut value);
    format!("{value:#}")
}

#[test]
fn shards_of_power_are_one_table() {
    let folder = Folder::new();
    let command =
        ["power", "--only", "A-M1,B-M1,D-M1,C-M2,A-M2", "--cases", "120", "--clean-cases", "100", "--rival-cases", "40"];
    let whole = folder.lastbit(&[&command[..], &["--json", "one.json"]].concat());
    shards(&folder, 3, &command);
    let joined = merge(&folder, 3, &["-o", "many.json"]);
    assert_eq!(code(&joined), code(&whole), "{}", stderr(&joined));
    assert_eq!(power_json(&folder.path("one.json")), power_json(&folder.path("many.json")));
    let lines = |text: String| text.lines().filter(|line| !line.contains(" s") && !line.contains("time")).count();
    assert_eq!(lines(stdout(&joined)), lines(stdout(&whole)), "{}", stdout(&joined));
    // A score below the floor.
    assert_eq!(code(&merge(&folder, 3, &["--floor", "1"])), 1);

    // A shard that died in the middle of a line.
    let units = folder.path("s2").join("units.jsonl");
    let text = std::fs::read_to_string(&units).expect("lines");
    std::fs::write(&units, &text[..text.len() / 2]).expect("written");
    let output = merge(&folder, 3, &["-o", "again.json"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("s2: shard 2/3: not finished: "), "{}", stderr(&output));
    let second = [&command[..], &["--shard", "2/3", "--out", "s2"]].concat();
    let output = folder.lastbit(&second);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--out s2: holds a shard; give --resume"), "{}", stderr(&output));
    let output = folder.lastbit(&[&second[..], &["--seed", "9", "--resume"]].concat());
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--out s2: seed: the folder has 1, --resume asks for 9"), "{}", stderr(&output));
    assert_eq!(code(&folder.lastbit(&[&second[..], &["--resume"]].concat())), 0);
    merge(&folder, 3, &["-o", "again.json"]);
    assert_eq!(power_json(&folder.path("one.json")), power_json(&folder.path("again.json")));
    let output = folder.lastbit(&["merge", "s1", "s3"]);
    assert!(code(&output) == 2 && stderr(&output).contains("missing: shard 2/3"), "{}", stderr(&output));
    folder.lastbit(&["fuzz", "--profile", "quick", "--cases", "3", "--shard", "1/1", "--out", "f1"]);
    let output = folder.lastbit(&["merge", "s1", "f1"]);
    assert!(stderr(&output).contains("f1: is a shard of fuzz, s1 one of power"), "{}", stderr(&output));
}

/// A certificate's files, without where and when, and the seal over that.
fn certificate(folder: &Folder) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut all = files(&folder.path("result"));
    let text = all.remove("cert.json").expect("a certificate");
    let mut value: Value = serde_json::from_slice(&text).expect("JSON");
    for field in ["environment", "seal"] {
        value["predicate"]["lastbit"].as_object_mut().expect("an object").remove(field).expect(field);
    }
    all.insert("cert.json".into(), value.to_string().into_bytes());
    all
}

#[test]
fn shards_of_a_certification_are_one_certificate() {
    let (one, many) = (Folder::new(), Folder::new());
    for folder in [&one, &many] {
        std::fs::create_dir(folder.path("result")).expect("a folder");
    }
    let command = ["certify", "--battery", "quick", "--train", "ref:aligned,softmax.block=16"];
    let whole = one.lastbit(&[&command[..], &["--out", "run", "-o", "result/cert.json"]].concat());
    shards(&many, 7, &command);
    let refused = many.lastbit(&["merge", "s1", "s3", "-o", "result/cert.json"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("missing: shard 2/7"), "{}", stderr(&refused));
    let over = merge(&many, 7, &["-o", "s3/checkpoint.json"]);
    assert!(code(&over) == 2 && stderr(&over).contains("would replace the file of a shard"), "{}", stderr(&over));
    let joined = merge(&many, 7, &["-o", "result/cert.json"]);
    assert_eq!(code(&joined), code(&whole), "{}{}", stdout(&joined), stderr(&joined));
    assert_eq!(stdout(&joined), stdout(&whole));
    assert_same(&certificate(&one), &certificate(&many), "7 shards");
    let made: Value =
        serde_json::from_str(&std::fs::read_to_string(many.path("result/cert.json")).expect("a file")).expect("JSON");
    assert_eq!(made["predicate"]["lastbit"]["environment"]["programs_sha256"].as_array().expect("programs").len(), 1);
}
