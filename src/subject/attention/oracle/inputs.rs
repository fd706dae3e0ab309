//! The oracle's own view of a problem: which keys a row sees, which head it reads, and the operands as `f64`.
//!
//! Written from the definitions alone and sharing no code with the mask and the kernels: a verifier that shared the mask once
//! passed a wrong kernel.

use crate::number::Dtype;
use crate::subject::attention::{Anchor, Mask, Problem};
use crate::tensor::Tensor;

/// Where a sequence's rows and keys start in the packed tensors.
#[derive(Clone, Copy, Debug)]
struct Span {
    first_row: usize,
    rows: u32,
    first_key: usize,
    keys: u32,
}

/// A problem's operands, decoded exactly; what is stored in 8 bits is multiplied with its scale, exactly too. K and V are kept head
/// by head, so that a row reads them in one stretch.
#[derive(Debug)]
pub(super) struct Inputs {
    spans: Vec<Span>,
    mask: Mask,
    q_heads: usize,
    group: usize,
    total_keys: usize,
    d_qk: usize,
    d_v: usize,
    scale: f64,
    cap: Option<f64>,
    slopes: Option<Vec<f32>>,
    sinks: Option<Vec<f32>>,
    out: Dtype,
    /// `[total_q, q_heads, d_qk]`.
    q: Vec<f64>,
    /// `[kv_heads, total_kv, d_qk]`, scaled.
    k: Vec<f64>,
    /// `[kv_heads, total_kv, d_v]`, scaled.
    v: Vec<f64>,
    /// The largest finite |v|.
    v_max: f64,
    /// Every operand is finite: rows need not look.
    all_finite: bool,
    /// The keys of the row asked last: heads of one row come one after another.
    seen: Option<(usize, u32, u32, u32)>,
}

/// What one row of one head needs: `n` visible keys in order, and the head's parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// `[d_qk]`.
    pub q: &'a [f64],
    /// `[n, d_qk]`.
    pub k: &'a [f64],
    /// `[n, d_v]`.
    pub v: &'a [f64],
    /// Visible keys.
    pub n: usize,
    pub d_qk: usize,
    pub d_v: usize,
    /// Position of the first visible key.
    pub first: i64,
    /// Position of the row.
    pub position: i64,
    pub scale: f64,
    pub cap: Option<f64>,
    pub slope: Option<f64>,
    /// `None` for no sink, and for a sink of -inf, which adds nothing.
    pub sink: Option<f64>,
    pub out: Dtype,
    /// An upper bound of every finite |v|.
    pub v_max: f64,
    /// NaN or infinity in what every output depends on: q, a visible k, the scale, the slope or the sink.
    pub broken: bool,
    /// Some visible v may be NaN or infinite: look at each lane.
    pub look_at_v: bool,
    /// Offsets of `q`, `k` and `v` in their arrays, for a copy in another format.
    pub offsets: [usize; 3],
}

impl Row<'_> {
    /// |p - j| of the n-th visible key.
    pub fn distance(&self, n: usize) -> f64 {
        (self.position - (self.first + n as i64)).unsigned_abs() as f64
    }

    /// Lane `x` of the n-th visible key's value.
    pub fn value(&self, n: usize, x: usize) -> f64 {
        self.v[n * self.d_v + x]
    }

    /// Lane `x` of some visible value is NaN or infinite.
    pub fn lane_broken(&self, x: usize) -> bool {
        self.look_at_v && (0..self.n).any(|n| !self.value(n, x).is_finite())
    }
}

/// The definition of the mask: may the row at position `p` see the key at `j`?
fn sees(mask: &Mask, p: i64, j: i64) -> bool {
    let causal = mask.causal.is_none() || j <= p;
    let left = mask.window_left.is_none_or(|left| p - j <= i64::from(left));
    let right = mask.window_right.is_none_or(|right| j - p <= i64::from(right));
    causal && left && right
}

impl Default for Inputs {
    fn default() -> Self {
        Inputs {
            spans: Vec::new(),
            mask: Mask::default(),
            q_heads: 1,
            group: 1,
            total_keys: 0,
            d_qk: 0,
            d_v: 0,
            scale: 1.0,
            cap: None,
            slopes: None,
            sinks: None,
            out: Dtype::F32,
            q: Vec::new(),
            k: Vec::new(),
            v: Vec::new(),
            v_max: 0.0,
            all_finite: true,
            seen: None,
        }
    }
}

impl Inputs {
    /// Takes a problem's operands in; see [`super::Oracle::begin`] for the shapes.
    pub fn load(&mut self, problem: &Problem, q: &Tensor, k: &Tensor, v: &Tensor) {
        self.spans.clear();
        let (mut first_row, mut first_key) = (0, 0);
        for sequence in &problem.sequences {
            self.spans.push(Span { first_row, rows: sequence.q, first_key, keys: sequence.kv });
            first_row += sequence.q as usize;
            first_key += sequence.kv as usize;
        }
        self.total_keys = first_key;
        self.mask = problem.mask;
        let kv_heads = problem.kv_head_ids.len();
        self.group = problem.group_ids.len();
        self.q_heads = kv_heads * self.group;
        self.d_qk = problem.d_qk as usize;
        self.d_v = problem.d_v as usize;
        self.scale = f64::from(problem.softmax_scale);
        self.cap = problem.softcap.map(f64::from);
        self.slopes.clone_from(&problem.alibi_slopes);
        self.sinks.clone_from(&problem.sinks);
        self.out = problem.out_dtype;
        assert_eq!(q.bits.len(), first_row * self.q_heads * self.d_qk, "q does not have the problem's shape");
        assert_eq!(k.bits.len(), first_key * kv_heads * self.d_qk, "k does not have the problem's shape");
        assert_eq!(v.bits.len(), first_key * kv_heads * self.d_v, "v does not have the problem's shape");
        by_head(&mut self.q, q, first_row, 1, self.q_heads * self.d_qk);
        by_head(&mut self.k, k, first_key, kv_heads, self.d_qk);
        by_head(&mut self.v, v, first_key, kv_heads, self.d_v);
        let mut v_scale = 1.0;
        let mut scales_finite = true;
        if let Some(kv) = &problem.fp8_kv {
            descale(&mut self.k, &kv.k_scales, kv_heads);
            descale(&mut self.v, &kv.v_scales, kv_heads);
            v_scale = kv.v_scales.iter().fold(0.0, |most, &scale| f64::from(scale.abs()).max(most));
            scales_finite = kv.k_scales.iter().chain(&kv.v_scales).all(|scale| scale.is_finite());
        }
        let finite = |tensor: &Tensor| largest_bits(tensor) <= tensor.dtype.max_finite_bits();
        self.all_finite = scales_finite && [q, k, v].into_iter().all(finite);
        self.v_max = if self.all_finite {
            v.dtype.to_f64(largest_bits(v)) * v_scale
        } else {
            self.v.iter().filter(|v| v.is_finite()).fold(0.0, |max, v| v.abs().max(max))
        };
        self.seen = None;
    }

    /// The decoded `[q, k, v]`, K and V head by head.
    pub fn operands(&self) -> [&[f64]; 3] {
        [&self.q, &self.k, &self.v]
    }

    /// First visible position and number of visible keys; the visible keys are neighbours, for the mask bounds `j` from both
    /// sides only.
    fn visible(&mut self, sequence: usize, row: u32, position: i64) -> (u32, u32) {
        if let Some((s, r, first, n)) = self.seen
            && (s, r) == (sequence, row)
        {
            return (first, n);
        }
        let keys = self.spans[sequence].keys;
        let mut visible = (0..keys).filter(|&j| sees(&self.mask, position, i64::from(j)));
        let first = visible.next();
        let n = if first.is_some() { 1 + visible.count() as u32 } else { 0 };
        let first = first.unwrap_or(0);
        self.seen = Some((sequence, row, first, n));
        (first, n)
    }

    /// One row of one head.
    ///
    /// # Panics
    /// If the sequence, the row or the head is not in the problem.
    pub fn row(&mut self, sequence: usize, row: u32, head: usize) -> Row<'_> {
        let (first, n) = self.visible(sequence, row, self.position(sequence, row));
        self.row_over(sequence, row, head, first, n)
    }

    /// The row as if it saw all keys of its sequence, and the range of those that it does see.
    ///
    /// # Panics
    /// As [`Inputs::row`].
    pub fn whole_row(&mut self, sequence: usize, row: u32, head: usize) -> (Row<'_>, std::ops::Range<u32>) {
        let (first, n) = self.visible(sequence, row, self.position(sequence, row));
        (self.row_over(sequence, row, head, 0, self.spans[sequence].keys), first..first + n)
    }

    fn position(&self, sequence: usize, row: u32) -> i64 {
        let span = self.spans[sequence];
        match self.mask.causal {
            Some(Anchor::TopLeft) => i64::from(row),
            Some(Anchor::BottomRight) | None => i64::from(row) + i64::from(span.keys) - i64::from(span.rows),
        }
    }

    /// One row of one head with `n` keys from position `first` on.
    fn row_over(&self, sequence: usize, row: u32, head: usize, first: u32, n: u32) -> Row<'_> {
        let span = self.spans[sequence];
        assert!(row < span.rows && head < self.q_heads, "row {row} head {head} is not in sequence {sequence}");
        let position = self.position(sequence, row);
        let n = n as usize;
        let kv_head = head / self.group;
        let key = kv_head * self.total_keys + span.first_key + first as usize;
        let offsets = [((span.first_row + row as usize) * self.q_heads + head) * self.d_qk, key * self.d_qk, key * self.d_v];
        let q = &self.q[offsets[0]..][..self.d_qk];
        let k = &self.k[offsets[1]..][..n * self.d_qk];
        let v = &self.v[offsets[2]..][..n * self.d_v];
        let slope = self.slopes.as_ref().map(|slopes| f64::from(slopes[head]));
        let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks[head])).filter(|&sink| sink != f64::NEG_INFINITY);
        let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
        let parameters_finite = self.scale.is_finite() && slope.is_none_or(f64::is_finite);
        let scores_sound = parameters_finite && (self.all_finite || (finite(q) && finite(k)));
        Row {
            q,
            k,
            v,
            n,
            d_qk: self.d_qk,
            d_v: self.d_v,
            first: i64::from(first),
            position,
            scale: self.scale,
            cap: self.cap,
            slope,
            sink,
            out: self.out,
            v_max: self.v_max,
            broken: (n > 0 && !scores_sound) || sink.is_some_and(|sink| !sink.is_finite()),
            look_at_v: !self.all_finite,
            offsets,
        }
    }
}

/// The largest pattern without its sign: magnitudes are ordered as integers.
fn largest_bits(tensor: &Tensor) -> u32 {
    let mask = tensor.dtype.magnitude_mask();
    // Magnitudes fit 31 bits, and signed maxima are what vector units have.
    tensor.bits.iter().fold(0, |largest: i32, bits| largest.max((bits & mask) as i32)) as u32
}

/// Multiplies what is stored, head by head, with the scale of its head: exactly, 4 by 24 significant bits.
fn descale(stored: &mut [f64], scales: &[f32], heads: usize) {
    let per_head = stored.len() / heads;
    for head in 0..heads {
        let scale = f64::from(scales[if scales.len() > 1 { head } else { 0 }]);
        stored[head * per_head..(head + 1) * per_head].iter_mut().for_each(|x| *x *= scale);
    }
}

/// Decodes `[total, heads, d]` into `[heads, total, d]`.
fn by_head(into: &mut Vec<f64>, tensor: &Tensor, total: usize, heads: usize, d: usize) {
    into.clear();
    for head in 0..heads {
        for n in 0..total {
            let lane = (n * heads + head) * d;
            let bits = tensor.bits[lane..lane + d].iter();
            // One loop for each format that is common.
            match tensor.dtype {
                Dtype::F32 => into.extend(bits.map(|&bits| Dtype::F32.to_f64(bits))),
                Dtype::F16 => into.extend(bits.map(|&bits| Dtype::F16.to_f64(bits))),
                Dtype::BF16 => into.extend(bits.map(|&bits| Dtype::BF16.to_f64(bits))),
                other => into.extend(bits.map(|&bits| other.to_f64(bits))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_readings_of_the_mask_agree() {
        for causal in [None, Some(Anchor::BottomRight), Some(Anchor::TopLeft)] {
            for window_left in [None, Some(0), Some(1), Some(3)] {
                for window_right in [None, Some(0), Some(2)] {
                    if causal.is_some() && window_right.is_some() {
                        continue;
                    }
                    let mask = Mask { causal, window_left, window_right };
                    for (q, kv) in [(1, 1), (1, 0), (3, 5), (5, 3), (4, 4), (6, 1)] {
                        for i in 0..q {
                            let p = if causal == Some(Anchor::TopLeft) { i as i64 } else { i as i64 + kv as i64 - q as i64 };
                            let mine: Vec<u32> = (0..kv).filter(|&j| sees(&mask, p, i64::from(j))).collect();
                            assert_eq!(mine, mask.keys(i, q, kv).collect::<Vec<_>>(), "{mask:?} row {i} of {q} x {kv}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn scales_of_heads() {
        let mut stored = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        descale(&mut stored, &[2.0, 4.0, 8.0], 3);
        assert_eq!(stored, [2.0, 4.0, 12.0, 16.0, 40.0, 48.0]);
        descale(&mut stored, &[0.5], 3);
        assert_eq!(stored, [1.0, 2.0, 6.0, 8.0, 20.0, 24.0]);
    }

    /// Two sequences, of 2 rows over 3 keys and of 1 row over 4, two KV heads of two query heads each, d_qk = 2, d_v = 1.
    fn problem() -> Problem {
        let mask = Mask { causal: Some(Anchor::BottomRight), window_left: Some(1), window_right: None };
        Problem { mask, ..Problem::plain(&[(2, 3), (1, 4)], [2, 2], [2, 1], Dtype::F32) }
    }

    /// `[q, k, v]` of [`problem`], every element another number.
    fn operands() -> [Tensor; 3] {
        let numbered = |first: u16, dims: &[usize]| {
            let mut tensor = Tensor::filled(Dtype::F32, dims, 0);
            for (bits, n) in tensor.bits.iter_mut().zip(first..) {
                *bits = f32::from(n).to_bits();
            }
            tensor
        };
        [numbered(1, &[3, 4, 2]), numbered(101, &[7, 2, 2]), numbered(201, &[7, 2, 1])]
    }

    /// What each row and head reads, from the packed `[total, heads, d]` tensors.
    #[test]
    fn rows_read_their_own_sequence_and_head() {
        let (problem, [q, k, v]) = (problem(), operands());
        let mut inputs = Inputs::default();
        inputs.load(&problem, &q, &k, &v);
        // Sequence, row, packed row, packed keys that it sees: the last two up to its own position.
        for (sequence, row, packed, keys) in [(0, 0, 0, [0, 1]), (0, 1, 1, [1, 2]), (1, 0, 2, [5, 6])] {
            for head in 0..4 {
                let at = |tensor: &Tensor, n: usize, head: usize| -> Vec<f64> {
                    let heads = tensor.dims[1];
                    let d = tensor.dims[2];
                    let lanes = tensor.bits[(n * heads + head) * d..][..d].iter();
                    lanes.map(|&bits| f64::from(f32::from_bits(bits))).collect()
                };
                let read = inputs.row(sequence, row, head);
                assert_eq!(read.q, at(&q, packed, head), "q of sequence {sequence} row {row} head {head}");
                assert_eq!(read.k, keys.map(|n| at(&k, n, head / 2)).concat(), "k of sequence {sequence} row {row} head {head}");
                assert_eq!(read.v, keys.map(|n| at(&v, n, head / 2)).concat(), "v of sequence {sequence} row {row} head {head}");
                assert!(!read.broken && !read.look_at_v);
            }
        }
    }

    /// A row is broken by what all its outputs depend on, and by nothing else.
    #[test]
    fn what_breaks_a_row() {
        let broken = |problem: &Problem, [q, k, v]: &[Tensor; 3], sequence| {
            let mut inputs = Inputs::default();
            inputs.load(problem, q, k, v);
            inputs.row(sequence, 0, 0).broken
        };
        let nan = f32::NAN.to_bits();
        // Elements of q, k and v of head 0; the second sequence's row sees packed keys 5 and 6.
        for (which, element, breaks) in [
            (0, 16, true),
            (0, 17, true),
            (0, 18, false),
            (0, 0, false),
            (1, 20, true),
            (1, 25, true),
            (1, 16, false),
            (1, 22, false),
            (2, 10, false),
        ] {
            let mut tensors = operands();
            tensors[which].bits[element] = nan;
            assert_eq!(broken(&problem(), &tensors, 1), breaks, "element {element} of {}", ["q", "k", "v"][which]);
        }
        let slope = |slope| Problem { alibi_slopes: Some(vec![slope; 4]), ..problem() };
        let sink = |sink| Problem { sinks: Some(vec![sink; 4]), ..problem() };
        assert!(!broken(&slope(0.5), &operands(), 1) && broken(&slope(f32::INFINITY), &operands(), 1));
        assert!(!broken(&sink(f32::NEG_INFINITY), &operands(), 1) && broken(&sink(f32::NAN), &operands(), 1));
        // A row that sees no key reads no score: neither a slope nor its own query can break it.
        let empty = |problem: Problem| Problem {
            sequences: Problem::plain(&[(3, 2), (0, 5)], [1, 1], [1, 1], Dtype::F32).sequences,
            ..problem
        };
        assert!(!broken(&empty(slope(f32::INFINITY)), &operands(), 0));
        assert!(broken(&empty(sink(f32::INFINITY)), &operands(), 0));
        let mut tensors = operands();
        tensors[0].bits[0] = nan;
        assert!(!broken(&empty(problem()), &tensors, 0));
    }
}
