//! The orders in which both kernels add, side by side: what `lastbit reveal` finds from outside.

use super::certificate::TreeText;
use crate::finding::Path;
use crate::subject::attention::check::Pair;
use crate::subject::attention::reveal::{Options, Plan, Product, merge_words, orders, readings};

/// Keys over which an order is asked for: past two blocks of 128, and one of 176.
const KEYS: u32 = 260;

/// The plan by which each side makes most of its rows.
const PLANS: [Plan; 2] = [Plan::Prefill, Plan::Decode];

/// Of both kernels; what a kernel does not let itself be asked is said in the tree's place.
pub(super) fn trees(pair: &Pair) -> Vec<TreeText> {
    let mut trees = Vec::new();
    for (side, plan) in Path::BOTH.into_iter().zip(PLANS) {
        let options = Options { kv: vec![KEYS], plans: vec![plan], ..Options::default() };
        let asked = orders("", pair.side(side), &options, &mut |_| {}).map_or_else(|_| Vec::new(), |it| it.asked);
        for it in asked.into_iter().filter(|it| it.product == Product::Pv) {
            let of = format!("the product with V over {} keys, {plan}", it.kv);
            let (tree, shape) = match it.answer {
                Ok(order) => {
                    let mut shape: Vec<String> = match &order.parts[..] {
                        [whole] => readings(whole).iter().take(1).map(ToString::to_string).collect(),
                        parts => vec![format!("{} partial sums", parts.len())],
                    };
                    shape.extend(order.merges.as_ref().map(|merges| format!("merged {}", merge_words(merges))));
                    shape.extend(order.open);
                    (order.tree.to_string(), shape.join("; "))
                }
                Err(unknown) => (String::new(), format!("not established: {unknown}")),
            };
            trees.push(TreeText { side: side.to_string(), of, tree, shape });
        }
    }
    trees
}
