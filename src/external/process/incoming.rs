//! Frames out of what a child writes, as it comes.

use crate::external::frame::{HEADER, Header, shown};
use rustix::buffer::spare_capacity;
use rustix::fd::AsFd;
use std::io;

/// Bodies up to this are gathered with their neighbours; longer ones get a buffer of their own.
const SMALL: usize = 64 << 10;
const BUFFER: usize = HEADER + 2 * SMALL;

/// A frame that came whole.
#[derive(Debug)]
pub(super) struct Frame {
    pub header: Header,
    /// Empty where it lies in shared memory.
    pub body: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Incoming {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken.
    at: usize,
    /// A long body on its way.
    long: Option<Frame>,
}

impl Incoming {
    /// Reads once. Gives the number of bytes.
    pub fn fill(&mut self, from: impl AsFd) -> io::Result<usize> {
        let to = match &mut self.long {
            Some(frame) => &mut frame.body,
            None => {
                self.buffer.drain(..self.at);
                self.at = 0;
                self.buffer.reserve(BUFFER.saturating_sub(self.buffer.len()).max(HEADER));
                &mut self.buffer
            }
        };
        Ok(rustix::io::read(from, spare_capacity(to))?)
    }

    /// The next frame that is whole. `admit` sees a header before anything is set aside for its body.
    pub fn next(&mut self, admit: impl FnOnce(&Header) -> Result<(), String>) -> Result<Option<Frame>, String> {
        if let Some(mut frame) = self.long.take() {
            let length = frame.header.length as usize;
            if frame.body.len() < length {
                self.long = Some(frame);
                return Ok(None);
            }
            self.buffer = frame.body.split_off(length);
            self.at = 0;
            return Ok(Some(frame));
        }
        let bytes = &self.buffer[self.at..];
        if !Header::may_begin(bytes) {
            return Err(format!("{} where a frame should begin (`LBT1`)", shown(bytes)));
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::parse(header)?;
        admit(&header)?;
        let length = if header.shared { 0 } else { header.length as usize };
        if rest.len() >= length {
            let frame = Frame { header, body: rest[..length].to_vec() };
            self.at += HEADER + length;
            return Ok(Some(frame));
        }
        if length > SMALL {
            let mut body = Vec::with_capacity(length);
            body.extend_from_slice(rest);
            self.at = self.buffer.len();
            self.long = Some(Frame { header, body });
        }
        Ok(None)
    }

    /// Whether a long body is on its way.
    pub fn wants_more(&self) -> bool {
        self.long.as_ref().is_some_and(|frame| (frame.body.len() as u64) < frame.header.length)
    }

    /// Bytes of a frame that is not whole.
    pub fn part(&self) -> usize {
        self.long.as_ref().map_or(self.buffer.len() - self.at, |frame| HEADER + frame.body.len())
    }
}
