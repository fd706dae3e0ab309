//! Which plan features a campaign must have reached: those that a case can have, given what both kernels do and what is pinned.

use super::PlanFeature;
use crate::finding::Path;
use crate::reach::ReachCounts;
use crate::subject::attention::capabilities::Form;
use crate::subject::attention::draw::{Hints, Profile, longest};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::mask::Anchor;
use crate::subject::attention::numerics::{Block, GridAnchor, Launch, Numerics, Split};
use crate::subject::attention::scope::{Scope, SideScope, empty_entries, empty_sequences, ragged, too_many};

/// What a campaign is asked to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Why a feature cannot come; by [`PlanFeature`] as a number.
    not: [Option<String>; PlanFeature::ALL.len()],
}

impl Asked {
    /// What is asked of cases that are drawn so, for kernels with these arithmetics (a side may have one for each storage format).
    pub(in crate::subject::attention) fn of(profile: Profile, hints: &Hints<'_>, numerics: &[Numerics]) -> Asked {
        let reasons = Reasons { profile, hints, numerics };
        Asked { not: PlanFeature::ALL.map(|feature| reasons.against(feature)) }
    }

    /// Why a feature is not asked for; `None` where it is.
    pub fn reason_against(&self, feature: PlanFeature) -> Option<&str> {
        self.not[feature as usize].as_deref()
    }

    /// What is asked for and never came.
    pub fn missing(&self, counts: &ReachCounts) -> Vec<PlanFeature> {
        let missing = |it: &PlanFeature| self.reason_against(*it).is_none() && it.count(counts) == 0;
        PlanFeature::ALL.into_iter().filter(missing).collect()
    }
}

/// What decides.
struct Reasons<'a> {
    profile: Profile,
    hints: &'a Hints<'a>,
    numerics: &'a [Numerics],
}

impl Reasons<'_> {
    fn against(&self, feature: PlanFeature) -> Option<String> {
        let infer = self.scope().side(Path::Infer);
        match feature {
            PlanFeature::PrefixHit | PlanFeature::Preempt | PlanFeature::Verify => self.stepwise().or_else(|| self.rows(2)),
            PlanFeature::SecondChunk => self.stepwise().or_else(|| self.rows(3)),
            PlanFeature::Split => self.splits().err(),
            PlanFeature::EmptySplit => self.empty_splits(),
            PlanFeature::SparePage => infer.lacks_form(Form::Paged),
            PlanFeature::RaggedPage => infer.lacks_form(Form::Paged).or_else(|| one_slot(infer)),
            PlanFeature::RecycledPage => {
                // Another request comes after, or the same once more. With fewer than two positions for each of two, nothing is
                // behind the last.
                let once_more = || self.stepwise().or_else(|| self.rows(2));
                let twice = self.two_sequences().and_then(|reason| once_more().map(|_| reason));
                let four = || self.rows_of_any(4);
                infer.lacks_form(Form::Paged).or_else(|| one_slot(infer)).or_else(four).or(twice)
            }
            PlanFeature::LeftPadding => {
                self.scope().side(Path::Train).lacks_form(Form::DenseLeft).or_else(|| self.rows_of_any(2))
            }
            PlanFeature::WindowInBlock => self.windows(),
            PlanFeature::ZeroLength => self.zero_length(),
            PlanFeature::Company => self.two_sequences(),
            PlanFeature::Bucket => self.bucket(),
        }
    }

    fn scope(&self) -> &Scope {
        &self.hints.scope
    }

    /// Steps one after another need the bottom-right mask.
    fn stepwise(&self) -> Option<String> {
        let wanted = Some(Anchor::BottomRight);
        let pinned = self.hints.pins.causal.filter(|&causal| causal != wanted);
        self.scope().lacks(Feature::Causal).or_else(|| pinned.map(|_| "bottom-right causal mask (--pin has another)".into()))
    }

    /// Calls that hold so many rows or keys.
    fn rows_of_any(&self, count: u32) -> Option<String> {
        self.scope().max_rows().filter(|&(most, _)| most < count).map(|(most, path)| too_many(most, path))
    }

    /// Sequences of so many rows.
    fn rows(&self, count: u32) -> Option<String> {
        self.rows_of_any(count).or_else(|| self.shorter(count))
    }

    /// Sequences of so many positions.
    fn shorter(&self, count: u32) -> Option<String> {
        let longest = longest(self.profile, self.hints);
        (longest < count).then(|| format!("sequences of {count} positions (the longest that are drawn have {longest})"))
    }

    fn two_sequences(&self) -> Option<String> {
        let alone = self.hints.captured.is_some_and(|shape| shape.lengths.len() < 2);
        self.rows_of_any(2).or_else(|| alone.then(|| "a second sequence in the captured tensors".into()))
    }

    fn zero_length(&self) -> Option<String> {
        let scope = self.scope();
        let even = |path: Path, other: Form| {
            let side = scope.side(path);
            (side.can().no_ragged && !side.does(other)).then(|| ragged(path))
        };
        let none = scope.no_empty_sequences().map(empty_sequences);
        none.or_else(|| self.two_sequences())
            .or_else(|| even(Path::Train, Form::Varlen))
            .or_else(|| even(Path::Infer, Form::Paged))
    }

    fn bucket(&self) -> Option<String> {
        let infer = self.scope().side(Path::Infer);
        let can = infer.can();
        let even = can.no_ragged && !infer.does(Form::Paged);
        (can.no_empty_rows || can.no_empty_sequences)
            .then(|| empty_entries(Path::Infer))
            .or_else(|| even.then(|| ragged(Path::Infer)))
            .or_else(|| can.max_rows.filter(|&most| most < 2).map(|most| too_many(most, Path::Infer)))
    }

    fn windows(&self) -> Option<String> {
        let blocks = |it: &Numerics| it.softmax.block != Block::Size(1);
        let none = || (!self.numerics.iter().any(blocks)).then(|| "blocks of several keys (no side has them)".into());
        self.scope().lacks(Feature::Window).or_else(none).or_else(|| self.rows_of_any(2)).or_else(|| self.shorter(2))
    }

    /// Numerics that can cut a row in two, and where none can, why.
    fn splits(&self) -> Result<Vec<Numerics>, String> {
        let can: Vec<Numerics> = self.numerics.iter().copied().filter(|it| self.can_split(it)).collect();
        if !can.is_empty() {
            return Ok(can);
        }
        Err(match self.numerics.iter().all(|it| it.grid.split == Split::None) {
            true => "splits (no side has them)".into(),
            false => {
                format!("splits (no side has them at the {} positions of the longest sequence that is drawn)", self.longest())
            }
        })
    }

    /// Positions of the longest sequence.
    fn longest(&self) -> u32 {
        let most = self.scope().max_rows().map_or(u32::MAX, |(most, _)| most);
        longest(self.profile, self.hints).min(most)
    }

    fn can_split(&self, numerics: &Numerics) -> bool {
        match numerics.grid.split {
            Split::None => false,
            Split::CacheBoundary => self.against(PlanFeature::PrefixHit).is_none(),
            Split::FixedSize(size) => self.longest() > size,
            Split::FixedCount(count) => count > 1 && self.longest() > block_length(numerics),
            Split::Rule(..) => numerics.split_count(&self.decode()).is_some_and(|count| count > 1),
        }
    }

    /// The call of which rules make the most splits: one row against the longest sequence.
    fn decode(&self) -> Launch {
        let pins = &self.hints.pins;
        let (q_heads, kv_heads) = pins.heads.unwrap_or((1, 1));
        Launch {
            batch: 1,
            batch_max_q: 1,
            kv: self.longest(),
            q_heads,
            kv_heads,
            d_qk: pins.d_qk.unwrap_or(1),
            d_v: pins.d_v.unwrap_or(1),
            causal: false,
            window_left: None,
            window_right: None,
            softcap: false,
            page: None,
        }
    }

    fn empty_splits(&self) -> Option<String> {
        let numerics = match self.splits() {
            Ok(numerics) => numerics,
            Err(reason) => return Some(reason),
        };
        let causal = |anchor| {
            let anchor = Some(anchor);
            let pinned = self.hints.pins.causal.is_none_or(|causal| causal == anchor);
            pinned && self.scope().lacks(Feature::of_causal(anchor)).is_none()
        };
        let causal = causal(Anchor::BottomRight) || causal(Anchor::TopLeft);
        let window = self.scope().lacks(Feature::Window).is_none();
        let padded = self.against(PlanFeature::LeftPadding).is_none();
        let leaves = |it: &Numerics| match it.grid.split {
            // The last splits of a count that does not divide the blocks.
            Split::FixedCount(_) | Split::Rule(..) => true,
            // What a row does not see lies after the prefix, but for a window that begins there.
            Split::CacheBoundary => window,
            _ => causal || window || padded && it.grid.anchor == GridAnchor::Buffer,
        };
        (!numerics.iter().any(leaves)).then(|| "masks that leave a split without keys".into())
    }
}

/// Slots of which the blocks of a fixed count of splits consist.
fn block_length(numerics: &Numerics) -> u32 {
    match numerics.softmax.block {
        Block::Whole => 1,
        Block::Size(n) => n,
        Block::Rule(rule) => rule.shortest(),
    }
}

/// Why no page of a kernel can be in part full.
fn one_slot(side: &SideScope) -> Option<String> {
    let sizes = side.can().page_sizes.as_ref()?;
    sizes.iter().all(|&size| size == 1).then(|| "pages of several slots (infer has pages of 1)".into())
}
