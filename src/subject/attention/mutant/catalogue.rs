//! The list.

use super::{CauseKind, Entry};

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $value:expr),* $(,)? })*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them, in the order of the catalogue.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name),*];

            /// What is known of it.
            pub fn entry(self) -> &'static Entry {
                match self {
                    $(Mutant::$name => const { &Entry { $($field: $value),* } },)*
                }
            }
        }
    };
}

catalogue! {
    /// Causal limit anchored top-left.
    CausalTopLeft {
        id: "A-M1",
        source: "NVIDIA/cutlass#2336",
        edit: "the causal limit is j <= i instead of j <= i + (kv - q)",
        silent: "q = kv, or no causal mask",
        cause: CauseKind::Semantics,
        settings: &[],
        smallest: "",
    }
    /// The store cuts off instead of rounding.
    TruncatedStore {
        id: "D-M1",
        source: "triton-lang/triton#11217",
        edit: "the store drops the low bits instead of rounding to nearest even",
        silent: "results that the output format holds exactly, and f32 outputs",
        cause: CauseKind::Precision,
        settings: &[],
        smallest: "",
    }
    /// The split count follows the longest sequence of the batch.
    SplitsOfBatchMax {
        id: "B-M1",
        source: "Dao-AILab/flash-attention#1570, flashinfer-ai/flashinfer#696",
        edit: "the split count follows the longest kv of the batch instead of the row's own",
        silent: "one sequence, equal lengths, or kv <= 2",
        cause: CauseKind::Order,
        settings: &[],
        smallest: "",
    }
}
