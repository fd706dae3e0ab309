//! Two short sequences, and kernels whose results are spoiled by a script.

mod compared;
mod related;
mod repeated;
mod what_runs;

use super::*;
use crate::subject::attention::capabilities::Capabilities;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::kernel::{
    AttentionKernel, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use crate::subject::attention::reference::Reference;
use crate::subject::attention::relation::Relation;
use crate::subject::attention::{Anchor, Cache, Data, Literal, Mask, Sequence, TrainLayout};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is done to right results, by call and by the number of calls before it.
type Spoil = dyn Fn(Call<'_>, u64, &mut Outputs<'_>) + Send + Sync;

/// The reference kernel, and what becomes of its results.
struct Scripted {
    name: &'static str,
    can: Capabilities,
    means: Conventions,
    has_lse: bool,
    calls: Arc<AtomicU64>,
    spoil: Box<Spoil>,
}

fn scripted(spoil: impl Fn(Call<'_>, u64, &mut Outputs<'_>) + Send + Sync + 'static) -> Scripted {
    Scripted {
        name: "scripted",
        can: Capabilities::default(),
        means: Conventions::default(),
        has_lse: true,
        calls: Arc::default(),
        spoil: Box::new(spoil),
    }
}

/// A kernel that is right, of another name.
fn right() -> Scripted {
    Scripted { name: "right", ..scripted(|_, _, _| {}) }
}

impl Scripted {
    fn spoiled(&self, call: Call<'_>, mut outputs: Outputs<'_>) -> Result<(), KernelError> {
        (self.spoil)(call, self.calls.fetch_add(1, Ordering::Relaxed), &mut outputs);
        Ok(())
    }
}

impl AttentionKernel for Scripted {
    fn identity(&self) -> Identity {
        Identity::cpu(self.name, "1")
    }
    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }
    fn conventions(&self) -> Conventions {
        self.means
    }
    fn has_lse(&self) -> bool {
        self.has_lse
    }
    fn context_parallel(&self) -> bool {
        true
    }
    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        Reference::default().varlen(call, Outputs { o, lse })?;
        self.spoiled(Call::Varlen(call), Outputs { o, lse })
    }
    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        Reference::default().dense(call, Outputs { o, lse })?;
        self.spoiled(Call::Dense(call), Outputs { o, lse })
    }
    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        Reference::default().paged(call, Outputs { o, lse })?;
        self.spoiled(Call::Paged(call), Outputs { o, lse })
    }
}

fn pair(train: Scripted, infer: Scripted, oracle: Mode) -> Pair {
    let [train, infer] = [train, infer].map(|it| Implementation::kernel(Arc::new(it)));
    Pair { train, infer, oracle, captured: None, witness: false }
}

/// Sequences 3 and 7, two heads that share their keys: five rows of 2 x 3 results each, packed in one call on either path.
fn case() -> Case {
    let bits = |count: u32, step: u32| (0..count).map(|n| ((n * step % 29) as f32 / 16.0 - 0.8125).to_bits()).collect();
    let problem = Problem {
        sequences: vec![Sequence { id: 3, q: 3, kv: 4 }, Sequence { id: 7, q: 2, kv: 5 }],
        mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
        ..Problem::plain(&[], [1, 2], [2, 3], Dtype::F32)
    };
    Case::plain(problem, Data::Literal(Literal { q: bits(20, 11), k: bits(18, 7), v: bits(27, 5) }))
}

/// Elements of `o` and of `lse` in [`case`].
const ELEMENTS: [u64; 2] = [30, 10];

/// The case with keyless rows: the first row of sequence 3.
fn with_an_empty_row() -> Case {
    let mut case = case();
    case.problem.sequences[0].kv = 2;
    let Data::Literal(literal) = &mut case.data else { unreachable!("literal data") };
    literal.k.truncate(14);
    literal.v.truncate(21);
    case
}

const PAIR: Checks = Checks::Only { oracle: false, pair: true, relation: None };

fn sided(path: Path, relation: Relation) -> SidedRelation {
    SidedRelation { path, relation }
}

fn related(path: Path, relation: Relation) -> Checks {
    Checks::Only { oracle: false, pair: false, relation: Some(sided(path, relation)) }
}

fn check(pair: &Pair, case: &Case, checks: Checks) -> Verdict {
    validate(case).unwrap_or_else(|error| panic!("{}: {}", error.field, error.reason));
    pair.check(&Trial::new(case.clone(), checks), &mut pair.scratch())
}

fn signatures(verdict: &Verdict) -> Vec<String> {
    verdict.findings.iter().map(Finding::signature).collect()
}

/// Index, offset of the first differing element of a finding.
fn first_element(finding: &Finding) -> (String, usize) {
    let element = &finding.difference().expect("a difference").elements[0];
    (element.index.to_string(), element.offset)
}
