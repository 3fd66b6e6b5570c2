"""`make faults`: put the faults of faults.toml into copies of the repository, and check that their tests find them.

Each fault is one replacement in one file. Its tests, which are the guarantee that it breaks, then have to fail.
"""

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KERNELS = "graphfeed/ops/cpu/"
SECONDS = 240.0
"""Time limit for the tests of a fault. Without the fault, they take a few seconds."""

UNTIL_FOUND = "-x", "--hypothesis-profile=unshrunk"
"""Options of pytest with a fault: any failing example will do, and to shrink one takes minutes in plain Python."""


class Fault(NamedTuple):
    """A fault in a file of the repository; the fields are those of faults.toml."""

    name: str
    breaks: str
    file: str
    old: str
    """Text that occurs once in the file."""
    new: str
    tests: list[str]
    """Ids of tests, of which at least one has to fail."""

    @property
    def in_plain_python(self) -> bool:
        """Whether kernels run as plain Python, because a change to one recompiles all."""
        return self.file.startswith(KERNELS) and "/compiler/" not in self.file

    def apply(self, root: Path) -> str:
        """Return the content of the file with the fault.

        Raises:
            ValueError: The old text does not occur once, or the new one is not Python.
        """
        content = (root / self.file).read_text()
        if content.count(self.old) != 1:
            raise ValueError(f"{self.name}: {content.count(self.old)} instead of 1 of {self.old!r} in {self.file}")
        content = content.replace(self.old, self.new)
        if self.file.endswith(".py"):
            compile(content, self.file, "exec")
        return content


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def read_faults() -> list[Fault]:
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        return [Fault(name, **fields) for name, fields in tomllib.load(file).items()]


def copy_repository(folder: Path) -> Path:
    """Copy the tracked files and the compiled kernels."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for code in (ROOT / KERNELS / "__pycache__").glob("*.code"):
        (folder / KERNELS / "__pycache__").mkdir(exist_ok=True)
        shutil.copy2(code, folder / KERNELS / "__pycache__" / code.name)
    return folder


def run_tests(
    root: Path, tests: Iterable[str], in_plain_python: bool, seconds: float, *options: str
) -> tuple[int, str]:
    """Run tests; return pytest's exit code, negative after a signal or the timeout, and its output."""
    with (root / "output.txt").open("w+") as output:
        settings = {
            "PYTHONPATH": str(root),
            "NUMBA_DISABLE_JIT": str(int(in_plain_python)),
            "GRAPHFEED_DATA": os.environ.get("GRAPHFEED_DATA", str(ROOT.parent / "shared" / "data")),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests],
            cwd=root,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return code, output.read()


def check_tests(root: Path, faults: list[Fault], jobs: int) -> bool:
    """Return whether the tests exist and pass without faults."""
    passed = True
    for in_plain_python in (False, True):
        tests = sorted({test for fault in faults if fault.in_plain_python == in_plain_python for test in fault.tests})
        if tests:
            code, output = run_tests(root, tests, in_plain_python, SECONDS * len(tests), "-n", str(jobs))
            say(output if code else f"without faults: {output.splitlines()[-1]}")
            passed &= code == 0
    return passed


def main(arguments: list[str]) -> int:
    """Return 0 if all faults are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="select the faults whose names contain one of these words")
    parser.add_argument("--jobs", type=int, default=2, help="number of faults that are tried at once")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    parser.add_argument("--unchecked", action="store_true", help="don't run the tests without faults first")
    options = parser.parse_args(arguments)
    faults = [f for f in read_faults() if not options.words or any(word in f.name for word in options.words)]
    for fault in faults:
        fault.apply(ROOT)
        if options.list:
            say(f"{fault.name}: {fault.breaks} ({fault.file})")
    if options.list or not faults:
        return int(not faults)
    with tempfile.TemporaryDirectory(prefix="graphfeed-faults-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(options.jobs):
            copies.put(copy_repository(Path(folder) / str(number)))
        if not options.unchecked and not check_tests(Path(folder) / "0", faults, options.jobs):
            return 1

        def is_found(fault: Fault) -> bool:
            root, began = copies.get(), time.monotonic()
            content = fault.apply(root)
            kept = shutil.copy2(root / fault.file, root / "kept")
            (root / fault.file).write_text(content)
            code, output = run_tests(root, fault.tests, fault.in_plain_python, SECONDS, *UNTIL_FOUND)
            shutil.copy2(kept, root / fault.file)
            copies.put(root)
            found = code == 1 or code < 0
            say(f"{'found ' if found else 'MISSED'} {time.monotonic() - began:5.0f} s  {fault.name}")
            if not found and code:  # nothing was tested
                say(output)
            return found

        missed = [fault for fault, found in zip(faults, pool.map(is_found, faults), strict=True) if not found]
    for fault in missed:
        say(f"{fault.name} is not found by {', '.join(fault.tests)}: {fault.breaks}")
    say(f"{len(faults) - len(missed)} of {len(faults)} faults were found")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
