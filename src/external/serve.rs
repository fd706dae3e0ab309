//! Any kernel of this crate as a kernel process: the other end of [`super::process`].

use super::frame::{Body, HEADER, Header, Kind, Layout, VERSION, frame};
use super::message::answer;
use super::message::hello::Hello;
use super::message::received::{Kept, Received, Unreadable};
use super::message::welcome::Welcome;
use super::region::{SharedRegions, fill};
use crate::number::Dtype;
use crate::subject::attention::drive::canary;
use crate::subject::attention::kernel::{AttentionKernel, Call, KernelError, Outputs};
use crate::tensor::Tensor;
use std::io::{self, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Read ahead: many small requests, or none of a large one, whose tensors are read in place.
const AHEAD: usize = 64 << 10;

/// Answers requests until the input ends or says bye.
///
/// Every answer is written out before the next request is worked on: a crash must not take finished answers with it, or it would be laid
/// at the wrong call's door.
///
/// # Errors
/// Those of input and output, and `InvalidData` for an input that is no frame. `Unsupported` when the other side speaks no version that this
/// one does; it has been answered then.
pub fn serve(kernel: &dyn AttentionKernel, input: impl Read, output: impl Write) -> io::Result<()> {
    // What ends too early is no frame: all that is read to its end is one.
    converse(kernel, input, output).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid("ends in the middle of a frame".into()),
        _ => error,
    })
}

fn converse(kernel: &dyn AttentionKernel, input: impl Read, output: impl Write) -> io::Result<()> {
    let mut server =
        Server { kernel, input: BufReader::with_capacity(AHEAD, input), output, shared: None, kept: Kept::default() };
    let Some(hello) = server.header()? else { return Ok(()) };
    server.greet(hello)?;
    while let Some(header) = server.header()? {
        match header.kind {
            Kind::Bye => return Ok(()),
            Kind::Call => server.call(header)?,
            other => return Err(invalid(format!("a {} frame where a call should be", other.name()))),
        }
    }
    Ok(())
}

struct Server<'a, R, W> {
    kernel: &'a dyn AttentionKernel,
    input: BufReader<R>,
    output: W,
    shared: Option<SharedRegions>,
    kept: Kept,
}

impl<R: Read, W: Write> Server<'_, R, W> {
    /// The next frame's header; `None` at the end of the input.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut bytes = [0; HEADER];
        let first = loop {
            match self.input.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        let mut taken = first;
        while taken < bytes.len() {
            match self.input.read(&mut bytes[taken..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // A few bytes of something else are told from a frame that was cut off.
                Ok(0) if !Header::may_begin(&bytes[..taken]) => return Err(invalid(Header::none_in(&bytes[..taken]))),
                Ok(0) => return Err(invalid(format!("ends after {taken} of the {HEADER} bytes with which a frame begins"))),
                Ok(more) => taken += more,
            }
        }
        Header::parse(&bytes).map(Some).map_err(invalid)
    }

    fn greet(&mut self, header: Header) -> io::Result<()> {
        if header.kind != Kind::Hello {
            return Err(invalid(format!("the first frame is {}, not hello", header.kind.name())));
        }
        let layout = Layout::read(&mut self.input, header.length)?;
        let hello = Hello::parse(&layout).map_err(invalid)?;
        if !hello.versions.contains(&VERSION) {
            let reason = format!("speaks version {VERSION} of the protocol, not {:?}", hello.versions);
            self.send(header.id, Kind::Failed, &Body::default().scalar("reason", reason.clone()), None)?;
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        // Where it cannot be opened (another user, another container), everything goes over the pipe.
        self.shared = hello.shared_memory.and_then(|shared| SharedRegions::open(&shared).ok());
        let welcome = Welcome::of(self.kernel, self.shared.is_some());
        self.send(header.id, Kind::Welcome, &welcome.body(), None)
    }

    fn call(&mut self, header: Header) -> io::Result<()> {
        let received = if header.shared {
            let Some(regions) = &self.shared else { return Err(invalid("a body in shared memory, and there is none".into())) };
            Received::read(&mut regions.request(), header.length, &mut self.kept)
        } else {
            Received::read(&mut self.input, header.length, &mut self.kept)
        };
        let received = match received {
            Ok(received) => received,
            Err(Unreadable::Source(error)) => return Err(error),
            Err(Unreadable::Call(reason)) => return self.refuse(header.id, &KernelError::Failed(reason)),
        };
        let (dtype, dims) = match received.output() {
            Ok(output) => output,
            Err(reason) => return self.refuse(header.id, &KernelError::Failed(reason)),
        };
        let mut o = self.filled(dtype, dims.clone());
        let mut lse = self.filled(Dtype::F32, dims[..dims.len() - 1].to_vec());
        let outputs = Outputs { o: &mut o, lse: &mut lse };
        let made = catch_unwind(AssertUnwindSafe(|| received.make(|call| run(self.kernel, call, outputs))));
        let done = match made {
            Ok(Ok(done)) => done,
            Ok(Err(reason)) => Err(KernelError::Failed(reason)),
            // The panic hook has told stderr more.
            Err(_) => Err(KernelError::Failed("panicked".into())),
        };
        match done {
            Ok(()) => {
                let lse = Some(&lse).filter(|_| received.lse() && self.kernel.has_lse());
                self.send(header.id, Kind::Result, &answer::result(&o, lse), Some(header.shared))?;
            }
            Err(error) => self.refuse(header.id, &error)?,
        }
        self.kept.keep(received.into_vectors().chain([o.bits, lse.bits]));
        Ok(())
    }

    fn filled(&mut self, dtype: Dtype, dims: Vec<usize>) -> Tensor {
        let elements = dims.iter().product::<usize>();
        let mut bits = self.kept.vector(elements);
        bits.resize(elements, 0);
        fill(&mut bits, canary(dtype));
        Tensor { dtype, dims, bits }
    }

    fn refuse(&mut self, id: u64, error: &KernelError) -> io::Result<()> {
        let (kind, body) = answer::error(error);
        self.send(id, kind, &body, None)
    }

    /// Sends a frame; `shared` says that its request came through shared memory.
    fn send(&mut self, id: u64, kind: Kind, body: &Body<'_>, shared: Option<bool>) -> io::Result<()> {
        let head = body.head();
        let length = head.len() as u64 + body.data_length();
        if let (Some(true), Some(regions)) = (shared, &self.shared)
            && regions.hold(0, length)
        {
            let mut region = regions.answer();
            region.write_all(&head)?;
            body.write_data(&mut region)?;
            self.output.write_all(&Header { kind, shared: true, id, length }.to_bytes())?;
        } else if length <= AHEAD as u64 {
            self.output.write_all(&frame(kind, id, body))?;
        } else {
            self.output.write_all(&Header { kind, shared: false, id, length }.to_bytes())?;
            self.output.write_all(&head)?;
            body.write_data(&mut self.output)?;
        }
        self.output.flush()
    }
}

fn run(kernel: &dyn AttentionKernel, call: Call<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
    match call {
        Call::Varlen(call) => kernel.varlen(call, outputs),
        Call::Dense(call) => kernel.dense(call, outputs),
        Call::Paged(call) => kernel.paged(call, outputs),
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::name::{Consent, open};

    #[test]
    fn what_is_no_frame_is_told_however_short_it_is() {
        let kernel = open("ref:aligned", Consent::default()).unwrap().implementation.kernel;
        let error = |input: &[u8]| serve(&*kernel, input, Vec::new()).unwrap_err();
        let long = "hello, who is there? ".repeat(4);
        let cut = frame(Kind::Hello, 1, &Body::default());
        for (input, reason) in [
            (&b"hello\n"[..], "`hello\\n` where a frame should begin"),
            (b"x", "`x` where a frame should begin"),
            (long.as_bytes(), "where a frame should begin"),
            (b"LBT1", "ends after 4 of the 24 bytes"),
            (&cut[..cut.len() - 1], "ends in the middle of a frame"),
        ] {
            let error = error(input);
            assert!(error.kind() == io::ErrorKind::InvalidData && error.to_string().contains(reason), "{error}");
        }
        assert!(serve(&*kernel, &b""[..], Vec::new()).is_ok());
    }
}
