//! Attention as a [`Subject`]: how cases are drawn, checked and made smaller.

use super::check::{Pair, Scratch};
use super::draw::{CapturedShape, Drawn, Hints, Profile, draw_data, draw_within};
use super::implementation::Implementation;
use super::numerics::{Block, Numerics, Split};
use super::pin::Pins;
use super::reach::Asked;
use super::relation::SidedRelation;
use super::scope::Scope;
use super::trial::{Checks, Trial};
use super::{Data, oracle, smaller};
use crate::finding::{Finding, Verdict};
use crate::number::Dtype;
use crate::source::{Stream, mix};
use crate::subject::{Candidate, Subject};

/// Consecutive cases that share a shape where a kernel compiles for each new one. A compile takes a second or more (XLA, Triton,
/// Inductor) and a small call of what it made a millisecond or less, so that fewer uses would leave a run compiling; more would leave it
/// with few shapes.
const USES_OF_A_SHAPE: u64 = 16;

/// Sets the values of such cases apart from their shapes.
const VALUES: u64 = 2;

/// A pair of kernels and the cases to run them on.
#[derive(Clone)]
pub struct Attention {
    /// The kernels and how they are judged.
    pub pair: Pair,
    /// Size of the cases.
    pub profile: Profile,
    /// What every case is held to, drawn or shrunk.
    pub pins: Pins,
}

impl Attention {
    /// The usual mix of cases.
    pub fn of(pair: Pair) -> Self {
        Attention { pair, profile: Profile::Mixed, pins: Pins::default() }
    }

    /// Whether the kernels have any case in common that keeps the pins.
    ///
    /// # Errors
    /// Why nothing could be drawn: see [`Scope::start`](super::scope::Scope::start).
    pub fn start(&self) -> Result<(), String> {
        let captured = self.pair.captured.as_deref().map(|captured| captured.shape());
        self.pair.scope().start(&self.pins, captured.map(|shape| (shape.d_qk, shape.d_v)))
    }

    /// Which plan features a campaign must reach, and why not the others.
    pub fn asked(&self) -> Asked {
        let captured = self.pair.captured.as_deref().map(|captured| captured.shape());
        // A kernel from outside may declare an arithmetic for each format; what it does not declare is the stand-in's.
        let storages = [Dtype::F32, Dtype::BF16, Dtype::F16];
        let stand_ins = [&self.pair.train, &self.pair.infer].into_iter().flat_map(|side| storages.map(|it| side.stand_in(it)));
        let numerics: Vec<Numerics> = stand_ins.map(|it| it.numerics).collect();
        Asked::of(self.profile, &self.hints(captured.as_ref()), &numerics)
    }

    /// Which shape a case of a campaign has: each shape of a kernel that compiles for it comes back with other values.
    pub(super) fn shape(&self, index: u64) -> u64 {
        if self.pair.scope().compiles() { index / USES_OF_A_SHAPE } else { index }
    }

    fn hints<'a>(&self, captured: Option<&'a CapturedShape>) -> Hints<'a> {
        Hints { granules: self.granules(), head_dims: self.head_dims(), pins: self.pins, captured, scope: self.pair.scope() }
    }

    /// The numerics of both kernels, as far as they are known.
    fn numerics(&self) -> impl Iterator<Item = Numerics> {
        // What it computes; what it declares, where only that is known.
        let of = |side: &Implementation| side.reference.as_ref().map(|it| it.numerics).or_else(|| side.kernel.numerics());
        [&self.pair.train, &self.pair.infer].into_iter().filter_map(of)
    }

    /// Head dims that a rule needs to show anything.
    pub(super) fn head_dims(&self) -> Vec<u32> {
        let mut dims = Vec::new();
        for numerics in self.numerics() {
            if let Block::Rule(rule) = numerics.softmax.block {
                dims.extend(rule.head_dims());
            }
        }
        dims.sort_unstable();
        dims.dedup();
        dims
    }

    /// Block and split sizes of both kernels, those included that a rule may give at the head dims in play: lengths are drawn
    /// around them.
    pub(super) fn granules(&self) -> Vec<u32> {
        let wanted = self.head_dims();
        // The generator's own dims have one kernel, the one for 64.
        let in_play = |pin: Option<u32>| pin.map_or_else(|| [64].iter().chain(&wanted).copied().collect(), |d| vec![d]);
        let (d_qk, d_v) = (in_play(self.pins.d_qk), in_play(self.pins.d_v));
        let mut granules = Vec::new();
        for numerics in self.numerics() {
            let blocks = match numerics.softmax.block {
                Block::Whole => Vec::new(),
                Block::Size(block) => vec![block],
                Block::Rule(rule) => {
                    d_qk.iter().flat_map(|&d_qk| d_v.iter().flat_map(move |&d_v| rule.lengths(d_qk, d_v))).collect()
                }
            };
            match numerics.grid.split {
                Split::FixedSize(split) => granules.push(split),
                // One key more is split.
                Split::Rule(rule, _) => granules.extend(blocks.iter().map(|&block| rule.threshold(block) - 1)),
                Split::None | Split::FixedCount(_) | Split::CacheBoundary => {}
            }
            granules.extend(blocks);
        }
        granules.sort_unstable();
        granules.dedup();
        granules
    }
}

/// Whether both kernels can do a case, and the changed one of the relation that is checked.
fn inside(scope: &Scope, trial: &Trial) -> bool {
    let case = &trial.case;
    let changed = match &trial.checks {
        Checks::Only { relation: Some(sided), .. } => {
            sided.apply(case).and_then(|variant| scope.side(sided.path).outside(&variant.case))
        }
        _ => None,
    };
    changed.is_none() && scope.outside(case).is_none()
}

impl Subject for Attention {
    type Trial = Trial;
    type Scratch = Scratch;

    fn scratch(&self) -> Scratch {
        self.pair.scratch()
    }

    fn draw(&self, seed: u64, index: u64) -> Trial {
        let captured = self.pair.captured.as_deref().map(|captured| captured.shape());
        let hints = self.hints(captured.as_ref());
        let shape = self.shape(index);
        let Drawn { mut case, left_out } = draw_within(&mut Stream::new(seed, shape), self.profile, &hints);
        if shape != index
            && let Data::Drawn { .. } = case.data
        {
            case.data = draw_data(&mut Stream::new(mix(seed, VALUES), index), &case.problem);
        }
        // Consecutive cases take consecutive places of the rotation; each seed draws other parameters.
        Trial { case, checks: Checks::Turn(mix(seed, 0).wrapping_add(index)), left_out }
    }

    fn check(&self, trial: &Trial, scratch: &mut Scratch) -> Verdict {
        self.pair.check(trial, scratch)
    }

    fn focus(&self, trial: &Trial, finding: &Finding) -> Trial {
        let checks = match finding {
            Finding::Mismatch(_) => Checks::Only { oracle: false, pair: true, relation: None },
            Finding::Inaccurate(_) | Finding::Undecided { .. } => Checks::Only { oracle: true, pair: false, relation: None },
            Finding::NotInvariant { relation, .. } | Finding::Fault { relation: Some(relation), .. } => {
                match relation.parse::<SidedRelation>() {
                    Ok(relation) => Checks::Only { oracle: false, pair: false, relation: Some(relation) },
                    Err(_) => trial.checks.clone(),
                }
            }
            Finding::Fault { .. } | Finding::Skipped { .. } => {
                let oracle = self.pair.oracle != oracle::Mode::Off;
                Checks::Only { oracle, pair: true, relation: None }
            }
        };
        Trial::new(trial.case.clone(), checks)
    }

    fn size(&self, trial: &Trial) -> Vec<u64> {
        smaller::size(trial)
    }

    fn positions(&self, trial: &Trial, pass: usize) -> Option<usize> {
        smaller::positions(trial, pass)
    }

    fn smaller(&self, trial: &Trial, pass: usize, position: usize) -> Vec<Candidate<Trial>> {
        let mut candidates = smaller::smaller(trial, &|case| self.pair.inputs(case), pass, position);
        candidates.retain(|it| self.pins.hold(&it.trial.case.problem));
        let scope = self.pair.scope();
        // A case from a file may be outside to begin with.
        if !scope.is_everything() && inside(&scope, trial) {
            candidates.extend(smaller::inside(trial, &scope, pass, position));
            candidates.retain(|it| self.pins.hold(&it.trial.case.problem) && inside(&scope, &it.trial));
        }
        candidates
    }

    fn redraw(&self, trial: &Trial, n: u32) -> Option<Trial> {
        smaller::redraw(trial, n)
    }
}
