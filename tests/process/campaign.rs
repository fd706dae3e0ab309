//! Kernel processes under the harness: faults are findings, found whatever the number of threads, and they shrink.

use crate::child::{Trick, command, patient, start};
use crate::harness::{against, first, shrunk};
use lastbit::external::process::Limits;
use lastbit::finding::{Breakage, Fault, Finding};
use lastbit::lab::{Campaign, Done, Flow, Length, run};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::trial::Trial;
use lastbit::subject::attention::{Attention, Cache};

pub const TESTS: &[(&str, fn())] = &[
    ("a_segfault_shrinks_to_its_first_length", a_segfault_shrinks_to_its_first_length),
    ("verdicts_do_not_depend_on_threads", verdicts_do_not_depend_on_threads),
    ("nan_is_judged_not_broken", nan_is_judged_not_broken),
    ("pages_beyond_all_memory_are_skipped", pages_beyond_all_memory_are_skipped),
    ("a_kernel_that_refuses_everything_passes_nothing", a_kernel_that_refuses_everything_passes_nothing),
];

fn under_test(role: &str, limits: Limits) -> Attention {
    against(start(command(role), limits), Mode::Enclosure)
}

fn is(finding: &Finding, wanted: Breakage) -> bool {
    matches!(finding, Finding::Fault { fault: Fault::Broken { breakage, .. }, .. } if *breakage == wanted)
}

fn a_segfault_shrinks_to_its_first_length() {
    let attention = under_test("segfaults_at_129", patient());
    let found = first(&attention, 200, |_, finding| is(finding, Breakage::Crashed)).expect("a case of 129 keys");
    let shrunk = shrunk(&attention, &found);
    let problem = &shrunk.trial.case.problem;
    assert_eq!(problem.sequences.iter().map(|it| it.kv).collect::<Vec<_>>(), [129]);
    assert_eq!((problem.sequences[0].q, problem.q_heads(), problem.d_qk), (1, 1, 1), "{problem:?}");
    assert!(is(&shrunk.finding, Breakage::Crashed));
    eprintln!("{} evaluations", shrunk.evaluations);
}

fn verdicts_do_not_depend_on_threads() {
    for role in ["segfaults_at_129", "exits_at_129", "panics_at_129"] {
        let verdicts = |jobs: usize| {
            let attention = under_test(role, patient());
            let mut all = Vec::new();
            run(&attention, Campaign { seed: 3, first: 0, length: Length::Cases(60), jobs }, |done: Done<Trial>| {
                all.push(format!("{:?}", done.verdict));
                Flow::Continue
            });
            all
        };
        let alone = verdicts(1);
        let faults = alone.iter().filter(|verdict| verdict.contains("Fault")).count();
        assert!((1..60).contains(&faults), "{role}: {faults} of 60 cases");
        assert_eq!(alone, verdicts(6), "{role}");
    }
}

fn nan_is_judged_not_broken() {
    let attention = under_test("nan", patient());
    let found = first(&attention, 20, |_, finding| matches!(finding, Finding::Inaccurate(_)));
    assert!(found.is_some(), "NaN passed for right");
    assert!(first(&attention, 20, |_, finding| matches!(finding, Finding::Fault { .. })).is_none());
}

fn pages_beyond_all_memory_are_skipped() {
    // A welcome that declares them is refused; a kernel of this process has none.
    let attention = against(Trick::here("endless_pages"), Mode::Enclosure);
    let (mut paged, mut compared) = (0, 0);
    run(&attention, Campaign { seed: 1, first: 0, length: Length::Cases(30), jobs: 1 }, |done: Done<Trial>| {
        let large = matches!(done.trial.case.infer.cache, Cache::Paged { .. });
        let skipped = |finding: &Finding| matches!(finding, Finding::Skipped { reason, .. } if reason.starts_with("beyond the limits of a case: infer.page is 4294967295;"));
        paged += u32::from(large);
        compared += done.verdict.compared;
        assert_eq!(done.verdict.findings.iter().any(skipped), large, "{:?}", done.verdict.findings);
        Flow::Continue
    });
    assert!(paged > 0 && compared > 0, "{paged} paged, {compared} compared");
}

fn a_kernel_that_refuses_everything_passes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let command = command("refuses");
    let [(name, role)] = &command.environment[..] else { panic!("{command:?}") };
    let text = format!("format = 1\ncommand = [{:?}]\nenvironment = {{ {name} = {role:?} }}\n", command.argv[0]);
    std::fs::write(folder.path().join("refuses.toml"), text).expect("written");
    let lastbit = |arguments: &[&str]| {
        let mut lastbit = std::process::Command::new(env!("CARGO_BIN_EXE_lastbit"));
        lastbit.args(arguments).current_dir(folder.path()).output().expect("lastbit")
    };
    // A folder that cannot be is refused before the work, not after it.
    let nowhere = lastbit(&["probe", "refuses.toml", "--cases", "3", "--out", "refuses.toml/cases"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&nowhere.stderr).contains("probing"), "{nowhere:?}");
    let probe = lastbit(&["probe", "refuses.toml", "--cases", "3"]);
    let text = String::from_utf8_lossy(&probe.stdout);
    assert_eq!(probe.status.code(), Some(4), "{text}");
    assert!(text.contains("NOTHING ANSWERED") && !text.contains("nothing wrong"), "{text}");
    let fuzz = lastbit(&["fuzz", "--infer", "refuses.toml", "--cases", "10", "--profile", "quick"]);
    let text = String::from_utf8_lossy(&fuzz.stdout);
    assert_eq!(fuzz.status.code(), Some(3), "{text}");
    assert!(text.contains(" 10 skipped, "), "{text}");
}
