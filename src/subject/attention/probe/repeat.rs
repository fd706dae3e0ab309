//! Whether calls that are made again give the same bits. Asked first: a kernel that does not repeat itself breaks every relation.

use super::Probing;
use super::page::{Repeat, Repeated, Wrong};
use super::question::DIRTY;
use super::sample::{Place, Shape, data, places};
use crate::finding::{Path, same};
use crate::number::Dtype;
use crate::subject::attention::Case;
use crate::subject::attention::check::Pair;
use crate::subject::attention::drive::{Poison, Produced};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::show::summary;

/// How often a call is made again.
const AGAIN: usize = 7;

/// Fresh processes.
const FRESH: usize = 2;

/// Cases for each format.
const CASES: u64 = 12;

/// A case on one path with its first results.
struct First {
    path: Path,
    case: Case,
    produced: Produced,
}

/// Every way of calling again.
pub(super) fn repeats(probing: &mut Probing<'_>, wrong: &mut Vec<Wrong>) -> Vec<Repeat> {
    probing.progress("the same calls again");
    let kernel = probing.terms.kernel.clone();
    let firsts = firsts(probing, &kernel);
    let nothing = || Repeated::NotTried("no case of the sample gave results".to_owned());
    let mut repeats = Vec::new();
    let mut add = |what: &'static str, seen: Repeated| {
        if let Repeated::Differs { differing, comparisons, first } = &seen {
            let what = format!("does not repeat itself: {what}: {differing} of {comparisons} results differ; first {first}");
            wrong.push(Wrong { what, minimal: None });
        }
        repeats.push(Repeat { what, seen });
    };
    if firsts.is_empty() {
        add("the same call 8 times", nothing());
        return repeats;
    }
    add("the same call 8 times", again(&firsts, |it| (0..AGAIN).map(|_| run(&kernel, it.path, &it.case)).collect()));
    // All other calls of the sample lie between a call and its repetition here.
    add("after other calls", again(&firsts, |it| vec![run(&kernel, it.path, &it.case)]));
    let mut fresh = Vec::new();
    let mut failed = None;
    for _ in 0..FRESH {
        match kernel.kernel.afresh() {
            None => failed = Some("built into this program".to_owned()),
            Some(Err(error)) => failed = Some(format!("a fresh process does not start: {error:?}")),
            Some(Ok(kernel)) => fresh.push(Implementation::kernel(kernel)),
        }
    }
    add(
        "in 2 fresh processes",
        match failed {
            Some(reason) => Repeated::NotTried(reason),
            None => again(&firsts, |it| fresh.iter().map(|kernel| run(kernel, it.path, &it.case)).collect()),
        },
    );
    let knob = kernel.kernel.capabilities().knobs.into_iter().find(|knob| knob.name == DIRTY.0);
    let offers = knob.is_some_and(|knob| knob.values.iter().any(|value| value == DIRTY.1));
    add(
        "over a dirty workspace",
        match offers {
            false => Repeated::NotTried("it has no such knob".to_owned()),
            true => again(&firsts, |it| vec![run(&kernel, it.path, &dirty(&it.case))]),
        },
    );
    repeats
}

/// The same case over a workspace full of garbage.
fn dirty(case: &Case) -> Case {
    let mut case = case.clone();
    let knobs = vec![(DIRTY.0.to_owned(), DIRTY.1.to_owned())];
    (case.train.knobs, case.infer.knobs) = (knobs.clone(), knobs);
    case
}

fn firsts(probing: &Probing<'_>, kernel: &Implementation) -> Vec<First> {
    let mut firsts = Vec::new();
    let (terms, seed) = (&probing.terms, probing.options.seed);
    for format in terms.storages() {
        for place in places(terms, CASES) {
            let place = Place { normal: true, ..place };
            for path in Path::BOTH.into_iter().filter(|&path| terms.path(path)) {
                let case = Shape::of(terms, format, &[(place.length, place.length)]).case(data(place, seed));
                if let Some(produced) = run(kernel, path, &case) {
                    firsts.push(First { path, case, produced });
                }
            }
        }
    }
    firsts
}

fn run(kernel: &Implementation, path: Path, case: &Case) -> Option<Produced> {
    let pair = Pair { train: kernel.clone(), infer: kernel.clone(), oracle: Mode::Off, captured: None, witness: false };
    pair.drive(path, case, &pair.inputs(case), Poison::Nan, None).ok()
}

fn again(firsts: &[First], repeat: impl Fn(&First) -> Vec<Option<Produced>>) -> Repeated {
    let (mut comparisons, mut differing, mut first) = (0, 0, None);
    for it in firsts {
        for produced in repeat(it) {
            comparisons += 1;
            // A call that worked and then did not is no repetition either.
            if !produced.is_some_and(|produced| alike(&it.produced, &produced)) {
                differing += 1;
                first.get_or_insert_with(|| format!("{}: {}", it.path, summary(&it.case)));
            }
        }
    }
    match first {
        Some(first) => Repeated::Differs { differing, comparisons, first },
        None => Repeated::Same(comparisons),
    }
}

fn alike(a: &Produced, b: &Produced) -> bool {
    let equal = |dtype: Dtype, a: &[u32], b: &[u32]| a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| same(dtype, a, b));
    a.present == b.present && equal(a.o.dtype, &a.o.bits, &b.o.bits) && equal(Dtype::F32, &a.lse.bits, &b.lse.bits)
}
