//! Case files as trials: which kernels, which checks, what is expected.

use super::captured::Captured;
use super::check::Pair;
use super::implementation::Implementation;
use super::oracle::Mode;
use super::reference::Reference;
use super::relation::SidedRelation;
use super::text::{CaseFile, External, KernelText, Run};
use super::trial::{Checks, Trial};
use super::validate::{MAX_MPFR_WORK, work};
use super::{Data, text};
use crate::finding::{self, Finding, Kind};
use crate::input_error::{InputError, can_be_pasted, shorten};
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

/// A kernel of `[run]`.
pub enum Named {
    /// The reference kernel, as spelled out.
    Reference(Reference),
    /// A kernel from outside, which the file only names.
    External(External),
}

/// What `[run]` asks for.
pub struct Asked {
    /// The training kernel.
    pub train: Named,
    /// The inference kernel.
    pub infer: Named,
    /// Oracle mode.
    pub oracle: Mode,
    /// The relation that failed.
    pub relation: Option<SidedRelation>,
}

/// Reads `[run]` of a case file; `name` is the file's, for messages.
///
/// # Errors
/// Says field and reason: kernels, oracle, relation or expectation that mean nothing, or a case too large for the oracle.
pub fn check(name: &str, file: &CaseFile) -> Result<Asked, InputError> {
    let wrong = |field: &str, reason: String| InputError::new(name, reason).field(field);
    let kernel = |field: &str, kernel: &KernelText| match kernel {
        KernelText::Reference(fields) => {
            Reference::from_fields(fields.0.iter().map(|(key, value)| (key.as_str(), value.as_str())))
                .map(Named::Reference)
                .map_err(|reason| wrong(field, reason))
        }
        KernelText::External(external) => Ok(Named::External(external.clone())),
    };
    let train = kernel("run.train", &file.run.train)?;
    let infer = kernel("run.infer", &file.run.infer)?;
    let oracle: Mode = file.run.oracle.parse().map_err(|reason| wrong("run.oracle", reason))?;
    let work = work(&file.case);
    if oracle == Mode::Mpfr && work > MAX_MPFR_WORK {
        let reason =
            format!("mpfr would take hours: a pass is {work} multiplications; {MAX_MPFR_WORK} are the most, use enclosure");
        return Err(wrong("run.oracle", reason));
    }
    let relation = file.run.relation.as_deref().map(str::parse::<SidedRelation>).transpose();
    let relation = relation.map_err(|reason| wrong("run.relation", reason))?;
    if relation.as_ref().is_some_and(|it| it.apply(&file.case).is_none()) {
        return Err(wrong("run.relation", "means nothing for this case on this path".into()));
    }
    let expect = &file.run.expect;
    let kind = expect.split(' ').next().unwrap_or_default();
    if expect != EXPECT_MATCH && expect != EXPECT_NOTHING && !Kind::ALL.iter().any(|it| it.name() == kind) {
        let kinds: Vec<&str> = Kind::ALL.iter().map(|it| it.name()).collect();
        let reason = format!("`{expect}` is neither {EXPECT_MATCH}, {EXPECT_NOTHING} nor a finding ({} ...)", kinds.join(", "));
        return Err(wrong("run.expect", reason));
    }
    Ok(Asked { train, infer, oracle, relation })
}

/// Loads a case file with its kernels, which must be reference kernels; captured tensors it names must be given.
///
/// # Errors
/// Says file, line or field, and reason.
pub fn load(path: &Path, captured: Option<Arc<Captured>>) -> Result<Loaded, InputError> {
    load_with(path, captured, |_, _| None)
}

/// Loads a case file; `external` gives the kernels that the file only names, by the side they stand on.
///
/// # Errors
/// As [`load`]; an external kernel that is not given is an error that says how to replay the case.
pub fn load_with(
    path: &Path,
    captured: Option<Arc<Captured>>,
    external: impl Fn(finding::Path, &External) -> Option<Implementation>,
) -> Result<Loaded, InputError> {
    let name = path.display().to_string();
    let file = text::load(path)?;
    let Asked { train, infer, oracle, relation } = check(&name, &file)?;
    if let Data::Captured { sha256 } = &file.case.data {
        let wrong = |field: &str, reason: String| InputError::new(&name, reason).field(field);
        match &captured {
            Some(captured) if captured.sha256 == *sha256 => {
                captured.fits(&file.case.problem).map_err(|reason| wrong("problem", reason))?;
            }
            _ => return Err(wrong("data.sha256", format!("give the captured file with digest {sha256} as --data"))),
        }
    }
    let words = [&train, &infer].map(|named| match named {
        Named::External(it) => it.source.clone(),
        Named::Reference(_) => None,
    });
    let implementation = |side: finding::Path, named: Named| match named {
        Named::Reference(reference) => Ok(Implementation::reference(reference)),
        Named::External(it) => external(side, &it)
            .ok_or_else(|| InputError::new(&name, not_given(&name, side, &it, &words)).field(format!("run.{side}"))),
    };
    let (train, infer) = (implementation(finding::Path::Train, train)?, implementation(finding::Path::Infer, infer)?);
    let pair = Pair { train, infer, oracle, captured, witness: false };
    let checks = Checks::Only { oracle: oracle != Mode::Off, pair: true, relation };
    let trial = Trial::new(file.case.clone(), checks);
    Ok(Loaded { file, pair, trial })
}

/// Why a kernel that a file only names is not run, and how to run it.
fn not_given(file: &str, side: finding::Path, kernel: &External, words: &[Option<String>; 2]) -> String {
    let who = shorten(&kernel.to_string());
    if kernel.source.is_none() {
        return format!(
            "is {who}, a kernel that only its own crate holds; replay the case with that crate's suite, \
             `LASTBIT_CASE={file} cargo test`, or name another kernel with --{side}"
        );
    }
    let [train, infer] = words;
    let command = replay_command(file, train.as_deref(), infer.as_deref());
    if !can_be_pasted(&command) {
        return format!(
            "is {who}, named by words that cannot be shown safely: they are too long, or hold characters that do not show; read \
             run.{side}.source in the file, then name the kernel with --{side}"
        );
    }
    format!(
        "is {who}, a kernel that the file only names, and a file starts no program; read the command, then run it: `{command}`"
    )
}

/// The command that replays a file, with the words for kernels that the file only names.
pub fn replay_command(file: &str, train: Option<&str>, infer: Option<&str>) -> String {
    let mut command = format!("lastbit replay {}", shell_words::quote(file));
    for (option, words) in [("--train", train), ("--infer", infer)] {
        if let Some(words) = words {
            command.push_str(&format!(" {option} {}", shell_words::quote(words)));
        }
    }
    command
}

/// The trial that a finding's file replays: every check, and the relation under which it was found.
pub fn replayed(pair: &Pair, trial: &Trial, finding: &Finding) -> Trial {
    let relation = match (finding.relation(), &trial.checks) {
        (Some(relation), _) => relation.parse().ok(),
        (None, Checks::Only { relation, .. }) => relation.clone(),
        _ => None,
    };
    let checks = Checks::Only { oracle: pair.oracle != Mode::Off, pair: true, relation };
    Trial::new(trial.case.clone(), checks)
}

/// The file that replays a finding. A kernel that is no reference kernel is named in it, not spelled out.
pub fn file(comment: String, pair: &Pair, trial: &Trial, finding: Option<&Finding>) -> CaseFile {
    let relation = match (finding.and_then(Finding::relation), &trial.checks) {
        (Some(relation), _) => Some(relation.to_owned()),
        (None, Checks::Only { relation: Some(relation), .. }) => Some(relation.to_string()),
        _ => None,
    };
    CaseFile {
        comment,
        case: trial.case.clone(),
        run: Run {
            train: pair.train.text(),
            infer: pair.infer.text(),
            oracle: pair.oracle.to_string(),
            relation,
            expect: finding.map_or(EXPECT_MATCH.to_owned(), Finding::signature),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_mpfr_would_take_hours_for_is_refused() {
        let text = include_str!("../../../corpora/seeds/attention/preempt.case");
        let large = text.replace("q = 12, kv = 12", "q = 2048, kv = 2048");
        let oracle = |text: &str, mode: &str| {
            let file = text::parse(&text.replace("enclosure", mode), "x.case").unwrap();
            check("x.case", &file).map(|asked| asked.oracle).map_err(|error| error.to_string())
        };
        assert_eq!(oracle(text, "mpfr"), Ok(Mode::Mpfr));
        assert_eq!(oracle(&large, "enclosure"), Ok(Mode::Enclosure));
        assert!(oracle(&large, "mpfr").unwrap_err().starts_with("x.case: run.oracle: mpfr would take hours"));
    }
}
