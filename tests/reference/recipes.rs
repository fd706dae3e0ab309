//! Where the grid cuts, rule by rule.

use lastbit::number::Dtype;
use lastbit::subject::attention::Mask;
use lastbit::subject::attention::recipe::{CallFacts, Recipe, StepFacts, recipe};
use lastbit::subject::attention::reference::Reference;

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
    let merged = "ref:fixed-split,grid.split=fixed_size(1),grid.merge=tree,grid.anchor=buffer";
    let (near, far) = (StepFacts { mask, ..five }, StepFacts { mask, buffer_start: 1, ..five });
    assert_eq!((tree(merged, near), tree(merged, far)), ("(2 3 4)".into(), "(2 (3 4))".into()));
    assert_eq!(of(merged, near).differences(&of(merged, far))[0].field, "splits");
}
