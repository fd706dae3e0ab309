//! Whether folders are all the shards of one run.

use crate::cli::Failure;
use crate::cli::job::Configuration;
use crate::cli::shard::Shard;
use std::path::PathBuf;

/// A shard's folder, and what it says of itself.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Part {
    pub(in crate::cli) folder: PathBuf,
    pub(in crate::cli) shard: Shard,
    /// All that the run's results depend on; the same in every shard.
    pub(in crate::cli) configuration: Configuration,
}

/// Most missing shards that are named.
const NAMED: usize = 20;

/// Sorts the shards of one run; there is at least one.
///
/// # Errors
/// Some are missing, one is there twice, or one is of another run: the field that differs.
pub(in crate::cli) fn complete(parts: &mut [Part]) -> Result<(), Failure> {
    parts.sort_by_key(|part| part.shard.number());
    let first = &parts[0];
    let name = |part: &Part| part.folder.display().to_string();
    for part in &parts[1..] {
        let mut difference = first.configuration.difference(&part.configuration);
        let (of, other) = (first.shard.of().to_string(), part.shard.of().to_string());
        if of != other {
            difference = Some(("number of shards", &of, &other));
        }
        if let Some((field, here, there)) = difference {
            return Err(Failure::Usage(format!(
                "{field}: {} has {here}, {} has {there}: these are shards of different runs; give those of one",
                name(first),
                name(part)
            )));
        }
    }
    for pair in parts.windows(2) {
        if pair[0].shard == pair[1].shard {
            let (one, other) = (name(&pair[0]), name(&pair[1]));
            return Err(Failure::Usage(format!("shard {} is there twice: {one} and {other}; give one", pair[0].shard)));
        }
    }
    let of = first.shard.of();
    let there = |number: &u64| parts.iter().any(|part| part.shard.number() == *number);
    let missing = || (1..=of).filter(|number| !there(number));
    match missing().count() {
        0 => Ok(()),
        count => {
            let mut names: Vec<String> = missing().take(NAMED).map(|number| format!("{number}/{of}")).collect();
            if count > NAMED {
                names.push(format!("{} more", count - NAMED));
            }
            let names = names.join(", ");
            Err(Failure::Usage(format!("missing: shard {names}; run it, or give its folder too")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(shard: &str, seed: &str) -> Part {
        let configuration = Configuration(vec![("lastbit".into(), "1".into()), ("seed".into(), seed.into())]);
        Part { folder: format!("{}-of-{seed}", shard.replace('/', "-")).into(), shard: shard.parse().unwrap(), configuration }
    }

    fn refusal(mut parts: Vec<Part>) -> String {
        complete(&mut parts).unwrap_err().to_string()
    }

    #[test]
    fn all_shards_in_any_order_are_a_run() {
        let mut parts = vec![part("3/3", "1"), part("1/3", "1"), part("2/3", "1")];
        complete(&mut parts).unwrap();
        assert_eq!(parts.iter().map(|it| it.shard.number()).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn what_is_missing_double_or_foreign_is_named() {
        assert_eq!(refusal(vec![part("2/4", "1"), part("4/4", "1")]), "missing: shard 1/4, 3/4; run it, or give its folder too");
        assert!(refusal(vec![part("1/50", "1")]).contains("21/50, 29 more; run it"));
        let mut again = part("1/2", "1");
        again.folder = "again".into();
        assert_eq!(
            refusal(vec![part("1/2", "1"), part("2/2", "1"), again]),
            "shard 1/2 is there twice: 1-2-of-1 and again; give one"
        );
        assert_eq!(
            refusal(vec![part("1/2", "1"), part("2/2", "7")]),
            "seed: 1-2-of-1 has 1, 2-2-of-7 has 7: these are shards of different runs; give those of one"
        );
        assert!(
            refusal(vec![part("1/2", "1"), part("2/3", "1")]).starts_with("number of shards: 1-2-of-1 has 2, 2-3-of-1 has 3")
        );
    }
}
