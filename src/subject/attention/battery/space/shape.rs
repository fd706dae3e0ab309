//! Head dims and numbers of heads.

use super::read::heads;
use super::value::{HeadRanks, Heads};
use crate::subject::attention::capabilities::HeadDims;
use crate::subject::attention::pin::Pins;
use crate::subject::attention::scope::Scope;
use crate::subject::attention::validate::{MAX_DIM, MAX_RANKS};

/// A value of the head dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DimsKind {
    /// Equal, odd, at most 15.
    Odd,
    /// Both of this size; not odd and small.
    Both(u32),
    /// `d_qk` is the larger.
    More,
    /// `d_qk` is the smaller.
    Less,
}

impl DimsKind {
    pub fn holds(self, d_qk: u32, d_v: u32) -> bool {
        match self {
            DimsKind::Odd => is_odd(d_qk) && d_qk == d_v,
            DimsKind::Both(d) => (d_qk, d_v) == (d, d),
            DimsKind::More => d_qk > d_v,
            DimsKind::Less => d_qk < d_v,
        }
    }

    pub fn name(self) -> String {
        match self {
            DimsKind::Odd => "equal, odd, up to 15".into(),
            DimsKind::Both(d) => format!("{d}/{d}"),
            DimsKind::More => "d_qk > d_v".into(),
            DimsKind::Less => "d_qk < d_v".into(),
        }
    }
}

fn is_odd(d: u32) -> bool {
    d <= 15 && d % 2 == 1
}

/// A value, and pairs that have it and that the kernels and pins allow: the cheapest first.
pub(super) struct Dims {
    pub kind: DimsKind,
    pub pairs: Vec<(u32, u32)>,
}

/// Small, usual and unequal ones, and what the kernels list, a rule of theirs needs, or a pin wants.
pub(super) fn dims(scope: &Scope, pins: &Pins, needed: &[u32]) -> Vec<Dims> {
    let listed = match scope.head_dims() {
        Some(HeadDims::Only(pairs)) => pairs,
        _ => Vec::new(),
    };
    let pinned = [pins.d_qk, pins.d_v].into_iter().flatten();
    let mut kinds =
        vec![DimsKind::Odd, DimsKind::Both(16), DimsKind::Both(64), DimsKind::Both(128), DimsKind::More, DimsKind::Less];
    let both = listed.iter().filter(|(d_qk, d_v)| d_qk == d_v).map(|&(d, _)| d).take(MOST_LISTED);
    for d in both.chain(needed.iter().copied()).chain(pinned) {
        if !is_odd(d) && !kinds.contains(&DimsKind::Both(d)) {
            kinds.push(DimsKind::Both(d));
        }
    }
    let allowed = |&(d_qk, d_v): &(u32, u32)| {
        let kept = pins.d_qk.is_none_or(|it| it == d_qk) && pins.d_v.is_none_or(|it| it == d_v);
        kept && scope.allows_head_dims(d_qk, d_v)
    };
    let pairs = |kind: DimsKind| {
        let usual: Vec<(u32, u32)> = match kind {
            DimsKind::Odd => [1, 3, 5, 7, 9, 11, 13, 15].map(|d| (d, d)).to_vec(),
            DimsKind::Both(d) => vec![(d, d)],
            DimsKind::More => UNEQUAL.to_vec(),
            DimsKind::Less => UNEQUAL.map(|(more, less)| (less, more)).to_vec(),
        };
        let mut pairs: Vec<(u32, u32)> =
            usual.into_iter().chain(listed.iter().copied()).filter(|it| kind.holds(it.0, it.1)).collect();
        pairs.retain(allowed);
        if pairs.is_empty() && matches!(kind, DimsKind::More | DimsKind::Less) {
            // Only a look at all of them shows that there is none.
            let all = (1..=MAX_DIM).flat_map(|d_qk| (1..=MAX_DIM).map(move |d_v| (d_qk, d_v)));
            pairs.extend(all.filter(|it| kind.holds(it.0, it.1)).find(allowed));
        }
        pairs.sort_by_key(|&(d_qk, d_v)| (d_qk + d_v, d_qk));
        pairs.dedup();
        pairs
    };
    kinds.into_iter().map(|kind| Dims { kind, pairs: pairs(kind) }).collect()
}

/// Equal dims of a kernel's list that are values of their own.
const MOST_LISTED: usize = 4;
/// Unequal dims, the larger first; the last is MLA's.
const UNEQUAL: [(u32, u32); 6] = [(2, 1), (3, 2), (9, 4), (16, 8), (24, 16), (192, 128)];

/// Numbers of KV heads, and of query heads to each, by [`Heads`].
pub(super) fn shapes(pins: &Pins) -> Vec<Vec<(u32, u32)>> {
    const USUAL: [(u32, u32); 12] =
        [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (2, 3), (3, 2), (2, 4), (1, 2), (1, 3), (1, 4), (1, 8)];
    let all = match pins.heads {
        Some((q, kv)) => vec![(kv, q / kv)],
        None => USUAL.to_vec(),
    };
    let of = |class: &Heads| all.iter().copied().filter(|&(kv, group)| heads(kv as usize, group as usize) == *class).collect();
    Heads::ALL.iter().map(of).collect()
}

/// Numbers of head-parallel ranks that a shape can have.
pub(super) fn ranks(class: HeadRanks, (kv, group): (u32, u32)) -> Vec<u32> {
    match class {
        HeadRanks::One => vec![1],
        HeadRanks::Divided => (2..=MAX_RANKS).filter(|&ranks| kv.is_multiple_of(ranks)).collect(),
        HeadRanks::Replicated => {
            let even = |ranks: &u32| ranks.is_multiple_of(kv) && *ranks > kv && (kv * group).is_multiple_of(*ranks);
            (2..=MAX_RANKS).filter(even).collect()
        }
    }
}
