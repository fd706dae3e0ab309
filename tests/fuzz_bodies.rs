//! The fuzz targets' bodies on stable, over everything that seeds them: kept cases, the committed corpora, and drawn bytes.

use lastbit::fuzz;
use lastbit::source::{Source, Stream};
use lastbit::subject::attention::conventions::Conventions;
use lastbit::subject::attention::numerics::Numerics;
use lastbit::subject::attention::reference::preset::PRESETS;
use std::path::{Path, PathBuf};

/// Every file of a folder of `corpora/`, in order of names.
fn files(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| (path.clone(), std::fs::read(&path).expect("a readable file"))).collect()
}

fn replay(folder: &str, body: fn(&[u8])) {
    for (path, content) in files(folder) {
        // Shown by the test harness where the body panics.
        println!("{}", path.display());
        body(&content);
    }
}

/// Bytes of every length up to 400, from a fixed seed.
fn drawn(count: u64, body: fn(&[u8])) {
    body(&[]);
    for stream in 0..count {
        let mut source = Stream::new(1, stream);
        let length = source.below(400);
        let bytes: Vec<u8> = (0..length).map(|_| source.below(256) as u8).collect();
        println!("stream {stream}");
        body(&bytes);
    }
}

#[test]
fn the_dictionary_names_every_field() {
    let dictionary = include_str!("../fuzz/case.dict");
    let conventions = Conventions::FIELDS.iter().flat_map(|field| [format!("declared.{field}"), format!("actual.{field}")]);
    let presets = PRESETS.iter().map(|preset| format!("ref:{}", preset.name));
    for word in Numerics::FIELDS.iter().map(ToString::to_string).chain(conventions).chain(presets) {
        assert!(dictionary.lines().any(|line| line == format!("\"{word}\"")), "fuzz/case.dict lacks {word}");
    }
}

#[test]
fn pair() {
    replay("fuzz/pair", fuzz::pair);
    replay("seeds/attention", fuzz::pair);
    replay("regressions/attention", fuzz::pair);
    drawn(300, fuzz::pair);
}

#[test]
fn oracle() {
    replay("fuzz/oracle", fuzz::oracle);
    replay("seeds/attention", fuzz::oracle);
    replay("regressions/attention", fuzz::oracle);
    drawn(300, fuzz::oracle);
}

#[test]
fn case_text() {
    replay("fuzz/case_text", fuzz::case_text);
    replay("regressions/attention", fuzz::case_text);
    for (_, content) in files("seeds/attention") {
        fuzz::case_text(&content);
        for cut in [1, 7, content.len() / 2] {
            fuzz::case_text(&content[..content.len() - cut]);
        }
    }
    drawn(300, fuzz::case_text);
    drawn(300, |bytes| fuzz::case_text(&[&[0xff], bytes].concat()));
}
