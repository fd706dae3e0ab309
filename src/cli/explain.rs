//! `lastbit explain`: kept cases, run again, with all that can be said of why they differ.

use super::Failure;
use super::replay::{Options, run_showing};
use crate::external::name::Consent;

pub(super) fn run(options: &Options, consent: Consent) -> Result<u8, Failure> {
    run_showing(options, consent, |explanation| &explanation.text)
}
