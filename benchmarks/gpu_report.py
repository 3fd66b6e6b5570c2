"""Runs on a GPU what only a GPU can show, and writes one report: `python -m benchmarks.gpu_report --minutes 30`.

The most important steps come first. Each step has its own process, because a faulty kernel ends its process, or never
ends. The report is rewritten after each step, and names no user, machine or folder of yours.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

import graphfeed
from benchmarks.gpu_speed import STEPS as SPEEDS

CLONE = Path(__file__).resolve().parents[1]
REPORT = "graphfeed-gpu.txt"
STEP_SECONDS = 600.0
KEPT_LINES = 60
"""Of what a step wrote."""
KILLED_SECONDS = 10.0
"""How long a killed process is waited for; one that hangs in the driver never ends."""
NO_TESTS = 5
"""The exit status of pytest where a file has no test for a GPU."""


class Step(NamedTuple):
    """A program that is run."""

    name: str
    command: tuple[str, ...]


def all_steps(folder: Path) -> list[Step]:
    """Return the steps, in the order of their worth."""
    python = sys.executable
    pytest = (python, "-m", "pytest", "-q", "-n", "0", "-m", "gpu", "--tb=short", "-x")
    first = ("tests/laws/test_kernels_on_gpus.py", "tests/laws/test_freed_memory.py")
    steps = [Step("checks", (python, "-m", "graphfeed", "doctor", "--cuda"))]
    steps += [Step(path, (*pytest, path)) for path in first]
    steps += [Step(f"speed {name}", (python, "-m", "benchmarks.gpu_speed", name, str(folder))) for name in SPEEDS]
    if sanitizer := shutil.which("compute-sanitizer"):
        steps.append(Step("compute-sanitizer", (sanitizer, "--target-processes", "all", *pytest, first[0])))
    files = sorted(str(path.relative_to(CLONE)) for path in CLONE.glob("tests/**/test_*.py") if is_for_gpus(path))
    steps += [Step(path, (*pytest, path)) for path in files if path not in first]
    return [*steps, Step("benchmarks cuda", (python, "-m", "benchmarks", "cuda"))]


def is_for_gpus(path: Path) -> bool:
    """Return whether a file may have tests for a GPU."""
    return re.search(r"\bcuda: |\bdevice: |mark\.gpu", path.read_text()) is not None


def run_steps(steps: Sequence[Step], folder: Path, seconds: float) -> list[str]:
    """Run steps until the time is over, write the report behind each, and return the names of those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    end, text, failed = time.monotonic() + seconds, f"graphfeed {graphfeed.__version__} on a GPU\n", []
    for number, step in enumerate(steps):
        left = end - time.monotonic()
        if left <= 0:
            text += f"\nno time was left for {len(steps) - number} steps, from {step.name} on\n"
            break
        sys.stdout.write(f"{step.name}\n")
        sys.stdout.flush()
        begin = time.monotonic()
        ended, lines = run_step(step.command, min(left, STEP_SECONDS))
        if ended != "done":
            failed.append(step.name)
        took = f"\n== {step.name}: {ended}, {time.monotonic() - begin:.0f} s\n"
        text += took + "".join(f"{line}\n" for line in map(without_private, lines))
        (folder / REPORT).write_text(text, "utf-8")
    text += f"\nfailed: {', '.join(failed) or 'nothing'}\n"
    (folder / REPORT).write_text(text, "utf-8")
    return failed


def run_step(command: Sequence[str], seconds: float) -> tuple[str, list[str]]:
    """Run a program until it ends or its time is over; return how it ended, and the last lines that it wrote."""
    # Into a file, as a pipe stays open for as long as a process that the step started.
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=CLONE, start_new_session=True
        )
        try:
            status = process.wait(seconds)
            ended = "done" if status in (0, NO_TESTS) else f"exit status {status}"
            if status < 0:
                ended = f"ended by {signal.Signals(-status).name}"
        except subprocess.TimeoutExpired:
            ended = f"killed after {seconds:.0f} s"
        finally:
            if process.poll() is None:
                kill(process)
        out.seek(0)
        return ended, out.read().decode("utf-8", "replace").splitlines()[-KEPT_LINES:]


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a step, with all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)


def without_private(line: str) -> str:
    """Return a line without the folders that tell who runs it, and where."""
    folders = {str(folder) for folder in (CLONE, os.path.expanduser("~"), sys.prefix, tempfile.gettempdir())}
    for folder in sorted(folders - {os.sep, "~"}, key=len, reverse=True):
        line = line.replace(folder, "...")
    return line.replace(os.uname().nodename, "...")


def end_by_signal(*_: object) -> None:
    """End the program, and so the step that runs."""
    sys.exit("ended by a signal")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps whose names begin as asked for, within some minutes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="the time for all steps (default: %(default)s)")
    parser.add_argument("--steps", nargs="+", metavar="NAME", help="what their names begin with (default: all)")
    parser.add_argument("--folder", type=Path, default=Path(), help="where report and traces go (default: here)")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU; `graphfeed doctor --cuda` says what is missing")
    signal.signal(signal.SIGTERM, end_by_signal)
    folder = options.folder.resolve()
    steps = [step for step in all_steps(folder) if not options.steps or step.name.startswith(tuple(options.steps))]
    failed = run_steps(steps, folder, 60 * options.minutes)
    sys.stdout.write(f"the report is {options.folder / REPORT}; failed: {', '.join(failed) or 'nothing'}\n")


if __name__ == "__main__":
    main()
