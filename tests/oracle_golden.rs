//! The oracle against vectors from an independent tool (600-bit ball arithmetic, ties and zeros by exact rationals).

use lastbit::number::Dtype;
use lastbit::subject::attention::oracle::{Answer, Mode, Oracle};
use lastbit::subject::attention::{Anchor, Mask, Problem};
use lastbit::tensor::Tensor;
use serde_json::Value;

fn hex(value: &Value) -> u32 {
    u32::from_str_radix(value.as_str().expect("hex text"), 16).expect("hex digits")
}

fn list(value: &Value) -> Vec<u32> {
    value.as_array().expect("a list").iter().map(hex).collect()
}

fn floats(value: &Value) -> Option<Vec<f32>> {
    (!value.is_null()).then(|| list(value).into_iter().map(f32::from_bits).collect())
}

fn count(case: &Value, field: &str) -> u32 {
    case[field].as_u64().unwrap_or_else(|| panic!("field {field}")) as u32
}

fn check(mode: Mode) {
    let text = include_str!("golden/attention.json");
    let file: Value = serde_json::from_str(text).expect("the golden file is JSON");
    let mut oracle = Oracle::new(mode);
    let mut compared = 0;
    for (number, case) in file["cases"].as_array().expect("cases").iter().enumerate() {
        let causal = case["causal_bottom_right"].as_bool().expect("causal");
        let window = |side: usize| u32::try_from(case["window"][side].as_i64().expect("window")).ok();
        let (nq, nk) = (count(case, "nq"), count(case, "nk"));
        let (q_heads, kv_heads) = (count(case, "q_heads"), count(case, "kv_heads"));
        let dtype: Dtype = case["dtype"].as_str().expect("dtype").parse().expect("a dtype");
        let (d_qk, d_v) = (count(case, "d_qk"), count(case, "d_v"));
        let tensor = |field: &str, rows: u32, heads: u32, d: u32| Tensor {
            dtype,
            dims: vec![rows as usize, heads as usize, d as usize],
            bits: list(&case[field]),
        };
        let (q, k, v) = (tensor("q", nq, q_heads, d_qk), tensor("k", nk, kv_heads, d_qk), tensor("v", nk, kv_heads, d_v));
        for out_dtype in [Dtype::F32, Dtype::BF16, Dtype::F16] {
            let problem = Problem {
                mask: Mask {
                    causal: causal.then_some(Anchor::BottomRight),
                    window_left: window(0),
                    window_right: if causal { None } else { window(1) },
                },
                softcap: case["softcap"].as_str().map(|text| text.parse().expect("a number")),
                sinks: floats(&case["sinks"]),
                alibi_slopes: floats(&case["alibi_slopes"]),
                softmax_scale: f32::from_bits(hex(&case["softmax_scale"])),
                out_dtype,
                ..Problem::plain(&[(nq, nk)], [kv_heads, q_heads / kv_heads], [d_qk, d_v], dtype)
            };
            oracle.begin(&problem, &q, &k, &v);
            for row in case["rows"].as_array().expect("rows") {
                let (i, h) = (count(row, "i"), count(row, "h"));
                let truth = oracle.row(0, i, h as usize, &[]);
                let expected = list(&row["o"][out_dtype.name()]);
                let free = |bits: u32| if bits == out_dtype.sign_mask() { 0 } else { bits };
                for (x, (truth, bits)) in truth.o.iter().zip(&expected).enumerate() {
                    let place = format!("case {number} ({}) {out_dtype} row {i} head {h} lane {x}", case["regime"]);
                    assert_eq!(truth.answer, Answer::Decided(free(*bits)), "{place}: {truth:?}");
                    compared += 1;
                }
                assert_eq!(expected.len(), truth.o.len());
                let lse = hex(&row["lse"]);
                let place = format!("case {number} ({}) lse row {i} head {h}", case["regime"]);
                assert_eq!(truth.lse.answer, Answer::Decided(if lse == 1 << 31 { 0 } else { lse }), "{place}: {:?}", truth.lse);
            }
        }
    }
    assert_eq!(compared, 5052, "every output of the file, in three formats");
    println!("{} of {compared} outputs were left open by the first step", oracle.escalations());
}

#[test]
fn every_bit_agrees() {
    check(Mode::Enclosure);
}

#[test]
fn every_bit_agrees_in_mpfr() {
    check(Mode::Mpfr);
}
