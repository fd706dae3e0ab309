//! The cause by counterfactual: gives one reference kernel the other's fields, and looks for the least set that removes the finding.

use super::minimal::minimal;
use super::{Cause, Evidence, Field, kind_of};
use crate::finding::{Finding, Path};
use crate::subject::attention::check::{Pair, Scratch};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::trial::Trial;

/// Runs of the case that a search for the least set may take. Published kernels differ in a dozen of the fields: each alone, all pairs, and
/// `ddmin` with every set refused are 12 + 66 + about 150. A shrunk case runs in well under a millisecond.
pub const EVALUATIONS: usize = 256;

/// Gives a kernel another value of one field.
type Unify = Box<dyn Fn(&mut Reference)>;

/// Fields in which a kernel differs from another, and how to give it the other's values.
pub(super) struct Differing {
    fields: Vec<Field>,
    unify: Vec<Unify>,
}

/// What sets the second kernel apart from the first.
pub(super) fn differing(a: &Reference, b: &Reference) -> Differing {
    Differing::between([&a.actual, &b.actual], [&a.numerics, &b.numerics], ["", ""])
}

/// What sets a kernel apart from what it claims: its declared conventions and its profile.
pub(super) fn claimed(it: &Reference) -> Differing {
    let numerics = it.profile.unwrap_or(it.numerics);
    Differing::between([&it.declared, &it.actual], [&numerics, &it.numerics], ["claimed as ", "really "])
}

impl Differing {
    fn between(conventions: [&Conventions; 2], numerics: [&Numerics; 2], words: [&str; 2]) -> Differing {
        let mut it = Differing { fields: Vec::new(), unify: Vec::new() };
        let in_words = |values: [Option<String>; 2]| {
            let [a, b] = values.map(Option::unwrap_or_default);
            (a.clone(), [format!("{}{a}", words[0]), format!("{}{b}", words[1])])
        };
        for name in Conventions::FIELDS.into_iter().filter(|name| conventions[0].get(name) != conventions[1].get(name)) {
            let (value, values) = in_words(conventions.map(|it| it.get(name)));
            it.push(format!("actual.{name}"), values, move |it| it.actual.set(name, &value).expect("a value it printed"));
        }
        for name in numerics[0].differing(numerics[1]) {
            let (value, values) = in_words(numerics.map(|it| it.get(name)));
            it.push(name.to_owned(), values, move |it| it.numerics.set(name, &value).expect("a value it printed"));
        }
        it
    }

    fn push(&mut self, name: String, values: [String; 2], unify: impl Fn(&mut Reference) + 'static) {
        let kind = kind_of(&name);
        self.fields.push(Field { name, values, kind });
        self.unify.push(Box::new(unify));
    }
}

/// Gives the kernel of a path the other values of fields, in ever other sets, until the least set is known that makes the finding go away.
pub(super) fn unify(
    pair: &Pair,
    trial: &Trial,
    finding: &Finding,
    path: Path,
    differing: Differing,
    scratch: &mut Scratch,
) -> Option<Cause> {
    let signature = finding.signature();
    let original = pair.side(path).reference.as_deref()?;
    let mut goes_away = |set: &[usize]| {
        let mut changed = original.clone();
        set.iter().for_each(|&n| differing.unify[n](&mut changed));
        // Some fields only go together.
        if changed.numerics.validate().is_err() {
            return false;
        }
        let mut pair = pair.clone();
        let side = match path {
            Path::Train => &mut pair.train,
            Path::Infer => &mut pair.infer,
        };
        *side = Implementation::reference(changed);
        let verdict = pair.check(trial, scratch);
        // A case that the changed kernel does not run shows nothing.
        let looked = match finding {
            Finding::Inaccurate(_) => verdict.accuracy.judged > 0,
            _ => verdict.compared > 0,
        };
        looked && verdict.findings.iter().all(|it| it.signature() != signature)
    };
    let found = minimal(differing.fields.len(), EVALUATIONS, &mut goes_away)?;
    let mut fields: Vec<Field> = found.set.iter().map(|&n| differing.fields[n].clone()).collect();
    fields.sort_by_key(|field| field.kind);
    let kind = fields.first()?.kind;
    Some(Cause { kind, evidence: Evidence::Fields { fields, least: found.least } })
}
