//! The pairs of the `mirror` regime.
//!
//! Positions fall into spans that start at positions congruent to `phase`. Inside a span, slots are paired by a reflection
//! `s -> 2 c - s (mod n)` whose centre `c` is drawn for each (sequence, span, KV head): an involution that needs no table, so that
//! any position is answered alone and in constant time, however long the span. A span of odd length has one fixed point, one of
//! even length two: those slots stay small, so that there is something to swamp. Of the pairs, one is always large and each other
//! one in three cases of four. Only a span of two has no slot to spare.

use super::values::{Purpose, address};
use crate::source::mix;

/// What a position is in its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// Small values.
    Alone,
    /// Half of a pair.
    Paired {
        /// The earlier position of the two: both take K, and the magnitude of V, from it.
        first: i64,
        /// Whether this is the later one, whose V is negated.
        second: bool,
    },
}

/// The slot at a position.
pub(super) fn slot(seed: u64, sequence: u32, head: u64, span: u32, phase: u32, position: i64) -> Slot {
    let (span, phase) = (i64::from(span.max(2)), i64::from(phase));
    let index = (position - phase).div_euclid(span);
    let nominal = index * span + phase;
    // No position lies before 0: the first span may be cut short, and must not pair with what is not there.
    let start = if position >= 0 { nominal.max(0) } else { nominal };
    let length = nominal + span - start;
    if length < 3 && span > 2 || length < 2 {
        return Slot::Alone;
    }
    let key = address(seed, Purpose::Pairs, sequence, index, head);
    let own = position - start;
    if length == 2 {
        return Slot::Paired { first: start, second: own == 1 };
    }
    // A fixed point of the reflection; in a span of even length the other one lies half the length away.
    let centre = (mix(key, 0) % length as u64) as i64;
    let from_centre = (own - centre).rem_euclid(length);
    let pair = from_centre.min(length - from_centre);
    let partner = (2 * centre - own).rem_euclid(length);
    if partner == own {
        return Slot::Alone;
    }
    let pairs = (length - 1) / 2;
    let always = 1 + (mix(key, 1) % pairs as u64) as i64;
    if pair != always && mix(key, 1 + pair as u64) & 3 == 0 {
        return Slot::Alone;
    }
    Slot::Paired { first: start + own.min(partner), second: own > partner }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_mutual_and_inside_their_span() {
        for span in 2..40u32 {
            for phase in [0, 1, span - 1] {
                for head in 0..3 {
                    check(span, phase, head);
                }
            }
        }
    }

    fn check(span: u32, phase: u32, head: u64) {
        let slots: Vec<Slot> = (0..400).map(|p| slot(11, 2, head, span, phase, p)).collect();
        let mut start = 0;
        while start < 400 - 2 * i64::from(span) {
            let end = if start == 0 && !phase.is_multiple_of(span) { i64::from(phase) } else { start + i64::from(span) };
            let (mut alone, mut paired) = (0, 0);
            for p in start..end {
                match slots[p as usize] {
                    Slot::Alone => alone += 1,
                    Slot::Paired { first, second } => {
                        paired += 1;
                        assert!(first >= start && first < end && second == (first != p));
                        let both = slots[start as usize..end as usize]
                            .iter()
                            .filter(|s| matches!(s, Slot::Paired { first: other, .. } if *other == first))
                            .count();
                        assert_eq!(both, 2, "span {span} phase {phase} position {p}");
                    }
                }
            }
            if end - start >= 3 {
                assert!(alone >= 1 && paired >= 2, "span {span} phase {phase} start {start}: {alone} alone, {paired} paired");
            }
            start = end;
        }
    }
}
