//! `lastbit show`: a case in words.

use super::{Failure, print};
use crate::exit_code;
use crate::subject::attention::{drive, file, show as draw, text};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Options {
    /// A case file
    #[arg(value_name = "FILE.case")]
    path: PathBuf,
}

pub(super) fn run(options: &Options) -> Result<u8, Failure> {
    let file = text::load(&options.path)?;
    // What `replay` would refuse is not shown as if it were whole.
    file::check(&options.path.display().to_string(), &file)?;
    let steps = drive::schedule(&file.case.problem, &file.case.infer);
    print(&draw::show(&file.case, &steps))?;
    Ok(exit_code::MATCH)
}
