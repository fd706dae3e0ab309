//! A report as one JSON object.

use super::compared::Pair;
use crate::subject::attention::reveal::{Asked, Order, Orders, Unknown, readings};
use serde_json::{Value, json};

pub(super) fn all(all: &[Orders], pairs: &[Pair<'_>]) -> Value {
    let pairs: Vec<Value> = pairs
        .iter()
        .map(|pair| {
            let text = |tree: &Option<crate::tree::Tree>| tree.as_ref().map(ToString::to_string);
            json!({
                "product": pair.train.0.product.name(),
                "kv": pair.train.0.kv,
                "train": pair.train.0.plan.name(),
                "infer": pair.infer.0.plan.name(),
                "parts": pair.parting.is_some(),
                "first_of_train": pair.parting.as_ref().and_then(|it| text(&it.left)),
                "first_of_infer": pair.parting.as_ref().and_then(|it| text(&it.right)),
            })
        })
        .collect();
    match all {
        [train, infer] => json!({"train": kernel(train), "infer": kernel(infer), "compared": pairs}),
        _ => all.first().map_or(Value::Null, kernel),
    }
}

fn kernel(orders: &Orders) -> Value {
    json!({
        "kernel": orders.kernel,
        "format": orders.format.to_string(),
        "head_dims": [orders.head_dims.0, orders.head_dims.1],
        "orders": orders.asked.iter().map(asked).collect::<Vec<_>>(),
        "not_reached": ["the order of the row sum"],
    })
}

fn asked(it: &Asked) -> Value {
    let mut value = json!({"plan": it.plan.name(), "product": it.product.name(), "kv": it.kv});
    let fields = match &it.answer {
        Ok(order) => known(order),
        Err(Unknown::NotAsked(reason)) => json!({"outcome": "not_asked", "why": reason}),
        Err(unknown) => json!({"outcome": "not_established", "why": unknown.to_string()}),
    };
    if let (Value::Object(value), Value::Object(fields)) = (&mut value, fields) {
        value.extend(fields);
    }
    value
}

fn known(order: &Order) -> Value {
    let parts: Vec<Value> = order
        .parts
        .iter()
        .map(|part| {
            let read: Vec<String> = readings(part).iter().map(ToString::to_string).collect();
            let leaves = part.leaves();
            json!({"terms": leaves.len(), "first": leaves.iter().min(), "readings": read})
        })
        .collect();
    json!({
        "outcome": if order.open.is_empty() { "established" } else { "in_part" },
        "tree": order.tree.to_string(),
        "readings": readings(&order.tree).iter().map(ToString::to_string).collect::<Vec<_>>(),
        "parts": parts,
        "merges": order.merges.as_ref().map(ToString::to_string),
        "probes": order.probes,
        "confirmed": order.confirmed,
        "draws": order.draws,
        "runs": order.runs,
        "arithmetic": order.arithmetic.to_string(),
        "arithmetics_that_fit_too": order.indistinct,
        "finishing": order.finishing.map(|it| it.to_string()),
        "open": order.open,
    })
}
