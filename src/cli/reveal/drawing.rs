//! Trees as SVG files.

use super::super::out_folder::write_whole;
use super::Failure;
use crate::subject::attention::reveal::Orders;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Writes each different tree once, named after the first plan that has it.
pub(super) fn write(path: &Path, all: &[Orders]) -> Result<(), Failure> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut seen: Vec<(usize, &Tree)> = Vec::new();
    for (n, orders) in all.iter().enumerate() {
        let side = match all.len() {
            1 => "",
            _ if n == 0 => "train-",
            _ => "infer-",
        };
        for it in &orders.asked {
            let Ok(order) = &it.answer else { continue };
            if seen.contains(&(n, &order.tree)) {
                continue;
            }
            seen.push((n, &order.tree));
            let product = it.product.name().to_lowercase();
            let title = format!("{}: {}, {}, {} terms", orders.kernel, it.product.name(), it.plan, order.terms().len());
            files.insert(format!("{side}{product}-{}-{}.svg", it.plan, it.kv), order.tree.svg(&title));
        }
    }
    if path.extension().is_some_and(|it| it == "svg") {
        return match files.into_values().collect::<Vec<_>>().as_slice() {
            [one] => write_whole(path, one),
            many => Err(Failure::Usage(format!("--svg {}: there are {} trees; name a folder", path.display(), many.len()))),
        };
    }
    std::fs::create_dir_all(path).map_err(|error| Failure::Output(format!("{}: {error}", path.display())))?;
    let write = |(name, text): (String, String)| write_whole(&PathBuf::from(path).join(name), &text);
    files.into_iter().try_for_each(write)
}
