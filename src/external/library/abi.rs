//! `include/lastbit.h` in Rust: the same structs, field for field. `tests/library.rs` has a C compiler compare sizes and offsets.

use crate::number::Dtype;
use std::ffi::{c_char, c_void};

/// What `lastbit_abi_version` must return.
pub const VERSION: u32 = 1;

/// `lastbit_device`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// `DLDeviceType`.
    pub kind: i32,
    /// Number of the device.
    pub id: i32,
}

/// Host memory.
pub const CPU: Device = Device { kind: 1, id: 0 };

/// `lastbit_dtype`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementType {
    /// `DLDataTypeCode`.
    pub code: u8,
    /// Width.
    pub bits: u8,
    /// 1.
    pub lanes: u16,
}

/// Lengths, offsets and pages.
pub const I32: ElementType = ElementType { code: 0, bits: 32, lanes: 1 };

impl From<Dtype> for ElementType {
    fn from(dtype: Dtype) -> Self {
        let code = match dtype {
            Dtype::F32 | Dtype::F16 => 2,
            Dtype::BF16 => 4,
            Dtype::E4M3 => 10,
            Dtype::E5M2 => 12,
        };
        ElementType { code, bits: dtype.bits() as u8, lanes: 1 }
    }
}

/// `lastbit_tensor`, which is `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// First element; null for a tensor that is not there.
    pub data: *mut c_void,
    /// Where it lies.
    pub device: Device,
    /// Axes.
    pub ndim: i32,
    /// Element type.
    pub dtype: ElementType,
    /// `[ndim]`.
    pub shape: *mut i64,
    /// `[ndim]`, in elements.
    pub strides: *mut i64,
    /// 0.
    pub byte_offset: u64,
}

impl Tensor {
    /// A tensor that the problem does not have.
    pub const NONE: Tensor = Tensor {
        data: std::ptr::null_mut(),
        device: CPU,
        ndim: 0,
        dtype: ElementType { code: 0, bits: 0, lanes: 1 },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
}

/// `lastbit_knob`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Ended by a zero byte.
    pub name: *const c_char,
    /// Ended by a zero byte.
    pub value: *const c_char,
}

/// `lastbit_attributes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the header says what they are
pub struct Attributes {
    pub struct_size: u64,
    pub q_heads: i64,
    pub kv_heads: i64,
    pub d_qk: i64,
    pub d_v: i64,
    pub softmax_scale: f32,
    pub softcap: f32,
    pub window_left: i64,
    pub window_right: i64,
    pub causal: i32,
    pub block_q: i32,
    pub sinks: Tensor,
    pub alibi_slopes: Tensor,
    pub k_scales: Tensor,
    pub v_scales: Tensor,
    pub context_ranks: i32,
    pub context_shards: i32,
    pub context_length: i64,
    pub knob_count: u64,
    pub knobs: *const Knob,
}

/// What every call form begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the header says what they are
pub struct Head {
    pub struct_size: u64,
    pub attributes: *const Attributes,
    pub error: *mut c_char,
    pub error_capacity: u64,
}

/// `lastbit_varlen_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the header says what they are
pub struct VarlenArgs {
    pub head: Head,
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    pub cu_seqlens_q: Tensor,
    pub cu_seqlens_k: Tensor,
    pub o: Tensor,
    pub lse: Tensor,
}

/// `lastbit_dense_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the header says what they are
pub struct DenseArgs {
    pub head: Head,
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    pub lengths_q: Tensor,
    pub lengths_kv: Tensor,
    pub o: Tensor,
    pub lse: Tensor,
    pub padding: i64,
}

/// `lastbit_paged_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the header says what they are
pub struct PagedArgs {
    pub head: Head,
    pub q: Tensor,
    pub k_cache: Tensor,
    pub v_cache: Tensor,
    pub block_table: Tensor,
    pub cache_rows: Tensor,
    pub cache_seqlens: Tensor,
    pub cu_seqlens_q: Tensor,
    pub prefix_lens: Tensor,
    pub o: Tensor,
    pub lse: Tensor,
}

/// `lastbit_varlen`, `lastbit_dense` or `lastbit_paged`.
pub type Function<Args> = unsafe extern "C" fn(*const Args) -> i32;
