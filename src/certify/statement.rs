//! A certificate as others read it: an in-toto Statement (v1) whose predicate is the public test-result one, with what this crate has to
//! say under `lastbit`. Readers of that predicate skip fields that they do not know (in-toto attestation, "Parsing rules").

use super::certificate::{Certificate, ClaimResult, Environment, KernelText, Status};
use super::digest::of_json;
use crate::input_error::InputError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// `_type` of the statement.
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";

/// `predicateType`: the in-toto test-result predicate, version 0.1.
pub const PREDICATE: &str = "https://in-toto.io/attestation/test-result/v0.1";

/// Something with a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// What it is called.
    pub name: String,
    /// Digests in lower-case hex, by algorithm; here always `sha256`.
    pub digest: BTreeMap<String, String>,
}

impl Resource {
    /// With a SHA-256.
    pub fn new(name: impl Into<String>, sha256: impl Into<String>) -> Self {
        Resource { name: name.into(), digest: BTreeMap::from([("sha256".to_owned(), sha256.into())]) }
    }

    /// Its SHA-256; empty where it has none.
    pub fn sha256(&self) -> &str {
        self.digest.get("sha256").map_or("", String::as_str)
    }
}

/// An in-toto Statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// [`STATEMENT`].
    #[serde(rename = "_type")]
    pub kind: String,
    /// The kernels: `train` and `infer`.
    pub subject: Vec<Resource>,
    /// [`PREDICATE`].
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// What is said of them.
    pub predicate: Predicate,
}

impl Statement {
    /// Reads a certificate's file.
    ///
    /// # Errors
    /// What cannot be read, or is no certificate of this layout: line and reason.
    pub fn load(path: &Path) -> Result<Statement, InputError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
        Statement::read(&file, &text)
    }
}

/// The test-result predicate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Predicate {
    /// `PASSED` with every claim PASS, `FAILED` with one FAIL that is not waived, else `WARNED`.
    pub result: Outcome,
    /// The battery, and the contract of each kernel: semantics, numerics and deployment.
    pub configuration: Vec<Resource>,
    /// Claims with PASS.
    pub passed_tests: Vec<String>,
    /// Claims that are UNVERIFIABLE, or FAIL and waived.
    pub warned_tests: Vec<String>,
    /// Claims with FAIL that are not waived.
    pub failed_tests: Vec<String>,
    /// The rest.
    pub lastbit: Certificate,
}

/// The result of a test-result predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)] // the predicate's own words
pub enum Outcome {
    Passed,
    Warned,
    Failed,
}

impl Statement {
    /// The statement of a certificate, sealed.
    pub fn new(certificate: Certificate) -> Statement {
        let names = |keep: fn(&ClaimResult) -> bool| {
            certificate.claims.iter().filter(|it| keep(it)).map(|it| it.claim.clone()).collect::<Vec<_>>()
        };
        let passed = names(|it| it.status == Status::Pass);
        let failed = names(|it| it.status == Status::Fail && it.waived.is_none());
        let warned = names(|it| it.status == Status::Unverifiable || it.status == Status::Fail && it.waived.is_some());
        let result = match (failed.is_empty(), warned.is_empty()) {
            (false, _) => Outcome::Failed,
            (true, false) => Outcome::Warned,
            (true, true) => Outcome::Passed,
        };
        let battery = &certificate.battery;
        let mut configuration = vec![Resource::new(format!("battery {} {}", battery.name, battery.version), &battery.sha256)];
        for kernel in &certificate.kernels {
            let contract = &kernel.contract;
            for (name, digest) in
                [("semantics", &contract.semantics), ("numerics", &contract.numerics), ("deployment", &contract.deployment)]
            {
                configuration.push(Resource::new(format!("{}: {name}", kernel.side), digest));
            }
        }
        let mut statement = Statement {
            kind: STATEMENT.to_owned(),
            subject: certificate.kernels.iter().map(KernelText::resource).collect(),
            predicate_type: PREDICATE.to_owned(),
            predicate: Predicate {
                result,
                configuration,
                passed_tests: passed,
                warned_tests: warned,
                failed_tests: failed,
                lastbit: certificate,
            },
        };
        statement.seal();
        statement
    }

    /// Says where and when it was made.
    pub fn with_environment(mut self, environment: Environment) -> Statement {
        self.predicate.lastbit.environment = environment;
        self.seal();
        self
    }

    fn seal(&mut self) {
        self.predicate.lastbit.digest = self.content_digest();
        self.predicate.lastbit.seal = self.seal_digest();
    }

    /// What [`Certificate::digest`] must be.
    pub fn content_digest(&self) -> String {
        let mut bare = self.predicate.lastbit.clone();
        (bare.environment, bare.digest, bare.seal) = Default::default();
        of_json(&bare)
    }

    /// What [`Certificate::seal`] must be.
    pub fn seal_digest(&self) -> String {
        let mut bare = self.clone();
        bare.predicate.lastbit.seal.clear();
        of_json(&bare)
    }

    /// As it is written to a file.
    pub fn print(&self) -> String {
        format!("{}\n", serde_json::to_string_pretty(self).expect("a statement is JSON"))
    }
}
