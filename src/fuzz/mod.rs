//! Bodies of the fuzz targets. They live here so that `cargo test` runs the very same bodies over the committed corpora; a target
//! in `fuzz/` decodes nothing by itself. `fuzz/README.md` has the routine.
//!
//! A body takes bytes and panics where a property fails; that panic is the report. Bytes are choices, simplest first (see
//! [`crate::source::Bytes`]), so a short input is a small case.

mod case_text;
mod oracle;
mod pair;

pub use case_text::case_text;
pub use oracle::oracle;
pub use pair::pair;

use crate::subject::attention::text::{self, CaseFile};
use crate::subject::attention::validate::{layout_elements, validate, work};
use crate::subject::attention::{Case, Data};

/// Most multiplications of one pass of a case ([`work`]): a fuzzer wants many small cases.
pub const WORK_MAX: u64 = 1 << 17;

/// Most elements of one layout of a case ([`layout_elements`]): padding and pages are memory to fill, not work.
pub const ELEMENTS_MAX: u64 = 1 << 16;

/// Whether a case is valid, brings its own data, and is small enough for one execution.
fn affordable(case: &Case) -> bool {
    // A case on captured tensors needs its file.
    let own_data = !matches!(case.data, Data::Captured { .. });
    own_data && validate(case).is_ok() && work(case) <= WORK_MAX && layout_elements(case) <= ELEMENTS_MAX
}

/// Input that is the text of a case file: its first line that is not empty or a comment begins with `format =`.
fn case_file(data: &[u8]) -> Option<CaseFile> {
    let content = std::str::from_utf8(data).ok()?;
    let first = content.lines().find(|line| !line.is_empty() && !line.starts_with('#'))?;
    first.starts_with("format =").then(|| text::parse(content, "input").ok())?
}
