//! `include/lastbit.h` in Rust: the same structs, field for field. The tests have C and C++ compilers compare sizes and offsets.

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::mem::offset_of;
    use std::path::Path;
    use std::process::Command;

    /// One assertion in C for the size of each struct, and one for the offset of each field.
    fn assertions() -> String {
        let mut text = String::from("#include \"lastbit.h\"\n#include <stddef.h>\n");
        macro_rules! same {
            ($c:literal, $rust:ty: $($field:literal = $($path:ident).+),+) => {
                writeln!(text, "ASSERT(sizeof({}) == {}, \"sizeof {}\");", $c, size_of::<$rust>(), $c).unwrap();
                $(writeln!(text, "ASSERT(offsetof({}, {}) == {}, \"{}.{}\");",
                    $c, $field, offset_of!($rust, $($path).+), $c, $field).unwrap();)+
            };
        }
        same!("lastbit_device", Device: "type" = kind, "id" = id);
        same!("lastbit_dtype", ElementType: "code" = code, "bits" = bits, "lanes" = lanes);
        same!("lastbit_tensor", Tensor: "data" = data, "device" = device, "ndim" = ndim, "dtype" = dtype, "shape" = shape,
            "strides" = strides, "byte_offset" = byte_offset);
        same!("lastbit_knob", Knob: "name" = name, "value" = value);
        same!("lastbit_attributes", Attributes: "struct_size" = struct_size, "q_heads" = q_heads, "kv_heads" = kv_heads, "d_qk" = d_qk,
            "d_v" = d_v, "softmax_scale" = softmax_scale, "softcap" = softcap, "window_left" = window_left,
            "window_right" = window_right, "causal" = causal, "block_q" = block_q, "sinks" = sinks, "alibi_slopes" = alibi_slopes,
            "k_scales" = k_scales, "v_scales" = v_scales, "context_ranks" = context_ranks, "context_shards" = context_shards,
            "context_length" = context_length, "knob_count" = knob_count, "knobs" = knobs);
        same!("lastbit_varlen_args", VarlenArgs: "struct_size" = head.struct_size, "attributes" = head.attributes,
            "error" = head.error, "error_capacity" = head.error_capacity, "q" = q, "k" = k, "v" = v, "cu_seqlens_q" = cu_seqlens_q,
            "cu_seqlens_k" = cu_seqlens_k, "o" = o, "lse" = lse);
        same!("lastbit_dense_args", DenseArgs: "struct_size" = head.struct_size, "attributes" = head.attributes,
            "error" = head.error, "error_capacity" = head.error_capacity, "q" = q, "k" = k, "v" = v, "lengths_q" = lengths_q,
            "lengths_kv" = lengths_kv, "o" = o, "lse" = lse, "padding" = padding);
        same!("lastbit_paged_args", PagedArgs: "struct_size" = head.struct_size, "attributes" = head.attributes,
            "error" = head.error, "error_capacity" = head.error_capacity, "q" = q, "k_cache" = k_cache, "v_cache" = v_cache,
            "block_table" = block_table, "cache_rows" = cache_rows, "cache_seqlens" = cache_seqlens,
            "cu_seqlens_q" = cu_seqlens_q, "prefix_lens" = prefix_lens, "o" = o, "lse" = lse);
        writeln!(text, "ASSERT(LASTBIT_ABI_VERSION == {VERSION}, \"version\");").unwrap();
        for (name, code) in [
            ("INT", I32),
            ("FLOAT", Dtype::F32.into()),
            ("FLOAT", Dtype::F16.into()),
            ("BFLOAT", Dtype::BF16.into()),
            ("FLOAT8_E4M3FN", Dtype::E4M3.into()),
            ("FLOAT8_E5M2", Dtype::E5M2.into()),
        ] {
            writeln!(text, "ASSERT(LASTBIT_{name} == {}, \"LASTBIT_{name}\");", code.code).unwrap();
        }
        text
    }

    /// The header is C99 and C++11 without a warning, and both languages lay its structs out as Rust does.
    #[test]
    fn c_and_rust_agree() {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let folder = tempfile::tempdir().unwrap();
        let (plain, asserted) = ("#include \"lastbit.h\"\n".to_owned(), assertions());
        for (compiler, standard, extension, assert, text) in [
            ("cc", "c99", "c", "", &plain),
            ("cc", "c11", "c", "_Static_assert", &asserted),
            ("c++", "c++11", "cpp", "static_assert", &asserted),
        ] {
            let file = folder.path().join(format!("{standard}.{extension}"));
            std::fs::write(&file, text).unwrap();
            let mut command = Command::new(compiler);
            command.args([&format!("-std={standard}"), "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]);
            command.arg(format!("-DASSERT={assert}")).arg("-I").arg(&include).arg(&file);
            let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
            assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// DLPack's own numbers on 64-bit machines (dmlc/dlpack, `DLTensor` of dlpack.h 1.x).
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_tensor_is_dlpacks() {
        let offsets = [
            offset_of!(Tensor, data),
            offset_of!(Tensor, device.kind),
            offset_of!(Tensor, device.id),
            offset_of!(Tensor, ndim),
            offset_of!(Tensor, dtype.code),
            offset_of!(Tensor, dtype.bits),
            offset_of!(Tensor, dtype.lanes),
            offset_of!(Tensor, shape),
            offset_of!(Tensor, strides),
            offset_of!(Tensor, byte_offset),
        ];
        assert_eq!((size_of::<Tensor>(), offsets), (48, [0, 8, 12, 16, 20, 21, 22, 24, 32, 40]));
    }
}
