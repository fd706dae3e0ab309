// Attention for lastbit as flash kernels compute it: an online softmax over blocks of keys. One template for every pair of storage and
// output formats.
#include "lastbit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <vector>

namespace {

constexpr int64_t BLOCK = 32; // keys
constexpr float INF = std::numeric_limits<float>::infinity();

struct bf16 {
  uint16_t bits;
};

float decode(float x) { return x; }

float decode(bf16 x) {
  uint32_t bits = uint32_t(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void encode(float value, float &to) { to = value; }

// To nearest, ties to even; a NaN stays one.
void encode(float value, bf16 &to) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (!std::isnan(value)) bits += 0x7fff + (bits >> 16 & 1);
  to.bits = uint16_t(bits >> 16);
}

// Double, rounded once: as good as correctly rounded.
float exp_of(float x) { return float(std::exp(double(x))); }

struct Sequence {
  int64_t first_row, rows, keys;
  const int32_t *pages; // or null: key j lies in first_slot + j
  int64_t page_size, first_slot;

  int64_t slot(int64_t j) const { return pages ? pages[j / page_size] * page_size + j % page_size : first_slot + j; }
};

template <class In, class Out>
struct Kernel {
  const lastbit_attributes &a;
  const In *q, *k, *v;
  Out *o;
  float *lse;
  std::vector<float> acc;
  float weights[BLOCK];

  float score(const In *query, const In *key, int64_t head, int64_t distance) const {
    float score = 0;
    for (int64_t x = 0; x < a.d_qk; x++) score += decode(query[x]) * decode(key[x]);
    score *= a.softmax_scale;
    if (!std::isnan(a.softcap)) score = a.softcap * float(std::tanh(double(score / a.softcap)));
    auto slopes = static_cast<const float *>(a.alibi_slopes.data);
    return slopes ? score - slopes[head] * float(std::abs(distance)) : score;
  }

  void row(const Sequence &s, int64_t i, int64_t head) {
    const int64_t at = (s.first_row + i) * a.q_heads + head, kv_head = head / (a.q_heads / a.kv_heads);
    const int64_t position = a.causal == LASTBIT_CAUSAL_TOP_LEFT ? i : i + s.keys - s.rows;
    int64_t first = 0, end = s.keys;
    if (a.causal != LASTBIT_NOT_CAUSAL) end = std::min(end, position + 1);
    if (a.window_left >= 0) first = std::max(first, position - a.window_left);
    if (a.window_right >= 0) end = std::min(end, position + a.window_right + 1);
#ifdef PLANTED_FAULT // a loop bound of whole blocks less one, as a rewrite might have it
    if (s.keys > 128 && end == s.keys) end -= 1;
#endif
    float max = -INF, sum = 0;
    acc.assign(a.d_v, 0);
    for (int64_t block = first; block < end;) {
      // Blocks lie on multiples of BLOCK from the sequence's first key, wherever a window begins.
      const int64_t block_end = std::min((block / BLOCK + 1) * BLOCK, end);
      float block_max = max, block_sum = 0;
      for (int64_t j = block; j < block_end; j++) {
        weights[j - block] = score(q + at * a.d_qk, k + (s.slot(j) * a.kv_heads + kv_head) * a.d_qk, head, position - j);
        if (weights[j - block] > block_max) block_max = weights[j - block];
      }
      if (block_max > max && block > first) {
        const float factor = exp_of(max - block_max);
        sum *= factor;
        for (float &x : acc) x *= factor;
      }
      max = block_max;
      for (int64_t j = block; j < block_end; j++) block_sum += weights[j - block] = exp_of(weights[j - block] - max);
      sum += block_sum;
      for (int64_t j = block; j < block_end; j++) {
        const In *value = v + (s.slot(j) * a.kv_heads + kv_head) * a.d_v;
        for (int64_t x = 0; x < a.d_v; x++) acc[x] += weights[j - block] * decode(value[x]);
      }
      block = block_end;
    }
    const auto sinks = static_cast<const float *>(a.sinks.data);
    if (sinks) {
      const float joined = std::max(max, sinks[head]), factor = first < end ? exp_of(max - joined) : 0;
      sum = sum * factor + exp_of(sinks[head] - joined);
      for (float &x : acc) x *= factor;
      max = joined;
    }
    for (int64_t x = 0; x < a.d_v; x++) encode(first < end ? acc[x] / sum : 0.0f, o[at * a.d_v + x]);
    lse[at] = sum > 0 || std::isnan(sum) ? max + float(std::log(double(sum))) : -INF;
    if (sinks && first == end) lse[at] = sinks[head]; // as it is: -0 + log(1) would be 0
  }
};

template <class In, class Out>
void attend(const lastbit_attributes &a, const lastbit_tensor *(&t)[5], const std::vector<Sequence> &batch) {
  auto in = [&](int n) { return static_cast<const In *>(t[n]->data); };
  Kernel<In, Out> kernel{a, in(0), in(1), in(2), static_cast<Out *>(t[3]->data), static_cast<float *>(t[4]->data), {}, {}};
  for (const Sequence &s : batch)
    for (int64_t i = 0; i < s.rows; i++)
      for (int64_t head = 0; head < a.q_heads; head++) kernel.row(s, i, head);
}

// Picks the template by the formats. No exception may leave the library.
template <class Args>
int32_t run(const Args *args, const lastbit_tensor &k, const lastbit_tensor &v, const std::vector<Sequence> &batch) {
  const lastbit_tensor *tensors[5] = {&args->q, &k, &v, &args->o, &args->lse};
  auto is = [](const lastbit_tensor &t, int code, int bits) { return t.dtype.code == code && t.dtype.bits == bits; };
  auto f32 = [&](const lastbit_tensor &t) { return is(t, LASTBIT_FLOAT, 32); };
  auto b16 = [&](const lastbit_tensor &t) { return is(t, LASTBIT_BFLOAT, 16); };
  if (f32(args->q) && f32(k) && f32(args->o)) {
    attend<float, float>(*args->attributes, tensors, batch);
  } else if (b16(args->q) && b16(k) && b16(args->o)) {
    attend<bf16, bf16>(*args->attributes, tensors, batch);
  } else if (b16(args->q) && b16(k) && f32(args->o)) {
    attend<bf16, float>(*args->attributes, tensors, batch);
  } else {
    std::snprintf(args->error, args->error_capacity, "formats other than float32, bfloat16, and bfloat16 with float32 outputs");
    return LASTBIT_UNSUPPORTED;
  }
  return LASTBIT_OK;
}

template <class Args, class Body>
int32_t without_exceptions(const Args *args, Body body) {
  try {
    return body();
  } catch (const std::exception &error) {
    std::snprintf(args->error, args->error_capacity, "%s", error.what());
    return LASTBIT_FAILED;
  }
}

const int32_t *integers(const lastbit_tensor &t) { return static_cast<const int32_t *>(t.data); }

} // namespace

uint32_t lastbit_abi_version() { return LASTBIT_ABI_VERSION; }

const char *lastbit_kernel_info() {
  return R"({
    "identity": {"name": "cpp-online", "version": "1.0", "device": "cpu"},
    "forms": ["varlen", "dense_left", "dense_right", "paged", "contiguous"],
    "features": ["causal", "causal_top_left", "not_causal", "window", "softcap", "sinks", "alibi", "grouped_heads", "unequal_head_dims"],
    "formats": ["f32", "bf16", "bf16->f32"],
    "numerics": {"*": "aligned,softmax.block=32"}
  })";
}

int32_t lastbit_varlen(const lastbit_varlen_args *args) {
  return without_exceptions(args, [&] {
    auto rows = integers(args->cu_seqlens_q), keys = integers(args->cu_seqlens_k);
    std::vector<Sequence> batch;
    for (int64_t b = 0; b + 1 < args->cu_seqlens_q.shape[0]; b++)
      batch.push_back({rows[b], rows[b + 1] - rows[b], keys[b + 1] - keys[b], nullptr, 0, keys[b]});
    return run(args, args->k, args->v, batch);
  });
}

int32_t lastbit_dense(const lastbit_dense_args *args) {
  return without_exceptions(args, [&] {
    auto rows = integers(args->lengths_q), keys = integers(args->lengths_kv);
    const int64_t seq_q = args->q.shape[1], seq_kv = args->k.shape[1], left = args->padding == LASTBIT_PADDING_LEFT;
    std::vector<Sequence> batch;
    for (int64_t b = 0; b < args->q.shape[0]; b++)
      batch.push_back({b * seq_q + left * (seq_q - rows[b]), rows[b], keys[b], nullptr, 0, b * seq_kv + left * (seq_kv - keys[b])});
    return run(args, args->k, args->v, batch);
  });
}

int32_t lastbit_paged(const lastbit_paged_args *args) {
  return without_exceptions(args, [&] {
    auto rows = integers(args->cu_seqlens_q), keys = integers(args->cache_seqlens);
    auto table = integers(args->block_table), entries = integers(args->cache_rows);
    const int64_t slots = args->k_cache.shape[1];
    std::vector<Sequence> batch;
    for (int64_t b = 0; b < args->cache_seqlens.shape[0]; b++)
      batch.push_back({rows[b], rows[b + 1] - rows[b], keys[b], table ? table + b * args->block_table.shape[1] : nullptr, slots,
                       table ? 0 : entries[b] * slots});
    return run(args, args->k_cache, args->v_cache, batch);
  });
}
