//! `lastbit kernels`: the presets and their numerics, or what named kernels say of themselves.

use super::{Failure, kernel, print};
use crate::exit_code;
use crate::external::name::Consent;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::Identity;
use crate::subject::attention::kernel_fields;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::reference::preset::PRESETS;
use clap::Args;
use std::fmt::Write;

#[derive(Args)]
pub(super) struct Options {
    /// Kernels to ask; without any, the reference kernels are listed
    #[arg(value_name = "K")]
    kernels: Vec<String>,
}

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    let mut text = String::new();
    for words in &options.kernels {
        // Asking who a kernel is must work also when it is another than the one that was pinned: it is how the new one is pinned.
        let implementation = kernel("kernels", words, Consent { accept_changed: true, ..consent })?;
        let _ = writeln!(text, "{}# {words}", if text.is_empty() { "" } else { "\n" });
        said(&mut text, &implementation);
    }
    if options.kernels.is_empty() {
        presets(&mut text);
    }
    print(&text)?;
    Ok(exit_code::MATCH)
}

/// The identity as a kernel file pins it, then everything else.
fn said(text: &mut String, implementation: &Implementation) {
    let Identity { name, version, device, digest, details } = implementation.kernel.identity();
    text.push_str("[identity]\n");
    for (field, value) in [("name", Some(name)), ("version", Some(version)), ("digest", digest)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{field} = {}", toml::Value::String(value));
        }
    }
    text.push('\n');
    let details = details.into_iter().map(|(name, value)| (format!("details.{name}"), value));
    let mut fields = vec![("device".to_owned(), device)];
    fields.extend(details);
    match &implementation.reference {
        Some(reference) => fields.extend(reference.fields()),
        None => fields.extend(kernel_fields::declared(&*implementation.kernel)),
    }
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in fields {
        let value = value.replace(char::is_control, " ");
        let _ = writeln!(text, "{:<width$}  {value}", name.replace(char::is_control, " "));
    }
}

fn presets(text: &mut String) {
    text.push_str("Reference kernels: ref:<preset>[,field=value...]\n\n");
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
    text.push_str(
        "\nKernels from outside: process:COMMAND, lib:PATH, or a kernel file PATH.toml; `lastbit kernels K` prints what one says of itself.\n",
    );
}
