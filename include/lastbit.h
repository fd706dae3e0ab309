/* lastbit.h: an attention kernel in a C library, as `lastbit` calls it. ABI version 1.
 *
 * A library exports lastbit_abi_version, lastbit_kernel_info and one function for each call form that it has. Then
 *
 *     lastbit fuzz --train lib:./libtrain.so --infer lib:./libserve.so
 *
 * loads each library in a process of its own and calls it. Nothing is linked: this header is all that a library needs. It is C99 and C++11.
 * examples/c-kernel and examples/cpp-kernel are two whole kernels. docs/protocol.md says the same for kernels in other languages.
 *
 * Memory. Everything that a call points to belongs to the caller: tensors, shapes, attributes, texts. All of it lives until the call
 * returns and no longer, and addresses differ from call to call. A kernel frees nothing, keeps no pointer, and writes to `o`, `lse` and
 * `error` only. Each tensor has 256 guarded bytes before and after it, and inputs are compared after the call: a write anywhere else is
 * reported as `wrote outside its output`. Where the AddressSanitizer runtime is loaded, it stops at the first read or write of a guard.
 *
 * Threads. Calls come one at a time, not always from the same thread. A kernel may use threads of its own; when it returns, nothing of it
 * may still read or write the call's memory. A kernel on a device copies to it and back, and is done when it returns.
 *
 * The process. A library is loaded once (with RTLD_NOW) and never unloaded. No C++ exception may leave a function. stdout belongs to the
 * caller's protocol; what a library prints there is put with its stderr, which is shown when a call goes wrong.
 */
#ifndef LASTBIT_H
#define LASTBIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define LASTBIT_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define LASTBIT_EXPORT __attribute__((visibility("default")))
#else
#define LASTBIT_EXPORT
#endif

#define LASTBIT_ABI_VERSION 1u

/* ---- Tensors -------------------------------------------------------------------------------------------------------------- */

/* Field for field DLPack's DLTensor and what it holds (dmlc/dlpack, dlpack.h 1.x), so a `lastbit_tensor *` may be cast to a `DLTensor *`
 * and given to whatever takes one. */

enum { LASTBIT_DEVICE_CPU = 1 }; /* kDLCPU; in version 1 all tensors are there */

typedef struct lastbit_device {
  int32_t type; /* DLDeviceType */
  int32_t id;
} lastbit_device;

/* DLDataTypeCode. An element is (code, bits). */
enum {
  LASTBIT_INT = 0,          /* kDLInt, 32 bits: lengths, offsets, pages */
  LASTBIT_FLOAT = 2,        /* kDLFloat: binary32 with 32 bits, binary16 with 16 */
  LASTBIT_BFLOAT = 4,       /* kDLBfloat, 16 bits */
  LASTBIT_FLOAT8_E4M3FN = 10, /* kDLFloat8_e4m3fn, 8 bits: no infinities, largest 448 */
  LASTBIT_FLOAT8_E5M2 = 12  /* kDLFloat8_e5m2, 8 bits: with infinities, largest finite 57344 */
};

typedef struct lastbit_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes; /* 1 */
} lastbit_dtype;

/* Row-major and without gaps. A tensor that the problem does not have has `data == NULL` and `ndim == 0`; all others have an address that
 * is a multiple of 256, also those without elements. */
typedef struct lastbit_tensor {
  void *data;
  lastbit_device device;
  int32_t ndim;
  lastbit_dtype dtype;
  int64_t *shape;       /* [ndim] */
  int64_t *strides;     /* [ndim], in elements */
  uint64_t byte_offset; /* 0 */
} lastbit_tensor;

/* ---- What a call means ---------------------------------------------------------------------------------------------------- */

/* Structs that begin with `struct_size` only ever grow at their end, within one ABI version. A field is there if it lies below
 * struct_size, and a kernel that was compiled against an older header does not see what was added: so it must list its `features`
 * in lastbit_kernel_info, since a call that asks for others never reaches it. */

enum {
  LASTBIT_NOT_CAUSAL = 0,
  LASTBIT_CAUSAL_BOTTOM_RIGHT = 1, /* row i sees keys j <= i + kv - q: the last row sees every key */
  LASTBIT_CAUSAL_TOP_LEFT = 2      /* row i sees keys j <= i */
};

enum { LASTBIT_CONTIGUOUS_SHARDS = 0, LASTBIT_ZIGZAG_SHARDS = 1 };

/* A setting of the kernel's own that is off its default, as declared under `knobs`. */
typedef struct lastbit_knob {
  const char *name;
  const char *value;
} lastbit_knob;

/* The same in all calls of one problem. In a call with q rows and kv keys of a sequence, row i stands at position p = i + kv - q
 * (p = i under LASTBIT_CAUSAL_TOP_LEFT). Query head h reads KV head h / (q_heads / kv_heads).
 *
 * score = softmax_scale * (q . k); with a softcap, cap * tanh(score / cap); then, with slopes, score - slope * |p - j|. A sink is one more
 * score in the softmax, with a value of zeros. A row without valid keys has o = 0 and lse = -inf, or the sink if there is one. */
typedef struct lastbit_attributes {
  uint64_t struct_size;
  int64_t q_heads;
  int64_t kv_heads; /* divides q_heads */
  int64_t d_qk;     /* head dim of q and k */
  int64_t d_v;      /* head dim of v and o */
  float softmax_scale;
  float softcap;        /* NaN: none */
  int64_t window_left;  /* keys j >= p - window_left are seen; -1: no limit */
  int64_t window_right; /* keys j <= p + window_right are seen; -1: no limit */
  int32_t causal;       /* LASTBIT_NOT_CAUSAL and on */
  int32_t block_q;      /* query rows per tile, for kernels whose bits depend on it */
  lastbit_tensor sinks;        /* float32 [q_heads], or none */
  lastbit_tensor alibi_slopes; /* float32 [q_heads], or none */
  lastbit_tensor k_scales;     /* float32 [1] or [kv_heads]: what stored keys are multiplied with; none unless they are 8-bit */
  lastbit_tensor v_scales;     /* likewise for values */
  /* The call stands for a group of context-parallel ranks (only if `features` has context_parallel); ranks are 0 if it does not. Chunk c of
   * each sequence begins at position c * context_length; the last one holds all that follows. Of n ranks, rank r holds chunk r of n
   * (contiguous), or chunks r and 2n - 1 - r of 2n (zigzag). */
  int32_t context_ranks;
  int32_t context_shards;
  int64_t context_length;
  uint64_t knob_count;
  const lastbit_knob *knobs; /* [knob_count] */
} lastbit_attributes;

/* ---- Call forms ----------------------------------------------------------------------------------------------------------- */

/* All integers in tensors are int32. Slots outside the valid lengths hold NaN or huge values, and must not reach a result. `o` and `lse` are
 * filled with a NaN that no arithmetic gives; every element of a valid row must be written. Rows of padding may hold anything.
 *
 * `o` is in the format that o.dtype says. `lse` is float32, and none if lastbit_kernel_info says "lse": false. Storage of q, k and v (or
 * the caches) is float32, bfloat16 or float16; keys and values may also be 8-bit.
 *
 * `error` is a buffer of `error_capacity` bytes, at least 256, empty at first, for one line of text (UTF-8, ended by a zero byte): why
 * a call was refused or failed. */

/* Packed tensors. Form "varlen". */
typedef struct lastbit_varlen_args {
  uint64_t struct_size;
  const lastbit_attributes *attributes;
  char *error;
  uint64_t error_capacity;
  lastbit_tensor q;            /* [total_q, q_heads, d_qk] */
  lastbit_tensor k;            /* [total_kv, kv_heads, d_qk] */
  lastbit_tensor v;            /* [total_kv, kv_heads, d_v] */
  lastbit_tensor cu_seqlens_q; /* int32 [batch + 1]: sequence b has rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] of q */
  lastbit_tensor cu_seqlens_k; /* int32 [batch + 1]: likewise of k and v */
  lastbit_tensor o;            /* [total_q, q_heads, d_v] */
  lastbit_tensor lse;          /* [total_q, q_heads] */
} lastbit_varlen_args;

enum { LASTBIT_PADDING_RIGHT = 0, LASTBIT_PADDING_LEFT = 1 };

/* Padded tensors. Forms "dense_left" and "dense_right". */
typedef struct lastbit_dense_args {
  uint64_t struct_size;
  const lastbit_attributes *attributes;
  char *error;
  uint64_t error_capacity;
  lastbit_tensor q;          /* [batch, seq_q, q_heads, d_qk] */
  lastbit_tensor k;          /* [batch, seq_kv, kv_heads, d_qk] */
  lastbit_tensor v;          /* [batch, seq_kv, kv_heads, d_v] */
  lastbit_tensor lengths_q;  /* int32 [batch]: valid rows of each entry */
  lastbit_tensor lengths_kv; /* int32 [batch]: valid keys of each entry */
  lastbit_tensor o;          /* [batch, seq_q, q_heads, d_v] */
  lastbit_tensor lse;        /* [batch, seq_q, q_heads] */
  int64_t padding;           /* LASTBIT_PADDING_RIGHT: tokens stand in the first slots; LEFT: in the last ones, in q and k alike */
} lastbit_dense_args;

/* New rows against a KV cache that holds their keys already. Form "paged" with a block table, form "contiguous" without. */
typedef struct lastbit_paged_args {
  uint64_t struct_size;
  const lastbit_attributes *attributes;
  char *error;
  uint64_t error_capacity;
  lastbit_tensor q;             /* [total_q, q_heads, d_qk] */
  lastbit_tensor k_cache;       /* paged [pages, page_size, kv_heads, d_qk]; contiguous [entries, capacity, kv_heads, d_qk] */
  lastbit_tensor v_cache;       /* likewise, with d_v */
  lastbit_tensor block_table;   /* paged int32 [batch, width]: position j of entry b is in page [b][j / page_size]; else none */
  lastbit_tensor cache_rows;    /* contiguous int32 [batch]: entry b is in row cache_rows[b] of the caches; else none */
  lastbit_tensor cache_seqlens; /* int32 [batch]: valid keys of each entry, those of the new rows included */
  lastbit_tensor cu_seqlens_q;  /* int32 [batch + 1]; an entry of bucket padding has one row and no keys, and some entries have no rows */
  lastbit_tensor prefix_lens;   /* int32 [batch]: leading positions that came from the prefix cache */
  lastbit_tensor o;             /* [total_q, q_heads, d_v] */
  lastbit_tensor lse;           /* [total_q, q_heads] */
} lastbit_paged_args;

/* ---- What a library exports ----------------------------------------------------------------------------------------------- */

/* What a call returns. */
enum {
  LASTBIT_OK = 0,
  LASTBIT_UNSUPPORTED = 1, /* the kernel cannot do this case: it is left out, and counted by the text in `error` */
  LASTBIT_FAILED = 2,      /* a finding */
  LASTBIT_DEVICE_ERROR = 3 /* the device's state is lost: a finding, and the process that holds the library is started again */
};

/* LASTBIT_ABI_VERSION, as the library was compiled. */
LASTBIT_EXPORT uint32_t lastbit_abi_version(void);

/* JSON, UTF-8, valid as long as the library is loaded: the `kernel` object of docs/protocol.md, in which only
 * {"identity": {"name": "...", "version": "...", "device": "cpu"}} must be given. A field that is left out means "anything that a case may
 * ask for", or what is usual; an unknown field is refused. Called once. */
LASTBIT_EXPORT const char *lastbit_kernel_info(void);

/* One for each form under `forms`; a library that lists no forms exports all three. A form that is listed must be there. */
LASTBIT_EXPORT int32_t lastbit_varlen(const lastbit_varlen_args *args);
LASTBIT_EXPORT int32_t lastbit_dense(const lastbit_dense_args *args);
LASTBIT_EXPORT int32_t lastbit_paged(const lastbit_paged_args *args);

#ifdef __cplusplus
}
#endif

#endif
