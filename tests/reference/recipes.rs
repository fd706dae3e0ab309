//! Where the grid cuts, rule by rule.

use lastbit::number::Dtype;
use lastbit::subject::attention::recipe::{CallFacts, Recipe, StepFacts, recipe};
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::{Anchor, ContextParallel, Mask, Shards};

/// The last of `q` rows over `kv` keys, no mask.
fn facts(q: u32, kv: u32) -> StepFacts {
    let call = CallFacts {
        batch: 1,
        batch_max_q: q,
        q_heads: 1,
        kv_heads: 1,
        d_qk: 1,
        d_v: 1,
        kv_dtype: Dtype::F32,
        page: None,
        context: None,
    };
    let mask = Mask::default();
    StepFacts { q, kv, buffer_start: 0, prefix: 0, block_q: 4, mask, softcap: false, alibi: false, sinks: false, call }
}

fn of(name: &str, facts: StepFacts) -> Recipe {
    let kernel = Reference::parse(name).unwrap();
    recipe(&kernel.numerics, &kernel.actual, &facts, facts.q - 1)
}

fn words(name: &str, facts: StepFacts) -> String {
    of(name, facts).to_string()
}

#[test]
fn blocks_lie_on_the_anchor() {
    let name = |anchor: &str| format!("ref:aligned,softmax.block=4,grid.anchor={anchor}");
    let step = StepFacts { buffer_start: 3, prefix: 6, ..facts(1, 9) };
    assert_eq!(words(&name("sequence"), step), "keys 0..9 in 3 blocks: 0..4, 4..8, 8..9");
    // Slot 4 of the buffer is position 1.
    assert_eq!(words(&name("buffer"), step), "keys 0..9 in 3 blocks: 0..1, 1..5, 5..9");
    assert_eq!(words(&name("uncached"), step), "keys 0..9 in 3 blocks: 0..2, 2..6, 6..9");
}

#[test]
fn only_cells_with_a_valid_key_are_visited() {
    let mask = Mask { window_left: Some(2), ..Mask::default() };
    let step = StepFacts { mask, ..facts(1, 11) };
    assert_eq!(words("ref:aligned,softmax.block=4", step), "keys 8..11 in 1 block: 8..11");
    assert_eq!(words("ref:aligned,softmax.block=10", step), "keys 8..11 in 2 blocks: 8..10, 10..11");
    assert_eq!(words("ref:aligned,softmax.block=10,softmax.traverse=backward", step), "keys 8..11 in 2 blocks: 10..11, 8..10");
    assert_eq!(words("ref:aligned", StepFacts { kv: 0, ..step }), "no keys");
}

#[test]
fn splits_count_their_own_blocks() {
    let step = facts(1, 10);
    assert_eq!(
        words("ref:aligned,softmax.block=4,grid.split=fixed_size(6)", step),
        "keys 0..10 in 2 splits: blocks 0..4, 4..6; block 6..10, merged left to right"
    );
    // ceil(ceil(10 / 4) / 2) = 2 blocks in a split.
    assert_eq!(
        words("ref:aligned,softmax.block=4,grid.split=fixed_count(2)", step),
        "keys 0..10 in 2 splits: blocks 0..4, 4..8; block 8..10, merged left to right"
    );
    assert_eq!(
        words("ref:aligned,softmax.block=whole,grid.split=fixed_count(3),grid.merge=tree", step),
        "keys 0..10 in 3 splits: block 0..4; block 4..8; block 8..10, merged as a tree"
    );
    let name = "ref:aligned,softmax.block=4,grid.split=cache_boundary";
    assert_eq!(words(name, step), "keys 0..10 in 3 blocks: 0..4, 4..8, 8..10");
    assert_eq!(
        words(name, StepFacts { prefix: 5, ..step }),
        "keys 0..10 in 2 splits: blocks 0..4, 4..5; blocks 5..9, 9..10, merged left to right"
    );
}

#[test]
fn recipes_ignore_what_the_row_cannot_see() {
    let short = facts(1, 20);
    assert_eq!(of("ref:aligned", short), of("ref:fixed-split", short));
    assert_eq!(of("ref:aligned", short), of("ref:ascend-two-pass", short));
    assert_eq!(of("ref:aligned", short), of("ref:aligned,softmax.block=32,softmax.traverse=backward", short));
    assert_ne!(of("ref:aligned", short), of("ref:p-bf16", short));
    let sunk = StepFacts { sinks: true, ..short };
    assert_ne!(of("ref:aligned", sunk), of("ref:fixed-split", sunk), "the sink is merged as one more split");
    // A lazy rescale can only be seen from the second block on; the tile only then.
    let lazy = "ref:aligned,softmax.rescale=threshold(8),softmax.scope=tile";
    assert_eq!(of("ref:aligned", short), of(lazy, short));
    // Where scales enter shows in 8-bit KV, and only if they are applied.
    let folded = |more: &str, dtype| {
        let facts = StepFacts { call: CallFacts { kv_dtype: dtype, ..short.call }, ..short };
        of(&format!("ref:aligned{more}"), facts) == of(&format!("ref:aligned,kv.descale=folded{more}"), facts)
    };
    assert!(folded("", Dtype::F32) && !folded("", Dtype::E4M3) && folded(",actual.kv_scales=ignored", Dtype::E5M2));
    let long = of(lazy, facts(6, 70));
    assert_eq!(long.tile.as_ref().map(|tile| (tile.member, tile.rows.len())), Some((1, 2)));
    assert!(long.to_string().ends_with("rescaled with 2 rows of its tile"));
}

#[test]
fn trees_of_recipes() {
    let tree = |name: &str, facts| of(name, facts).tree().unwrap().to_string();
    let five = facts(1, 5);
    assert_eq!(tree("ref:aligned,softmax.block=2", five), "(0 1 2 3 4)");
    assert_eq!(tree("ref:aligned,softmax.block=2,softmax.traverse=backward", five), "(4 2 3 0 1)");
    assert_eq!(tree("ref:aligned,value.order=pairwise", five), "(0 1 (2 3) 4)");
    assert_eq!(tree("ref:aligned,value.order=lanes(2)", five), "(0 2 4 (1 3))");
    assert_eq!(tree("ref:aligned,value.order=fused(2)", five), "[[[0 1] 2 3] 4]");
    assert_eq!(tree("ref:aligned,softmax.block=2,value.order=fused(8)", five), "([0 1] [2 3] 4)");
    assert_eq!(tree("ref:fixed-split,grid.split=fixed_size(1),grid.merge=tree", five), "(0 1 (2 3) 4)");
    assert_eq!(tree("ref:fixed-split,grid.split=fixed_size(1)", five), "(0 1 2 3 4)");
    let mask = Mask { window_left: Some(2), ..Mask::default() };
    assert_eq!(tree("ref:aligned,value.order=pairwise", StepFacts { mask, ..five }), "(2 3 4)");
    assert!(of("ref:aligned", facts(1, 0)).tree().is_none());
    // The same cells at other split numbers are merged in another order.
    let merged = "ref:fixed-split,grid.split=fixed_size(1),grid.merge=tree,grid.anchor=buffer,grid.context=all_gather";
    let (near, far) = (StepFacts { mask, ..five }, StepFacts { mask, buffer_start: 1, ..five });
    assert_eq!((tree(merged, near), tree(merged, far)), ("(2 3 4)".into(), "(2 (3 4))".into()));
    assert_eq!(of(merged, near).differences(&of(merged, far))[0].field, "splits");
}

fn on(ranks: u32, shards: Shards, length: u32, facts: StepFacts) -> StepFacts {
    let context = Some(ContextParallel { ranks, shards, length });
    StepFacts { call: CallFacts { context, ..facts.call }, ..facts }
}

#[test]
fn gathered_chunks_have_grids_of_their_own() {
    let step = on(3, Shards::Contiguous, 5, facts(1, 16));
    assert_eq!(words("ref:aligned,softmax.block=4", step), words("ref:aligned,softmax.block=4", facts(1, 16)));
    let name = "ref:aligned,softmax.block=4,grid.context=gather_partials";
    assert_eq!(
        words(name, step),
        "keys 0..16 in 3 splits: blocks 0..4, 4..5; blocks 5..9, 9..10; blocks 10..14, 14..16, merged left to right"
    );
    assert_eq!(
        words(&format!("{name},grid.split=fixed_size(3)"), step),
        "keys 0..16 in 6 splits: block 0..3; block 3..5; block 5..8; block 8..10; block 10..13; block 13..16, merged left to right"
    );
    // Two splits of each chunk's own keys, in whole blocks; the last chunk holds what is left.
    assert_eq!(
        words(&format!("{name},grid.split=fixed_count(2)"), on(2, Shards::Contiguous, 5, facts(1, 16))),
        "keys 0..16 in 4 splits: block 0..4; block 4..5; blocks 5..9, 9..13; block 13..16, merged left to right"
    );
    // The chunk is as long as it is by now.
    assert_eq!(
        words(&format!("{name},grid.split=fixed_count(2),softmax.block=1"), on(3, Shards::Contiguous, 8, facts(1, 12))),
        "keys 0..12 in 4 splits: blocks 0..1, 1..2, 2..3, 3..4; blocks 4..5, 5..6, 6..7, 7..8; blocks 8..9, 9..10; blocks 10..11, \
         11..12, merged left to right"
    );
}

/// Where every boundary lies on the splits' grid, places in the merge tree included.
#[test]
fn fixed_splits_on_the_grid_are_those_of_one_rank() {
    for merge in ["sequential", "tree"] {
        let name =
            format!("ref:aligned,softmax.block=4,grid.split=fixed_size(6),grid.merge={merge},grid.context=gather_partials");
        for kv in 1..80 {
            let one = of(&name, facts(1, kv));
            for (ranks, shards, length) in [(2, Shards::Contiguous, 6), (3, Shards::Zigzag, 12), (8, Shards::Zigzag, 18)] {
                assert_eq!(of(&name, on(ranks, shards, length, facts(1, kv))), one, "{kv} keys, {ranks} ranks, {length}");
            }
            if kv > 10 {
                assert_ne!(of(&name, on(3, Shards::Contiguous, 10, facts(1, kv))), one);
            }
        }
    }
}

#[test]
fn a_ring_begins_at_home_and_goes_backwards() {
    let name = "ref:aligned,grid.context=ring_lse";
    // The row stands at position 9, in chunk 2 of 4.
    let step = on(4, Shards::Contiguous, 4, StepFacts { mask: Mask::default(), ..facts(4, 13) });
    let kernel = Reference::parse(name).unwrap();
    let row = |step, row| recipe(&kernel.numerics, &kernel.actual, &step, row).to_string();
    assert_eq!(row(step, 0), "keys 0..13 in 4 splits: block 8..12; block 4..8; block 0..4; block 12..13, merged as they arrive");
    let causal = StepFacts { mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() }, ..step };
    assert_eq!(row(causal, 0), "keys 0..10 in 3 splits: block 8..10; block 4..8; block 0..4, merged as they arrive");
    // Empty partials are never merged, and one partial is not merged at all.
    assert_eq!(row(StepFacts { kv: 4, ..causal }, 0), "keys 0..1 in 1 block: 0..1");
    // A merge tree is for partials that are gathered.
    let tree = of("ref:aligned,grid.context=ring_lse,grid.merge=tree", step);
    assert_eq!(tree, of(name, step));
}

/// zigzag_ring_flash_attn.py of zhuzilin/ring-flash-attention: steps that see both chunks of a rank are one call.
#[test]
fn zigzag_ranks_hand_over_one_partial() {
    let name = "ref:aligned,softmax.block=2,grid.context=ring_lse";
    // Six chunks of two: ranks hold 0 and 5, 1 and 4, 2 and 3. The row stands at position 9, with rank 1.
    let step = on(
        3,
        Shards::Zigzag,
        2,
        StepFacts { mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() }, ..facts(1, 10) },
    );
    assert_eq!(
        words(name, step),
        "keys 0..10 in 3 splits: blocks 2..4, 8..10; block 0..2; blocks 4..6, 6..8, merged as they arrive"
    );
    assert_eq!(
        words(&format!("{name},softmax.traverse=backward"), step),
        "keys 0..10 in 3 splits: blocks 8..10, 2..4; block 0..2; blocks 6..8, 4..6, merged as they arrive"
    );
    assert_eq!(
        words("ref:aligned,softmax.block=2,grid.context=ring_state", step),
        "keys 0..10 in 5 blocks: 2..4, 8..10, 0..2, 4..6, 6..8"
    );
    // Splits stay splits.
    assert_eq!(
        words(&format!("{name},grid.split=fixed_size(2)"), step),
        "keys 0..10 in 5 splits: block 2..4; block 8..10; block 0..2; block 4..6; block 6..8, merged as they arrive"
    );
}

/// What an unsplit row and a lone partial have in common is seen, and so is what they have not.
#[test]
fn keys_in_one_chunk_are_as_on_one_rank() {
    for context in ["gather_partials", "ring_lse", "ring_state"] {
        let plain = format!("ref:aligned,softmax.block=4,grid.context={context}");
        let step = on(3, Shards::Zigzag, 20, facts(1, 20));
        assert_eq!(of(&plain, step), of(&plain, facts(1, 20)), "{context}");
        let sinks = StepFacts { sinks: true, ..step };
        let rounded = format!("{plain},grid.lse_dtype=bf16");
        let merges = context != "ring_state";
        assert_eq!(of(&plain, sinks).partials, merges, "{context}: a sink is merged");
        assert_eq!(of(&rounded, step).partials, merges, "{context}: a partial is rounded");
    }
}

#[test]
fn the_same_blocks_in_another_order_are_a_difference_of_order() {
    let name = "ref:aligned,softmax.block=4,grid.context=ring_state";
    let differences = of(name, facts(1, 12)).differences(&of(name, on(3, Shards::Contiguous, 4, facts(1, 12))));
    let fields: Vec<&str> = differences.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["visits"]);
    assert_eq!(differences[0].right, "8..12, 4..8, 0..4");
}
