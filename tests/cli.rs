//! The real binary: exit codes, messages, files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lastbit(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_lastbit")).args(arguments).current_dir(self.0.path()).output().expect("the binary runs")
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn last_json(output: &Output) -> serde_json::Value {
    let text = stdout(output);
    serde_json::from_str(text.lines().last().expect("a last line")).expect("one JSON object")
}

fn seed_case() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora/seeds/attention");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).expect("seeds").map(|it| it.expect("an entry").path()).collect();
    files.sort();
    files[0].clone()
}

#[test]
fn a_quiet_run_is_0_and_does_not_depend_on_threads() {
    let folder = Folder::new();
    let run = |jobs: &str| {
        let out = format!("out{jobs}");
        let output =
            folder.lastbit(&["fuzz", "--cases", "300", "--seed", "7", "--jobs", jobs, "--out", &out, "--format", "json"]);
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
        let summary = last_json(&output);
        for name in [
            "cases",
            "match",
            "mismatch",
            "inaccurate",
            "not_invariant",
            "fault",
            "undecided",
            "skipped",
            "elements",
            "capable",
            "order_sensitive",
            "escalations",
            "seconds",
            "cases_per_second",
            "found",
        ] {
            assert!(!summary[name].is_null(), "{name} is missing in {summary}");
        }
        assert_eq!(summary["cases"], 300);
        std::fs::read(folder.path(&out).join("verdicts.jsonl")).expect("verdicts")
    };
    let (one, three) = (run("1"), run("3"));
    assert_eq!(one.iter().filter(|&&byte| byte == b'\n').count(), 300);
    assert!(one == three, "verdicts depend on the number of threads");
}

#[test]
fn a_finding_is_1_and_is_saved_shrunk_and_replayable() {
    let folder = Folder::new();
    let arguments = ["fuzz", "--infer", "ref:aligned,actual.anchor=top_left", "--cases", "400", "--format", "json"];
    let output = folder.lastbit(&arguments);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let summary = last_json(&output);
    let found = &summary["found"][0];
    assert_eq!(found["cause"], "semantics", "{summary}");
    let shrunk = found["shrunk"].as_str().expect("a shrunk file");
    assert!(folder.path(found["file"].as_str().expect("a found file")).is_file());

    let replay = folder.lastbit(&["replay", shrunk]);
    assert_eq!(code(&replay), 1);
    assert!(stdout(&replay).contains("(met)"), "{}", stdout(&replay));
    let honest = folder.lastbit(&["replay", shrunk, "--infer", "ref:aligned"]);
    assert_eq!(code(&honest), 0, "{}", stdout(&honest));
    let show = folder.lastbit(&["show", shrunk]);
    assert_eq!(code(&show), 0);

    // A fixed point: shrinking again changes nothing.
    let again = folder.lastbit(&["shrink", shrunk, "-o", "again.case"]);
    assert_eq!(code(&again), 1);
    let read = |path: PathBuf| std::fs::read_to_string(path).expect("a case file");
    assert_eq!(read(folder.path("again.case")), read(folder.path(shrunk)));

    // The next run keeps this one as DIR.old.
    assert_eq!(code(&folder.lastbit(&["fuzz", "--cases", "20"])), 0);
    assert!(folder.path("lastbit.out.old").join("verdicts.jsonl").is_file());
}

#[test]
fn nothing_to_run_is_4() {
    let folder = Folder::new();
    assert_eq!(code(&folder.lastbit(&["fuzz", "--cases", "0"])), 4);
}

#[test]
fn skipped_is_never_a_pass() {
    let folder = Folder::new();
    // lse cannot be compared with base e, o can: the skips are counted.
    let output = folder.lastbit(&["fuzz", "--cases", "40", "--infer", "ref:aligned,declared.lse_base=2,actual.lse_base=2"]);
    assert_eq!(code(&output), 3, "{}", stdout(&output));
    assert!(stdout(&output).contains("skipped 40"), "{}", stdout(&output));
    // An honest kernel with another anchor, on either side: refused, not compared.
    for side in ["--train", "--infer"] {
        let kernel = "ref:aligned,declared.anchor=top_left,actual.anchor=top_left";
        let output = folder.lastbit(&["fuzz", "--cases", "40", side, kernel]);
        assert_eq!(code(&output), 3, "{}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains("declares anchor top_left"), "{}", stdout(&output));
    }
}

#[test]
fn usage_errors_are_2_and_name_what_is_wrong() {
    let folder = Folder::new();
    let cases: [(&[&str], &[&str]); 12] = [
        (&["fuzz", "--train", "ref:alinged"], &["--train", "alinged", "aligned"]),
        (&["fuzz", "--train", "ref:aligned,softmax.blok=3"], &["softmax.blok", "softmax.block"]),
        (&["fuzz", "--train", "ref:aligned,softmax.block=0"], &["softmax.block", "0"]),
        (&["fuzz", "--train", "ref:aligned,actual.ancor=top_left"], &["ancor", "anchor"]),
        (&["fuzz", "--train", "cuda:mine"], &["cuda:mine"]),
        (&["fuzz", "--cases", "many"], &["many"]),
        (&["fuzz", "--cases", "5", "--time", "5s"], &["--time"]),
        (&["fuzz", "--time", "5 lightyears"], &["lightyears"]),
        (&["fuzz", "--data", "none.safetensors"], &["none.safetensors"]),
        (&["replay", "none.case"], &["none.case"]),
        (&["show", "none.case"], &["none.case"]),
        (&["frobnicate"], &["frobnicate"]),
    ];
    for (arguments, parts) in cases {
        let output = folder.lastbit(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        for part in parts {
            assert!(stderr(&output).contains(part), "{arguments:?}: `{part}` is not in: {}", stderr(&output));
        }
        assert!(!stderr(&output).contains("internal fault"), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn bad_case_files_are_2_and_do_not_hide_good_ones() {
    let folder = Folder::new();
    let good = std::fs::read_to_string(seed_case()).expect("a seed");
    let broken = [
        ("truncated.case", good[..good.len() / 2].to_owned()),
        ("unknown.case", good.replace("[problem]", "[problem]\nsoftcop = 3.0")),
        ("format.case", good.replace("format = 1", "format = 99")),
        ("empty.case", String::new()),
        ("nul.case", "format = 1\0".to_owned()),
    ];
    for (name, content) in &broken {
        std::fs::write(folder.path(name), content).expect("written");
        let output = folder.lastbit(&["replay", name, seed_case().to_str().expect("a path")]);
        assert_eq!(code(&output), 2, "{name}: {}", stdout(&output));
        assert!(stderr(&output).contains(name), "{name}: {}", stderr(&output));
        assert!(stdout(&output).contains("(met)"), "{name}: the good file was not run: {}", stdout(&output));
    }
}

#[test]
fn a_folder_that_is_no_run_is_left_alone() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("precious")).expect("created");
    std::fs::write(folder.path("precious/thesis.txt"), "years").expect("written");
    let output = folder.lastbit(&["fuzz", "--cases", "5", "--out", "precious"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(folder.path("precious/thesis.txt").is_file());
}

#[test]
fn an_out_path_that_cannot_be_made_is_2() {
    let folder = Folder::new();
    std::fs::write(folder.path("file"), "no folder").expect("written");
    let output = folder.lastbit(&["fuzz", "--cases", "5", "--out", "file/run"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("--out file/run"), "{}", stderr(&output));
}

#[test]
fn kernels_lists_every_preset_with_numerics() {
    let folder = Folder::new();
    let text = stdout(&folder.lastbit(&["kernels"]));
    for preset in lastbit::subject::attention::reference::preset::PRESETS {
        assert!(text.contains(preset.name), "{}", preset.name);
    }
    assert!(text.contains("softmax.block"));
}
