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

/// Which positions each context-parallel rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shards {
    /// Rank `r` of `n` holds chunk `r` of `n`.
    Contiguous,
    /// Rank `r` of `n` holds chunks `r` and `2n - 1 - r` of `2n`, so that causal work is even (zigzag ring attention).
    Zigzag,
}

/// Context parallelism: the positions of every sequence are cut into chunks that ranks own. Rows live with their position's rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextParallel {
    /// Ranks, at least 2.
    pub ranks: u32,
    /// Who owns which chunk.
    pub shards: Shards,
    /// Positions in a chunk, at least 1: chunk `c` begins at `c * length`, and the last one holds everything after that. Fixed by
    /// the plan, so that a growing sequence keeps its boundaries.
    pub length: u32,
}

impl ContextParallel {
    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        match self.shards {
            Shards::Contiguous => self.ranks,
            Shards::Zigzag => 2 * self.ranks,
        }
    }

    /// The rank that owns a chunk.
    pub fn owner(&self, chunk: u32) -> u32 {
        match self.shards {
            Shards::Contiguous => chunk,
            Shards::Zigzag => chunk.min(2 * self.ranks - 1 - chunk),
        }
    }

    /// The chunks that a rank owns, ascending.
    pub fn held_by(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let second = match self.shards {
            Shards::Contiguous => None,
            Shards::Zigzag => Some(2 * self.ranks - 1 - rank),
        };
        std::iter::once(rank).chain(second)
    }

    /// The chunk that holds a position; rows before position 0 live in the first.
    pub fn chunk_of(&self, position: i64) -> u32 {
        let chunk = position.max(0) / i64::from(self.length);
        chunk.min(i64::from(self.chunks()) - 1) as u32
    }
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
    /// Context-parallel ranks; `None` is one.
    pub context: Option<ContextParallel>,
    /// Head-parallel ranks, at least 1; see [`Problem::heads_of_rank`](super::Problem::heads_of_rank).
    pub head_ranks: u32,
    /// The kernel's own [knobs](super::capabilities::Knob) that are off their default: name and value, sorted by name.
    pub knobs: Vec<(String, String)>,
}

impl TrainPlan {
    /// Sequences packed in the problem's order, on one rank.
    pub fn varlen(sequences: usize) -> TrainPlan {
        TrainPlan {
            layout: TrainLayout::Varlen,
            order: (0..sequences as u32).collect(),
            block_q: 64,
            context: None,
            head_ranks: 1,
            knobs: Vec::new(),
        }
    }
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

impl Request {
    /// All of so many rows in one step.
    pub fn one_step(rows: u32) -> Request {
        Request { hit: 0, join: 0, chunks: Vec::new(), then: rows.max(1), reject: 0, preempt: None }
    }
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
    /// Context-parallel ranks; `None` is one.
    pub context: Option<ContextParallel>,
    /// Head-parallel ranks, at least 1.
    pub head_ranks: u32,
    /// The kernel's own knobs that are off their default: name and value, sorted by name.
    pub knobs: Vec<(String, String)>,
}

impl InferPlan {
    /// Requests of so many rows each, all in one step, over a cache of one row of slots for each, on one rank.
    pub fn one_step(rows: impl IntoIterator<Item = u32>) -> InferPlan {
        let requests: Vec<Request> = rows.into_iter().map(Request::one_step).collect();
        InferPlan {
            cache: Cache::Contiguous { spare: 0 },
            order: (0..requests.len() as u32).collect(),
            requests,
            rotate: false,
            budget: None,
            bucket: 1,
            context: None,
            head_ranks: 1,
            knobs: Vec::new(),
        }
    }
}
