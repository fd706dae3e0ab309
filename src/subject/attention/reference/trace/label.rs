//! The names of what the row code computes, as it computes it.

use std::ops::Range;

/// What the row code has just computed. Key ranges are visited cells; parts, lanes and keys are numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// The finished dot product of a key, before scale, softcap and bias.
    Dot {
        /// Position.
        key: u32,
    },
    /// The stored score of a key.
    Score {
        /// Position.
        key: u32,
    },
    /// The maximum in use from a cell on.
    Max {
        /// The cell.
        keys: Range<u32>,
    },
    /// What earlier sums were multiplied with before a cell.
    Rescale {
        /// The cell.
        keys: Range<u32>,
    },
    /// The f32 weight of a key, against the maximum in use at its cell.
    Weight {
        /// Position.
        key: u32,
    },
    /// That weight in the format of the product with V.
    Rounded {
        /// Position.
        key: u32,
    },
    /// The sum of one cell's weights, before it joins the running sum.
    BlockSum {
        /// The cell.
        keys: Range<u32>,
    },
    /// The running row sum after a cell.
    RowSum {
        /// The cell.
        keys: Range<u32>,
    },
    /// The row sum with the share of a sink.
    SinkSum,
    /// A key's weight over the row sum, in the format of the product with V.
    Probability {
        /// Position.
        key: u32,
    },
    /// One lane of one cell's product with V, before it joins the accumulator; not under an order that adds key by key.
    BlockValue {
        /// The cell.
        keys: Range<u32>,
        /// Value lane.
        lane: usize,
    },
    /// One lane of the running output after a cell.
    Accumulator {
        /// The cell.
        keys: Range<u32>,
        /// Value lane.
        lane: usize,
    },
    /// A split's log-sum-exp.
    PartialLse {
        /// Number among the nonempty splits.
        part: usize,
    },
    /// One lane of a split's normalised output.
    Partial {
        /// Number among the nonempty splits.
        part: usize,
        /// Value lane.
        lane: usize,
    },
    /// The log-sum-exp of a split without a key, which takes part in the merge all the same.
    EmptySplit {
        /// It stands before those with keys, else behind them.
        before: bool,
    },
    /// The log-sum-exp after merging partial `right` into partial `left`.
    MergedLse {
        /// Partial that receives.
        left: usize,
        /// Partial merged; one past the last is the sink.
        right: usize,
    },
    /// One lane after that merge.
    Merged {
        /// Partial that receives.
        left: usize,
        /// Partial merged.
        right: usize,
        /// Value lane.
        lane: usize,
    },
    /// One lane of the finished output, in f32.
    Finish {
        /// Value lane.
        lane: usize,
    },
    /// One lane as stored.
    Store {
        /// Value lane.
        lane: usize,
    },
    /// The reported log-sum-exp.
    Lse,
}
