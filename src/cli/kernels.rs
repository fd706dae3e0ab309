//! `lastbit kernels`: the presets and their numerics.

use super::{Failure, print};
use crate::exit_code;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::reference::preset::PRESETS;
use std::fmt::Write;

pub(super) fn run() -> Result<u8, Failure> {
    let mut text = String::from("Reference kernels: ref:<preset>[,field=value...]\n\n");
    let aligned = Reference::parse("ref:aligned").expect("the default preset").numerics;
    for preset in PRESETS {
        let numerics = Reference::parse(&format!("ref:{}", preset.name)).expect("a listed preset").numerics;
        let _ = writeln!(text, "  {:<16} {}", preset.name, preset.about);
        let changed: Vec<String> = Numerics::FIELDS
            .iter()
            .filter(|field| numerics.get(field) != aligned.get(field))
            .map(|field| format!("{field}={}", numerics.get(field).unwrap_or_default()))
            .collect();
        if !changed.is_empty() {
            let _ = writeln!(text, "  {:<16} aligned, {}", "", changed.join(", "));
        }
    }
    text.push_str("\nNumerics: the value of `aligned`, and what can be set (`name:n` stands for `name(n)`, which a shell wants quoted):\n\n");
    for field in Numerics::FIELDS {
        let (value, values) = (aligned.get(field).unwrap_or_default(), Numerics::values(field).unwrap_or_default());
        let _ = writeln!(text, "  {field:<20} {value:<18} {values}");
    }
    text.push_str("\nConventions, as declared.<name> and actual.<name>; set one of the two and the kernel lies:\n\n");
    for field in Conventions::FIELDS {
        let value = Conventions::default().get(field).unwrap_or_default();
        let _ = writeln!(text, "  {field:<20} {value:<18} {}", Conventions::values(field).unwrap_or_default());
    }
    text.push_str("\nprofile=<preset>: the arithmetic the kernel claims when its accuracy is judged; default: its own.\n");
    print(&text)?;
    Ok(exit_code::MATCH)
}
