//! `lastbit shrink`: makes a failing case small.

use super::kept_case::{Loader, Swap};
use super::out_folder::write_whole;
use super::places::{Named, STDOUT, must_be_apart};
use super::{Failure, fresh, pins, print};
use crate::exit_code;
use crate::external::name::Consent;
use crate::subject::Subject;
use crate::subject::attention::explain::explain;
use crate::subject::attention::text::print as print_case;
use crate::subject::attention::{Attention, file};
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Options {
    /// A case file that fails
    #[arg(value_name = "FILE.case")]
    path: PathBuf,
    #[command(flatten)]
    swap: Swap,
    /// Features that the small case keeps, as in `fuzz --pin`
    #[arg(long, value_name = "NAME=VALUE,...")]
    pin: Vec<String>,
    /// Where the small case goes; default: FILE.small.case beside FILE.case
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let output = options.output.clone().unwrap_or_else(|| options.path.with_extension("small.case"));
    if output == Path::new(STDOUT) {
        return Err(Failure::Usage(format!("--output {STDOUT}: stdout has what is said of the small case; name a file")));
    }
    let mut read = options.swap.files();
    read.push(Named::new("FILE.case", &options.path));
    must_be_apart(&read, &[Named::new("--output", &output)])?;
    let loaded = Loader::new(&options.swap, consent)?.load(&options.path)?;
    let pins = pins(&options.pin)?;
    if !pins.hold(&loaded.trial.case.problem) {
        let path = options.path.display();
        return Err(Failure::Usage(format!("--pin: {path} does not keep to it; `lastbit show {path}` prints what it has")));
    }
    let attention = Attention { pins, ..Attention::of(loaded.pair) };
    let mut scratch = attention.scratch();
    let verdict = attention.check(&loaded.trial, &mut scratch);
    // The finding the file is kept for, or the headline.
    let expected = verdict.findings.iter().find(|finding| finding.signature() == loaded.file.run.expect);
    let Some(finding) = expected.or(verdict.failure()) else {
        print(&format!("{}: nothing to shrink: the case has no finding with these kernels\n", options.path.display()))?;
        return Ok(exit_code::NOTHING);
    };
    let signature = finding.signature();
    let shrunk = crate::shrink::shrink(&attention, &loaded.trial, &signature, crate::shrink::BUDGET, &mut scratch)
        .expect("the finding was just seen");
    let comment = if loaded.file.comment.is_empty() { signature.clone() } else { loaded.file.comment.clone() };
    let small = file::file(comment, &attention.pair, &shrunk.trial, Some(&shrunk.finding));
    write_whole(&output, &print_case(&small))?;
    let whole = file::replayed(&attention.pair, &shrunk.trial, &shrunk.finding);
    print(&explain(&attention.pair, &whole, &output.display().to_string(), Some(&signature)).text)?;
    if let Some(note) = fresh::run(&attention.pair, &shrunk.trial, &signature).and_then(|fresh| fresh.note()) {
        print(&format!("NOTE: {note}\n"))?;
    }
    let stopped = if shrunk.exhausted { " (budget reached: not a fixed point)" } else { "" };
    print(&format!("shrunk in {} evaluations{stopped}: {}\n", shrunk.evaluations, output.display()))?;
    Ok(exit_code::FINDING)
}
