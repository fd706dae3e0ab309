//! `lastbit reveal`: planted orders are found exactly, an order that depends on values is refused, and the command's pages keep their form.

mod binary;

use binary::{Folder, code, last_json, stderr, stdout};
use lastbit::number::Dtype;
use lastbit::subject::attention::capabilities::Capabilities;
use lastbit::subject::attention::conventions::Conventions;
use lastbit::subject::attention::feature::Feature;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::KernelError;
use lastbit::subject::attention::numerics::Numerics;
use lastbit::subject::attention::per_sequence::{PerSequence, SequenceCall};
use lastbit::subject::attention::recipe::{CallFacts, StepFacts, recipe};
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::reveal::{Asked, Options, Order, Orders, Plan, Product, Unknown, of_case, orders, readings};
use lastbit::subject::attention::{Anchor, Mask};
use lastbit::tree::Tree;
use std::sync::Arc;

fn reference(fields: &str) -> (Implementation, Numerics) {
    let reference = Reference::parse(&format!("ref:{fields}")).expect("a kernel's name");
    let numerics = reference.numerics;
    (Implementation::reference(reference), numerics)
}

fn ask(kernel: &Implementation, options: &Options) -> Orders {
    orders("k", kernel, options, &mut |_| {}).expect("options that fit")
}

fn options(kv: u32, plan: Plan) -> Options {
    Options { kv: vec![kv], plans: vec![plan], ..Options::default() }
}

fn answer(orders: &Orders, product: Product) -> &Result<Order, Unknown> {
    &orders.asked.iter().find(|it: &&Asked| it.product == product).expect("an answer").answer
}

fn found(fields: &str, kv: u32, plan: Plan, product: Product) -> Order {
    let (kernel, _) = reference(fields);
    match answer(&ask(&kernel, &options(kv, plan)), product) {
        Ok(order) => order.clone(),
        Err(unknown) => panic!("{fields}, {plan} of {kv}: {unknown}"),
    }
}

/// What the recipe says of the last row.
fn planted(numerics: &Numerics, kv: u32, plan: Plan) -> Tree {
    let decode = plan == Plan::Decode;
    let call = CallFacts {
        batch: 1,
        batch_max_q: if decode { 1 } else { kv },
        q_heads: 1,
        kv_heads: 1,
        d_qk: 16,
        d_v: 16,
        kv_dtype: Dtype::F32,
        page: decode.then_some(16),
        context: None,
    };
    let q = if decode { 1 } else { kv };
    let facts = StepFacts {
        q,
        kv,
        buffer_start: 0,
        prefix: 0,
        block_q: 64,
        mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
        softcap: false,
        alibi: false,
        sinks: false,
        call,
    };
    recipe(numerics, &Conventions::default(), &facts, q - 1).tree().expect("a tree").canonical()
}

fn assert_planted(fields: &str, kv: u32, plan: Plan) -> Order {
    let order = found(fields, kv, plan, Product::Pv);
    let (_, numerics) = reference(fields);
    assert_eq!(order.tree, planted(&numerics, kv, plan), "{fields}, {plan} of {kv}");
    assert_eq!(order.open, Vec::<String>::new(), "{fields}, {plan} of {kv}");
    order
}

#[test]
fn every_order_in_every_block_is_found_exactly() {
    for order in ["sequential", "pairwise", "lanes:8", "lanes:16", "fused:4"] {
        for block in ["4", "16", "128", "176", "whole"] {
            for traverse in ["forward", "backward"] {
                let fields = format!("aligned,value.order={order},softmax.block={block},softmax.traverse={traverse}");
                assert_planted(&fields, 200, Plan::Decode);
            }
        }
    }
}

#[test]
fn splits_are_found_with_the_order_of_their_merges() {
    for split in ["fixed_count:2", "fixed_count:3", "fixed_count:5", "fixed_count:7", "fixed_size:48", "fixed_size:64"] {
        for merge in ["sequential", "tree"] {
            let fields = format!("aligned,value.order=lanes:8,softmax.block=16,grid.split={split},grid.merge={merge}");
            let order = assert_planted(&fields, 150, Plan::Decode);
            assert!(order.parts.len() > 1 && order.merges.is_some(), "{fields}");
        }
    }
}

#[test]
fn prefill_of_fa3_walks_blocks_of_128_and_decode_of_176() {
    let prefill = found("fa3", 300, Plan::Prefill, Product::Pv);
    let decode = found("fa3", 300, Plan::Decode, Product::Pv);
    assert_ne!(prefill.tree, decode.tree);
}

#[test]
fn a_score_is_read_from_lse_through_a_folded_scale() {
    for plan in [Plan::Prefill, Plan::Decode] {
        let order = found("fa3", 4, plan, Product::Qk);
        assert_eq!(readings(&order.tree)[0].to_string(), "one running sum, first to last");
    }
}

#[test]
fn orders_over_head_dim_lanes_are_found() {
    for (planted, text) in [
        ("sequential", "(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)"),
        ("fused:4", "[[[[0 1 2 3] 4 5 6 7] 8 9 10 11] 12 13 14 15]"),
        ("pairwise", "(0 1 (2 3) (4 5 (6 7)) (8 9 (10 11) (12 13 (14 15))))"),
        ("lanes:8", "(0 8 (4 12) (2 10 (6 14)) (1 9 (5 13) (3 11 (7 15))))"),
    ] {
        for plan in [Plan::Prefill, Plan::Decode] {
            let order = found(&format!("aligned,score.order={planted}"), 4, plan, Product::Qk);
            assert_eq!(order.tree, text.parse::<Tree>().expect("a tree").canonical(), "{planted}, {plan}");
        }
    }
}

/// Textbook attention in f32 whose products with V are added by `sum`.
#[allow(clippy::type_complexity, reason = "a closure's type has no shorter name")]
fn adding(sum: fn(&[f32]) -> f32) -> PerSequence<impl Fn(&SequenceCall<'_>, &mut [f32], &mut [f32]) -> Result<(), KernelError>> {
    let forward = move |call: &SequenceCall<'_>, o: &mut [f32], lse: &mut [f32]| {
        let it = call.attributes;
        for row in 0..call.rows {
            let keys = (row + 1 + call.keys).saturating_sub(call.rows);
            let q = &call.q[row * it.d_qk..][..it.d_qk];
            let score = |key: usize| {
                let k = &call.k[key * it.d_qk..][..it.d_qk];
                q.iter().zip(k).fold(0.0f32, |dot, (a, b)| dot + a * b) * it.softmax_scale
            };
            let scores: Vec<f32> = (0..keys).map(score).collect();
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|s| (s - max).exp()).collect();
            let l: f32 = weights.iter().sum();
            lse[row] = max + l.ln();
            for lane in 0..it.d_v {
                let products: Vec<f32> = weights.iter().enumerate().map(|(key, w)| w * call.v[key * it.d_v + lane]).collect();
                o[row * it.d_v + lane] = sum(&products) / l;
            }
        }
        Ok(())
    };
    let capabilities = Capabilities { features: Some(vec![Feature::Causal]), ..Capabilities::default() };
    PerSequence::new("adding", "1", forward).capabilities(capabilities)
}

fn lanes(values: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 4];
    values.iter().enumerate().for_each(|(n, x)| lanes[n % 4] += x);
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}

fn sorted(values: &[f32]) -> f32 {
    let mut values = values.to_vec();
    values.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    values.iter().sum()
}

fn zeros_skipped(values: &[f32]) -> f32 {
    lanes(&values.iter().copied().filter(|&x| x != 0.0).collect::<Vec<_>>())
}

#[test]
fn a_kernel_that_declares_no_arithmetic_is_revealed_and_replayed() {
    let kernel = Implementation::kernel(Arc::new(adding(lanes)));
    let asked = ask(&kernel, &options(37, Plan::Decode));
    let order = answer(&asked, Product::Pv).as_ref().expect("an order");
    let expected =
        "(0 4 8 12 16 20 24 28 32 36 (2 6 10 14 18 22 26 30 34) ((1 5 9 13 17 21 25 29 33) (3 7 11 15 19 23 27 31 35)))";
    assert_eq!(order.tree, expected.parse::<Tree>().expect("a tree").canonical());
    assert!(order.open.is_empty() && order.draws > 0);
    assert_eq!(readings(&order.tree)[0].to_string(), "lanes(4)");
}

#[test]
fn an_order_that_depends_on_values_is_refused() {
    for (name, sum) in [("sorted", sorted as fn(&[f32]) -> f32), ("zeros skipped", zeros_skipped)] {
        let kernel = Implementation::kernel(Arc::new(adding(sum)));
        for kv in [16, 37] {
            let asked = ask(&kernel, &options(kv, Plan::Decode));
            let answer = answer(&asked, Product::Pv);
            assert!(matches!(answer, Err(Unknown::Refused(_))), "{name}, {kv}: {answer:?}");
        }
    }
}

#[test]
fn a_kernel_without_lse_is_not_asked_for_the_order_of_its_scores() {
    let kernel = Implementation::kernel(Arc::new(adding(lanes).without_lse()));
    let asked = ask(&kernel, &options(8, Plan::Decode));
    assert!(matches!(answer(&asked, Product::Qk), Err(Unknown::NotAsked(why)) if why.contains("lse")));
}

#[test]
fn sixteen_bit_formats_reach_as_far_as_their_masks() {
    for (dtype, kv) in [(Dtype::BF16, 200), (Dtype::F16, 200)] {
        for fields in ["aligned,value.order=lanes:8,softmax.block=32", "fa2"] {
            let (kernel, numerics) = reference(fields);
            let asked = ask(&kernel, &Options { dtype: Some(dtype), ..options(kv, Plan::Decode) });
            let order = answer(&asked, Product::Pv);
            let order = order.as_ref().unwrap_or_else(|why| panic!("{fields}, {dtype}: {why}"));
            assert_eq!(order.tree, planted(&numerics, kv, Plan::Decode), "{fields}, {dtype}");
        }
    }
}

#[test]
fn every_plan_of_the_default_kernel_has_one_order() {
    let (kernel, numerics) = reference("aligned,value.order=pairwise,softmax.block=16");
    let asked = ask(&kernel, &Options { kv: vec![50], ..Options::default() });
    let trees = asked.asked.iter().filter(|it| it.product == Product::Pv && it.plan != Plan::PrefillMiddle);
    for it in trees {
        let order = it.answer.as_ref().unwrap_or_else(|why| panic!("{}: {why}", it.plan));
        assert_eq!(order.tree, planted(&numerics, 50, Plan::Decode), "{}", it.plan);
    }
    assert_eq!(asked.asked.iter().filter(|it| it.answer.is_ok()).count(), Plan::ALL.len() + 2);
}

#[test]
fn a_case_is_asked_for_one_of_its_rows() {
    use lastbit::finding::Path;
    let file =
        lastbit::subject::attention::text::load(&binary::repository("corpora/regressions/attention/order-fixed-split-bf16.case"));
    let case = file.expect("a case").case;
    let (train, infer) = (reference("aligned").0, reference("aligned,grid.split=fixed_size:64").0);
    let order = |kernel: &Implementation, path| of_case(kernel, &case, path, 0, 0).map_err(|why| why.to_string());
    let (whole, split) = (order(&train, Path::Train).expect("an order"), order(&infer, Path::Infer).expect("an order"));
    assert_eq!((whole.parts.len(), split.parts.len()), (1, 2));
    assert_eq!(split.parts[1], Tree::Leaf(64));
}

#[test]
fn the_command_shows_where_prefill_and_decode_of_fa3_part() {
    let folder = Folder::new();
    let arguments =
        ["reveal", "--train", "ref:fa3", "--infer", "ref:fa3", "--kv", "129", "--plan", "prefill,decode", "--svg", "trees"];
    let output = folder.lastbit(&arguments);
    let text = stdout(&output);
    assert_eq!(code(&output), 1, "{text}{}", stderr(&output));
    for line in ["blocks of 128, last to first", "one running sum, first to last", "first sum of its own: (0 128) (terms 0 128)"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    let drawn = std::fs::read_dir(folder.path("trees")).expect("a folder").count();
    assert_eq!(drawn, 6, "of each kernel two plans, and the scores that both have");
}

#[test]
fn the_command_prints_one_json_object() {
    let folder = Folder::new();
    let split = "ref:aligned,grid.split=fixed_size:16,grid.merge=tree";
    let output = folder.lastbit(&["reveal", "--kernel", split, "--kv", "40", "--plan", "decode", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let page = last_json(&output);
    let order = &page["orders"][0];
    assert_eq!((order["plan"].as_str(), order["outcome"].as_str()), (Some("decode"), Some("established")));
    assert_eq!(order["merges"], "(0 1 2)");
    let sizes: Vec<u64> = order["parts"].as_array().expect("parts").iter().filter_map(|part| part["terms"].as_u64()).collect();
    assert_eq!(sizes, [16, 16, 8]);
    assert_eq!(page["orders"][1]["product"], "QK");
}

#[test]
fn the_command_refuses_plans_and_formats_that_are_not_there() {
    let folder = Folder::new();
    let unknown = folder.lastbit(&["reveal", "--kernel", "ref:aligned", "--plan", "sideways"]);
    assert_eq!(code(&unknown), 2);
    assert!(stderr(&unknown).contains("is not one of prefill,"), "{}", stderr(&unknown));
    let half = folder.lastbit(&["reveal", "--train", "ref:aligned"]);
    assert_eq!(code(&half), 2);
}
