//! JUnit XML, as CI systems collect it: each claim is a test case.
//!
//! | claim | element |
//! |---|---|
//! | PASS | none |
//! | FAIL | `failure` |
//! | FAIL, waived | `skipped`, with the issue: it is no pass, and it does not turn the job red |
//! | UNVERIFIABLE | `error`: what could not be looked at is never green, and `skipped` often is |

use super::{placed, visible};
use crate::certify::certificate::{ClaimResult, Counterexample, Status};
use crate::certify::statement::Statement;
use std::fmt::Write;

/// A certificate as a JUnit XML file with one suite. `file` is how the reader calls the certificate.
pub fn junit(statement: &Statement, file: &str) -> String {
    let statement = placed(statement, file);
    let it = &statement.predicate.lastbit;
    let [train, infer] = &it.kernels;
    let name = format!("lastbit {}: {} against {}", it.battery.name, train.words, infer.words);
    let number = |fits: &dyn Fn(&ClaimResult) -> bool| it.claims.iter().filter(|claim| fits(claim)).count();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\"",
        it.claims.len(),
        number(&|claim| claim.status == Status::Fail && claim.waived.is_none()),
        number(&|claim| claim.status == Status::Unverifiable),
        number(&|claim| claim.status == Status::Fail && claim.waived.is_some()),
        it.environment.seconds
    );
    // The common schema takes seconds without a fraction or a zone here.
    let time: String = it.environment.finished.chars().take("0000-00-00T00:00:00".len()).collect();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(xml, "<testsuites name=\"lastbit\" {counts}>");
    let _ = writeln!(xml, "  <testsuite name=\"{}\" {counts} timestamp=\"{}\">", escaped(&name), escaped(&time));
    xml.push_str("    <properties>\n");
    let properties = [
        ("status", it.status.clone()),
        ("digest", it.digest.clone()),
        ("battery", format!("{} version {}, seed {}", it.battery.name, it.battery.version, it.battery.seed)),
        ("battery.sha256", it.battery.sha256.clone()),
        ("train", format!("{} {}", train.name, train.version)),
        ("infer", format!("{} {}", infer.name, infer.version)),
        ("lastbit", it.lastbit.clone()),
    ];
    for (name, value) in properties {
        let _ = writeln!(xml, "      <property name=\"{name}\" value=\"{}\"/>", escaped(&value));
    }
    xml.push_str("    </properties>\n");
    for claim in &it.claims {
        let cases = it.counterexamples.iter().filter(|case| claim.counterexamples.contains(&case.sha256));
        test_case(&mut xml, claim, &cases.collect::<Vec<_>>(), &it.battery.name);
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    visible(xml)
}

fn test_case(xml: &mut String, claim: &ClaimResult, cases: &[&Counterexample], battery: &str) {
    let _ = write!(xml, "    <testcase name=\"{}\" classname=\"lastbit.{}\"", escaped(&claim.claim), escaped(battery));
    let mut detail = format!("{}\n{}\n", claim.sentence, claim.reason);
    for case in cases {
        let _ = write!(detail, "\n{}\n{}\ncause: {}\nreplay: {}\n", case.size, case.verdict, case.cause, case.replay);
    }
    let element = match (claim.status, &claim.waived) {
        (Status::Pass, _) => {
            xml.push_str("/>\n");
            return;
        }
        (Status::Fail, None) => "failure",
        (Status::Fail, Some(issue)) => {
            let message = escaped(&format!("waived under {issue}: {}", claim.reason));
            let _ = writeln!(xml, ">\n      <skipped message=\"{message}\"/>");
            let _ = writeln!(xml, "      <system-out>{}</system-out>\n    </testcase>", escaped(&detail));
            return;
        }
        (Status::Unverifiable, _) => "error",
    };
    let (message, kind) = (escaped(&claim.reason), claim.status);
    let _ = writeln!(xml, ">\n      <{element} type=\"{kind}\" message=\"{message}\">{}</{element}>", escaped(&detail));
    xml.push_str("    </testcase>\n");
}

/// For text and for attributes: a line feed in an attribute would be read as a space, a carriage return everywhere as a line feed.
fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\n' => xml.push_str("&#10;"),
            '\t' => xml.push_str("&#9;"),
            c => xml.push(c),
        }
    }
    xml
}
