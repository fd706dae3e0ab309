"""The command line."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import shutil
import sys
from pathlib import Path

from .job import Job, UsageError, parse
from .task import Binary

_USAGE = 2

_ABOUT = """Spreads the shards of a lastbit job over a Ray cluster and joins them into what one run writes, in --out. Shards whose
worker or node is lost are run again elsewhere; run the same command again to go on after the driver was stopped. The exit code is
that of lastbit."""


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text}: must be a number from 0 on")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lastbit_ray",
        description=_ABOUT,
        usage="%(prog)s --shards N --out DIR [options] -- COMMAND [lastbit's options]",
    )
    parser.add_argument(
        "--shards", type=_count, required=True, metavar="N", help="parts; some times the workers, so that a lost one costs little"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the finished shards and of the result")
    parser.add_argument("--address", metavar="A", help="the cluster, e.g. auto; without it, one is started on this machine")
    parser.add_argument("--cpus", type=_count, default=1, metavar="C", help="CPUs, and threads, of each shard (default 1)")
    parser.add_argument("--gpus", type=_share, default=0.0, metavar="G", help="GPUs of each shard (default 0)")
    parser.add_argument(
        "--retries", type=int, default=3, metavar="R", help="times that a lost shard is run again (default 3; -1: always)"
    )
    parser.add_argument("--lastbit", metavar="PATH", help="the binary that is sent to the nodes (default: lastbit on the PATH)")
    parser.add_argument("--installed", metavar="PATH", help="do not send it: it stands at PATH on every node; needs --sha256")
    parser.add_argument("--sha256", metavar="HEX", help="what the binary must be")
    parser.add_argument(
        "--working-dir", metavar="DIR", help="files that the kernels need: sent to the nodes, and lastbit runs beside them"
    )
    return parser


def _binary(arguments: argparse.Namespace) -> Binary:
    sha256 = arguments.sha256.lower() if arguments.sha256 else None
    if arguments.installed:
        if arguments.lastbit or sha256 is None:
            raise UsageError("--installed: needs --sha256, and no --lastbit beside it")
        return Binary(sha256, path=arguments.installed)
    path = arguments.lastbit or shutil.which("lastbit")
    if path is None:
        raise UsageError("--lastbit: there is no lastbit on the PATH; name the binary")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"--lastbit {path}: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, found):
        raise UsageError(f"--lastbit {path}: its SHA-256 is {found}, --sha256 asks for {sha256}")
    return Binary(found, content=content)


def main(words: list[str] | None = None) -> int:
    """Runs the command line; gives the exit code."""
    words = sys.argv[1:] if words is None else words
    own, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    arguments = _parser().parse_args(own)
    try:
        job = parse(command, arguments.cpus)
        return _run(arguments, job, _binary(arguments))
    except UsageError as error:
        print(f"lastbit-ray: {error}", file=sys.stderr)
        return _USAGE


def _run(arguments: argparse.Namespace, job: Job, binary: Binary) -> int:
    # Late: without a cluster to reach, the command line is still judged.
    from . import cluster
    from .folder import Folder

    folder = Folder(arguments.out, job, arguments.shards, binary.sha256)
    resources = cluster.Resources(arguments.cpus, arguments.gpus, arguments.retries)
    shipped = arguments.working_dir is not None
    try:
        # Ray tells of lost workers on stdout, which is for the result.
        with contextlib.redirect_stdout(sys.stderr), cluster.connected(arguments.address, arguments.working_dir):
            placed = cluster.put(binary)
            cluster.spread(job, folder, placed, resources, shipped)
            answer = cluster.join(job, folder, placed, resources, shipped)
    except cluster.Failed as failure:
        print(f"lastbit-ray: {failure}", file=sys.stderr)
        return failure.code
    sys.stderr.write(answer.stderr)
    sys.stdout.write(answer.stdout)
    cluster.say(f"in {arguments.out}: {', '.join(job.kind.results)}")
    return answer.code
