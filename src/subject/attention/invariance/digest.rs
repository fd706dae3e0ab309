//! A kernel whose results are its recipes: `lse` holds a digest of the row's [recipe], `o` nothing. Relations and shrinking then work
//! on recipes as they do on bits.

use crate::source::mix;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::{
    AttentionKernel, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::recipe::recipe;
use crate::subject::attention::reference::{Reference, facts};
use std::sync::Arc;

/// The recipes of a kernel in its reference form; `None` where it has none.
pub(crate) fn kernel(of: &Implementation) -> Option<Implementation> {
    let reference = of.reference.clone()?;
    Some(Implementation { kernel: Arc::new(Digests(reference.clone())), reference: Some(reference), source: None })
}

struct Digests(Arc<Reference>);

impl Digests {
    fn run(&self, call: Call<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let heads = match call {
            Call::Varlen(call) => call.attributes.q_heads,
            Call::Dense(call) => call.attributes.q_heads,
            Call::Paged(call) => call.attributes.q_heads,
        };
        outputs.o.bits.fill(0);
        outputs.lse.bits.fill(0);
        for (first, facts) in facts(call) {
            for row in 0..facts.q {
                let recipe = recipe(&self.0.numerics, &self.0.actual, &facts, row);
                let at = (first + row as usize) * heads;
                outputs.lse.bits[at..at + heads].fill(digest(&format!("{recipe:?}")));
            }
        }
        Ok(())
    }
}

/// The pattern of a finite f32: two recipes in 2^30 share one.
fn digest(text: &str) -> u32 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    (text.as_bytes().chunks(8).fold(0, |key, bytes| mix(key, word(bytes))) >> 34) as u32
}

impl AttentionKernel for Digests {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn conventions(&self) -> Conventions {
        self.0.conventions()
    }

    fn numerics(&self) -> Option<Numerics> {
        self.0.numerics()
    }

    fn context_parallel(&self) -> bool {
        self.0.context_parallel()
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Varlen(call), outputs)
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Dense(call), outputs)
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.run(Call::Paged(call), outputs)
    }
}
