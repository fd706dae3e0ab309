//! `lastbit reveal`: the orders in which a kernel adds, found from outside; or where those of two kernels part.

mod compared;
mod drawing;
mod folded;
mod json;
mod terminal;

use super::places::of_kernel;
use super::{Consent, Failure, kernel, note, print};
use crate::exit_code;
use crate::number::Dtype;
use crate::subject::attention::reveal::{Options as Extent, Orders, Plan, Unknown, orders};
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(super) struct Options {
    /// The kernel
    #[arg(long, value_name = "K", required_unless_present_all = ["train", "infer"], conflicts_with_all = ["train", "infer"])]
    kernel: Option<String>,
    /// With --infer: find where the orders of two kernels part
    #[arg(long, value_name = "K", requires = "infer")]
    train: Option<String>,
    /// The kernel that infers
    #[arg(long, value_name = "K", requires = "train")]
    infer: Option<String>,
    /// Numbers of keys [default: 300, past two blocks of 128 and one of 176]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    kv: Vec<u32>,
    /// Storage of q, k and v: f32, f16 or bf16 [default: the one whose results are widest]
    #[arg(long, value_name = "DTYPE")]
    dtype: Option<Dtype>,
    /// Lanes of q, k and v [default: 16, or what the kernel takes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    head_dim: Option<u32>,
    /// Plans [default: all that the kernel declares]
    #[arg(long, value_name = "PLAN,...", value_delimiter = ',')]
    plan: Vec<Plan>,
    /// Trees in full, not folded
    #[arg(long)]
    full: bool,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
    /// Draw the trees as SVG: into a folder, one file each, or into FILE.svg where there is one tree
    #[arg(long, value_name = "DIR|FILE.svg")]
    svg: Option<PathBuf>,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let named = [("--kernel", &options.kernel), ("--train", &options.train), ("--infer", &options.infer)];
    let named: Vec<(&str, &String)> = named.into_iter().filter_map(|(option, name)| Some((option, name.as_ref()?))).collect();
    if let Some(path) = &options.svg {
        let files = named.iter().flat_map(|(option, words)| of_kernel(option, words)).collect::<Vec<_>>();
        drawing::must_have_place(path, named.len(), &files)?;
    }
    let mut all = Vec::new();
    // Both first: what is wrong with the second is found before the first has been asked.
    let kernels = named.iter().map(|(option, name)| kernel(option, name, consent)).collect::<Result<Vec<_>, _>>()?;
    for ((option, name), kernel) in named.iter().zip(&kernels) {
        let extent =
            Extent { kv: options.kv.clone(), dtype: options.dtype, head_dim: options.head_dim, plans: options.plan.clone() };
        note(&format!("asking {name}"));
        let orders = orders(name, kernel, &extent, &mut |_| {});
        all.push(orders.map_err(|reason| Failure::Usage(format!("{option} {name}: {reason}")))?);
    }
    let pairs = match &all[..] {
        [train, infer] => compared::pairs(train, infer),
        _ => Vec::new(),
    };
    // First: how many trees there are to be drawn is known only now, and what was found must not be lost over it.
    print(&match options.json {
        true => format!("{}\n", json::all(&all, &pairs)),
        false => terminal::all(&all, &pairs, options.full),
    })?;
    if let Some(path) = &options.svg {
        drawing::write(path, &all)?;
    }
    Ok(code(&all, pairs.iter().any(|pair| pair.parting.is_some())))
}

fn code(all: &[Orders], parted: bool) -> u8 {
    let answers = || all.iter().flat_map(|it| &it.asked).map(|it| &it.answer);
    let open = |answer: &Result<_, Unknown>| matches!(answer, Err(Unknown::Refused(_) | Unknown::Division));
    if parted {
        exit_code::FINDING
    } else if answers().any(|it| open(it) || it.as_ref().is_ok_and(|order| !order.open.is_empty())) {
        exit_code::UNDECIDED
    } else if answers().any(Result::is_ok) {
        exit_code::MATCH
    } else {
        exit_code::NOTHING
    }
}
