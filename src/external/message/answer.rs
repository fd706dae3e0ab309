//! Answers to a call, as bodies and back.

use crate::external::frame::{Body, Element, Kind, Layout};
use crate::finding::Breakage;
use crate::subject::attention::kernel::{KernelError, Outputs};
use crate::tensor::Tensor;
use std::io::{self, Read};

/// Characters kept of a reason, and of a trace.
const TEXT_LIMIT: usize = 2048;

/// The breakages that a kernel reports of itself.
const REPORTED: [Breakage; 3] = [Breakage::WroteOutside, Breakage::DeviceError, Breakage::OutOfMemory];

/// Results.
pub fn result<'a>(o: &'a Tensor, lse: Option<&'a Tensor>) -> Body<'a> {
    let body = Body::default().tensor("o", o);
    match lse {
        Some(lse) => body.tensor("lse", lse),
        None => body,
    }
}

/// What a call that went wrong is answered with.
pub fn error(error: &KernelError) -> (Kind, Body<'static>) {
    match error {
        KernelError::Unsupported(reason) => (Kind::Unsupported, Body::default().scalar("reason", reason.clone())),
        KernelError::Failed(reason) => (Kind::Failed, Body::default().scalar("reason", reason.clone())),
        KernelError::Broken { breakage, detail } if REPORTED.contains(breakage) => {
            (Kind::Failed, Body::default().scalar("reason", detail.clone()).scalar("breakage", breakage.name()))
        }
        KernelError::Broken { breakage, detail } => {
            (Kind::Failed, Body::default().scalar("reason", format!("{breakage}: {detail}")))
        }
    }
}

/// Reads the answer to a call, results into `outputs`. `lse`: it is expected.
///
/// # Errors
/// What the kernel reports; [`Breakage::Garbled`] for a body that is none; [`Breakage::Misshapen`] for results that do not have the
/// tensors that `outputs` asks for. Outputs may be written in part then.
pub fn read(kind: Kind, from: &mut impl Read, length: u64, outputs: Outputs<'_>, lse: bool) -> Result<(), KernelError> {
    let layout = Layout::read(from, length).map_err(|error| garbled(kind, &error))?;
    let reason = || layout.scalar("reason").map_or("no reason given".to_owned(), line);
    match kind {
        Kind::Result => results(&layout, from, outputs, lse),
        Kind::Unsupported => Err(KernelError::Unsupported(reason())),
        Kind::Failed => {
            let trace = layout.scalar("trace").map_or(String::new(), |trace| format!("\n{}", last(trace)));
            let detail = reason() + &trace;
            match layout.scalar("breakage") {
                None => Err(KernelError::Failed(detail)),
                Some(name) => match REPORTED.into_iter().find(|breakage| breakage.name() == name) {
                    Some(breakage) => Err(KernelError::Broken { breakage, detail }),
                    None => Err(KernelError::Failed(format!("{detail} (breakage `{}`, which is none)", line(name)))),
                },
            }
        }
        other => Err(broken(Breakage::Garbled, format!("a {} frame answers a call", other.name()))),
    }
}

fn results(layout: &Layout, from: &mut impl Read, outputs: Outputs<'_>, lse: bool) -> Result<(), KernelError> {
    let mut wanted = vec![("o", outputs.o)];
    if lse {
        wanted.push(("lse", outputs.lse));
    }
    let misshapen = |detail: String| Err(broken(Breakage::Misshapen, line(&detail)));
    for (name, tensor) in &wanted {
        let Some(stored) = layout.tensors.iter().find(|stored| stored.name == *name) else {
            let given: Vec<&str> = layout.tensors.iter().map(|stored| stored.name.as_str()).collect();
            return misshapen(format!("no tensor `{name}` in the results; they have {given:?}"));
        };
        let element = Element::Float(tensor.dtype);
        if stored.element != element || stored.dims != tensor.dims {
            let (given, asked) = (stored.element.name(), element.name());
            return misshapen(format!("{name} is {given} {:?}; the call asked for {asked} {:?}", stored.dims, tensor.dims));
        }
    }
    for stored in &layout.tensors {
        let Some((_, tensor)) = wanted.iter_mut().find(|(name, _)| *name == stored.name) else {
            return misshapen(format!("a tensor `{}` that was not asked for", stored.name));
        };
        stored.read_into(&mut tensor.bits, from).map_err(|error| garbled(Kind::Result, &error))?;
    }
    Ok(())
}

/// Bytes of an answer beyond its tensors: names, a reason, a trace.
pub const SLACK: u64 = 1 << 20;

/// Bytes of the tensors of a result.
pub fn tensor_bytes(outputs: &Outputs<'_>) -> u64 {
    (outputs.o.bits.len() * outputs.o.dtype.bytes() + outputs.lse.bits.len() * outputs.lse.dtype.bytes()) as u64
}

fn garbled(kind: Kind, error: &io::Error) -> KernelError {
    broken(Breakage::Garbled, line(&format!("the body of a {} frame: {error}", kind.name())))
}

fn broken(breakage: Breakage, detail: String) -> KernelError {
    KernelError::Broken { breakage, detail }
}

/// One line of somebody's text.
fn line(text: &str) -> String {
    text.chars().take(TEXT_LIMIT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The end of somebody's lines: a trace says last what matters.
fn last(text: &str) -> String {
    let from = text.char_indices().rev().nth(TEXT_LIMIT - 1).map_or(0, |(at, _)| at);
    text[from..].chars().filter(|c| !c.is_control() || *c == '\n').collect::<String>().trim_end().to_owned()
}

/// Whether the body of a `failed` frame says that its process cannot be trusted any more: its device's state, or its memory, is lost.
pub fn process_is_lost(body: &mut impl Read, length: u64) -> bool {
    let Ok(layout) = Layout::read(body, length) else { return false };
    let lost = [Breakage::DeviceError, Breakage::WroteOutside];
    layout.scalar("breakage").is_some_and(|name| lost.iter().any(|breakage| breakage.name() == name))
}
