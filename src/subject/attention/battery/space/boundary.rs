//! Cases at the ends of blocks, splits, pages and chunks.

use super::Space;
use super::choice::mirror;
use super::lead::{Lead, Wanted};
use super::read::usual_scale;
use super::request::leading;
use super::value::{Hit, Length, Rows, Steps};
use crate::finding::Path;
use crate::source::{Choose, Source, Stream};
use crate::subject::attention::capabilities::{Form, Format};
use crate::subject::attention::case::{Case, Data, Fp8Kv, Problem, Regime};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::mask::{Anchor, Mask};
use crate::subject::attention::pin::KvPin;
use crate::subject::attention::plan::{Cache, InferPlan, Side, TrainLayout, TrainPlan};
use crate::subject::attention::validate;

/// Sets the choices that are left open apart from those of rows.
const OPEN_CHOICES: u64 = 0x0042_4f55_4e44;

/// Work that a case may take: `q * kv * q heads * (d_qk + d_v)`.
const WORK: u64 = 1 << 20;

/// The longest length that is looked at.
const LONGEST: u64 = 12_289;

/// Blocks and pages that everybody has.
const USUAL: [u32; 3] = [16, 64, 128];

/// What a case is made for.
#[derive(Clone, Copy)]
struct Place {
    size: u32,
    kv: u32,
    steps: Steps,
    format: Format,
    dims: (u32, u32),
    rising: bool,
}

impl Space {
    /// For each size in play (block, split and page of both kernels, and the usual ones) the lengths `1, g-1, g, g+1, 2g, 2g+1, 3g-1`, each
    /// computed in one call, row by row, and in chunks of that size, in each storage format, on values that show the order of addition
    /// (mirrored pairs), and on values where each block moves the running maximum (rising scores). Valid, and inside what the kernels do.
    pub fn boundary_cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for (size, kv) in self.boundaries() {
            for steps in [Steps::Whole, Steps::Decode, Steps::Chunks] {
                for &format in &self.formats {
                    for dims in self.boundary_dims() {
                        for rising in [false, true] {
                            let place = Place { size, kv, steps, format, dims, rising };
                            cases.extend(self.boundary_case(cases.len() as u64, place));
                        }
                    }
                }
            }
        }
        cases
    }

    /// Eight lanes each where the kernels take them: enough for scores to differ, little work. And what a rule for tiles needs.
    fn boundary_dims(&self) -> Vec<(u32, u32)> {
        let all = || self.dims.iter().flat_map(|it| it.pairs.iter().copied());
        let small = all().min_by_key(|it| (it.0.abs_diff(9) + it.1.abs_diff(9), it.0));
        let needed = self.needed.iter().map(|&d| (d, d)).filter(|it| Some(*it) != small && all().any(|other| other == *it));
        small.into_iter().chain(needed).collect()
    }

    /// Sizes in play and lengths around them, ascending; a length that stands at several sizes comes with the first.
    fn boundaries(&self) -> Vec<(u32, u32)> {
        let mut sizes: Vec<u32> = USUAL.to_vec();
        sizes.extend(self.granules.iter().copied());
        sizes.extend(self.caches.iter().flatten().copied());
        sizes.retain(|&it| it >= 2);
        sizes.sort_unstable();
        sizes.dedup();
        let mut lengths: Vec<(u32, u32)> = Vec::new();
        for size in sizes {
            let g = u64::from(size);
            for kv in [1, g - 1, g, g + 1, 2 * g, 2 * g + 1, 3 * g - 1] {
                if kv <= LONGEST && lengths.iter().all(|it| u64::from(it.1) != kv) {
                    lengths.push((size, kv as u32));
                }
            }
        }
        lengths
    }

    /// `None` where the kernels do not do it, or it is one of the other plans' cases again.
    fn boundary_case(&self, index: u64, place: Place) -> Option<Case> {
        let Place { size, kv, steps, format, dims: (d_qk, d_v), rising } = place;
        let (scope, pins) = (&self.scope, &self.pins);
        let source = &mut Stream::new(OPEN_CHOICES, index);
        // What an output in a wider format shows, the pairs and triples look at.
        let plain = Format { storage: format.storage, out: format.storage };
        if format != plain && scope.lacks_format(plain).is_none() {
            return None;
        }
        let causal = match pins.causal {
            Some(causal) => causal,
            None => *scope.anchors().first()?,
        };
        if steps != Steps::Whole && (causal != Some(Anchor::BottomRight) || kv < 2) {
            return None;
        }
        let grouped = scope.lacks(Feature::GroupedHeads).is_none();
        let shapes: Vec<(u32, u32)> =
            self.shapes.iter().flatten().copied().filter(|it| it.0 * it.1 <= 2 && (grouped || it.1 == 1)).collect();
        let pinned = || pins.heads.map(|(q, kv)| (kv, q / kv));
        let (kv_heads, group) = if shapes.is_empty() { pinned()? } else { source.pick(&shapes) };
        let pair = u64::from(kv_heads * group) * u64::from(d_qk + d_v);
        let affordable = u32::try_from(WORK / (pair * u64::from(kv)).max(1)).unwrap_or(u32::MAX).max(2);
        let q = match steps {
            Steps::Decode => 4.min(kv),
            _ => kv.min(affordable),
        };
        let wanted = Wanted { length: Length::Elsewhere, rows: Rows::All, hit: Hit::None, steps, reject: false, preempt: false };
        let mut request = leading(source, Lead { q, kv, hit: 0 }, &wanted);
        if steps == Steps::Chunks {
            // As many chunks as fit after each other would be many calls.
            (request.chunks, request.then) = (Vec::new(), size.max(q.div_ceil(8)).min(q - 1).max(1));
        }
        let mask = Mask { causal, ..Mask::default() };
        let row = mask.keys(q - 1, q, kv);
        let problem = Problem {
            mask,
            softmax_scale: usual_scale(d_qk),
            fp8_kv: match pins.kv_dtype {
                Some(KvPin::Fp8(dtype)) => Some(Fp8Kv { dtype, k_scales: vec![0.25], v_scales: vec![0.5] }),
                _ => None,
            },
            out_dtype: format.out,
            ..Problem::plain(&[(q, kv)], [kv_heads, group], [d_qk, d_v], format.storage)
        };
        let regime = if rising { Regime::Rising { step: source.pick(&[0.25, 1.0, 0.03125]) } } else { mirror(source, row) };
        let layouts = [
            (Form::Varlen, TrainLayout::Varlen),
            (Form::DenseRight, TrainLayout::Dense { side: Side::Right, pad_q: 0, pad_kv: 0 }),
            (Form::DenseLeft, TrainLayout::Dense { side: Side::Left, pad_q: 0, pad_kv: 0 }),
        ];
        let done: Vec<TrainLayout> = layouts.into_iter().filter(|it| scope.side(Path::Train).does(it.0)).map(|it| it.1).collect();
        let infer = scope.side(Path::Infer);
        let mut pages: Vec<u32> = self.caches.iter().flatten().copied().chain([size]).collect();
        pages.retain(|&page| infer.does(Form::Paged) && infer.lacks_page(page).is_none());
        pages.dedup();
        let cache = match pages.is_empty() {
            true => Cache::Contiguous { spare: 1 },
            false => Cache::Paged { page: source.pick(&pages), spare: 1, shuffle: 1 + source.below(1 << 31), recycled: false },
        };
        let layout = *done.get(source.below(done.len() as u64) as usize)?;
        let plain = Case::plain(problem, Data::Drawn { seed: source.below(1 << 32), regime });
        let case = Case {
            train: TrainPlan { layout, ..plain.train },
            infer: InferPlan { cache, requests: vec![request], ..plain.infer },
            ..plain
        };
        (validate(&case).is_ok() && pins.hold(&case.problem) && scope.outside(&case).is_none()).then_some(case)
    }
}
