//! `lastbit probe`: one kernel asked everything; the page to read first.

mod terminal;
mod words;

use super::{Consent, Failure, kernel, print};
use crate::exit_code;
use crate::subject::attention::probe::page::Page;
use crate::subject::attention::probe::{self, Options as Extent};
use clap::Args;

#[derive(Args)]
pub(super) struct Options {
    /// Kernels
    #[arg(value_name = "K", required = true)]
    kernels: Vec<String>,
    /// Cases for each relation and format
    #[arg(long, value_name = "N", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Seed of all data
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let kernels = options.kernels.iter().map(|name| kernel("probe", name, consent)).collect::<Result<Vec<_>, _>>()?;
    let extent = Extent { cases: options.cases, seed: options.seed };
    let mut pages: Vec<Page> = Vec::new();
    for (name, kernel) in options.kernels.iter().zip(&kernels) {
        pages.push(probe::probe(name, kernel, extent, &mut |_| {}));
        print(&terminal::page(&pages[pages.len() - 1]))?;
    }
    Ok(if pages.iter().any(|page| !page.wrong.is_empty()) { exit_code::FINDING } else { exit_code::MATCH })
}
