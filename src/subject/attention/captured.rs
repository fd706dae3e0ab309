//! Real activations from a safetensors file: `q`, `k`, `v` as `[tokens, heads, dim]`, packed, and `cu_seqlens`.
//!
//! They are a source of values like any regime: sequence ids name the file's sequences and head labels its heads, both modulo
//! their number.

use super::Problem;
use super::data::{CapturedValues, TensorName};
use super::draw::CapturedShape;
use super::validate::MAX_DIM;
use crate::input_error::{InputError, shorten};
use crate::number::Dtype;
use crate::tensor::Tensor;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, TensorView};
use sha2::{Digest as _, Sha256};
use std::io::Read as _;
use std::path::Path;

/// Bytes of the largest file that is read; in memory it takes at most three times as much.
pub const MAX_FILE: u64 = 1 << 30;

/// The contents of a captured file.
#[derive(Clone, Debug, PartialEq)]
pub struct Captured {
    /// SHA-256 of the file, lower-case hex: what a case names it by.
    pub sha256: String,
    /// The file's path, as given.
    pub file_name: String,
    /// `[tokens, q_heads, d_qk]`, finite; F32, F16 or BF16 (the same in all three).
    pub q: Tensor,
    /// `[tokens, kv_heads, d_qk]`; `kv_heads` divides `q_heads`.
    pub k: Tensor,
    /// `[tokens, kv_heads, d_v]`.
    pub v: Tensor,
    /// `[sequences + 1]`: first token of each sequence, from 0 to `tokens`, increasing.
    pub cu_seqlens: Vec<u32>,
    /// From the metadata `softmax_scale`, a decimal; finite and above zero.
    pub softmax_scale: Option<f32>,
}

impl Captured {
    /// Reads a file. Tensors other than the four are ignored.
    ///
    /// # Errors
    /// Names the file and, where there is one, the tensor: unreadable, larger than [`MAX_FILE`], not safetensors or truncated, a
    /// missing tensor, another dtype or shape, values that are not finite, bad `cu_seqlens` or `softmax_scale`.
    pub fn load(path: &Path) -> Result<Captured, InputError> {
        let name = path.display().to_string();
        let unreadable = |error: std::io::Error| InputError::new(&name, format!("cannot read the captured tensors: {error}"));
        let mut bytes = Vec::new();
        std::fs::File::open(path).map_err(unreadable)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(InputError::new(name, format!("is larger than {MAX_FILE} bytes, the most for captured tensors")));
        }
        Captured::parse(&bytes, &name)
    }

    /// Reads the bytes of a file; `file_name` is for messages.
    ///
    /// # Errors
    /// As [`Captured::load`].
    pub fn parse(bytes: &[u8], file_name: &str) -> Result<Captured, InputError> {
        let broken =
            |error| InputError::new(file_name, format!("not a whole safetensors file: {}", shorten(&format!("{error}"))));
        let tensors = SafeTensors::deserialize(bytes).map_err(broken)?;
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let file = Opened { name: file_name, tensors };
        let (q, k, v) = (file.operand("q")?, file.operand("k")?, file.operand("v")?);
        file.agree(&q, &k, &v)?;
        let cu_seqlens = file.cu_seqlens(q.dims[0])?;
        let softmax_scale = match header.metadata().as_ref().and_then(|metadata| metadata.get("softmax_scale")) {
            None => None,
            Some(text) => match text.parse::<f64>().map(|scale| scale as f32) {
                Ok(scale) if scale.is_finite() && scale > 0.0 => Some(scale),
                _ => {
                    let reason = format!("metadata `{}` is not a finite number above zero", shorten(text));
                    return Err(file.error("softmax_scale", reason));
                }
            },
        };
        let digest = Sha256::digest(bytes);
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Captured { sha256, file_name: file_name.into(), q, k, v, cu_seqlens, softmax_scale })
    }

    /// Number of sequences, at least 1.
    pub fn sequences(&self) -> usize {
        self.cu_seqlens.len() - 1
    }

    /// Tokens of the sequence that an id names (`id % sequences`).
    pub fn length(&self, id: u32) -> u32 {
        let n = id as usize % self.sequences();
        self.cu_seqlens[n + 1] - self.cu_seqlens[n]
    }

    /// Heads of an operand.
    pub fn heads(&self, operand: TensorName) -> usize {
        self.tensor(operand).dims[1]
    }

    /// Head dim of an operand.
    pub fn dim(&self, operand: TensorName) -> usize {
        self.tensor(operand).dims[2]
    }

    /// One value, exact. The sequence is `id % sequences`, the head `head % heads`.
    ///
    /// # Panics
    /// If `position` is not below [`Captured::length`] or `lane` not below [`Captured::dim`]: a case drawn for this file never asks.
    pub fn value(&self, operand: TensorName, id: u32, position: u32, head: u32, lane: u32) -> f64 {
        assert!(position < self.length(id), "position {position} of sequence {id}, which has {} tokens", self.length(id));
        let tensor = self.tensor(operand);
        let (heads, dim) = (tensor.dims[1], tensor.dims[2]);
        assert!((lane as usize) < dim, "lane {lane} of a head dim of {dim}");
        let token = (self.cu_seqlens[id as usize % self.sequences()] + position) as usize;
        tensor.dtype.to_f64(tensor.bits[(token * heads + head as usize % heads) * dim + lane as usize])
    }

    /// What drawing needs to know of it. Sequences without tokens cannot be drawn and keep length 0.
    pub fn shape(&self) -> CapturedShape {
        let kv_heads = self.heads(TensorName::K);
        CapturedShape {
            sha256: self.sha256.clone(),
            lengths: (0..self.sequences() as u32).map(|id| self.length(id)).collect(),
            kv_heads: kv_heads as u32,
            groups: (self.heads(TensorName::Q) / kv_heads) as u32,
            d_qk: self.dim(TensorName::K) as u32,
            d_v: self.dim(TensorName::V) as u32,
            // Without the metadata, the usual 1 / sqrt(d).
            softmax_scale: self.softmax_scale.unwrap_or((1.0 / (self.dim(TensorName::K) as f64).sqrt()) as f32),
        }
    }

    /// Whether every value that a case asks for is there.
    ///
    /// # Errors
    /// Which length or dim goes past the file.
    pub fn fits(&self, problem: &Problem) -> Result<(), String> {
        for (what, asked, held) in
            [("d_qk", problem.d_qk, self.dim(TensorName::K)), ("d_v", problem.d_v, self.dim(TensorName::V))]
        {
            if asked as usize > held {
                return Err(format!("{what} = {asked}, but {} has {held} lanes", self.file_name));
            }
        }
        for sequence in &problem.sequences {
            let held = self.length(sequence.id);
            // A query row stands at its position, and rows before the first one stand at token 0.
            if sequence.kv > held || (sequence.q > 0 && held == 0) {
                let (id, kv) = (sequence.id, sequence.kv);
                return Err(format!("sequence {id} has kv = {kv}, but {} holds {held} tokens of it", self.file_name));
            }
        }
        Ok(())
    }

    fn tensor(&self, operand: TensorName) -> &Tensor {
        match operand {
            TensorName::Q => &self.q,
            TensorName::K => &self.k,
            TensorName::V => &self.v,
        }
    }
}

struct Opened<'a> {
    name: &'a str,
    tensors: SafeTensors<'a>,
}

impl<'a> Opened<'a> {
    fn error(&self, tensor: &str, reason: impl Into<String>) -> InputError {
        InputError::new(self.name, reason).field(tensor)
    }

    fn view(&self, tensor: &str) -> Result<TensorView<'a>, InputError> {
        self.tensors.tensor(tensor).map_err(|_| {
            let names: Vec<String> = self.tensors.names().into_iter().take(8).map(shorten).collect();
            self.error(tensor, format!("no such tensor; q, k, v and cu_seqlens are needed, the file has: {}", names.join(", ")))
        })
    }

    fn operand(&self, name: &str) -> Result<Tensor, InputError> {
        let view = self.view(name)?;
        let dtype = match view.dtype() {
            FileDtype::F32 => Dtype::F32,
            FileDtype::F16 => Dtype::F16,
            FileDtype::BF16 => Dtype::BF16,
            other => return Err(self.error(name, format!("has dtype {other:?}; F32, F16 or BF16 is needed"))),
        };
        let &[_, heads, dim] = view.shape() else {
            return Err(self.error(name, format!("has shape {:?}; [tokens, heads, dim] is needed", view.shape())));
        };
        if heads == 0 || dim == 0 || dim > MAX_DIM as usize {
            let reason = format!("has {heads} heads of dim {dim}; at least one head and a dim of 1 to {MAX_DIM} are needed");
            return Err(self.error(name, reason));
        }
        let bits: Vec<u32> = match dtype {
            Dtype::F32 => view.data().as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect(),
            _ => view.data().as_chunks::<2>().0.iter().map(|&bytes| u16::from_le_bytes(bytes).into()).collect(),
        };
        if let Some(at) = bits.iter().position(|&bits| !dtype.class(bits).is_finite()) {
            let (token, head, lane) = (at / (heads * dim), at / dim % heads, at % dim);
            let value = dtype.to_f32(bits[at]);
            return Err(self.error(name, format!("{value} at token {token}, head {head}, lane {lane}; values must be finite")));
        }
        Ok(Tensor { dtype, dims: view.shape().to_vec(), bits })
    }

    /// Shapes and dtypes of the three against each other.
    fn agree(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(), InputError> {
        for (name, tensor) in [("k", k), ("v", v)] {
            if tensor.dtype != q.dtype {
                return Err(self.error(name, format!("is {}, but q is {}; one dtype is needed", tensor.dtype, q.dtype)));
            }
            if tensor.dims[0] != q.dims[0] {
                return Err(self.error(name, format!("has {} tokens, but q has {}", tensor.dims[0], q.dims[0])));
            }
        }
        if k.dims[2] != q.dims[2] {
            return Err(self.error("k", format!("has head dim {}, but q has {}", k.dims[2], q.dims[2])));
        }
        if !q.dims[1].is_multiple_of(k.dims[1]) {
            return Err(self.error("k", format!("has {} heads, which do not divide the {} of q", k.dims[1], q.dims[1])));
        }
        if v.dims[1] != k.dims[1] {
            return Err(self.error("v", format!("has {} heads, but k has {}", v.dims[1], k.dims[1])));
        }
        Ok(())
    }

    fn cu_seqlens(&self, tokens: usize) -> Result<Vec<u32>, InputError> {
        let name = "cu_seqlens";
        let view = self.view(name)?;
        if view.shape().len() != 1 || view.shape()[0] < 2 {
            let reason = format!("has shape {:?}; [sequences + 1] with at least one sequence is needed", view.shape());
            return Err(self.error(name, reason));
        }
        let offsets: Vec<i64> = match view.dtype() {
            FileDtype::I32 => view.data().as_chunks::<4>().0.iter().map(|&bytes| i32::from_le_bytes(bytes).into()).collect(),
            FileDtype::I64 => view.data().as_chunks::<8>().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect(),
            other => return Err(self.error(name, format!("has dtype {other:?}; I32 or I64 is needed"))),
        };
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        if first != 0 || usize::try_from(last) != Ok(tokens) {
            return Err(self.error(name, format!("runs from {first} to {last}; 0 to {tokens}, the number of tokens, is needed")));
        }
        if let Some(n) = offsets.windows(2).position(|pair| pair[0] >= pair[1]) {
            let reason = format!("goes from {} to {} at sequence {n}; it must increase", offsets[n], offsets[n + 1]);
            return Err(self.error(name, reason));
        }
        let narrow = |&offset: &i64| u32::try_from(offset).map_err(|_| self.error(name, "has more than 2^32 tokens"));
        offsets.iter().map(narrow).collect()
    }
}

impl CapturedValues for Captured {
    fn value(&self, tensor: TensorName, sequence_id: u32, position: u32, head_label: u32, lane: u32) -> f64 {
        let head = match tensor {
            // Query heads of a file stand group by group.
            TensorName::Q => {
                let groups = (self.heads(TensorName::Q) / self.heads(TensorName::K)) as u32;
                head_label / 64 * groups + head_label % 64 % groups
            }
            TensorName::K | TensorName::V => head_label,
        };
        Captured::value(self, tensor, sequence_id, position, head, lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    type Parts = Vec<(&'static str, FileDtype, Vec<usize>, Vec<u8>)>;

    fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
        values.into_iter().flat_map(f32::to_le_bytes).collect()
    }

    fn integers(values: &[i32]) -> Vec<u8> {
        values.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    /// Three tokens in two sequences, two query heads over one KV head, `d_qk` 2, `d_v` 1.
    fn parts() -> Parts {
        vec![
            ("q", FileDtype::F32, vec![3, 2, 2], floats((0..12).map(|n| n as f32))),
            ("k", FileDtype::F32, vec![3, 1, 2], floats((0..6).map(|n| 100.0 + n as f32))),
            ("v", FileDtype::F32, vec![3, 1, 1], floats((0..3).map(|n| 200.0 + n as f32))),
            ("cu_seqlens", FileDtype::I32, vec![3], integers(&[0, 2, 3])),
        ]
    }

    fn bytes(parts: &Parts, scale: Option<&str>) -> Vec<u8> {
        let views = parts.iter().map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        let metadata = scale.map(|scale| HashMap::from([("softmax_scale".to_string(), scale.to_string())]));
        safetensors::serialize(views, metadata).unwrap()
    }

    #[test]
    fn values_are_found_by_sequence_position_head_and_lane() {
        let captured = Captured::parse(&bytes(&parts(), Some("0.5")), "x").unwrap();
        assert_eq!((captured.sequences(), captured.length(0), captured.length(1), captured.length(5)), (2, 2, 1, 1));
        assert_eq!(captured.softmax_scale, Some(0.5));
        assert_eq!(captured.value(TensorName::Q, 0, 1, 1, 0), 6.0);
        // Sequence 3 is sequence 1, head 3 is head 1.
        assert_eq!(captured.value(TensorName::Q, 3, 0, 3, 1), 11.0);
        assert_eq!(captured.value(TensorName::K, 1, 0, 7, 1), 105.0);
        assert_eq!(captured.value(TensorName::V, 0, 1, 0, 0), 201.0);
    }

    #[test]
    fn sixteen_bit_tensors_and_64_bit_offsets_load() {
        let mut parts = parts();
        for part in &mut parts[..3] {
            part.1 = FileDtype::BF16;
            part.3 = part.3.chunks(4).flat_map(|value| [value[2], value[3]]).collect();
        }
        parts[3] = ("cu_seqlens", FileDtype::I64, vec![3], [0i64, 2, 3].iter().flat_map(|n| n.to_le_bytes()).collect());
        let captured = Captured::parse(&bytes(&parts, None), "x").unwrap();
        assert_eq!((captured.q.dtype, captured.value(TensorName::Q, 0, 1, 1, 0)), (Dtype::BF16, 6.0));
    }

    #[test]
    fn the_committed_slice_loads() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/minilm-slice.safetensors");
        let captured = Captured::load(&path).unwrap();
        assert_eq!((captured.q.dims.as_slice(), captured.cu_seqlens.as_slice()), (&[25, 2, 32][..], &[0, 20, 25][..]));
        assert_eq!(captured.softmax_scale, Some(0.176_776_69));
        assert_eq!(captured.sha256.len(), 64);
        assert!(captured.value(TensorName::V, 1, 4, 1, 31).abs() < 100.0);
    }

    #[test]
    fn every_fault_names_the_file_and_the_tensor() {
        type Change = fn(&mut Parts);
        let table: &[(&str, Change, &str)] = &[
            ("q", |p| _ = p.remove(0), "no such tensor"),
            ("cu_seqlens", |p| _ = p.remove(3), "no such tensor"),
            ("q", |p| p[0].1 = FileDtype::I32, "dtype I32"),
            ("q", |p| p[0].2 = vec![12], "shape [12]"),
            ("v", |p| (p[2].2, p[2].3) = (vec![3, 0, 1], vec![]), "0 heads"),
            ("k", |p| (p[1].2, p[1].3) = (vec![3, 1, 600], floats(vec![0.0; 1800])), "dim 600"),
            ("v", |p| (p[2].1, p[2].3) = (FileDtype::F16, vec![0; 6]), "is f16, but q is f32"),
            ("v", |p| (p[2].2, p[2].3) = (vec![2, 1, 1], floats([0.0; 2])), "has 2 tokens, but q has 3"),
            ("k", |p| p[1].2 = vec![3, 2, 1], "has head dim 1, but q has 2"),
            ("k", |p| (p[1].2, p[1].3) = (vec![3, 3, 2], floats([0.0; 18])), "do not divide"),
            ("v", |p| (p[2].2, p[2].3) = (vec![3, 2, 1], floats([0.0; 6])), "has 2 heads, but k has 1"),
            ("k", |p| p[1].3 = floats([0.0, 0.0, 0.0, f32::NAN, 0.0, 0.0]), "NaN at token 1, head 0, lane 1"),
            ("v", |p| p[2].3 = floats([0.0, 0.0, f32::INFINITY]), "inf at token 2"),
            ("cu_seqlens", |p| (p[3].1, p[3].3) = (FileDtype::F32, floats([0.0, 2.0, 3.0])), "dtype F32"),
            ("cu_seqlens", |p| (p[3].2, p[3].3) = (vec![1], integers(&[0])), "shape [1]"),
            ("cu_seqlens", |p| p[3].3 = integers(&[0, 2, 4]), "from 0 to 4"),
            ("cu_seqlens", |p| p[3].3 = integers(&[1, 2, 3]), "from 1 to 3"),
            ("cu_seqlens", |p| p[3].3 = integers(&[0, 0, 3]), "must increase"),
            ("cu_seqlens", |p| p[3].3 = integers(&[0, -5, 3]), "must increase"),
        ];
        for (field, change, reason) in table {
            let mut parts = parts();
            change(&mut parts);
            let error = Captured::parse(&bytes(&parts, None), "acts.safetensors").unwrap_err();
            let shown = error.to_string();
            assert!(shown.starts_with(&format!("acts.safetensors: {field}: ")) && shown.contains(reason), "{reason}: {shown}");
        }
        for scale in ["0", "-1", "nan", "1e99", "one"] {
            let shown = Captured::parse(&bytes(&parts(), Some(scale)), "x").unwrap_err().to_string();
            assert!(shown.starts_with("x: softmax_scale: "), "{shown}");
        }
    }

    #[test]
    fn truncated_and_foreign_bytes_are_refused() {
        let whole = bytes(&parts(), Some("1"));
        for length in 0..whole.len() {
            let shown = Captured::parse(&whole[..length], "x").unwrap_err().to_string();
            assert!(shown.starts_with("x: not a whole safetensors file"), "{length}: {shown}");
        }
        let mut deep = b"{\"a\":".repeat(20_000);
        let mut file = (deep.len() as u64).to_le_bytes().to_vec();
        file.append(&mut deep);
        assert!(Captured::parse(&file, "x").is_err());
        assert!(Captured::parse(&u64::MAX.to_le_bytes(), "x").is_err());
        let missing = Captured::load(Path::new("no-such-file.safetensors")).unwrap_err().to_string();
        assert!(missing.starts_with("no-such-file.safetensors: cannot read the captured tensors"), "{missing}");
    }
}
