"""The command that is spread: what a shard of it runs, and how shards are joined."""

from __future__ import annotations

from dataclasses import dataclass


class UsageError(Exception):
    """The command line, a file, or a folder is not what it should be: exit code 2."""


@dataclass(frozen=True)
class Kind:
    """A lastbit command that has shards."""

    # How the result is named to `lastbit merge`.
    output: tuple[str, str]
    # What the joining writes into the driver's folder.
    results: tuple[str, ...]
    # Options with a value that the joining needs too.
    both: tuple[str, ...] = ()
    # Options with a value that the joining alone takes.
    merge_only: tuple[str, ...] = ()
    # Options that the driver gives, or that a shard cannot have, with what to do instead.
    refused: tuple[tuple[str, str], ...] = ()


_OUT = "the driver gives each shard its own folder, and the result stands in the driver's --out"

KINDS = {
    "certify": Kind(
        output=("--output", "cert.json"),
        results=("cert.json", "cert.json.sig", "cert.cases.jsonl", "counterexamples"),
        both=("--train", "--infer", "--previous"),
        merge_only=("--format", "--floor", "--waivers", "--sign"),
    ),
    "fuzz": Kind(
        output=("--out", "run"),
        results=("run",),
        both=("--train", "--infer"),
        merge_only=("--format",),
        refused=(("--time", "shards end at a case, not at a time; give --cases"),),
    ),
    "power": Kind(
        output=("--output", "power.json"),
        results=("power.json",),
        merge_only=("--floor",),
        refused=(
            ("--json", "the driver writes power.json into its --out"),
            ("--list", "it runs nothing; run lastbit power --list"),
        ),
    ),
}

_REFUSED = (
    ("--shard", "the driver gives it"),
    ("--resume", "the driver runs only the shards that are not in its --out"),
    ("--out", _OUT),
    ("--output", _OUT),
    ("-o", _OUT),
)

# Without a value, for all commands: what a kernel from outside may do.
_FLAGS = ("--trust", "--accept-changed")


@dataclass(frozen=True)
class Job:
    """A lastbit command, taken apart."""

    command: str
    # Of every shard, without --shard and --out.
    shard_arguments: tuple[str, ...]
    # Of the joining, without the folders and the output.
    merge_arguments: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        return KINDS[self.command]

    def shard(self, number: int, of: int, folder: str) -> list[str]:
        """The command line of a shard, counted from 1."""
        return [self.command, *self.shard_arguments, "--shard", f"{number}/{of}", "--out", folder]

    def merge(self, folders: list[str]) -> list[str]:
        """The command line that joins all shards."""
        return ["merge", *folders, *self.kind.output, *self.merge_arguments]


def parse(words: list[str], cpus: int) -> Job:
    """Takes a lastbit command line apart; `cpus` is the number of threads where it names none."""
    if not words:
        raise UsageError(f"no command: give one of {', '.join(KINDS)} after --, e.g. -- fuzz --cases 100000")
    command, rest = words[0], words[1:]
    if command not in KINDS:
        raise UsageError(f"{command}: has no shards; give one of {', '.join(KINDS)} after --")
    kind = KINDS[command]
    refused = dict(_REFUSED + kind.refused)
    shard: list[str] = []
    merge: list[str] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        name, given, _ = word.partition("=")
        if name in refused:
            raise UsageError(f"{name}: not with the driver: {refused[name]}")
        own = [word]
        if not given and name in kind.both + kind.merge_only and at + 1 < len(rest):
            own.append(rest[at + 1])
        if name in kind.both + kind.merge_only + _FLAGS:
            merge += own
        if name not in kind.merge_only:
            shard += own
        at += len(own)
    if not any(word.partition("=")[0] == "--jobs" for word in rest):
        shard += ["--jobs", str(cpus)]
    return Job(command, tuple(shard), tuple(merge))
