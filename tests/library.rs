//! Kernels in C libraries: the two examples, built with their own Makefiles and loaded into this process, and libraries that are wrong.
//!
//! `LASTBIT_TEST_ASAN=1` builds the examples with AddressSanitizer, whose runtime must then be preloaded: `.ci/asan` does so.

mod harness;

use harness::{against, first, named, pair, shrunk};
use lastbit::external::library::LibraryKernel;
use lastbit::finding::{Breakage, Fault, Finding, Kind};
use lastbit::lab::{Campaign, Flow, Length, Statistics, run};
use lastbit::number::Dtype;
use lastbit::subject::attention::implementation::Implementation;
use lastbit::subject::attention::kernel::{
    AttentionKernel, Attributes, BlockTable, DenseCall, KernelError, KvScales, Outputs, PagedCall, VarlenCall,
};
use lastbit::subject::attention::oracle::Mode;
use lastbit::subject::attention::{Anchor, Attention, ContextParallel, Mask, Problem, Shards, Side};
use lastbit::tensor::Tensor;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

/// Libraries of this run, in the target folder. A library is never unloaded, so its file stays too.
static FOLDER: LazyLock<PathBuf> =
    LazyLock::new(|| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder").keep());
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

/// Statistics over the cases that count.
fn campaign(attention: &Attention, cases: u64, counts: impl Fn(&Problem) -> bool) -> Statistics {
    let mut statistics = Statistics::default();
    run(attention, Campaign { seed: 1, first: 0, length: Length::Cases(cases), jobs: 2 }, |done| {
        if counts(&done.trial.case.problem) {
            statistics.add(&done.verdict, done.trial.case.problem.out_dtype, 0);
        }
        Flow::Continue
    });
    statistics
}

/// Both call forms that train, both that infer, chunks, pages, windows, batches: an honest kernel gives the same bits in all of them, none
/// beyond the bound of what it declares, and those of the reference kernel with its numerics wherever `exactly` says so.
fn agrees_with(library: &Path, other: &str, exactly: impl Fn(&Problem) -> bool) {
    let itself = campaign(&pair(implementation(library), implementation(library), Mode::Enclosure), 300, |_| true);
    assert_eq!(itself.failed, 0, "{itself:?}");
    assert!(itself.matches > 100, "{itself:?}");
    let reference = campaign(&pair(implementation(library), named(other), Mode::Enclosure), 300, exactly);
    assert_eq!(reference.failed, 0, "{reference:?}");
    assert!(reference.matches > 100, "{reference:?}");
    for reason in itself.skips.keys().chain(reference.skips.keys()) {
        let expected = ["formats other than", "does not implement 8-bit keys", "context-parallel ranks, and the kernel does not"];
        assert!(expected.iter().any(|words| reason.contains(words)), "{reason}");
    }
}

#[test]
fn the_c_kernel_is_what_it_declares() {
    // Its softmax takes a sink as one more score; the reference adds it at the end.
    agrees_with(&C, "ref:naive", |problem| problem.sinks.is_none());
}

#[test]
fn the_cpp_kernel_is_what_it_declares() {
    agrees_with(&CPP, "ref:aligned,softmax.block=32", |_| true);
}

#[test]
fn two_libraries_that_differ_in_the_last_bit() {
    let attention = pair(implementation(&C), implementation(&CPP), Mode::Enclosure);
    let statistics = campaign(&attention, 200, |_| true);
    assert_eq!((statistics.of(Kind::Fault), statistics.of(Kind::Inaccurate)), (0, 0), "{statistics:?}");
    assert!(statistics.of(Kind::Mismatch) > 10, "{statistics:?}");
    let found = first(&attention, 200, |_, finding| finding.signature() == "mismatch o").expect("a mismatch");
    let small = shrunk(&attention, &found);
    // A few keys are enough for weights that are divided before or after the product with V.
    assert!(small.trial.case.problem.sequences.iter().all(|it| it.kv <= 3), "{:?}", small.trial.case.problem.sequences);
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
    let statistics = campaign(&attention, 50, |_| true);
    assert_eq!((statistics.matches, statistics.of(Kind::Inaccurate)), (0, 0), "{statistics:?}");
    let found = first(&attention, 50, |_, finding| finding.kind() == Kind::Fault).expect("a fault");
    let Finding::Fault { fault: Fault::Broken { breakage, detail }, .. } = shrunk(&attention, &found).finding else {
        panic!("{:?}", found.finding)
    };
    assert_eq!(breakage, Breakage::WroteOutside);
    let (f32, bf16) = (
        "changed 4 bytes past the end of `o` (f32 [1, 1, 1]), 1 to 4 bytes past it",
        "changed 2 bytes past the end of `o` (bf16 [1, 1, 1]), 1 to 2 bytes past it",
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
    let statistics = campaign(&attention, 60, |_| true);
    assert_eq!((statistics.failed, statistics.matches), (0, 0), "{statistics:?}");
    assert!(statistics.skips.keys().any(|reason| reason.contains("no luck")), "{statistics:?}");
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
        assert!(detail.ends_with(", 5 to 12 bytes before it"), "{detail}");
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
    with("broken_info", &format!("{VERSION}\n{broken}\n{VARLEN}"), "lastbit_kernel_info: `kernel` is no JSON: ");
    let misspelt = info(r#", "fromats": ["f32"]"#);
    let expected = "lastbit_kernel_info: unknown field `fromats`; did you mean `formats`?";
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

/// Each argument arrives under its own name: the library prints all of them, and fails with that text.
#[test]
fn what_reaches_a_library() {
    let print = r#"
        #include <stdio.h>
        static int at;
        static void put(char *text, const char *name, const lastbit_tensor *t) {
          at += sprintf(text + at, " %s", name);
          if (!t->data) { at += sprintf(text + at, "=none"); return; }
          at += sprintf(text + at, ":%d/%d[", t->dtype.code, t->dtype.bits);
          for (int n = 0; n < t->ndim; n++) at += sprintf(text + at, "%s%d", n ? "," : "", (int)t->shape[n]);
          at += sprintf(text + at, "]=");
          if (t->dtype.bits == 8) at += sprintf(text + at, "%02x", *(unsigned char *)t->data);
          else if (t->dtype.bits == 16) at += sprintf(text + at, "%04x", *(unsigned short *)t->data);
          else if (t->dtype.code == LASTBIT_INT) at += sprintf(text + at, "%d", *(int *)t->data);
          else at += sprintf(text + at, "%g", *(float *)t->data);
        }
        static void put_attributes(char *text, const lastbit_attributes *a) {
          at = sprintf(text, "%d %d/%d/%d/%d scale=%g softcap=%g window=%d,%d causal=%d block_q=%d context=%d,%d,%d",
            a->struct_size == sizeof *a, (int)a->q_heads, (int)a->kv_heads, (int)a->d_qk, (int)a->d_v, a->softmax_scale, a->softcap,
            (int)a->window_left, (int)a->window_right, a->causal, a->block_q, a->context_ranks, a->context_shards,
            (int)a->context_length);
          put(text, "sinks", &a->sinks);
          put(text, "slopes", &a->alibi_slopes);
          put(text, "k_scales", &a->k_scales);
          put(text, "v_scales", &a->v_scales);
          for (uint64_t n = 0; n < a->knob_count; n++) at += sprintf(text + at, " %s=%s", a->knobs[n].name, a->knobs[n].value);
        }
        #define PUT(name) put(args->error, #name, &args->name)
        int32_t lastbit_varlen(const lastbit_varlen_args *args) {
          put_attributes(args->error, args->attributes);
          PUT(q); PUT(k); PUT(v); PUT(cu_seqlens_q); PUT(cu_seqlens_k); PUT(o); PUT(lse);
          return args->struct_size == sizeof *args ? LASTBIT_FAILED : 99;
        }
        int32_t lastbit_dense(const lastbit_dense_args *args) {
          at = sprintf(args->error, "padding=%d", (int)args->padding);
          PUT(q); PUT(k); PUT(v); PUT(lengths_q); PUT(lengths_kv); PUT(o); PUT(lse);
          return args->struct_size == sizeof *args ? LASTBIT_FAILED : 99;
        }
        int32_t lastbit_paged(const lastbit_paged_args *args) {
          at = 0;
          PUT(q); PUT(k_cache); PUT(v_cache); PUT(block_table); PUT(cache_rows); PUT(cache_seqlens); PUT(cu_seqlens_q);
          PUT(prefix_lens); PUT(o); PUT(lse);
          return args->struct_size == sizeof *args ? LASTBIT_FAILED : 99;
        }"#;
    let kernel = load(&library("prints", &format!("{VERSION}\n{}\n{print}", info(""))));
    let heard = |result: Result<(), KernelError>| match result {
        Err(KernelError::Failed(text)) => text,
        other => panic!("{other:?}"),
    };
    let tensor = |dtype: Dtype, dims: &[usize], value: f32| Tensor::filled(dtype, dims, dtype.round_f32(value));
    let (mut o, mut lse) = (tensor(Dtype::F32, &[2, 4, 3], 8.0), tensor(Dtype::F32, &[2, 4], 9.0));
    let knobs = [("num_splits".to_owned(), "2".to_owned()), ("threads".to_owned(), "1".to_owned())];
    let mut attributes = Attributes {
        q_heads: 4,
        kv_heads: 2,
        d_qk: 5,
        d_v: 3,
        softmax_scale: 0.25,
        mask: Mask { causal: None, window_left: Some(7), window_right: None },
        softcap: None,
        sinks: None,
        alibi_slopes: Some(&[0.5; 4]),
        block_q: 64,
        kv_scales: Some(KvScales { k: &[1.5], v: &[2.5, 3.5] }),
        context: Some(ContextParallel { ranks: 2, shards: Shards::Zigzag, length: 12 }),
        out_dtype: Dtype::F32,
        knobs: &knobs,
    };
    let (q, k, v) =
        (tensor(Dtype::F16, &[2, 4, 5], 1.0), tensor(Dtype::E4M3, &[6, 2, 5], 2.0), tensor(Dtype::E5M2, &[6, 2, 3], 4.0));
    let call = VarlenCall { attributes: &attributes, q: &q, k: &k, v: &v, cu_seqlens_q: &[0, 2], cu_seqlens_k: &[0, 6] };
    let expected = "1 4/2/5/3 scale=0.25 softcap=nan window=7,-1 causal=0 block_q=64 context=2,1,12 sinks=none slopes:2/32[4]=0.5 \
                    k_scales:2/32[1]=1.5 v_scales:2/32[2]=2.5 num_splits=2 threads=1 q:2/16[2,4,5]=3c00 k:10/8[6,2,5]=40 \
                    v:12/8[6,2,3]=44 cu_seqlens_q:0/32[2]=0 cu_seqlens_k:0/32[2]=0 o:2/32[2,4,3]=8 lse:2/32[2,4]=9";
    assert_eq!(heard(kernel.varlen(&call, Outputs { o: &mut o, lse: &mut lse })), expected);

    attributes.mask = Mask { causal: Some(Anchor::TopLeft), window_left: None, window_right: None };
    (attributes.softcap, attributes.sinks, attributes.alibi_slopes) = (Some(30.0), Some(&[0.75; 4][..]), None);
    (attributes.kv_scales, attributes.context, attributes.knobs) = (None, None, &[]);
    let call = VarlenCall { attributes: &attributes, q: &q, k: &k, v: &v, cu_seqlens_q: &[0, 2], cu_seqlens_k: &[0, 6] };
    let text = heard(kernel.varlen(&call, Outputs { o: &mut o, lse: &mut lse }));
    let expected = "1 4/2/5/3 scale=0.25 softcap=30 window=-1,-1 causal=2 block_q=64 context=0,0,0 sinks:2/32[4]=0.75 slopes=none \
                    k_scales=none v_scales=none q:";
    assert!(text.starts_with(expected), "{text}");

    attributes.mask.causal = Some(Anchor::BottomRight);
    let (q, kv) = (tensor(Dtype::BF16, &[1, 2, 4, 5], 1.0), tensor(Dtype::BF16, &[1, 6, 2, 5], 2.0));
    let (mut o, mut lse) = (tensor(Dtype::BF16, &[1, 2, 4, 5], 8.0), tensor(Dtype::F32, &[1, 2, 4], 9.0));
    for (padding, number) in [(Side::Right, 0), (Side::Left, 1)] {
        let call = DenseCall { attributes: &attributes, q: &q, k: &kv, v: &kv, padding, lengths_q: &[2], lengths_kv: &[5] };
        let expected = format!(
            "padding={number} q:4/16[1,2,4,5]=3f80 k:4/16[1,6,2,5]=4000 v:4/16[1,6,2,5]=4000 lengths_q:0/32[1]=2 lengths_kv:0/32[1]=5 \
             o:4/16[1,2,4,5]=4100 lse:2/32[1,2,4]=9"
        );
        assert_eq!(heard(kernel.dense(&call, Outputs { o: &mut o, lse: &mut lse })), expected);
    }

    let q = tensor(Dtype::BF16, &[2, 4, 5], 1.0);
    let (mut o, mut lse) = (tensor(Dtype::BF16, &[2, 4, 5], 8.0), tensor(Dtype::F32, &[2, 4], 9.0));
    let table = BlockTable { pages: &[11, 12], width: 2 };
    for (block_table, cache_rows, words) in [
        (Some(table), &[][..], "block_table:0/32[1,2]=11 cache_rows=none"),
        (None, &[13][..], "block_table=none cache_rows:0/32[1]=13"),
    ] {
        let (cache_seqlens, cu_seqlens_q, prefix_lens) = (&[3][..], &[0, 2][..], &[1][..]);
        let attributes = &attributes;
        let call = PagedCall {
            attributes,
            q: &q,
            k_cache: &kv,
            v_cache: &kv,
            block_table,
            cache_rows,
            cache_seqlens,
            cu_seqlens_q,
            prefix_lens,
        };
        let expected = format!(
            "q:4/16[2,4,5]=3f80 k_cache:4/16[1,6,2,5]=4000 v_cache:4/16[1,6,2,5]=4000 {words} cache_seqlens:0/32[1]=3 \
             cu_seqlens_q:0/32[2]=0 prefix_lens:0/32[1]=1 o:4/16[2,4,5]=4100 lse:2/32[2,4]=9"
        );
        assert_eq!(heard(kernel.paged(&call, Outputs { o: &mut o, lse: &mut lse })), expected);
    }
}

/// A form or feature reaches the library only if it lists it: it may be older than they are. Cases are drawn within what it lists, so the
/// calls are made here.
#[test]
fn what_is_not_listed_does_not_reach_the_library() {
    let info = info(r#", "forms": ["varlen", "dense_right"], "features": ["causal"]"#);
    let ends = "{ (void)args; abort(); }";
    let source = format!(
        "{VERSION}\n{info}\n#include <stdlib.h>\nint32_t lastbit_varlen(const lastbit_varlen_args *args) {ends}\n\
         int32_t lastbit_dense(const lastbit_dense_args *args) {ends}\nint32_t lastbit_paged(const lastbit_paged_args *args) {ends}"
    );
    let kernel = load(&library("lists_little", &source));
    let plain = Attributes {
        q_heads: 1,
        kv_heads: 1,
        d_qk: 1,
        d_v: 1,
        softmax_scale: 1.0,
        mask: Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
        softcap: None,
        sinks: None,
        alibi_slopes: None,
        block_q: 1,
        kv_scales: None,
        context: None,
        out_dtype: Dtype::F32,
        knobs: &[],
    };
    let refused = |result: Result<(), KernelError>, expected: &str| {
        assert_eq!(result, Err(KernelError::Unsupported(expected.into())));
    };
    let row = Tensor::filled(Dtype::F32, &[1, 1, 1], 0);
    let (mut o, mut lse) = (row.clone(), Tensor::filled(Dtype::F32, &[1, 1], 0));
    let window = Mask { window_left: Some(1), ..plain.mask };
    for (attributes, feature) in [
        (Attributes { mask: window, ..plain.clone() }, "a window"),
        (Attributes { sinks: Some(&[0.0]), ..plain.clone() }, "sinks"),
        (Attributes { mask: Mask::default(), ..plain.clone() }, "a mask that is not causal"),
    ] {
        let call =
            VarlenCall { attributes: &attributes, q: &row, k: &row, v: &row, cu_seqlens_q: &[0, 1], cu_seqlens_k: &[0, 1] };
        let outputs = Outputs { o: &mut o, lse: &mut lse };
        refused(kernel.varlen(&call, outputs), &format!("does not implement {feature}"));
    }
    let (attributes, padded) = (&plain, Tensor::filled(Dtype::F32, &[1, 1, 1, 1], 0));
    let call =
        DenseCall { attributes, q: &padded, k: &padded, v: &padded, padding: Side::Left, lengths_q: &[1], lengths_kv: &[1] };
    refused(kernel.dense(&call, Outputs { o: &mut o, lse: &mut lse }), "declares no form `dense_left`");
    let call = PagedCall {
        attributes,
        q: &row,
        k_cache: &padded,
        v_cache: &padded,
        block_table: None,
        cache_rows: &[0],
        cache_seqlens: &[1],
        cu_seqlens_q: &[0, 1],
        prefix_lens: &[0],
    };
    refused(kernel.paged(&call, Outputs { o: &mut o, lse: &mut lse }), "declares no form `contiguous`");
}
