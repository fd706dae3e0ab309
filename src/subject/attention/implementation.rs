//! A kernel under test, and its reference form where it has one.

use super::kernel::{AttentionKernel, Identity};
use super::reference::Reference;
use super::text::{External, KernelFields, KernelText};
use crate::number::Dtype;
use std::sync::Arc;

/// A kernel under test.
#[derive(Clone)]
pub struct Implementation {
    /// What computes.
    pub kernel: Arc<dyn AttentionKernel>,
    /// The same as a reference kernel, where it is one: recipes, traces and witnesses come from it.
    pub reference: Option<Arc<Reference>>,
    /// The words under which a command line named it; `None` for a reference kernel or a Rust type.
    pub source: Option<String>,
}

impl Implementation {
    /// A reference kernel.
    pub fn reference(reference: Reference) -> Self {
        let reference = Arc::new(reference);
        Implementation { kernel: reference.clone(), reference: Some(reference), source: None }
    }

    /// Any other kernel.
    pub fn kernel(kernel: Arc<dyn AttentionKernel>) -> Self {
        Implementation { kernel, reference: None, source: None }
    }

    /// The reference kernel with the arithmetic that this kernel declares for a storage format, to ask whether a case shows a changed order
    /// at all.
    pub fn stand_in(&self, storage: Dtype) -> Arc<Reference> {
        self.reference.clone().unwrap_or_else(|| {
            let mut reference = Reference::default();
            reference.numerics = self.kernel.numerics_for(storage).unwrap_or(reference.numerics);
            Arc::new(reference)
        })
    }

    /// How a case file names it.
    pub fn text(&self) -> KernelText {
        if let Some(reference) = &self.reference {
            return KernelText::Reference(KernelFields(reference.fields()));
        }
        let Identity { name, version, device, digest, details: _ } = self.kernel.identity();
        // Lines of the file: what a foreign kernel calls itself must not break it.
        let line = |text: String| text.replace(char::is_control, " ");
        KernelText::External(External {
            name: line(name),
            version: line(version),
            device: line(device),
            digest: digest.map(line),
            // Changed words would be another command.
            source: self.source.clone().filter(|words| !words.chars().any(char::is_control)),
        })
    }
}
