//! Trees as SVG files.

use super::super::out_folder::write_whole;
use super::super::places::{Named, STDOUT, must_be_apart, must_take_file, must_take_folder};
use super::Failure;
use crate::subject::attention::reveal::Orders;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Whether a path is of one file, for one tree.
fn is_file(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "svg")
}

/// Whether trees of so many kernels can be drawn there, over none of the kernels' files.
///
/// # Errors
/// What is in the way; two kernels have two trees or more.
pub(super) fn must_have_place(path: &Path, kernels: usize, files: &[Named]) -> Result<(), Failure> {
    let wrong = |reason: &str| Err(Failure::Usage(format!("--svg {}: {reason}", path.display())));
    match is_file(path) {
        _ if path == Path::new(STDOUT) => wrong("stdout has what was found in words; name a folder, or FILE.svg"),
        true if kernels > 1 => wrong("two kernels have a tree each, or more; name a folder"),
        true => must_take_file("--svg", path).and_then(|()| must_be_apart(files, &[Named::new("--svg", path)])),
        false => must_take_folder("--svg", path),
    }
}

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
    if is_file(path) {
        return match files.into_values().collect::<Vec<_>>().as_slice() {
            [one] => write_whole(path, one),
            many => Err(Failure::Usage(format!("--svg {}: there are {} trees; name a folder", path.display(), many.len()))),
        };
    }
    let write = |(name, text): (String, String)| write_whole(&PathBuf::from(path).join(name), &text);
    files.into_iter().try_for_each(write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_drawn_is_known_before_a_kernel_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        let reason = |path: &Path, kernels| must_have_place(path, kernels, &[]).unwrap_err().to_string();
        assert!(reason(&at("x.svg"), 2).contains("two kernels have a tree each"));
        assert!(reason(&at("file"), 2).contains("is a file; name a folder"));
        assert!(reason(Path::new("-"), 1).contains("name a folder, or FILE.svg"));
        assert!(must_have_place(&at("x.svg"), 1, &[]).is_ok() && must_have_place(&at("trees"), 2, &[]).is_ok());
    }
}
