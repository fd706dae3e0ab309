"""Shards as Ray tasks, and the joining as one more."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from . import task
from .folder import SHARD, Folder
from .job import Job
from .task import Answer, Binary, Order

# Exit codes with which a shard is done: all match, a finding, something undecided, nothing ran (it has no case). The joining says
# what they come to.
_DONE = (0, 1, 3, 4)

# The exit code where the cluster, and not lastbit, has failed: another try, with the finished shards kept, may do.
CLUSTER_FAILED = 75

# Lines of what lastbit complained of that are shown.
_LINES = 20


@dataclass(frozen=True)
class Resources:
    """Of each task."""

    cpus: float
    gpus: float
    # How often a task whose worker or node was lost is run again.
    retries: int


class Failed(Exception):
    """A task that did not end as it should."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def say(message: str) -> None:
    """Progress, on stderr."""
    print(f"lastbit-ray: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def connected(address: str | None, working_dir: str | None) -> Iterator[None]:
    """In a cluster, or one that is started on this machine."""
    # Nodes have Ray, and nothing of this package.
    cloudpickle.register_pickle_by_value(task)
    environment = {"working_dir": working_dir} if working_dir else None
    ray.init(address=address, runtime_env=environment, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def spread(job: Job, folder: Folder, binary: Any, resources: Resources, shipped: bool) -> None:
    """Runs the shards that are missing. What has ended is kept, also where another fails."""
    missing = folder.missing()
    if len(missing) < folder.shards:
        say(f"{folder.shards - len(missing)} of {folder.shards} shards are there")
    remote = ray.remote(task.run)
    running: dict[Any, int] = {}
    for number in missing:
        order = Order(job.shard(number, folder.shards, SHARD), (SHARD,), shipped)
        reference = _options(remote, resources, f"lastbit shard {number}/{folder.shards}").remote(binary, order, ())
        running[reference] = number
    try:
        while running:
            [reference], _ = ray.wait(list(running), num_returns=1)
            number = running.pop(reference)
            answer = _answer(reference, f"shard {number}/{folder.shards}")
            folder.add(number, answer.files)
            say(f"shard {number}/{folder.shards} done on {answer.node}: {folder.shards - len(running)} of {folder.shards}")
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def join(job: Job, folder: Folder, binary: Any, resources: Resources, shipped: bool) -> Answer:
    """Joins the shards on a node like theirs: what they have found is run again there, with the same kernels."""
    names = [folder.name(number) for number in range(1, folder.shards + 1)]
    inputs = [ray.put(folder.packed(number)) for number in range(1, folder.shards + 1)]
    order = Order(job.merge([f"../{name}" for name in names]), job.kind.results, shipped)
    reference = _options(ray.remote(task.run), resources, "lastbit merge").remote(binary, order, names, *inputs)
    answer = _answer(reference, "merge")
    folder.result(answer.files)
    return answer


def put(binary: Binary) -> Any:
    """The binary in the object store: it is sent to each node once."""
    return ray.put(binary)


def _options(remote: Any, resources: Resources, name: str) -> Any:
    return remote.options(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=resources.retries, name=name)


def _answer(reference: Any, what: str) -> Answer:
    try:
        answer: Answer = ray.get(reference)
    except RayTaskError as error:
        cause = error.cause if hasattr(error, "cause") else error
        raise Failed(f"{what}: {cause}", CLUSTER_FAILED) from error
    except RayError as error:
        raise Failed(f"{what}: its worker was lost too often: {error}", CLUSTER_FAILED) from error
    if answer.code in _DONE:
        return answer
    lines = answer.stderr.strip().splitlines()[-_LINES:]
    how = f"lastbit ended with {answer.code}" if answer.code >= 0 else f"lastbit was ended by signal {-answer.code}"
    message = "\n".join([f"{what}, on node {answer.node}: {how}; the last it said:", *(f"  {line}" for line in lines)])
    raise Failed(message, answer.code if answer.code > 0 else CLUSTER_FAILED)
