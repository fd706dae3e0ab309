//! `lastbit replay`: kept cases, run again, with the full verdict.

use super::{Failure, complain, kernel, print};
use crate::exit_code;
use crate::finding::Kind;
use crate::subject::attention::captured::Captured;
use crate::subject::attention::explain::explain;
use crate::subject::attention::file;
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args)]
pub(super) struct Options {
    /// Case files
    #[arg(required = true, value_name = "FILE.case")]
    files: Vec<PathBuf>,
    /// Another training kernel than the file's
    #[arg(long, value_name = "K")]
    train: Option<String>,
    /// Another inference kernel than the file's
    #[arg(long, value_name = "K")]
    infer: Option<String>,
    /// Captured tensors that a case names by digest
    #[arg(long, value_name = "FILE.safetensors")]
    data: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> Result<u8, Failure> {
    let captured = options.data.as_deref().map(Captured::load).transpose()?.map(Arc::new);
    let mut worst = exit_code::MATCH;
    let (mut compared, mut broken) = (0, None);
    for path in &options.files {
        // One bad file must not hide what the others show.
        let mut loaded = match file::load(path, captured.clone()) {
            Ok(loaded) => loaded,
            Err(error) => {
                complain(&error.to_string());
                broken = Some(error);
                continue;
            }
        };
        if let Some(name) = &options.train {
            loaded.pair.train = kernel("--train", name)?;
        }
        if let Some(name) = &options.infer {
            loaded.pair.infer = kernel("--infer", name)?;
        }
        let swapped = options.train.is_some() || options.infer.is_some();
        let expected = &loaded.file.run.expect;
        let explanation = explain(&loaded.pair, &loaded.trial, &path.display().to_string(), Some(expected));
        print(&explanation.text)?;
        if !swapped {
            let met = explanation.meets(expected);
            print(&format!("expected: {expected} ({})\n", if met { "met" } else { "NOT met" }))?;
        }
        compared += explanation.verdict.compared;
        let kinds: Vec<Kind> = explanation.verdict.findings.iter().map(|finding| finding.kind()).collect();
        if kinds.iter().any(|kind| kind.is_failure()) {
            worst = exit_code::FINDING;
        } else if !kinds.is_empty() && worst == exit_code::MATCH {
            worst = exit_code::UNDECIDED;
        }
    }
    if broken.is_some() {
        return Ok(exit_code::USAGE);
    }
    Ok(if worst == exit_code::MATCH && compared == 0 { exit_code::NOTHING } else { worst })
}
