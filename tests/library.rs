//! Kernels in C libraries: the two examples, built with their own Makefiles and loaded into this process, and libraries that are wrong.
//!
//! `LASTBIT_TEST_ASAN=1` builds the examples with AddressSanitizer, whose runtime must then be preloaded: `.ci/asan` does so.

mod harness;

use harness::{against, first, named, pair, shrunk};
use lastbit::external::library::LibraryKernel;
use lastbit::finding::{Breakage, Fault, Finding, Kind};
use lastbit::lab::{Campaign, Flow, Length, Statistics, run};
use lastbit::subject::attention::Attention;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::AttentionKernel;
use lastbit::subject::attention::oracle::Mode;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

/// Libraries of this run. A library is never unloaded, so its file stays too.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder").keep());
static C: LazyLock<PathBuf> = LazyLock::new(|| example("c-kernel", ""));
static CPP: LazyLock<PathBuf> = LazyLock::new(|| example("cpp-kernel", ""));

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a compiler; without the sanitizer's runtime, which is for the kernels.
fn compile(command: &mut Command) {
    let output = command.env_remove("LD_PRELOAD").output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Builds an example in a copy of its folder, as its README says.
fn example(name: &str, flags: &str) -> PathBuf {
    let copy = FOLDER.join(format!("{name}{flags}"));
    let folder = copy.join("examples").join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::create_dir_all(copy.join("include")).expect("a folder");
    let source = repository().join("examples").join(name);
    for file in std::fs::read_dir(&source).expect("the example").map(|entry| entry.expect("a file").path()) {
        if file.extension().is_none_or(|extension| extension != "so") {
            std::fs::copy(&file, folder.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    std::fs::copy(repository().join("include/lastbit.h"), copy.join("include/lastbit.h")).expect("a copy");
    let (target, library) = match std::env::var_os("LASTBIT_TEST_ASAN") {
        Some(_) => ("asan", "libattention-asan.so"),
        None => ("libattention.so", "libattention.so"),
    };
    compile(Command::new("make").arg("-C").arg(&folder).arg(target).env("CFLAGS", flags).env("CXXFLAGS", flags));
    folder.join(library)
}

/// Builds a library from a few lines of C.
fn library(name: &str, source: &str) -> PathBuf {
    let (file, library) = (FOLDER.join(format!("{name}.c")), FOLDER.join(format!("{name}.so")));
    std::fs::write(&file, format!("#include \"lastbit.h\"\n#include <string.h>\n{source}\n")).expect("a file");
    let include = repository().join("include");
    compile(Command::new("cc").args(["-std=c99", "-shared", "-fPIC", "-o"]).arg(&library).arg(&file).arg("-I").arg(include));
    library
}

const VERSION: &str = "uint32_t lastbit_abi_version(void) { return LASTBIT_ABI_VERSION; }";
const VARLEN: &str = "int32_t lastbit_varlen(const lastbit_varlen_args *args) { (void)args; return 0; }";

/// `lastbit_kernel_info` with these fields after the identity.
fn info(fields: &str) -> String {
    let text = format!(r#"{{"identity": {{"name": "k", "version": "1", "device": "cpu"}}{fields}}}"#);
    format!("const char *lastbit_kernel_info(void) {{ return {text:?}; }}")
}

fn load(path: &Path) -> LibraryKernel {
    LibraryKernel::load(path).unwrap_or_else(|error| panic!("{error}"))
}

fn implementation(path: &Path) -> Implementation {
    Implementation::kernel(Arc::new(load(path)))
}

/// A library whose training call has this body and nothing else.
fn varlen(name: &str, body: &str) -> LibraryKernel {
    let info = info(r#", "forms": ["varlen"]"#);
    load(&library(name, &format!("{VERSION}\n{info}\nint32_t lastbit_varlen(const lastbit_varlen_args *args) {{ {body} }}")))
}

/// What the first training call of a kernel came to.
fn fault(kernel: LibraryKernel) -> Fault {
    let attention = pair(Implementation::kernel(Arc::new(kernel)), named("ref:aligned"), Mode::Off);
    match first(&attention, 200, |_, finding| finding.kind() == Kind::Fault).expect("a fault").finding {
        Finding::Fault { fault, .. } => fault,
        other => panic!("{other:?}"),
    }
}

fn campaign(attention: &Attention, cases: u64) -> Statistics {
    let mut statistics = Statistics::default();
    run(attention, Campaign { seed: 1, first: 0, length: Length::Cases(cases), jobs: 2 }, |done| {
        statistics.add(&done.verdict, done.trial.case.problem.out_dtype, 0);
        Flow::Continue
    });
    statistics
}

/// Both call forms that train, both that infer, chunks, pages, windows, batches: an honest kernel gives the same bits in all of them, and
/// none beyond the bound of what it declares.
fn agrees_with(library: &Path, other: &str) {
    for (train, infer) in [(implementation(library), implementation(library)), (implementation(library), named(other))] {
        let statistics = campaign(&pair(train, infer, Mode::Enclosure), 400);
        assert_eq!(statistics.failed, 0, "{statistics:?}");
        assert!(statistics.matches > 100, "{statistics:?}");
        for reason in statistics.skips.keys() {
            let expected =
                ["formats other than", "does not implement 8-bit keys", "context-parallel ranks, and the kernel does not"];
            assert!(expected.iter().any(|words| reason.contains(words)), "{reason}");
        }
    }
}

#[test]
fn the_c_kernel_is_what_it_declares() {
    agrees_with(&C, "ref:naive");
}

#[test]
fn the_cpp_kernel_is_what_it_declares() {
    agrees_with(&CPP, "ref:aligned,softmax.block=32");
}

#[test]
fn two_libraries_that_differ_in_the_last_bit() {
    let attention = pair(implementation(&C), implementation(&CPP), Mode::Enclosure);
    let statistics = campaign(&attention, 200);
    assert_eq!((statistics.of(Kind::Fault), statistics.of(Kind::Inaccurate)), (0, 0), "{statistics:?}");
    assert!(statistics.of(Kind::Mismatch) > 10, "{statistics:?}");
    let found = first(&attention, 200, |_, finding| finding.signature() == "mismatch o").expect("a mismatch");
    let small = shrunk(&attention, &found);
    // Two keys are enough for weights that are divided before or after the product with V.
    assert_eq!(small.trial.case.problem.sequences.iter().map(|it| it.kv).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_library_says_who_it_is() {
    use sha2::Digest;
    let identity = load(&C).identity();
    assert_eq!((identity.name.as_str(), identity.version.as_str(), identity.device.as_str()), ("c-textbook", "1.0", "cpu"));
    let digest = sha2::Sha256::digest(std::fs::read(&*C).expect("the library"));
    assert_eq!(identity.digest, Some(digest.iter().map(|byte| format!("{byte:02x}")).collect()));
    assert!(load(&C).capabilities().guarded);
    let fields = r#", "forms": ["varlen"], "lse": false"#;
    assert!(!load(&library("without_lse", &format!("{VERSION}\n{}\n{VARLEN}", info(fields)))).has_lse());
}

#[test]
fn planted_fault_in_c_writes_outside() {
    let attention = against(load(&example("c-kernel", "-DPLANTED_FAULT")), Mode::Enclosure);
    let statistics = campaign(&attention, 50);
    assert_eq!((statistics.matches, statistics.of(Kind::Inaccurate)), (0, 0), "{statistics:?}");
    let found = first(&attention, 50, |_, finding| finding.kind() == Kind::Fault).expect("a fault");
    let Finding::Fault { fault: Fault::Broken { breakage, detail }, .. } = shrunk(&attention, &found).finding else {
        panic!("{:?}", found.finding)
    };
    assert_eq!(breakage, Breakage::WroteOutside);
    let (f32, bf16) = (
        "changed 4 bytes past the end of `o` (f32 [1, 1, 1]), the first",
        "changed 2 bytes past the end of `o` (bf16 [1, 1, 1])",
    );
    assert!(detail.starts_with("lastbit_paged ") && (detail.contains(f32) || detail.contains(bf16)), "{detail}");
}

#[test]
fn planted_fault_in_cpp_loses_the_last_key() {
    let attention = against(load(&example("cpp-kernel", "-DPLANTED_FAULT")), Mode::Enclosure);
    let found = first(&attention, 600, |_, finding| finding.signature() == "inaccurate infer o").expect("an inaccuracy");
    let small = shrunk(&attention, &found);
    assert_eq!(small.trial.case.problem.sequences.iter().map(|it| it.kv).collect::<Vec<_>>(), [129]);
}

#[test]
fn what_a_call_returns() {
    let text = r#"strcpy(args->error, "no\nluck"); return"#;
    assert_eq!(fault(varlen("fails", &format!("{text} LASTBIT_FAILED;"))), Fault::Failed("no luck".into()));
    let broken = |breakage, detail: &str| Fault::Broken { breakage, detail: detail.into() };
    let device = broken(Breakage::DeviceError, "no luck");
    assert_eq!(fault(varlen("loses_the_device", &format!("{text} LASTBIT_DEVICE_ERROR;"))), device);
    let unknown = "lastbit_varlen returned 77, which is none of 0, 1, 2 and 3: the library gave no reason";
    assert_eq!(fault(varlen("returns_77", "(void)args; return 77;")), Fault::Failed(unknown.into()));
    // A buffer that is filled to its end, without the closing zero.
    let Fault::Failed(reason) = fault(varlen("fills_the_text", "memset(args->error, 'x', args->error_capacity); return 2;"))
    else {
        panic!("another fault")
    };
    assert_eq!(reason, "x".repeat(4096));
    assert!(matches!(fault(varlen("does_nothing", "(void)args; return 0;")), Fault::Unwritten { output: "o", .. }));

    let refuses = varlen("refuses", &format!("{text} LASTBIT_UNSUPPORTED;"));
    let attention = pair(Implementation::kernel(Arc::new(refuses)), named("ref:aligned"), Mode::Off);
    let statistics = campaign(&attention, 60);
    assert_eq!((statistics.failed, statistics.matches), (0, 0), "{statistics:?}");
    assert!(statistics.skips.keys().any(|reason| reason.contains("no luck")), "{statistics:?}");
    // Forms that are not declared never reach it, and are not taken for matches.
    assert!(statistics.skips.keys().any(|reason| reason.contains("declares no form `dense_")), "{statistics:?}");
}

#[test]
fn writes_to_inputs_and_before_outputs() {
    let outside = |name: &str, body: &str| match fault(varlen(name, body)) {
        Fault::Broken { breakage: Breakage::WroteOutside, detail } => detail,
        other => panic!("{other:?}"),
    };
    let first_offset = "((int32_t *)args->cu_seqlens_q.data)[0] = 7; return 0;";
    let detail = outside("writes_an_input", first_offset);
    assert!(detail.starts_with("lastbit_varlen changed its input `cu_seqlens_q` (i32 ["), "{detail}");
    assert!(detail.ends_with("at element 0"), "{detail}");
    if std::env::var_os("LASTBIT_TEST_ASAN").is_none() {
        // The sanitizer has functions of its own in place of memset, which would end this process.
        let detail = outside("writes_before", "memset((char *)args->lse.data - 12, 0, 8); return 0;");
        assert!(detail.contains("changed 8 bytes before the start of `lse` (f32 ["), "{detail}");
        assert!(detail.ends_with(", the last 4 bytes before it"), "{detail}");
        // A failure that it reports does not hide it.
        let detail = outside("writes_and_fails", "memset((char *)args->lse.data - 12, 0, 8); return LASTBIT_FAILED;");
        assert!(detail.contains("before the start of `lse`"), "{detail}");
    }
}

#[test]
fn libraries_that_are_none() {
    let refused = |path: &Path, expected: &str| {
        let error = LibraryKernel::load(path).err().unwrap_or_else(|| panic!("{} was loaded", path.display()));
        let whole = format!("library {}: {expected}", path.display());
        assert!(error.starts_with(&whole), "{error}\nis not\n{whole}");
    };
    let missing = FOLDER.join("missing.so");
    refused(&missing, "No such file or directory");
    let text = FOLDER.join("text.so");
    std::fs::write(&text, "not a library").expect("a file");
    refused(&text, &format!("cannot be loaded: {}: ", text.canonicalize().expect("it is there").display()));

    let with = |name: &str, source: &str, expected: &str| refused(&library(name, source), expected);
    let plain = info(r#", "forms": ["varlen"]"#);
    with(
        "no_version",
        &format!("{plain}\n{VARLEN}"),
        "exports no lastbit_abi_version; a kernel library exports what include/lastbit.h",
    );
    let other = "uint32_t lastbit_abi_version(void) { return 7; }";
    with(
        "version_7",
        &format!("{other}\n{plain}\n{VARLEN}"),
        "has ABI version 7; this lastbit speaks version 1: compile it against",
    );
    with("no_info", &format!("{VERSION}\n{VARLEN}"), "exports no lastbit_kernel_info");
    let null = "const char *lastbit_kernel_info(void) { return 0; }";
    with("null_info", &format!("{VERSION}\n{null}\n{VARLEN}"), "lastbit_kernel_info returned NULL");
    let latin = "const char *lastbit_kernel_info(void) { return \"\\xe9\"; }";
    with("latin_info", &format!("{VERSION}\n{latin}\n{VARLEN}"), "lastbit_kernel_info is not UTF-8: ");
    let broken = "const char *lastbit_kernel_info(void) { return \"{\"; }";
    with("broken_info", &format!("{VERSION}\n{broken}\n{VARLEN}"), "lastbit_kernel_info: is not JSON: ");
    let misspelt = info(r#", "fromats": ["f32"]"#);
    let expected = "lastbit_kernel_info: `fromats`: unknown field `fromats`; did you mean `formats`?";
    with("misspelt_info", &format!("{VERSION}\n{misspelt}\n{VARLEN}"), expected);

    let lies = info(r#", "forms": ["varlen", "paged"]"#);
    let expected = "declares the form `paged` and exports no lastbit_paged: export it, or list only the forms that it has";
    with("declares_paged", &format!("{VERSION}\n{lies}\n{VARLEN}"), expected);
    let all = info("");
    let expected = "lists no `forms`, which declares all of them, and exports no lastbit_dense: export it";
    with("declares_all", &format!("{VERSION}\n{all}\n{VARLEN}"), expected);
    // Found when it is loaded, not in the middle of a run.
    let unresolved =
        "extern int elsewhere(void); int32_t lastbit_varlen(const lastbit_varlen_args *a) { (void)a; return elsewhere(); }";
    let path = library("unresolved", &format!("{VERSION}\n{plain}\n{unresolved}"));
    let error = LibraryKernel::load(&path).err().expect("an error");
    assert!(error.contains("cannot be loaded") && error.contains("elsewhere"), "{error}");
}

/// A window, sinks and the rest reach the library only if it lists them: it may be older than they are.
#[test]
fn features_that_are_not_listed_do_not_reach_the_library() {
    let info = info(r#", "forms": ["varlen", "dense_left", "dense_right"], "features": ["causal"]"#);
    let checks = "if (args->attributes->window_left >= 0 || args->attributes->sinks.data || args->attributes->causal != 1) return 2; return 1;";
    let source = format!(
        "{VERSION}\n{info}\nint32_t lastbit_varlen(const lastbit_varlen_args *args) {{ {checks} }}\n\
         int32_t lastbit_dense(const lastbit_dense_args *args) {{ {checks} }}"
    );
    let attention = pair(implementation(&library("causal_only", &source)), named("ref:aligned"), Mode::Off);
    let statistics = campaign(&attention, 200);
    assert_eq!((statistics.failed, statistics.matches), (0, 0), "{statistics:?}");
    for feature in ["a window", "sinks", "a mask that is not causal"] {
        assert!(
            statistics.skips.keys().any(|reason| reason.contains(&format!("does not implement {feature}"))),
            "{statistics:?}"
        );
    }
}
