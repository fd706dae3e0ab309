"""``lastbit-check``: what works says so, and each way to be wrong is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXTBOOK = Path(__file__).resolve().parent.parent / "kernels" / "numpy_textbook.py"


def check(*words: object, timeout: float = 300) -> tuple[int, str]:
    command = [sys.executable, "-m", "lastbit.check", "--timeout", str(timeout), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1000, env={**os.environ, "COLUMNS": "80"})
    return done.returncode, done.stdout + done.stderr


def test_the_textbook_kernel_does_what_it_declares():
    code, text = check(TEXTBOOK)
    assert code == 0, text
    for line in ("paged ", "bf16 ", "alibi ", "fp8_kv e5m2 ", "workspace=dirty ", "rows that see no key"):
        assert any(line in it and " ok " in it for it in text.splitlines()), (line, text)
    assert "\x1b" not in text and "lastbit probe" in text


def planted(old: str, new: str) -> str:
    text = TEXTBOOK.read_text()
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "trial"),
    [
        ("call.mask()", "np.tri(call.rows, call.keys, dtype=bool)", "causal "),
        ("call.mask()", "(call.mask() | (np.arange(call.keys) < 1)) if call.window_left else call.mask()", "window "),
        ("np.float32(call.softmax_scale)", "np.float32(0.1)", "varlen "),
        ("np.repeat(call.v, call.gqa, axis=1)", "np.tile(call.v, (1, call.gqa, 1))", "grouped_heads 4:2 "),
        ("if call.softcap is not None", "if False", "softcap "),
        ("        l += np.exp(call.sinks[:, None, None] - m)\n", "        pass\n", "sinks "),
        ("return o.transpose(1, 0, 2), lse.T", "return o.transpose(1, 0, 2), lse.T / np.float32(np.log(2))", "varlen "),
        ("return o.transpose(1, 0, 2), lse.T", "o = o.transpose(1, 0, 2); o[-1] = 0; return o, lse.T", "bf16 "),
        ("return o.transpose(1, 0, 2), lse.T", "return o.transpose(1, 0, 2), lse", "failed "),
        (
            "def attention(call):",
            "def attention(call):\n    if call.alibi_slopes is not None: raise lastbit.Unsupported('no slopes')",
            "alibi ",
        ),
        (
            "def attention(call):",
            "def attention(call):\n    if call.keys == 130:\n        import os\n        os._exit(7)",
            "exit code 7",
        ),
    ],
)
def test_what_is_wrong_is_found(script, old, new, trial):
    code, text = check(script(planted(old, new)))
    assert code == 1, text
    bad = [line for line in text.splitlines() if any(f" {word} " in line for word in ("wrong", "failed", "broken"))]
    assert any(trial in line for line in bad), text


def test_a_mask_that_is_wrong_is_found_in_bf16_alone(script):
    text = planted("call.mask()", "np.tri(call.rows, call.keys, dtype=bool)").replace('["f32", "f16", "bf16"]', '["bf16"]')
    code, text = check(script(text))
    assert code == 1 and any("causal " in line and " wrong " in line for line in text.splitlines()), text


def test_what_is_not_declared_may_be_refused(script):
    code, text = check(
        script("""
        import lastbit, numpy as np
        kernel = lastbit.Kernel("modest", lse=False)
        @kernel.sequence
        def f(call):
            raise lastbit.Unsupported("too hot")
        kernel.run()
    """)
    )
    assert code == 1, text  # its call forms are declared
    assert "declared, but refused: too hot" in text and " refused   too hot" in text


def test_kernels_that_do_not_start(script):
    for text, reason in [
        ("import os\nprint('hello', flush=True)\nimport lastbit", "came over stdout where a frame should"),
        ("raise SystemExit('bad weather')", "bad weather"),
        ("import sys\nsys.exit(0)", "ended with exit code 0"),
    ]:
        code, said = check(script(text))
        assert code == 1 and reason in said, said
    code, said = check(script("import time\ntime.sleep(60)"), timeout=0.5)
    assert code == 1 and "no answer within 0.5 s" in said


def test_commands_that_make_no_sense(tmp_path):
    assert check()[0] == 2
    code, said = check(tmp_path / "nowhere.py")
    assert code == 2 and "no such file" in said
    code, said = check("--", tmp_path / "nowhere")
    assert code == 2 and "cannot start" in said
