//! Case files as trials: which kernels, which checks, what is expected.

use super::captured::Captured;
use super::check::{Implementation, Pair};
use super::oracle::Mode;
use super::reference::Reference;
use super::relation::SidedRelation;
use super::text::{CaseFile, KernelFields, Run};
use super::trial::{Checks, Trial};
use super::{Data, text};
use crate::finding::{Finding, Kind};
use crate::input_error::InputError;
use std::path::Path;
use std::sync::Arc;

/// `[run] expect` of a case without findings.
pub const EXPECT_MATCH: &str = "match";

/// `[run] expect` of a case in which there is nothing to compare.
pub const EXPECT_NOTHING: &str = "nothing";

/// A loaded case file.
pub struct Loaded {
    /// The file's parts.
    pub file: CaseFile,
    /// The kernels of `[run]`.
    pub pair: Pair,
    /// The case, with everything that `[run]` asks for.
    pub trial: Trial,
}

/// Loads a case file with its kernels; captured tensors it names must be given.
///
/// # Errors
/// Says file, line or field, and reason.
pub fn load(path: &Path, captured: Option<Arc<Captured>>) -> Result<Loaded, InputError> {
    let name = path.display().to_string();
    let wrong = |field: Option<&str>, reason: String| InputError {
        file: name.clone(),
        line: None,
        field: field.map(str::to_owned),
        reason,
    };
    let file = text::load(path)?;
    let kernel = |field: &str, fields: &KernelFields| {
        Reference::from_fields(fields.0.iter().map(|(key, value)| (key.as_str(), value.as_str())))
            .map(Implementation::reference)
            .map_err(|reason| wrong(Some(field), reason))
    };
    let train = kernel("run.train", &file.run.train)?;
    let infer = kernel("run.infer", &file.run.infer)?;
    let oracle: Mode = file.run.oracle.parse().map_err(|reason| wrong(Some("run.oracle"), reason))?;
    let relation = file.run.relation.as_deref().map(str::parse::<SidedRelation>).transpose();
    let relation = relation.map_err(|reason| wrong(Some("run.relation"), reason))?;
    if relation.is_some_and(|it| it.apply(&file.case).is_none()) {
        return Err(wrong(Some("run.relation"), "means nothing for this case on this path".into()));
    }
    let expect = &file.run.expect;
    let kind = expect.split(' ').next().unwrap_or_default();
    if expect != EXPECT_MATCH && expect != EXPECT_NOTHING && !Kind::ALL.iter().any(|it| it.name() == kind) {
        let kinds: Vec<&str> = Kind::ALL.iter().map(|it| it.name()).collect();
        let reason = format!("`{expect}` is neither {EXPECT_MATCH}, {EXPECT_NOTHING} nor a finding ({} ...)", kinds.join(", "));
        return Err(wrong(Some("run.expect"), reason));
    }
    if let Data::Captured { sha256 } = &file.case.data {
        match &captured {
            Some(captured) if captured.sha256 == *sha256 => {
                captured.fits(&file.case.problem).map_err(|reason| wrong(Some("problem"), reason))?;
            }
            _ => return Err(wrong(Some("data.sha256"), format!("give the captured file with digest {sha256} as --data"))),
        }
    }
    let pair = Pair { train, infer, oracle, captured, witness: false };
    let checks = Checks::Only { oracle: oracle != Mode::Off, pair: true, relation };
    let trial = Trial { case: file.case.clone(), checks };
    Ok(Loaded { file, pair, trial })
}

/// The trial that a finding's file replays: every check, and the relation under which it was found.
pub fn replayed(pair: &Pair, trial: &Trial, finding: &Finding) -> Trial {
    let relation = match (finding.relation(), trial.checks) {
        (Some(relation), _) => relation.parse().ok(),
        (None, Checks::Only { relation, .. }) => relation,
        _ => None,
    };
    let checks = Checks::Only { oracle: pair.oracle != Mode::Off, pair: true, relation };
    Trial { case: trial.case.clone(), checks }
}

/// The file that replays a finding.
///
/// # Panics
/// When a kernel of the pair is no reference kernel: other kernels cannot be written into a case file yet.
pub fn file(comment: String, pair: &Pair, trial: &Trial, finding: Option<&Finding>) -> CaseFile {
    let fields = |side: &Implementation| {
        let reference = side.reference.as_ref().expect("a reference kernel");
        KernelFields(reference.fields())
    };
    let relation = match (finding.and_then(Finding::relation), trial.checks) {
        (Some(relation), _) => Some(relation.to_owned()),
        (None, Checks::Only { relation: Some(relation), .. }) => Some(relation.to_string()),
        _ => None,
    };
    CaseFile {
        comment,
        case: trial.case.clone(),
        run: Run {
            train: fields(&pair.train),
            infer: fields(&pair.infer),
            oracle: pair.oracle.to_string(),
            relation,
            expect: finding.map_or(EXPECT_MATCH.to_owned(), Finding::signature),
        },
    }
}
