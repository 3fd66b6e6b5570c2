"""`import graphfeed` gives names and does nothing else."""

import json
import subprocess
import sys
from typing import Any

import pytest

# The dependencies come first: what they do on import is not ours.
pytestmark = pytest.mark.slow
PROGRAM = """
import json, logging, multiprocessing, os, random, signal, sys, threading, warnings
import numpy, torch

def state():
    return {
        "environment": dict(os.environ),
        "module path": list(sys.path),
        "threads": [thread.name for thread in threading.enumerate()],
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "torch defaults": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "sharing strategy": torch.multiprocessing.get_sharing_strategy(),
        "warnings": repr([warnings.formatwarning, warnings.showwarning, warnings.filters]),
        "logging": repr(logging.getLogger().handlers),
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "random numbers": [
            repr(random.getstate()), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
        ],
        "files": sorted(os.listdir("/proc/self/fd")),
    }

before, loaded = state(), set(sys.modules)
import graphfeed
after = state()
changed = [name for name in before if before[name] != after[name]]
modules = sorted(set(sys.modules) - loaded)
print(json.dumps({"changed": changed, "modules": modules}))
"""

OPTIONAL_OR_SLOW = {
    "cupy",
    "graphfeed.channels",
    "graphfeed.distributed",
    "graphfeed.ingest",
    "graphfeed.interop",
    "graphfeed.pyg",
    "matplotlib",
    "pandas",
    "pyarrow",
    "scipy",
    "torch._dynamo",
    "torchdata",
}


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Return what a fresh interpreter saw."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_it_changes_nothing(report: dict[str, Any]) -> None:
    assert report["changed"] == []


def test_it_imports_no_compiler(report: dict[str, Any]) -> None:
    assert {"llvmlite", "numba"}.isdisjoint(report["modules"])


def test_it_loads_nothing_that_few_need_or_all_wait_for(report: dict[str, Any]) -> None:
    assert OPTIONAL_OR_SLOW.isdisjoint(report["modules"])
