//! `lastbit replay`: kept cases, run again, with their verdict.

use super::kept_case::{Loader, Swap};
use super::{Failure, complain, print};
use crate::exit_code;
use crate::external::name::Consent;
use crate::finding::Kind;
use crate::subject::attention::explain::{Explanation, explain_with};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Options {
    /// Case files
    #[arg(required = true, value_name = "FILE.case")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    swap: Swap,
    /// End with 0 where every file shows what it expects, be that a finding, and with 5 where one does not
    #[arg(long)]
    expected: bool,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    run_showing(options, consent, |explanation| &explanation.brief)
}

/// Runs the cases and prints of each what `shown` picks. `explain` differs from `replay` in nothing else.
pub(super) fn run_showing(options: &Options, consent: Consent, shown: impl Fn(&Explanation) -> &str) -> Result<u8, Failure> {
    let loader = Loader::new(&options.swap, consent)?;
    let mut worst = exit_code::MATCH;
    let (mut compared, mut broken, mut unmet) = (0, false, false);
    for path in &options.files {
        // One bad file must not hide what the others show.
        let loaded = match loader.load(path) {
            Ok(loaded) => loaded,
            Err(error) => {
                complain(&error.to_string());
                broken = true;
                continue;
            }
        };
        let expected = &loaded.file.run.expect;
        let explanation = explain_with(&loaded.pair, &loaded.trial, &loader.command(path), Some(expected));
        print(shown(&explanation))?;
        if loader.are_own(&loaded) {
            let met = explanation.meets(expected);
            unmet |= !met;
            print(&format!("expected: {expected} ({})\n", if met { "met" } else { "NOT met" }))?;
        } else if options.expected {
            complain(&format!("{}: --expected: says nothing of other kernels than the file's; leave it out", path.display()));
            broken = true;
        }
        compared += explanation.verdict.compared;
        let kinds: Vec<Kind> = explanation.verdict.findings.iter().map(|finding| finding.kind()).collect();
        if kinds.iter().any(|kind| kind.is_failure()) {
            worst = exit_code::FINDING;
        } else if !kinds.is_empty() && worst == exit_code::MATCH {
            worst = exit_code::UNDECIDED;
        }
    }
    // A folder of kept findings is 1 as it should be: that one of them has changed must show all the same.
    Ok(if broken {
        exit_code::USAGE
    } else if unmet {
        exit_code::UNMET
    } else if options.expected {
        exit_code::MATCH
    } else if worst == exit_code::MATCH && compared == 0 {
        exit_code::NOTHING
    } else {
        worst
    })
}
