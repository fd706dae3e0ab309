//! The `#[test]` functions that a macro stamps, and the environment they read.

use super::{Suite, Test};
use crate::subject::attention::drive::in_kernel;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Stamps a `#[test]` for each [`Test`](crate::suite::Test) of a [`Suite`](crate::suite::Suite).
///
/// ```ignore
/// lastbit::attention_suite!(Suite::new(kernel()));
/// // these tests only, for a kernel that does not promise the rest:
/// lastbit::attention_suite!(Suite::new(kernel()), tests: [accuracy, repeat, poison, refused_or_right]);
/// // and `kept`, which replays every case file of a folder; each must now be right:
/// lastbit::attention_suite!(Suite::new(kernel()), kept: "tests/kept");
/// ```
///
/// A module holds one suite, since the tests' names are fixed: put several into modules of their own.
#[macro_export]
macro_rules! attention_suite {
    ($suite:expr, tests: [$($test:ident),+ $(,)?] $(, kept: $kept:expr)? $(,)?) => {
        $(
            #[test]
            fn $test() {
                $crate::suite::stamped($suite, stringify!($test), module_path!(), option_env!("CARGO_TARGET_TMPDIR"));
            }
        )+
        $(
            #[test]
            fn kept() {
                $crate::suite::kept($suite, ::std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join($kept));
            }
        )?
    };
    ($suite:expr $(, kept: $kept:expr)? $(,)?) => {
        $crate::attention_suite!(
            $suite,
            tests: [
                repeat,
                recompute,
                company,
                position,
                padding,
                poison,
                pages,
                chunk,
                prefix,
                prefix_stability,
                ranks,
                train_against_infer,
                accuracy,
                refused_or_right,
                order_sensitive,
            ]
            $(, kept: $kept)?
        );
    };
}

/// The body of a stamped test.
#[doc(hidden)]
#[track_caller]
pub fn stamped(mut suite: Suite, test: &str, module: &str, folder: Option<&str>) {
    let test: Test = test.parse().unwrap_or_else(|reason| panic!("attention_suite!: {reason}"));
    suite.folder = suite.folder.or(folder.map(PathBuf::from));
    // The first part names the crate, which no filter of `cargo test` sees.
    suite.module = module.split_once("::").map_or(String::new(), |(_, inside)| format!("{inside}::"));
    if let Some(path) = std::env::var_os("LASTBIT_CASE") {
        return replay(&suite, &PathBuf::from(path));
    }
    if let Some(cases) = number("LASTBIT_COUNT") {
        suite = suite.cases(cases);
    }
    if let Some(seed) = number("LASTBIT_SEED") {
        suite = suite.seed(seed);
    }
    match suite.run(test) {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// What a variable of the environment is set to.
#[track_caller]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var_os(name)?;
    match text.to_str().and_then(|text| text.parse().ok()) {
        Some(number) => Some(number),
        None => panic!("{name}={}: is no whole number below 2^64", text.display()),
    }
}

/// Replays every case file of a folder, by name.
#[doc(hidden)]
#[track_caller]
pub fn kept(suite: Suite, folder: PathBuf) {
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    assert!(!files.is_empty(), "{}: holds no .case file", folder.display());
    let failures: Vec<String> = files.iter().filter_map(|path| suite.replay(path).err()).map(|it| it.to_string()).collect();
    assert!(failures.is_empty(), "{} of {} kept cases fail\n\n{}", failures.len(), files.len(), failures.join("\n\n"));
    println!("kept: {} cases replayed", files.len());
}

#[track_caller]
fn replay(suite: &Suite, path: &Path) {
    match suite.replay(path) {
        Ok(text) => println!("{text}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// A panic inside a kernel is caught and becomes a finding; shrinking it would print its message thousands of times.
pub(super) fn silence_kernel_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !in_kernel() {
                report(info);
            }
        }));
    });
}
