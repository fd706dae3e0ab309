//! A kernel call as a body.

use super::attributes::text;
use crate::external::frame::Body;
use crate::subject::attention::Side;
use crate::subject::attention::kernel::{BlockTable, Call, KvScales};

/// The body of a call. `lse`: results are wanted with it.
pub fn body<'a>(call: Call<'a>, lse: bool) -> Body<'a> {
    let attributes = match call {
        Call::Varlen(call) => call.attributes,
        Call::Dense(call) => call.attributes,
        Call::Paged(call) => call.attributes,
    };
    let form = match call {
        Call::Varlen(_) => "varlen",
        Call::Dense(_) => "dense",
        Call::Paged(_) => "paged",
    };
    let mut body = Body::default().scalar("form", form).scalar("attributes", text(attributes, lse));
    body = match call {
        Call::Varlen(call) => body
            .tensor("q", call.q)
            .tensor("k", call.k)
            .tensor("v", call.v)
            .integers("cu_seqlens_q", call.cu_seqlens_q)
            .integers("cu_seqlens_k", call.cu_seqlens_k),
        Call::Dense(call) => body
            .scalar("padding", side_name(call.padding))
            .tensor("q", call.q)
            .tensor("k", call.k)
            .tensor("v", call.v)
            .integers("lengths_q", call.lengths_q)
            .integers("lengths_kv", call.lengths_kv),
        Call::Paged(call) => {
            let body = body
                .tensor("q", call.q)
                .tensor("k_cache", call.k_cache)
                .tensor("v_cache", call.v_cache)
                .integers("cu_seqlens_q", call.cu_seqlens_q)
                .integers("cache_seqlens", call.cache_seqlens)
                .integers("prefix_lens", call.prefix_lens);
            match call.block_table {
                Some(BlockTable { pages, width }) => body.table("block_table", pages, [call.cache_seqlens.len(), width]),
                None => body.integers("cache_rows", call.cache_rows),
            }
        }
    };
    if let Some(sinks) = attributes.sinks {
        body = body.floats("sinks", sinks);
    }
    if let Some(slopes) = attributes.alibi_slopes {
        body = body.floats("alibi_slopes", slopes);
    }
    match attributes.kv_scales {
        Some(KvScales { k, v }) => body.floats("k_scales", k).floats("v_scales", v),
        None => body,
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}
