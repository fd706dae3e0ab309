//! Frames and bodies: what any safetensors reader makes of them, and what hostile ones do.

use lastbit::external::frame::{Body, Element, HEADER, Header, Kind, Layout, frame};
use lastbit::external::message::received::{Kept, Received};
use lastbit::number::Dtype;
use lastbit::source::{Source, Stream};
use lastbit::tensor::Tensor;
use safetensors::{Dtype as Stored, SafeTensors, serialize};
use std::collections::HashMap;

pub const TESTS: &[(&str, fn())] = &[
    ("any_reader_reads_a_body", any_reader_reads_a_body),
    ("bodies_of_any_writer_are_read", bodies_of_any_writer_are_read),
    ("headers_come_back", headers_come_back),
    ("bodies_that_are_none_are_refused", bodies_that_are_none_are_refused),
    ("hostile_bytes_are_refused_without_a_panic", hostile_bytes_are_refused_without_a_panic),
];

fn tensor(dtype: Dtype, dims: &[usize]) -> Tensor {
    let mut tensor = Tensor::filled(dtype, dims, 0);
    let mask = u32::MAX >> (32 - dtype.bits());
    tensor.bits.iter_mut().enumerate().for_each(|(n, bits)| *bits = (n as u32 + 1).wrapping_mul(0x9e37_79b9) & mask);
    tensor
}

fn any_reader_reads_a_body() {
    let tensors = Dtype::ALL.map(|dtype| tensor(dtype, &[3, 5, 7]));
    let names = ["f32", "f16", "bf16", "e4m3", "e5m2"];
    let integers = [1, 2, 3, 40_000];
    let mut body = Body::default().scalar("form", "a \"quoted\" text\n").integers("integers", &integers);
    for (name, tensor) in names.iter().zip(&tensors).rev() {
        body = body.tensor(name, tensor);
    }
    body = body.table("table", &integers, [2, 2]).floats("floats", &[0.5, -1.0]).integers("none", &[]);
    let bytes = frame(Kind::Call, 7, &body);
    let blob = &bytes[HEADER..];
    let (read, metadata) = SafeTensors::read_metadata(blob).expect("a safetensors blob");
    assert_eq!(read % 8, 0, "tensors are aligned");
    assert_eq!(metadata.metadata().as_ref().expect("scalars")["form"], "a \"quoted\" text\n");
    let blob = SafeTensors::deserialize(blob).expect("a safetensors blob");
    let stored = [Stored::F32, Stored::F16, Stored::BF16, Stored::F8_E4M3, Stored::F8_E5M2];
    for ((name, tensor), stored) in names.iter().zip(&tensors).zip(stored) {
        let view = blob.tensor(name).expect("a tensor");
        assert_eq!((view.dtype(), view.shape()), (stored, &tensor.dims[..]));
        let width = tensor.dtype.bytes();
        let bytes: Vec<u8> = tensor.bits.iter().flat_map(|bits| bits.to_le_bytes()[..width].to_vec()).collect();
        assert_eq!(view.data(), bytes);
        assert_eq!(view.data().as_ptr() as usize % width, blob.tensor("f32").expect("f32").data().as_ptr() as usize % width);
    }
    let table = blob.tensor("table").expect("a table");
    assert_eq!((table.dtype(), table.shape()), (Stored::I32, &[2, 2][..]));
    assert_eq!(blob.tensor("floats").expect("floats").data(), [0.5f32.to_le_bytes(), (-1f32).to_le_bytes()].concat());
    assert_eq!(blob.tensor("none").expect("none").shape(), [0]);
}

fn bodies_of_any_writer_are_read() {
    let all = Dtype::ALL.map(|dtype| tensor(dtype, &[2, 3]));
    let stored = [Stored::F32, Stored::F16, Stored::BF16, Stored::F8_E4M3, Stored::F8_E5M2];
    let bytes: Vec<Vec<u8>> = all
        .iter()
        .map(|tensor| tensor.bits.iter().flat_map(|bits| bits.to_le_bytes()[..tensor.dtype.bytes()].to_vec()).collect())
        .collect();
    let views = bytes.iter().zip(&all).zip(stored).map(|((bytes, tensor), stored)| {
        let view = safetensors::tensor::TensorView::new(stored, tensor.dims.clone(), bytes).expect("a view");
        (tensor.dtype.name(), view)
    });
    let blob = serialize(views, Some(HashMap::from([("reason".to_owned(), "none".to_owned())]))).expect("a blob");
    let mut from = &blob[..];
    let layout = Layout::read(&mut from, blob.len() as u64).expect("a body");
    assert_eq!(layout.scalar("reason"), Some("none"));
    for stored in &layout.tensors {
        let tensor = all.iter().find(|tensor| tensor.dtype.name() == stored.name).expect("a tensor that was written");
        assert_eq!((stored.element, &stored.dims), (Element::Float(tensor.dtype), &tensor.dims));
        let mut bits = vec![9; 4];
        stored.read(&mut bits, &mut from).expect("bytes");
        assert_eq!(bits, tensor.bits);
    }
    assert!(from.is_empty());
}

fn headers_come_back() {
    for kind in [Kind::Hello, Kind::Welcome, Kind::Call, Kind::Result, Kind::Unsupported, Kind::Failed, Kind::Bye] {
        for shared in [false, true] {
            let header = Header { kind, shared, id: u64::MAX - 3, length: 4 << 30 };
            assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }
    }
    let header = Header { kind: Kind::Call, shared: true, id: 2, length: 5 }.to_bytes();
    assert_eq!(header, *b"LBT1\x01\x00\x03\x80\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0");
}

fn read(json: &str, data: usize) -> Result<Layout, String> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(json.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    Layout::read(&mut &bytes[..], bytes.len() as u64).map_err(|error| error.to_string())
}

fn bodies_that_are_none_are_refused() {
    let cases = [
        ("nothing", 0, "no JSON"),
        ("[]", 0, "no JSON object"),
        (r#"{"__metadata__":{"a":1}}"#, 0, "`__metadata__.a` is no text"),
        (r#"{"__metadata__":"a"}"#, 0, "`__metadata__` is no JSON object"),
        (r#"{"q":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#, 8, "dtype `F64`"),
        (r#"{"q":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}"#, 8, "bytes 0 to 8 for 1 elements of F32"),
        (r#"{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 4, "take 8 bytes; the body has 4"),
        (r#"{"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 9, "take 8 bytes; the body has 9"),
        (r#"{"q":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8, "bytes 8 to 0"),
        (r#"{"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8, "begins at byte 4; the one before it ends at 0"),
        (r#"{"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}}"#, 8, "`-1` in shape"),
        (r#"{"q":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}"#, 0, "too many elements"),
        (r#"{"q":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}"#, 0, "too many elements"),
        (r#"{"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}"#, 4, "not two numbers"),
        (r#"{"q":3}"#, 0, "no dtype"),
        (
            r#"{"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"k":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            4,
            "the one before it ends at 4",
        ),
    ];
    for (json, data, words) in cases {
        let reason = read(json, data).expect_err(json);
        assert!(reason.contains(words), "{json}: {reason}");
    }
    let deep = "[".repeat(100_000);
    assert!(read(&deep, 0).expect_err("a hundred thousand brackets").contains("no JSON"));
    let mut bytes = u64::MAX.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[b' '; 64]);
    let reason = Layout::read(&mut &bytes[..], 4 << 30).expect_err("a header of 2^64 bytes").to_string();
    assert!(reason.contains("announces a JSON header"), "{reason}");
}

fn hostile_bytes_are_refused_without_a_panic() {
    let q = tensor(Dtype::BF16, &[3, 1, 8]);
    let attributes = r#"{"q_heads":1,"kv_heads":1,"d_qk":8,"d_v":8,"softmax_scale":0.1,"block_q":64,"out_dtype":"bf16"}"#;
    let body = Body::default().scalar("form", "varlen").scalar("attributes", attributes);
    let body =
        body.tensor("q", &q).tensor("k", &q).tensor("v", &q).integers("cu_seqlens_q", &[0, 3]).integers("cu_seqlens_k", &[0, 3]);
    let good = frame(Kind::Call, 1, &body);
    let mut stream = Stream::new(11, 0);
    let mut read = [0; 2];
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..=stream.below(4) {
            let at = stream.below(bytes.len() as u64) as usize;
            match stream.below(3) {
                0 => bytes[at] = stream.below(256) as u8,
                1 => bytes[at] = *b"0123456789[]{}\",:-e".get(stream.below(19) as usize).expect("a byte"),
                _ => bytes.truncate(at.max(HEADER)),
            }
        }
        let _ = Header::parse(bytes.first_chunk().expect("a header"));
        let body = &bytes[HEADER..];
        let call = Received::read(&mut &body[..], body.len() as u64, &mut Kept::default());
        if let Ok(call) = &call {
            let _ = (call.output(), call.make(|_| ()));
        }
        read[usize::from(call.is_ok())] += 1;
    }
    assert!(read.iter().all(|&count| count > 100), "refused and read: {read:?}");
}
