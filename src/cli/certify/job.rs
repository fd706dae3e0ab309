//! What a certificate is asked for: everything that the records depend on.

use crate::certify::build::battery_text;
use crate::certify::certificate::KernelText;
use crate::certify::claim::Claim;
use crate::certify::kernel_text::kernel_text;
use crate::certify::work::Work;
use crate::cli::job::Configuration;
use crate::cli::{Failure, kernel};
use crate::external::name::Consent;
use crate::finding::Path;
use crate::subject::attention::Attention;
use crate::subject::attention::battery::{Battery, Size};
use crate::subject::attention::captured::Captured;
use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::Profile;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::pin::Pins;
use std::path::PathBuf;
use std::sync::Arc;

/// As it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) struct Job {
    pub(in crate::cli) train: String,
    pub(in crate::cli) infer: String,
    pub(in crate::cli) battery: Size,
    pub(in crate::cli) seed: u64,
    pub(in crate::cli) pins: Pins,
    pub(in crate::cli) data: Option<PathBuf>,
    /// With [`Claim::VersionEqual`].
    pub(in crate::cli) against: bool,
}

/// What is to be run, and by whom.
pub(in crate::cli) struct Ready {
    pub(in crate::cli) work: Work,
    pub(in crate::cli) kernels: [KernelText; 2],
}

impl Job {
    /// Starts the kernels and lays out the work.
    ///
    /// # Errors
    /// Which option is wrong, and why.
    pub(in crate::cli) fn ready(&self, consent: Consent) -> Result<Ready, Failure> {
        let pair = Pair {
            train: kernel("--train", &self.train, consent)?,
            infer: kernel("--infer", &self.infer, consent)?,
            oracle: Mode::Enclosure,
            captured: self.data.as_deref().map(Captured::load).transpose()?.map(Arc::new),
            witness: true,
        };
        if pair.captured.is_some() && self.pins.shape() {
            return Err(Failure::Usage("--pin: head dims and heads of --data are the file's; pin dtype or causal".into()));
        }
        let attention = Attention { pair, profile: Profile::Mixed, pins: self.pins };
        attention.start().map_err(Failure::Usage)?;
        let text = |side, words: &str| {
            kernel_text(side, words, attention.pair.side(side)).map_err(|reason| Failure::Usage(format!("--{side}: {reason}")))
        };
        let kernels = [text(Path::Train, &self.train)?, text(Path::Infer, &self.infer)?];
        let claims = Claim::ALL.into_iter().filter(|&claim| claim != Claim::VersionEqual || self.against);
        let work = Work::new(Battery::new(self.battery, self.seed, &attention), claims.collect());
        Ok(Ready { work, kernels })
    }
}

impl Ready {
    /// Field by field, all that the records depend on.
    pub(in crate::cli) fn configuration(&self) -> Configuration {
        let battery = battery_text(&self.work.battery, &self.work.claims);
        let data = self.work.battery.data().unwrap_or("none").to_owned();
        let mut fields = vec![
            ("lastbit".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("battery".to_owned(), format!("{} {}", battery.name, battery.version)),
            ("seed".to_owned(), battery.seed.to_string()),
            ("claims".to_owned(), battery.claims.join(", ")),
            ("limits".to_owned(), battery.limits.join("; ")),
            ("data".to_owned(), data),
            ("battery.sha256".to_owned(), battery.sha256),
        ];
        for kernel in &self.kernels {
            let own = kernel.fields.iter().map(|(name, value)| (format!("{}.{name}", kernel.side), value.clone()));
            fields.extend(own);
            let measured = kernel.measured_sha256.clone().unwrap_or_else(|| "none".into());
            fields.push((format!("{}.measured_sha256", kernel.side), measured));
        }
        Configuration(fields)
    }
}
