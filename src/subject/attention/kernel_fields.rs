//! What a kernel says of itself, as names and values: printed by `lastbit kernels K`, compared when a run goes on,
//! digested in certificates.

use crate::number::Dtype;
use crate::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::{AttentionKernel, Identity};
use crate::subject::attention::reference::Reference;

/// Storage formats for which arithmetic is declared.
const STORAGE: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

/// Everything that results depend on: a reference kernel in full, what another kernel declares.
pub(crate) fn fields(implementation: &Implementation) -> Vec<(String, String)> {
    if let Some(reference) = &implementation.reference {
        return reference.fields();
    }
    let kernel = &*implementation.kernel;
    let mut fields = identity(&kernel.identity());
    fields.extend(declared(kernel));
    fields
}

fn identity(identity: &Identity) -> Vec<(String, String)> {
    let Identity { name, version, device, digest, details } = identity;
    let own = [
        ("name", name.clone()),
        ("version", version.clone()),
        ("device", device.clone()),
        ("digest", digest.clone().unwrap_or_else(|| "none".into())),
    ];
    let details = details.iter().map(|(name, value)| (format!("details.{name}"), value.clone()));
    own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(details).collect()
}

/// Conventions, arithmetic and capabilities.
pub(crate) fn declared(kernel: &dyn AttentionKernel) -> Vec<(String, String)> {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let mut fields = vec![("lse".to_owned(), yes(kernel.has_lse()))];
    let conventions = kernel.conventions();
    let convention = |name: &&str| (format!("conventions.{name}"), conventions.get(name).unwrap_or_default());
    fields.extend(Conventions::FIELDS.iter().map(convention));
    fields.extend(STORAGE.map(|storage| {
        // In the words of a reference kernel, which are exact.
        let words = kernel.numerics_for(storage).map_or("none".into(), |numerics| Reference::new(numerics).to_string());
        (format!("numerics.{storage}"), words)
    }));
    // A capability that is added must be written here, or this does not compile.
    let Capabilities {
        forms,
        features,
        formats,
        head_dims,
        page_sizes,
        max_rows,
        no_empty_rows,
        no_empty_sequences,
        no_ragged,
        knobs,
        compiles,
        guarded,
    } = kernel.capabilities();
    let capabilities = [
        ("forms", list(forms, |form: &Form| form.name().into())),
        ("features", list(features, |feature| feature.name().into())),
        ("formats", list(formats, Format::to_string)),
        ("head_dims", head_dims.map_or(ANY.into(), |dims: HeadDims| dims.to_string())),
        ("page_sizes", list(page_sizes, u32::to_string)),
        ("max_rows", max_rows.map_or(ANY.into(), |rows| rows.to_string())),
        ("empty_rows", yes(!no_empty_rows)),
        ("empty_sequences", yes(!no_empty_sequences)),
        ("ragged", yes(!no_ragged)),
        ("context_parallel", yes(kernel.context_parallel())),
        ("compiles", yes(compiles)),
        ("guarded", yes(guarded)),
    ];
    fields.extend(capabilities.map(|(name, value)| (format!("capabilities.{name}"), value)));
    fields.extend(knobs.into_iter().map(|knob| (format!("knobs.{}", knob.name), knob.values.join(", "))));
    fields
}

/// No list: whatever a case asks for.
const ANY: &str = "any";

fn list<T>(values: Option<Vec<T>>, word: impl Fn(&T) -> String) -> String {
    values.map_or(ANY.into(), |values| values.iter().map(word).collect::<Vec<_>>().join(", "))
}
