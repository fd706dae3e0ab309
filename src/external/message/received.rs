//! A call that came.

use super::attributes::Owned;
use crate::external::frame::{BODY_LIMIT, Element, Layout};
use crate::number::Dtype;
use crate::subject::attention::Side;
use crate::subject::attention::kernel::{Attributes, BlockTable, Call, DenseCall, KvScales, PagedCall, VarlenCall};
use crate::tensor::Tensor;
use std::io::{self, Read};

/// What former calls leave to later ones.
#[derive(Debug, Default)]
pub struct Kept {
    /// Vectors: fresh pages are what large tensors would spend their time on.
    vectors: Vec<Vec<u32>>,
    /// The last attributes, as text and read: calls of one problem have the same.
    attributes: Option<(String, Owned)>,
}

impl Kept {
    /// Vectors kept: about the tensors of two calls.
    const VECTORS: usize = 24;

    /// The vector whose length is nearest, or a new one.
    pub fn vector(&mut self, elements: usize) -> Vec<u32> {
        let nearest = (0..self.vectors.len()).min_by_key(|&n| self.vectors[n].len().abs_diff(elements));
        nearest.map(|n| self.vectors.swap_remove(n)).unwrap_or_default()
    }

    /// Keeps vectors; lets those go that calls had no use for.
    pub fn keep(&mut self, vectors: impl IntoIterator<Item = Vec<u32>>) {
        self.vectors.extend(vectors);
        let excess = self.vectors.len().saturating_sub(Self::VECTORS);
        self.vectors.drain(..excess);
    }

    fn attributes(&mut self, text: &str) -> Result<Owned, String> {
        match &self.attributes {
            Some((last, owned)) if last == text => Ok(owned.clone()),
            _ => {
                let owned = Owned::parse(text)?;
                self.attributes = Some((text.to_owned(), owned.clone()));
                Ok(owned)
            }
        }
    }
}

/// A call that came, with the tensors it owns.
#[derive(Debug)]
pub struct Received {
    attributes: Owned,
    form: String,
    padding: Side,
    tensors: Vec<(String, Element, Tensor)>,
}

/// A call that cannot be understood.
#[derive(Debug)]
pub enum Unreadable {
    /// The source failed or ended; nothing after it can be read.
    Source(io::Error),
    /// It was read to its end, and is no call.
    Call(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Unreadable::Source(error)
    }
}

impl Received {
    /// Reads a body of `length` bytes.
    ///
    /// # Errors
    /// [`Unreadable::Source`] also for a body that is no safetensors blob: its end is not known.
    pub fn read(from: &mut impl Read, length: u64, kept: &mut Kept) -> Result<Received, Unreadable> {
        let layout = Layout::read(from, length)?;
        let mut tensors = Vec::with_capacity(layout.tensors.len());
        for stored in &layout.tensors {
            let mut bits = kept.vector(stored.elements);
            stored.read(&mut bits, from)?;
            let dtype = match stored.element {
                Element::Float(dtype) => dtype,
                Element::I32 => Dtype::F32,
            };
            tensors.push((stored.name.clone(), stored.element, Tensor { dtype, dims: stored.dims.clone(), bits }));
        }
        let scalar = |name: &str| layout.scalar(name).ok_or_else(|| Unreadable::Call(format!("no `{name}` in the metadata")));
        let form = scalar("form")?.to_owned();
        let attributes = kept.attributes(scalar("attributes")?).map_err(Unreadable::Call)?;
        let padding = match layout.scalar("padding") {
            Some("left") => Side::Left,
            Some("right") => Side::Right,
            None if form != "dense" => Side::Right,
            other => return Err(Unreadable::Call(format!("padding {other:?}"))),
        };
        Ok(Received { attributes, form, padding, tensors })
    }

    /// Its vectors, to be [kept](Kept::keep).
    pub fn into_vectors(self) -> impl Iterator<Item = Vec<u32>> {
        self.tensors.into_iter().map(|(_, _, tensor)| tensor.bits)
    }

    /// Whether results are wanted with `lse`.
    pub fn lse(&self) -> bool {
        self.attributes.lse
    }

    /// Format and sizes of `o`.
    ///
    /// # Errors
    /// When there is no `q` to say them.
    pub fn output(&self) -> Result<(Dtype, Vec<usize>), String> {
        let mut dims = self.float("q")?.dims.clone();
        *dims.last_mut().ok_or("q has no dims")? = self.attributes.d_v;
        let elements = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
        // As long an answer as a body may be.
        let fits = elements.is_some_and(|it| it as u64 <= BODY_LIMIT / 4);
        if fits { Ok((self.attributes.out_dtype, dims)) } else { Err(format!("an output of {dims:?} elements")) }
    }

    fn float(&self, name: &str) -> Result<&Tensor, String> {
        match self.tensors.iter().find(|(it, ..)| it == name) {
            Some((_, Element::Float(_), tensor)) => Ok(tensor),
            Some((_, element, _)) => Err(format!("`{name}` is {}", element.name())),
            None => Err(format!("no tensor `{name}`")),
        }
    }

    fn integers(&self, name: &str) -> Result<&Tensor, String> {
        match self.tensors.iter().find(|(it, ..)| it == name) {
            Some((_, Element::I32, tensor)) => Ok(tensor),
            Some((_, element, _)) => Err(format!("`{name}` is {}", element.name())),
            None => Err(format!("no tensor `{name}`")),
        }
    }

    fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, String> {
        if !self.tensors.iter().any(|(it, ..)| it == name) {
            return Ok(None);
        }
        let tensor = self.float(name)?;
        if tensor.dtype == Dtype::F32 { Ok(Some(tensor.to_f32())) } else { Err(format!("`{name}` is {}", tensor.dtype)) }
    }

    /// Makes the call.
    ///
    /// # Errors
    /// What of it is missing or of another kind.
    pub fn make<R>(&self, run: impl FnOnce(Call<'_>) -> R) -> Result<R, String> {
        let (sinks, slopes) = (self.floats("sinks")?, self.floats("alibi_slopes")?);
        let scales = match (self.floats("k_scales")?, self.floats("v_scales")?) {
            (Some(k), Some(v)) if !k.is_empty() && !v.is_empty() => Some((k, v)),
            (None, None) => None,
            _ => return Err("`k_scales` and `v_scales` come together".into()),
        };
        let it = &self.attributes;
        let attributes = Attributes {
            q_heads: it.q_heads,
            kv_heads: it.kv_heads,
            d_qk: it.d_qk,
            d_v: it.d_v,
            softmax_scale: it.softmax_scale,
            mask: it.mask,
            softcap: it.softcap,
            sinks: sinks.as_deref(),
            alibi_slopes: slopes.as_deref(),
            block_q: it.block_q,
            kv_scales: scales.as_ref().map(|(k, v)| KvScales { k, v }),
            context: it.context,
            out_dtype: it.out_dtype,
            knobs: &it.knobs,
        };
        let attributes = &attributes;
        let list = |name: &str| Ok::<_, String>(self.integers(name)?.bits.as_slice());
        let (q, float) = (self.float("q")?, |name: &str| self.float(name));
        match self.form.as_str() {
            "varlen" => Ok(run(Call::Varlen(&VarlenCall {
                attributes,
                q,
                k: float("k")?,
                v: float("v")?,
                cu_seqlens_q: list("cu_seqlens_q")?,
                cu_seqlens_k: list("cu_seqlens_k")?,
            }))),
            "dense" => Ok(run(Call::Dense(&DenseCall {
                attributes,
                q,
                k: float("k")?,
                v: float("v")?,
                padding: self.padding,
                lengths_q: list("lengths_q")?,
                lengths_kv: list("lengths_kv")?,
            }))),
            "paged" => {
                let table = self.tensors.iter().any(|(name, ..)| name == "block_table");
                let table = if table { Some(self.integers("block_table")?) } else { None };
                let block_table = match table.map(|table| (table, &table.dims[..])) {
                    Some((table, &[_, width])) => Some(BlockTable { pages: &table.bits, width }),
                    Some((_, dims)) => return Err(format!("block_table is {dims:?}")),
                    None => None,
                };
                Ok(run(Call::Paged(&PagedCall {
                    attributes,
                    q,
                    k_cache: float("k_cache")?,
                    v_cache: float("v_cache")?,
                    block_table,
                    cache_rows: if block_table.is_some() { &[] } else { list("cache_rows")? },
                    cache_seqlens: list("cache_seqlens")?,
                    cu_seqlens_q: list("cu_seqlens_q")?,
                    prefix_lens: list("prefix_lens")?,
                })))
            }
            other => Err(format!("form `{other}`")),
        }
    }
}
