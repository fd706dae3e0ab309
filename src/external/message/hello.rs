//! lastbit's first message.

use crate::external::frame::{Body, Layout, VERSION};
use serde_json::{Value, json};

/// A file that both sides may map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Where the kernel opens it.
    pub path: String,
    /// Bytes of the request region, which begins the file.
    pub request_bytes: u64,
    /// Bytes of the answer region, which follows.
    pub answer_bytes: u64,
}

/// What lastbit speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions of the protocol.
    pub versions: Vec<u16>,
    /// Shared memory, where there is some.
    pub shared_memory: Option<SharedMemory>,
}

impl Hello {
    /// As this version says it.
    pub fn new(shared_memory: Option<SharedMemory>) -> Self {
        Hello { versions: vec![VERSION], shared_memory }
    }

    /// As a body.
    pub fn body(&self) -> Body<'static> {
        let versions: Vec<String> = self.versions.iter().map(u16::to_string).collect();
        let body = Body::default().scalar("versions", versions.join(","));
        let Some(SharedMemory { path, request_bytes, answer_bytes }) = &self.shared_memory else { return body };
        let shared = json!({"path": path, "request_bytes": request_bytes, "answer_bytes": answer_bytes});
        body.scalar("shared_memory", shared.to_string())
    }

    /// Reads a body.
    ///
    /// # Errors
    /// What is missing or malformed.
    pub fn parse(layout: &Layout) -> Result<Hello, String> {
        let versions = layout.scalar("versions").ok_or("hello: no `versions`")?;
        let versions = versions.split(',').map(|it| it.trim().parse().map_err(|_| format!("hello: version `{it}`")));
        let versions = versions.collect::<Result<_, _>>()?;
        let shared_memory = layout.scalar("shared_memory").map(shared_memory).transpose()?;
        Ok(Hello { versions, shared_memory })
    }
}

fn shared_memory(text: &str) -> Result<SharedMemory, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("hello: shared_memory: {error}"))?;
    let bytes = |name: &str| value[name].as_u64().ok_or_else(|| format!("hello: shared_memory.{name} is no number"));
    let path = value["path"].as_str().ok_or("hello: shared_memory.path is no text")?.to_owned();
    Ok(SharedMemory { path, request_bytes: bytes("request_bytes")?, answer_bytes: bytes("answer_bytes")? })
}
