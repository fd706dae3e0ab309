//! `lastbit report`: a certificate as a page, a summary, and files for other programs.

use super::certify::written::written_files;
use super::out_folder::write_whole;
use super::places::{Named, STDOUT, folder_of, must_be_apart};
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

/// A report: its option, its file if it is asked for, and its text.
type Asked<'a> = (&'static str, &'a Option<PathBuf>, &'a dyn Fn() -> String);

pub(super) fn run(options: &Options) -> Result<u8, Failure> {
    let file = options.certificate.display().to_string();
    let text = fs::read_to_string(&options.certificate)
        .map_err(|error| Failure::Usage(format!("{file}: cannot be read: {error}; name a file that `lastbit certify` wrote")))?;
    let statement = Statement::read(&file, &text)?;
    let asked: [Asked<'_>; 5] = [
        ("--html", &options.html, &|| report::html(&statement, &file)),
        ("--markdown", &options.markdown, &|| report::markdown(&statement, &file)),
        ("--junit", &options.junit, &|| report::junit(&statement, &file)),
        ("--sarif", &options.sarif, &|| report::sarif(&statement, &from_here(&options.certificate))),
        ("--trace", &options.trace, &|| report::trace(&statement, &file)),
    ];
    let stdout = Path::new(STDOUT);
    if asked.iter().filter(|(_, path, _)| path.as_deref() == Some(stdout)).count() > 1 {
        return Err(Failure::Usage("only one report can go to stdout; give the others a file".into()));
    }
    let outputs = asked.iter().filter_map(|(option, path, _)| Some((option, path.as_ref().filter(|it| *it != stdout)?)));
    let outputs: Vec<Named> = outputs.map(|(option, path)| Named::new(*option, path)).collect();
    must_be_apart(&with_what_belongs_to_it(&options.certificate, &statement), &outputs)?;
    for (_, path, text) in asked {
        match path.as_deref() {
            None => {}
            Some(path) if path == stdout => print(&text())?,
            Some(path) => write_whole(path, &text())?,
        }
    }
    Ok(exit_code::MATCH)
}

/// A certificate's files, which no report may replace.
fn with_what_belongs_to_it(certificate: &Path, statement: &Statement) -> Vec<Named> {
    let beside = written_files(certificate).into_iter().map(|it| it.path);
    let cases = statement.predicate.lastbit.counterexamples.iter().map(|it| it.beside(certificate).file.into());
    beside.chain(cases).map(|path| Named::new("the certificate", path)).collect()
}

/// A path relative to the working directory; absolute where it does not lie below.
fn from_here(path: &Path) -> String {
    let here = std::env::current_dir().and_then(fs::canonicalize);
    // The folder alone: what belongs to a certificate stands beside its name, wherever that leads.
    let whole = fs::canonicalize(folder_of(path)).ok().zip(path.file_name()).map(|(folder, name)| folder.join(name));
    let Some(whole) = whole else { return path.display().to_string() };
    here.ok().and_then(|here| whole.strip_prefix(here).ok().map(Path::to_owned)).unwrap_or(whole).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_the_working_directory() {
        // Tests run in the folder of the package.
        assert_eq!(from_here(Path::new("tests/certify/../report/failing.json")), "tests/report/failing.json");
        let whole = fs::canonicalize("tests/report/failing.json").unwrap();
        assert_eq!(from_here(&whole), "tests/report/failing.json");
        let outside = tempfile::tempdir().unwrap();
        let outside = fs::canonicalize(outside.path()).unwrap().join("cert.json");
        assert_eq!(from_here(&outside), outside.display().to_string());
    }
}
