//! The values of the knobs that every space has.

macro_rules! values {
    ($($(#[$about:meta])* $knob:ident { $($value:ident = $name:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $knob { $($value),+ }

        impl $knob {
            pub const ALL: &[$knob] = &[$($knob::$value),+];

            pub fn name(self) -> &'static str {
                match self { $($knob::$value => $name),+ }
            }
        }
    )+};
}

values! {
    /// Storage of keys and values.
    Kv8 { Plain = "as q", E4m3 = "e4m3", E5m2 = "e5m2", }
    /// Positions of the leading sequence: the first of the longest. `g` is any block or split length in play.
    Length {
        One = "1", Elsewhere = "elsewhere below 516", Before = "g-1", At = "g", After = "g+1", TwiceAfter = "2g+1",
        Long = "516 and more", Longer = "2049 and more",
    }
    /// Its new rows.
    Rows { One = "one", Part = "several after a context", All = "all, two or more", Excess = "more than keys", }
    /// Sequences. An empty one has no rows or no keys.
    Batch { One = "1", Two = "2", Three = "3 or more", Mixed = "3 or more, an empty one among them", }
    /// Query heads over KV heads.
    Heads { One = "1/1", Equal = "n/n", Grouped = "grouped", Single = "n/1", }
    /// The causal mask.
    Causal { BottomRight = "bottom-right", TopLeft = "top-left", None = "none", }
    /// The window.
    Window { None = "none", Left = "left", Right = "right", Both = "both sides", }
    /// What is there or not.
    Switch { Off = "off", On = "on", }
    /// The softmax scale.
    Scale { Usual = "1/sqrt(d_qk)", Power = "another power of two", Any = "any other", }
    /// Layout of the training call.
    Layout { Varlen = "varlen", DenseLeft = "dense, padded left", DenseRight = "dense, padded right", }
    /// Order of the batch in the training call.
    TrainOrder { Ascending = "as listed", Permuted = "permuted", }
    /// Order of the batch in the engine's steps.
    StepOrder { Ascending = "as listed", Permuted = "permuted", Rotating = "rotating", }
    /// Which pages are handed out.
    Pool { Ascending = "ascending", Shuffled = "shuffled", Recycled = "recycled", }
    /// How the leading sequence's rows are cut into steps.
    Steps {
        Whole = "one step", Decode = "one row at a time", Verify = "a prefill, then several rows at a time", Chunks = "chunks",
        Budget = "cut by a token budget",
    }
    /// Where the prefix hit of the leading sequence ends.
    Hit { None = "none", On = "on a multiple of g", Off = "elsewhere", }
    /// When requests join.
    Join { Together = "together", Apart = "apart", }
    /// Context-parallel ranks.
    Context { One = "1", Two = "2", ThreeZigzag = "3, zigzag", Four = "4 or more", }
    /// Head-parallel ranks.
    HeadRanks { One = "1", Divided = "KV heads divided", Replicated = "KV heads replicated", }
    /// What the values look like.
    Kind {
        Normal = "normal", Equal = "equal", Dominant = "dominant", Deep = "deep", Overflow = "overflow", Subnormal = "subnormal",
        Quantised = "quantised", Tail = "tail", ZeroPeak = "zero_peak", Rising = "rising", Wide = "wide", OnehotV = "onehot_v",
        ConstantV = "constant_v", Mirror = "mirror",
    }
}

/// The knobs that every space has, in its order; a kernel's own come after them.
pub(super) mod at {
    pub const FORMAT: usize = 0;
    pub const KV8: usize = 1;
    pub const LENGTH: usize = 2;
    pub const ROWS: usize = 3;
    pub const BATCH: usize = 4;
    pub const HEADS: usize = 5;
    pub const DIMS: usize = 6;
    pub const CAUSAL: usize = 7;
    pub const WINDOW: usize = 8;
    pub const SOFTCAP: usize = 9;
    pub const SINKS: usize = 10;
    pub const ALIBI: usize = 11;
    pub const SCALE: usize = 12;
    pub const LAYOUT: usize = 13;
    pub const TRAIN_ORDER: usize = 14;
    pub const STEP_ORDER: usize = 15;
    pub const CACHE: usize = 16;
    pub const POOL: usize = 17;
    pub const SPARE: usize = 18;
    pub const STEPS: usize = 19;
    pub const HIT: usize = 20;
    pub const REJECT: usize = 21;
    pub const PREEMPT: usize = 22;
    pub const JOIN: usize = 23;
    pub const BUCKET: usize = 24;
    pub const TRAIN_CONTEXT: usize = 25;
    pub const INFER_CONTEXT: usize = 26;
    pub const TRAIN_HEAD_RANKS: usize = 27;
    pub const INFER_HEAD_RANKS: usize = 28;
    pub const REGIME: usize = 29;
    /// How many there are.
    pub const COUNT: usize = 30;
}
