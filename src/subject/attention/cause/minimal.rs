//! Delta debugging over a list of changes: the least set of them that has an effect.

/// What a search gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Places in the list, ascending.
    pub set: Vec<usize>,
    /// Whether it was shown that no element can be spared.
    pub least: bool,
}

/// Asks about sets, at most so often.
struct Asked<'a> {
    works: &'a mut dyn FnMut(&[usize]) -> bool,
    left: usize,
}

impl Asked<'_> {
    /// `None` when the limit is reached.
    fn ask(&mut self, set: &[usize]) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        Some((self.works)(set))
    }
}

/// A least set of `0..n` for which `works` holds: the first element that works alone, else the first pair, else a set of which no
/// element can be spared (Zeller and Hildebrandt's `ddmin`, IEEE TSE 28(2), 2002). `None` where not even all of them work, or where `limit`
/// questions did not suffice for that one. `works` may say no to sets that mean nothing.
pub(super) fn minimal(n: usize, limit: usize, works: &mut dyn FnMut(&[usize]) -> bool) -> Option<Found> {
    let mut asked = Asked { works, left: limit };
    let found = |set: &[usize], least| Some(Found { set: set.to_vec(), least });
    for one in 0..n {
        if asked.ask(&[one])? {
            return found(&[one], true);
        }
    }
    let mut set: Vec<usize> = (0..n).collect();
    // A lone element has been asked about.
    if n < 2 || !asked.ask(&set)? {
        return None;
    }
    // Pairs take n (n - 1) / 2 questions: they may use up half of what is left.
    if n * (n - 1) / 2 <= asked.left / 2 {
        for one in 0..n {
            for other in one + 1..n {
                if asked.ask(&[one, other])? {
                    return found(&[one, other], true);
                }
            }
        }
    }
    let mut parts = 2;
    while set.len() > 1 {
        let chunks: Vec<Vec<usize>> = set.chunks(set.len().div_ceil(parts)).map(<[usize]>::to_vec).collect();
        let without = |chunk: &Vec<usize>| set.iter().copied().filter(|it| !chunk.contains(it)).collect::<Vec<usize>>();
        // A chunk alone, then all but one chunk; with two chunks these are the same.
        let complements = if chunks.len() > 2 { chunks.iter().map(without).collect() } else { Vec::new() };
        let mut smaller = None;
        for (which, candidate) in chunks.iter().chain(&complements).enumerate() {
            match asked.ask(candidate) {
                None => return found(&set, false),
                Some(true) => {
                    parts = if which < chunks.len() { 2 } else { parts.min(chunks.len()).saturating_sub(1).max(2) };
                    smaller = Some(candidate.clone());
                    break;
                }
                Some(false) => {}
            }
        }
        match smaller {
            Some(smaller) => set = smaller,
            None if parts >= set.len() => break,
            None => parts = (parts * 2).min(set.len()),
        }
    }
    found(&set, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets that contain all of `needed`.
    fn containing(n: usize, limit: usize, needed: &[usize]) -> (Option<Found>, usize) {
        let mut asked = 0;
        let found = minimal(n, limit, &mut |set| {
            asked += 1;
            needed.iter().all(|it| set.contains(it))
        });
        (found, asked)
    }

    #[test]
    fn every_needed_set_of_ten_is_found_exactly() {
        for needed in 1u32..1 << 10 {
            let needed: Vec<usize> = (0..10).filter(|n| needed >> n & 1 == 1).collect();
            let (found, asked) = containing(10, 1000, &needed);
            assert_eq!(found, Some(Found { set: needed, least: true }));
            assert!(asked < 200, "{asked}");
        }
    }

    #[test]
    fn no_element_of_what_is_found_can_be_spared() {
        // Three of the first six, or the last two and the first.
        let works = |set: &[usize]| set.iter().filter(|&&it| it < 6).count() >= 3 || [0, 8, 9].iter().all(|it| set.contains(it));
        let found = minimal(10, 1000, &mut |set| works(set)).expect("all of them work");
        for spared in &found.set {
            let rest: Vec<usize> = found.set.iter().copied().filter(|it| it != spared).collect();
            assert!(works(&found.set) && !works(&rest), "{found:?}");
        }
    }

    #[test]
    fn the_limit_is_kept_and_said() {
        for limit in 0..120 {
            let (found, asked) = containing(12, limit, &[2, 5, 9]);
            assert!(asked <= limit);
            if let Some(found) = found {
                assert!([2, 5, 9].iter().all(|it| found.set.contains(it)));
                assert!(!found.least || found.set == [2, 5, 9], "{found:?}");
            }
        }
    }

    #[test]
    fn nothing_works() {
        assert_eq!(minimal(5, 100, &mut |_| false), None);
        assert_eq!(minimal(0, 100, &mut |_| true), None);
    }
}
