//! A kernel in another process.

mod child;
mod command;
mod inbox;
mod incoming;
mod memory;
mod regions;
mod start;
mod supervisor;
mod tail;

pub use command::{Command, Limits};

use super::frame::{Body, HEADER, Header, Kind};
use super::message::answer;
use super::message::call;
use super::message::welcome::Welcome;
use crate::finding::Breakage;
use crate::number::Dtype;
use crate::subject::attention::capabilities::Capabilities;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::feature::Feature;
use crate::subject::attention::kernel::{
    AttentionKernel, Call, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use crate::subject::attention::numerics::Numerics;
use inbox::{Inbox, Request};
use regions::Regions;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use supervisor::Supervisor;

/// Calls with a longer body, or longer results, use shared memory where the child can. From 32 KiB on it was the faster way
/// (`cargo bench --bench process -- sizes`); but one call at a time can have it, so the many small ones go by the pipe.
const LARGE: u64 = 64 << 10;

/// A kernel in a child process that speaks the protocol of `docs/protocol.md`.
///
/// Many threads may call it at once: their requests share one child, which answers one after the other. Whatever goes wrong with it becomes
/// [`KernelError::Broken`] for the call that it worked on, and the next call finds a new child. When it is dropped, or this process ends in
/// whatever way, the child's whole process group ends; of its descendants only one that has left the group could stay.
pub struct ProcessKernel {
    command: Command,
    limits: Limits,
    welcome: Welcome,
    regions: Option<Arc<Regions>>,
    inbox: Arc<Inbox>,
    supervisor: Option<JoinHandle<()>>,
}

impl fmt::Debug for ProcessKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessKernel").field("command", &self.command).field("welcome", &self.welcome).finish_non_exhaustive()
    }
}

impl ProcessKernel {
    /// Starts a command, and waits for its welcome.
    ///
    /// # Errors
    /// Why there is no kernel: the program is not there, ended, said something else, declared what cannot be, or took too long; with the end
    /// of its stderr.
    pub fn start(command: Command, limits: Limits) -> Result<ProcessKernel, String> {
        memory::announce();
        let regions = Regions::new().map(Arc::new);
        let (child, welcome) = start::start(&command, &limits, regions.as_deref())?;
        let inbox = Arc::new(Inbox::new().map_err(|error| format!("no pipe: {error}"))?);
        let supervisor = Supervisor::new(command.clone(), limits, inbox.clone(), regions.clone(), child, welcome.clone());
        let thread = std::thread::Builder::new().name("kernel process".into());
        let supervisor = thread.spawn(|| supervisor.run()).map_err(|error| format!("no thread: {error}"))?;
        let regions = regions.filter(|_| welcome.shared_memory);
        Ok(ProcessKernel { command, limits, welcome, regions, inbox, supervisor: Some(supervisor) })
    }

    /// What the kernel said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    fn call(&self, call: Call<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let lse = self.welcome.lse;
        let body = call::body(call, lse);
        let head = body.head();
        let length = head.len() as u64 + body.data_length();
        let results = answer::tensor_bytes(&outputs);
        let most = results + answer::SLACK;
        let mut hasher = DefaultHasher::new();
        head.hash(&mut hasher);
        let shape = hasher.finish();

        let in_use = self.share(&head, &body, length.max(results), most);
        let shared = in_use.is_some();
        let mut frame = Vec::with_capacity(HEADER + if shared { 0 } else { length as usize });
        frame.extend_from_slice(&Header { kind: Kind::Call, shared, id: 0, length }.to_bytes());
        if !shared {
            frame.extend_from_slice(&head);
            body.write_data(&mut frame).expect("a vector takes all");
        }
        let (reply, answered) = sync_channel(1);
        self.inbox.leave(Request { frame, shared, most, shape, reply });
        let ended = |_| {
            let detail = "the thread that talks to the process has ended".to_owned();
            Err(KernelError::Broken { breakage: Breakage::NotStarted, detail })
        };
        let frame = answered.recv().unwrap_or_else(ended)?;
        let Header { kind, shared, length, .. } = frame.header;
        match &self.regions {
            Some(regions) if shared => answer::read(kind, &mut regions.answer(), length, outputs, lse),
            _ => answer::read(kind, &mut &frame.body[..], length, outputs, lse),
        }
    }

    /// Puts a large body, or that of a call with large results, into shared memory, where that can be. `longer` is the size of either, `most`
    /// that of the longest answer. Nobody else uses the memory until the guard is dropped.
    fn share(&self, head: &[u8], body: &Body<'_>, longer: u64, most: u64) -> Option<MutexGuard<'_, ()>> {
        let regions = self.regions.as_ref().filter(|regions| longer > LARGE && regions.hold(longer, most))?;
        let guard = regions.lock();
        let mut region = regions.request();
        // Where memory is short, the pipe remains.
        let written: io::Result<()> = region.write_all(head).and_then(|()| body.write_data(&mut region));
        // The last answer goes, so that a kernel which writes none is not taken to have given the same again.
        let written = written.and_then(|()| regions.answer().write_all(&u64::MAX.to_le_bytes()));
        written.is_ok().then_some(guard)
    }
}

impl Drop for ProcessKernel {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(supervisor) = self.supervisor.take() {
            let _ = supervisor.join();
        }
    }
}

impl AttentionKernel for ProcessKernel {
    fn identity(&self) -> Identity {
        self.welcome.identity.clone()
    }

    fn conventions(&self) -> Conventions {
        self.welcome.conventions
    }

    fn numerics(&self) -> Option<Numerics> {
        self.welcome.numerics.iter().find(|(storage, _)| storage.is_none()).map(|(_, numerics)| *numerics)
    }

    fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        self.welcome.numerics_for(storage)
    }

    fn capabilities(&self) -> Capabilities {
        self.welcome.capabilities.clone()
    }

    fn afresh(&self) -> Option<Result<Arc<dyn AttentionKernel>, KernelError>> {
        let started =
            ProcessKernel::start(self.command.clone(), self.limits).and_then(|fresh| match self.welcome.change(&fresh.welcome) {
                None => Ok(Arc::new(fresh) as Arc<dyn AttentionKernel>),
                Some(change) => Err(format!("a fresh process is not what the first one was: {change}")),
            });
        Some(started.map_err(|detail| KernelError::Broken { breakage: Breakage::NotStarted, detail }))
    }

    fn has_lse(&self) -> bool {
        self.welcome.lse
    }

    fn context_parallel(&self) -> bool {
        self.welcome.capabilities.features.as_ref().is_none_or(|features| features.contains(&Feature::ContextParallel))
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.call(Call::Varlen(call), outputs)
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.call(Call::Dense(call), outputs)
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.call(Call::Paged(call), outputs)
    }
}
