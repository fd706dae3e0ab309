//! One child: its pipes, its process group, and how it ended.
//!
//! A child lives in a process group with a watchdog, a shell that waits for the end of a pipe which only this process holds. However this
//! process ends, the pipe does too, and the shell kills the group. No signal handler and no destructor is needed for that.

use super::Command;
use super::incoming::Incoming;
use super::tail::Tail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, ChildStderr, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asked of the system for each pipe: fewer turns for what is large.
const PIPE: usize = 1 << 20;
/// A process whose stdout has ended has this long to end as well before it is ended.
const ENDING: Duration = Duration::from_secs(1);

pub(super) struct Child {
    process: process::Child,
    watchdog: process::Child,
    group: Pid,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    outgoing: VecDeque<Arc<Vec<u8>>>,
    /// Bytes of the first of them that were written.
    written: usize,
    /// It was killed and waited for.
    over: bool,
    pub incoming: Incoming,
    pub tail: Tail,
    /// What stderr had said before the last answers were read.
    pub mark: u64,
}

impl Child {
    /// Starts a command.
    ///
    /// # Errors
    /// Why it could not be started, and what to do.
    pub fn spawn(command: &Command) -> Result<Child, String> {
        let (program, arguments) = command.argv.split_first().ok_or("the command is empty: name a program")?;
        if let Some(folder) = command.folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("cannot start `{program}`: its working folder {} is not there", folder.display()));
        }
        let mut watchdog = process::Command::new("sh");
        watchdog.args(["-c", "read _; kill -9 0"]).process_group(0);
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watchdog =
            watchdog.spawn().map_err(|error| format!("cannot start `sh`, which ends `{program}` when lastbit ends: {error}"))?;
        let group = Pid::from_child(&watchdog);

        let mut child = process::Command::new(program);
        child.args(arguments);
        // The Python package then keeps what is printed during imports away from the pipe.
        child.env("LASTBIT_KERNEL", "1").envs(command.environment.iter().map(|(name, value)| (name, value)));
        child.process_group(group.as_raw_nonzero().get());
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(folder) = &command.folder {
            child.current_dir(folder);
        }
        let process = child.spawn();
        let mut watchdog = watchdog;
        let mut process = process.map_err(|error| {
            end(group, &mut watchdog);
            let advice = match error.kind() {
                ErrorKind::NotFound => "; give a path to it, or a name that is on PATH",
                ErrorKind::PermissionDenied => "; is it executable?",
                _ => "",
            };
            format!("cannot start `{program}`: {error}{advice}")
        })?;
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        for pipe in [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)] {
            let Some(pipe) = pipe else { continue };
            let set = fcntl_getfl(pipe).and_then(|flags| fcntl_setfl(pipe, flags | OFlags::NONBLOCK));
            set.map_err(|error| format!("cannot start `{program}`: its pipes: {error}"))?;
            #[cfg(target_os = "linux")]
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE); // a user has a quota of these
        }
        let (outgoing, incoming, tail) = (VecDeque::new(), Incoming::default(), Tail::default());
        Ok(Child { process, watchdog, group, stdin, stdout, stderr, outgoing, written: 0, over: false, incoming, tail, mark: 0 })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Puts a frame behind those that wait to be written.
    pub fn send(&mut self, frame: Arc<Vec<u8>>) {
        self.outgoing.push_back(frame);
        self.write();
    }

    /// Waits until there is something to do, at most for `timeout`, and reads and writes what can be. `bell` ends the wait as well.
    pub fn exchange(&mut self, bell: Option<BorrowedFd<'_>>, timeout: Option<Duration>) {
        const BELL: usize = 0;
        const STDOUT: usize = 1;
        const STDERR: usize = 2;
        const STDIN: usize = 3;
        let stdin = self.stdin.as_ref().filter(|_| !self.outgoing.is_empty());
        let pipes = [
            (BELL, bell, PollFlags::IN),
            (STDOUT, self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (STDERR, self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (STDIN, stdin.map(AsFd::as_fd), PollFlags::OUT),
        ];
        let mut places = [BELL; 4];
        let mut fds = Vec::with_capacity(4);
        for (pipe, fd, flags) in pipes {
            if let Some(fd) = fd {
                places[fds.len()] = pipe;
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // An error is an interruption: the caller comes again.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut ready = [false; 4];
        fds.iter().zip(places).for_each(|(fd, pipe)| ready[pipe] = !fd.revents().is_empty());
        if ready[STDIN] {
            self.write();
        }
        if ready[STDOUT] || ready[STDERR] {
            self.read();
        }
    }

    fn write(&mut self) {
        while let (Some(frame), Some(pipe)) = (self.outgoing.front(), &mut self.stdin) {
            match pipe.write(&frame[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It reads no more. If it ends, stdout will say so; if not, its time runs out.
                Err(_) => self.stdin = None,
            }
            if self.written == frame.len() {
                self.outgoing.pop_front();
                self.written = 0;
            }
        }
    }

    /// Reads what there is. Whether stdout had something.
    ///
    /// stdout is first: what a call says on stderr is then never read before the answer to the call before it.
    fn read(&mut self) -> bool {
        self.mark = self.tail.now();
        let came = self.read_stdout();
        self.read_stderr();
        came
    }

    /// Reads once, since small frames are taken out of the buffer before more is read, or all there is of a long one.
    fn read_stdout(&mut self) -> bool {
        let mut came = false;
        while let Some(pipe) = &self.stdout {
            match self.incoming.fill(pipe) {
                Ok(0) => self.stdout = None,
                Ok(_) => {
                    came = true;
                    if !self.incoming.wants_more() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.stdout = None,
            }
        }
        came
    }

    /// Reads as much as a pipe holds: a child that writes as fast as this reads must not keep anybody from looking at the time.
    fn read_stderr(&mut self) {
        let mut bytes = [0; 4096];
        for _ in 0..PIPE / bytes.len() {
            let Some(pipe) = &mut self.stderr else { return };
            match pipe.read(&mut bytes) {
                Ok(0) => self.stderr = None,
                Ok(read) => self.tail.push(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    /// Whether its stdout has ended, so that no answer can come.
    pub fn silent(&self) -> bool {
        self.stdout.is_none()
    }

    /// Whether it has ended. Its stdout may be open all the same, in a process of its own.
    pub fn ended(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(Some(_)))
    }

    /// Reads what is left of a child that has ended. Whether something came.
    pub fn read_rest(&mut self) -> bool {
        self.read()
    }

    /// How a process ended whose stdout has, in words; one that did not end is ended.
    pub fn epitaph(&mut self) -> Epitaph {
        let deadline = Instant::now() + ENDING;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Epitaph::of(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                _ => return Epitaph { signal: false, text: "it closed its stdout, and did not end".into() },
            }
        }
    }

    /// Ends the whole group and reads what it said last.
    pub fn kill(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        end(self.group, &mut self.watchdog);
        let _ = self.process.wait();
        let deadline = Instant::now() + Duration::from_millis(100);
        while self.stderr.is_some() && Instant::now() < deadline {
            let pipe = self.stderr.take();
            if let Some(pipe) = &pipe {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                let _ = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout));
            }
            self.stderr = pipe;
            self.read_stderr();
        }
    }

    /// Says that nothing more comes, and waits a little for it to end by itself: it may have something to put away.
    pub fn dismiss(&mut self, bye: Vec<u8>) {
        self.send(Arc::new(bye));
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline && !self.ended() {
            if self.outgoing.is_empty() {
                self.stdin = None;
            }
            self.exchange(None, Some(Duration::from_millis(2)));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills a group. Its leader, the watchdog, is waited for only then: until that it has its number, even dead, and no other group can.
fn end(group: Pid, watchdog: &mut process::Child) {
    let _ = kill_process_group(group, Signal::KILL);
    let _ = watchdog.wait();
}

/// How a process ended.
pub(super) struct Epitaph {
    /// By a signal.
    pub signal: bool,
    /// In words.
    pub text: String,
}

impl Epitaph {
    fn of(status: ExitStatus) -> Epitaph {
        match (status.signal(), status.code()) {
            (Some(signal), _) => Epitaph { signal: true, text: format!("it was ended by {}", signal_name(signal)) },
            (_, Some(code)) => Epitaph { signal: false, text: format!("it exited with code {code}") },
            _ => Epitaph { signal: false, text: "it ended".into() },
        }
    }
}

fn signal_name(number: i32) -> String {
    let known = [
        (Signal::SEGV, "SIGSEGV"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::KILL, "SIGKILL (the system does that where memory runs out)"),
        (Signal::TERM, "SIGTERM"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::INT, "SIGINT"),
        (Signal::HUP, "SIGHUP"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    let name = known.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name);
    name.map_or(format!("signal {number}"), str::to_owned)
}
