//! `lastbit power`: planted faults are found, survivors and false alarms are said.

mod binary;

use binary::{Folder, code, stderr, stdout};
use lastbit::subject::attention::mutant::Mutant;
use lastbit::subject::attention::power::{Sides, hunt};
use serde_json::Value;

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

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn planted_faults_are_killed_and_the_table_says_how() {
    let output =
        Folder::new().lastbit(&["power", "--only", "A-M1,D-M1", "--cases", "200", "--clean-cases", "200", "--floor", "1"]);
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    assert!(text.lines().any(|line| line.starts_with("A-M1") && line.contains(" q 1 kv ")), "{text}");
    assert!(text.contains("score: 2 of 2 killed on both sides (1.000); 2 of 2 in inference alone"), "{text}");
    assert!(text.contains("\n  reached, in so many cases: prefix hit "), "{text}");
    assert!(text.contains("without a fault: ref:aligned: false alarms in 0 of 200 cases"), "{text}");
}

#[test]
fn an_unknown_mutant_is_2_and_names_the_known_ones() {
    let output = Folder::new().lastbit(&["power", "--only", "Z-M1"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("unknown mutant `Z-M1`"), "{}", stderr(&output));
    for floor in ["1.5", "-1", "NaN", "much"] {
        assert_eq!(code(&Folder::new().lastbit(&["power", &format!("--floor={floor}")])), 2, "{floor}");
    }
}

#[test]
fn the_list_has_every_mutant_and_runs_nothing() {
    let output = Folder::new().lastbit(&["power", "--list"]);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    for mutant in Mutant::ALL {
        let entry = mutant.entry();
        assert!(text.contains(&format!("{}  {}\n", entry.id, entry.edit)), "{mutant}: {text}");
        assert!(text.contains(entry.source), "{mutant}: {text}");
    }
}

#[test]
fn the_json_is_complete_and_does_not_depend_on_threads() {
    let folder = Folder::new();
    let arguments = ["power", "--only", "A-M1,B-M1,D-M1,C-M2", "--cases", "300", "--clean-cases", "300", "--rival-cases", "150"];
    let run = |jobs: &str, file: &str| {
        let output = folder.lastbit(&[&arguments[..], &["--jobs", jobs, "--json", file]].concat());
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
        output
    };
    let mut one = json(&stdout(&run("1", "-")));
    let table = stdout(&run("3", "power.json"));
    assert!(table.starts_with("Planted faults"), "{table}");
    let mut three = json(&std::fs::read_to_string(folder.path("power.json")).expect("the file"));
    assert!(one["planted"][0]["both"]["seconds"].is_f64(), "{one}");
    without_times(&mut one);
    without_times(&mut three);
    assert_eq!(one, three, "the result depends on the number of threads");

    assert_eq!((&one["score"], &one["killed"], &one["mutants"]), (&1.0.into(), &4.into(), &4.into()), "{one}");
    let first = &one["planted"][0];
    assert_eq!((&first["id"], &first["both"]["by"]), (&"A-M1".into(), &"oracle".into()), "{first}");
    assert!(first["both"]["case"].is_u64() && first["infer"]["case"].is_u64(), "{first}");
    assert_eq!(first["cause"]["is"], "semantics");
    let case = first["small"]["case"].as_str().expect("a case file");
    let path = folder.path("small.case");
    std::fs::write(&path, case).expect("a case");
    assert_eq!(code(&folder.lastbit(&["replay", "small.case"])), 1, "the small case replays");
    assert_eq!(one["clean"][0]["kernel"], "ref:aligned");
    assert!(one["clean"].as_array().expect("kernels").iter().all(|it| it["false_alarms"] == 0 && it["cases"] == 300), "{one}");
    assert_eq!(one["rivals"].as_array().expect("rivals").len(), 3);
    assert!(one["judges"].as_array().expect("judges").iter().all(|it| it["as_expected"] == true), "{one}");
}

#[test]
fn a_result_that_cannot_be_written_is_74_and_one_that_never_could_is_2() {
    let arguments = ["power", "--only", "A-M1", "--cases", "1", "--clean-cases", "1", "--json"];
    let power = |file: &str| Folder::new().lastbit(&[&arguments[..], &[file]].concat());
    let output = power("no/such/folder/power.json");
    assert!(code(&output) == 2 && stdout(&output).is_empty(), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("there is no folder no/such/folder"), "{}", stderr(&output));
    if std::path::Path::new("/dev/full").exists() {
        let output = power("/dev/full");
        assert_eq!(code(&output), 74, "{}", stderr(&output));
    }
}

/// What the campaign is for: it finds every fault of the catalogue.
#[test]
fn every_mutant_is_killed_on_both_sides_and_alone() {
    let survives = |mutant: Mutant, sides| hunt(mutant, sides, 1, 20_000).kill.is_none();
    for sides in [Sides::Both, Sides::Infer] {
        let survivors: Vec<Mutant> = Mutant::ALL.iter().copied().filter(|&mutant| survives(mutant, sides)).collect();
        assert!(survivors.is_empty(), "{sides:?}: {survivors:?}");
    }
}
