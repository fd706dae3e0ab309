//! Any two kernels on any case: equal recipes give equal bits, and nothing panics.

use super::affordable;
use crate::finding::Finding;
use crate::source::{Bytes, Source, Stream};
use crate::subject::attention::check::{Pair, RELATION_STREAM, Scratch};
use crate::subject::attention::draw::{Hints, Profile, draw};
use crate::subject::attention::explain::explain;
use crate::subject::attention::file::Named;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::promise::promise;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::relation::{SidedRelation, rotate};
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{Case, file, text};
use arbitrary::Unstructured;
use std::cell::RefCell;

/// The kernels take fewer bytes than this: a field takes two or three, and both sides may have a dozen drawn anew.
const KERNEL_BYTES: u8 = 64;

/// Relations of one execution, from the place of the rotation that the input names: the fuzzer reaches every place.
const RELATIONS: usize = 2;

/// One input in so many also goes through the whole check, the oracle and its bounds included.
const CHECKED: u64 = 8;

/// One input in so many also has its verdict explained: causes run the check many times.
const EXPLAINED: u64 = 256;

/// What the bytes say.
struct Input {
    pair: Pair,
    case: Case,
    /// The relation of a case file.
    relation: Option<SidedRelation>,
    /// Place in the rotation of relations, and seed of their parameters; also decides on the rarer looks.
    turn: u64,
}

/// Two kernels and a case from the bytes.
///
/// Input that begins with `format =` (after comment lines) is the text of a case file: its case, the kernels and the relation of
/// its `[run]`. So `.case` files seed the target, and what a panic prints is itself an input. Anything else is choices: the first
/// byte is the number of bytes that draw the kernels (half of them each), the rest draw the case, so that a change of one leaves the
/// others alone.
///
/// # Panics
/// Where two productions of a row have equal recipes and unlike bits, a kernel faults, or an honest kernel exceeds the bound that
/// was computed for its own numerics. The message ends in the case file.
pub fn pair(data: &[u8]) {
    let Some(input) = read_text(data).or_else(|| read_choices(data)) else { return };
    look(&input);
}

fn read_text(data: &[u8]) -> Option<Input> {
    let file = super::case_file(data).filter(|file| affordable(&file.case))?;
    let asked = file::check("input", &file).ok()?;
    let (Named::Reference(train), Named::Reference(infer)) = (asked.train, asked.infer) else { return None };
    let turn = data.iter().fold(0, |turn: u64, &byte| turn.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Some(Input { pair: pair_of(train, infer), case: file.case, relation: asked.relation, turn })
}

fn read_choices(data: &[u8]) -> Option<Input> {
    let (&length, rest) = data.split_first().unwrap_or((&0, &[]));
    let (kernels, case) = rest.split_at(rest.len().min(usize::from(length % KERNEL_BYTES)));
    let (train, infer) = kernels.split_at(kernels.len() / 2);
    let train = Reference::draw(&mut Bytes::new(&mut Unstructured::new(train)));
    let infer = train.draw_beside(&mut Bytes::new(&mut Unstructured::new(infer)));
    let mut case = Unstructured::new(case);
    let mut case = Bytes::new(&mut case);
    let turn = case.below(1 << 16);
    let case = draw(&mut case, Profile::Quick, &Hints::default());
    affordable(&case).then(|| Input { pair: pair_of(train, infer), case, relation: None, turn })
}

fn pair_of(train: Reference, infer: Reference) -> Pair {
    let (train, infer) = (Implementation::reference(train), Implementation::reference(infer));
    Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: true }
}

fn look(input: &Input) {
    let Input { pair, case, relation, turn } = input;
    let mut relations = rotate(case, *turn, RELATIONS, &mut Stream::new(*turn, RELATION_STREAM));
    relations.extend(relation.clone());
    relations.retain(|it| it.apply(case).is_some_and(|variant| affordable(&variant.case)));
    let found = promise(pair, case, &pair.inputs(case), &relations);
    if let Some(broken) = found.broken {
        let what = format!("broken promise: {broken}");
        fail(input, broken.relation, &what);
    }
    judge(input, &found.stopped);
    if !turn.is_multiple_of(CHECKED) {
        return;
    }
    let trial = Trial::new(case.clone(), Checks::Turn(*turn));
    thread_local! {
        static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
    }
    let verdict = SCRATCH.with_borrow_mut(|scratch| pair.check(&trial, scratch.get_or_insert_with(|| pair.scratch())));
    judge(input, &verdict.findings);
    if turn.is_multiple_of(EXPLAINED) && verdict.headline().is_some() {
        let explanation = explain(pair, &trial, "input.case", None);
        assert_eq!(explanation.verdict, verdict, "an explained case has another verdict");
    }
}

/// Findings that no pair of reference kernels may have, whatever their numerics.
fn judge(input: &Input, findings: &[Finding]) {
    for finding in findings {
        let relation = finding.relation().and_then(|text| text.parse().ok());
        match finding {
            Finding::Fault { .. } => fail(input, relation, &finding.signature()),
            // A bound is computed for what a kernel says that it is.
            Finding::Inaccurate(it) => {
                let honest = |kernel: &Reference| kernel.profile.is_none() && kernel.declared == kernel.actual;
                if input.pair.side(it.path).reference.as_deref().is_some_and(honest) {
                    fail(input, relation, &finding.signature());
                }
            }
            _ => {}
        }
    }
}

/// Panics with the case as a file: saved, it replays by itself and is an input of this target.
fn fail(input: &Input, relation: Option<SidedRelation>, what: &str) -> ! {
    let checks = Checks::Only { oracle: true, pair: true, relation: relation.or_else(|| input.relation.clone()) };
    let trial = Trial::new(input.case.clone(), checks);
    let file = file::file(what.to_owned(), &input.pair, &trial, None);
    panic!("{what}\n{}", text::print(&file));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_case_file_is_an_input() {
        let content = include_bytes!("../../corpora/regressions/attention/order-uncached-grid-prefix-hit.case");
        let input = read_text(content).expect("an input");
        let file = text::parse(std::str::from_utf8(content).expect("text"), "x.case").expect("a case file");
        let asked = file::check("x.case", &file).expect("kernels");
        assert_eq!(input.case, file.case);
        assert_eq!(input.relation, asked.relation);
        let (Named::Reference(train), Named::Reference(infer)) = (asked.train, asked.infer) else { panic!("no references") };
        assert_eq!(input.pair.train.reference.as_deref(), Some(&train));
        assert_eq!(input.pair.infer.reference.as_deref(), Some(&infer));
        assert!(read_text(b"# a comment\nformat = 2\n").is_none() && read_text(b"\xff").is_none());
    }

    #[test]
    fn kernels_and_case_are_drawn_apart() {
        let plain = read_choices(&[]).expect("the smallest input");
        assert_eq!(plain.pair.train.reference.as_deref(), Some(&Reference::default()));
        let case = [0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        let [one, other] = [&[4, 1, 0, 0, 0][..], &[4, 2, 5, 7, 3]].map(|kernels| {
            let bytes = [kernels, &case].concat();
            read_choices(&bytes).expect("a small case")
        });
        assert_ne!(one.pair.train.reference, other.pair.train.reference);
        assert_eq!(one.case, other.case);
        assert_ne!(one.case, plain.case);
    }

    /// A kernel that is not what its recipes say: the panic's text is a case file, and an input of this target.
    #[test]
    fn a_panic_prints_an_input() {
        let content = include_bytes!("../../corpora/regressions/attention/order-fixed-split-bf16.case");
        let mut input = read_text(content).expect("an input");
        input.pair.infer.reference = input.pair.train.reference.clone();
        let payload = catch_unwind(AssertUnwindSafe(|| look(&input))).expect_err("a broken promise");
        let message = payload.downcast_ref::<String>().expect("text");
        assert!(message.starts_with("broken promise: o["), "{message}");
        let again = read_text(&message.as_bytes()[message.find("\n# ").expect("a comment") + 1..]).expect("an input");
        assert_eq!((again.case, again.relation), (input.case, input.relation));
        assert_eq!(again.pair.infer.reference, input.pair.infer.reference);
    }
}
