//! What a call asks for, by name, so that a kernel can say in one line what it supports.

use super::kernel::{Attributes, KernelError};
use super::mask::Anchor;
use std::fmt;

/// Something that a call may ask for. A call has exactly one of the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// A causal mask whose last row sees every key: row `i` of `q` sees keys `0..=i + kv - q`.
    Causal,
    /// A causal mask whose first row sees one key: row `i` sees keys `0..=i`.
    CausalTopLeft,
    /// No causal mask: every row sees every key, unless there is a window.
    NotCausal,
    /// A window to the left or right of the row's own position.
    Window,
    /// `cap * tanh(score / cap)`.
    Softcap,
    /// A logit for each query head that takes part in the softmax, with a zero value vector.
    Sinks,
    /// A bias of `-slope * |p - j|`.
    Alibi,
    /// Fewer KV heads than query heads.
    GroupedHeads,
    /// `d_qk` and `d_v` differ.
    UnequalHeadDims,
    /// Keys and values in an 8-bit format, with scales.
    Fp8Kv,
    /// The call stands for a context-parallel group.
    ContextParallel,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 11] = [
        Feature::Causal,
        Feature::CausalTopLeft,
        Feature::NotCausal,
        Feature::Window,
        Feature::Softcap,
        Feature::Sinks,
        Feature::Alibi,
        Feature::GroupedHeads,
        Feature::UnequalHeadDims,
        Feature::Fp8Kv,
        Feature::ContextParallel,
    ];

    /// Which of the first three a mask is.
    pub fn of_causal(causal: Option<Anchor>) -> Feature {
        match causal {
            Some(Anchor::BottomRight) => Feature::Causal,
            Some(Anchor::TopLeft) => Feature::CausalTopLeft,
            None => Feature::NotCausal,
        }
    }

    /// In words, without an article.
    pub fn thing(self) -> String {
        let text = self.to_string();
        text.strip_prefix("a ").map_or(text.clone(), str::to_owned)
    }

    /// The name in declarations of capabilities.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Causal => "causal",
            Feature::CausalTopLeft => "causal_top_left",
            Feature::NotCausal => "not_causal",
            Feature::Window => "window",
            Feature::Softcap => "softcap",
            Feature::Sinks => "sinks",
            Feature::Alibi => "alibi",
            Feature::GroupedHeads => "grouped_heads",
            Feature::UnequalHeadDims => "unequal_head_dims",
            Feature::Fp8Kv => "fp8_kv",
            Feature::ContextParallel => "context_parallel",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Causal => "a bottom-right causal mask",
            Feature::CausalTopLeft => "a top-left causal mask",
            Feature::NotCausal => "a mask that is not causal",
            Feature::Window => "a window",
            Feature::Softcap => "softcap",
            Feature::Sinks => "sinks",
            Feature::Alibi => "ALiBi",
            Feature::GroupedHeads => "grouped heads",
            Feature::UnequalHeadDims => "unequal head dims",
            Feature::Fp8Kv => "8-bit keys and values with scales",
            Feature::ContextParallel => "context-parallel ranks",
        })
    }
}

impl Attributes<'_> {
    /// What the call asks for.
    pub fn features(&self) -> Vec<Feature> {
        // No `..`: an attribute that is added must be a feature, or be dismissed here by name.
        let Attributes {
            q_heads,
            kv_heads,
            d_qk,
            d_v,
            softmax_scale: _,
            mask,
            softcap,
            sinks,
            alibi_slopes,
            block_q: _,
            kv_scales,
            context,
            out_dtype: _,
            knobs: _,
        } = self;
        let asked = [
            (true, Feature::of_causal(mask.causal)),
            (mask.window_left.is_some() || mask.window_right.is_some(), Feature::Window),
            (softcap.is_some(), Feature::Softcap),
            (sinks.is_some(), Feature::Sinks),
            (alibi_slopes.is_some(), Feature::Alibi),
            (q_heads != kv_heads, Feature::GroupedHeads),
            (d_qk != d_v, Feature::UnequalHeadDims),
            (kv_scales.is_some(), Feature::Fp8Kv),
            (context.is_some(), Feature::ContextParallel),
        ];
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, feature)| feature).collect()
    }

    /// Refuses a call that asks for more than a kernel supports. A list of what *is* supported stays right when a later version
    /// asks for something new.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] with the first feature that is not in the list.
    pub fn only(&self, supported: &[Feature]) -> Result<(), KernelError> {
        match self.features().into_iter().find(|feature| !supported.contains(feature)) {
            Some(feature) => Err(KernelError::Unsupported(format!("does not implement {feature}"))),
            None => Ok(()),
        }
    }
}
