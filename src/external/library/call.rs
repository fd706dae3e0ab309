//! One call of a library's function: its arguments, and what came of it.

use super::abi;
use super::guarded::{Laid, Memory, Parts, Place};
use crate::finding::Breakage;
use crate::subject::attention::kernel::{Attributes, DenseCall, KernelError, Outputs, PagedCall, VarlenCall};
use crate::subject::attention::{Anchor, Shards, Side};
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, PoisonError};

/// Bytes of the error text, the closing zero included.
const ERROR_CAPACITY: usize = 4096;

/// Held during every call into any library: two libraries of a process may share a runtime that is not made for two callers.
static CALLS: Mutex<Memory> = Mutex::new(Memory::new());

/// Packed tensors.
pub(super) fn varlen(
    function: abi::Function<abi::VarlenArgs>,
    call: &VarlenCall<'_>,
    outputs: Outputs<'_>,
    lse: bool,
) -> Result<(), KernelError> {
    let mut parts = Parts::default();
    let q = parts.read("q", call.q);
    let k = parts.read("k", call.k);
    let v = parts.read("v", call.v);
    let cu_seqlens_q = parts.integers("cu_seqlens_q", call.cu_seqlens_q, None);
    let cu_seqlens_k = parts.integers("cu_seqlens_k", call.cu_seqlens_k, None);
    run("lastbit_varlen", function, call.attributes, parts, outputs, lse, |head, laid, o, lse| abi::VarlenArgs {
        head,
        q: laid.tensor(q),
        k: laid.tensor(k),
        v: laid.tensor(v),
        cu_seqlens_q: laid.tensor(cu_seqlens_q),
        cu_seqlens_k: laid.tensor(cu_seqlens_k),
        o,
        lse,
    })
}

/// Padded tensors.
pub(super) fn dense(
    function: abi::Function<abi::DenseArgs>,
    call: &DenseCall<'_>,
    outputs: Outputs<'_>,
    lse: bool,
) -> Result<(), KernelError> {
    let mut parts = Parts::default();
    let q = parts.read("q", call.q);
    let k = parts.read("k", call.k);
    let v = parts.read("v", call.v);
    let lengths_q = parts.integers("lengths_q", call.lengths_q, None);
    let lengths_kv = parts.integers("lengths_kv", call.lengths_kv, None);
    let padding = match call.padding {
        Side::Right => 0,
        Side::Left => 1,
    };
    run("lastbit_dense", function, call.attributes, parts, outputs, lse, |head, laid, o, lse| abi::DenseArgs {
        head,
        q: laid.tensor(q),
        k: laid.tensor(k),
        v: laid.tensor(v),
        lengths_q: laid.tensor(lengths_q),
        lengths_kv: laid.tensor(lengths_kv),
        o,
        lse,
        padding,
    })
}

/// New rows against a KV cache.
pub(super) fn paged(
    function: abi::Function<abi::PagedArgs>,
    call: &PagedCall<'_>,
    outputs: Outputs<'_>,
    lse: bool,
) -> Result<(), KernelError> {
    let mut parts = Parts::default();
    let q = parts.read("q", call.q);
    let k_cache = parts.read("k_cache", call.k_cache);
    let v_cache = parts.read("v_cache", call.v_cache);
    let (block_table, cache_rows) = match call.block_table {
        Some(table) => {
            let batch = call.cache_seqlens.len();
            (parts.integers("block_table", table.pages, Some([batch, table.width])), None)
        }
        None => (None, parts.integers("cache_rows", call.cache_rows, None)),
    };
    let cache_seqlens = parts.integers("cache_seqlens", call.cache_seqlens, None);
    let cu_seqlens_q = parts.integers("cu_seqlens_q", call.cu_seqlens_q, None);
    let prefix_lens = parts.integers("prefix_lens", call.prefix_lens, None);
    run("lastbit_paged", function, call.attributes, parts, outputs, lse, |head, laid, o, lse| abi::PagedArgs {
        head,
        q: laid.tensor(q),
        k_cache: laid.tensor(k_cache),
        v_cache: laid.tensor(v_cache),
        block_table: laid.tensor(block_table),
        cache_rows: laid.tensor(cache_rows),
        cache_seqlens: laid.tensor(cache_seqlens),
        cu_seqlens_q: laid.tensor(cu_seqlens_q),
        prefix_lens: laid.tensor(prefix_lens),
        o,
        lse,
    })
}

/// Lays the attributes' and the outputs' tensors out too, calls, and looks at what was written where.
#[allow(unsafe_code)]
fn run<'a, Args>(
    name: &str,
    function: abi::Function<Args>,
    attributes: &'a Attributes<'a>,
    mut parts: Parts<'a>,
    outputs: Outputs<'a>,
    has_lse: bool,
    args: impl FnOnce(abi::Head, &mut Laid<'_, '_>, abi::Tensor, abi::Tensor) -> Args,
) -> Result<(), KernelError> {
    let sinks = parts.values("sinks", attributes.sinks);
    let alibi_slopes = parts.values("alibi_slopes", attributes.alibi_slopes);
    let k_scales = parts.values("k_scales", attributes.kv_scales.map(|scales| scales.k));
    let v_scales = parts.values("v_scales", attributes.kv_scales.map(|scales| scales.v));
    let o = parts.write("o", outputs.o);
    let lse = if has_lse { parts.write("lse", outputs.lse) } else { None };
    let texts = knobs(attributes)?;
    let knobs: Vec<abi::Knob> =
        texts.iter().map(|[name, value]| abi::Knob { name: name.as_ptr(), value: value.as_ptr() }).collect();
    let mut error: [c_char; ERROR_CAPACITY] = [0; ERROR_CAPACITY];

    // A panic in a call before this one left nothing that matters: memory is laid out anew.
    let mut memory = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut laid = memory.lay(parts);
    let mut tensors = |place: [Option<Place>; 4]| place.map(|place| laid.tensor(place));
    let attributes = packed(attributes, tensors([sinks, alibi_slopes, k_scales, v_scales]), &knobs);
    let head = abi::Head {
        struct_size: size_of::<Args>() as u64,
        attributes: &attributes,
        error: error.as_mut_ptr(),
        error_capacity: ERROR_CAPACITY as u64,
    };
    let (o, lse) = (laid.tensor(o), laid.tensor(lse));
    let args = args(head, &mut laid, o, lse);
    // SAFETY: the function has this type, or the library does not keep to the header (`load`). `args` and all that it points to (texts,
    // attributes, shapes, tensors) are laid out as the header says and live until the call returns; no reference to the
    // memory is held meanwhile, and `CALLS` keeps other calls away. What the function writes is up to it: a write near a tensor is found
    // by `finish`, and for others the library runs in a process of its own.
    let status = unsafe { function(&args) };
    laid.finish()
        .map_err(|detail| KernelError::Broken { breakage: Breakage::WroteOutside, detail: format!("{name} {detail}") })?;
    drop(memory);
    match status {
        0 => Ok(()),
        1 => Err(KernelError::Unsupported(reason(&error))),
        2 => Err(KernelError::Failed(reason(&error))),
        3 => Err(KernelError::Broken { breakage: Breakage::DeviceError, detail: reason(&error) }),
        other => Err(KernelError::Failed(format!("{name} returned {other}, which is none of 0, 1, 2 and 3: {}", reason(&error)))),
    }
}

fn packed(attributes: &Attributes<'_>, tensors: [abi::Tensor; 4], knobs: &[abi::Knob]) -> abi::Attributes {
    // No `..`: an attribute that is added must be passed on.
    let &Attributes {
        q_heads,
        kv_heads,
        d_qk,
        d_v,
        softmax_scale,
        mask,
        softcap,
        sinks: _,
        alibi_slopes: _,
        block_q,
        kv_scales: _,
        context,
        out_dtype: _, // that of `o`
        knobs: _,
    } = attributes;
    let [sinks, alibi_slopes, k_scales, v_scales] = tensors;
    abi::Attributes {
        struct_size: size_of::<abi::Attributes>() as u64,
        q_heads: q_heads as i64,
        kv_heads: kv_heads as i64,
        d_qk: d_qk as i64,
        d_v: d_v as i64,
        softmax_scale,
        softcap: softcap.unwrap_or(f32::NAN),
        window_left: mask.window_left.map_or(-1, i64::from),
        window_right: mask.window_right.map_or(-1, i64::from),
        causal: match mask.causal {
            None => 0,
            Some(Anchor::BottomRight) => 1,
            Some(Anchor::TopLeft) => 2,
        },
        block_q: block_q as i32,
        sinks,
        alibi_slopes,
        k_scales,
        v_scales,
        context_ranks: context.map_or(0, |context| context.ranks as i32),
        context_shards: context.map_or(0, |context| match context.shards {
            Shards::Contiguous => 0,
            Shards::Zigzag => 1,
        }),
        context_length: context.map_or(0, |context| i64::from(context.length)),
        knob_count: knobs.len() as u64,
        knobs: knobs.as_ptr(),
    }
}

fn knobs(attributes: &Attributes<'_>) -> Result<Vec<[CString; 2]>, KernelError> {
    let text = |text: &String| {
        CString::new(text.as_str())
            .map_err(|_| KernelError::Failed(format!("knob text {text:?} holds a zero byte, which C cannot read")))
    };
    attributes.knobs.iter().map(|(name, value)| Ok([text(name)?, text(value)?])).collect()
}

/// What the kernel wrote into the error buffer.
fn reason(error: &[c_char; ERROR_CAPACITY]) -> String {
    let bytes = error.map(|c| c as u8);
    let text = CStr::from_bytes_until_nul(&bytes).map_or(&bytes[..], CStr::to_bytes);
    let text = String::from_utf8_lossy(text);
    let line = text.trim().replace(char::is_control, " ");
    if line.is_empty() { "the library gave no reason".into() } else { line }
}
