import subprocess
import sys

import pytest

PROGRAM = """
import threading
from graphfeed.loader.executors import preload
assert preload.warm_up() == 2
assert threading.active_count() == 1
"""


@pytest.mark.slow
def test_it_runs_a_pipeline_and_leaves_no_thread_that_a_fork_would_miss() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("graphfeed is compiling its kernels")]
    assert (done.returncode, said) == (0, [])
