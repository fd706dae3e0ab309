//! Where callers leave requests for the thread that talks to the child.

use super::incoming::Frame;
use crate::subject::attention::kernel::KernelError;
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A call on its way.
#[derive(Debug)]
pub(super) struct Request {
    /// The whole frame; its number is filled in when it is sent.
    pub frame: Vec<u8>,
    /// The body is in shared memory, and the answer's may be.
    pub shared: bool,
    /// The most bytes that the answer's body may have.
    pub most: u64,
    /// Stands for the shape: equal ones need no second compilation.
    pub shape: u64,
    pub reply: SyncSender<Result<Frame, KernelError>>,
}

#[derive(Debug)]
pub(super) struct Inbox {
    requests: Mutex<Option<Vec<Request>>>,
    closing: AtomicBool,
    /// The other thread waits, or is about to.
    asleep: AtomicBool,
    bell: (PipeReader, PipeWriter),
}

impl Inbox {
    pub fn new() -> io::Result<Inbox> {
        let requests = Mutex::new(Some(Vec::new()));
        Ok(Inbox { requests, closing: AtomicBool::new(false), asleep: AtomicBool::new(false), bell: io::pipe()? })
    }

    fn requests(&self) -> MutexGuard<'_, Option<Vec<Request>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a request. Its sender is dropped where nobody will answer any more.
    pub fn leave(&self, request: Request) {
        if let Some(requests) = &mut *self.requests() {
            requests.push(request);
        }
        self.ring();
    }

    /// Asks the other thread to end.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub fn closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = (&self.bell.1).write_all(&[0]);
        }
    }

    /// Takes all requests.
    pub fn take(&self) -> Vec<Request> {
        self.requests().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nobody will answer any more.
    pub fn abandon(&self) {
        *self.requests() = None;
    }

    /// Runs `wait` with a bell that rings when a request comes; at once where one has come.
    pub fn wait(&self, wait: impl FnOnce(Option<BorrowedFd<'_>>)) {
        self.asleep.store(true, Ordering::SeqCst);
        let come = self.closing() || self.requests().as_ref().is_some_and(|requests| !requests.is_empty());
        if !come {
            wait(Some(self.bell.0.as_fd()));
        }
        if !self.asleep.swap(false, Ordering::SeqCst) {
            // It was rung, exactly once, or is just being rung.
            let _ = (&self.bell.0).read_exact(&mut [0]);
        }
    }
}
