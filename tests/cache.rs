//! The driver's KV cache: before every call the live keys lie where the call says, and every other slot is poison.

use lastbit::number::{Class, Dtype};
use lastbit::source::Stream;
use lastbit::subject::attention::draw::{Hints, Profile, draw};
use lastbit::subject::attention::drive::{NO_ROW, Observed, Poison, infer, schedule};
use lastbit::subject::attention::kernel::{Call, PagedCall};
use lastbit::subject::attention::reference::Reference;
use lastbit::subject::attention::{Cache, Case, Inputs};

fn is_poison(dtype: Dtype, bits: u32, poison: Poison) -> bool {
    match poison {
        Poison::Nan => dtype.class(bits) == Class::Nan,
        Poison::Huge => bits == dtype.max_finite_bits(),
        Poison::Zero => bits == 0,
    }
}

/// The slot of a position of a batch entry.
fn slot(call: &PagedCall<'_>, entry: usize, position: usize) -> usize {
    let slots = call.k_cache.dims[1];
    match call.block_table {
        None => call.cache_rows[entry] as usize * slots + position,
        Some(table) => table.pages[entry * table.width + position / slots] as usize * slots + position % slots,
    }
}

/// Runs a case; returns the number of slots that were freed and looked at again.
fn check(case: &Case, poison: Poison) -> usize {
    let problem = &case.problem;
    let inputs = Inputs::new(case, None);
    let mut steps = schedule(problem, &case.infer).into_iter();
    let mut live = vec![0; problem.sequences.len()];
    let (mut most, mut freed) = (0, 0);
    let recycled = matches!(case.infer.cache, Cache::Paged { recycled: true, .. });
    let mut rank = 0;
    let mut observer = |Observed { call, rows, heads }: Observed<'_>| {
        let Call::Paged(call) = call else { panic!("{call:?}") };
        if heads != problem.heads_of_rank(case.infer.head_ranks, rank).0 {
            // The next rank begins with an empty cache of its own.
            assert!(steps.next().is_none(), "a call for each step");
            rank += 1;
            steps = schedule(problem, &case.infer).into_iter();
            live.fill(0);
            most = 0;
        }
        let (own, kv_heads) = problem.heads_of_rank(case.infer.head_ranks, rank);
        assert_eq!(heads, own);
        let [k_lanes, v_lanes] = [problem.d_qk, problem.d_v].map(|d| kv_heads.start * d as usize..kv_heads.end * d as usize);
        let (k_stride, v_stride) = (k_lanes.len(), v_lanes.len());
        let step = steps.next().expect("a step for each call");
        assert!(call.cache_seqlens.len().is_multiple_of(case.infer.bucket as usize));
        for (entry, it) in step.iter().enumerate() {
            assert_eq!(call.cache_seqlens[entry], it.kv);
            live[it.sequence] = if it.rebuilt { it.kv } else { it.kv.max(live[it.sequence]) };
            for position in 0..it.kv as usize {
                let (at, from) = (slot(call, entry, position), inputs.kv_start[it.sequence] + position);
                assert_eq!(call.k_cache.bits[at * k_stride..(at + 1) * k_stride], inputs.k.row(from)[k_lanes.clone()]);
                assert_eq!(call.v_cache.bits[at * v_stride..(at + 1) * v_stride], inputs.v.row(from)[v_lanes.clone()]);
            }
        }
        // Dead query rows are poison too.
        for (n, _) in rows.iter().enumerate().filter(|&(_, &row)| row == NO_ROW) {
            assert!(call.q.row(n).iter().all(|&bits| is_poison(problem.dtype, bits, poison)));
        }
        if !recycled && k_stride > 0 {
            let dead = |bits: &[u32]| bits.iter().all(|&bits| is_poison(problem.kv_dtype(), bits, poison));
            let count = call.k_cache.bits.chunks(k_stride).filter(|bits| !dead(bits)).count();
            let count_v = call.v_cache.bits.chunks(v_stride).filter(|bits| !dead(bits)).count();
            let expected: u32 = live.iter().sum();
            // Under the finite poison a live value may look dead.
            if poison == Poison::Nan {
                assert_eq!([count, count_v], [expected as usize; 2], "slots that are not poison");
            }
            freed += usize::from(expected < most);
            most = expected.max(most);
        }
        for it in &step {
            live[it.sequence] = if it.last { 0 } else { it.kept };
        }
    };
    infer(&Reference::default(), problem, &case.infer, &inputs, poison, Some(&mut observer)).expect("it runs");
    assert!(steps.next().is_none(), "a call for each step");
    assert!(rank + 1 == case.infer.head_ranks || problem.total_q() == 0, "calls of every rank");
    freed
}

#[test]
fn live_keys_and_poison() {
    let mut freed = 0;
    for index in 0..600 {
        let case = draw(&mut Stream::new(21, index), Profile::Quick, &Hints::default());
        freed += check(&case, Poison::Nan);
        check(&case, Poison::Huge);
    }
    assert!(freed > 50, "{freed} calls came after slots were freed");
}
