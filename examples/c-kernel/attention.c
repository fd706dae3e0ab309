/* Textbook attention for lastbit: the whole row at once, weights divided by their sum before the product with V. Sums are in float, in
 * position order; exp, log and tanh are taken in double and rounded once, so that they are as good as correctly rounded. */
#include "lastbit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t lastbit_abi_version(void) { return LASTBIT_ABI_VERSION; }

const char *lastbit_kernel_info(void) {
  return "{\"identity\": {\"name\": \"c-textbook\", \"version\": \"1.0\", \"device\": \"cpu\"},"
         " \"forms\": [\"varlen\", \"dense_left\", \"dense_right\", \"paged\", \"contiguous\"],"
         " \"features\": [\"causal\", \"causal_top_left\", \"not_causal\", \"window\", \"softcap\", \"sinks\", \"alibi\","
         "   \"grouped_heads\", \"unequal_head_dims\"],"
         " \"formats\": [\"f32\", \"bf16\", \"bf16->f32\"],"
         " \"numerics\": {\"*\": \"naive\"}}";
}

typedef union { uint32_t bits; float value; } word;

static int can_read(const lastbit_tensor *t) {
  return (t->dtype.code == LASTBIT_FLOAT && t->dtype.bits == 32) || (t->dtype.code == LASTBIT_BFLOAT && t->dtype.bits == 16);
}

static float load(const lastbit_tensor *t, int64_t n) {
  word x;
  if (t->dtype.bits == 32) return ((const float *)t->data)[n];
  x.bits = (uint32_t)((const uint16_t *)t->data)[n] << 16;
  return x.value;
}

static void store(const lastbit_tensor *t, int64_t n, float value) {
  word x;
  if (t->dtype.bits == 32) {
    ((float *)t->data)[n] = value;
    return;
  }
  x.value = value;
  if (value == value) x.bits += 0x7fff + (x.bits >> 16 & 1); /* to nearest, ties to even; a NaN stays one */
  ((uint16_t *)t->data)[n] = (uint16_t)(x.bits >> 16);
}

/* One sequence of a call. Rows of q follow one another; key j lies in a page, or `first_slot + j`. */
typedef struct {
  const lastbit_attributes *a;
  const lastbit_tensor *q, *k, *v, *o, *lse;
  int64_t first_row, rows, keys, first_slot, page_size;
  const int32_t *pages;
} sequence;

static int64_t slot(const sequence *s, int64_t j) {
  return s->pages ? s->pages[j / s->page_size] * s->page_size + j % s->page_size : s->first_slot + j;
}

/* Row i of one head; `p` has room for a weight of each key. */
static void attend(const sequence *s, int64_t i, int64_t head, float *p) {
  const lastbit_attributes *a = s->a;
  const float *sinks = a->sinks.data, *slopes = a->alibi_slopes.data;
  int64_t row = (s->first_row + i) * a->q_heads + head, kv_head = head / (a->q_heads / a->kv_heads);
  int64_t position = a->causal == LASTBIT_CAUSAL_TOP_LEFT ? i : i + s->keys - s->rows;
  int64_t first = 0, end = s->keys, j, x;
  float max = sinks ? sinks[head] : -INFINITY, sum = 0;
  if (a->causal != LASTBIT_NOT_CAUSAL && end > position + 1) end = position + 1;
  if (a->window_left >= 0 && first < position - a->window_left) first = position - a->window_left;
  if (a->window_right >= 0 && end > position + a->window_right + 1) end = position + a->window_right + 1;
  if (first >= end) { /* no keys: the sink, if there is one, is all that counts */
    for (x = 0; x < a->d_v; x++) store(s->o, row * a->d_v + x, 0);
    store(s->lse, row, max);
    return;
  }
  for (j = first; j < end; j++) {
    int64_t key = (slot(s, j) * a->kv_heads + kv_head) * a->d_qk;
    float score = 0;
    for (x = 0; x < a->d_qk; x++) score += load(s->q, row * a->d_qk + x) * load(s->k, key + x);
    score *= a->softmax_scale;
    if (!isnan(a->softcap)) score = a->softcap * (float)tanh(score / a->softcap);
    if (slopes) score -= slopes[head] * (float)llabs(position - j);
    p[j] = score;
    if (score > max) max = score;
  }
  for (j = first; j < end; j++) {
    p[j] = (float)exp(p[j] - max);
    sum += p[j];
  }
  if (sinks) sum += (float)exp(sinks[head] - max);
  for (j = first; j < end; j++) p[j] /= sum;
  for (x = 0; x < a->d_v; x++) {
    float o = 0;
    for (j = first; j < end; j++) o += p[j] * load(s->v, (slot(s, j) * a->kv_heads + kv_head) * a->d_v + x);
    store(s->o, row * a->d_v + x, o);
  }
  store(s->lse, row, max + (float)log(sum));
}

static int32_t run(const sequence *s, char *error, uint64_t capacity) {
  float *p;
  int64_t i, head;
  if (!can_read(s->q) || !can_read(s->k) || !can_read(s->o)) {
    snprintf(error, capacity, "formats other than float32 and bfloat16");
    return LASTBIT_UNSUPPORTED;
  }
  p = malloc((s->keys + 1) * sizeof *p);
  if (!p) {
    snprintf(error, capacity, "no memory for %lld weights", (long long)s->keys);
    return LASTBIT_FAILED;
  }
  for (i = 0; i < s->rows; i++)
    for (head = 0; head < s->a->q_heads; head++) attend(s, i, head, p);
  free(p);
#ifdef PLANTED_FAULT /* one element too many, where the last head of the last row would go on */
  store(s->o, (s->first_row + s->rows) * s->a->q_heads * s->a->d_v, 0);
#endif
  return LASTBIT_OK;
}

int32_t lastbit_varlen(const lastbit_varlen_args *args) {
  const int32_t *rows = args->cu_seqlens_q.data, *keys = args->cu_seqlens_k.data;
  int32_t status = LASTBIT_OK;
  for (int64_t b = 0; b + 1 < args->cu_seqlens_q.shape[0] && status == LASTBIT_OK; b++) {
    sequence s = {args->attributes, &args->q, &args->k, &args->v, &args->o, &args->lse, rows[b], rows[b + 1] - rows[b],
                  keys[b + 1] - keys[b], keys[b], 0, NULL};
    status = run(&s, args->error, args->error_capacity);
  }
  return status;
}

int32_t lastbit_dense(const lastbit_dense_args *args) {
  const int32_t *rows = args->lengths_q.data, *keys = args->lengths_kv.data;
  int64_t seq_q = args->q.shape[1], seq_kv = args->k.shape[1], left = args->padding == LASTBIT_PADDING_LEFT;
  int32_t status = LASTBIT_OK;
  for (int64_t b = 0; b < args->q.shape[0] && status == LASTBIT_OK; b++) {
    int64_t first_row = b * seq_q + left * (seq_q - rows[b]), first_slot = b * seq_kv + left * (seq_kv - keys[b]);
    sequence s = {args->attributes, &args->q, &args->k, &args->v, &args->o, &args->lse, first_row, rows[b], keys[b], first_slot, 0, NULL};
    status = run(&s, args->error, args->error_capacity);
  }
  return status;
}

int32_t lastbit_paged(const lastbit_paged_args *args) {
  const int32_t *rows = args->cu_seqlens_q.data, *keys = args->cache_seqlens.data;
  const int32_t *table = args->block_table.data, *cache_rows = args->cache_rows.data;
  int64_t slots = args->k_cache.shape[1];
  int32_t status = LASTBIT_OK;
  for (int64_t b = 0; b < args->cache_seqlens.shape[0] && status == LASTBIT_OK; b++) {
    sequence s = {args->attributes, &args->q, &args->k_cache, &args->v_cache, &args->o, &args->lse, rows[b], rows[b + 1] - rows[b],
                  keys[b], table ? 0 : cache_rows[b] * slots, slots, table ? table + b * args->block_table.shape[1] : NULL};
    status = run(&s, args->error, args->error_capacity);
  }
  return status;
}
