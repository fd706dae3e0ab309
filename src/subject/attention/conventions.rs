//! What a kernel *means*, apart from its arithmetic. Declared by every kernel; the reference also has an *actual* set, so that it
//! can be made to lie.

use super::numerics::fields;

fields! {
    /// The causal anchor a kernel implements.
    pub enum AnchorConvention {
        /// Whatever the call asks for.
        AsCalled = "as_called",
        /// Always bottom-right.
        BottomRight = "bottom_right",
        /// Always top-left.
        TopLeft = "top_left",
        /// Bottom-right without the diagonal: every row loses its last key.
        Strict = "strict",
    }
}
fields! {
    /// How `window_left = n` is read.
    pub enum WindowConvention {
        /// The row itself and `n` keys to its left.
        KeysToLeft = "keys_to_left",
        /// `n` keys, the row itself included: one fewer.
        CountsSelf = "counts_self",
        /// The row itself and `n + 1` keys to its left: one more.
        OneMore = "one_more",
    }
}
fields! {
    /// What a row without valid keys gets.
    pub enum EmptyRow {
        /// `o = 0`, `lse = -inf`.
        ZeroNegInf = "zero_neg_inf",
        /// `o = 0`, `lse = +inf` (FlashAttention 2).
        ZeroPosInf = "zero_pos_inf",
        /// NaN in both.
        Nan = "nan",
    }
}
fields! {
    /// Base of the reported log-sum-exp.
    pub enum LseBase {
        /// Natural logarithm.
        E = "e",
        /// Base 2.
        Two = "2",
    }
}
fields! {
    /// Whether a sink counts in `lse`.
    pub enum SinkInLse {
        /// It does.
        Yes = "yes",
        /// Only the keys count.
        No = "no",
    }
}
fields! {
    /// The ALiBi bias.
    pub enum AlibiForm {
        /// `-slope * |p - j|`.
        Distance = "distance",
        /// `slope * j`: the same weights under a causal mask, another `lse`.
        KeyIndex = "key_index",
    }
}
fields! {
    /// Order of softcap and bias.
    pub enum CapOrder {
        /// `softcap(score) + bias`.
        CapThenBias = "cap_then_bias",
        /// `softcap(score + bias)`.
        BiasThenCap = "bias_then_cap",
    }
}
fields! {
    /// What becomes of the scales of an 8-bit KV cache.
    pub enum ScalesConvention {
        /// Stored keys and values are multiplied with them.
        Applied = "applied",
        /// Stored keys and values are taken for the real ones (flashinfer#4979, vllm#42580).
        Ignored = "ignored",
    }
}

/// One full set of conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conventions {
    /// `anchor`.
    pub anchor: AnchorConvention,
    /// `window`.
    pub window: WindowConvention,
    /// `empty_row`.
    pub empty_row: EmptyRow,
    /// `lse_base`.
    pub lse_base: LseBase,
    /// `sink_in_lse`.
    pub sink_in_lse: SinkInLse,
    /// `alibi`.
    pub alibi: AlibiForm,
    /// `cap_order`.
    pub cap_order: CapOrder,
    /// `kv_scales`.
    pub kv_scales: ScalesConvention,
}

impl Default for Conventions {
    /// What the problem's text means: the conventions the oracle computes.
    fn default() -> Self {
        Conventions {
            anchor: AnchorConvention::AsCalled,
            window: WindowConvention::KeysToLeft,
            empty_row: EmptyRow::ZeroNegInf,
            lse_base: LseBase::E,
            sink_in_lse: SinkInLse::Yes,
            alibi: AlibiForm::Distance,
            cap_order: CapOrder::CapThenBias,
            kv_scales: ScalesConvention::Applied,
        }
    }
}

impl Conventions {
    /// Field names, in canonical order.
    pub const FIELDS: [&str; 8] = ["anchor", "window", "empty_row", "lse_base", "sink_in_lse", "alibi", "cap_order", "kv_scales"];

    /// The values a field may have; `None` for an unknown name.
    pub fn values(field: &str) -> Option<String> {
        fn list<T: ToString>(all: &[T]) -> String {
            all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
        }
        Some(match field {
            "anchor" => list(AnchorConvention::ALL),
            "window" => list(WindowConvention::ALL),
            "empty_row" => list(EmptyRow::ALL),
            "lse_base" => list(LseBase::ALL),
            "sink_in_lse" => list(SinkInLse::ALL),
            "alibi" => list(AlibiForm::ALL),
            "cap_order" => list(CapOrder::ALL),
            "kv_scales" => list(ScalesConvention::ALL),
            _ => return None,
        })
    }

    /// The value of a field as text; `None` for an unknown name.
    pub fn get(&self, field: &str) -> Option<String> {
        Some(match field {
            "anchor" => self.anchor.to_string(),
            "window" => self.window.to_string(),
            "empty_row" => self.empty_row.to_string(),
            "lse_base" => self.lse_base.to_string(),
            "sink_in_lse" => self.sink_in_lse.to_string(),
            "alibi" => self.alibi.to_string(),
            "cap_order" => self.cap_order.to_string(),
            "kv_scales" => self.kv_scales.to_string(),
            _ => return None,
        })
    }

    /// Sets a field from text.
    ///
    /// # Errors
    /// The reason, naming the values that are allowed, or the nearest field name.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), String> {
        match field {
            "anchor" => self.anchor = value.parse()?,
            "window" => self.window = value.parse()?,
            "empty_row" => self.empty_row = value.parse()?,
            "lse_base" => self.lse_base = value.parse()?,
            "sink_in_lse" => self.sink_in_lse = value.parse()?,
            "alibi" => self.alibi = value.parse()?,
            "cap_order" => self.cap_order = value.parse()?,
            "kv_scales" => self.kv_scales = value.parse()?,
            _ => return Err(crate::input_error::unknown("convention", field, &Self::FIELDS)),
        }
        Ok(())
    }
}
