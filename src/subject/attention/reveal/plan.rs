//! The plans that a kernel is asked under.

use crate::finding::Path;
use crate::subject::attention::capabilities::{Form, Format};
use crate::subject::attention::probe::sample::Shape;
use crate::subject::attention::probe::terms::Terms;
use crate::subject::attention::scope::SideScope;
use crate::subject::attention::{Cache, Case, Data, Regime, Side, TrainLayout, validate};
use std::fmt;
use std::str::FromStr;

/// A way for a row to come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plan {
    /// The whole sequence, packed; its last row.
    Prefill,
    /// The same, a row in the middle.
    PrefillMiddle,
    /// The same, the last row with other sequences in the call.
    PrefillBatch,
    /// The whole sequence, padded to the right.
    DenseRight,
    /// The whole sequence, padded to the left.
    DenseLeft,
    /// One row against pages.
    Decode,
    /// The same, in a batch of eight.
    DecodeBatch,
    /// One row against a contiguous cache.
    ContiguousDecode,
    /// The whole sequence against pages, in one step.
    PagedPrefill,
    /// The whole sequence against pages, in three chunks.
    Chunked,
}

/// Entries of the batch in [`Plan::DecodeBatch`].
const BATCH: u32 = 8;

impl Plan {
    /// All of them, in the order of a report.
    pub const ALL: [Plan; 10] = [
        Plan::Prefill,
        Plan::PrefillMiddle,
        Plan::PrefillBatch,
        Plan::DenseRight,
        Plan::DenseLeft,
        Plan::Decode,
        Plan::DecodeBatch,
        Plan::ContiguousDecode,
        Plan::PagedPrefill,
        Plan::Chunked,
    ];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Plan::Prefill => "prefill",
            Plan::PrefillMiddle => "prefill-middle",
            Plan::PrefillBatch => "prefill-batch",
            Plan::DenseRight => "dense-right",
            Plan::DenseLeft => "dense-left",
            Plan::Decode => "decode",
            Plan::DecodeBatch => "decode-batch",
            Plan::ContiguousDecode => "contiguous-decode",
            Plan::PagedPrefill => "paged-prefill",
            Plan::Chunked => "chunked",
        }
    }

    /// One line.
    pub fn about(self) -> &'static str {
        match self {
            Plan::Prefill => "the whole sequence in one packed call, its last row",
            Plan::PrefillMiddle => "the whole sequence in one packed call, a row in its middle",
            Plan::PrefillBatch => "the whole sequence in one packed call with two others, its last row",
            Plan::DenseRight => "the whole sequence padded to the right, its last row",
            Plan::DenseLeft => "the whole sequence padded to the left, its last row",
            Plan::Decode => "one row against pages",
            Plan::DecodeBatch => "one row against pages, in a batch of 8",
            Plan::ContiguousDecode => "one row against a contiguous cache",
            Plan::PagedPrefill => "the whole sequence against pages in one step, its last row",
            Plan::Chunked => "the whole sequence against pages in three chunks, its last row",
        }
    }

    /// The path that drives it.
    pub fn path(self) -> Path {
        match self {
            Plan::Prefill | Plan::PrefillMiddle | Plan::PrefillBatch | Plan::DenseRight | Plan::DenseLeft => Path::Train,
            Plan::Decode | Plan::DecodeBatch | Plan::ContiguousDecode | Plan::PagedPrefill | Plan::Chunked => Path::Infer,
        }
    }

    fn form(self) -> Form {
        match self {
            Plan::Prefill | Plan::PrefillMiddle | Plan::PrefillBatch => Form::Varlen,
            Plan::DenseRight => Form::DenseRight,
            Plan::DenseLeft => Form::DenseLeft,
            Plan::ContiguousDecode => Form::Contiguous,
            Plan::Decode | Plan::DecodeBatch | Plan::PagedPrefill | Plan::Chunked => Form::Paged,
        }
    }

    /// The case, and the packed row that is asked; `keys` is its number of keys.
    ///
    /// # Errors
    /// Why the kernel is not asked: what it does not declare.
    pub(super) fn case(self, terms: &Terms<'_>, format: Format, dims: (u32, u32), keys: u32) -> Result<(Case, usize), String> {
        let form = self.form();
        if !terms.form(form) {
            return Err(format!("it does not declare {} calls", form.name()));
        }
        let one_row = matches!(self, Plan::Decode | Plan::DecodeBatch | Plan::ContiguousDecode);
        let q = if one_row { 1 } else { keys };
        let mut sequences = vec![(q, keys)];
        let mut asked = 0;
        // Not the first of its batch: what holds at offset 0 need not hold elsewhere.
        let count = match self {
            Plan::DecodeBatch => BATCH,
            Plan::PrefillBatch => 3,
            _ => 1,
        };
        for n in 1..count {
            let other =
                if terms.ragged(self.path()) { [keys, keys / 2 + 1, 33.min(keys), 5.min(keys)][n as usize % 4] } else { keys };
            sequences.push((if one_row { 1 } else { other }, other));
        }
        if count > 1 {
            sequences.swap(0, 1);
            asked = 1;
        }
        let mut shape = Shape::of(terms, format, &sequences);
        (shape.head_dims, shape.heads) = (dims, (1, 1));
        match form {
            Form::Varlen => shape.layout = TrainLayout::Varlen,
            Form::DenseRight => shape.layout = TrainLayout::Dense { side: Side::Right, pad_q: 3, pad_kv: 3 },
            Form::DenseLeft => shape.layout = TrainLayout::Dense { side: Side::Left, pad_q: 3, pad_kv: 3 },
            Form::Paged => shape.cache = Cache::Paged { page: terms.page(), spare: 1, shuffle: 1, recycled: false },
            Form::Contiguous => shape.cache = Cache::Contiguous { spare: 3 },
        }
        if shape.mask.causal.is_none() && self == Plan::PrefillMiddle {
            return Err("its rows all see the same keys: it is not causal".to_owned());
        }
        let mut case = shape.case(Data::Drawn { seed: 0, regime: Regime::Normal });
        if self == Plan::Chunked {
            let chunk = keys.div_ceil(3);
            let request = &mut case.infer.requests[0];
            (request.chunks, request.then) = (Vec::new(), chunk);
        }
        let outside = SideScope::of(self.path(), &*terms.kernel.kernel).outside(&case);
        if let Some(reason) = outside {
            return Err(reason);
        }
        validate(&case).map_err(|error| format!("{} {}", error.field, error.reason))?;
        let before: u32 = sequences[..asked].iter().map(|it| it.0).sum();
        let row = if self == Plan::PrefillMiddle { q / 2 } else { q - 1 };
        Ok((case, (before + row) as usize))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Plan {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Plan::ALL.map(Plan::name).join(", ");
        Plan::ALL.into_iter().find(|plan| plan.name() == text).ok_or_else(|| format!("`{text}` is not one of {}", names()))
    }
}
