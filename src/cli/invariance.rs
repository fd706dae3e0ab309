//! `lastbit invariance`: which changes of its surroundings leave each kernel's bits alone, as a table.

use super::{Failure, complain, job_count, kernel, note, print};
use crate::exit_code;
use crate::external::name::Consent;
use crate::lab::{Campaign, Length};
use crate::subject::attention::draw::Profile;
use crate::subject::attention::file;
use crate::subject::attention::invariance::{Broken, markdown, row};
use crate::subject::attention::reference::preset::PRESETS;
use crate::subject::attention::text::print as print_case;
use clap::Args;
use std::fmt::Write;

#[derive(Args)]
pub(super) struct Options {
    /// A kernel; may be repeated [default: every preset]
    #[arg(long, value_name = "K")]
    kernel: Vec<String>,
    /// Cases for each kernel, each under every change
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    cases: u64,
    /// Seed of the campaigns
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Threads [default: one for each core; more with a kernel in another process, which is waited for]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Size of the cases: quick, mixed or long
    #[arg(long, value_name = "PROFILE", default_value = "mixed")]
    profile: Profile,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let names: Vec<String> = match options.kernel.is_empty() {
        true => PRESETS.iter().map(|preset| format!("ref:{}", preset.name)).collect(),
        false => options.kernel.clone(),
    };
    let kernels = names.iter().map(|name| kernel("--kernel", name, consent)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::new();
    for (name, kernel) in names.iter().zip(&kernels) {
        note(&format!("{name}: {} cases", options.cases));
        let jobs = job_count(options.jobs, &[kernel]);
        let campaign = Campaign { seed: options.seed, first: 0, length: Length::Cases(options.cases), jobs };
        match row(kernel, campaign, options.profile) {
            Ok(row) => rows.push(row),
            Err(it) => {
                // A kernel from outside may fail, and that is a finding.
                let own = matches!(it.broken, Broken::Promise(_)) || kernel.source.is_none();
                let whose = if own { "internal fault: " } else { "" };
                complain(&format!("{whose}{name}, case {} of seed {}: {}", it.index, options.seed, it.broken));
                let comment = format!("{}: case {} of seed {}", it.broken, it.index, options.seed);
                print(&print_case(&file::file(comment, &it.pair, &it.trial, None)))?;
                return Ok(if own { exit_code::INTERNAL } else { exit_code::FINDING });
            }
        }
    }
    let outside = kernels.iter().any(|kernel| kernel.reference.is_none());
    print(&page(options, &markdown(&rows), outside))?;
    Ok(exit_code::MATCH)
}

fn page(options: &Options, table: &str, outside: bool) -> String {
    let mut command = String::from("lastbit invariance");
    for kernel in &options.kernel {
        let _ = write!(command, " --kernel {}", shell_words::quote(kernel));
    }
    let _ = write!(command, " --cases {} --seed {} --profile {}", options.cases, options.seed, options.profile);
    let no_recipes = if outside { " A kernel from outside has\nno recipes: its numbers are bits alone." } else { "" };
    format!(
        "# Invariance\n\n\
         Each kernel against itself, over {} cases, each under every change. *kept*: no bit of a row differed, and no recipe: equal recipes\n\
         promise equal bits. A number: the fewest positions of a sequence, as far as shrinking found, at which the change shows in bits; *recipes*: where the promise ends, if that is earlier.\n\
         *train = infer* is one kernel on both paths. A promise that was broken would have ended the command.{no_recipes}\n\n\
         Made by `{command}`.\n\n{table}",
        options.cases
    )
}
