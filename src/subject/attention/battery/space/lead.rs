//! The leading sequence: the first of the longest. Its lengths, its hit and its steps are what the knobs speak of; company is short.

use super::value::{Hit, Length, Rows, Steps};
use crate::subject::attention::{Case, Request, Sequence};

/// From here on a length is [`Length::Long`], whatever the blocks.
pub(super) const LONG: u32 = 516;
/// From here on it is [`Length::Longer`].
pub(super) const LONGER: u32 = 2049;
/// The longest that is chosen.
const LONGEST: u32 = 8193;

/// What the knobs want of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub length: Length,
    pub rows: Rows,
    pub hit: Hit,
    pub steps: Steps,
    pub reject: bool,
    pub preempt: bool,
}

/// Its lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub q: u32,
    pub kv: u32,
    pub hit: u32,
}

/// Lengths by class, from the block and split lengths in play.
pub(super) struct Lengths {
    /// Those from 8 to 255: below, a length is every class at once; above, it is [`Length::Long`] anyway.
    pub granules: Vec<u32>,
    members: Vec<Vec<u32>>,
}

impl Lengths {
    pub fn new(all: &[u32]) -> Lengths {
        let mut granules: Vec<u32> = all.iter().copied().filter(|it| (8..256).contains(it)).collect();
        if granules.is_empty() {
            granules = vec![16, 64];
        }
        let mut lengths = Lengths { granules, members: Vec::new() };
        let mut far: Vec<u32> = vec![516, 517, 521, 600, 767, 1023, 1025, LONGER, 2050, 2055, 2101];
        far.extend(
            all.iter()
                .filter(|it| **it >= 256)
                .flat_map(|&g| [g - 1, g, g.saturating_add(1), g.saturating_mul(2).saturating_add(1)]),
        );
        far.retain(|kv| (LONG..=LONGEST).contains(kv));
        far.sort_unstable();
        far.dedup();
        let every: Vec<u32> = (1..LONG).chain(far).collect();
        let of = |class: &Length| every.iter().copied().filter(|&kv| lengths.class(kv) == Some(*class)).collect();
        lengths.members = Length::ALL.iter().map(of).collect();
        lengths
    }

    /// The class of a length; 0 has none.
    pub fn class(&self, kv: u32) -> Option<Length> {
        let near = |length: fn(u32) -> u32| self.granules.iter().any(|&g| length(g) == kv);
        Some(match kv {
            0 => return None,
            LONGER.. => Length::Longer,
            LONG.. => Length::Long,
            1 => Length::One,
            _ if near(|g| g - 1) => Length::Before,
            _ if near(|g| g) => Length::At,
            _ if near(|g| g + 1) => Length::After,
            _ if near(|g| 2 * g + 1) => Length::TwiceAfter,
            _ => Length::Elsewhere,
        })
    }

    /// Lengths of a class, ascending: all of them, but of the long ones a choice.
    pub fn members(&self, class: Length) -> &[u32] {
        &self.members[class as usize]
    }

    /// Where a hit ends that leaves so many rows of a sequence of `kv` positions.
    pub fn hit(&self, kv: u32, left: u32) -> Hit {
        let end = kv.saturating_sub(left);
        if end > 0 && self.granules.iter().any(|&g| end.is_multiple_of(g)) { Hit::On } else { Hit::Off }
    }

    /// Ways to have what is wanted with `kv` positions; none only where there is none.
    pub fn leads(&self, wanted: &Wanted, kv: u32) -> Vec<Lead> {
        let Some(least) = least_rows(wanted) else { return Vec::new() };
        // Rows that are left to compute: the fewest, some more, up to each end of a block, and many.
        let mut left: Vec<u32> = (least..least + 7).chain([12, kv / 2, kv.saturating_sub(1), kv]).collect();
        left.extend(self.granules.iter().flat_map(|&g| [g, kv.saturating_sub(least) / g * g].map(|end| kv.saturating_sub(end))));
        left.sort_unstable();
        left.dedup();
        left.retain(|&it| it >= least);
        let mut leads = Vec::new();
        for left in left {
            let all = [kv];
            let (more, some) = ([kv + 1, kv + 3, kv + 6], [left, left + 1, left + 3, kv.saturating_sub(1)]);
            let q: &[u32] = match wanted.rows {
                Rows::One => &[1],
                Rows::Part => &some,
                Rows::All => &all,
                Rows::Excess => &more,
            };
            for &q in q {
                let as_wanted = match wanted.hit {
                    Hit::None => true,
                    it => left < q && self.hit(kv, left) == it,
                };
                // Without a hit all rows are left.
                let hit = if wanted.hit == Hit::None { 0 } else { q.saturating_sub(left) };
                let lead = Lead { q, kv, hit };
                if as_wanted && q >= least + hit && rows(q, kv) == Some(wanted.rows) && !leads.contains(&lead) {
                    leads.push(lead);
                }
            }
        }
        leads
    }
}

/// The class of a sequence's rows; none has none.
pub(super) fn rows(q: u32, kv: u32) -> Option<Rows> {
    match q {
        0 => None,
        1 => Some(Rows::One),
        _ if q < kv => Some(Rows::Part),
        _ if q == kv => Some(Rows::All),
        _ => Some(Rows::Excess),
    }
}

/// The fewest rows that must be left to compute; `None` where no number will do.
fn least_rows(wanted: &Wanted) -> Option<u32> {
    let &Wanted { steps, reject, preempt, .. } = wanted;
    match steps {
        // Nothing is rolled back of a single row.
        Steps::Decode if reject => None,
        // A request that is done cannot lose its pages.
        Steps::Whole if preempt && !reject => None,
        Steps::Whole if !reject => Some(1),
        Steps::Whole | Steps::Decode => Some(2),
        Steps::Verify | Steps::Chunks | Steps::Budget => Some(if reject { 3 } else { 2 }),
    }
}

/// The leading sequence of a case and its request; none in an empty batch.
pub(super) fn of(case: &Case) -> Option<(usize, Sequence, &Request)> {
    let sequences = &case.problem.sequences;
    let longest = sequences.iter().map(|it| it.kv).max()?;
    let n = sequences.iter().position(|it| it.kv == longest)?;
    Some((n, sequences[n], case.infer.requests.get(n)?))
}
