//! Children that go wrong in a call: what is reported, of which call, and that the next call finds a child again.

use crate::calls::{broken, call};
use crate::child::{command, command_about, patient, short, start};
use lastbit::external::process::{Command, Limits, ProcessKernel};
use lastbit::finding::Breakage;
use lastbit::number::{Class, Dtype};
use lastbit::subject::attention::kernel::{AttentionKernel, KernelError};
use lastbit::subject::attention::reference::Reference;
use std::time::{Duration, Instant};

pub const TESTS: &[(&str, fn())] = &[
    ("each_fault_is_told_apart", each_fault_is_told_apart),
    ("a_crash_names_its_signal_and_stderr", a_crash_names_its_signal_and_stderr),
    ("a_leak_is_seen", a_leak_is_seen),
    ("a_leak_of_a_grandchild_is_seen", a_leak_of_a_grandchild_is_seen),
    ("nan_is_an_answer", nan_is_an_answer),
    ("errors_of_a_kernel_come_as_they_are", errors_of_a_kernel_come_as_they_are),
    #[cfg(target_os = "linux")] // where there is shared memory
    ("a_lost_device_is_seen_in_shared_memory", a_lost_device_is_seen_in_shared_memory),
    ("an_answer_that_nothing_asked_for", an_answer_that_nothing_asked_for),
    ("an_end_between_calls_is_seen", an_end_between_calls_is_seen),
    ("an_end_is_seen_while_a_grandchild_holds_the_pipe", an_end_is_seen_while_a_grandchild_holds_the_pipe),
    ("the_first_call_of_a_shape_may_take_longer", the_first_call_of_a_shape_may_take_longer),
    ("other_calls_in_flight_notice_nothing", other_calls_in_flight_notice_nothing),
    ("hundreds_of_crashes_are_quick", hundreds_of_crashes_are_quick),
    ("a_large_announcement_takes_no_memory", a_large_announcement_takes_no_memory),
    ("an_answer_that_is_not_written_is_no_answer", an_answer_that_is_not_written_is_no_answer),
    ("what_a_welcome_says_does_not_reach_the_terminal", what_a_welcome_says_does_not_reach_the_terminal),
    ("starts_that_fail_say_why", starts_that_fail_say_why),
    ("restarts_that_fail_give_up", restarts_that_fail_give_up),
    ("a_restarted_kernel_must_be_the_same", a_restarted_kernel_must_be_the_same),
    ("afresh_is_another_process", afresh_is_another_process),
];

/// Role, breakage, and words of the detail.
const FAULTS: &[(&str, Breakage, &str)] = &[
    ("segfaults_at_129", Breakage::Crashed, "SIGSEGV"),
    ("exits_at_129", Breakage::Crashed, "exited with code 3"),
    ("hangs_at_129", Breakage::TimedOut, "no answer within 300ms"),
    ("answers_late", Breakage::TimedOut, "no answer within 300ms"),
    ("raw_noise", Breakage::Garbled, "`step 12: loss 0.25\\n"),
    ("raw_half", Breakage::Garbled, "bytes of an answer, then no more: it exited with code 0"),
    ("raw_half_then_segfault", Breakage::Crashed, "SIGSEGV after "),
    ("raw_half_then_hang", Breakage::TimedOut, "300ms, but the beginning of one; it was ended"),
    ("raw_huge", Breakage::Garbled, "announces 10737418240 bytes; the limit is 4294967296"),
    ("raw_large", Breakage::Garbled, "announces 3221225472 bytes; the call's outputs need at most"),
    ("raw_other_id", Breakage::Garbled, "a call that was never made"),
    ("raw_old_id", Breakage::Garbled, "a call that was answered before"),
    ("raw_kind", Breakage::Garbled, "a welcome frame where an answer should be"),
    ("raw_unknown_kind", Breakage::Garbled, "a frame of kind 99"),
    ("raw_version", Breakage::Garbled, "a frame of version 2"),
    ("raw_shared", Breakage::Garbled, "in shared memory; the call did not use it"),
    ("raw_shape", Breakage::Misshapen, "o is F32 [1, 1, 8, 1]; the call asked for F32 [1, 1, 8]"),
    ("raw_dtype", Breakage::Misshapen, "o is BF16 [1, 1, 8]; the call asked for F32 [1, 1, 8]"),
    ("raw_no_lse", Breakage::Misshapen, "no tensor `lse` in the results"),
    ("raw_extra", Breakage::Misshapen, "a tensor `scores` that was not asked for"),
    ("raw_no_body", Breakage::Garbled, "announces a JSON header of"),
    ("raw_closes_stdout", Breakage::Crashed, "closed its stdout"),
];

fn each_fault_is_told_apart() {
    for (role, breakage, words) in FAULTS {
        let limits = if *breakage == Breakage::TimedOut { short() } else { patient() };
        let kernel = start(command(role), limits);
        let (given, detail) = broken(&kernel, 129);
        assert_eq!(given, *breakage, "{role}: {detail}");
        assert!(detail.contains(words), "{role}: {detail}");
        if *role != "answers_late" {
            // With the limits of a kernel that hangs, a loaded machine may be too slow for an honest answer.
            let again = (0..20).map(|_| call(&kernel, 128)).find(Result::is_ok);
            assert!(again.is_some(), "{role}: no call is answered any more");
        }
        let (given, _) = broken(&kernel, 129);
        assert_eq!(given, *breakage, "{role}, again");
    }
}

fn a_crash_names_its_signal_and_stderr() {
    let kernel = start(command("exits_at_129"), patient());
    let (breakage, detail) = broken(&kernel, 200);
    assert_eq!((breakage, detail.as_str()), (Breakage::Crashed, "it exited with code 3\nstderr: fatal: workspace too small"));
}

fn a_leak_is_seen() {
    let kernel = start(command("leaks_at_129"), Limits { memory: 256 << 20, ..patient() });
    let (breakage, detail) = broken(&kernel, 129);
    assert_eq!(breakage, Breakage::OutOfMemory, "{detail}");
    assert!(detail.contains("256 MiB"), "{detail}");
    call(&kernel, 128).expect("a new child");
}

fn a_leak_of_a_grandchild_is_seen() {
    let kernel = start(command("child_leaks"), Limits { memory: 256 << 20, ..patient() });
    let (breakage, detail) = broken(&kernel, 8);
    assert_eq!(breakage, Breakage::OutOfMemory, "{detail}");
}

fn nan_is_an_answer() {
    let kernel = start(command("nan"), patient());
    let (o, lse) = call(&kernel, 8).expect("an answer");
    assert!(o.bits.iter().chain(&lse.bits).all(|&bits| Dtype::F32.class(bits) == Class::Nan));
}

fn errors_of_a_kernel_come_as_they_are() {
    let error = |role: &str| call(&start(command(role), patient()), 129).expect_err("an error");
    assert_eq!(error("refuses"), KernelError::Unsupported("head dim 8".into()));
    assert_eq!(error("panics_at_129"), KernelError::Failed("panicked".into()));

    let kernel = start(command("loses_its_device_at_129"), patient());
    let (breakage, detail) = broken(&kernel, 129);
    assert_eq!(breakage, Breakage::DeviceError);
    assert_eq!(detail, "CUDA error: an illegal memory access was encountered");
    call(&kernel, 8).expect("a new child");
}

#[cfg(target_os = "linux")]
fn a_lost_device_is_seen_in_shared_memory() {
    let kernel = start(command("loses_its_device_in_shared_memory"), patient());
    call(&kernel, 8).expect("its device is there");
    let (breakage, detail) = broken(&kernel, 4000);
    assert_eq!((breakage, detail.as_str()), (Breakage::DeviceError, "the device is lost"));
    call(&kernel, 8).expect("a new child");
}

fn an_answer_that_nothing_asked_for() {
    let (breakage, detail) = broken(&start(command("raw_unasked"), patient()), 8);
    assert_eq!(breakage, Breakage::Garbled, "{detail}");

    let kernel = start(command("raw_twice"), patient());
    call(&kernel, 129).expect("the first answer");
    let (breakage, detail) = broken(&kernel, 8);
    assert_eq!(breakage, Breakage::Garbled, "{detail}");
    call(&kernel, 8).expect("a new child");
}

fn an_end_between_calls_is_seen() {
    let kernel = start(command("raw_ends"), patient());
    call(&kernel, 129).expect("an answer, after which it ends");
    let (breakage, detail) = broken(&kernel, 8);
    assert_eq!(breakage, Breakage::Crashed);
    assert!(detail.contains("exited with code 0"), "{detail}");
    call(&kernel, 8).expect("a new child");
}

fn an_end_is_seen_while_a_grandchild_holds_the_pipe() {
    let begun = Instant::now();
    let (breakage, detail) = broken(&start(command("ends_and_leaves_a_child"), patient()), 8);
    assert_eq!(breakage, Breakage::Crashed);
    assert!(detail.contains("code 4"), "{detail}");
    assert!(begun.elapsed() < patient().call, "its end was not seen before its time was over");
}

fn the_first_call_of_a_shape_may_take_longer() {
    let limits = Limits { call: Duration::from_millis(200), compile: Duration::from_secs(60), ..patient() };
    let kernel = start(command("slow_first"), limits);
    call(&kernel, 8).expect("the first call of a shape has time");
    let (breakage, detail) = broken(&kernel, 8);
    assert_eq!(breakage, Breakage::TimedOut, "the second has not: {detail}");
    call(&kernel, 8).expect("a new child compiles again");
    call(&kernel, 9).expect("another shape has time as well");
}

fn other_calls_in_flight_notice_nothing() {
    let reference = Reference::default();
    for role in ["segfaults_at_129", "exits_at_129", "raw_noise", "loses_its_device_at_129"] {
        let kernel = start(command(role), patient());
        std::thread::scope(|scope| {
            for thread in 0..8usize {
                let (kernel, reference) = (&kernel, &reference);
                scope.spawn(move || {
                    for n in 0..12usize {
                        let keys = if (n + thread) % 4 == 0 { 129 + n } else { 1 + n * 7 + thread };
                        match call(kernel, keys) {
                            Ok(results) if role == "raw_noise" => assert!(keys < 129, "{role} {keys} {results:?}"),
                            Ok(results) => {
                                assert!(keys < 129, "{role}: {keys} keys were answered");
                                assert_eq!(Ok(results), call(reference, keys), "{role}: {keys} keys");
                            }
                            Err(error) => assert!(keys >= 129, "{role}: {keys} keys: {error:?}"),
                        }
                    }
                });
            }
        });
    }
}

fn hundreds_of_crashes_are_quick() {
    let kernel = start(command("segfaults_at_129"), patient());
    let begun = Instant::now();
    for _ in 0..200 {
        assert_eq!(broken(&kernel, 129).0, Breakage::Crashed);
    }
    let each = begun.elapsed() / 200;
    eprintln!("{each:?} for a crash and the next start");
    assert!(each < Duration::from_millis(500), "{each:?} for a crash and the next start");
}

fn a_large_announcement_takes_no_memory() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    for role in ["raw_huge", "raw_large"] {
        let kernel = start(command(role), patient());
        assert_eq!(broken(&kernel, 129).0, Breakage::Garbled);
    }
    let error = ProcessKernel::start(command("huge_welcome"), patient()).expect_err("3 GiB of welcome");
    assert!(error.contains("announces a welcome of 3221225472 bytes; the limit is 1048576"), "{error}");
    match peak() {
        Some(peak) => assert!(peak < 1 << 20, "the parent held {peak} KiB"),
        None => eprintln!("no /proc: the parent's memory was not looked at"),
    }
}

fn starts_that_fail_say_why() {
    let named = |program: &str| Command { argv: vec![program.into()], environment: Vec::new(), folder: None };
    let cases = [
        (named("no-such-program-here"), "cannot start `no-such-program-here`: No such file"),
        (named("/"), "is it executable?"),
        (Command { folder: Some("/no/such/folder".into()), ..named("cat") }, "its working folder /no/such/folder is not there"),
        (Command { argv: Vec::new(), ..named("") }, "name a program"),
        (
            command("exits_before_its_welcome"),
            "it exited with code 7 before its welcome\nstderr: ImportError: no module named kernels",
        ),
        (command("prints_first"), "`Loading checkpoint shards: 100%\\n` where a frame should begin"),
        (command("other_protocol"), "speaks version 9 only"),
        (named("cat"), "it answers hello with a hello frame"),
        (command_about("welcome", "{}"), "welcome.identity: missing"),
    ];
    for (command, words) in cases {
        let error = ProcessKernel::start(command, patient()).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
    let never = ProcessKernel::start(command("never_welcomes"), Limits { start: Duration::from_millis(300), ..patient() });
    let error = never.expect_err("no welcome");
    assert!(error.contains("no welcome within 300ms"), "{error}");
}

#[cfg(target_os = "linux")]
fn an_answer_that_is_not_written_is_no_answer() {
    let kernel = start(command("stale"), patient());
    call(&kernel, 4096).expect("written");
    let (breakage, detail) = broken(&kernel, 4096);
    assert_eq!(breakage, Breakage::Garbled, "{detail}");
}

#[cfg(not(target_os = "linux"))]
fn an_answer_that_is_not_written_is_no_answer() {}

fn what_a_welcome_says_does_not_reach_the_terminal() {
    let name = "x\\u001b[31m\\n".repeat(20_000);
    let identity = r#""identity": {"name": "k", "version": "1", "device": "cpu"}"#;
    for about in [
        format!("{{{identity}, \"conventions\": {{\"{name}\": \"1\"}}}}"),
        format!("{{{identity}, \"numerics\": {{\"*\": \"aligned,{name}\"}}}}"),
        format!("{{\"identity\": {{\"name\": \"{name}\", \"version\": \"1\", \"device\": \"cpu\"}}}}"),
        format!("\"{name}\""),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("welcome");
        std::fs::write(&file, about).expect("written");
        let error = ProcessKernel::start(command_about("welcome_in_file", &file.display().to_string()), patient());
        let error = error.expect_err("no such welcome");
        assert!(error.contains("welcome"), "{error}");
        assert!(error.len() < 4096, "{} bytes", error.len());
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}

fn marker(folder: &tempfile::TempDir) -> String {
    folder.path().join("started").display().to_string()
}

fn restarts_that_fail_give_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = start(command_about("starts_once", &marker(&folder)), patient());
    call(&kernel, 8).expect("the first child");
    assert_eq!(broken(&kernel, 129).0, Breakage::Crashed);
    for _ in 0..2 {
        let (breakage, detail) = broken(&kernel, 8);
        assert_eq!(breakage, Breakage::NotStarted);
        assert!(detail.contains("3 starts in a row failed") && detail.contains("the device is gone"), "{detail}");
    }
}

fn a_restarted_kernel_must_be_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = start(command_about("other_version", &marker(&folder)), patient());
    assert_eq!(broken(&kernel, 129).0, Breakage::Crashed);
    let (breakage, detail) = broken(&kernel, 8);
    assert_eq!(breakage, Breakage::NotStarted);
    assert!(detail.contains("identity.version was `1` and is `2`"), "{detail}");
    let Some(Err(KernelError::Broken { breakage, detail })) = kernel.afresh() else { panic!("another version is no fresh one") };
    assert_eq!(breakage, Breakage::NotStarted);
    assert!(detail.contains("identity.version"), "{detail}");
}

fn afresh_is_another_process() {
    let kernel = start(command("segfaults_at_129"), patient());
    let fresh = kernel.afresh().expect("a process can be started again").expect("a kernel");
    assert_eq!(fresh.identity(), kernel.identity());
    assert_eq!(broken(&kernel, 129).0, Breakage::Crashed);
    assert_eq!(call(&*fresh, 8), call(&kernel, 8));
}
