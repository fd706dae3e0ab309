//! The folder of a run: the last one is rotated away, files appear whole or not at all.

use super::Failure;
use std::fs::{self, File, Metadata};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Verdicts, one JSON object a line, in index order, without times.
const VERDICTS: &str = "verdicts.jsonl";

/// Bytes of verdict lines that wait to be written.
const FLUSH_AT: usize = 1 << 16;

/// How long a verdict line waits at most, so that a killed run loses no more than the last second.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// An open run folder.
pub(super) struct OutFolder {
    path: PathBuf,
    verdicts: File,
    /// Whole lines that are not yet in the file.
    waiting: String,
    /// Length of the file: whole lines only.
    written: u64,
    flushed: Instant,
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

impl OutFolder {
    /// Creates the folder; one that an earlier run left is renamed to `DIR.old`, whose predecessor is removed.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        // Without a slash or a dot at the end, which no rename takes.
        let path: &Path = &path.components().collect::<PathBuf>();
        let empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if path.exists() && !empty {
            if !path.join(VERDICTS).is_file() {
                let path = path.display();
                return Err(Failure::Usage(format!("--out {path}: exists and is no folder of an earlier run; name another")));
            }
            let old = old(path)?;
            if old.exists() {
                if !old.join(VERDICTS).is_file() {
                    let old = old.display();
                    return Err(Failure::Usage(format!("{old}: stands where the last run would be kept; move it away")));
                }
                fs::remove_dir_all(&old).map_err(|error| failed("cannot remove", &old, &error))?;
            }
            fs::rename(path, &old).map_err(|error| failed("cannot rotate", path, &error))?;
        }
        // Nothing has run yet: a folder that cannot be made is a wrong argument, not a lost result.
        let unusable = |error: std::io::Error| {
            Failure::Usage(format!("--out {}: cannot be created: {error}; name a folder that can be written", path.display()))
        };
        fs::create_dir_all(path).map_err(unusable)?;
        let verdicts = File::create(path.join(VERDICTS)).map_err(unusable)?;
        Ok(OutFolder { path: path.to_owned(), verdicts, waiting: String::new(), written: 0, flushed: Instant::now() })
    }

    /// Appends a verdict line; `now` writes it at once.
    pub(super) fn verdict(&mut self, line: &str, now: bool) -> Result<(), Failure> {
        self.waiting.push_str(line);
        self.waiting.push('\n');
        if now || self.waiting.len() >= FLUSH_AT || self.flushed.elapsed() >= FLUSH_EVERY { self.flush() } else { Ok(()) }
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
        self.flushed = Instant::now();
        match error {
            None => Ok(()),
            Some(error) => {
                // The error that is reported is the first one.
                let _ = self.verdicts.set_len(self.written);
                Err(failed("cannot write", &self.path.join(VERDICTS), &error))
            }
        }
    }

    /// Writes the rest of the verdict file.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.follow()
    }

    /// Writes a file in a subfolder, whole or not at all; gives its path.
    pub(super) fn save(&mut self, folder: &str, name: &str, content: &str) -> Result<PathBuf, Failure> {
        self.follow()?;
        let place = self.path.clone();
        self.place(folder, name, content).or_else(|error| {
            // The folder may have been moved in between: then that is the reason, and there may be another place.
            self.follow()?;
            if self.path == place { Err(error) } else { self.place(folder, name, content) }
        })
    }

    fn place(&self, folder: &str, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let folder = if folder.is_empty() { self.path.clone() } else { self.path.join(folder) };
        fs::create_dir_all(&folder).map_err(|error| failed("cannot create", &folder, &error))?;
        let path = folder.join(name);
        write_whole(&path, content)?;
        Ok(path)
    }

    /// Where the run's folder is now.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Finds the folder again: a later run with the same `--out` renames it, and the results of the two must not mix.
    fn follow(&mut self) -> Result<(), Failure> {
        let own = |path: &Path| match (self.verdicts.metadata(), fs::metadata(path.join(VERDICTS))) {
            (Ok(opened), Ok(there)) => same(&opened, &there),
            _ => false,
        };
        if own(&self.path) {
            return Ok(());
        }
        if let Some(old) = old(&self.path).ok().filter(|old| own(old)) {
            self.path = old;
            return Ok(());
        }
        let path = self.path.display();
        Err(Failure::Output(format!("{path}: was moved or removed during the run; give each run a folder of its own with --out")))
    }
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

/// Writes a file by temporary file and rename. What stands there already and is no plain file, a pipe, a device or a link, is
/// written to instead of replaced.
pub(super) fn write_whole(path: &Path, content: &str) -> Result<(), Failure> {
    let there = fs::symlink_metadata(path);
    let in_place = there.is_ok_and(|it| !it.is_file() && !it.is_dir());
    let write = || {
        if in_place {
            return fs::write(path, content);
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut new = tempfile::Builder::new();
        // As any other new file; the default is for secrets.
        #[cfg(unix)]
        let new = new.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = new.tempfile_in(folder)?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map(|_| ()).map_err(|error| error.error)
    };
    write().map_err(|error| failed("cannot write", path, &error))
}
