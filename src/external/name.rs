//! What a command line calls a kernel: `ref:...`, `process:...`, `lib:...`, or a kernel file.

use super::kernel_file::{KernelFile, Runs};
use super::process::{Command, Limits};
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::kernel::AttentionKernel;
use crate::subject::attention::narrowed::Narrowed;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::reference::preset::PRESETS;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How kernels are named, for messages and help.
pub const FORMS: &str = "ref:PRESET, process:COMMAND, lib:PATH, or a kernel file PATH.toml";

/// What the user has agreed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// Load C libraries into this process.
    pub trust: bool,
    /// Run a kernel that is another than the one that its file pins.
    pub accept_changed: bool,
}

/// A kernel's name, taken apart; nothing has been started or read.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelName {
    /// `ref:PRESET[,field=value...]`.
    Reference(Box<Reference>),
    /// `process:COMMAND LINE`: words as a shell splits them, without a shell.
    Process(Vec<String>),
    /// `lib:PATH`.
    Library(PathBuf),
    /// `PATH.toml`.
    File(PathBuf),
}

impl KernelName {
    /// Takes a name apart.
    ///
    /// # Errors
    /// What is wrong with it, and how kernels are named.
    pub fn parse(words: &str) -> Result<KernelName, String> {
        if words.starts_with("ref:") {
            return Ok(KernelName::Reference(Box::new(Reference::parse(words)?)));
        }
        if let Some(line) = words.strip_prefix("process:") {
            let argv = shell_words::split(line).map_err(|_| {
                "a quote in the command is not closed; write it as for a shell, e.g. process:'my kernel' --fast".to_owned()
            })?;
            return match argv.first() {
                None => Err("names no command; write process:COMMAND, e.g. 'process:python my_kernel.py'".into()),
                Some(program) if program.is_empty() => Err("the command's first word, the program, is empty".into()),
                Some(_) => Ok(KernelName::Process(argv)),
            };
        }
        if let Some(path) = words.strip_prefix("lib:") {
            return match path {
                "" => Err("names no library; write lib:PATH, e.g. lib:./libkernel.so".into()),
                path => Ok(KernelName::Library(path.into())),
            };
        }
        if words.ends_with(".toml") {
            return Ok(KernelName::File(words.into()));
        }
        let ends = |ends: &[&str]| ends.iter().any(|end| words.ends_with(end));
        Err(if ends(&[".py"]) {
            let command = shell_words::quote(words);
            format!("a kernel is {FORMS}; did you mean {}?", shell_words::quote(&format!("process:python {command}")))
        } else if ends(&[".so", ".dylib", ".dll"]) {
            format!("a kernel is {FORMS}; did you mean lib:{words}?")
        } else if PRESETS.iter().any(|preset| preset.name == words.split(',').next().unwrap_or_default()) {
            format!("a kernel is {FORMS}; did you mean ref:{words}?")
        } else {
            format!("names no kernel; a kernel is {FORMS}")
        })
    }
}

/// A kernel, ready to be called.
pub struct Opened {
    /// The kernel.
    pub implementation: Implementation,
    /// Where it is another than the one that its file pins, which [`Consent::accept_changed`] allows.
    pub changes: Vec<String>,
}

/// Makes a kernel of its name: starts the process, loads the library, reads the file. Paths are relative to the working directory.
///
/// # Errors
/// What failed, what was seen, and what to do.
pub fn open(words: &str, consent: Consent) -> Result<Opened, String> {
    let (kernel, file) = match KernelName::parse(words)? {
        KernelName::Reference(reference) => return Ok(plain(Implementation::reference(*reference))),
        KernelName::Process(argv) => {
            let command = Command { argv, environment: Vec::new(), folder: None };
            (start(command, Limits::default())?, None)
        }
        KernelName::Library(path) => {
            let path = std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            (library(&path, consent.trust, Vec::new(), None, Limits::default())?, None)
        }
        KernelName::File(path) => {
            let file = KernelFile::load(&path).map_err(|error| error.to_string())?;
            let kernel = match file.runs.clone() {
                Runs::Reference(reference) => {
                    let implementation = Implementation::reference(*reference);
                    let changes = changes(&file, &*implementation.kernel, consent, words)?;
                    return Ok(Opened { implementation, changes });
                }
                Runs::Process(command) => start(command, file.limits)?,
                Runs::Library { path, trust, environment, folder } => {
                    let trust = trust || consent.trust;
                    if trust && !environment.is_empty() {
                        return Err("sets an environment, which only a process of its own can have; leave out --trust, or set it before lastbit is started".into());
                    }
                    library(&path, trust, environment, Some(folder), file.limits)?
                }
            };
            (kernel, Some(file))
        }
    };
    let (kernel, changes) = match file {
        None => (kernel, Vec::new()),
        Some(file) => {
            let changes = changes(&file, &*kernel, consent, words)?;
            let fixed = file.fixed(&kernel.capabilities().knobs).map_err(|error| error.to_string())?;
            let kernel = if fixed.is_empty() { kernel } else { Arc::new(Narrowed::fixing(kernel, fixed)) };
            (kernel, changes)
        }
    };
    let implementation = Implementation { kernel, reference: None, source: Some(words.to_owned()) };
    Ok(Opened { implementation, changes })
}

fn plain(implementation: Implementation) -> Opened {
    Opened { implementation, changes: Vec::new() }
}

/// Where the kernel is another than the one that is pinned.
///
/// # Errors
/// The same, where that was not agreed to.
fn changes(file: &KernelFile, kernel: &dyn AttentionKernel, consent: Consent, words: &str) -> Result<Vec<String>, String> {
    let changes: Vec<String> = file.changes(&kernel.identity()).iter().map(|change| change.to_string()).collect();
    if changes.is_empty() || consent.accept_changed {
        return Ok(changes);
    }
    let words = shell_words::quote(words);
    Err(format!(
        "{}\nthe kernel is not the one that is pinned; run it all the same with --accept-changed, or pin this one: `lastbit kernels {words}` prints its [identity]",
        changes.join("\n")
    ))
}

fn start(command: Command, limits: Limits) -> Result<Arc<dyn AttentionKernel>, String> {
    Ok(Arc::new(super::process::ProcessKernel::start(command, limits)?))
}

/// A C library: in this process, or in a child that is this program.
fn library(
    path: &Path,
    trust: bool,
    environment: Vec<(String, String)>,
    folder: Option<PathBuf>,
    limits: Limits,
) -> Result<Arc<dyn AttentionKernel>, String> {
    if !path.is_file() {
        return Err(format!("{}: no such file; a library is named by its path, as in lib:./libkernel.so", path.display()));
    }
    if trust {
        return Ok(Arc::new(super::library::LibraryKernel::load(path)?));
    }
    let program = std::env::current_exe().map_err(|error| format!("the path of lastbit itself is not known: {error}"))?;
    let word = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| format!("{}: not UTF-8", path.display()));
    let argv = vec![word(&program)?, "serve".into(), format!("lib:{}", word(path)?), "--trust".into()];
    start(Command { argv, environment, folder }, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let parse = |words: &str| KernelName::parse(words);
        let argv = |words: &[&str]| Ok(KernelName::Process(words.iter().map(|word| word.to_string()).collect()));
        assert_eq!(parse("process:python my_kernel.py"), argv(&["python", "my_kernel.py"]));
        assert_eq!(parse("process:'my python' \"a b\" c\\ d"), argv(&["my python", "a b", "c d"]));
        assert_eq!(parse("process:sh -c 'exec x; y'"), argv(&["sh", "-c", "exec x; y"]), "no shell");
        assert_eq!(parse("process:kernel.toml"), argv(&["kernel.toml"]));
        assert_eq!(parse("lib:libkernel.so"), Ok(KernelName::Library("libkernel.so".into())));
        assert_eq!(parse("kernels/my.toml"), Ok(KernelName::File("kernels/my.toml".into())));
        assert!(matches!(parse("ref:aligned"), Ok(KernelName::Reference(_))));
    }

    #[test]
    fn names_that_mean_nothing_are_refused_with_what_would() {
        for (words, part) in [
            ("process:", "names no command; write process:COMMAND"),
            ("process:  ", "names no command"),
            ("process:'' x", "the program, is empty"),
            ("process:python 'x", "a quote in the command is not closed"),
            ("lib:", "names no library; write lib:PATH"),
            ("my_kernel.py", "did you mean 'process:python my_kernel.py'?"),
            ("./k.so", "did you mean lib:./k.so?"),
            ("aligned,softmax.block=16", "did you mean ref:aligned,softmax.block=16?"),
            ("cuda:mine", "names no kernel; a kernel is ref:PRESET"),
            ("", "names no kernel"),
            ("ref:alinged", "did you mean"),
        ] {
            let refused = KernelName::parse(words).unwrap_err();
            assert!(refused.contains(part), "{words}: {refused}");
        }
    }
}
