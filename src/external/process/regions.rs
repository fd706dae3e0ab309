//! Shared memory for bodies that are large.

use crate::external::message::hello::SharedMemory;
use crate::external::region::Region;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of each region. The file is sparse: only what was used takes memory.
const REQUEST: u64 = 1 << 30;
const ANSWER: u64 = 1 << 30;

/// A file without a name that a child can open.
#[derive(Debug)]
pub(super) struct Regions {
    file: File,
    in_use: Mutex<()>,
}

impl Regions {
    /// `None` where the system has no such files: bodies go over the pipe then.
    #[cfg(target_os = "linux")]
    pub fn new() -> Option<Regions> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let file = memfd_create("lastbit", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        let file = File::from(file);
        file.set_len(REQUEST + ANSWER).ok()?;
        // A child could take pages away from under this process, or fill memory with it.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).ok()?;
        Some(Regions { file, in_use: Mutex::new(()) })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn new() -> Option<Regions> {
        None
    }

    /// As hello tells of it.
    pub fn told(&self) -> SharedMemory {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        SharedMemory { path, request_bytes: REQUEST, answer_bytes: ANSWER }
    }

    /// Whether a call fits.
    pub fn hold(&self, request: u64, answer: u64) -> bool {
        request <= REQUEST && answer <= ANSWER
    }

    /// Waits until no other call uses the regions.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn request(&self) -> Region<'_> {
        Region { file: &self.file, at: 0, end: REQUEST }
    }

    pub fn answer(&self) -> Region<'_> {
        Region { file: &self.file, at: REQUEST, end: REQUEST + ANSWER }
    }
}
