//! A part of a job that is spread over machines: the units of the job are dealt out by their number, so no machine needs to know of another.

use std::fmt;
use std::str::FromStr;

/// Most parts that a job may have.
const PARTS: u64 = 1 << 20;

/// `I/N`: unit `u` of a job belongs to it where `u % N == I - 1`.
///
/// Dealt out and not cut into ranges: the last unit may be moved later (a run that goes on with more cases) without moving any other, and
/// cases that take long, which come in no order, fall on all parts alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    number: u64,
    of: u64,
}

impl Shard {
    /// All of a job.
    pub(super) const WHOLE: Shard = Shard { number: 1, of: 1 };

    /// From 1.
    pub(super) fn number(self) -> u64 {
        self.number
    }

    /// Parts in all: also from one unit of this part to the next.
    pub(super) fn of(self) -> u64 {
        self.of
    }

    /// The unit that comes after `n` units of this part.
    pub(super) fn unit(self, n: u64) -> u64 {
        self.number - 1 + n * self.of
    }

    /// Whether a unit is of this part.
    pub(super) fn has(self, unit: u64) -> bool {
        unit % self.of == self.number - 1
    }

    /// How many of so many units are of this part.
    pub(super) fn count(self, units: u64) -> u64 {
        (units + self.of - self.number) / self.of
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let part = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match part {
            Some((number, of)) if number >= 1 && number <= of && of <= PARTS => Ok(Shard { number, of }),
            _ => Err(format!("`{text}` is no shard; write I/N with I from 1 to N and N at most {PARTS}, e.g. 2/7")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_of_one_shard_and_counts_agree() {
        for of in 1..6 {
            for units in 0..20 {
                let mut owners = vec![0; units as usize];
                for number in 1..=of {
                    let shard: Shard = format!("{number}/{of}").parse().unwrap();
                    let own: Vec<u64> = (0..shard.count(units)).map(|n| shard.unit(n)).collect();
                    assert_eq!(own, (0..units).filter(|&unit| shard.has(unit)).collect::<Vec<_>>(), "{shard} of {units}");
                    own.iter().for_each(|&unit| owners[unit as usize] += 1);
                }
                assert!(owners.iter().all(|&count| count == 1), "{of}: {owners:?}");
            }
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        for text in ["", "1", "0/3", "4/3", "1/0", "-1/3", "a/3", "1/3/5", "1/1048577"] {
            let reason = text.parse::<Shard>().unwrap_err();
            assert!(reason.contains("write I/N"), "{text}: {reason}");
        }
        assert_eq!("2/7".parse::<Shard>().unwrap().to_string(), "2/7");
    }
}
