//! Whether a case is inside: the calls that a side's plan makes of the problem.

use super::{Scope, SideScope};
use crate::finding::Path;
use crate::subject::attention::capabilities::{Form, Format};
use crate::subject::attention::kernel::Attributes;
use crate::subject::attention::{Cache, Case, Mask, Sequence, Side, TrainLayout};

impl Scope {
    /// Why a case is outside: the first reason, training first; `None` where it is inside.
    pub fn outside(&self, case: &Case) -> Option<String> {
        Path::BOTH.into_iter().find_map(|path| self.side(path).outside(case))
    }
}

impl SideScope {
    /// Why this side's calls are more than its kernel does; `None` where it does them.
    pub fn outside(&self, case: &Case) -> Option<String> {
        let problem = &case.problem;
        let (context, knobs) = match self.path {
            Path::Train => (case.train.context, &case.train.knobs),
            Path::Infer => (case.infer.context, &case.infer.knobs),
        };
        let attributes = Attributes::of(problem, 1, context, knobs);
        if let Some(reason) = attributes.features().into_iter().find_map(|feature| self.lacks(feature)) {
            return Some(reason);
        }
        if context.is_some() && !self.context_parallel() {
            return Some(self.does_not("context-parallel ranks"));
        }
        if problem.softcap.is_some() && problem.alibi_slopes.is_some() && self.lacks_capped_bias().is_some() {
            return self.lacks_capped_bias();
        }
        let format = Format { storage: problem.dtype, out: problem.out_dtype };
        let knob = |(name, value): &(String, String)| {
            let known = self.can.knobs.iter().any(|it| it.name == *name && it.values.contains(value));
            (!known).then(|| self.does_not(format_args!("knob {name}")))
        };
        self.lacks_format(format)
            .or_else(|| self.lacks_head_dims(problem.d_qk, problem.d_v))
            .or_else(|| self.lacks_layout(case))
            .or_else(|| self.lacks_lengths(case))
            .or_else(|| knobs.iter().find_map(knob))
    }

    /// Form and page size.
    fn lacks_layout(&self, case: &Case) -> Option<String> {
        match self.path {
            Path::Train => self.lacks_form(train_form(case.train.layout)),
            Path::Infer => match case.infer.cache {
                Cache::Contiguous { .. } => self.lacks_form(Form::Contiguous),
                Cache::Paged { page, .. } => self.lacks_form(Form::Paged).or_else(|| self.lacks_page(page)),
            },
        }
    }

    /// Lengths: too many, none, unlike.
    fn lacks_lengths(&self, case: &Case) -> Option<String> {
        let (problem, path) = (&case.problem, self.path);
        let bucket = path == Path::Infer && case.infer.bucket > 1;
        if let Some(most) = self.can.max_rows.filter(|&most| call_rows(case, path) > u64::from(most)) {
            return Some(too_many(most, path));
        }
        if self.can.no_empty_rows && (bucket || has_empty_rows(&problem.mask, &problem.sequences)) {
            return Some(if bucket { empty_entries(path) } else { empty_rows(path) });
        }
        if self.can.no_empty_sequences && (bucket || has_empty_sequences(&problem.sequences)) {
            return Some(if bucket { empty_entries(path) } else { empty_sequences(path) });
        }
        let ragged = match path {
            Path::Train => matches!(case.train.layout, TrainLayout::Dense { .. }) && !even(&problem.sequences),
            Path::Infer => matches!(case.infer.cache, Cache::Contiguous { .. }) && !in_step(case),
        };
        (self.can.no_ragged && ragged).then(|| self::ragged(path))
    }
}

pub(in crate::subject::attention) fn train_form(layout: TrainLayout) -> Form {
    match layout {
        TrainLayout::Varlen => Form::Varlen,
        TrainLayout::Dense { side: Side::Left, .. } => Form::DenseLeft,
        TrainLayout::Dense { side: Side::Right, .. } => Form::DenseRight,
    }
}

pub(in crate::subject::attention) fn too_many(most: u32, path: Path) -> String {
    format!("more than {most} rows or keys in a call ({path})")
}

pub(in crate::subject::attention) fn empty_rows(path: Path) -> String {
    format!("empty rows ({path})")
}

pub(in crate::subject::attention) fn empty_sequences(path: Path) -> String {
    format!("empty sequences ({path})")
}

pub(in crate::subject::attention) fn empty_entries(path: Path) -> String {
    format!("bucket padding, whose entries are empty ({path})")
}

pub(in crate::subject::attention) fn ragged(path: Path) -> String {
    format!("ragged lengths ({path})")
}

/// Query rows, keys or entries of the largest call that a path may make, padding included.
fn call_rows(case: &Case, path: Path) -> u64 {
    let problem = &case.problem;
    let batch = problem.sequences.len() as u64;
    let longest = |length: fn(&Sequence) -> u32| u64::from(problem.sequences.iter().map(length).max().unwrap_or(0));
    let (rows, keys) = match (path, case.train.layout) {
        (Path::Train, TrainLayout::Dense { pad_q, pad_kv, .. }) => {
            (batch * (longest(|s| s.q) + u64::from(pad_q)), batch * (longest(|s| s.kv) + u64::from(pad_kv)))
        }
        _ => (problem.total_q() as u64, problem.total_kv() as u64),
    };
    // Each entry of bucket padding has a row.
    let padding = if path == Path::Infer { u64::from(case.infer.bucket) - 1 } else { 0 };
    (rows.max(batch) + padding).max(keys)
}

pub(in crate::subject::attention) fn has_empty_rows(mask: &Mask, sequences: &[Sequence]) -> bool {
    sequences.iter().any(|s| (0..s.q).any(|i| mask.keys(i, s.q, s.kv).is_empty()))
}

/// The empty batch counts as one.
pub(in crate::subject::attention) fn has_empty_sequences(sequences: &[Sequence]) -> bool {
    sequences.is_empty() || sequences.iter().any(|it| it.q == 0 || it.kv == 0)
}

/// Whether all sequences have the same lengths.
pub(in crate::subject::attention) fn even(sequences: &[Sequence]) -> bool {
    sequences.windows(2).all(|pair| (pair[0].q, pair[0].kv) == (pair[1].q, pair[1].kv))
}

/// Whether all sequences are as long and go through the same steps together.
fn in_step(case: &Case) -> bool {
    let plan = &case.infer;
    let alone = case.problem.sequences.len() < 2;
    let alike = plan.requests.windows(2).all(|pair| pair[0] == pair[1]);
    // A budget cuts the chunks of some.
    plan.bucket == 1 && even(&case.problem.sequences) && alike && (alone || plan.budget.is_none())
}
