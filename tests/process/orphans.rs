//! No process outlives its parent: looked for in the list of processes, by a mark in their environment.

use crate::calls::call;
use crate::child::{ABOUT, ROLE, command, patient, start};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("none_is_left_when_the_parent_is_killed", none_is_left_when_the_parent_is_killed),
    ("none_is_left_when_the_kernel_is_dropped", none_is_left_when_the_kernel_is_dropped),
];

/// Children inherit it from those that start them.
const MARK: &str = "LASTBIT_TEST_MARK";

/// Processes with a mark, zombies left out.
fn marked(mark: &str) -> Vec<String> {
    let needle = format!("{MARK}={mark}");
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|&byte| byte == 0).any(|variable| variable == needle.as_bytes()) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            all.push(name.trim().to_owned());
        }
    }
    all.sort();
    all
}

/// Waits for the list of processes to be as wanted.
#[track_caller]
fn eventually(mark: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let all = marked(mark);
        if wanted(&all) {
            return all;
        }
        assert!(Instant::now() < deadline, "after 30 s: {all:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn supported() -> bool {
    let there = std::path::Path::new("/proc/self/environ").exists();
    if !there {
        eprintln!("skipped: the list of processes is read from /proc, which is missing");
    }
    there
}

fn none_is_left_when_the_parent_is_killed() {
    if !supported() {
        return;
    }
    let mark = format!("killed-{}", std::process::id());
    let mut parent = Command::new(std::env::current_exe().expect("this binary"));
    parent.env(ROLE, "parent").env(ABOUT, "hangs_with_a_child_of_its_own").env(MARK, &mark);
    let mut parent = parent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a parent");
    let all = eventually(&mark, |all| all.iter().any(|name| name == "sleep"));
    assert_eq!(all.len(), 4, "parent, child, its child, watchdog: {all:?}");
    parent.kill().expect("kill -9");
    parent.wait().expect("its end");
    eventually(&mark, <[String]>::is_empty);
}

fn none_is_left_when_the_kernel_is_dropped() {
    if !supported() {
        return;
    }
    let mark = format!("dropped-{}", std::process::id());
    let mut command = command("leaves_a_child_behind");
    command.environment.push((MARK.into(), mark.clone()));
    let kernel = start(command, patient());
    call(&kernel, 8).expect("an answer");
    assert!(marked(&mark).iter().any(|name| name == "sleep"), "{:?}", marked(&mark));
    drop(kernel);
    assert_eq!(marked(&mark), [""; 0]);
}
