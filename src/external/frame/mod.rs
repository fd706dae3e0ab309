//! The frames of the protocol (`docs/protocol.md`): a header of 24 bytes and a safetensors body.

mod body;
mod lanes;
mod layout;

pub use body::Body;
pub use layout::{Element, Layout, Stored};

use std::io;

/// Bytes of a frame's header.
pub const HEADER: usize = 24;
/// The longest body that a header may announce.
pub const BODY_LIMIT: u64 = 4 << 30;
/// The longest JSON header of a body. Everything large is a tensor.
pub const JSON_LIMIT: u64 = 1 << 20;
/// The version of the protocol.
pub const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"LBT1";
/// In the kind: the body lies in shared memory.
const SHARED: u16 = 1 << 15;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// lastbit's first frame.
    Hello,
    /// The kernel's answer to it.
    Welcome,
    /// A kernel call.
    Call,
    /// Its results.
    Result,
    /// The kernel cannot do the call.
    Unsupported,
    /// The call, or the start, failed.
    Failed,
    /// The kernel may end.
    Bye,
}

impl Kind {
    const ALL: [Kind; 7] = [Kind::Hello, Kind::Welcome, Kind::Call, Kind::Result, Kind::Unsupported, Kind::Failed, Kind::Bye];

    /// Its name on the protocol's page.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Hello => "hello",
            Kind::Welcome => "welcome",
            Kind::Call => "call",
            Kind::Result => "result",
            Kind::Unsupported => "unsupported",
            Kind::Failed => "failed",
            Kind::Bye => "bye",
        }
    }

    fn number(self) -> u16 {
        match self {
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Call => 3,
            Kind::Result => 4,
            Kind::Unsupported => 5,
            Kind::Failed => 6,
            Kind::Bye => 7,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Its body lies in shared memory.
    pub shared: bool,
    /// The request's number.
    pub id: u64,
    /// Bytes of the body.
    pub length: u64,
}

impl Header {
    /// As it goes over the pipe.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.kind.number() | if self.shared { SHARED } else { 0 }).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// What of it is none.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, String> {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if !Header::may_begin(bytes) {
            return Err(Header::none_in(bytes));
        }
        if word(4) != VERSION {
            return Err(format!("a frame of version {}; this is version {VERSION}", word(4)));
        }
        let number = word(6) & !SHARED;
        let kind =
            Kind::ALL.into_iter().find(|kind| kind.number() == number).ok_or_else(|| format!("a frame of kind {number}"))?;
        let header = Header { kind, shared: word(6) & SHARED != 0, id: long(8), length: long(16) };
        if header.length > BODY_LIMIT {
            return Err(format!("a {} frame that announces {} bytes; the limit is {BODY_LIMIT}", kind.name(), header.length));
        }
        Ok(header)
    }

    /// What is wrong with bytes that no frame begins with.
    pub fn none_in(bytes: &[u8]) -> String {
        format!("{} where a frame should begin (`LBT1`)", shown(bytes))
    }

    /// Whether a frame may begin with these bytes, however few.
    pub fn may_begin(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).all(|(a, b)| *a == b)
    }
}

/// A whole frame. The number is filled in where the frame is sent.
pub fn frame(kind: Kind, id: u64, body: &Body<'_>) -> Vec<u8> {
    let head = body.head();
    let length = head.len() as u64 + body.data_length();
    let mut bytes = Vec::with_capacity(HEADER + length as usize);
    bytes.extend_from_slice(&Header { kind, shared: false, id, length }.to_bytes());
    bytes.extend_from_slice(&head);
    body.write_data(&mut bytes).expect("a vector takes all");
    bytes
}

/// The first line of somebody's bytes for a message: text as text, the rest escaped; at most 64 bytes.
pub fn shown(bytes: &[u8]) -> String {
    let line = bytes.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
    let cut = &line[..line.len().min(64)];
    format!("`{}`{}", cut.escape_ascii(), if cut.len() < line.len() { "..." } else { "" })
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}
