//! Rules: block lengths and split counts that a kernel's launcher picks from the shape of the call. Pure functions of [`Launch`].
//!
//! The sources, all of `hopper/`: `tile_size.h` (`tile_size_fwd_sm90`), `flash_api.cpp` (`mha_fwd`, `get_pagedkv_tma`,
//! `get_num_splits`) and `heuristics.h` (`num_splits_heuristic`, `use_one_mma_wg`) of Dao-AILab/flash-attention at 07602ad (tiles),
//! 000090d (launcher) and 13d0fd9 (heuristics), and of vllm-project/flash-attention at 724efca.
//!
//! Where a launcher sees what a call here does not carry, it is left out: the capacity of the cache (a window at least that long
//! counts as none there; here a window is a window), column-major V, and shapes that the kernels refuse, which take the tile of the
//! next row of the table.

use super::Numerics;
use super::choice::{Block, Split, fields};

/// One sequence of a call, as the launcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Entries of the batch (`params.b`).
    pub batch: u32,
    /// Rows of the entry with the most (`params.seqlen_q`, `max_seqlen_q`).
    pub batch_max_q: u32,
    /// Keys of this sequence (`params.seqlen_k` of a batch of one).
    pub kv: u32,
    /// Query heads (`params.h`).
    pub q_heads: u32,
    /// KV heads (`params.h_k`); divides `q_heads`.
    pub kv_heads: u32,
    /// Head dim of queries and keys.
    pub d_qk: u32,
    /// Head dim of values.
    pub d_v: u32,
    /// A causal mask is asked for.
    pub causal: bool,
    /// Keys visible to the left (`window_size_left`); `None` is unbounded.
    pub window_left: Option<u32>,
    /// Keys visible to the right (`window_size_right`).
    pub window_right: Option<u32>,
    /// A softcap is set.
    pub softcap: bool,
    /// Slots in a page; `None` for contiguous keys.
    pub page: Option<u32>,
}

/// What `mha_fwd` makes of causal flag and window.
#[derive(Clone, Copy)]
struct Flags {
    causal: bool,
    local: bool,
    left: Option<u32>,
    right: Option<u32>,
}

/// Rows and keys of a tile (`kBlockM`, `kBlockN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: u32,
    keys: u32,
}

impl Launch {
    fn group(&self) -> u32 {
        self.q_heads / self.kv_heads.max(1)
    }

    /// Rows of the longest entry with the query heads of a KV head packed together (PackGQA).
    fn packed_rows(&self) -> u64 {
        u64::from(self.batch_max_q) * u64::from(self.group())
    }

    fn flags(&self) -> Flags {
        let left = self.window_left;
        let right = self.window_right.filter(|&right| u64::from(right) + 1 < u64::from(self.batch_max_q));
        // One row sees everything, causal or not, so the flag is dropped; at d = 128 with pages it is kept for its tile of 128.
        let one_row = self.batch_max_q <= 1 && left.is_none() && right.is_none();
        let dropped = one_row && (self.d_qk <= 64 || self.d_qk > 128 || self.page.is_none());
        let right = if self.causal && !dropped { Some(0) } else { right };
        let causal = left.is_none() && right == Some(0);
        Flags { causal, local: !causal && (left.is_some() || right.is_some()), left, right }
    }

    /// Head dims are rounded up to the next kernel's: 64, 96, 128, 192, 256.
    fn head_dim(&self) -> u32 {
        [64, 96, 128, 192].into_iter().find(|&d| self.d_qk <= d).unwrap_or(256)
    }
}

/// Which kernels a launcher chooses between.
#[derive(Clone, Copy, PartialEq)]
enum Family {
    Bits16,
    Bits16OneWarpGroup,
    Bits8,
}

impl Family {
    /// `use_one_mma_wg`: 64 packed rows fill one warp group.
    fn one_warp_group(self, launch: &Launch) -> bool {
        let dims: &[u32] = match self {
            Family::Bits16 => &[],
            // heuristics.h asks for d = 128; serving builds take it at 64 too, where the tile table has a row for it.
            Family::Bits16OneWarpGroup => &[64, 128],
            Family::Bits8 => &[128],
        };
        dims.contains(&launch.head_dim()) && launch.packed_rows() <= 64
    }

    /// `tile_size_fwd_sm90`.
    fn tile(self, launch: &Launch, gathered: bool) -> Tile {
        let Flags { causal, local, .. } = launch.flags();
        let one = self.one_warp_group(launch);
        let (rows, keys) = match (self, launch.head_dim()) {
            (Family::Bits8, 64) => (192, 160),
            (Family::Bits8, 96) => (192, 128),
            (Family::Bits8, 128) if one => (64, 96),
            (Family::Bits8, 128) => (
                128,
                if gathered {
                    160
                } else if launch.softcap && local {
                    192
                } else {
                    224
                },
            ),
            (Family::Bits8, 192) => (128, if (gathered || launch.softcap) && local { 128 } else { 160 }),
            (Family::Bits8, _) => (128, if local { 64 } else { 128 }),
            (_, 64) if launch.d_v > 256 => (64, 64),
            (_, 64) if launch.d_v > 64 => (128, 112),
            (_, 64) if one => (64, 192),
            (_, 64) => (
                192,
                if causal {
                    128
                } else if local || gathered {
                    160
                } else {
                    192
                },
            ),
            (_, 96) => (192, if local || gathered { 128 } else { 144 }),
            (_, 128) => (if one { 64 } else { 128 }, if causal || local || gathered { 128 } else { 176 }),
            (_, 192) => (
                128,
                if gathered || local {
                    96
                } else if launch.d_v <= 128 {
                    128
                } else {
                    112
                },
            ),
            _ => (128, if local { 64 } else { 80 }),
        };
        Tile { rows, keys }
    }

    /// The tile of the call. Pages are read by TMA only where they hold whole tiles and there are rows enough; otherwise they are
    /// gathered (`paged_kv_non_TMA`).
    fn of_call(self, launch: &Launch) -> Tile {
        let whole = self.tile(launch, false);
        match launch.page {
            Some(page) if page % whole.keys != 0 || launch.packed_rows() <= u64::from(whole.rows) => self.tile(launch, true),
            _ => whole,
        }
    }
}

fields! {
    /// A block length picked from the shape of the call.
    pub enum BlockRule {
        /// FlashAttention 3 on sm_90 with 16-bit keys; f32 storage, which it does not take, is tiled as 16-bit.
        Fa3 = "fa3",
        /// The same with one warp group where 64 rows hold the longest entry of the batch times its query heads per KV head
        /// (vllm-project/flash-attention#63): at head dims to 64 its tile is 192, and from 97 to 128 only the query tile changes.
        Fa3OneWg = "fa3-one-wg",
        /// FlashAttention 3 on sm_90 with 8-bit keys, whatever format a case stores: 96 with one warp group at head dims from 97 to
        /// 128, else 224 there (160 with gathered pages).
        Fa3Fp8 = "fa3-fp8",
    }
}

fields! {
    /// A split count picked from the shape of the call and the device.
    pub enum SplitRule {
        /// `num_splits_heuristic`: one split if the work fills 80 % of the SMs or there are at most 4 key blocks; else the fewest
        /// that reach 85 % of the best share of busy SMs, at most 128. The batch counts as a whole, as in calls without
        /// `cu_seqlens`. Left out: the count for KV beyond 50 MB of L2.
        Occupancy = "occupancy",
    }
}

/// Most splits of [`SplitRule::Occupancy`].
pub(in crate::subject::attention) const MAX_SPLITS: u32 = 128;
/// Key blocks that are never split.
const UNSPLIT_BLOCKS: u32 = 4;

impl BlockRule {
    fn family(self) -> Family {
        match self {
            BlockRule::Fa3 => Family::Bits16,
            BlockRule::Fa3OneWg => Family::Bits16OneWarpGroup,
            BlockRule::Fa3Fp8 => Family::Bits8,
        }
    }

    /// The block length of a call.
    pub fn length(self, launch: &Launch) -> u32 {
        self.family().of_call(launch).keys
    }

    /// The shortest block it ever gives.
    pub fn shortest(self) -> u32 {
        64
    }

    /// Every block length it gives at some head dims, ascending.
    pub fn lengths(self, d_qk: u32, d_v: u32) -> Vec<u32> {
        let plain = Launch {
            batch: 1,
            batch_max_q: 1,
            kv: 1,
            q_heads: 1,
            kv_heads: 1,
            d_qk,
            d_v,
            causal: false,
            window_left: None,
            window_right: None,
            softcap: false,
            page: None,
        };
        let mut lengths = Vec::new();
        for batch_max_q in [1, 2, 65] {
            for (causal, window_left) in [(false, None), (true, None), (true, Some(1))] {
                for (softcap, page) in [(false, None), (true, None), (false, Some(1))] {
                    lengths.push(self.length(&Launch { batch_max_q, causal, window_left, softcap, page, ..plain }));
                }
            }
        }
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// Head dims that it needs to show anything: the generator's own are 64 at most.
    pub fn head_dims(self) -> &'static [u32] {
        match self {
            BlockRule::Fa3 | BlockRule::Fa3OneWg => &[],
            BlockRule::Fa3Fp8 => &[128],
        }
    }
}

impl SplitRule {
    /// The number of splits on `sms` multiprocessors, at least 1, with key blocks of this length (`None`: one block).
    pub fn count(self, launch: &Launch, sms: u32, block: Option<u32>, tiles: BlockRule) -> u32 {
        let rows = tiles.family().of_call(launch).rows;
        let Flags { local, left, right, .. } = launch.flags();
        let loaded = if local {
            // An open side of a window reaches as far as the call does.
            let left = left.unwrap_or(launch.kv.saturating_sub(1));
            let right = right.unwrap_or(launch.batch_max_q.saturating_sub(1));
            launch.kv.min(left.saturating_add(right).saturating_add(1).saturating_add(rows))
        } else {
            launch.kv
        };
        let blocks = block.map_or(1, |block| loaded.div_ceil(block));
        let work = u64::from(launch.batch) * u64::from(launch.kv_heads) * launch.packed_rows().div_ceil(u64::from(rows));
        // In float, as in the source.
        if work as f32 >= 0.8 * sms as f32 || blocks <= UNSPLIT_BLOCKS {
            return 1;
        }
        let busy = |splits: u32| {
            let waves = (work * u64::from(splits)) as f32 / sms as f32;
            waves / waves.ceil()
        };
        let most = MAX_SPLITS.min(sms).min(blocks);
        let best = (1..=most).map(busy).fold(0.0, f32::max);
        (1..=most).find(|&splits| f64::from(busy(splits)) >= 0.85 * f64::from(best)).unwrap_or(1)
    }

    /// The fewest keys that are ever split, with key blocks of this length.
    pub fn threshold(self, block: u32) -> u32 {
        UNSPLIT_BLOCKS * block + 1
    }
}

impl Numerics {
    /// The numerics with which one sequence of a call is computed: every rule replaced by what it gives. One split is no split.
    pub fn resolved(&self, launch: &Launch) -> Numerics {
        let mut numerics = *self;
        if let Block::Rule(rule) = self.softmax.block {
            numerics.softmax.block = Block::Size(rule.length(launch));
        }
        if let Some(count) = self.split_count(launch) {
            numerics.grid.split = if count == 1 { Split::None } else { Split::FixedCount(count) };
        }
        numerics
    }

    /// The split count of a call under a rule; `None` without one.
    pub fn split_count(&self, launch: &Launch) -> Option<u32> {
        let Split::Rule(rule, sms) = self.grid.split else { return None };
        let (block, tiles) = match self.softmax.block {
            Block::Whole => (None, BlockRule::Fa3),
            Block::Size(n) => (Some(n), BlockRule::Fa3),
            Block::Rule(tiles) => (Some(tiles.length(launch)), tiles),
        };
        Some(rule.count(launch, sms, block, tiles))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A causal prefill of 300 rows of one head at these dims, contiguous.
    fn prefill(d_qk: u32, d_v: u32) -> Launch {
        Launch {
            batch: 1,
            batch_max_q: 300,
            kv: 300,
            q_heads: 1,
            kv_heads: 1,
            d_qk,
            d_v,
            causal: true,
            window_left: None,
            window_right: None,
            softcap: false,
            page: None,
        }
    }

    fn decode(d_qk: u32, d_v: u32) -> Launch {
        Launch { batch_max_q: 1, ..prefill(d_qk, d_v) }
    }

    fn paged(launch: Launch, page: u32) -> Launch {
        Launch { page: Some(page), ..launch }
    }

    fn windowed(launch: Launch) -> Launch {
        Launch { window_left: Some(100), ..launch }
    }

    #[test]
    fn tiles_are_those_of_the_published_table() {
        // Causal prefill, decode, decode from gathered pages, windowed prefill.
        for (d, tiles) in [
            (1, [128, 192, 160, 160]),
            (64, [128, 192, 160, 160]),
            (65, [144, 144, 128, 128]),
            (96, [144, 144, 128, 128]),
            (97, [128, 176, 128, 128]),
            (128, [128, 176, 128, 128]),
            (192, [112, 112, 96, 96]),
            (256, [80, 80, 80, 64]),
        ] {
            let calls = [prefill(d, d), decode(d, d), paged(decode(d, d), 16), windowed(prefill(d, d))];
            assert_eq!(calls.map(|launch| BlockRule::Fa3.length(&launch)), tiles, "d = {d}");
        }
        assert_eq!(BlockRule::Fa3.length(&prefill(192, 128)), 128);
        assert_eq!(BlockRule::Fa3.length(&prefill(64, 512)), 64);
        assert_eq!(BlockRule::Fa3.length(&prefill(64, 256)), 112);
        // Without a mask, and with one that says the same.
        let full = Launch { causal: false, ..prefill(128, 128) };
        assert_eq!(BlockRule::Fa3.length(&full), 176);
        assert_eq!(BlockRule::Fa3.length(&Launch { window_right: Some(0), ..full }), 128);
        assert_eq!(BlockRule::Fa3.length(&Launch { window_right: Some(299), ..full }), 176);
    }

    #[test]
    fn the_causal_flag_is_dropped_for_one_row_of_the_whole_batch() {
        let joined = Launch { batch: 2, batch_max_q: 2, ..decode(128, 128) };
        assert_eq!([decode(128, 128), joined].map(|it| BlockRule::Fa3.length(&it)), [176, 128]);
        // With pages it is kept at d = 128, and at d = 64 it is dropped there too.
        assert_eq!(BlockRule::Fa3.length(&paged(decode(128, 128), 128)), 128);
        let joined = Launch { batch_max_q: 2, ..paged(decode(64, 64), 16) };
        assert_eq!([paged(decode(64, 64), 16), joined].map(|it| BlockRule::Fa3.length(&it)), [160, 128]);
    }

    #[test]
    fn pages_of_whole_tiles_are_not_gathered_under_many_rows() {
        let full = |page| Launch { causal: false, ..paged(prefill(128, 128), page) };
        assert_eq!([full(176), full(352), full(128)].map(|it| BlockRule::Fa3.length(&it)), [176, 176, 128]);
        assert_eq!(BlockRule::Fa3.length(&Launch { batch_max_q: 128, ..full(176) }), 128);
    }

    #[test]
    fn one_warp_group_holds_64_packed_rows() {
        let rule = BlockRule::Fa3OneWg;
        for (rows, heads, length) in
            [(1, 1, 192), (64, 1, 192), (65, 1, 128), (8, 8, 192), (9, 8, 128), (32, 2, 192), (33, 2, 128)]
        {
            let launch = Launch { batch_max_q: rows, q_heads: heads, ..prefill(64, 64) };
            assert_eq!(rule.length(&launch), length, "{rows} rows of {heads} heads");
        }
        // At d = 128 only the query tile changes.
        for rows in [2, 64, 65] {
            assert_eq!(rule.length(&Launch { batch_max_q: rows, ..prefill(128, 128) }), 128);
        }
        assert_eq!(rule.length(&decode(96, 96)), 144);
    }

    #[test]
    fn eight_bit_keys_have_tiles_of_their_own() {
        let rule = BlockRule::Fa3Fp8;
        let capped = Launch { softcap: true, ..windowed(prefill(128, 128)) };
        let calls = [decode(128, 128), prefill(128, 128), paged(prefill(128, 128), 16), capped];
        assert_eq!(calls.map(|it| rule.length(&it)), [96, 224, 160, 192]);
        assert_eq!([prefill(64, 64), decode(64, 64), prefill(96, 96)].map(|it| rule.length(&it)), [160, 160, 128]);
    }

    #[test]
    fn lengths_are_all_and_only_what_a_rule_gives() {
        assert_eq!(BlockRule::Fa3.lengths(64, 64), [128, 160, 192]);
        assert_eq!(BlockRule::Fa3.lengths(128, 128), [128, 176]);
        assert_eq!(BlockRule::Fa3OneWg.lengths(8, 8), [128, 160, 192]);
        assert_eq!(BlockRule::Fa3Fp8.lengths(128, 128), [96, 160, 192, 224]);
        for &rule in BlockRule::ALL {
            for d in 1..=512 {
                for d_v in [1, 64, 65, 128, 129, 256, 257, 512] {
                    assert!(rule.lengths(d, d_v).iter().all(|&length| length >= rule.shortest()));
                }
            }
        }
    }

    /// Splits of decode at a batch, with so many key blocks of 128, on 132 SMs.
    fn splits(batch: u32, blocks: u32) -> u32 {
        let launch = Launch { batch, kv: 128 * blocks, ..decode(128, 128) };
        SplitRule::Occupancy.count(&launch, 132, Some(128), BlockRule::Fa3)
    }

    #[test]
    fn splits_follow_the_occupancy() {
        // Up to 26 entries five splits fill one wave; from 27 on four do, from 34 three; 106 fill 80 % alone.
        assert_eq!([1, 26, 27, 33, 34, 105, 106, 132].map(|batch| splits(batch, 5)), [5, 5, 4, 4, 3, 5, 1, 1]);
        assert_eq!([1, 4, 5].map(|blocks| splits(1, blocks)), [1, 1, 5]);
        // The smallest count within 85 % of the best: 18 of 20 (17 is 85 % but for rounding in float), and never more than 128.
        assert_eq!([splits(1, 20), splits(1, 400)], [18, 109]);
        // The example of heuristics.h: 48 blocks of work on 108 SMs take 2 splits, not 3.
        let launch = Launch { batch: 48, kv: 1024, ..decode(128, 128) };
        assert_eq!(SplitRule::Occupancy.count(&launch, 108, Some(128), BlockRule::Fa3), 2);
        assert_eq!(SplitRule::Occupancy.count(&launch, 1, Some(128), BlockRule::Fa3), 1);
    }

    #[test]
    fn work_is_kv_heads_times_tiles_of_packed_rows() {
        let of = |launch: Launch| SplitRule::Occupancy.count(&launch, 132, Some(128), BlockRule::Fa3);
        let base = Launch { kv: 640, ..decode(128, 128) };
        assert_eq!(of(Launch { batch: 3, q_heads: 8, kv_heads: 8, ..base }), 5);
        assert_eq!(of(Launch { batch: 4, q_heads: 8, kv_heads: 8, ..base }), 4);
        // 27 tiles of 128 packed rows.
        assert_eq!(of(Launch { batch_max_q: 26 * 16, q_heads: 8, ..base }), 5);
        assert_eq!(of(Launch { batch_max_q: 26 * 16 + 1, q_heads: 8, ..base }), 4);
        // A window loads few blocks.
        assert_eq!(of(Launch { window_left: Some(100), ..base }), 1);
    }

    #[test]
    fn resolving_leaves_no_rule() {
        let mut numerics = crate::subject::attention::reference::Reference::default().numerics;
        let plain = numerics;
        assert_eq!(numerics.resolved(&decode(64, 64)), numerics);
        numerics.set("softmax.block", "rule:fa3").unwrap();
        numerics.set("grid.split", "rule:occupancy:132").unwrap();
        let resolved = numerics.resolved(&Launch { kv: 1000, ..decode(64, 64) });
        assert_eq!((resolved.softmax.block, resolved.grid.split), (Block::Size(192), Split::FixedCount(6)));
        let short = numerics.resolved(&decode(64, 64));
        assert_eq!((short.softmax.block, short.grid.split), (Block::Size(192), plain.grid.split));
    }
}
