//! The files with which other programs run lastbit: Kubernetes jobs, Slurm scripts, the GitHub Action, ClusterFuzzLite. Nothing here has a
//! cluster or a container: each file is read, and the shell in it is run with the environment that its program would give it.
#![cfg(unix)]

mod binary;

use binary::{Folder, assert_same, code, files, repository, stderr, stdout};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use yaml_rust2::{Yaml, YamlLoader};

fn yaml(path: &str) -> Yaml {
    let text = fs::read_to_string(repository(path)).expect(path);
    YamlLoader::load_from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}")).remove(0)
}

fn text<'a>(yaml: &'a Yaml, what: &str) -> &'a str {
    yaml.as_str().unwrap_or_else(|| panic!("{what}: is no text: {yaml:?}"))
}

/// A program in a folder of its own, to stand on the `PATH`.
fn program(folder: &Folder, name: &str, script: &str) {
    let bin = folder.path("bin");
    fs::create_dir_all(&bin).expect("a folder");
    fs::write(bin.join(name), script).expect("a script");
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("executable");
}

/// `lastbit` on the path, and the shell.
fn shell(folder: &Folder, words: &[&str], environment: &[(&str, &str)]) -> Output {
    let real = env!("CARGO_BIN_EXE_lastbit");
    if !folder.path("bin/lastbit").exists() {
        program(folder, "lastbit", &format!("#!/bin/sh\nexec {real} \"$@\"\n"));
    }
    let path = format!("{}:{}", folder.path("bin").display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder.path("")).env("PATH", path).envs(environment.iter().copied());
    command.output().expect("a shell")
}

/// The cases of the files are a night's; here some.
fn small(script: &str) -> String {
    assert!(script.contains("--cases 10000000 "), "{script}");
    script.replace("--cases 10000000 ", "--cases 60 --profile quick ")
}

/// What both job files ask for, run on one machine.
fn alone() -> Folder {
    let folder = Folder::new();
    let command = ["fuzz", "--cases", "60", "--profile", "quick", "--keep-going", "--infer", "ref:fa2", "--out", "run"];
    assert_eq!(code(&folder.lastbit(&command)), 1);
    folder
}

#[test]
fn kubernetes_jobs_run_every_shard_and_join_them() {
    let shards = yaml("adapters/kubernetes/shards.yaml");
    let merge = yaml("adapters/kubernetes/merge.yaml");
    for job in [&shards, &merge] {
        assert_eq!((text(&job["apiVersion"], "version"), text(&job["kind"], "kind")), ("batch/v1", "Job"));
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(text(&pod["restartPolicy"], "restartPolicy"), "Never", "a podFailurePolicy needs it");
        let container = &pod["containers"][0];
        for rule in job["spec"]["podFailurePolicy"]["rules"].as_vec().expect("rules") {
            let named = &rule["onExitCodes"]["containerName"];
            assert!(named.is_badvalue() || named == &container["name"], "{rule:?}");
        }
        let mounted = text(&container["volumeMounts"][0]["mountPath"], "mountPath");
        assert_eq!(environment(container)["WORK"], mounted);
    }
    let spec = &shards["spec"];
    assert_eq!(text(&spec["completionMode"], "completionMode"), "Indexed");
    let container = &spec["template"]["spec"]["containers"][0];
    let count = environment(container)["SHARDS"].clone();
    assert_eq!(spec["completions"].as_i64().expect("a number").to_string(), count);

    let folder = Folder::new();
    let work = folder.path("work");
    fs::create_dir(&work).expect("a folder");
    let work = work.to_str().expect("UTF-8");
    let run = |container: &Yaml, more: &[(&str, &str)], change: fn(&str) -> String| {
        let words: Vec<&str> = container["command"].as_vec().expect("words").iter().map(|it| text(it, "command")).collect();
        assert_eq!(words, ["/bin/sh", "-c"]);
        let script = change(text(&container["args"][0], "args"));
        shell(&folder, &["/bin/sh", "-c", &script], &[&[("WORK", work)], more].concat())
    };
    let count: u64 = count.parse().expect("a number");
    for index in 0..count {
        let (index, all) = (index.to_string(), count.to_string());
        let output = run(container, &[("SHARDS", &all), ("JOB_COMPLETION_INDEX", &index)], small);
        assert_eq!(code(&output), 0, "{index}: {}", stderr(&output));
    }
    // A pod that is tried again goes on.
    let output = run(container, &[("SHARDS", "16"), ("JOB_COMPLETION_INDEX", "3")], small);
    assert!(code(&output) == 0 && stderr(&output).contains("resuming at case "), "{}", stderr(&output));
    // A wrong command line is no result.
    let wrong = |script: &str| script.replace("--infer ref:fa2", "--infer ref:nothing");
    assert_eq!(code(&run(container, &[("SHARDS", "16"), ("JOB_COMPLETION_INDEX", "0")], wrong)), 2);

    let output = run(&merge["spec"]["template"]["spec"]["containers"][0], &[], str::to_owned);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert_same(&files(&alone().path("run")), &files(&folder.path("work/run")), "Kubernetes");
}

fn environment(container: &Yaml) -> BTreeMap<String, String> {
    let entries = container["env"].as_vec().expect("env");
    entries.iter().map(|it| (text(&it["name"], "name").to_owned(), text(&it["value"], "value").to_owned())).collect()
}

#[test]
fn slurm_scripts_run_every_shard_and_join_them() {
    let folder = Folder::new();
    for name in ["shards.sbatch", "merge.sbatch", "submit.sh"] {
        let script = fs::read_to_string(repository(&format!("adapters/slurm/{name}"))).expect(name);
        fs::write(folder.path(name), if name == "shards.sbatch" { small(&script) } else { script }).expect("a copy");
        let checked = shell(&folder, &["bash", "-n", name], &[]);
        assert!(checked.status.success(), "{name}: {}", stderr(&checked));
    }
    let script = fs::read_to_string(folder.path("shards.sbatch")).expect("a script");
    let setting = |name: &str| {
        let line = script.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {script}"));
        line.to_owned()
    };
    assert_eq!(setting("#SBATCH --array=1-"), setting("SHARDS="));
    // Stands in for Slurm: runs the tasks of an array one by one, and a job that depends on it only if all of them have ended well.
    program(
        &folder,
        "sbatch",
        r##"#!/bin/bash
echo "$@" >>asked
for script; do :; done
last=$(sed -n 's/^#SBATCH --array=1-//p' "$script")
case "$*" in *--dependency=afterok:7*) if test -e failed; then exit 1; fi;; esac
export SLURM_CPUS_PER_TASK=$(sed -n 's/^#SBATCH --cpus-per-task=//p' "$script")
for task in $(seq 1 "${last:-1}"); do
  SLURM_ARRAY_TASK_ID=$task bash "$script" >>output 2>&1 || { code=$?; echo "$script $task: $code" >>codes; test -z "$last" || touch failed; }
done
echo "7;cluster"
"##,
    );
    let output = shell(&folder, &["bash", "submit.sh"], &[]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap_or_default();
    assert!(read("asked").contains("--dependency=afterok:7 "), "{}", read("asked"));
    let codes = read("codes");
    assert!(codes.ends_with("merge.sbatch 1: 1\n") && codes.lines().count() == 1, "{codes}{}", read("output"));
    assert_same(&files(&alone().path("run")), &files(&folder.path("run")), "Slurm");
}

/// A step of the action as its program runs it: its environment, with what stands for each expression.
struct Step<'a> {
    name: &'a str,
    yaml: &'a Yaml,
}

impl Step<'_> {
    fn environment(&self, values: &BTreeMap<&str, String>) -> Vec<(String, String)> {
        let Some(entries) = self.yaml["env"].as_hash() else { return Vec::new() };
        let filled = |value: &Yaml| {
            let value = text(value, self.name);
            let expression = value.strip_prefix("${{ ").and_then(|it| it.strip_suffix(" }}"));
            let expression = expression.unwrap_or_else(|| panic!("{}: {value}: is no expression", self.name));
            values.get(expression).unwrap_or_else(|| panic!("{}: nothing stands for {expression}", self.name)).clone()
        };
        entries.iter().map(|(name, value)| (text(name, self.name).to_owned(), filled(value))).collect()
    }
}

fn steps(action: &Yaml) -> Vec<Step<'_>> {
    let steps = action["runs"]["steps"].as_vec().expect("steps");
    steps.iter().map(|yaml| Step { name: text(&yaml["name"], "name"), yaml }).collect()
}

#[test]
fn the_action_is_whole_and_its_actions_are_pinned() {
    let action = yaml("action.yml");
    assert_eq!(text(&action["runs"]["using"], "using"), "composite");
    let source = fs::read_to_string(repository("action.yml")).expect("the action");
    for line in source.lines().filter_map(|line| line.trim().strip_prefix("uses: ")) {
        let (pin, version) = line.split_once(" # v").unwrap_or_else(|| panic!("{line}: say the version"));
        let sha = pin.split_once('@').expect("a pin").1;
        assert!(sha.len() == 40 && sha.bytes().all(|byte| byte.is_ascii_hexdigit()) && !version.is_empty(), "{line}");
    }
    let inputs: Vec<&str> = action["inputs"].as_hash().expect("inputs").keys().map(|it| text(it, "input")).collect();
    for name in ["train", "infer", "battery", "args"] {
        assert!(inputs.contains(&name), "{name}");
    }
    for input in &inputs {
        assert!(source.contains(&format!("inputs.{input} ")), "{input}: nothing reads it");
    }
    // What a shell reads never stands in an expression: an input would be run.
    for step in steps(&action) {
        if let Some(script) = step.yaml["run"].as_str() {
            assert!(!script.contains("${{"), "{}", step.name);
            assert_eq!(text(&step.yaml["shell"], step.name), "bash");
            let checked = shell(&Folder::new(), &["bash", "-n", "-c", script], &[]);
            assert!(checked.status.success(), "{}: {}", step.name, stderr(&checked));
        }
    }
}

/// Runs the action's shell steps from `Name the run` on; gives the last exit code.
fn act(folder: &Folder, lastbit: &str, inputs: &[(&'static str, &str)]) -> i32 {
    let action = yaml("action.yml");
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    for (name, input) in action["inputs"].as_hash().expect("inputs") {
        let given = inputs.iter().find(|(given, _)| *given == text(name, "input"));
        let value = given.map_or_else(|| text(&input["default"], "default").to_owned(), |(_, value)| (*value).to_owned());
        values.insert(Box::leak(format!("inputs.{}", text(name, "input")).into_boxed_str()), value);
    }
    values.insert("inputs.lastbit || format('{0}/lastbit-bin/bin/lastbit', runner.temp)", lastbit.to_owned());
    let outputs = folder.path("outputs");
    let mut last = 0;
    for step in steps(&action).iter().skip_while(|step| step.name != "Name the run") {
        let Some(script) = step.yaml["run"].as_str() else { continue };
        let certified = values.get("steps.certify.outputs.code").cloned().unwrap_or_default();
        if step.name == "Report" {
            assert_eq!(
                text(&step.yaml["if"], "if"),
                r#"${{ contains(fromJSON('["0", "1", "3"]'), steps.certify.outputs.code) }}"#
            );
            if !["0", "1", "3"].contains(&certified.as_str()) {
                continue;
            }
        }
        fs::write(&outputs, "").expect("written");
        let mut environment = step.environment(&values);
        for (name, value) in [
            ("GITHUB_OUTPUT", outputs.display().to_string()),
            ("GITHUB_STEP_SUMMARY", folder.path("summary.md").display().to_string()),
            ("GITHUB_SHA", "5eed".into()),
            ("RUNNER_OS", "Linux".into()),
        ] {
            environment.push((name.to_owned(), value));
        }
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let output = shell(folder, &["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], &environment);
        last = code(&output);
        fs::write(folder.path("log"), format!("{}: {}{}", step.name, stdout(&output), stderr(&output))).expect("written");
        let id = step.yaml["id"].as_str().unwrap_or("none");
        for line in fs::read_to_string(&outputs).expect("outputs").lines() {
            let (name, value) = line.split_once('=').expect("an output");
            values.insert(Box::leak(format!("steps.{id}.outputs.{name}").into_boxed_str()), value.to_owned());
        }
    }
    last
}

/// With a lastbit that answers as told, and writes its arguments down.
#[test]
fn the_action_passes_on_what_it_was_asked_and_what_came_of_it() {
    let answers = |ends: i32, inputs: &[(&'static str, &str)]| {
        let folder = Folder::new();
        let path = folder.path("told");
        let script = format!(
            "#!/bin/bash\nfor word; do echo \"<$word>\"; done >>{asked}\nif test $1 = report; then echo '# summary'; exit; fi\n\
             echo 'lastbit: 2 claims, 1 PASS, 1 UNVERIFIABLE'\nexit {ends}\n",
            asked = folder.path("asked").display()
        );
        fs::write(&path, script).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        let last = act(&folder, path.to_str().expect("UTF-8"), inputs);
        let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap_or_default();
        (last, read("asked"), read("summary.md"), read("log"))
    };
    let (last, asked, summary, _) =
        answers(0, &[("train", "process:python k.py"), ("args", "--seed 2 --waivers 'my waivers.toml'")]);
    assert_eq!((last, summary.as_str()), (0, "# summary\n"));
    let wanted = "<certify>\n<--train>\n<process:python k.py>\n<--infer>\n<ref:aligned>\n<--battery>\n<standard>\n\
                  <--out>\n<lastbit.certify>\n<--resume>\n<-o>\n<lastbit-report/cert.json>\n<--seed>\n<2>\n<--waivers>\n<my waivers.toml>\n";
    assert!(asked.starts_with(wanted), "{asked}");
    let (last, _, summary, log) = answers(3, &[]);
    assert!(last == 3 && summary == "# summary\n" && log.contains("1 UNVERIFIABLE"), "{last}: {log}");
    assert_eq!(answers(3, &[("unverifiable", "pass")]).0, 0);
    assert_eq!(answers(1, &[]).0, 1);
    let (last, asked, summary, _) = answers(2, &[]);
    assert!(last == 2 && summary.is_empty() && !asked.contains("<report>"), "{last}: {asked}");
    let (last, .., log) = answers(137, &[("minutes", "5")]);
    assert!(last == 124 && log.contains("run this job again"), "{last}: {log}");
}

/// With the real lastbit: its options and its reports are those that the action asks for.
#[test]
fn the_action_certifies_and_reports() {
    let folder = Folder::new();
    let last =
        act(&folder, env!("CARGO_BIN_EXE_lastbit"), &[("battery", "quick"), ("args", "--jobs 2"), ("unverifiable", "pass")]);
    let read = |name: &str| fs::read_to_string(folder.path(name)).unwrap_or_default();
    assert_eq!(last, 0, "{}", read("log"));
    assert!(read("log").contains("lastbit: ") && !read("summary.md").is_empty(), "{}", read("log"));
    for name in ["cert.json", "cert.cases.jsonl", "lastbit.html", "lastbit.xml", "lastbit.sarif"] {
        assert!(!read(&format!("lastbit-report/{name}")).is_empty(), "{name}");
    }
}

/// Each fuzz target of the crate is built for ClusterFuzzLite and OSS-Fuzz, with a corpus.
#[test]
fn clusterfuzzlite_builds_every_target() {
    let cargo: toml::Table = fs::read_to_string(repository("fuzz/Cargo.toml")).expect("a manifest").parse().expect("TOML");
    let targets: Vec<(String, String)> = cargo["bin"]
        .as_array()
        .expect("targets")
        .iter()
        .map(|bin| (bin["name"].as_str().expect("a name").to_owned(), bin["path"].as_str().expect("a path").to_owned()))
        .collect();
    let mut sources: Vec<String> = fs::read_dir(repository("fuzz/fuzz_targets"))
        .expect("sources")
        .map(|entry| format!("fuzz_targets/{}", entry.expect("an entry").file_name().display()))
        .collect();
    let mut named: Vec<String> = targets.iter().map(|(_, path)| path.clone()).collect();
    sources.sort();
    named.sort();
    assert_eq!(sources, named, "build.sh takes one target for each source");

    let project = yaml(".clusterfuzzlite/project.yaml");
    assert_eq!(text(&project["language"], "language"), "rust");
    assert_eq!(text(&project["fuzzing_engines"][0], "engine"), "libfuzzer");
    let docker = fs::read_to_string(repository(".clusterfuzzlite/Dockerfile")).expect("a Dockerfile");
    assert!(docker.contains("COPY .clusterfuzzlite/build.sh $SRC/"), "{docker}");

    // The build script, with a cargo and a zip that only write down what they are asked for.
    let folder = Folder::new();
    let (source, out) = (folder.path("src"), folder.path("out"));
    fs::create_dir_all(source.join("lastbit/fuzz/target/x86_64-unknown-linux-gnu/release")).expect("a folder");
    fs::create_dir_all(&out).expect("a folder");
    for name in ["fuzz_targets", "case.dict"] {
        std::os::unix::fs::symlink(repository("fuzz").join(name), source.join("lastbit/fuzz").join(name)).expect("a link");
    }
    std::os::unix::fs::symlink(repository("corpora"), source.join("lastbit/corpora")).expect("a link");
    let build: String =
        targets.iter().map(|(name, _)| format!("touch fuzz/target/x86_64-unknown-linux-gnu/release/{name}\n")).collect();
    program(&folder, "cargo", &format!("#!/bin/sh\ncase \"$1 $2\" in \"fuzz build\") ;; *) exit 9;; esac\n{build}"));
    program(
        &folder,
        "zip",
        "#!/bin/sh\ntest \"$1\" = -qj || exit 9\nshift\nzip=$1\nshift\nfor file; do test -s \"$file\" || exit 8; done\ntouch \"$zip\"\n",
    );
    let script = repository(".clusterfuzzlite/build.sh");
    let environment = [("SRC", source.to_str().expect("UTF-8")), ("OUT", out.to_str().expect("UTF-8"))];
    let output = shell(&folder, &["bash", "-eu", script.to_str().expect("UTF-8")], &environment);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    for (name, _) in &targets {
        for file in [name.clone(), format!("{name}.dict"), format!("{name}_seed_corpus.zip")] {
            assert!(out.join(&file).exists(), "{file}: is not in $OUT");
        }
    }
}
