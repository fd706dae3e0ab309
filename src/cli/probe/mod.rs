//! `lastbit probe`: one kernel asked everything; the page to read first.

mod json;
mod markdown;
mod terminal;
mod words;

use super::out_folder::write_whole;
use super::places::{Named, STDOUT, must_be_apart, must_take_file, must_take_folder, of_kernel};
use super::{Consent, Failure, kernel, note, print};
use crate::exit_code;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::probe::page::{Minimal, Page, Seen};
use crate::subject::attention::probe::{self, Options as Extent};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(super) struct Options {
    /// Kernels
    #[arg(value_name = "K", required = true)]
    kernels: Vec<String>,
    /// Cases for each relation and format [default: 180; of a kernel from outside 24, of one that compiles each shape 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cases: Option<u64>,
    /// Seed of all data
    #[arg(long, value_name = "S", default_value_t = SEED)]
    seed: u64,
    /// How stdout looks
    #[arg(long, value_enum, default_value = "terminal")]
    format: Format,
    /// A folder for the smallest cases
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write one page of results over all kernels here, in Markdown
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,
}

const SEED: u64 = 1;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Terminal,
    Markdown,
    /// One line for each kernel
    Json,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let open = |name: &String| kernel("probe", name, consent);
    // All of them first, and the folder: what is wrong with them is found before an hour's work.
    let kernels = options.kernels.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    must_have_places(options)?;
    let mut pages: Vec<Page> = Vec::new();
    for (name, kernel) in options.kernels.iter().zip(&kernels) {
        let mut page = probed(options, name, kernel);
        if kernels.len() > 1 {
            rename(&mut page, pages.len() + 1);
        }
        print(&match options.format {
            Format::Terminal => terminal::page(&page),
            Format::Markdown => markdown::page(&page, 1),
            Format::Json => format!("{}\n", json::page(&page)),
        })?;
        if let Some(folder) = &options.out {
            save(folder, &page)?;
        }
        pages.push(page);
    }
    if let Some(file) = &options.page {
        write_whole(file, &markdown::results(&pages, &command(options)))?;
    }
    Ok(if pages.iter().any(|page| !page.wrong.is_empty()) {
        exit_code::FINDING
    } else if pages.iter().all(Page::answered) {
        exit_code::MATCH
    } else {
        exit_code::NOTHING
    })
}

/// Whether results can be written where they should be.
///
/// # Errors
/// What is in the way.
fn must_have_places(options: &Options) -> Result<(), Failure> {
    if let Some(file) = &options.page {
        if file == Path::new(STDOUT) {
            return Err(Failure::Usage(format!("--page {STDOUT}: stdout has the page of each kernel; name a file")));
        }
        must_take_file("--page", file)?;
        let kernels: Vec<Named> = options.kernels.iter().flat_map(|words| of_kernel("probe", words)).collect();
        must_be_apart(&kernels, &[Named::new("--page", file)])?;
    }
    options.out.as_deref().map_or(Ok(()), |folder| must_take_folder("--out", folder))
}

fn probed(options: &Options, name: &str, kernel: &Implementation) -> Page {
    let extent = Extent { cases: options.cases, seed: options.seed };
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{elapsed} {msg}").expect("a valid template"));
        bar
    });
    if bar.is_none() {
        note(&format!("probing {name}"));
    }
    let page = probe::probe(name, kernel, extent, &mut |what| {
        if let Some(bar) = &bar {
            bar.set_message(format!("{name}: {what}"));
            bar.tick();
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    page
}

/// Every smallest case of a page.
fn minimals(page: &mut Page) -> impl Iterator<Item = &mut Minimal> {
    let wrong = page.wrong.iter_mut().filter_map(|it| it.minimal.as_mut());
    let relations = page.formats.iter_mut().flat_map(|it| &mut it.relations).filter_map(|it| match &mut it.seen {
        Seen::Tried(tried) => tried.breaks.as_mut()?.minimal.as_mut(),
        Seen::NotTried(_) => None,
    });
    wrong.chain(relations)
}

/// Tells the files of several kernels apart.
fn rename(page: &mut Page, number: usize) {
    minimals(page).for_each(|it| it.file = format!("{number:02}-{}", it.file));
}

fn save(folder: &Path, page: &Page) -> Result<(), Failure> {
    let mut page = page.clone();
    for it in minimals(&mut page) {
        write_whole(&folder.join(&it.file), &it.text)?;
    }
    Ok(())
}

/// The command that makes the page of results again.
fn command(options: &Options) -> String {
    let mut command = String::from("lastbit probe");
    for name in &options.kernels {
        let _ = write!(command, " {}", shell_words::quote(name));
    }
    if let Some(cases) = options.cases {
        let _ = write!(command, " --cases {cases}");
    }
    if options.seed != SEED {
        let _ = write!(command, " --seed {}", options.seed);
    }
    if let Some(folder) = &options.out {
        let _ = write!(command, " --out {}", shell_words::quote(&folder.display().to_string()));
    }
    if let Some(file) = &options.page {
        let _ = write!(command, " --page {}", shell_words::quote(&file.display().to_string()));
    }
    command
}
