//! What a step means in exact arithmetic: two kernels' numbers can be compared where their definitions are the same.

use std::fmt;
use std::ops::Range;

/// The steps of attention, in the order in which they need each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// `q . k_j`.
    Dot,
    /// `s_j`: with scale, softcap and bias.
    Score,
    /// The maximum in use.
    Maximum,
    /// `e^(old maximum - new maximum)`.
    Rescale,
    /// `e^(s_j - maximum)`.
    Weight,
    /// The weight in the format of the product with V.
    RoundedWeight,
    /// The sum of the weights of one block.
    BlockSum,
    /// The sum of the weights so far.
    RowSum,
    /// The row sum with a sink.
    SinkSum,
    /// A weight over the row sum.
    Probability,
    /// One block's product with V.
    BlockValue,
    /// The product with V so far.
    Accumulator,
    /// A split's log-sum-exp.
    PartialLse,
    /// A split's output.
    Partial,
    /// The log-sum-exp of several splits.
    MergedLse,
    /// The output of several splits.
    Merged,
    /// The output, in f32.
    Finish,
    /// The output as it is stored.
    Store,
    /// The log-sum-exp of the row.
    Lse,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 19] = [
        Stage::Dot,
        Stage::Score,
        Stage::Maximum,
        Stage::Rescale,
        Stage::Weight,
        Stage::RoundedWeight,
        Stage::BlockSum,
        Stage::RowSum,
        Stage::SinkSum,
        Stage::Probability,
        Stage::BlockValue,
        Stage::Accumulator,
        Stage::PartialLse,
        Stage::Partial,
        Stage::MergedLse,
        Stage::Merged,
        Stage::Finish,
        Stage::Store,
        Stage::Lse,
    ];
}

/// What weights are measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Against {
    /// The score of this key, the largest of those that the maximum was taken over.
    Key(u32),
    /// The number from which the running maximum started: no key has exceeded it.
    Start {
        /// Its f32 pattern.
        bits: u32,
        /// It is held against scores without the softmax scale.
        raw: bool,
    },
    /// The row sum: these are probabilities.
    Sum,
}

/// What else a number is multiplied with. Numbers in other units than each other have no distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// A score: the softmax scale is in it.
    pub softmax_scale: bool,
    /// Keys (of a score) or values (of a sum) are as stored in 8 bits, without their scale.
    pub as_stored: bool,
}

/// What a step computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Which step.
    pub stage: Stage,
    /// The keys it is made of, ascending, neighbours joined: one key, a block, or all so far. None for what is of the whole row,
    /// and for a rescale factor.
    pub keys: Vec<Range<u32>>,
    /// Value lane.
    pub lane: Option<usize>,
    /// What weights are measured against.
    pub against: Option<Against>,
    /// Of a rescale factor: what they were measured against before.
    pub before: Option<Against>,
    /// Whether a sink has joined.
    pub sink: bool,
    /// Units.
    pub unit: Unit,
}

impl Definition {
    pub(super) fn of(stage: Stage) -> Definition {
        Definition { stage, keys: Vec::new(), lane: None, against: None, before: None, sink: false, unit: Unit::default() }
    }

    /// The step, in whatever units and against whatever maximum.
    pub fn at_large(&self) -> (Stage, &[Range<u32>], Option<usize>) {
        (self.stage, &self.keys, self.lane)
    }

    /// Its place in the order of the mathematics, but for the block of a rescale factor.
    pub(super) fn place(&self) -> (Stage, u32, u32, usize) {
        let count = self.keys.iter().map(|keys| keys.end - keys.start).sum();
        (self.stage, count, self.keys.first().map_or(0, |keys| keys.start), self.lane.unwrap_or(0))
    }
}

/// `keys 0..4`, `key 4`, `keys 0..4 and 12..16`.
pub(super) fn keys_in_words(keys: &[Range<u32>]) -> String {
    match keys {
        [] => "no key".into(),
        [one] if one.end - one.start == 1 => format!("key {}", one.start),
        _ => {
            let ranges: Vec<String> = keys.iter().map(|keys| format!("{}..{}", keys.start, keys.end)).collect();
            format!("keys {}", ranges.join(" and "))
        }
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = keys_in_words(&self.keys);
        match self.stage {
            Stage::Dot => write!(f, "the dot product of {keys}"),
            Stage::Score if !self.unit.softmax_scale => write!(f, "the unscaled score of {keys}"),
            Stage::Score => write!(f, "the score of {keys}"),
            Stage::Maximum => write!(f, "the maximum over {keys}"),
            Stage::Rescale => write!(f, "the rescale factor"),
            Stage::Weight => write!(f, "the weight of {keys}"),
            Stage::RoundedWeight => write!(f, "the rounded weight of {keys}"),
            Stage::BlockSum => write!(f, "the sum of one block's weights, {keys}"),
            Stage::RowSum => write!(f, "the row sum over {keys}"),
            Stage::SinkSum => write!(f, "the row sum with the sink"),
            Stage::Probability => write!(f, "the probability of {keys}"),
            Stage::BlockValue => write!(f, "one block's product with V, {keys}"),
            Stage::Accumulator => write!(f, "the accumulator over {keys}"),
            Stage::PartialLse => write!(f, "the lse of the split with {keys}"),
            Stage::Partial => write!(f, "the output of the split with {keys}"),
            Stage::MergedLse => write!(f, "the merged lse of {keys}"),
            Stage::Merged => write!(f, "the merged output of {keys}"),
            Stage::Finish => write!(f, "the finished output"),
            Stage::Store => write!(f, "the stored output"),
            Stage::Lse => write!(f, "the lse"),
        }?;
        if self.sink && matches!(self.stage, Stage::Merged | Stage::MergedLse) {
            f.write_str(" and the sink")?;
        }
        self.lane.map_or(Ok(()), |lane| write!(f, ", lane {lane}"))
    }
}
