//! `lastbit report`: a certificate as a page, a summary, and files for other programs.

use super::out_folder::write_whole;
use super::{Failure, print};
use crate::certify::statement::Statement;
use crate::{exit_code, report};
use clap::{ArgGroup, Args};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(group = ArgGroup::new("format").required(true).multiple(true))]
pub(super) struct Options {
    /// A certificate
    #[arg(value_name = "CERT.json")]
    certificate: PathBuf,
    /// A page for people: one file, without scripts, that opens anywhere; - is stdout, here and below
    #[arg(long, value_name = "FILE", group = "format")]
    html: Option<PathBuf>,
    /// A summary for the page of a CI job, e.g. "$GITHUB_STEP_SUMMARY"
    #[arg(long, value_name = "FILE", group = "format")]
    markdown: Option<PathBuf>,
    /// JUnit XML: claims are test cases; UNVERIFIABLE is an error, a waived failure is skipped
    #[arg(long, value_name = "FILE", group = "format")]
    junit: Option<PathBuf>,
    /// SARIF 2.1.0: counterexamples are errors at their case files
    #[arg(long, value_name = "FILE", group = "format")]
    sarif: Option<PathBuf>,
    /// Trace JSONL of flashinfer-bench
    #[arg(long, value_name = "FILE", group = "format")]
    trace: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<u8, Failure> {
    let file = options.certificate.display().to_string();
    let text = fs::read_to_string(&options.certificate)
        .map_err(|error| Failure::Usage(format!("{file}: cannot be read: {error}; name a file that `lastbit certify` wrote")))?;
    let statement = Statement::read(&file, &text)?;
    let name = options.certificate.file_name().map_or(file.clone(), |name| name.to_string_lossy().into_owned());
    let asked: [(&Option<PathBuf>, &dyn Fn() -> String); 5] = [
        (&options.html, &|| report::html(&statement, &name)),
        (&options.markdown, &|| report::markdown(&statement, &file)),
        (&options.junit, &|| report::junit(&statement)),
        (&options.sarif, &|| report::sarif(&statement, &file)),
        (&options.trace, &|| report::trace(&statement)),
    ];
    let stdout = Path::new("-");
    if asked.iter().filter(|(path, _)| path.as_deref() == Some(stdout)).count() > 1 {
        return Err(Failure::Usage("only one report can go to stdout; give the others a file".into()));
    }
    for (path, text) in asked {
        match path.as_deref() {
            None => {}
            Some(path) if path == stdout => print(&text())?,
            Some(path) => write_whole(path, &text())?,
        }
    }
    Ok(exit_code::MATCH)
}
