//! Every case of `corpora/`, each as its own test: seeds match, regressions still show what they were kept for.

use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::{file, text};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora");
    let mut tests = Vec::new();
    for folder in ["seeds/attention", "regressions/attention"] {
        let files = case_files(&root.join(folder));
        assert!(!files.is_empty(), "corpora/{folder} holds no case");
        tests.extend(files.into_iter().map(|path| {
            let name = format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            Trial::test(name, move || replay(&path))
        }));
    }
    libtest_mimic::run(&arguments, tests).exit();
}

fn case_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    files
}

fn replay(path: &Path) -> Result<(), Failed> {
    let loaded = file::load(path, None).map_err(|error| error.to_string())?;
    let content = std::fs::read_to_string(path)?;
    if text::print(&loaded.file) != content {
        return Err("the file is not in canonical form; `lastbit shrink` and `fuzz` write it so".into());
    }
    if loaded.file.comment.is_empty() {
        return Err("the first line must be a comment that says why the case is kept".into());
    }
    let explanation = explain(&loaded.pair, &loaded.trial, "FILE.case", Some(&loaded.file.run.expect));
    let expected = &loaded.file.run.expect;
    if !explanation.meets(expected) {
        return Err(format!("expected `{expected}`, got:\n{}", explanation.text).into());
    }
    Ok(())
}
