//! The folder of a run: one run writes there at a time, files appear whole or not at all, and a run that died can go on.
//!
//! `verdicts.jsonl` only ever grows, and `checkpoint.json` says up to which byte of it everything else is accounted for. Both are on
//! the disk, in this order, before a checkpoint counts, so that it never speaks of lines that are not there. What lies past it is
//! cut off when the run goes on, and made again with the same bytes.

use super::Failure;
use super::places::folder_of;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Verdicts, one JSON object a line, in index order, without times. Locked by the run that writes it.
pub(super) const VERDICTS: &str = "verdicts.jsonl";

/// How far the run is, see [`super::checkpoint`].
pub(super) const CHECKPOINT: &str = "checkpoint.json";

/// Kept findings as they were drawn, and made small.
pub(super) const FOUND: &str = "found";
pub(super) const SHRUNK: &str = "shrunk";

/// The last thing a run writes.
pub(super) const SUMMARY: &str = "summary.json";

/// How a file is called while it is written. One that a killed run left behind is removed when the run goes on.
const UNFINISHED: (&str, &str) = (".lastbit-", ".tmp");

/// Bytes of verdict lines that wait to be written.
const FLUSH_AT: usize = 1 << 16;

/// Largest checkpoint that is read. One that a run writes has some ten thousand bytes, and its length does not follow the cases.
const CHECKPOINT_MAX: u64 = 1 << 24;

/// Least time between checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(250);

/// A checkpoint may take one part in so many of the run: a slow disk gets fewer.
const CHECKPOINT_SHARE: u32 = 50;

/// An open run folder.
pub(super) struct OutFolder {
    path: PathBuf,
    /// Open, at its end, and locked as long as the run lasts.
    verdicts: File,
    /// Whole lines that are not yet in the file.
    waiting: String,
    /// Length of the file: whole lines only.
    written: u64,
    /// When the next checkpoint is due.
    due: Instant,
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Output(format!("{what} {}: {error}; free space or choose another place", path.display()))
}

/// Where the last run is kept: `DIR.old`, beside the folder.
///
/// # Errors
/// A path without a name of its own: `.`, `..` and `/`.
fn old(path: &Path) -> Result<PathBuf, Failure> {
    let Some(name) = path.file_name() else {
        let path = path.display();
        return Err(Failure::Usage(format!("--out {path}: has no name that the last run could be kept under; name a folder")));
    };
    let mut old = name.to_owned();
    old.push(".old");
    Ok(path.with_file_name(old))
}

/// Without a slash or a dot at the end, which no rename takes.
fn trimmed(path: &Path) -> PathBuf {
    path.components().collect()
}

/// What stands where a run would go.
enum There {
    /// No run: no folder, an empty one, or one in which a run was killed before it began.
    Nothing,
    /// A run, perhaps one that still writes.
    Run,
    /// Something else.
    Foreign,
}

fn there(path: &Path) -> There {
    if !path.exists() || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) {
        return There::Nothing;
    }
    match fs::metadata(path.join(VERDICTS)) {
        Ok(verdicts) if verdicts.is_file() => {
            let unbegun = verdicts.len() == 0 && !path.join(CHECKPOINT).exists();
            if unbegun { There::Nothing } else { There::Run }
        }
        _ => There::Foreign,
    }
}

/// Locks the verdict file of a folder. Where the file system has no locks (some network ones), the run goes on without.
///
/// # Errors
/// Another run holds it.
pub(super) fn lock(verdicts: &File, path: &Path) -> Result<(), Failure> {
    match verdicts.try_lock() {
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let path = path.display();
            Err(Failure::Usage(format!(
                "{path}: another run writes there; wait for it, or give this one another folder with --out"
            )))
        }
    }
}

/// Whether a run writes into a folder.
///
/// # Errors
/// It does.
fn must_be_idle(path: &Path) -> Result<(), Failure> {
    match File::open(path.join(VERDICTS)) {
        Ok(verdicts) => lock(&verdicts, path),
        Err(_) => Ok(()),
    }
}

impl OutFolder {
    /// Creates the folder for a run that begins with the given checkpoint. A run that stands there is renamed to `DIR.old`, whose
    /// predecessor is removed.
    ///
    /// # Errors
    /// All are the command line's: nothing has run yet, so a folder that cannot be made is a wrong argument and not a lost result.
    pub(super) fn create(path: &Path, checkpoint: &str) -> Result<Self, Failure> {
        let path = trimmed(path);
        match there(&path) {
            There::Nothing => {}
            There::Foreign => return Err(foreign(&path)),
            There::Run => rotate(&path)?,
        }
        let unusable = |error: std::io::Error| {
            Failure::Usage(format!("--out {}: cannot be created: {error}; name a folder that can be written", path.display()))
        };
        fs::create_dir_all(&path).map_err(unusable)?;
        // Not truncated: it may be another run's, begun since. Then that one holds the lock, or has left something.
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path.join(VERDICTS));
        let verdicts = open.map_err(unusable)?;
        lock(&verdicts, &path)?;
        if !matches!(there(&path), There::Nothing) {
            return Err(foreign(&path));
        }
        let mut folder = OutFolder { path, verdicts, waiting: String::new(), written: 0, due: Instant::now() };
        folder.remove_unfinished();
        folder.checkpoint(|_| checkpoint.to_owned()).map_err(|failure| match failure {
            Failure::Usage(reason) | Failure::Output(reason) => Failure::Usage(format!("--out: {reason}")),
        })?;
        Ok(folder)
    }

    /// Opens the folder of an earlier run; gives the checkpoint's text with it. `None` where there is no run. Nothing is changed yet.
    ///
    /// # Errors
    /// The folder is something else, cannot be written, has no checkpoint, or another run writes there.
    pub(super) fn reopen(path: &Path) -> Result<Option<(Self, String)>, Failure> {
        let path = trimmed(path);
        match there(&path) {
            There::Nothing => return Ok(None),
            There::Foreign => return Err(foreign(&path)),
            There::Run => {}
        }
        let unusable = |name: &str, error: std::io::Error| {
            let file = path.join(name);
            Failure::Usage(format!("{}: cannot be read: {error}; --resume needs it, leave it out to begin anew", file.display()))
        };
        let open = OpenOptions::new().read(true).write(true).open(path.join(VERDICTS));
        let verdicts = open.map_err(|error| unusable(VERDICTS, error))?;
        lock(&verdicts, &path)?;
        let checkpoint = read_plain(&path.join(CHECKPOINT)).map_err(|error| unusable(CHECKPOINT, error))?;
        let folder = OutFolder { path, verdicts, waiting: String::new(), written: 0, due: Instant::now() };
        folder.must_be_there()?;
        Ok(Some((folder, checkpoint)))
    }

    /// Takes a reopened folder back to the line of case `last`, with which its first `bytes` end; to none where that is `None`: later lines,
    /// the last summary and unfinished files go. False, with nothing changed, when the verdict file does not have these lines.
    pub(super) fn take_back(&mut self, last: Option<u64>, bytes: u64) -> Result<bool, Failure> {
        let file = self.path.join(VERDICTS);
        if !self.ends(last, bytes).map_err(|error| failed("cannot read", &file, &error))? {
            return Ok(false);
        }
        let cut = self.verdicts.set_len(bytes).and_then(|()| self.verdicts.seek(SeekFrom::Start(bytes)));
        cut.map_err(|error| failed("cannot write", &file, &error))?;
        self.written = bytes;
        // It is of the part that has ended.
        let summary = self.path.join(SUMMARY);
        match fs::remove_file(&summary) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("cannot remove", &summary, &error)),
            _ => {}
        }
        self.remove_unfinished();
        Ok(true)
    }

    /// Removes what a killed run had begun to write. It is only in the way, so a failure is none.
    fn remove_unfinished(&self) {
        for folder in [self.path.clone(), self.path.join(FOUND), self.path.join(SHRUNK)] {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if name.starts_with(UNFINISHED.0) && name.ends_with(UNFINISHED.1) {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Whether the first `bytes` of the verdict file end with the line of case `last`.
    fn ends(&mut self, last: Option<u64>, bytes: u64) -> std::io::Result<bool> {
        if self.verdicts.metadata()?.len() < bytes || last.is_none() != (bytes == 0) {
            return Ok(false);
        }
        let Some(last) = last else { return Ok(true) };
        // The line may be longer than this; then only its end is looked at.
        let mut tail = vec![0; bytes.min(1 << 16) as usize];
        self.verdicts.seek(SeekFrom::Start(bytes - tail.len() as u64))?;
        self.verdicts.read_exact(&mut tail)?;
        let Some((b'\n', lines)) = tail.split_last() else { return Ok(false) };
        let begin = lines.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        let begin = begin.or((tail.len() as u64 == bytes).then_some(0));
        Ok(begin.is_none_or(|begin| lines[begin..].starts_with(format!("{{\"case\":{last},").as_bytes())))
    }

    /// Appends a verdict line; `now` writes it at once.
    pub(super) fn verdict(&mut self, line: &str, now: bool) -> Result<(), Failure> {
        self.waiting.push_str(line);
        self.waiting.push('\n');
        if now || self.waiting.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }

    /// Writes the lines that wait. What a full disk took of them in part is cut off again after the last whole line.
    fn flush(&mut self) -> Result<(), Failure> {
        let lines = std::mem::take(&mut self.waiting);
        let mut rest = lines.as_bytes();
        let error = loop {
            if rest.is_empty() {
                break None;
            }
            match self.verdicts.write(rest) {
                Ok(0) => break Some(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        let taken = &lines.as_bytes()[..lines.len() - rest.len()];
        let whole = taken.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.written += whole as u64;
        match error {
            None => Ok(()),
            Some(error) => {
                // The error that is reported is the first one.
                let _ = self.verdicts.set_len(self.written);
                Err(failed("cannot write", &self.path.join(VERDICTS), &error))
            }
        }
    }

    /// Whether it is time for a checkpoint, so that a killed run loses little.
    pub(super) fn checkpoint_is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Writes the lines that wait, and then a checkpoint: its text, given the length of the verdict file.
    pub(super) fn checkpoint(&mut self, text: impl FnOnce(u64) -> String) -> Result<(), Failure> {
        let started = Instant::now();
        self.flush()?;
        self.verdicts.sync_data().map_err(|error| failed("cannot write", &self.path.join(VERDICTS), &error))?;
        self.save("", CHECKPOINT, &text(self.written))?;
        self.due = Instant::now() + CHECKPOINT_EVERY.max(CHECKPOINT_SHARE * started.elapsed());
        Ok(())
    }

    /// Writes a file in a subfolder, whole or not at all; gives its path.
    pub(super) fn save(&self, folder: &str, name: &str, content: &str) -> Result<PathBuf, Failure> {
        self.must_be_there()?;
        // The folder may have been moved in between: then that is the reason.
        self.place(folder, name, content).or_else(|error| self.must_be_there().and(Err(error)))
    }

    fn place(&self, folder: &str, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let folder = self.path.join(folder);
        fs::create_dir_all(&folder).map_err(|error| failed("cannot create", &folder, &error))?;
        let path = folder.join(name);
        write_whole(&path, content)?;
        Ok(path)
    }

    /// The run's folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder is still this run's: results of two runs must not mix.
    fn must_be_there(&self) -> Result<(), Failure> {
        let there = fs::metadata(self.path.join(VERDICTS));
        if let (Ok(opened), Ok(there)) = (self.verdicts.metadata(), there)
            && same(&opened, &there)
        {
            return Ok(());
        }
        let path = self.path.display();
        Err(Failure::Output(format!("{path}: was moved or removed during the run; give each run a folder of its own with --out")))
    }
}

fn foreign(path: &Path) -> Failure {
    Failure::Usage(format!("--out {}: exists and is no folder of an earlier run; name another", path.display()))
}

/// Renames a run to `DIR.old`; the run that was kept there is removed.
fn rotate(path: &Path) -> Result<(), Failure> {
    let old = old(path)?;
    must_be_idle(path)?;
    match there(&old) {
        There::Foreign => {
            let old = old.display();
            return Err(Failure::Usage(format!("{old}: stands where the last run would be kept; move it away")));
        }
        There::Run => must_be_idle(&old)?,
        There::Nothing => {}
    }
    // Nothing has run yet.
    let unusable = |what: &str, path: &Path, error: &std::io::Error| {
        Failure::Usage(format!("{what} {}: {error}; name another folder with --out", path.display()))
    };
    if old.exists() {
        fs::remove_dir_all(&old).map_err(|error| unusable("cannot remove", &old, &error))?;
    }
    fs::rename(path, &old).map_err(|error| unusable("cannot rotate", path, &error))
}

/// The text of a plain file of some size: anything may stand in a folder that a run left, and a pipe would be waited for.
pub(super) fn read_plain(path: &Path) -> std::io::Result<String> {
    let wrong = |reason: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, reason);
    // Before it is opened, since that waits.
    if !fs::metadata(path)?.is_file() {
        return Err(wrong("is no plain file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(CHECKPOINT_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > CHECKPOINT_MAX {
        return Err(wrong("is larger than any checkpoint"));
    }
    String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text"))
}

/// Whether both are one file; elsewhere than on Unix that cannot be told, and is taken for granted.
fn same(a: &Metadata, b: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (a.dev(), a.ino()) == (b.dev(), b.ino())
    }
    #[cfg(not(unix))]
    {
        let _ = (a, b);
        true
    }
}

/// A new file, to be renamed when it is whole.
fn unfinished(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut new = tempfile::Builder::new();
    new.prefix(UNFINISHED.0).suffix(UNFINISHED.1);
    // As any other new file; the default is for secrets.
    #[cfg(unix)]
    let new = new.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    new.tempfile_in(folder)
}

/// Whether [`write_whole`] can write into a folder. Nothing stays there.
pub(super) fn try_folder(folder: &Path) -> std::io::Result<()> {
    unfinished(folder).map(drop)
}

/// Writes a file by temporary file and rename. What stands there already and is no plain file, a pipe, a device or a link, is
/// written to instead of replaced.
pub(super) fn write_whole(path: &Path, content: &str) -> Result<(), Failure> {
    let there = fs::symlink_metadata(path);
    let in_place = there.is_ok_and(|it| !it.is_file() && !it.is_dir());
    let write = || {
        if in_place {
            return fs::write(path, content);
        }
        let mut file = unfinished(folder_of(path))?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map(|_| ()).map_err(|error| error.error)
    };
    write().map_err(|error| failed("cannot write", path, &error))
}
