//! A kernel under test, and its reference form where it has one.

use super::kernel::AttentionKernel;
use super::reference::Reference;
use std::sync::Arc;

/// A kernel under test.
#[derive(Clone)]
pub struct Implementation {
    /// What computes.
    pub kernel: Arc<dyn AttentionKernel>,
    /// The same as a reference kernel, where it is one: recipes, traces and witnesses come from it.
    pub reference: Option<Arc<Reference>>,
}

impl Implementation {
    /// A reference kernel.
    pub fn reference(reference: Reference) -> Self {
        let reference = Arc::new(reference);
        Implementation { kernel: reference.clone(), reference: Some(reference) }
    }

    /// Any other kernel.
    pub fn kernel(kernel: Arc<dyn AttentionKernel>) -> Self {
        Implementation { kernel, reference: None }
    }
}
