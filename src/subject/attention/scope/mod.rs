//! What a campaign's two kernels can do, side by side: which cases may be drawn for them, and why others are left out.
//!
//! Drawing replaces what is outside ([`draw`](super::draw)); shrinking never leaves it; a relation whose changed case is outside is
//! not run. A reason is a short text that names the side and what it lacks, and is counted by this text.

mod call;
mod start;

pub(super) use call::{
    empty_entries, empty_rows, empty_sequences, even, has_empty_rows, has_empty_sequences, ragged, too_many, train_form,
};

use super::Case;
use super::capabilities::{Capabilities, Form, Format, HeadDims};
use super::conventions::{AnchorConvention, Conventions};
use super::feature::Feature;
use super::kernel::AttentionKernel;
use super::mask::Anchor;
use crate::finding::Path;
use crate::number::Dtype;
use std::fmt::Display;

/// What one side's kernel can do.
#[derive(Clone, Debug)]
pub struct SideScope {
    path: Path,
    can: Capabilities,
    means: Conventions,
    ranks: bool,
}

/// What both kernels can do. The default is everything.
#[derive(Clone, Debug)]
pub struct Scope {
    sides: [SideScope; 2],
}

impl Default for Scope {
    fn default() -> Self {
        let side = |path| SideScope { path, can: Capabilities::default(), means: Conventions::default(), ranks: true };
        Scope { sides: Path::BOTH.map(side) }
    }
}

impl Scope {
    /// That of two kernels.
    pub fn of(train: &dyn AttentionKernel, infer: &dyn AttentionKernel) -> Self {
        Scope { sides: [SideScope::of(Path::Train, train), SideScope::of(Path::Infer, infer)] }
    }

    /// Whether no case is outside.
    pub fn is_everything(&self) -> bool {
        self.sides.iter().all(SideScope::is_everything)
    }

    /// Whether every call is taken that sets no knob.
    pub fn takes_every_call(&self) -> bool {
        self.sides.iter().all(SideScope::takes_every_call)
    }

    /// Whether a side declares that it does not do some calls.
    pub fn has_limits(&self) -> bool {
        self.sides.iter().any(SideScope::has_limits)
    }

    /// One side.
    pub fn side(&self, path: Path) -> &SideScope {
        &self.sides[path as usize]
    }

    /// Why the calls of a problem may not ask for a feature; `None` where both sides do it.
    pub fn lacks(&self, feature: Feature) -> Option<String> {
        self.sides.iter().find_map(|side| side.lacks(feature))
    }

    /// Why softcap and ALiBi may not stand together.
    pub fn lacks_capped_bias(&self) -> Option<String> {
        self.sides.iter().find_map(SideScope::lacks_capped_bias)
    }

    /// The formats that both do, in the order of the first that lists any; `None` is any.
    pub fn formats(&self) -> Option<Vec<Format>> {
        // Storage of q is never in 8 bits: that is a feature of keys and values.
        let valid = |it: &Format| [it.storage, it.out].iter().all(|it| it.bits() > 8);
        let of = |side: &SideScope| -> Option<Vec<Format>> {
            Some(side.can.formats.as_ref()?.iter().copied().filter(valid).collect())
        };
        match self.sides.each_ref().map(of) {
            [Some(ours), Some(theirs)] => Some(ours.into_iter().filter(|it| theirs.contains(it)).collect()),
            [ours, theirs] => ours.or(theirs),
        }
    }

    /// Why a format is not in [`Scope::formats`].
    pub fn lacks_format(&self, format: Format) -> Option<String> {
        let by_side = self.sides.iter().find_map(|side| side.lacks_format(format));
        by_side.or_else(|| {
            let common = self.formats()?;
            (!common.contains(&format)).then(|| format!("{format} (no side alone)"))
        })
    }

    /// Head dims that both take, equal ones only where a side cannot do others; `None` is any.
    pub fn head_dims(&self) -> Option<HeadDims> {
        match self.sides.each_ref().map(|side| side.can.head_dims.clone()) {
            [Some(ours), Some(theirs)] => Some(ours.and(&theirs)),
            [ours, theirs] => ours.or(theirs),
        }
    }

    /// Why head dims may not be drawn.
    pub fn lacks_head_dims(&self, d_qk: u32, d_v: u32) -> Option<String> {
        if self.allows_head_dims(d_qk, d_v) {
            return None;
        }
        let unequal = (d_qk != d_v).then(|| self.lacks(Feature::UnequalHeadDims)).flatten();
        let by_side = || self.sides.iter().find_map(|side| side.lacks_head_dims(d_qk, d_v));
        unequal.or_else(by_side).or_else(|| Some("head dims (no side alone)".into()))
    }

    /// Whether a pair of head dims may be drawn.
    pub fn allows_head_dims(&self, d_qk: u32, d_v: u32) -> bool {
        let unequal = d_qk == d_v || self.lacks(Feature::UnequalHeadDims).is_none();
        unequal && self.head_dims().is_none_or(|dims| dims.allow(d_qk, d_v))
    }

    /// Causal masks that both do.
    pub fn anchors(&self) -> Vec<Option<Anchor>> {
        let all = [Some(Anchor::BottomRight), Some(Anchor::TopLeft), None];
        all.into_iter().filter(|&it| self.lacks(Feature::of_causal(it)).is_none()).collect()
    }

    /// The most query rows, keys or entries of a call, with the side that says so.
    pub fn max_rows(&self) -> Option<(u32, Path)> {
        let limits = self.sides.iter().filter_map(|side| Some((side.can.max_rows?, side.path)));
        limits.min_by_key(|&(most, _)| most)
    }

    /// The side that cannot do rows without keys.
    pub fn no_empty_rows(&self) -> Option<Path> {
        self.sides.iter().find(|side| side.can.no_empty_rows).map(|side| side.path)
    }

    /// The side that cannot do sequences without rows or keys.
    pub fn no_empty_sequences(&self) -> Option<Path> {
        self.sides.iter().find(|side| side.can.no_empty_sequences).map(|side| side.path)
    }

    /// Whether a side compiles for each new shape.
    pub fn compiles(&self) -> bool {
        self.sides.iter().any(|side| side.can.compiles)
    }
}

impl SideScope {
    /// That of the kernel of a path.
    pub fn of(path: Path, kernel: &dyn AttentionKernel) -> Self {
        SideScope { path, can: kernel.capabilities(), means: kernel.conventions(), ranks: kernel.context_parallel() }
    }

    /// Whether no case is outside: where a kernel has knobs, a case may ask for one that it does not have.
    pub fn is_everything(&self) -> bool {
        self.takes_every_call() && self.can.knobs.is_empty()
    }

    /// Whether every call is taken that sets no knob.
    pub fn takes_every_call(&self) -> bool {
        self.context_parallel() && self.means == Conventions::default() && !self.has_limits()
    }

    /// Whether it declares that it does not do some calls that it [can be asked](SideScope::can_be_asked) for: ranks are no such call.
    pub fn has_limits(&self) -> bool {
        let Capabilities { knobs, features, compiles, guarded, .. } = &self.can;
        let lacks = |feature: &Feature| features.as_ref().is_some_and(|list| !list.contains(feature));
        let features = match Feature::ALL.iter().any(|it| *it != Feature::ContextParallel && lacks(it)) {
            true => return true,
            false => features.clone(),
        };
        let (knobs, compiles, guarded) = (knobs.clone(), *compiles, *guarded);
        self.can != Capabilities { knobs, features, compiles, guarded, ..Default::default() }
    }

    /// Whether its kernel can be asked for a case that it declares it does not do: the call means to it what the case says, and it is asked
    /// for no ranks that it does not know of ([`AttentionKernel::context_parallel`]).
    pub fn can_be_asked(&self, case: &Case) -> bool {
        let meaning = SideScope { can: Capabilities { knobs: self.can.knobs.clone(), ..Default::default() }, ..self.clone() };
        meaning.outside(case).is_none() && self.outside(case).is_some()
    }

    /// What was declared.
    pub fn can(&self) -> &Capabilities {
        &self.can
    }

    /// Whether a call may stand for a context-parallel group.
    pub fn context_parallel(&self) -> bool {
        self.ranks && self.lacks(Feature::ContextParallel).is_none()
    }

    /// Whether calls may have a form.
    pub fn does(&self, form: Form) -> bool {
        let pages = form != Form::Paged || self.can.page_sizes.as_ref().is_none_or(|sizes| !sizes.is_empty());
        pages && self.can.forms.as_ref().is_none_or(|forms| forms.contains(&form))
    }

    /// `thing (train does not do it)`.
    fn does_not(&self, thing: impl Display) -> String {
        format!("{thing} ({} does not do it)", self.path)
    }

    /// Why a form is not done.
    pub fn lacks_form(&self, form: Form) -> Option<String> {
        (!self.does(form)).then(|| self.does_not(format_args!("{} calls", form.name())))
    }

    /// Why a call may not ask for a feature: it is not done, or means something else there.
    pub fn lacks(&self, feature: Feature) -> Option<String> {
        if self.can.features.as_ref().is_some_and(|list| !list.contains(&feature)) {
            return Some(self.does_not(feature.thing()));
        }
        let (means, plain) = (&self.means, Conventions::default());
        let declares = |field: &str, value: String| Some(format!("{} ({} declares {field} {value})", feature.thing(), self.path));
        let anchor = |asked| means.anchor != AnchorConvention::AsCalled && means.anchor != asked;
        match feature {
            Feature::Causal if anchor(AnchorConvention::BottomRight) => declares("anchor", means.anchor.to_string()),
            Feature::CausalTopLeft if anchor(AnchorConvention::TopLeft) => declares("anchor", means.anchor.to_string()),
            Feature::Window if means.window != plain.window => declares("window", means.window.to_string()),
            Feature::Sinks if means.sink_in_lse != plain.sink_in_lse => declares("sink_in_lse", means.sink_in_lse.to_string()),
            Feature::Alibi if means.alibi != plain.alibi => declares("alibi", means.alibi.to_string()),
            Feature::Fp8Kv if means.kv_scales != plain.kv_scales => declares("kv_scales", means.kv_scales.to_string()),
            _ => None,
        }
    }

    fn lacks_capped_bias(&self) -> Option<String> {
        let order = self.means.cap_order;
        let declared = order != Conventions::default().cap_order;
        declared.then(|| format!("softcap with ALiBi ({} declares cap_order {order})", self.path))
    }

    fn lacks_format(&self, format: Format) -> Option<String> {
        let list = self.can.formats.as_ref().filter(|list| !list.contains(&format))?;
        let mut storages: Vec<Dtype> = Vec::new();
        for it in list {
            if !storages.contains(&it.storage) {
                storages.push(it.storage);
            }
        }
        Some(match storages.contains(&format.storage) {
            false => format!("{} storage ({}: {})", format.storage, self.path, listed(&storages)),
            true => format!("{format} ({}: {})", self.path, listed(list)),
        })
    }

    /// Why pages of a size are not done; the form is asked for apart.
    pub fn lacks_page(&self, page: u32) -> Option<String> {
        let sizes = self.can.page_sizes.as_ref().filter(|sizes| !sizes.contains(&page))?;
        Some(format!("page sizes ({}: {})", self.path, listed(sizes)))
    }

    /// Why head dims are not done.
    pub fn lacks_head_dims(&self, d_qk: u32, d_v: u32) -> Option<String> {
        let dims = self.can.head_dims.as_ref().filter(|dims| !dims.allow(d_qk, d_v))?;
        Some(format!("head dims ({}: {dims})", self.path))
    }
}

/// Values with commas between.
fn listed(values: &[impl Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
