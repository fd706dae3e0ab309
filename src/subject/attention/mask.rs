//! Which keys a row may see, as the *problem* asks for it.

use std::ops::Range;

/// How a causal mask is laid over `q` new rows and `kv` positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anchor {
    /// Row `i` sees `j <= i + kv - q`: the last row sees everything (FlashAttention since 2.1).
    BottomRight,
    /// Row `i` sees `j <= i` (PyTorch's `is_causal`).
    TopLeft,
}

/// The mask of a problem. Positions: row `i` of `q` stands at `p = i + kv - q` (at `p = i` under a top-left mask), keys at `0..kv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mask {
    /// Causal limit, or none.
    pub causal: Option<Anchor>,
    /// Keys to the left of the row's own position that stay visible: `j >= p - left`.
    pub window_left: Option<u32>,
    /// Keys to the right of the row's own position that stay visible: `j <= p + right`. Only without `causal`.
    pub window_right: Option<u32>,
}

impl Mask {
    /// The valid keys of row `i`: always one contiguous range, possibly empty.
    pub fn keys(&self, i: u32, q: u32, kv: u32) -> Range<u32> {
        let (i, q, kv) = (i64::from(i), i64::from(q), i64::from(kv));
        let position = match self.causal {
            Some(Anchor::TopLeft) => i,
            _ => i + kv - q,
        };
        let mut start = 0;
        let mut end = kv;
        if self.causal.is_some() {
            end = end.min(position + 1);
        }
        if let Some(left) = self.window_left {
            start = start.max(position - i64::from(left));
        }
        if let Some(right) = self.window_right {
            end = end.min(position + i64::from(right) + 1);
        }
        let end = end.max(0);
        start.min(end) as u32..end as u32
    }
}
