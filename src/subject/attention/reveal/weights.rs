//! Which keys count: those of weight 1, against those whose weight vanishes.

use super::stand::Stand;

/// Keys of weight 1; the weight of all others is `exp(-512)`, which is 0 in f32 and nothing beside 1 in f64.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    carriers: Vec<u32>,
}

/// Natural units below the others, as a power of two.
const ABSENT: f32 = -512.0;

impl Weights {
    /// All keys that the row sees.
    pub(super) fn all(stand: &Stand<'_>) -> Self {
        Weights { carriers: stand.keys().collect() }
    }

    /// These keys, ascending.
    pub(super) fn only(carriers: Vec<u32>) -> Self {
        Weights { carriers }
    }

    /// The keys of weight 1, ascending.
    pub(super) fn carriers(&self) -> &[u32] {
        &self.carriers
    }

    /// Puts the scores in.
    pub(super) fn put(&self, stand: &mut Stand<'_>) {
        stand.set_scores(|key| if self.carriers.binary_search(&key).is_ok() { 0.0 } else { ABSENT });
    }
}
