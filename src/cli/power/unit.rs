//! The pieces of work that shards share out.

use crate::cli::Failure;
use crate::cli::job::{Configuration, generator};
use crate::subject::attention::Attention;
use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::power::{Settings, clean_kernels};
use crate::subject::attention::reference::Reference;
use std::str::FromStr;

/// What was asked for, apart from threads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    pub(super) seed: u64,
    pub(super) cases: u64,
    pub(super) clean_cases: u64,
    pub(super) rival_cases: u64,
    pub(super) mutants: Vec<Mutant>,
}

/// One piece. The judges are none: they take no time, and are run where shards are joined.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unit {
    /// A mutant's campaigns, its smallest case, and the rivals on it.
    Mutant(Mutant),
    /// The campaign of a kernel without a fault.
    Clean(Box<Reference>),
    /// The rivals on `ref:aligned`.
    Rivals,
}

impl Unit {
    pub(super) fn mutant(&self) -> Option<Mutant> {
        if let Unit::Mutant(mutant) = self { Some(*mutant) } else { None }
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        match self {
            Unit::Mutant(mutant) => mutant.to_string(),
            Unit::Clean(kernel) => format!("{kernel} without a fault"),
            Unit::Rivals => "checks of the field".into(),
        }
    }
}

impl Asked {
    pub(super) fn settings(&self, jobs: usize) -> Settings {
        Settings { seed: self.seed, cases: self.cases, rival_cases: self.rival_cases, jobs }
    }

    /// In the order in which they are dealt out.
    pub(super) fn units(&self) -> Vec<Unit> {
        let clean = clean_kernels(&self.mutants).into_iter().map(|kernel| Unit::Clean(Box::new(kernel)));
        self.mutants.iter().map(|&mutant| Unit::Mutant(mutant)).chain(clean).chain([Unit::Rivals]).collect()
    }

    /// All that the results depend on, by field.
    pub(super) fn configuration(&self) -> Configuration {
        let mutants: Vec<String> = self.mutants.iter().map(ToString::to_string).collect();
        let reference = || Implementation::reference(Reference::default());
        let pair = Pair { train: reference(), infer: reference(), oracle: Mode::Off, captured: None, witness: false };
        Configuration(
            [
                ("lastbit", env!("CARGO_PKG_VERSION").to_owned()),
                ("seed", self.seed.to_string()),
                ("cases", self.cases.to_string()),
                ("clean_cases", self.clean_cases.to_string()),
                ("rival_cases", self.rival_cases.to_string()),
                ("mutants", mutants.join(",")),
                ("generator", generator(&Attention::of(pair), self.seed)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        )
    }

    /// Reads what [`Asked::configuration`] holds; `file` is for messages.
    ///
    /// # Errors
    /// Which field means nothing.
    pub(super) fn of(configuration: &Configuration, file: &str) -> Result<Asked, Failure> {
        fn word<T: FromStr>(configuration: &Configuration, name: &str, file: &str) -> Result<T, Failure> {
            let value = configuration.get(name);
            let wrong = || Failure::Usage(format!("{file}: {name}: `{value}` means nothing"));
            value.parse().map_err(|_| wrong())
        }
        let mutants = configuration.get("mutants").split(',').filter(|id| !id.is_empty()).map(str::parse::<Mutant>);
        Ok(Asked {
            seed: word(configuration, "seed", file)?,
            cases: word(configuration, "cases", file)?,
            clean_cases: word(configuration, "clean_cases", file)?,
            rival_cases: word(configuration, "rival_cases", file)?,
            mutants: mutants.collect::<Result<_, _>>().map_err(|reason| Failure::Usage(format!("{file}: mutants: {reason}")))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_read_back() {
        let asked = Asked { seed: 3, cases: 4, clean_cases: 5, rival_cases: 6, mutants: Mutant::ALL.to_vec() };
        assert_eq!(Asked::of(&asked.configuration(), "x").unwrap(), asked);
        let none = Asked { mutants: Vec::new(), ..asked.clone() };
        assert_eq!(Asked::of(&none.configuration(), "x").unwrap(), none);
        let Configuration(mut fields) = asked.configuration();
        fields.retain(|(name, _)| name != "cases");
        let error = Asked::of(&Configuration(fields), "x").unwrap_err();
        assert_eq!(error.to_string(), "x: cases: `not set` means nothing");
        assert_eq!(asked.units().iter().filter(|unit| **unit == Unit::Rivals).count(), 1);
        assert!(asked.units().len() > Mutant::ALL.len() + 1);
    }
}
