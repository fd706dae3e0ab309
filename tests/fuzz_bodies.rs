//! The fuzz targets' bodies on stable: the committed seeds, empty input, and hostile bytes.

use lastbit::fuzz;
use lastbit::source::{Source, Stream};

#[test]
fn seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora/seeds/attention");
    for entry in std::fs::read_dir(folder).expect("seeds") {
        let content = std::fs::read(entry.expect("an entry").path()).expect("a seed");
        fuzz::attention(&content);
        fuzz::case_text(&content);
        for cut in [1, 7, content.len() / 2] {
            fuzz::case_text(&content[..content.len() - cut]);
        }
    }
}

#[test]
fn bytes() {
    fuzz::attention(&[]);
    for stream in 0..300 {
        let mut source = Stream::new(1, stream);
        let length = source.below(400) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| source.below(256) as u8).collect();
        fuzz::attention(&bytes);
        fuzz::case_text(&bytes);
    }
}
