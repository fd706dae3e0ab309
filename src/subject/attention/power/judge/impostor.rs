//! Kernels that are wrong in ways that comparisons are known to miss, and a look at which judge rejects which.

use super::faulty::Comparator;
use super::rival::RIVALS;
use super::{Evidence, Judge, Own};
use crate::number::Dtype;
use crate::subject::attention::check::Pair;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
use crate::subject::attention::numerics::Numerics;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::{Case, Data, Literal, Problem};
use std::sync::Arc;

/// What a kernel does to right results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Right,
    AllNan,
    Zeros,
    /// Scores are not looked at.
    MeanOfV,
    RowsShuffled,
    /// The first element that is no zero, so many steps up.
    UlpsUp(u32),
    FirstNan,
    ZerosNegative,
    LseUp,
}

struct Impostor {
    honest: Reference,
    form: Form,
}

impl Impostor {
    /// The query that the honest kernel gets.
    fn query(&self, q: &crate::tensor::Tensor) -> crate::tensor::Tensor {
        let mut q = q.clone();
        if self.form == Form::MeanOfV {
            q.bits.fill(0);
        }
        q
    }

    fn spoil(&self, outputs: Outputs<'_>) {
        let Outputs { o, lse } = outputs;
        let dtype = o.dtype;
        match self.form {
            Form::Right | Form::MeanOfV => {}
            Form::AllNan => o.bits.fill(dtype.nan_bits()),
            Form::Zeros => o.bits.fill(0),
            Form::RowsShuffled => {
                let row = o.stride();
                o.bits.rotate_left(row);
            }
            Form::UlpsUp(steps) => {
                if let Some(bits) = o.bits.iter_mut().find(|bits| dtype.to_f32(**bits) != 0.0) {
                    (0..steps).for_each(|_| *bits = dtype.next_up(*bits));
                }
            }
            Form::FirstNan => o.bits.iter_mut().take(1).for_each(|bits| *bits = dtype.nan_bits()),
            Form::ZerosNegative => {
                o.bits.iter_mut().filter(|bits| dtype.to_f32(**bits) == 0.0).for_each(|bits| *bits = dtype.sign_mask());
            }
            Form::LseUp => lse.bits.iter_mut().take(1).for_each(|bits| *bits = Dtype::F32.next_up(*bits)),
        }
    }
}

impl AttentionKernel for Impostor {
    fn identity(&self) -> Identity {
        Identity::cpu(&format!("impostor {:?}", self.form), "1")
    }

    fn numerics(&self) -> Option<Numerics> {
        self.honest.numerics()
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        self.honest.varlen(&VarlenCall { q: &self.query(call.q), ..*call }, Outputs { o, lse })?;
        self.spoil(Outputs { o, lse });
        Ok(())
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        self.honest.dense(&DenseCall { q: &self.query(call.q), ..*call }, Outputs { o, lse })?;
        self.spoil(Outputs { o, lse });
        Ok(())
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let Outputs { o, lse } = outputs;
        self.honest.paged(&PagedCall { q: &self.query(call.q), ..*call }, Outputs { o, lse })?;
        self.spoil(Outputs { o, lse });
        Ok(())
    }
}

/// Four rows of one head over four keys, f32, in one step on either path; every value a small dyadic number.
fn case(v: [f32; 8]) -> Case {
    let bits = |values: [f32; 8]| values.map(f32::to_bits).to_vec();
    let data = Literal {
        q: bits([1.0, 0.0, 0.0, 1.0, -1.0, 0.5, 0.5, -1.0]),
        k: bits([0.5, 1.0, -1.0, 0.25, 1.5, -0.5, 0.0, -2.0]),
        v: bits(v),
    };
    Case::plain(Problem::plain(&[(4, 4)], [1, 1], [2, 2], Dtype::F32), Data::Literal(data))
}

/// The case with results that are all unlike.
fn plain() -> Case {
    case([0.5, -1.0, 2.0, 0.25, -0.75, 3.0, 1.25, -2.5])
}

/// The same without a sequence: there is nothing to compare.
fn empty() -> Case {
    let mut case = plain();
    case.problem.sequences.clear();
    case.train.order.clear();
    case.infer.order.clear();
    case.infer.requests.clear();
    case.data = Data::Literal(Literal { q: Vec::new(), k: Vec::new(), v: Vec::new() });
    case
}

/// What every judge must reject: name, training, inference, case.
fn impostors() -> Vec<(&'static str, Form, Form, Case)> {
    let right = Form::Right;
    vec![
        ("NaN everywhere, both sides", Form::AllNan, Form::AllNan, plain()),
        ("zeros, both sides", Form::Zeros, Form::Zeros, plain()),
        ("the mean of V, both sides", Form::MeanOfV, Form::MeanOfV, plain()),
        ("rows shuffled, both sides", Form::RowsShuffled, Form::RowsShuffled, plain()),
        ("zeros, one side", right, Form::Zeros, plain()),
        ("a NaN, one side", right, Form::FirstNan, plain()),
        ("one ULP, one side", right, Form::UlpsUp(1), plain()),
        ("two ULP, one side", right, Form::UlpsUp(2), plain()),
        ("lse one ULP off, one side", right, Form::LseUp, plain()),
        ("-0 for +0, one side", right, Form::ZerosNegative, case([0.0; 8])),
        ("an empty selection", right, right, empty()),
    ]
}

fn pair(train: Form, infer: Form) -> Pair {
    let of = |form| Implementation::kernel(Arc::new(Impostor { honest: Reference::default(), form }));
    Pair { train: of(train), infer: of(infer), oracle: Mode::Enclosure, captured: None, witness: false }
}

/// Whose judge it is, and what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This crate's own, or a sound comparison: rejects every impostor.
    Sound,
    /// The field's: what it passes is shown, and expected of nobody.
    Rival,
    /// With a planted fault: passes one impostor at least, or the impostors show nothing.
    Faulty,
}

/// A judge and the impostors.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Whose.
    pub role: Role,
    /// Its name.
    pub name: &'static str,
    /// Its rule.
    pub about: &'static str,
    /// Impostors that it does not reject.
    pub passes: Vec<&'static str>,
    /// Impostors that it was given.
    pub impostors: usize,
    /// Whether it rejects the right kernel.
    pub rejects_right: bool,
}

impl Judged {
    /// Whether it is as expected: a sound judge rejects all and nothing else, a faulty one is shown up.
    pub fn is_as_expected(&self) -> bool {
        match self.role {
            Role::Sound => self.passes.is_empty() && !self.rejects_right,
            Role::Rival => true,
            Role::Faulty => !self.passes.is_empty() && !self.rejects_right,
        }
    }
}

/// Gives every impostor, and the right kernel, to every judge.
pub fn battery() -> Vec<Judged> {
    let faulty = Comparator::FAULTY.iter().map(|judge| (Role::Faulty, judge as &dyn Judge));
    let judges = [(Role::Sound, &Own as &dyn Judge), (Role::Sound, &Comparator::Sound)];
    let judges = judges.into_iter().chain(RIVALS.into_iter().map(|judge| (Role::Rival, judge))).chain(faulty);
    let impostors = impostors();
    let look = |(role, judge): (Role, &dyn Judge)| {
        let passed = |(name, train, infer, case): &(&'static str, Form, Form, Case)| {
            let rejected = judge.rejects(&Evidence::new(&pair(*train, *infer), case));
            (!rejected).then_some(*name)
        };
        Judged {
            role,
            name: judge.name(),
            about: judge.about(),
            passes: impostors.iter().filter_map(passed).collect(),
            impostors: impostors.len(),
            rejects_right: judge.rejects(&Evidence::new(&pair(Form::Right, Form::Right), &plain())),
        }
    };
    judges.map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::{Role, battery, impostors, pair};
    use crate::subject::attention::validate;

    #[test]
    fn sound_judges_reject_every_impostor_and_faulty_ones_are_shown_up() {
        for judged in battery() {
            assert!(judged.is_as_expected(), "{judged:?}");
            if judged.role == Role::Faulty {
                assert!(
                    judged.passes.len() < judged.impostors,
                    "a judge that rejects nothing has more than one fault: {judged:?}"
                );
            }
        }
    }

    /// Which impostors show up which fault: each of them is the only reason for some line here.
    #[test]
    fn each_fault_passes_what_it_must() {
        let judged = battery();
        let passes = |name: &str| judged.iter().find(|it| it.name == name).expect("a judge").passes.clone();
        assert_eq!(passes("NaN skipped"), ["NaN everywhere, both sides", "a NaN, one side"]);
        let small = ["one ULP, one side", "two ULP, one side", "lse one ULP off, one side", "-0 for +0, one side"];
        assert_eq!(passes("absolute tolerance"), small);
        assert_eq!(passes("at most 2 ULP"), small);
        assert_eq!(passes("empty selection passes"), ["an empty selection"]);
        let one_side = ["zeros, one side", "a NaN, one side"];
        assert_eq!(passes("oracle on one side"), [&one_side[..], &small].concat());
    }

    #[test]
    fn the_cases_are_valid() {
        for (name, train, infer, case) in impostors() {
            validate(&case).unwrap_or_else(|error| panic!("{name}: {}: {}", error.field, error.reason));
            assert!(pair(train, infer).scope().outside(&case).is_none(), "{name}");
        }
    }
}
