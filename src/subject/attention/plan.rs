//! How each path lays the problem out and schedules it.

/// Which end of the padded axis holds the padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Padding before the tokens.
    Left,
    /// Padding after the tokens.
    Right,
}

/// Layout of the training path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrainLayout {
    /// `[batch, seq, heads, dim]`, padded.
    Dense {
        /// Where the padding stands, for queries and keys alike.
        side: Side,
        /// Query slots beyond the longest sequence.
        pad_q: u32,
        /// Key slots beyond the longest sequence.
        pad_kv: u32,
    },
    /// `[total, heads, dim]` with `cu_seqlens`.
    Varlen,
}

/// The training plan: the whole batch in one call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrainPlan {
    /// Dense or packed.
    pub layout: TrainLayout,
    /// Batch slot -> index into `Problem::sequences`; a permutation.
    pub order: Vec<u32>,
    /// Query rows per tile (only `softmax.scope = tile` can see it).
    pub block_q: u32,
}

/// The KV cache of the inference path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cache {
    /// One row of slots for each sequence, `spare` more than the longest needs.
    Contiguous {
        /// Dead slots beyond the longest sequence.
        spare: u32,
    },
    /// Pages handed out from a free list.
    Paged {
        /// Slots in a page, at least 1.
        page: u32,
        /// Pages in the pool beyond what is needed; each block table row is also lengthened by one of them, allocated ahead.
        spare: u32,
        /// Seed of the free list's order; 0 is ascending.
        shuffle: u64,
        /// Pages carry a former owner's finite values, and freed pages are handed out again first.
        recycled: bool,
    },
}

/// How one sequence goes through the inference engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// New rows whose keys come from the prefix cache: rows `0..hit` are not computed. `hit < q`, or 0 when `q = 0`.
    pub hit: u32,
    /// The engine step at which the request joins.
    pub join: u32,
    /// Sizes of the first steps, in rows; each at least 1.
    pub chunks: Vec<u32>,
    /// Rows of every later step: 1 is decode, more is multi-token verify. At least 1.
    pub then: u32,
    /// Rows of each later step that are rolled back and computed again (rejected drafts); below `then`.
    pub reject: u32,
    /// After this many steps of its own (at least 1) the request loses its pages, and its rows so far are recomputed in one step.
    pub preempt: Option<u32>,
}

/// The inference plan: engine steps over a KV cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InferPlan {
    /// Cache layout.
    pub cache: Cache,
    /// One for each sequence, in problem order.
    pub requests: Vec<Request>,
    /// Order of the sequences inside a step; a permutation of problem indices.
    pub order: Vec<u32>,
    /// Each step starts one sequence further along `order`.
    pub rotate: bool,
    /// Rows that one step may hold over all its sequences; larger chunks are cut (chunked prefill from a token budget).
    pub budget: Option<u32>,
    /// Each step's batch is padded with empty entries to a multiple of this; 1 is none.
    pub bucket: u32,
}
