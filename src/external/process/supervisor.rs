//! The thread that talks to the child: sends requests, hands answers out, and finds out what broke.
//!
//! Requests are sent as they come and answered in order, so the oldest without an answer, the head, is the one that the child works on. When
//! the child breaks, the head is to blame. The others are sent again to the next child, and their callers notice nothing.

use super::child::Child;
use super::inbox::{Inbox, Request};
use super::incoming::Frame;
use super::memory::Watch;
use super::regions::Regions;
use super::start::{SAMPLE, start};
use super::{Command, Limits};
use crate::external::frame::{Header, Kind};
use crate::external::message::answer;
use crate::external::message::welcome::Welcome;
use crate::finding::Breakage;
use crate::subject::attention::kernel::KernelError;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Starts in a row that may fail.
const STARTS: u32 = 3;
/// Waited after the first that fails, four times as long after each further one.
const BACK_OFF: Duration = Duration::from_millis(250);
/// Shapes remembered; then all are forgotten, which costs a longer deadline and nothing else.
const SHAPES: usize = 1 << 16;

struct Pending {
    id: u64,
    frame: Arc<Vec<u8>>,
    shared: bool,
    most: u64,
    shape: u64,
    reply: SyncSender<Result<Frame, KernelError>>,
}

pub(super) struct Supervisor {
    command: Command,
    limits: Limits,
    inbox: Arc<Inbox>,
    regions: Option<Arc<Regions>>,
    /// What the first child said of itself.
    welcome: Welcome,
    child: Option<Child>,
    watch: Watch,
    sampled: Instant,
    /// Shapes that this child has seen.
    shapes: HashSet<u64>,
    /// Not answered yet, the oldest first.
    pending: VecDeque<Pending>,
    last_id: u64,
    /// When the head became it, and what stderr had said by then.
    since: (Instant, u64),
    /// The child broke while it had nothing to do: the next call learns of it.
    debt: Option<KernelError>,
    /// Why there will be no child any more.
    given_up: Option<String>,
}

impl Supervisor {
    pub fn new(
        command: Command,
        limits: Limits,
        inbox: Arc<Inbox>,
        regions: Option<Arc<Regions>>,
        child: Child,
        welcome: Welcome,
    ) -> Self {
        let now = Instant::now();
        Supervisor {
            command,
            limits,
            inbox,
            regions,
            welcome,
            since: (now, child.tail.now()),
            child: Some(child),
            watch: Watch::default(),
            sampled: now,
            shapes: HashSet::new(),
            pending: VecDeque::new(),
            last_id: 0,
            debt: None,
            given_up: None,
        }
    }

    /// Until the inbox closes.
    pub fn run(mut self) {
        loop {
            for request in self.inbox.take() {
                self.accept(request);
            }
            if self.inbox.closing() && self.pending.is_empty() {
                if let Some(child) = &mut self.child {
                    child.dismiss(Header { kind: Kind::Bye, shared: false, id: self.last_id + 1, length: 0 }.to_bytes().to_vec());
                }
                return;
            }
            if self.child.is_none() && !self.pending.is_empty() {
                self.restart();
                continue;
            }
            self.wait();
            self.receive();
            self.look_after();
        }
    }

    fn accept(&mut self, request: Request) {
        if let Some(error) = self.debt.take() {
            let _ = request.reply.send(Err(error));
            return;
        }
        if let Some(reason) = &self.given_up {
            let _ = request.reply.send(Err(not_started(reason)));
            return;
        }
        let Request { mut frame, shared, most, shape, reply } = request;
        self.last_id += 1;
        frame[8..16].copy_from_slice(&self.last_id.to_le_bytes());
        let frame = Arc::new(frame);
        if let Some(child) = &mut self.child {
            if self.pending.is_empty() {
                self.since = (Instant::now(), child.tail.now());
            }
            child.send(frame.clone());
        }
        self.pending.push_back(Pending { id: self.last_id, frame, shared, most, shape, reply });
    }

    fn wait(&mut self) {
        let working = !self.pending.is_empty();
        let timeout = working.then(|| SAMPLE.min(self.deadline().saturating_duration_since(Instant::now())));
        self.inbox.wait(|bell| match &mut self.child {
            Some(child) => child.exchange(bell, timeout),
            None => {
                if let Some(bell) = bell {
                    let _ = poll(&mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)], None);
                }
            }
        });
    }

    /// When the head's time is over.
    fn deadline(&self) -> Instant {
        let first = self.pending.front().is_some_and(|head| !self.shapes.contains(&head.shape));
        self.since.0 + self.limits.call + if first { self.limits.compile } else { Duration::ZERO }
    }

    /// Hands out the answers that have come.
    fn receive(&mut self) {
        while let Some(child) = &mut self.child {
            let pending = &self.pending;
            let next = child.incoming.next(|header| admit(header, pending));
            match next {
                Ok(Some(frame)) => self.answer(frame),
                Ok(None) => return,
                Err(noise) => {
                    self.broke(Breakage::Garbled, noise);
                }
            }
        }
    }

    fn answer(&mut self, frame: Frame) {
        let Some(head) = self.pending.pop_front() else { return };
        if self.shapes.len() >= SHAPES {
            self.shapes.clear();
        }
        self.shapes.insert(head.shape);
        let Header { kind, shared, length, .. } = frame.header;
        // The regions are the head's until it has its answer.
        let lost = kind == Kind::Failed
            && match &self.regions {
                Some(regions) if shared => answer::process_is_lost(&mut regions.answer(), length),
                _ => answer::process_is_lost(&mut &frame.body[..], length),
            };
        let _ = head.reply.send(Ok(frame));
        if lost {
            self.child = None;
        } else if let Some(child) = &self.child {
            // The next call may have begun to speak already; a little of what this one said is better than to lose that.
            self.since = (Instant::now(), child.mark);
        }
    }

    /// Looks whether the child lives, is in time, and within its memory.
    fn look_after(&mut self) {
        let Some(child) = &mut self.child else { return };
        let now = Instant::now();
        let sample = now.duration_since(self.sampled) >= SAMPLE;
        if sample {
            self.sampled = now;
        }
        if child.silent() || (sample && child.ended()) {
            // Answers that came before the end count.
            if child.read_rest() {
                return;
            }
            let part = child.incoming.part();
            let epitaph = child.epitaph();
            return match part {
                0 => self.broke(Breakage::Crashed, epitaph.text),
                _ if epitaph.signal => self.broke(Breakage::Crashed, format!("{} after {part} bytes of an answer", epitaph.text)),
                _ => self.broke(Breakage::Garbled, format!("{part} bytes of an answer, then no more: {}", epitaph.text)),
            };
        }
        if self.pending.is_empty() {
            return;
        }
        let (part, id) = (child.incoming.part(), child.id());
        if now >= self.deadline() {
            // Nothing here may depend on which calls came before: a verdict is the same whoever else calls.
            let Limits { call, compile, .. } = self.limits;
            let more =
                if compile.is_zero() { String::new() } else { format!(", and {compile:?} more for the first of its shape") };
            let part = if part > 0 { ", but the beginning of one" } else { "" };
            return self.broke(Breakage::TimedOut, format!("no answer within {call:?}{more}{part}; it was ended"));
        }
        if sample {
            let resident = self.watch.resident(id);
            if resident > self.limits.memory {
                let limit = self.limits.memory >> 20;
                self.broke(Breakage::OutOfMemory, format!("it held more than {limit} MiB (the limit `memory`); it was ended"));
            }
        }
    }

    /// Ends the child, and lays it at the head's door.
    fn broke(&mut self, breakage: Breakage, detail: String) {
        let Some(mut child) = self.child.take() else { return };
        child.kill();
        let detail = detail + &child.tail.since(self.since.1);
        match self.pending.pop_front() {
            Some(head) => {
                let _ = head.reply.send(Err(KernelError::Broken { breakage, detail }));
            }
            None => {
                let detail = format!("after the answer to the call before: {detail}");
                self.debt = Some(KernelError::Broken { breakage, detail });
            }
        }
    }

    /// Starts the next child, and sends it what is not answered.
    fn restart(&mut self) {
        self.shapes.clear();
        self.watch = Watch::default();
        let mut failed = 0;
        let reason = loop {
            match start(&self.command, &self.limits, self.regions.as_deref()) {
                Ok((child, welcome)) => match self.welcome.change(&welcome) {
                    None => {
                        self.child = Some(child);
                        break None;
                    }
                    Some(change) => break Some(format!("it was started again, and is not what it was: {change}")),
                },
                Err(reason) => {
                    failed += 1;
                    if failed == STARTS {
                        break Some(format!("{STARTS} starts in a row failed; the last: {reason}"));
                    }
                    std::thread::sleep(BACK_OFF * 4u32.pow(failed - 1));
                }
            }
        };
        if let Some(reason) = reason {
            for pending in self.pending.drain(..) {
                let _ = pending.reply.send(Err(not_started(&reason)));
            }
            self.given_up = Some(reason);
        }
        let Some(child) = &mut self.child else { return };
        self.since = (Instant::now(), child.tail.now());
        for pending in &self.pending {
            child.send(pending.frame.clone());
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

fn not_started(reason: &str) -> KernelError {
    KernelError::Broken { breakage: Breakage::NotStarted, detail: reason.to_owned() }
}

/// Whether a frame may be the head's answer.
fn admit(header: &Header, pending: &VecDeque<Pending>) -> Result<(), String> {
    let Header { kind, shared, id, length } = *header;
    let kind = match kind {
        Kind::Result | Kind::Unsupported | Kind::Failed => kind.name(),
        other => return Err(format!("a {} frame where an answer should be", other.name())),
    };
    let Some(head) = pending.front() else { return Err(format!("a {kind} frame that nothing asked for")) };
    if id != head.id {
        // No numbers: those depend on who else calls.
        let whose = if id < head.id {
            "a call that was answered before"
        } else if pending.iter().any(|other| other.id == id) {
            "a call that waits behind this one"
        } else {
            "a call that was never made"
        };
        return Err(format!("a {kind} frame for {whose}"));
    }
    if shared && !head.shared {
        return Err(format!("a {kind} frame in shared memory; the call did not use it"));
    }
    if length > head.most {
        return Err(format!("a {kind} frame that announces {length} bytes; the call's outputs need at most {}", head.most));
    }
    Ok(())
}
