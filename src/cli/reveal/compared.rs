//! Pairs of orders, one of each kernel.

use crate::finding::Path;
use crate::subject::attention::reveal::{Asked, Order, Orders, Parting, Product, parting};

/// Two orders over the same terms.
pub(super) struct Pair<'a> {
    pub(super) train: (&'a Asked, &'a Order),
    pub(super) infer: (&'a Asked, &'a Order),
    /// `None` where they are one order.
    pub(super) parting: Option<Parting>,
}

/// The first kernel's training plan against each inference plan of the second, and every plan that both were asked under.
pub(super) fn pairs<'a>(train: &'a Orders, infer: &'a Orders) -> Vec<Pair<'a>> {
    let known = |orders: &'a Orders| {
        let known = orders.asked.iter().filter_map(|it| Some((it, it.answer.as_ref().ok()?)));
        known.collect::<Vec<(&'a Asked, &'a Order)>>()
    };
    let (left, right) = (known(train), known(infer));
    let mut pairs = Vec::new();
    for &(asked, order) in &left {
        // The first training plan that the kernel has, for each sum and length.
        let first = left.iter().find(|(it, _)| it.product == asked.product && it.kv == asked.kv && it.plan.path() == Path::Train);
        let trains = first.is_some_and(|(it, _)| it.plan == asked.plan);
        for &(other, theirs) in &right {
            let crossed = trains && other.plan.path() == Path::Infer;
            let same_terms = asked.product == other.product && (asked.kv == other.kv || asked.product == Product::Qk);
            if same_terms && (crossed || asked.plan == other.plan) && order.terms() == theirs.terms() {
                let parting = parting(&order.tree, &theirs.tree);
                pairs.push(Pair { train: (asked, order), infer: (other, theirs), parting });
            }
        }
    }
    pairs.sort_by_key(|pair| (pair.train.0.product, pair.train.0.plan == pair.infer.0.plan));
    pairs
}
