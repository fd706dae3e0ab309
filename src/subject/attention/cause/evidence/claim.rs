//! Results judged under another claim than the kernel's own.

use crate::number::Dtype;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::kernel::{AttentionKernel, Identity};
use crate::subject::attention::numerics::{Block, Exp, Finish, Numerics, ScaleAt, Split, Store};
use crate::subject::attention::reference::preset::ALIGNED;

/// What a kernel might have claimed. Only judged, never called: the calls refuse.
pub(super) struct Claim {
    pub numerics: Option<Numerics>,
    pub conventions: Conventions,
    pub has_lse: bool,
}

impl AttentionKernel for Claim {
    fn identity(&self) -> Identity {
        Identity::cpu("claim", "")
    }

    fn conventions(&self) -> Conventions {
        self.conventions
    }

    fn numerics(&self) -> Option<Numerics> {
        self.numerics
    }

    fn has_lse(&self) -> bool {
        self.has_lse
    }
}

/// What a kernel declares, or what is assumed of one that declares nothing: f32 everywhere, at the largest costs of what it may choose.
pub(super) fn explicit(declared: Option<Numerics>) -> Numerics {
    declared.unwrap_or_else(|| {
        let mut it = ALIGNED;
        it.score.scale = ScaleAt::FoldedLog2e;
        it.softmax.block = Block::Size(1);
        it.grid.split = Split::FixedCount(2);
        it.finish = Finish::Reciprocal;
        it
    })
}

/// The coarsest arithmetic that kernels have: everything in a 16-bit format, cut off at the end. With `exact_sums` the accumulators stay in
/// f32, for data whose sums every format holds exactly.
pub(super) fn coarsest(declared: Option<Numerics>, dtype: Dtype, exact_sums: bool) -> Numerics {
    let mut it = explicit(declared);
    it.score.scale = ScaleAt::FoldedLog2e;
    it.score.store = dtype;
    it.softmax.exp = match it.softmax.exp {
        Exp::Exp2Poly(degree) => Exp::Exp2Poly(degree.min(3)),
        Exp::CorrectlyRounded => Exp::Exp2Poly(3),
    };
    it.probs.dtype = dtype;
    if it.grid.split == Split::None && !it.probs.normalised {
        it.grid.split = Split::FixedCount(2);
    }
    it.grid.lse_dtype = dtype;
    it.grid.partial_dtype = dtype;
    it.finish = Finish::Reciprocal;
    it.store = Store::Truncate;
    if !exact_sums {
        it.score.acc = dtype;
        it.rowsum.acc = dtype;
        it.value.acc = dtype;
    }
    it
}
