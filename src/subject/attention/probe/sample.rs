//! The cases of a probe: few shapes, each on normal data and on data made to show order and blocking.

use super::terms::Terms;
use crate::finding::Path;
use crate::source::mix;
use crate::subject::attention::capabilities::{Form, Format};
use crate::subject::attention::{Anchor, Cache, Case, Data, InferPlan, Mask, Problem, Regime, Side, TrainLayout, TrainPlan};

/// Positions: around every block and page that published kernels have, and past two of the larger ones.
const LADDER: [u32; 30] =
    [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 160, 192, 193, 255, 256, 257, 300];

/// The same for a kernel that compiles for each shape.
const SHORT_LADDER: [u32; 10] = [1, 2, 3, 8, 16, 17, 33, 65, 129, 257];

/// Place of a case in the sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Positions of its first sequence.
    pub(super) length: u32,
    /// Counts up from 0.
    pub(super) index: u64,
    /// How often the sample has gone through the lengths before.
    pub(super) round: u64,
    /// Normal data, as against designed.
    pub(super) normal: bool,
}

/// The first `cases` places of a sample. Every length comes once before any comes again, with the other kind of data then; few cases are
/// spread over the lengths.
pub(super) fn places(terms: &Terms<'_>, cases: u64) -> Vec<Place> {
    let ladder: &[u32] = if terms.capabilities.compiles { &SHORT_LADDER } else { &LADDER };
    let lengths: Vec<u32> = ladder.iter().copied().filter(|&length| terms.holds(length)).collect();
    let count = lengths.len() as u64;
    if count == 0 {
        return Vec::new();
    }
    let of = |index: u64| {
        let at = if cases < count { index * count / cases } else { index % count };
        let round = if cases < count { index } else { index / count };
        // Half of the cases are normal, and every length is in its turn: their share is what a user would see.
        Place { length: lengths[at as usize], index, round, normal: (index + index / count).is_multiple_of(2) }
    };
    (0..cases).map(of).collect()
}

/// What a case of the sample looks like.
#[derive(Clone, Debug)]
pub(in crate::subject::attention) struct Shape {
    /// Rows and positions of each sequence.
    pub(in crate::subject::attention) sequences: Vec<(u32, u32)>,
    pub(in crate::subject::attention) format: Format,
    pub(in crate::subject::attention) mask: Mask,
    pub(in crate::subject::attention) head_dims: (u32, u32),
    pub(in crate::subject::attention) heads: (u32, u32),
    pub(in crate::subject::attention) layout: TrainLayout,
    pub(in crate::subject::attention) cache: Cache,
}

impl Shape {
    /// Sequences under the kernel's usual mask, heads and layouts.
    pub(in crate::subject::attention) fn of(terms: &Terms<'_>, format: Format, sequences: &[(u32, u32)]) -> Shape {
        let layout = match () {
            () if terms.form(Form::Varlen) => TrainLayout::Varlen,
            () if terms.form(Form::DenseRight) => TrainLayout::Dense { side: Side::Right, pad_q: 0, pad_kv: 0 },
            () => TrainLayout::Dense { side: Side::Left, pad_q: 0, pad_kv: 0 },
        };
        let cache = match terms.form(Form::Paged) {
            true => Cache::Paged { page: terms.page(), spare: 1, shuffle: 0, recycled: false },
            false => Cache::Contiguous { spare: 0 },
        };
        let causal = terms.masks().first().copied().unwrap_or(Some(Anchor::BottomRight));
        Shape {
            sequences: sequences.to_vec(),
            format,
            mask: Mask { causal, ..Mask::default() },
            head_dims: terms.head_dims(),
            heads: terms.heads(),
            layout,
            cache,
        }
    }

    /// The case, fed in one step.
    pub(in crate::subject::attention) fn case(&self, data: Data) -> Case {
        let Shape { heads: (kv_heads, group), head_dims: (d_qk, d_v), format, .. } = *self;
        let problem = Problem {
            mask: self.mask,
            softmax_scale: (1.0 / f64::from(d_qk).sqrt()) as f32,
            out_dtype: format.out,
            ..Problem::plain(&self.sequences, [kv_heads, group], [d_qk, d_v], format.storage)
        };
        let plain = Case::plain(problem, data);
        Case {
            train: TrainPlan { layout: self.layout, ..plain.train },
            infer: InferPlan { cache: self.cache, ..plain.infer },
            ..plain
        }
    }
}

/// The data of a place: normal, or in turn pairs that cancel and scores that rise.
pub(super) fn data(place: Place, seed: u64) -> Data {
    let regime = match (place.normal, (place.round / 2 + place.index) % 3) {
        (true, _) => Regime::Normal,
        (false, 0) => Regime::Rising { step: 0.25 },
        (false, _) => {
            // A span that ends with the sequence, so that the last row sees its pairs closed.
            let span = 3 + (place.index % 6) as u32;
            Regime::Mirror { span, phase: place.length % span }
        }
    };
    Data::Drawn { seed: mix(seed, place.index) & 0xffff_ffff, regime }
}

/// Company for a sequence of this length: of its own length where a call must not be ragged.
pub(super) fn other_length(terms: &Terms<'_>, path: Path, place: Place) -> u32 {
    let other = [place.length, 5, place.length / 2 + 1, 33][(place.index % 4) as usize];
    if terms.ragged(path) && terms.holds(other) { other } else { place.length }
}
