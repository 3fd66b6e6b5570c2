"""Fixtures and settings that all tests share."""

import contextlib
import gc
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from graphfeed.loader.executors.process_executor import make_context
from graphfeed.ops import seed
from graphfeed.testing import limits
from tests.stand_ins.devices import GPUS, Cpu, Device, gpu_of
from tests.stand_ins.emulated_cuda import Cuda
from tests.stand_ins.programs import warm

REPOSITORY = Path(__file__).resolve().parents[1]
MEMORY = Path("/dev/shm")
DISK = Path("/var/tmp")

settings.register_profile(
    "repeatable",
    derandomize=True,
    max_examples=20,
    deadline=None,  # a kernel is compiled by the first example that needs it
    suppress_health_check=[HealthCheck.too_slow],  # for the same reason
)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=10)
# The examples of `make test-all` differ each time, and a failure prints how to reproduce its example.
settings.register_profile(
    "random", settings.get_profile("repeatable"), derandomize=False, max_examples=500, print_blob=True
)
settings.register_profile("unshrunk", settings.get_profile("repeatable"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("repeatable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts jobs in the background that way, and the programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Keep temporary folders in memory if there is space: on a busy disk, tests of files take eight times as long.

    Tests of disks use `disk_path` instead.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
        folder = MEMORY / f"tests-of-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.environ.setdefault("TMPDIR", str(folder))
        tempfile.tempdir = None  # it may have been read before


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Start two processes per core, because tests wait for others half of the time; each uses up to 1.5 GB."""
    cores = os.cpu_count() or 1
    if not hasattr(os, "sysconf"):
        return cores
    return max(1, min(2 * cores, 8, (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30) // 3))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collection: the objects of 500 files stay, and take long to traverse."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in the docstrings of the package, not of the tests."""
    return [found for found in (yield) if type(found) is pytest.Module]


def parameters_of(item: pytest.Item) -> Iterable[object]:
    """Return the values with which a test is called."""
    called = getattr(item, "callspec", None)
    return called.params.values() if called else ()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that compile CUDA, or kernels twice; begin with the longest ones if processes share the tests.

    Kernels for ids of 32 bits are compiled in addition to those for 64, which takes as long as all their tests. Tests
    that need a GPU are skipped if there is none.
    """
    for item in items:
        if any(value is torch.int32 for value in parameters_of(item)):
            item.add_marker("thorough")
        if item.path.stem.endswith("_cuda"):
            item.add_marker("compile")
    if not torch.cuda.is_available():
        on_gpus = [item for item in items if item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=on_gpus)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a newer torch."""
    if (since := item.get_closest_marker("since_torch")) and torch.__version__ < since.args[0]:
        pytest.skip(f"torch {since.args[0]} is needed")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Start each test from the same state of torch's generator, which also determines unseeded draws."""
    torch.manual_seed(0)
    seed(None)


@pytest.fixture
def small_is_shared() -> Iterator[None]:
    """Store arrays of any size in shared memory."""
    with limits(shared_bytes=1):
        yield


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Return a temporary folder on a disk; `tmp_path` may be in memory."""
    with tempfile.TemporaryDirectory(dir=DISK if DISK.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real graphs; skip the test if it does not exist."""
    folder = Path(os.environ.get("GRAPHFEED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder of real graphs at {folder}; set GRAPHFEED_DATA to one")
    return folder


@pytest.fixture(scope="module", params=GPUS)
def cuda(request: pytest.FixtureRequest) -> Cuda:
    """Return a GPU, or an emulated one."""
    return gpu_of(request.param)


@pytest.fixture(scope="module", params=["cpu", *GPUS])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the CPU, a GPU, or an emulated GPU."""
    return Cpu() if request.param == "cpu" else gpu_of(request.param)


class Resources:
    """System resources of a process: threads, children, open files, shared memory."""

    def __init__(self) -> None:
        gc.collect()
        multiprocessing.active_children()  # reaps those that have ended
        self.held = Counter(f"thread {thread.name}" for thread in threading.enumerate())
        self.held.update(f"child {child}" for child in children())
        self.held.update(f"file {name}" for name in open_files())
        self.held.update(f"shared memory {path}" for path in own_shared_memory())

    def since(self, before: "Resources") -> list[str]:
        """Return the resources that were acquired, and not released."""
        return sorted((self.held - before.held).elements())


def own_shared_memory() -> Iterator[Path]:
    """Return named shared memory that this process may have created; others may create more at any time.

    Names of graphs in tests contain the process id.
    """
    for path in Path("/dev/shm").glob("*"):
        of_graphfeed = "graphfeed" in path.name and not path.name.startswith("graphfeed.")
        if of_graphfeed or str(os.getpid()) in path.name:
            yield path


def children() -> Iterator[str]:
    """Return the names of this process's children."""
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            yield from path.read_text().split()


def open_files() -> Iterator[str]:
    """Return the targets of the open file descriptors; all sockets, and all pipes, look the same."""
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor that lists the folder
            yield os.readlink(path).partition(":")[0]


@pytest.fixture(scope="module")
def fork_server() -> None:
    """Start the processes that live as long as this one after the first worker process."""
    make_context("forkserver")
    forkserver.ensure_running()


@pytest.fixture(scope="session")
def warm_programs() -> None:
    """Start the process that forks programs, which stays alive, before a test checks what it leaves behind."""
    warm()


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Fail a test that leaves a signal handler behind, which would swallow the interrupts of later tests."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves threads, processes, open files or shared memory behind."""
    if request.node.get_closest_marker("gpu"):
        torch.ones(1, device="cuda")  # CUDA opens its own files, once
    # It lives as long as the interpreter, after the first use of shared memory.
    resource_tracker.ensure_running()
    before = Resources()
    gc.freeze()  # in a long run, traversing the objects that outlive a test takes half a second each time
    yield
    gc.collect()  # ends loaders that are no longer referenced
    give_up = time.monotonic() + 20  # an ending thread or process may need a moment
    while (left := Resources().since(before)) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not left, f"left behind: {left}"
