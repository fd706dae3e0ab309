//! Shared memory for bodies that are large, as this side makes it.

use crate::external::message::hello::SharedMemory;
use crate::external::region::{Region, SharedRegions};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of each region. The file is sparse: only what was used takes memory.
#[cfg(target_os = "linux")]
const BYTES: u64 = 1 << 30;

/// A file without a name that a child can open.
#[derive(Debug)]
pub(super) struct Regions {
    told: SharedMemory,
    shared: SharedRegions,
    in_use: Mutex<()>,
}

impl Regions {
    /// `None` where the system has no such files: bodies go over the pipe then.
    #[cfg(target_os = "linux")]
    pub fn new() -> Option<Regions> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        use std::os::fd::AsRawFd;
        let file = memfd_create("lastbit", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        let file = std::fs::File::from(file);
        file.set_len(2 * BYTES).ok()?;
        // A child could take pages away from under this process, or fill memory with more.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).ok()?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let shared = SharedRegions::map(file, BYTES, BYTES).ok()?;
        let told = SharedMemory { path, request_bytes: BYTES, answer_bytes: BYTES };
        Some(Regions { told, shared, in_use: Mutex::new(()) })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn new() -> Option<Regions> {
        None
    }

    /// As hello tells of it.
    pub fn told(&self) -> SharedMemory {
        self.told.clone()
    }

    /// Whether a call fits.
    pub fn hold(&self, request: u64, answer: u64) -> bool {
        self.shared.hold(request, answer)
    }

    /// Waits until no other call uses the regions.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn request(&self) -> Region<'_> {
        self.shared.request()
    }

    pub fn answer(&self) -> Region<'_> {
        self.shared.answer()
    }
}
