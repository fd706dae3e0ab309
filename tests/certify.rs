//! Certificates of the real binary: the same from any threads and after a kill, verified, refused where they were changed, and compared.

mod binary;

use binary::{Folder, code, stderr, stdout};
use lastbit::certify::statement::Statement;
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;

/// The certificate of two kernels that differ, with everything beside it, made once.
static FAILING: LazyLock<Folder> = LazyLock::new(|| {
    let folder = Folder::new();
    let key = binary::repository("tests/certify/key").display().to_string();
    let made = folder.lastbit(&[
        "certify",
        "--battery",
        "quick",
        "--infer",
        "ref:aligned,softmax.block=16",
        "--jobs",
        "3",
        "-o",
        "cert.json",
        "--sign",
        &key,
    ]);
    assert_eq!(code(&made), 1, "{}{}", stdout(&made), stderr(&made));
    assert!(stdout(&made).ends_with("lastbit: 12 claims, 11 PASS, 1 FAIL\n"), "{}", stdout(&made));
    folder
});

fn read(path: &Path) -> Statement {
    Statement::load(path).unwrap_or_else(|error| panic!("{error}"))
}

/// A copy of the failing certificate, unsigned, changed by somebody who seals it anew.
fn forged(change: impl FnOnce(&mut Statement)) -> Folder {
    let folder = copy();
    let mut statement = read(&folder.path("cert.json"));
    change(&mut statement);
    let certificate = statement.predicate.lastbit;
    let environment = certificate.environment.clone();
    let text = Statement::new(certificate).with_environment(environment).print();
    std::fs::write(folder.path("cert.json"), text).expect("written");
    folder
}

fn copy() -> Folder {
    let folder = Folder::new();
    for name in ["cert.json", "cert.cases.jsonl"] {
        std::fs::copy(FAILING.path(name), folder.path(name)).expect("copied");
    }
    folder
}

/// Verifies, and gives what does not hold.
fn refusal(folder: &Folder, more: &[&str]) -> String {
    let output = folder.lastbit(&[&["verify", "cert.json", "--sample-seed", "1"], more].concat());
    assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    text.split("DOES NOT VERIFY: ").nth(1).unwrap_or_else(|| panic!("{text}")).trim().to_owned()
}

#[test]
fn a_certificate_verifies_by_its_file_its_signature_and_a_sample() {
    let signer = binary::repository("tests/certify/key.pub").display().to_string();
    let verified = FAILING.lastbit(&["verify", "cert.json", "--signer", &signer, "--sample", "3%", "--sample-seed", "7"]);
    let text = stdout(&verified);
    assert_eq!(code(&verified), 0, "{text}{}", stderr(&verified));
    for line in [
        "signed by SHA256:",
        "seal and digest hold",
        "derived again, the same",
        "follow from the records",
        "and fail again",
        "all as recorded",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // OpenSSH reads the signature too, where it is installed.
    if let Ok(output) = std::process::Command::new("ssh-keygen").arg("-Y").output() {
        drop(output);
        let public = std::fs::read_to_string(&signer).expect("a key");
        std::fs::write(FAILING.path("signers"), format!("me@example.org {public}")).expect("written");
        let script = "ssh-keygen -Y verify -f signers -I me@example.org -n lastbit -s cert.json.sig < cert.json";
        let output = FAILING.shell(script);
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    } else {
        eprintln!("SKIPPED: ssh-keygen is not installed");
    }
}

#[test]
fn a_counterexample_replays() {
    let certificate = read(&FAILING.path("cert.json")).predicate.lastbit;
    assert!(!certificate.counterexamples.is_empty());
    for it in &certificate.counterexamples {
        assert_eq!((it.claims.join(" "), it.kind.as_str(), it.kv), ("train_eq_infer".to_owned(), "blocking", 17), "{}", it.size);
        let arguments: Vec<&str> = it.replay.split(' ').skip(1).collect();
        assert_eq!(code(&FAILING.lastbit(&arguments)), 1, "{}", it.replay);
    }
}

#[test]
fn a_changed_byte_is_refused() {
    let folder = copy();
    let text = std::fs::read_to_string(folder.path("cert.json")).expect("text");
    // One byte of the environment, of a count, and of the seal itself.
    for (from, to) in
        [("\"threads\": 3", "\"threads\": 4"), ("\"planted\": 55", "\"planted\": 54"), ("\"seal\": \"", "\"seal\": \"0")]
    {
        assert!(text.contains(from), "{from}");
        std::fs::write(folder.path("cert.json"), text.replacen(from, to, 1)).expect("written");
        assert!(refusal(&folder, &[]).starts_with("the seal does not hold"), "{from}");
    }
    // With a signature that is what is said first, also of a byte that leaves no JSON.
    std::fs::copy(FAILING.path("cert.json.sig"), folder.path("cert.json.sig")).expect("copied");
    std::fs::write(folder.path("cert.json"), text.replacen('{', "[", 1)).expect("written");
    assert!(refusal(&folder, &[]).contains("not what was signed"));
    std::fs::remove_file(folder.path("cert.json.sig")).expect("removed");
    assert!(refusal(&folder, &[]).contains("cannot be read"));
}

#[test]
fn an_unsigned_certificate_is_no_signed_one() {
    let signer = binary::repository("tests/certify/key.pub").display().to_string();
    assert!(refusal(&copy(), &["--signer", &signer]).contains("not signed"));
}

#[test]
fn a_forged_certificate_is_refused_for_what_was_changed() {
    let removed = forged(|it| it.predicate.lastbit.claims.retain(|claim| claim.claim != "train_eq_infer"));
    assert_eq!(refusal(&removed, &[]), "the claim train_eq_infer of the battery is not in the certificate");
    let passed = forged(|it| {
        let claim = &mut it.predicate.lastbit.claims[0];
        claim.status = lastbit::certify::certificate::Status::Pass;
        claim.counterexamples.clear();
    });
    let reason = refusal(&passed, &[]);
    assert!(reason.contains("does not follow from its records") && reason.contains("claims.0.status"), "{reason}");
    let battery = forged(|it| it.predicate.lastbit.battery.strata[4].1 = 1);
    assert!(refusal(&battery, &[]).starts_with("the battery is not the one that is derived again: strata.4.1"));
    let example = forged(|it| {
        let example = &mut it.predicate.lastbit.counterexamples[0];
        example.text = std::fs::read_to_string(binary::repository("corpora/seeds/attention/no-keys.case")).expect("a case");
        example.sha256 = lastbit::certify::digest::sha256(&example.text);
    });
    assert!(refusal(&example, &[]).contains("does not show"));
    let cause = forged(|it| it.predicate.lastbit.counterexamples[0].cause = "order: none".into());
    assert!(refusal(&cause, &[]).contains("is not what its case makes: cause"));
    let claims = forged(|it| {
        it.predicate.lastbit.battery.claims.remove(0);
        it.predicate.lastbit.claims.remove(0);
    });
    assert!(refusal(&claims, &[]).contains("train_eq_infer"));
}

#[test]
fn another_kernel_than_the_certified_one_is_refused() {
    let folder = copy();
    let reason = refusal(&folder, &["--infer", "ref:aligned,softmax.block=32"]);
    assert!(reason.starts_with("the infer kernel is not the one that was certified"), "{reason}");
    // Named so in the certificate, with the digests of the other.
    let swapped = forged(|it| it.predicate.lastbit.kernels[1].words = "ref:aligned".into());
    let reason = refusal(&swapped, &[]);
    assert!(reason.contains("infer kernel is not the one") && reason.contains("softmax.block=16"), "{reason}");
}

#[test]
fn records_of_other_bits_are_refused() {
    // Records and certificate agree with each other, and neither with the kernels: only running it again shows it.
    let folder = copy();
    let text = std::fs::read_to_string(folder.path("cert.cases.jsonl")).expect("text");
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).expect("JSON");
            if let Some(outputs) = record.pointer_mut("/case/outputs") {
                *outputs = Value::String("0".repeat(64));
            }
            format!("{record}\n")
        })
        .collect();
    std::fs::write(folder.path("cert.cases.jsonl"), lines.concat()).expect("written");
    let reason = refusal(&folder, &[]);
    assert!(reason.contains("does not follow from its records") && reason.contains("strata.0.outputs"), "{reason}");
    std::fs::remove_file(folder.path("cert.cases.jsonl")).expect("removed");
    let output = folder.lastbit(&["verify", "cert.json"]);
    assert!(code(&output) == 2 && stderr(&output).contains("--all does without"), "{}", stderr(&output));
}

/// Whatever the threads, and after a kill: the same bytes, and 12 claims that hold.
#[cfg(unix)]
#[test]
fn a_killed_certification_goes_on_to_the_same_certificate() {
    let (whole, killed) = (Folder::new(), Folder::new());
    let made = whole.lastbit(&["certify", "--battery", "quick", "--jobs", "3", "-o", "cert.json"]);
    assert_eq!(code(&made), 0, "{}{}", stdout(&made), stderr(&made));
    assert!(stdout(&made).ends_with("lastbit: 12 claims, 12 PASS\n"), "{}", stdout(&made));
    let command = ["certify", "--battery", "quick", "--jobs", "1", "-o", "cert.json", "--resume"];
    let done = || {
        let text = std::fs::read_to_string(killed.path("lastbit.certify/checkpoint.json")).unwrap_or_default();
        serde_json::from_str::<Value>(&text).ok().and_then(|it| it["done"].as_u64()).unwrap_or(0)
    };
    for _ in 0..2 {
        let mut run = killed.command(&command).stdout(std::process::Stdio::null()).spawn().expect("started");
        let begun = done();
        // Until it has come further than where it began.
        while done() <= begun {
            assert!(run.try_wait().expect("a state").is_none(), "it ended before it was killed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        run.kill().expect("killed");
        run.wait().expect("ended");
        assert!(!killed.path("cert.json").exists());
    }
    let kept = format!("resuming after {} units", done());
    assert!(done() > 0);
    let again = killed.lastbit(&command);
    assert!(stderr(&again).contains(&kept), "{}", stderr(&again));
    assert_eq!((code(&again), stdout(&again)), (0, stdout(&made)));
    let bare = |folder: &Folder| {
        let mut it = read(&folder.path("cert.json"));
        assert!(it.predicate.lastbit.environment.seconds > 0.0);
        (it.predicate.lastbit.environment, it.predicate.lastbit.seal) = Default::default();
        it
    };
    assert_eq!(bare(&whole), bare(&killed));
    let records = |folder: &Folder| std::fs::read(folder.path("cert.cases.jsonl")).expect("records");
    assert!(records(&whole) == records(&killed));
    // A run that goes on must be the same one.
    let other = killed.lastbit(&["certify", "--battery", "quick", "--seed", "2", "--resume"]);
    assert!(code(&other) == 2 && stderr(&other).contains("seed"), "{}", stderr(&other));
}

#[test]
fn two_versions_are_compared_by_their_bits() {
    let folder = Folder::new();
    let versions = ["--kernel", "ref:fa2,softmax.block=64", "--kernel", "ref:fa2"];
    let changed = folder.lastbit(&[&["compare", "--battery", "quick"], &versions[..]].concat());
    let text = stdout(&changed);
    assert_eq!(code(&changed), 1, "{text}{}", stderr(&changed));
    for part in ["pairs     CHANGED", "random    CHANGED", "accuracy moved", "smallest changed case", "kv 65"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let replayed = folder.lastbit(&[&["compare"], &versions[..], &["--case", "changed.case"]].concat());
    assert!(code(&replayed) == 1 && stdout(&replayed).contains("changed"), "{}{}", stdout(&replayed), stderr(&replayed));
    let equal =
        folder.lastbit(&["compare", "--battery", "quick", "--kernel", "ref:fa2", "--kernel", "ref:fa2,softmax.block=128"]);
    let text = stdout(&equal);
    assert_eq!(code(&equal), 0, "{text}{}", stderr(&equal));
    assert!(text.contains("accuracy did not move") && text.contains("cases, the same output bits in each"), "{text}");
}

#[test]
fn two_certificates_are_compared_by_claim_and_stratum() {
    let new = Folder::new();
    let cert = FAILING.path("cert.json").display().to_string();
    let made = new.lastbit(&["certify", "--battery", "quick", "-o", "new.json", "--previous", &cert]);
    assert_eq!(code(&made), 1, "{}{}", stdout(&made), stderr(&made));
    assert!(
        stdout(&made).contains("version_equal      FAIL         output bits changed in kept; other sizes or limits"),
        "{}",
        stdout(&made)
    );
    // It is verified beside the one that it names, or without.
    let alone = new.lastbit(&["verify", "new.json", "--sample-seed", "1"]);
    assert!(
        code(&alone) == 3 && stdout(&alone).contains("verified but for version_equal: "),
        "{}{}",
        stdout(&alone),
        stderr(&alone)
    );
    let beside = new.lastbit(&["verify", "new.json", "--sample-seed", "1", "--previous", &cert]);
    assert!(code(&beside) == 0 && stdout(&beside).contains(", as named"), "{}{}", stdout(&beside), stderr(&beside));
    let own = new.lastbit(&["verify", "new.json", "--sample-seed", "1", "--previous", "new.json"]);
    assert!(code(&own) == 1 && stdout(&own).contains("is not the one that it was held against"), "{}", stdout(&own));
    let compared = new.lastbit(&["compare", &cert, "new.json"]);
    let text = stdout(&compared);
    assert_eq!(code(&compared), 1, "{text}{}", stderr(&compared));
    for part in
        ["softmax.block: 16 -> 64", "numerics changed", "train_eq_infer     CHANGED  FAIL -> PASS", "on the infer path", "kv 17"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Half of the records, or another certificate's, compare nothing.
    let text = std::fs::read_to_string(new.path("new.cases.jsonl")).expect("text");
    std::fs::write(
        new.path("new.cases.jsonl"),
        &text[..text.len() / 2 - text[..text.len() / 2].lines().last().map_or(0, str::len)],
    )
    .expect("written");
    let half = new.lastbit(&["compare", "new.json", "new.json"]);
    assert!(code(&half) == 2 && stderr(&half).contains("not those of the certificate beside it"), "{}", stderr(&half));
    let same = new.lastbit(&["compare", &cert, &cert]);
    assert!(code(&same) == 0 && stdout(&same).contains("the same output bits in each"), "{}", stdout(&same));
}

#[test]
fn a_certificate_that_could_not_be_written_is_not_begun() {
    let folder = Folder::new();
    let output = folder.lastbit(&["certify", "--battery", "release", "-o", "nowhere/cert.json"]);
    assert!(code(&output) == 2 && stderr(&output).contains("there is no folder nowhere"), "{}", stderr(&output));
}

#[test]
fn waivers_are_needed_named_and_end() {
    let folder = copy();
    let waive = |claim: &str| {
        let text = format!("[[waiver]]\nclaim = \"{claim}\"\nissue = \"https://example.org/1\"\nuntil = \"2999-01-01\"\n");
        std::fs::write(folder.path("w.toml"), text).expect("written");
    };
    // The records are there already: a resumed run only writes the certificate.
    let run = FAILING.path("lastbit.certify").display().to_string();
    let certify = || {
        // Kernels and battery are those of the run.
        folder.lastbit(&["certify", "--resume", "--out", &run, "-o", "rep/waived.json", "--waivers", "w.toml"])
    };
    std::fs::create_dir(folder.path("rep")).expect("created");
    waive("train_eq_infer");
    let waived = certify();
    assert_eq!(code(&waived), 0, "{}{}", stdout(&waived), stderr(&waived));
    assert!(stdout(&waived).ends_with("lastbit: 12 claims, 11 PASS, 1 FAIL (waived)\n"), "{}", stdout(&waived));
    assert!(stdout(&waived).contains("\n  lastbit replay rep/counterexamples/train_eq_infer-"), "{}", stdout(&waived));
    let certificate = std::fs::read_to_string(folder.path("rep/waived.json")).expect("a certificate");
    assert!(!certificate.contains("rep/counterexamples"), "a certificate names no folder");
    waive("accurate");
    let unneeded = certify();
    assert!(code(&unneeded) == 2 && stderr(&unneeded).contains("is not needed"), "{}", stderr(&unneeded));
    assert!(stderr(&unneeded).contains("the same command with --resume only writes"), "{}", stderr(&unneeded));
    std::fs::write(folder.path("w.toml"), "[waiver]\nclaim = \"accurate\"\n").expect("written");
    let ignored = certify();
    assert!(code(&ignored) == 2 && stderr(&ignored).contains("write each as [[waiver]]"), "{}", stderr(&ignored));
}
