//! A small attention kernel: one sequence, plain f32, grouped heads, causal or not. It knows nothing of `lastbit`;
//! `tests/attention.rs` is all that is needed to test it.

/// What to compute. Query head `h` reads KV head `h / (q_heads / kv_heads)`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub q_heads: usize,
    pub kv_heads: usize,
    pub d_qk: usize,
    pub d_v: usize,
    pub softmax_scale: f32,
    /// Row `i` of `rows` stands at position `keys - rows + i` and sees the keys up to there.
    pub causal: bool,
}

/// `o = softmax(scale * q k^T) v` and its natural log-sum-exp, row by row.
///
/// `q` is `[rows, q_heads, d_qk]`, `k` `[keys, kv_heads, d_qk]`, `v` `[keys, kv_heads, d_v]`, `o` `[rows, q_heads, d_v]`, `lse`
/// `[rows, q_heads]`. The keys of the new rows are the last ones; those before them are context. A row that sees no key gets
/// `o = 0`, `lse = -inf`.
///
/// # Panics
/// When the lengths do not fit.
pub fn attention(shape: &Shape, q: &[f32], k: &[f32], v: &[f32], o: &mut [f32], lse: &mut [f32]) {
    let Shape { q_heads, kv_heads, d_qk, d_v, softmax_scale, causal } = *shape;
    let (rows, keys) = (q.len() / (q_heads * d_qk), k.len() / (kv_heads * d_qk));
    let mut scores = Vec::with_capacity(keys);
    for row in 0..rows {
        let seen = if causal { visible(row, rows, keys) } else { keys };
        for head in 0..q_heads {
            let kv_head = head / (q_heads / kv_heads);
            let at = row * q_heads + head;
            let query = &q[at * d_qk..(at + 1) * d_qk];
            scores.clear();
            scores.extend((0..seen).map(|key| {
                let key = &k[(key * kv_heads + kv_head) * d_qk..][..d_qk];
                query.iter().zip(key).map(|(x, y)| x * y).sum::<f32>() * softmax_scale
            }));
            let out = &mut o[at * d_v..(at + 1) * d_v];
            out.fill(0.0);
            lse[at] = f32::NEG_INFINITY;
            if seen == 0 {
                continue;
            }
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0;
            for (key, score) in scores.iter().enumerate() {
                let weight = (score - max).exp();
                sum += weight;
                let value = &v[(key * kv_heads + kv_head) * d_v..][..d_v];
                out.iter_mut().zip(value).for_each(|(out, value)| *out += weight * value);
            }
            out.iter_mut().for_each(|out| *out /= sum);
            lse[at] = max + sum.ln();
        }
    }
}

/// How many leading keys a row sees under the causal mask.
fn visible(row: usize, rows: usize, keys: usize) -> usize {
    if cfg!(feature = "planted-fault") {
        // As if the new rows began the sequence: right for a whole prefill, wrong for every decode step (NVIDIA/cutlass#2336).
        return (row + 1).min(keys);
    }
    (row + 1 + keys).saturating_sub(rows)
}
