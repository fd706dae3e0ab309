//! Kernels in Python that are not what they declare: `fuzz` finds it, and `probe` says what they are instead.

mod binary;

use binary::{Folder, code, last_json, python, repository, stderr, stdout};
use serde_json::Value;
use std::process::Output;

/// Softmax attention of one sequence in numpy; `{visible}` says which keys a row sees.
const ATTENTION: &str = r#"
def attend(q, k, v, softmax_scale, visible):
    scores = np.einsum("ihd,jhd->hij", q, k) * np.float32(softmax_scale)
    scores = np.where(visible, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", weights / weights.sum(axis=-1, keepdims=True), v)
"#;

/// Declares the bottom-right mask and applies the top-left one: `np.tri` without its offset.
const TOP_LEFT: &str = r#"
kernel = lastbit.Kernel("liar", version="1", formats=["f32"], features=["causal"], lse=False, empty_sequences=False)


@kernel.sequence
def attention(call):
    return attend(call.q, call.k, call.v, call.softmax_scale, np.tri(call.rows, call.keys, dtype=bool))
"#;

/// Declares f16 and has its results in bf16 before they are stored.
const BF16: &str = r#"
kernel = lastbit.Kernel("liar", version="1", formats=["f16"], features=["not_causal"], lse=False, empty_sequences=False)


@kernel.sequence
def attention(call):
    o = attend(call.q, call.k, call.v, call.softmax_scale, True)
    return lastbit.widen(lastbit.narrow(o, "bf16"), "bf16")
"#;

/// Right in every element of its output, and writes one more behind it where sequences are packed.
const OUTSIDE: &str = r#"
kernel = lastbit.Kernel("liar", version="1", formats=["f32"], features=["not_causal"], lse=False, empty_sequences=False)


@kernel.paged
def paged(call, *, out):
    out[...] = call.assemble([attend(q, k, v, call.softmax_scale, True) for q, k, v in call.sequences()])


@kernel.varlen
def varlen(call, *, out):
    paged(call, out=out)
    np.lib.stride_tricks.as_strided(out, (out.size + 1,), (out.itemsize,))[-1] = 0
"#;

struct Liar {
    folder: Folder,
    words: String,
}

impl Liar {
    /// Writes the kernel; `None` where there is no Python.
    fn new(kernel: &str) -> Option<Self> {
        let python = python()?;
        let folder = Folder::new();
        let text = format!("import numpy as np\n\nimport lastbit\n\n{ATTENTION}\n{kernel}\n\nkernel.run()\n");
        std::fs::write(folder.path("liar.py"), text).expect("written");
        Some(Liar { folder, words: format!("process:{} liar.py", shell_words::quote(&python)) })
    }

    fn lastbit(&self, arguments: &[&str]) -> Output {
        let mut command = self.folder.command(arguments);
        command.env("PYTHONPATH", repository("adapters/python")).env("OMP_NUM_THREADS", "1");
        command.output().expect("the binary runs")
    }

    /// What `fuzz` prints about the first finding, made small, with the kernel on one side.
    fn fuzz(&self, side: &str) -> String {
        let output = self.lastbit(&["fuzz", "--cases", "40", "--profile", "quick", side, &self.words]);
        assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    /// The page of a probe as JSON; something stands out in it.
    fn probe(&self) -> Value {
        let output = self.lastbit(&["probe", &self.words, "--cases", "2", "--format", "json"]);
        assert_eq!(code(&output), 1, "{}{}", stdout(&output), stderr(&output));
        last_json(&output)
    }
}

/// The first thing that is wrong: what shows under many declarations is said once.
fn root(page: &Value) -> String {
    page["wrong"][0]["what"].as_str().unwrap_or_else(|| panic!("nothing is wrong: {page}")).to_owned()
}

#[test]
fn a_top_left_mask_declared_bottom_right() {
    let Some(liar) = Liar::new(TOP_LEFT) else { return };
    let text = liar.fuzz("--infer");
    assert!(text.contains(" causal scale=") && text.contains("1 seq (q 1, kv 2)"), "smallest: {text}");
    assert!(text.contains("\nverdict: inaccurate o (infer), 1 of 1 elements beyond their bound\n"), "{text}");
    let cause = "\ncause: semantics: key 1 is valid for row 0 of sequence 0, head 0 (infer), and is not reached (keys reached)\n";
    assert!(text.contains(cause), "{text}");
    let page = liar.probe();
    let what = root(&page);
    assert!(what.starts_with("declares ") && what.ends_with("the results are those of a top-left causal mask"), "{what}");
    let causal = page["declared"].as_array().expect("a list").iter().find(|it| it["what"] == "causal");
    assert_eq!(causal.map(|it| &it["outcome"]), Some(&"wrong".into()), "{page}");
}

#[test]
fn bf16_declared_f16() {
    let Some(liar) = Liar::new(BF16) else { return };
    let text = liar.fuzz("--infer");
    assert!(text.contains("1 seq (q 1, kv 1)"), "smallest: {text}");
    assert!(text.contains("\nverdict: inaccurate o (infer), 1 of 1 elements beyond their bound\n"), "{text}");
    let page = liar.probe();
    let what = root(&page);
    assert!(what.starts_with("declares ") && what.contains(" results are bf16 numbers, so it computes in bf16"), "{what}");
    let page = page.to_string();
    assert!(page.contains("results rounded to bf16 first"), "the recipe: {page}");
}

#[test]
fn a_write_outside_the_output() {
    let Some(liar) = Liar::new(OUTSIDE) else { return };
    let text = liar.fuzz("--train");
    let verdict =
        "\nverdict: fault (train): wrote outside its output: varlen wrote outside out: 1 elements after its end, up to 1 away\n";
    assert!(text.contains(verdict), "{text}");
    assert!(text.contains("1 seq (q 1, kv 1)") && !text.contains("\ncause: "), "{text}");
    let page = liar.probe();
    let what = root(&page);
    assert!(what.starts_with("declares form varlen") && what.contains(": wrote outside its output: "), "{what}");
    // The same fault everywhere is made small once.
    let page = page.to_string();
    assert!(page.contains("wrong-1.case") && !page.contains("wrong-2.case"), "{page}");
}
