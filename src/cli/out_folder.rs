//! The folder of a run: the last one is rotated away, files appear whole or not at all.

use super::Failure;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Verdicts, one JSON object a line, in index order, without times.
const VERDICTS: &str = "verdicts.jsonl";

/// Lines between flushes of the verdict file.
const FLUSH_EVERY: u64 = 1024;

/// An open run folder.
pub(super) struct OutFolder {
    path: PathBuf,
    verdicts: BufWriter<File>,
    lines: u64,
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::Output(format!("{what} {}: {error}; free space or choose another folder with --out", path.display()))
}

impl OutFolder {
    /// Creates the folder; one that an earlier run left is renamed to `DIR.old`, whose predecessor is removed.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            let empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
            if !empty && !path.join(VERDICTS).is_file() {
                let path = path.display();
                return Err(Failure::Usage(format!("--out {path}: exists and is no folder of an earlier run; name another")));
            }
            let mut old = path.as_os_str().to_owned();
            old.push(".old");
            let old = PathBuf::from(old);
            if old.exists() {
                if !old.join(VERDICTS).is_file() {
                    let old = old.display();
                    return Err(Failure::Usage(format!("{old}: stands where the last run would be kept; move it away")));
                }
                fs::remove_dir_all(&old).map_err(|error| failed("cannot remove", &old, &error))?;
            }
            if empty {
                fs::remove_dir(path).map_err(|error| failed("cannot replace", path, &error))?;
            } else {
                fs::rename(path, &old).map_err(|error| failed("cannot rotate", path, &error))?;
            }
        }
        // Nothing has run yet: a folder that cannot be made is a wrong argument, not a lost result.
        let unusable = |error: std::io::Error| {
            Failure::Usage(format!("--out {}: cannot be created: {error}; name a folder that can be written", path.display()))
        };
        fs::create_dir_all(path).map_err(unusable)?;
        let verdicts = File::create(path.join(VERDICTS)).map_err(unusable)?;
        Ok(OutFolder { path: path.to_owned(), verdicts: BufWriter::new(verdicts), lines: 0 })
    }

    /// Appends a verdict line; `now` flushes it at once.
    pub(super) fn verdict(&mut self, line: &str, now: bool) -> Result<(), Failure> {
        self.lines += 1;
        let flush = now || self.lines.is_multiple_of(FLUSH_EVERY);
        let written = writeln!(self.verdicts, "{line}").and_then(|()| if flush { self.verdicts.flush() } else { Ok(()) });
        written.map_err(|error| failed("cannot write", &self.path.join(VERDICTS), &error))
    }

    /// Writes the rest of the verdict file.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.verdicts.flush().map_err(|error| failed("cannot write", &self.path.join(VERDICTS), &error))
    }

    /// Writes a file in a subfolder, whole or not at all; gives its path.
    pub(super) fn save(&self, folder: &str, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let folder = if folder.is_empty() { self.path.clone() } else { self.path.join(folder) };
        fs::create_dir_all(&folder).map_err(|error| failed("cannot create", &folder, &error))?;
        let path = folder.join(name);
        write_whole(&path, content)?;
        Ok(path)
    }
}

/// Writes a file by temporary file and rename.
pub(super) fn write_whole(path: &Path, content: &str) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    };
    write().map(|_| ()).map_err(|error| failed("cannot write", path, &error))
}
