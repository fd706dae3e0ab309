//! A file that names a kernel once: what runs, in which surroundings, within which limits, and who it must be.
//!
//! ```toml
//! format = 1
//! command = ["python", "my_kernel.py"]       # or: library = "./libkernel.so", or: reference = "aligned,softmax.block=16"
//! folder = "."                               # of the process, relative to this file; default: this file's folder
//! environment = { OMP_NUM_THREADS = "1" }    # added to that of lastbit
//!
//! [limits]                                   # all optional; these are the defaults
//! start = "120s"                             # until the kernel says who it is
//! call = "30s"
//! compile = "120s"                           # more, for the first call of a shape
//! memory = "16GiB"                           # resident, of the process and its children
//!
//! [identity]                                 # optional: a kernel that says otherwise is refused
//! name = "mine"
//! version = "1.0"
//! digest = "9f86d081884c7d65..."
//!
//! [knobs]                                    # optional: these no longer vary
//! num_splits = "1"
//! ```
//!
//! Beside `library` there may be `trust = true`: it is then loaded into lastbit itself, whatever it does to it. `environment` and
//! `folder` mean nothing there. Beside `reference` there may be nothing but `format` and `[identity]`.

use super::process::{Command, Limits};
use crate::input_error::{InputError, shorten, unknown};
use crate::quantity;
use crate::subject::attention::capabilities::Knob;
use crate::subject::attention::kernel::Identity;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::text::fields::{Field, Reader, Section};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The format that is read.
pub const FORMAT: u32 = 1;

/// Bytes of the longest kernel file that is read.
const LONGEST: u64 = 1 << 16;

/// A kernel file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelFile {
    /// Its name, for messages.
    file: String,
    /// What runs.
    pub runs: Runs,
    /// What a process is allowed.
    pub limits: Limits,
    /// `[identity]`: field and value, in the order of [`IDENTITY`].
    pins: Vec<Entry>,
    /// `[knobs]`: name and value.
    knobs: Vec<Entry>,
}

/// What a kernel file runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Runs {
    /// A reference kernel.
    Reference(Box<Reference>),
    /// A process that speaks the protocol.
    Process(Command),
    /// A C library.
    Library {
        /// Absolute.
        path: PathBuf,
        /// Load it into this process.
        trust: bool,
        /// For the process that holds it.
        environment: Vec<(String, String)>,
        /// For the process that holds it.
        folder: PathBuf,
    },
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    value: String,
    line: Option<usize>,
}

/// What may be pinned.
const IDENTITY: [&str; 3] = ["name", "version", "digest"];

/// What may be limited.
const LIMITS: [&str; 4] = ["start", "call", "compile", "memory"];

impl KernelFile {
    /// Reads a kernel file.
    ///
    /// # Errors
    /// A file that cannot be read, and everything [`KernelFile::parse`] refuses.
    pub fn load(path: &Path) -> Result<KernelFile, InputError> {
        let name = path.display().to_string();
        let unreadable = |error: std::io::Error| InputError::new(&name, format!("cannot read the kernel file: {error}"));
        // To open a pipe that nobody writes to takes for ever.
        if std::fs::metadata(path).is_ok_and(|it| !it.is_file()) {
            return Err(InputError::new(&name, "is no file, but a folder, a pipe or a device"));
        }
        let mut text = String::new();
        std::fs::File::open(path).map_err(unreadable)?.take(LONGEST + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > LONGEST {
            return Err(InputError::new(&name, format!("is longer than {LONGEST} bytes, the most for a kernel file")));
        }
        let home = std::path::absolute(path).map_err(unreadable)?;
        Self::parse(&text, &name, home.parent().unwrap_or(Path::new("/")))
    }

    /// Reads the text of a kernel file that lies in the folder `home`; `file` is for messages.
    ///
    /// # Errors
    /// The first thing wrong, with line, field and reason.
    pub fn parse(text: &str, file: &str, home: &Path) -> Result<KernelFile, InputError> {
        let reader = Reader::new(file, text);
        let document = reader.document(FORMAT)?;
        let known =
            ["format", "command", "library", "reference", "trust", "folder", "environment", "limits", "identity", "knobs"];
        let top = Section::top(&reader, &document, &known)?;
        top.need("format")?.u32()?;
        let named = ["command", "library", "reference"].map(|name| top.get(name));
        if let Some(second) = named.iter().flatten().nth(1) {
            return Err(second.error("one of command, library and reference, not several"));
        }
        top.only_with(&["trust"], named[1].is_some(), "library")?;
        top.only_with(&["folder", "environment", "limits", "knobs"], named[2].is_none(), "command or library")?;
        let [command, library, reference] = named;
        let trust = top.get("trust").map_or(Ok(false), |field| field.flag())?;
        top.only_with(&["folder", "environment"], !trust, "a process of its own: they mean nothing with trust = true")?;
        let folder = folder(&top, home)?;
        let environment = top.get("environment").map_or(Ok(Vec::new()), |field| environment(&field))?;
        let runs = match (command, library, reference) {
            (Some(field), ..) => Runs::Process(Command { argv: argv(&field, &folder)?, environment, folder: Some(folder) }),
            (_, Some(field), _) => Runs::Library { path: home.join(field.one_line()?), trust, environment, folder },
            (.., Some(field)) => {
                let reference = Reference::parse(&format!("ref:{}", field.text()?)).map_err(|reason| field.error(reason))?;
                Runs::Reference(Box::new(reference))
            }
            (None, None, None) => {
                let reason =
                    "names no kernel: give `command`, `library` or `reference`, e.g. command = [\"python\", \"my_kernel.py\"]";
                return Err(InputError::new(file, reason));
            }
        };
        Ok(KernelFile {
            file: file.to_owned(),
            runs,
            limits: top.get("limits").map_or(Ok(Limits::default()), |field| limits(&field))?,
            pins: top.get("identity").map_or(Ok(Vec::new()), |field| pins(&field))?,
            knobs: top.get("knobs").map_or(Ok(Vec::new()), |field| knobs(&field))?,
        })
    }

    /// Where a kernel says that it is another than the one that is pinned: one error for each field.
    pub fn changes(&self, identity: &Identity) -> Vec<InputError> {
        let is = |name: &str| match name {
            "name" => Some(identity.name.as_str()),
            "version" => Some(identity.version.as_str()),
            _ => identity.digest.as_deref(),
        };
        let changed = self.pins.iter().filter(|pin| is(&pin.name) != Some(&pin.value));
        changed
            .map(|pin| {
                let says = is(&pin.name).map_or("none".to_owned(), |value| format!("`{}`", value.escape_debug()));
                self.error("identity", pin, format!("is pinned to `{}`; the kernel says {says}", pin.value))
            })
            .collect()
    }

    /// The knobs that are fixed, as pairs of name and value.
    ///
    /// # Errors
    /// A name or a value that the kernel does not have.
    pub fn fixed(&self, knobs: &[Knob]) -> Result<Vec<(String, String)>, InputError> {
        let names: Vec<&str> = knobs.iter().map(|knob| knob.name.as_str()).collect();
        let fixed = self.knobs.iter().map(|entry| match knobs.iter().find(|knob| knob.name == entry.name) {
            None if names.is_empty() => Err(self.error("knobs", entry, "the kernel has no knobs".into())),
            None => Err(self.error("knobs", entry, unknown("knob", &entry.name, &names))),
            Some(knob) if !knob.values.contains(&entry.value) => {
                let (value, values) = (shorten(&entry.value), knob.values.join(", "));
                Err(self.error("knobs", entry, format!("`{value}` is no value of it (known: {values})")))
            }
            Some(_) => Ok((entry.name.clone(), entry.value.clone())),
        });
        fixed.collect()
    }

    fn error(&self, section: &str, entry: &Entry, reason: String) -> InputError {
        InputError { line: entry.line, ..InputError::new(&self.file, reason).field(format!("{section}.{}", entry.name)) }
    }
}

/// The program and its arguments. A program with a slash in it is looked for in the folder, others along PATH.
fn argv(field: &Field<'_, '_>, folder: &Path) -> Result<Vec<String>, InputError> {
    let words = field.strings()?;
    let mut argv: Vec<String> = words.into_iter().map(|(word, _)| word.to_owned()).collect();
    match argv.first_mut() {
        None => return Err(field.error("names no program; write [\"python\", \"my_kernel.py\"]")),
        Some(program) if program.is_empty() => return Err(field.error("the program's name is empty")),
        Some(program) if program.contains('/') => match folder.join(&program).to_str() {
            Some(path) => *program = path.to_owned(),
            None => return Err(field.error("lies in a folder whose name is not UTF-8")),
        },
        Some(_) => {}
    }
    match argv.iter().any(|word| word.contains('\0')) {
        true => Err(field.error("no word may hold a NUL")),
        false => Ok(argv),
    }
}

fn folder(top: &Section<'_, '_>, home: &Path) -> Result<PathBuf, InputError> {
    let Some(field) = top.get("folder") else { return Ok(home.to_owned()) };
    let folder = home.join(field.one_line()?);
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(field.error(format!("{} is no folder", folder.display()))),
    }
}

fn environment(field: &Field<'_, '_>) -> Result<Vec<(String, String)>, InputError> {
    let variable = |(name, field): (String, Field<'_, '_>)| match name.is_empty() || name.contains(['=', '\0']) {
        true => Err(field.error("is no name of an environment variable")),
        false => Ok((name, field.one_line()?)),
    };
    field.open()?.leaves()?.into_iter().map(variable).collect()
}

fn limits(field: &Field<'_, '_>) -> Result<Limits, InputError> {
    let section = field.table(&LIMITS)?;
    let mut limits = Limits::default();
    let refused = |field: &Field<'_, '_>, none: bool| if none { Err(field.error("must be more than nothing")) } else { Ok(()) };
    for (name, limit) in [("start", &mut limits.start), ("call", &mut limits.call), ("compile", &mut limits.compile)] {
        if let Some(field) = section.get(name) {
            *limit = quantity::duration(field.text()?).map_err(|reason| field.error(reason))?;
            // A kernel that compiles nothing needs no time for it.
            refused(&field, limit.is_zero() && name != "compile")?;
        }
    }
    if let Some(field) = section.get("memory") {
        limits.memory = quantity::bytes(field.text()?).map_err(|reason| field.error(reason))?;
        refused(&field, limits.memory == 0)?;
    }
    Ok(limits)
}

fn pins(field: &Field<'_, '_>) -> Result<Vec<Entry>, InputError> {
    let section = field.table(&IDENTITY)?;
    let stated = IDENTITY.iter().filter_map(|name| section.get(name).map(|field| (name.to_string(), field)));
    stated.map(|(name, field)| entry(name, &field)).collect()
}

fn knobs(field: &Field<'_, '_>) -> Result<Vec<Entry>, InputError> {
    field.open()?.leaves()?.into_iter().map(|(name, field)| entry(name, &field)).collect()
}

fn entry(name: String, field: &Field<'_, '_>) -> Result<Entry, InputError> {
    Ok(Entry { name, value: field.one_line()?, line: field.error("").line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse(text: &str) -> Result<KernelFile, String> {
        KernelFile::parse(text, "my.toml", Path::new("/")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_file_is_read() {
        let text = r#"
            format = 1
            command = ["python", "my_kernel.py", "--fast"]
            environment = { OMP_NUM_THREADS = "1", MODE = "" }
            folder = "tmp"
            [limits]
            start = "5m"
            call = "3s"
            compile = "0s"
            memory = "2GiB"
            [identity]
            digest = "00ff"
            name = "mine"
            [knobs]
            num_splits = "2"
        "#;
        let file = parse(text).unwrap();
        let expected = Command {
            argv: ["python", "my_kernel.py", "--fast"].map(String::from).into(),
            environment: [("OMP_NUM_THREADS", "1"), ("MODE", "")].map(|(name, value)| (name.into(), value.into())).into(),
            folder: Some("/tmp".into()),
        };
        assert_eq!(file.runs, Runs::Process(expected));
        let seconds = Duration::from_secs;
        assert_eq!(file.limits, Limits { start: seconds(300), call: seconds(3), compile: seconds(0), memory: 2 << 30 });
        let mut identity = Identity::cpu("mine", "7");
        identity.digest = Some("00ff".into());
        assert_eq!(file.changes(&identity), []);
        (identity.name, identity.digest) = ("other".into(), None);
        let changes: Vec<String> = file.changes(&identity).iter().map(|change| change.to_string()).collect();
        assert_eq!(
            changes,
            [
                "my.toml:13: identity.name: is pinned to `mine`; the kernel says `other`",
                "my.toml:12: identity.digest: is pinned to `00ff`; the kernel says none"
            ]
        );
        let knob =
            |values: &[&str]| [Knob { name: "num_splits".into(), values: values.iter().map(|it| it.to_string()).collect() }];
        assert_eq!(file.fixed(&knob(&["1", "2"])), Ok(vec![("num_splits".into(), "2".into())]));
        let refused = |knobs: &[Knob]| file.fixed(knobs).unwrap_err().to_string();
        assert_eq!(refused(&knob(&["1"])), "my.toml:15: knobs.num_splits: `2` is no value of it (known: 1)");
        assert_eq!(refused(&[]), "my.toml:15: knobs.num_splits: the kernel has no knobs");
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        let file = parse("format = 1\ncommand = [\"./kernel\"]").unwrap();
        let Runs::Process(command) = &file.runs else { panic!("{file:?}") };
        assert_eq!((command.argv[0].as_str(), command.folder.as_deref()), ("/./kernel", Some(Path::new("/"))));
        assert_eq!(file.limits, Limits::default());
        let file = parse("format = 1\nreference = \"aligned,softmax.block=16\"").unwrap();
        assert_eq!(file.runs, Runs::Reference(Box::new(Reference::parse("ref:aligned,softmax.block=16").unwrap())));
        let file = parse("format = 1\nlibrary = \"lib/k.so\"\ntrust = true").unwrap();
        let Runs::Library { path, trust, .. } = &file.runs else { panic!("{file:?}") };
        assert_eq!((path.as_path(), *trust), (Path::new("/lib/k.so"), true));
    }

    #[test]
    fn only_files_are_opened() {
        let refused = KernelFile::load(Path::new("/")).unwrap_err().to_string();
        assert_eq!(refused, "/: is no file, but a folder, a pipe or a device");
    }

    #[test]
    fn mistakes_are_refused_with_line_and_field() {
        let python = "command = [\"python\"]";
        for (text, expected) in [
            ("", "my.toml:1: format: missing field"),
            ("format = 2", "my.toml:1: format: is 2; this version reads format 1"),
            ("format = 1\ncomand = []", "my.toml:2: comand: unknown field `comand`; did you mean `command`?"),
            ("format = 1", "my.toml: names no kernel"),
            ("format = 1\ncommand = []", "my.toml:2: command: names no program"),
            ("format = 1\ncommand = \"python\"", "my.toml:2: command: expected an array of strings"),
            (&format!("format = 1\n{python}\nlibrary = \"x\""), "my.toml:3: library: one of command, library and reference"),
            (&format!("format = 1\n{python}\ntrust = true"), "my.toml:3: trust: only with library"),
            ("format = 1\nreference = \"aligned\"\nfolder = \".\"", "my.toml:3: folder: only with command or library"),
            ("format = 1\nreference = \"alinged\"", "my.toml:2: reference: "),
            (
                "format = 1\nlibrary = \"x\"\ntrust = true\nenvironment = {}",
                "my.toml:4: environment: only with a process of its own",
            ),
            (&format!("format = 1\n{python}\nfolder = \"no/such\""), "my.toml:3: folder: /no/such is no folder"),
            (&format!("format = 1\n{python}\nenvironment = {{ X = 1 }}"), "my.toml:3: environment.X: expected a string"),
            (
                &format!("format = 1\n{python}\n[limits]\ncal = \"1s\""),
                "my.toml:4: limits.cal: unknown field `cal`; did you mean `call`?",
            ),
            (&format!("format = 1\n{python}\n[limits]\ncall = \"0s\""), "my.toml:4: limits.call: must be more than nothing"),
            (&format!("format = 1\n{python}\n[limits]\ncall = \"1 s\""), "my.toml:4: limits.call: unknown unit ` s`"),
            (&format!("format = 1\n{python}\n[limits]\nmemory = \"1GB\""), "my.toml:4: limits.memory: unknown unit `GB`"),
            (&format!("format = 1\n{python}\n[identity]\ndevice = \"x\""), "my.toml:4: identity.device: unknown field `device`"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.starts_with(expected), "{text}\n{refused}\n{expected}");
        }
    }
}
