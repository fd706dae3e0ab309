//! Kernels from outside on the command line of the real binary: `lastbit serve` is the kernel process.

mod binary;

use binary::{Folder, code, last_json, python, repository, stderr, stdout};
use serde_json::Value;
use std::path::PathBuf;

/// A kernel process that serves a kernel of this crate.
fn served(kernel: &str) -> String {
    let program = shell_words::quote(env!("CARGO_BIN_EXE_lastbit"));
    format!("process:{program} serve {}", shell_words::quote(kernel))
}

/// A kernel file that serves a kernel of this crate, with more below.
fn file(folder: &Folder, name: &str, kernel: &str, more: &str) -> String {
    let command = [env!("CARGO_BIN_EXE_lastbit"), "serve", kernel].map(|word| toml::Value::String(word.into()).to_string());
    let text = format!("format = 1\ncommand = [{}]\n{more}", command.join(", "));
    std::fs::write(folder.path(name), text).expect("written");
    name.to_owned()
}

fn verdicts(folder: &Folder, out: &str) -> String {
    std::fs::read_to_string(folder.path(out).join("verdicts.jsonl")).expect("verdicts")
}

/// The last line of the explanation that says how to see a finding again, as words of a command line.
fn replay_of(text: &str) -> Vec<String> {
    let line = text.lines().filter_map(|line| line.strip_prefix("replay: ")).next_back().expect("a replay line");
    let words = shell_words::split(line).expect("words");
    assert_eq!(words[0], "lastbit", "{line}");
    words[1..].to_vec()
}

fn run(folder: &Folder, words: &[String]) -> std::process::Output {
    folder.lastbit(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_process_gives_the_verdicts_of_the_same_kernel_here() {
    let folder = Folder::new();
    let fuzz = |infer: &str, out: &str, jobs: &str| {
        let more = ["--profile", "quick", "--cases", "150", "--keep-going", "--format", "json", "--infer", infer, "--out", out];
        let output = folder.lastbit(&[&["fuzz", "--jobs", jobs], &more[..]].concat());
        assert_eq!(code(&output), 1, "{}", stderr(&output));
        (verdicts(&folder, out), last_json(&output))
    };
    let (here, summary) = fuzz("ref:p-bf16", "here", "2");
    for jobs in ["1", "5"] {
        let (there, outside) = fuzz(&served("ref:p-bf16"), "there", jobs);
        assert!(here == there, "verdicts differ with {jobs} threads:\n{here}\n{there}");
        assert_eq!(summary["signatures"], outside["signatures"]);
        assert_eq!(outside["found"][0]["shows_in_fresh_process"], true, "{outside}");
    }
}

#[test]
fn a_file_that_only_names_a_kernel_starts_nothing_and_says_how() {
    let folder = Folder::new();
    let kernel = served("ref:aligned,actual.anchor=top_left");
    let output = folder.lastbit(&["fuzz", "--cases", "400", "--profile", "quick", "--infer", &kernel]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    // As pasted from the report: the words are there, and work.
    let words = replay_of(&stdout(&output));
    assert!(words.contains(&"--infer".to_owned()) && words.contains(&kernel), "{words:?}");
    let replay = run(&folder, &words);
    assert_eq!(code(&replay), 1, "{}{}", stdout(&replay), stderr(&replay));
    assert!(stdout(&replay).contains("(met)"), "{}", stdout(&replay));
    assert_eq!(replay_of(&stdout(&replay)), words);
    // Without them: refused, and the refusal holds the command.
    let case = &words[1];
    let text = std::fs::read_to_string(folder.path(case)).expect("a case");
    assert!(text.contains("kernel = \"external\"\n") && text.contains("\nsource = "), "{text}");
    let refused = folder.lastbit(&["replay", case]);
    assert_eq!(code(&refused), 2);
    let message = stderr(&refused);
    let command = message.split('`').nth(1).expect("a command");
    assert_eq!(shell_words::split(command).expect("words")[1..], words, "{message}");
    // A hostile file: nothing of it is run, and nothing that misleads is shown to be pasted.
    let hostile = text.replace("source = \"process:", "source = \"process:touch pwned \u{202e}");
    std::fs::write(folder.path("hostile.case"), hostile).expect("written");
    let refused = folder.lastbit(&["replay", "hostile.case"]);
    assert_eq!(code(&refused), 2);
    assert!(stderr(&refused).contains("cannot be shown safely"), "{}", stderr(&refused));
    assert!(!folder.path("pwned").exists());
    // An honest kernel in its place: nothing is expected of it.
    let honest = folder.lastbit(&["replay", case, "--infer", "ref:aligned"]);
    assert_eq!(code(&honest), 0, "{}", stdout(&honest));
    assert!(!stdout(&honest).contains("expected:"));
}

#[test]
fn a_kernel_that_has_changed_is_named_and_replayed() {
    let folder = Folder::new();
    let kernel = served("ref:aligned,actual.anchor=top_left");
    let output = folder.lastbit(&["fuzz", "--cases", "400", "--profile", "quick", "--infer", &kernel]);
    let words = replay_of(&stdout(&output));
    let text = std::fs::read_to_string(folder.path(&words[1])).expect("a case");
    let version = format!("version = \"{}\"\n", env!("CARGO_PKG_VERSION"));
    let at = text.find("[run.infer]").expect("a kernel");
    let older = format!("{}{}", &text[..at], text[at..].replace(&version, "version = \"0.0.7\"\ndigest = \"00\"\n"));
    let older = older.replace("digest = \"00\"\ndevice = \"cpu\"\n", "device = \"cpu\"\ndigest = \"00\"\n");
    std::fs::write(folder.path("older.case"), older).expect("written");
    let replay = folder.lastbit(&["replay", "older.case", "--infer", &kernel]);
    assert_eq!(code(&replay), 1, "{}", stderr(&replay));
    assert!(stdout(&replay).contains("(met)"), "{}", stdout(&replay));
    let says = stderr(&replay);
    assert!(says.contains("older.case: run.infer.version: the file's kernel has `0.0.7`, this one has"), "{says}");
    assert!(says.contains("older.case: run.infer.digest: the file's kernel has `00`, this one has"), "{says}");
}

#[test]
fn a_kernel_file_pins_who_runs() {
    let folder = Folder::new();
    let free = file(&folder, "free.toml", "ref:aligned", "");
    let asked = folder.lastbit(&["kernels", &free]);
    assert_eq!(code(&asked), 0, "{}", stderr(&asked));
    let text = stdout(&asked);
    let start = text.find("[identity]\n").expect("a pin");
    let pin = &text[start..start + text[start..].find("\n\n").expect("an end")];
    let pinned = file(&folder, "pinned.toml", "ref:aligned", &format!("[limits]\ncall = \"60s\"\n{pin}\n"));
    let fuzz = |kernel: &str, more: &[&str]| {
        folder.lastbit(&[&["fuzz", "--cases", "200", "--profile", "quick", "--infer", kernel], more].concat())
    };
    let quiet = fuzz(&pinned, &[]);
    assert_eq!(code(&quiet), 0, "{}", stdout(&quiet));
    assert!(stdout(&quiet).contains("stand-in: splits and blocks inside infer (ref:aligned)"), "{}", stdout(&quiet));
    let changed = file(&folder, "changed.toml", "ref:aligned,softmax.block=16", &format!("{pin}\n"));
    let refused = fuzz(&changed, &[]);
    assert_eq!(code(&refused), 2, "{}", stdout(&refused));
    let message = stderr(&refused);
    for part in [
        "--infer changed.toml: changed.toml:",
        "identity.name: is pinned to `ref:aligned`; the kernel says `ref:",
        "--accept-changed",
        "lastbit kernels changed.toml",
    ] {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(code(&fuzz(&changed, &["--accept-changed"])) <= 1);
    // Asking who it is needs no leave: that is how it is pinned anew.
    let asked = folder.lastbit(&["kernels", &changed]);
    assert_eq!(code(&asked), 0, "{}", stderr(&asked));
    assert!(stdout(&asked).contains("softmax.block=16") && stderr(&asked).contains("is pinned to `ref:aligned`"));
}

#[test]
fn a_kernel_file_may_lie_elsewhere_and_name_a_reference_kernel() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("kernels")).expect("created");
    std::fs::write(folder.path("kernels/serve.toml"), "format = 1\nreference = \"aligned,softmax.block=16\"\n").expect("written");
    let run = |infer: &str, out: &str| {
        let output =
            folder.lastbit(&["fuzz", "--cases", "60", "--profile", "quick", "--keep-going", "--infer", infer, "--out", out]);
        assert!(code(&output) <= 1, "{}", stderr(&output));
        verdicts(&folder, out)
    };
    assert_eq!(run("kernels/serve.toml", "one"), run("ref:aligned,softmax.block=16", "two"));
}

#[test]
fn a_run_with_a_kernel_from_outside_goes_on() {
    let folder = Folder::new();
    let kernel = served("ref:p-bf16");
    let fuzz = |more: &[&str]| folder.lastbit(&[&["fuzz", "--profile", "quick", "--keep-going"], more].concat());
    let whole = fuzz(&["--cases", "120", "--infer", &kernel, "--out", "whole"]);
    assert_eq!(code(&whole), 1, "{}", stderr(&whole));
    assert_eq!(code(&fuzz(&["--cases", "50", "--infer", &kernel, "--out", "parts"])), 1);
    let resumed = fuzz(&["--resume", "--cases", "120", "--infer", &kernel, "--out", "parts"]);
    assert_eq!(code(&resumed), 1, "{}", stderr(&resumed));
    assert!(stderr(&resumed).contains("resuming at case 50"), "{}", stderr(&resumed));
    assert_eq!(verdicts(&folder, "whole"), verdicts(&folder, "parts"));
    let shrunk = |out: &str| -> Vec<(PathBuf, String)> {
        let entries = std::fs::read_dir(folder.path(out).join("shrunk")).expect("small cases");
        let path = entries.map(|entry| entry.expect("an entry").path());
        let mut files: Vec<_> = path
            .map(|path| (path.file_name().expect("a name").into(), std::fs::read_to_string(&path).expect("a case")))
            .collect();
        files.sort();
        files
    };
    assert_eq!(shrunk("whole"), shrunk("parts"));
    // What was made small is not made small again.
    let again = fuzz(&["--resume", "--cases", "120", "--infer", &kernel, "--out", "parts"]);
    assert!(!stderr(&again).contains("shrinking"), "{}", stderr(&again));
    // The folder names a command, and does not start it.
    let bare = fuzz(&["--resume", "--out", "parts"]);
    assert_eq!(code(&bare), 2);
    let message = stderr(&bare);
    let command = message.split('`').nth(1).expect("a command");
    let words = shell_words::split(command).expect("words");
    assert_eq!(words[1..], ["fuzz", "--resume", "--out", "parts", "--infer", &kernel], "{message}");
    assert_eq!(code(&run(&folder, &words[1..])), 1);
    // Another kernel under any words is refused by what it says of itself.
    let other = fuzz(&["--resume", "--infer", &served("ref:p-bf16,softmax.block=16"), "--out", "parts"]);
    assert_eq!(code(&other), 2);
    assert!(stderr(&other).contains("infer.name: the run has ref:p-bf16"), "{}", stderr(&other));
}

#[test]
fn words_that_start_no_kernel_are_2_and_say_what_was_seen() {
    let folder = Folder::new();
    std::fs::write(folder.path("bad.toml"), "format = 1\ncommand = [\"./none\"]\n[limits]\nmemry = \"3GiB\"\n").expect("written");
    std::fs::write(folder.path("gone.toml"), "format = 1\ncommand = [\"./none\"]\n").expect("written");
    let cases: &[(&str, &[&str])] = &[
        ("process:", &["names no command"]),
        ("process:'x", &["quote"]),
        ("process:no-such-program-here --fast", &["no-such-program-here"]),
        ("process:sh -c 'echo out of luck >&2; exit 3'", &["out of luck", "3"]),
        ("process:sh -c 'echo hello; cat >/dev/null'", &["sh -c"]),
        ("lib:none.so", &["none.so", "no such file"]),
        ("bad.toml", &["bad.toml:4: limits.memry: unknown field `memry`; did you mean `memory`?"]),
        ("gone.toml", &["gone.toml", "none"]),
        ("none.toml", &["none.toml", "cannot read"]),
        ("my_kernel.py", &["did you mean 'process:python my_kernel.py'?"]),
    ];
    for (words, parts) in cases {
        for command in [&["fuzz", "--cases", "5", "--infer", words][..], &["invariance", "--cases", "5", "--kernel", words]] {
            let output = folder.lastbit(command);
            assert_eq!(code(&output), 2, "{command:?}: {}", stderr(&output));
            for part in [&format!("{} {words}: ", command[command.len() - 2])[..]].iter().chain(*parts) {
                assert!(stderr(&output).contains(part), "{command:?}: `{part}` is not in: {}", stderr(&output));
            }
            assert!(!stderr(&output).contains("internal fault"), "{}", stderr(&output));
        }
    }
    assert!(!folder.path("lastbit.out").exists(), "nothing was begun");
}

#[test]
fn kernels_prints_what_one_says_of_itself() {
    let folder = Folder::new();
    let output = folder.lastbit(&["kernels", &served("ref:p-bf16"), "ref:fa3"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "[identity]\nname = \"ref:p-bf16\"\n",
        "\ndevice ",
        "conventions.anchor ",
        "capabilities.forms ",
        "numerics.bf16 ",
        "# ref:fa3\n",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn invariance_asks_a_kernel_without_recipes_for_its_bits_alone() {
    let folder = Folder::new();
    let output =
        folder.lastbit(&["invariance", "--cases", "60", "--profile", "quick", "--kernel", &served("ref:uncached-split")]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let text = stdout(&output);
    let cells = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let (header, row) = (cells("| kernel |"), cells("| `ref:uncached-split` |"));
    for (change, cell) in header.iter().zip(&row).skip(1) {
        let moves = ["prefix", "train = infer"].contains(&change.as_str());
        assert!(if moves { cell == "**3**" } else { cell == "kept" || cell == "not seen" }, "{change}: {cell}");
    }
    assert!(text.contains("its numbers are bits alone"), "{text}");
}

/// A kernel that says who it is, and dies of a signal when it is called.
#[cfg(unix)]
fn crashing() -> String {
    // Passes the hello on, whose length its header holds, and waits for the first byte of a call.
    let serve = "dd bs=1 count=24 2>/dev/null >hello.$$; length=$(od -An -v -tu8 -j16 hello.$$ | tr -d ' ')
        { cat hello.$$; dd bs=1 count=$length 2>/dev/null; dd bs=1 count=1 2>/dev/null >/dev/null; } | \"$0\" serve ref:aligned
        rm hello.$$; printf 'about to die\\033[2J\\n' >&2; kill -SEGV $$";
    format!("process:sh -c {} {}", shell_words::quote(serve), shell_words::quote(env!("CARGO_BIN_EXE_lastbit")))
}

#[cfg(unix)]
#[test]
fn a_kernel_that_crashes_is_a_fault_with_a_small_case() {
    let folder = Folder::new();
    let kernel = crashing();
    let output = folder.lastbit(&["fuzz", "--cases", "3", "--profile", "quick", "--format", "json", "--infer", &kernel]);
    assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
    let summary: Value = last_json(&output);
    assert!(summary["signatures"]["fault infer crashed"].as_u64() >= Some(1), "{summary}");
    let found = &summary["found"][0];
    assert_eq!((&found["seqs"], &found["q"], &found["heads"]), (&1.into(), &1.into(), &1.into()), "{found}");
    assert_eq!(found["shows_in_fresh_process"], true);
    let replay = folder.lastbit(&["replay", found["shrunk"].as_str().expect("a small case"), "--infer", &kernel]);
    assert_eq!(code(&replay), 1, "{}", stderr(&replay));
    let text = stdout(&replay);
    assert!(text.contains("verdict: fault (infer): the process ended: ") && text.contains("(met)"), "{text}");
    let table = folder.lastbit(&["invariance", "--cases", "5", "--profile", "quick", "--kernel", &kernel]);
    assert_eq!(code(&table), 1, "{}", stderr(&table));
    assert!(stderr(&table).contains("case 0 of seed 1: fault: the process ended") && !stderr(&table).contains("internal"));
    assert!(text.contains("about to die") && !text.contains('\u{1b}'), "the tail of stderr, tamed: {text}");
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Code blocks of the README in one language.
fn blocks(language: &str) -> Vec<String> {
    let readme = read("README.md");
    let opening = format!("```{language}\n");
    let starts = readme.split(&opening).skip(1);
    starts.map(|rest| rest.split("```").next().expect("an end").to_owned()).collect()
}

#[test]
fn the_readme_shows_the_examples() {
    let example = read("examples/python-kernel/my_kernel.py");
    let (first, rest) = example.split_once('\n').expect("lines");
    assert!(first.starts_with("# pip install ./adapters/python"), "{first}");
    assert_eq!(blocks("python"), [rest]);
    assert!(rest.lines().count() < 25);
    let files = blocks("toml");
    let folder = Folder::new();
    for text in files.iter().filter(|text| text.starts_with("format = 1")).chain([&read("examples/python-kernel/my_kernel.toml")])
    {
        std::fs::write(folder.path("shown.toml"), text).expect("written");
        let file = lastbit::external::kernel_file::KernelFile::load(&folder.path("shown.toml"));
        file.unwrap_or_else(|error| panic!("{error}\n{text}"));
        // Also what stands there to be uncommented.
        let whole: Vec<&str> =
            text.lines().map(|line| line.strip_prefix("# ").filter(|it| it.contains(['=', '['])).unwrap_or(line)).collect();
        std::fs::write(folder.path("shown.toml"), whole.join("\n")).expect("written");
        let file = lastbit::external::kernel_file::KernelFile::load(&folder.path("shown.toml"));
        file.unwrap_or_else(|error| panic!("{error}\n{}", whole.join("\n")));
    }
    assert!(files.iter().any(|text| text.contains("[identity]")), "a kernel file is shown");
}

#[test]
fn the_python_example_runs_under_its_name_and_from_its_file() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    std::fs::create_dir(folder.path("kernels")).expect("created");
    std::fs::copy(repository("examples/python-kernel/my_kernel.py"), folder.path("kernels/my_kernel.py")).expect("copied");
    let text =
        read("examples/python-kernel/my_kernel.toml").replace("\"python3\"", &toml::Value::String(python.clone()).to_string());
    std::fs::write(folder.path("kernels/mine.toml"), format!("{text}\n[knobs]\nworkspace = \"dirty\"\n")).expect("written");
    let words = format!("process:{} kernels/my_kernel.py", shell_words::quote(&python));
    for (words, out) in [(&words[..], "one"), ("kernels/mine.toml", "two")] {
        let mut command = folder.command(&["fuzz", "--train", "ref:naive", "--infer", words, "--cases", "60"]);
        command.args(["--profile", "quick", "--format", "json", "--out", out]);
        let output = command.env("PYTHONPATH", repository("adapters/python")).output().expect("the binary runs");
        assert_eq!(code(&output), 1, "{}", stderr(&output));
        let summary = last_json(&output);
        assert!(summary["signatures"]["mismatch o"].as_u64() > Some(0) && summary["fault"] == 0, "{summary}");
        assert_eq!(summary["found"][0]["shows_in_fresh_process"], true, "{summary}");
    }
    let asked = folder.command(&["kernels", "kernels/mine.toml"]).env("PYTHONPATH", repository("adapters/python")).output();
    let text = stdout(&asked.expect("the binary runs"));
    assert!(text.contains("[identity]\nname = \"mine\"\nversion = \"0.1\"\ndigest = \""), "{text}");
    assert!(text.lines().any(|line| line.starts_with("knobs.workspace") && line.ends_with(" dirty")), "fixed: {text}");
    assert!(text.contains("details.OMP_NUM_THREADS "), "the environment of the file: {text}");
}

/// Builds the example in C in this folder, as the README says.
#[cfg(unix)]
fn c_library(folder: &Folder, flags: &str) -> String {
    let name = format!("c{flags}");
    let copy = folder.path(&name);
    for (from, to) in [("examples/c-kernel", "examples/c-kernel"), ("include", "include")] {
        std::fs::create_dir_all(copy.join(to)).expect("created");
        for entry in std::fs::read_dir(repository(from)).expect("an example") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "so") {
                std::fs::copy(&path, copy.join(to).join(path.file_name().expect("a name"))).expect("copied");
            }
        }
    }
    let output =
        std::process::Command::new("make").arg(format!("CFLAGS={flags}")).current_dir(copy.join("examples/c-kernel")).output();
    let output = output.expect("make runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    format!("{name}/examples/c-kernel/libattention.so")
}

#[cfg(unix)]
#[test]
fn a_library_runs_in_a_process_of_its_own_unless_it_is_trusted() {
    let folder = Folder::new();
    let library = c_library(&folder, "");
    std::fs::write(folder.path("c.toml"), format!("format = 1\nlibrary = \"{library}\"\n[limits]\ncall = \"60s\"\n"))
        .expect("written");
    let fuzz = |infer: &str, out: &str, more: &[&str]| {
        let arguments = ["fuzz", "--train", "ref:naive", "--infer", infer, "--cases", "80", "--keep-going", "--profile", "quick"];
        let output = folder.lastbit(&[&arguments[..], &["--format", "json", "--out", out], more].concat());
        assert!(code(&output) == 1 || code(&output) == 3, "{}{}", stdout(&output), stderr(&output));
        let summary = last_json(&output);
        assert!(summary["elements"].as_u64() > Some(0) && summary["fault"] == 0, "{summary}");
        verdicts(&folder, out)
    };
    let child = fuzz(&format!("lib:{library}"), "child", &[]);
    assert_eq!(child, fuzz(&format!("lib:./{library}"), "here", &["--trust"]));
    assert_eq!(child, fuzz("c.toml", "file", &[]));
    // What it breaks is contained, and found.
    let broken = format!("lib:{}", c_library(&folder, "-DPLANTED_FAULT"));
    let arguments =
        ["fuzz", "--train", "ref:naive", "--infer", &broken, "--cases", "80", "--profile", "quick", "--format", "json"];
    let output = folder.lastbit(&arguments);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let summary = last_json(&output);
    assert_eq!(summary["found"][0]["finding"], "fault infer wrote_outside", "{summary}");
    assert!(
        summary["found"][0]["fault"].as_str().is_some_and(|text| text.starts_with("wrote outside its output: ")),
        "{summary}"
    );
}
