//! A kernel that takes no other calls than another one does: what is shown with it, is shown with calls of the other's.

use crate::number::Dtype;
use crate::subject::attention::capabilities::Capabilities;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use crate::subject::attention::numerics::Numerics;
use std::sync::Arc;

struct Within {
    kernel: Arc<dyn AttentionKernel>,
    can: Capabilities,
    context_parallel: bool,
}

/// The kernel with the declarations of another: forms, features, formats and limits; not its knobs.
pub(super) fn within(kernel: Implementation, other: &Implementation) -> Implementation {
    let other = &*other.kernel;
    let can = Capabilities { knobs: Vec::new(), ..other.capabilities() };
    let context_parallel = other.context_parallel() && kernel.kernel.context_parallel();
    Implementation::kernel(Arc::new(Within { kernel: kernel.kernel, can, context_parallel }))
}

impl AttentionKernel for Within {
    fn identity(&self) -> Identity {
        self.kernel.identity()
    }

    fn conventions(&self) -> Conventions {
        self.kernel.conventions()
    }

    fn numerics(&self) -> Option<Numerics> {
        self.kernel.numerics()
    }

    fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        self.kernel.numerics_for(storage)
    }

    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }

    fn has_lse(&self) -> bool {
        self.kernel.has_lse()
    }

    fn context_parallel(&self) -> bool {
        self.context_parallel
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.kernel.varlen(call, outputs)
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.kernel.dense(call, outputs)
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.kernel.paged(call, outputs)
    }
}
