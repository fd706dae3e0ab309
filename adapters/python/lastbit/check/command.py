"""The command: what is tried, and a table of how it went."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from .. import frame
from .child import Broken, Child, command_of
from .problem import Laid
from .trials import Trial, plain, trials

_COLOURS = {"ok": "32", "refused": "33", "not tried": "33", "differs": "33", "wrong": "31", "failed": "31", "broken": "31"}
_BAD = ("wrong", "failed", "broken")


class Paper:
    """Where the table goes, in colour on a terminal."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.counts: Counter[str] = Counter()
        self._group = ""

    def line(self, group: str, name: str, outcome: str, note: str = "") -> None:
        """One trial."""
        self.counts[outcome] += 1
        shown = outcome.ljust(9)
        if self._colour:
            shown = f"\x1b[{_COLOURS[outcome]}m{shown}\x1b[0m"
        first, *rest = note.splitlines() or [""]
        print(f"  {(group if group != self._group else ''):<10} {name:<26} {shown} {first}".rstrip(), flush=True)
        for more in rest:
            print(f"  {'':<10} {'':<26}   {more}")
        self._group = group


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command and ends the process: 0 if all went well, 1 if not, 2 for a command that makes no sense."""
    parser = argparse.ArgumentParser(
        prog="lastbit-check",
        description="Starts a kernel as lastbit would and tries small calls of what it declares against a reference in f64. "
        "A smoke test: `lastbit probe` is what judges a kernel.",
    )
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for the start and for each call (120)")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="my_kernel.py [argument ...]", help="a script, or another program"
    )
    given = parser.parse_args(arguments)
    words = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not words:
        parser.error("name the kernel: lastbit-check my_kernel.py")
    if words[0].endswith(".py") and not os.path.isfile(words[0]):
        parser.error(f"{words[0]}: no such file")
    python = ["python"] if words[0].endswith(".py") else []
    sys.exit(check(command_of(words), given.timeout, shlex.quote(f"process:{shlex.join([*python, *words])}")))


def check(command: Sequence[str], seconds: float, name: str) -> int:
    """Tries everything. The exit code. ``name`` is the kernel's on lastbit's command line."""
    try:
        child = Child(command, seconds)
    except OSError as error:
        print(f"cannot start {' '.join(command)}: {error}", file=sys.stderr)
        return 2
    try:
        welcome = _greet(child)
    except Broken as broken:
        child.kill()
        print(f"no welcome from {' '.join(command)}: {broken}", file=sys.stderr)
        return 1
    _introduce(welcome)
    paper = Paper()
    _repeat(child, welcome, paper)
    for trial in trials(welcome):
        try:
            outcome, note = _try(child, trial, welcome)
        except Broken as broken:
            outcome, note = "broken", str(broken)
            child.kill()
        paper.line(trial.group, trial.name, outcome, note)
        if outcome == "broken":
            child = Child(command, seconds)
            try:
                _greet(child)
            except Broken as again:
                child.kill()
                paper.line("start", "a second time", "broken", str(again))
                return _close(paper, name)
    if ending := child.end():
        paper.line("end", "goodbye", "failed", ending)
    return _close(paper, name)


def _greet(child: Child) -> dict[str, Any]:
    answer = child.ask(frame.HELLO, {"versions": str(frame.VERSION)})
    if answer.kind != frame.WELCOME:
        raise Broken(answer.body.metadata.get("reason", f"a frame of kind {answer.kind}"))
    welcome: dict[str, Any] = json.loads(answer.body.metadata["kernel"])
    return welcome


def _introduce(welcome: Mapping[str, Any]) -> None:
    who = welcome["identity"]
    print(f"{who['name']} {who['version']} on {who['device']}")
    for name, value in who.get("details", {}).items():
        print(f"  {name}: {value}")
    print(f"  digest: {who.get('digest')}")
    writes = (
        "guards around outputs are checked"
        if welcome.get("guarded")
        else "writes outside outputs are not seen (no function takes out=)"
    )
    print(f"  {'returns lse' if welcome.get('lse', True) else 'no lse'}; {writes}")
    for field in ("conventions", "numerics"):
        if welcome.get(field):
            print(f"  {field}: " + ", ".join(f"{name}={value}" for name, value in welcome[field].items()))
    print(
        "\nTried with small calls against f64; error as a share of what rounding in the storage format and sums in f32 explain:"
    )


def _repeat(child: Child, welcome: Mapping[str, Any], paper: Paper) -> None:
    """The plainest call twice. Unlike bits are worth knowing, and no fault."""
    laid = Laid(plain(welcome))
    try:
        first, second = (child.ask(frame.CALL, *laid.request()) for _ in range(2))
    except Broken:
        return  # the same call is the first trial below, which says so
    if first.kind != frame.RESULT or second.kind != frame.RESULT:
        return
    same = all(
        first.body.tensors[name].array.tobytes() == second.body.tensors[name].array.tobytes() for name in first.body.tensors
    )
    paper.line(
        "repeat",
        "the same call twice",
        "ok" if same else "differs",
        "the same bits" if same else "other bits: it is not deterministic",
    )


def _try(child: Child, trial: Trial, welcome: Mapping[str, Any]) -> tuple[str, str]:
    if trial.problem is None:
        return "not tried", trial.why
    laid = Laid(trial.problem)
    answer = child.ask(frame.CALL, *laid.request())
    if answer.kind == frame.RESULT:
        share, wrong = laid.look(answer.body, welcome.get("conventions", {}), bool(welcome.get("lse", True)))
        return ("wrong", wrong) if wrong else ("ok", f"{share:.2g}")
    reason = answer.body.metadata.get("reason", "")
    if answer.kind == frame.UNSUPPORTED:
        return ("failed", f"declared, but refused: {reason}") if trial.declared else ("refused", reason)
    trace = answer.body.metadata.get("trace", "").rstrip()
    breakage = answer.body.metadata.get("breakage")
    return "failed", reason + (f" ({breakage})" if breakage else "") + (f"\n{trace}" if trace else "")


def _close(paper: Paper, name: str) -> int:
    print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in paper.counts.items()))
    if any(paper.counts[outcome] for outcome in _BAD):
        return 1
    print(f"This was a smoke test. To judge the kernel: lastbit probe {name}")
    return 0
