//! A child from its start to its welcome.

use super::child::Child;
use super::memory::Watch;
use super::regions::Regions;
use super::{Command, Limits};
use crate::external::frame::{Header, Kind, Layout, frame};
use crate::external::message::hello::Hello;
use crate::external::message::welcome::Welcome;
use crate::input_error::tame;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest welcome.
const WELCOME: u64 = 1 << 20;
/// Characters shown of what is wrong with one: it quotes what somebody else wrote.
const REASON: usize = 1000;
/// Between two looks at a child's memory, and at whether it lives.
pub(super) const SAMPLE: Duration = Duration::from_millis(25);

/// Starts a command and greets it.
///
/// # Errors
/// Why there is no kernel, with the end of its stderr.
pub(super) fn start(command: &Command, limits: &Limits, regions: Option<&Regions>) -> Result<(Child, Welcome), String> {
    let mut child = Child::spawn(command)?;
    let hello = Hello::new(regions.map(Regions::told));
    child.send(Arc::new(frame(Kind::Hello, 0, &hello.body())));
    match greeted(&mut child, limits) {
        Ok(welcome) => Ok((child, welcome)),
        Err(reason) => {
            child.kill();
            let program = &command.argv[0];
            Err(format!("`{program}` is no kernel process: {reason}{}", child.tail.since(0)))
        }
    }
}

fn greeted(child: &mut Child, limits: &Limits) -> Result<Welcome, String> {
    let begun = Instant::now();
    let mut watch = Watch::default();
    let admit = |header: &Header| match header {
        Header { kind: Kind::Welcome | Kind::Failed, shared: false, id: 0, length } if *length <= WELCOME => Ok(()),
        Header { kind: Kind::Welcome | Kind::Failed, length, .. } if *length > WELCOME => {
            Err(format!("it announces a welcome of {length} bytes; the limit is {WELCOME}"))
        }
        Header { kind, id, .. } => Err(format!("it answers hello with a {} frame for request {id}", kind.name())),
    };
    loop {
        child.exchange(None, Some(SAMPLE));
        if let Some(frame) = child.incoming.next(admit)? {
            let read = Layout::read(&mut &frame.body[..], frame.body.len() as u64).map_err(|error| error.to_string());
            let welcome = read.and_then(|layout| match frame.header.kind {
                Kind::Welcome => Welcome::read(&layout),
                _ => Err(layout.scalar("reason").unwrap_or("it failed, and gave no reason").replace(char::is_control, " ")),
            });
            return welcome.map_err(|reason| tame(&reason, REASON));
        }
        if child.silent() || (child.ended() && !child.read_rest()) {
            return Err(format!("{} before its welcome", child.epitaph().text));
        }
        if begun.elapsed() > limits.start {
            return Err(format!("no welcome within {:?} (the limit `start`)", limits.start));
        }
        let resident = watch.resident(child.id());
        if resident > limits.memory {
            let limit = limits.memory >> 20;
            return Err(format!("it holds {} MiB before its welcome; the limit is {limit} MiB", resident >> 20));
        }
    }
}
