//! What a kernel says that it takes, with everything that is left out filled in.

use crate::finding::Path;
use crate::number::Dtype;
use crate::subject::attention::Anchor;
use crate::subject::attention::capabilities::{Capabilities, Form, Format, HeadDims};
use crate::subject::attention::conventions::AnchorConvention;
use crate::subject::attention::feature::Feature;
use crate::subject::attention::implementation::Implementation;

/// A kernel and its declarations.
pub(in crate::subject::attention) struct Terms<'a> {
    pub(in crate::subject::attention) kernel: &'a Implementation,
    pub(in crate::subject::attention) capabilities: Capabilities,
    anchor: AnchorConvention,
}

/// Storage formats, in the order of a page.
const STORAGES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

impl<'a> Terms<'a> {
    pub(in crate::subject::attention) fn of(kernel: &'a Implementation) -> Self {
        Terms { kernel, capabilities: kernel.kernel.capabilities(), anchor: kernel.kernel.conventions().anchor }
    }

    pub(in crate::subject::attention) fn forms(&self) -> Vec<Form> {
        self.capabilities.forms.clone().unwrap_or(Form::ALL.to_vec())
    }

    pub(in crate::subject::attention) fn form(&self, form: Form) -> bool {
        self.capabilities.forms.as_ref().is_none_or(|forms| forms.contains(&form))
    }

    /// Whether a path has a form at all.
    pub(in crate::subject::attention) fn path(&self, path: Path) -> bool {
        match path {
            Path::Train => [Form::Varlen, Form::DenseLeft, Form::DenseRight].into_iter().any(|form| self.form(form)),
            Path::Infer => [Form::Paged, Form::Contiguous].into_iter().any(|form| self.form(form)),
        }
    }

    pub(in crate::subject::attention) fn feature(&self, feature: Feature) -> bool {
        let ranks = feature == Feature::ContextParallel;
        (!ranks || self.kernel.kernel.context_parallel())
            && self.capabilities.features.as_ref().is_none_or(|features| features.contains(&feature))
    }

    /// Every format, those of one storage together.
    pub(in crate::subject::attention) fn formats(&self) -> Vec<Format> {
        let plain = || STORAGES.map(|storage| Format { storage, out: storage }).to_vec();
        let mut formats = self.capabilities.formats.clone().unwrap_or_else(plain);
        formats.sort_by_key(|format| (STORAGES.iter().position(|&it| it == format.storage), format.out != format.storage));
        formats.dedup();
        formats
    }

    /// One format for each storage: the one that stores results as it stores operands, where there is one.
    pub(in crate::subject::attention) fn storages(&self) -> Vec<Format> {
        let mut formats = self.formats();
        formats.dedup_by_key(|format| format.storage);
        formats
    }

    /// Head dims for everything that is not about head dims: a power of two of 8 lanes or more where there is one.
    pub(in crate::subject::attention) fn head_dims(&self) -> (u32, u32) {
        match &self.capabilities.head_dims {
            None => (16, 16),
            Some(HeadDims::UpTo { max, multiple_of }) => {
                let least = (*multiple_of).max(1);
                let d = if 16 % least == 0 { 16 } else { least };
                (d.min((*max).max(1)), d.min((*max).max(1)))
            }
            Some(HeadDims::Only(pairs)) => {
                let equal = pairs.iter().copied().filter(|(d_qk, d_v)| d_qk == d_v).min();
                equal.or(pairs.iter().copied().min()).unwrap_or((16, 16))
            }
        }
    }

    /// KV heads and query heads of each.
    pub(in crate::subject::attention) fn heads(&self) -> (u32, u32) {
        if self.feature(Feature::GroupedHeads) { (1, 2) } else { (2, 1) }
    }

    pub(in crate::subject::attention) fn page(&self) -> u32 {
        match &self.capabilities.page_sizes {
            Some(sizes) if !sizes.contains(&16) => sizes.first().copied().unwrap_or(16),
            _ => 16,
        }
    }

    /// Masks that it takes and means, the one of engine steps first.
    pub(in crate::subject::attention) fn masks(&self) -> Vec<Option<Anchor>> {
        let anchor = |convention| self.anchor == AnchorConvention::AsCalled || self.anchor == convention;
        let masks = [
            (Feature::Causal, anchor(AnchorConvention::BottomRight), Some(Anchor::BottomRight)),
            (Feature::NotCausal, true, None),
            (Feature::CausalTopLeft, anchor(AnchorConvention::TopLeft), Some(Anchor::TopLeft)),
        ];
        let taken = masks.into_iter().filter(|&(feature, means, _)| means && self.feature(feature));
        taken.map(|(_, _, mask)| mask).collect()
    }

    /// Whether sequences of unlike lengths may share a batch on a path.
    pub(in crate::subject::attention) fn ragged(&self, path: Path) -> bool {
        let packed = match path {
            Path::Train => self.form(Form::Varlen),
            Path::Infer => self.form(Form::Paged),
        };
        packed || !self.capabilities.no_ragged
    }

    /// Whether calls may have so many rows, keys or batch entries.
    pub(in crate::subject::attention) fn holds(&self, rows: u32) -> bool {
        self.capabilities.max_rows.is_none_or(|most| rows <= most)
    }
}
