//! Arbitrary valid cases.

use super::super::{CaseFile, External, KernelFields, KernelText, ORACLES, Run};
use crate::number::Dtype;
use crate::subject::attention::{
    Anchor, Cache, Case, ContextParallel, Data, Fp8Kv, InferPlan, Literal, Mask, Problem, Regime, Request, Sequence, Shards,
    Side, TrainLayout, TrainPlan,
};
use proptest::prelude::*;

/// A short list of numbers as a source of choices; an exhausted one gives the simplest.
struct Choices(std::vec::IntoIter<u32>);

impl Choices {
    fn below(&mut self, n: u32) -> u32 {
        self.0.next().unwrap_or(0) % n
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 1).then(|| make(self))
    }

    fn positive(&mut self) -> f32 {
        f32::from_bits(1 + self.below(0x7f7f_ffff))
    }

    fn order(&mut self, count: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count as u32).collect();
        let turn = if count > 0 { self.below(count as u32) } else { 0 };
        order.rotate_left(turn as usize);
        order
    }

    fn labels(&mut self) -> Vec<u32> {
        let start = self.below(5);
        (0..1 + self.below(3)).map(|n| start + 2 * n).collect()
    }

    fn request(&mut self, sequence: &Sequence, causal: bool) -> Request {
        let q = sequence.q;
        if !causal {
            let whole = q > 0 && self.below(2) == 1;
            let chunks = if whole { vec![q] } else { vec![] };
            return Request { hit: 0, join: self.below(3), chunks, then: q.max(1), reject: 0, preempt: None };
        }
        let hit = if q > 0 { self.below(q) } else { 0 };
        let mut left = q - hit;
        let mut chunks = Vec::new();
        while left > 0 && self.below(2) == 1 {
            chunks.push(1 + self.below(left));
            left -= chunks[chunks.len() - 1];
        }
        let then = 1 + self.below(4);
        Request { hit, join: self.below(3), chunks, then, reject: self.below(then), preempt: self.maybe(|c| 1 + c.below(9)) }
    }

    fn regime(&mut self, alibi: bool) -> Regime {
        match self.below(if alibi { 13 } else { 14 }) {
            0 => Regime::Normal,
            1 => Regime::Equal,
            2 => Regime::Dominant { gap: self.positive(), lane: self.below(9) },
            3 => Regime::Deep { level: -self.positive() },
            4 => Regime::Overflow,
            5 => Regime::Subnormal,
            6 => Regime::Quantised,
            7 => Regime::Tail,
            8 => Regime::Wide,
            9 => Regime::OnehotV,
            10 => Regime::ConstantV,
            11 => Regime::Rising { step: self.positive() },
            12 => Regime::ZeroPeak,
            _ => Regime::Mirror { span: 2 + self.below(9), phase: self.below(9) },
        }
    }

    fn data(&mut self, problem: &Problem) -> Data {
        match self.below(4) {
            2 => {
                let kv = problem.kv_dtype();
                let mut bits = |dtype: Dtype, count: usize| -> Vec<u32> {
                    let sign = |c: &mut Self| if c.below(2) == 1 { dtype.sign_mask() } else { 0 };
                    (0..count).map(|_| sign(self) | self.below(dtype.max_finite_bits() + 1)).collect()
                };
                Data::Literal(Literal {
                    q: bits(problem.dtype, problem.total_q() * problem.q_heads() * problem.d_qk as usize),
                    k: bits(kv, problem.total_kv() * problem.kv_heads() * problem.d_qk as usize),
                    v: bits(kv, problem.total_kv() * problem.kv_heads() * problem.d_v as usize),
                })
            }
            3 => Data::Captured { sha256: "0123456789abcdef".repeat(4) },
            _ => Data::Drawn {
                seed: u64::from(self.below(u32::MAX)) << 32 | u64::from(self.below(u32::MAX)),
                regime: self.regime(problem.alibi_slopes.is_some()),
            },
        }
    }

    fn problem(&mut self) -> Problem {
        let count = self.below(4);
        let first = self.below(7);
        let sequence = |n| Sequence { id: first + n, q: self.below(9), kv: self.below(12) };
        let sequences: Vec<Sequence> = (0..count).map(sequence).collect();
        let (kv_head_ids, group_ids) = (self.labels(), self.labels());
        let heads = kv_head_ids.len() * group_ids.len();
        let causal = [None, Some(Anchor::BottomRight), Some(Anchor::TopLeft), Some(Anchor::BottomRight)][self.below(4) as usize];
        let window_right = if causal.is_none() { self.maybe(|c| c.below(5)) } else { None };
        let dtypes = [Dtype::F32, Dtype::F16, Dtype::BF16];
        let kv_heads = kv_head_ids.len();
        let fp8_kv = self.maybe(|c| Fp8Kv {
            dtype: [Dtype::E4M3, Dtype::E5M2][c.below(2) as usize],
            k_scales: (0..[1, kv_heads][c.below(2) as usize]).map(|_| c.positive()).collect(),
            v_scales: (0..[1, kv_heads][c.below(2) as usize]).map(|_| c.positive()).collect(),
        });
        Problem {
            sequences,
            kv_head_ids,
            group_ids,
            d_qk: 1 + self.below(4),
            d_v: 1 + self.below(4),
            mask: Mask { causal, window_left: self.maybe(|c| c.below(5)), window_right },
            softcap: self.maybe(Self::positive),
            sinks: self.maybe(|c| (0..heads).map(|_| c.positive() * [1.0, -1.0][c.below(2) as usize]).collect()),
            alibi_slopes: self.maybe(|c| (0..heads).map(|_| c.positive()).collect()),
            softmax_scale: self.positive(),
            dtype: dtypes[self.below(3) as usize],
            fp8_kv,
            out_dtype: dtypes[self.below(3) as usize],
        }
    }

    fn context(&mut self) -> Option<ContextParallel> {
        self.maybe(|c| ContextParallel {
            ranks: 2 + c.below(5),
            shards: [Shards::Contiguous, Shards::Zigzag][c.below(2) as usize],
            length: 1 + c.below(9),
        })
    }

    fn head_ranks(&mut self, problem: &Problem) -> u32 {
        let ranks = 1 + self.below(4);
        if problem.divides_heads(ranks) { ranks } else { 1 }
    }

    fn knobs(&mut self) -> Vec<(String, String)> {
        let values = ["2", "", "a \"b\" \\ \u{e9}", "NHD"];
        let names = ["1", "Z", "num_splits", "threads"];
        let count = self.below(names.len() as u32 + 1) as usize;
        names[..count].iter().map(|name| (name.to_string(), values[self.below(4) as usize].to_string())).collect()
    }

    fn kernel(&mut self) -> KernelText {
        if self.below(4) == 3 {
            let mut line = || ["tiny", "", "a \"b\" \\ \u{e9}"][self.below(3) as usize].to_string();
            let (name, version, device) = (line(), line(), line());
            let [digest, source] = [line(), line()].map(|text| (text != "tiny").then_some(text));
            return KernelText::External(External { name, version, device, digest, source });
        }
        let values =
            ["sequential", "true", "64", "lanes(8)", "-inf", "-0", "1e5", "a \"b\" \\ \u{e9}", "", "0x10", "9223372036854775808"];
        let names = ["score.order", "finish", "score.fma", "actual.anchor", "softmax.block", "a b.c", "z"];
        let count = self.below(names.len() as u32 + 1) as usize;
        let fields = names[..count].iter().map(|name| (name.to_string(), values[self.below(11) as usize].to_string())).collect();
        KernelText::Reference(KernelFields(fields))
    }

    fn file(&mut self) -> CaseFile {
        let problem = self.problem();
        let count = problem.sequences.len();
        let causal = problem.mask.causal == Some(Anchor::BottomRight);
        let layout = match self.below(3) {
            0 => TrainLayout::Varlen,
            side => TrainLayout::Dense {
                side: [Side::Left, Side::Right][side as usize - 1],
                pad_q: self.below(5),
                pad_kv: self.below(5),
            },
        };
        let cache = match self.below(2) {
            0 => Cache::Contiguous { spare: self.below(9) },
            _ => Cache::Paged {
                page: 1 + self.below(9),
                spare: self.below(9),
                shuffle: u64::from(self.below(3)) << 62,
                recycled: self.below(2) == 1,
            },
        };
        let infer = InferPlan {
            cache,
            requests: problem.sequences.iter().map(|sequence| self.request(sequence, causal)).collect(),
            order: self.order(count),
            rotate: self.below(2) == 1,
            budget: if causal { self.maybe(|c| 1 + c.below(20)) } else { self.maybe(|_| problem.total_q().max(1) as u32) },
            bucket: 1 + self.below(8),
            context: self.context(),
            head_ranks: self.head_ranks(&problem),
            knobs: self.knobs(),
        };
        let train = TrainPlan {
            layout,
            order: self.order(count),
            block_q: 1 + self.below(99),
            context: self.context(),
            head_ranks: self.head_ranks(&problem),
            knobs: self.knobs(),
        };
        let data = self.data(&problem);
        let comment = ["", "kept", "two\nlines  ", "\n#", "caf\u{e9}\ttab\n"][self.below(5) as usize];
        CaseFile {
            comment: comment.into(),
            case: Case { problem, train, infer, data },
            run: Run {
                train: self.kernel(),
                infer: self.kernel(),
                oracle: ORACLES[self.below(3) as usize].into(),
                relation: self.maybe(|_| "prefix stability rows=3 \"x\"".into()),
                expect: ["match", "mismatch o", ""][self.below(3) as usize].into(),
            },
        }
    }
}

pub(super) fn case_file() -> impl Strategy<Value = CaseFile> {
    // Biased to leave some choices at their simplest.
    let choice = prop_oneof![1 => Just(0u32), 3 => any::<u32>()];
    proptest::collection::vec(choice, 0..600).prop_map(|choices| Choices(choices.into_iter()).file())
}
