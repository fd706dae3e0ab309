//! The frames of the protocol (`docs/protocol.md`): a header of 24 bytes and a safetensors body.
