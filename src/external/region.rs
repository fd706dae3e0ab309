//! Memory that two processes share: a request region and an answer region in one file, mapped.
//!
//! Mapped, not read and written: a copy through the page cache takes the system several times as long as one in memory. `vm-memory` has the
//! `unsafe` that a mapping needs; its copies are those of memory that somebody else may change at any time.

use super::message::hello::SharedMemory;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::thread;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// Bytes that are worth a thread of their own.
const PIECE: usize = 4 << 20;
/// One thread cannot use all the bandwidth of memory; a few can.
const THREADS: usize = 4;

/// Both regions.
#[derive(Debug)]
pub(super) struct SharedRegions {
    map: MmapRegion,
    request: usize,
    answer: usize,
}

impl SharedRegions {
    /// Maps a file.
    pub fn map(file: File, request_bytes: u64, answer_bytes: u64) -> io::Result<SharedRegions> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let bytes = request_bytes.checked_add(answer_bytes).ok_or_else(|| invalid("the regions are too long"))?;
        if file.metadata()?.len() < bytes {
            return Err(invalid("the file is shorter than its regions"));
        }
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| invalid("the regions are too long"));
        let (request, answer) = (size(request_bytes)?, size(answer_bytes)?);
        let map = MmapRegion::from_file(FileOffset::new(file, 0), size(bytes)?).map_err(io::Error::other)?;
        Ok(SharedRegions { map, request, answer })
    }

    /// Maps what hello told of.
    pub fn open(told: &SharedMemory) -> io::Result<SharedRegions> {
        let file = File::options().read(true).write(true).open(&told.path)?;
        SharedRegions::map(file, told.request_bytes, told.answer_bytes)
    }

    /// Whether bodies of these lengths fit.
    pub fn hold(&self, request: u64, answer: u64) -> bool {
        request <= self.request as u64 && answer <= self.answer as u64
    }

    /// The request region as a stream.
    pub fn request(&self) -> Region<'_> {
        Region { map: &self.map, left: 0..self.request }
    }

    /// The answer region as a stream.
    pub fn answer(&self) -> Region<'_> {
        Region { map: &self.map, left: self.request..self.request + self.answer }
    }
}

/// A region as a stream.
#[derive(Debug)]
pub(super) struct Region<'a> {
    map: &'a MmapRegion,
    left: Range<usize>,
}

impl Region<'_> {
    /// Takes room for as many bytes, or what there is.
    fn take(&mut self, wanted: usize) -> Range<usize> {
        let from = self.left.start;
        self.left.start += wanted.min(self.left.len());
        from..self.left.start
    }
}

/// How a copy is shared out: bytes for each thread.
fn share(bytes: usize) -> usize {
    if bytes < 2 * PIECE {
        return bytes.max(1);
    }
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(bytes / PIECE);
    bytes.div_ceil(threads)
}

impl Read for Region<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let range = self.take(to.len());
        let (map, share) = (self.map, share(range.len()));
        let copy = |n: usize, to: &mut [u8]| -> io::Result<()> {
            map.get_slice(range.start + n * share, to.len()).map_err(io::Error::other)?.copy_to(to);
            Ok(())
        };
        in_parts(to[..range.len()].chunks_mut(share), copy)?;
        Ok(range.len())
    }
}

impl Write for Region<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let range = self.take(from.len());
        let (map, share) = (self.map, share(range.len()));
        let copy = |n: usize, from: &[u8]| -> io::Result<()> {
            map.get_slice(range.start + n * share, from.len()).map_err(io::Error::other)?.copy_from(from);
            Ok(())
        };
        in_parts(from[..range.len()].chunks(share), copy)?;
        Ok(range.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets every element, as a copy is made: by several threads where one cannot use all the bandwidth.
pub(super) fn fill(bits: &mut [u32], value: u32) {
    let share = share(size_of_val(bits)).div_ceil(size_of::<u32>());
    let set = |_, part: &mut [u32]| -> io::Result<()> {
        part.fill(value);
        Ok(())
    };
    in_parts(bits.chunks_mut(share), set).expect("filling does not fail");
}

/// Runs `copy` on every part: the first here, each other in a thread of its own.
fn in_parts<T: Send>(
    mut parts: impl Iterator<Item = T>,
    copy: impl Fn(usize, T) -> io::Result<()> + Copy + Send,
) -> io::Result<()> {
    let Some(first) = parts.next() else { return Ok(()) };
    thread::scope(|scope| {
        let others: Vec<_> = parts.enumerate().map(|(n, part)| scope.spawn(move || copy(n + 1, part))).collect();
        copy(0, first)?;
        others.into_iter().try_for_each(|other| other.join().unwrap_or_else(|_| Err(io::Error::other("a copy failed"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_filled_whatever_the_share() {
        for elements in [0, 1, 5, PIECE / 2 + 1, 3 * PIECE / 4 + 3, PIECE + 1] {
            let mut bits = vec![0; elements];
            fill(&mut bits, 0xffc0_002a);
            assert!(bits.iter().all(|&it| it == 0xffc0_002a), "{elements}");
        }
    }
}
