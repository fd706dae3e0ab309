//! One snapshot for each regression: the full verdict in words. A change of any bit shows here.

use lastbit::subject::attention::explain::explain;
use lastbit::subject::attention::file;
use std::path::Path;

#[test]
fn regressions() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora/regressions/attention");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("corpora/regressions/attention") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".case").map(str::to_owned));
    }
    names.sort();
    assert!(!names.is_empty(), "no regression to look at");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for name in &names {
            let path = folder.join(format!("{name}.case"));
            let loaded = file::load(&path, None).unwrap_or_else(|error| panic!("{error}"));
            let kept = format!("corpora/regressions/attention/{name}.case");
            let explanation = explain(&loaded.pair, &loaded.trial, &kept, Some(&loaded.file.run.expect));
            insta::assert_snapshot!(name.as_str(), format!("kept for: {}\n{}", loaded.file.comment, explanation.text));
        }
    });
    // A snapshot without its regression would never be looked at again.
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots")).expect("snapshots") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if let Some(stem) = name.strip_suffix(".snap") {
            assert!(names.iter().any(|it| it == stem), "snapshots/{name} belongs to no regression");
        }
    }
}
