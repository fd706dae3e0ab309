//! A report for a reader.

use super::compared::Pair;
use super::folded::{runs, text};
use crate::subject::attention::reveal::{Asked, Order, Orders, Product, Unknown, merge_words, readings};
use crate::tree::Tree;
use std::fmt::Write;

pub(super) fn all(all: &[Orders], pairs: &[Pair<'_>], full: bool) -> String {
    let mut out = String::new();
    for (n, orders) in all.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        page(&mut out, orders, full);
    }
    if let [train, infer] = all {
        compared(&mut out, train, infer, pairs, full);
    }
    out
}

fn page(out: &mut String, orders: &Orders, full: bool) {
    let (d_qk, d_v) = orders.head_dims;
    let dims = if d_qk == d_v { d_qk.to_string() } else { format!("{d_qk}/{d_v}") };
    let _ = writeln!(out, "{}: {}, head dim {dims}", orders.kernel, orders.format);
    for product in [Product::Pv, Product::Qk] {
        let about = match product {
            Product::Pv => "PV: the order over keys",
            Product::Qk => "QK: the order over head-dim lanes",
        };
        let _ = writeln!(out, "\n{about}");
        let asked: Vec<&Asked> = orders.asked.iter().filter(|it| it.product == product).collect();
        let mut done: Vec<&Order> = Vec::new();
        for it in &asked {
            let Ok(order) = &it.answer else { continue };
            if done.iter().any(|seen| same(seen, order)) {
                continue;
            }
            done.push(order);
            // Plans of one order stand together.
            let alike: Vec<&Asked> =
                asked.iter().filter(|other| other.answer.as_ref().is_ok_and(|it| same(it, order))).copied().collect();
            found(out, &alike, order, full);
        }
        for it in &asked {
            match &it.answer {
                Err(Unknown::NotAsked(_)) | Ok(_) => {}
                Err(unknown) => {
                    let _ = writeln!(out, "  {}\n    not established: {unknown}", title(it));
                }
            }
        }
        not_asked(out, &asked);
    }
    out.push_str(
        "\nnot reached: the order of the row sum (its terms are at most 1 beside the largest, so that no mask swamps them)\n",
    );
}

fn same(a: &Order, b: &Order) -> bool {
    a.tree == b.tree && a.merges == b.merges && a.parts == b.parts && a.open == b.open
}

fn title(it: &Asked) -> String {
    match it.product {
        Product::Pv => format!("{}, {} keys", it.plan, it.kv),
        Product::Qk => it.plan.to_string(),
    }
}

fn found(out: &mut String, alike: &[&Asked], order: &Order, full: bool) {
    let titles: Vec<String> = alike.iter().map(|it| title(it)).collect();
    let _ = writeln!(out, "  {}: {}", titles.join("; "), shape(order));
    let _ = writeln!(out, "    {}", text(&order.tree, full));
    let (mut probes, mut confirmed, mut runs) = (0, 0, 0);
    for it in alike.iter().filter_map(|it| it.answer.as_ref().ok()) {
        (probes, confirmed, runs) = (probes + it.probes, confirmed + it.confirmed, runs + it.runs);
    }
    let _ = writeln!(
        out,
        "    {probes} probes and {confirmed} more that the tree predicts, in {runs} runs: whole counts, both signs, each twice"
    );
    let finishing = order.finishing.map_or(String::new(), |it| format!(", {it}"));
    let others = match order.indistinct {
        0 => String::new(),
        n => format!("; {n} other kind(s) of rounding fit as well"),
    };
    let each = if alike.len() > 1 { " each" } else { "" };
    let _ = writeln!(
        out,
        "    replayed on {} draws of random values{each}, bit for bit: {}{finishing}{others}",
        order.draws, order.arithmetic
    );
    for open in &order.open {
        let _ = writeln!(out, "    not established: {open}");
    }
}

/// What a tree is read as.
pub(super) fn shape(order: &Order) -> String {
    match (&order.merges, &order.parts[..]) {
        (Some(merges), parts) => {
            let sizes: Vec<u32> = parts.iter().map(|part| part.leaves().len() as u32).collect();
            let mut inside: Vec<String> = parts.iter().map(read).collect();
            inside.dedup();
            let inside = if inside.len() == 1 { format!("each {}", inside[0]) } else { inside.join("; ") };
            format!("{} splits of {}, {}; {inside}", parts.len(), list(&sizes), merge_words(merges))
        }
        (None, _) => read(&order.tree),
    }
}

fn list(sizes: &[u32]) -> String {
    let first = sizes.first().copied().unwrap_or_default();
    let rest = sizes.iter().position(|&size| size != first);
    match rest {
        None => first.to_string(),
        Some(at) if at + 1 == sizes.len() && at > 1 => format!("{first}, the last {}", sizes[at]),
        Some(_) => sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn read(tree: &Tree) -> String {
    let readings = readings(tree);
    match (&readings[..], tree.leaves().len()) {
        (_, 1) => "one term".to_owned(),
        (_, 2) => "two terms".to_owned(),
        ([], _) => "no order that has a name here".to_owned(),
        ([first, rest @ ..], _) => {
            let rest: Vec<String> = rest.iter().take(2).map(|it| format!(", or {it}")).collect();
            format!("{first}{}", rest.concat())
        }
    }
}

fn not_asked(out: &mut String, asked: &[&Asked]) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for it in asked {
        let Err(Unknown::NotAsked(reason)) = &it.answer else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, plans)) => plans.push(it.plan.to_string()),
            None => reasons.push((reason, vec![it.plan.to_string()])),
        }
    }
    for (reason, mut plans) in reasons {
        plans.dedup();
        let _ = writeln!(out, "  not asked: {}: {reason}", plans.join(", "));
    }
}

fn compared(out: &mut String, train: &Orders, infer: &Orders, pairs: &[Pair<'_>], full: bool) {
    let _ = writeln!(out, "\n{} against {}", train.kernel, infer.kernel);
    if pairs.is_empty() {
        out.push_str("  nothing that both were asked is known of both\n");
    }
    for pair in pairs {
        let ((a, left), (b, right)) = (pair.train, pair.infer);
        let of = match a.product {
            Product::Pv => format!("PV, {} keys", a.kv),
            Product::Qk => "QK".to_owned(),
        };
        let title = format!("{of}: {} against {}", a.plan, b.plan);
        let Some(parting) = &pair.parting else {
            let _ = writeln!(out, "  {title}: one order");
            continue;
        };
        let _ = writeln!(out, "  {title}: they part");
        for (side, order, only) in [("train", left, &parting.left), ("infer", right, &parting.right)] {
            let _ = writeln!(out, "    {side}: {}\n           {}", shape(order), text(&order.tree, full));
            let first = only.as_ref().map_or("none that the other does not make".to_owned(), |it| sum(it, full));
            let _ = writeln!(out, "           first sum of its own: {first}");
        }
    }
}

/// A sum with its terms.
fn sum(tree: &Tree, full: bool) -> String {
    let mut leaves = tree.leaves();
    leaves.sort_unstable();
    format!("{} (terms {})", text(tree, full), runs(&leaves))
}
