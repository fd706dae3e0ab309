//! Part of a file that two processes share, as a stream.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

/// A place in a file, and where the part ends.
#[derive(Debug)]
pub(super) struct Region<'a> {
    pub file: &'a File,
    pub at: u64,
    pub end: u64,
}

impl Region<'_> {
    fn room(&self, wanted: usize) -> usize {
        usize::try_from(self.end - self.at).map_or(wanted, |room| room.min(wanted))
    }
}

impl Read for Region<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let room = self.room(to.len());
        let read = self.file.read_at(&mut to[..room], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Write for Region<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(&from[..self.room(from.len())], self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
