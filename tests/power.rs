//! `lastbit power`: planted faults are found, survivors and false alarms are said.

mod binary;

use binary::{Folder, code, stderr, stdout};

#[test]
fn planted_faults_are_killed_and_the_table_says_how() {
    let output =
        Folder::new().lastbit(&["power", "--only", "A-M1,D-M1", "--cases", "200", "--clean-cases", "50", "--floor", "1"]);
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{text}{}", stderr(&output));
    assert!(text.lines().any(|line| line.starts_with("A-M1") && line.contains("q 1 kv 2 d 1")), "{text}");
    assert!(text.contains("score: 2 of 2 killed on both sides (1.000); 2 of 2 in inference alone"), "{text}");
    assert!(text.contains("without a fault: ref:aligned: 0 false alarms in 50 cases"), "{text}");
}

#[test]
fn an_unknown_mutant_is_2_and_names_the_known_ones() {
    let output = Folder::new().lastbit(&["power", "--only", "A-M9"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("unknown mutant `A-M9`"), "{}", stderr(&output));
    for floor in ["1.5", "-1", "NaN", "much"] {
        assert_eq!(code(&Folder::new().lastbit(&["power", &format!("--floor={floor}")])), 2, "{floor}");
    }
}

#[test]
fn the_list_has_every_mutant_and_runs_nothing() {
    use lastbit::subject::attention::mutant::Mutant;
    let output = Folder::new().lastbit(&["power", "--list"]);
    assert_eq!(code(&output), 0);
    let text = stdout(&output);
    for mutant in Mutant::ALL {
        let entry = mutant.entry();
        assert!(text.contains(&format!("{}  {}\n", entry.id, entry.edit)), "{mutant}: {text}");
        assert!(text.contains(entry.source), "{mutant}: {text}");
    }
}
