"""Asks a GPU what nobody could ask without one, step by step, and writes one report that can be sent.

This is `graphfeed doctor --first-hour`. Each step of `graphfeed/gpu_steps.py` is a process of its own with a time
limit, as a kernel that goes wrong ends its process, or never ends. The other steps run all the same.
"""

import getpass
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

import graphfeed
from graphfeed import gpu_steps
from graphfeed.cuda_report import Finding, is_wrong, table

REPORT = "graphfeed-first-hour"
"""The name of the report, without .txt and .json."""
CLONE = Path(__file__).resolve().parents[1]
"""Where the package lies; in a clone, tests and benchmarks too."""
SECONDS, LONG_SECONDS = 600.0, 1800.0
"""The time limits of a step, and of all tests or benchmarks."""
KEPT_LINES = 60
"""Of what a step wrote besides its findings."""
KILLED_SECONDS = 10.0
"""How long a killed process is waited for; one that hangs in the driver never ends."""
PATH = re.compile(r"""(?<![\w/.])(?:~|[A-Za-z]:)?(?:[/\\][^\s/\\:'",;()<>]+){2,}""")


class Step(NamedTuple):
    """A program that is run."""

    name: str
    arguments: tuple[str, ...]
    """Of the interpreter."""
    seconds: float
    """The time limit."""


class Outcome(NamedTuple):
    """What became of a step."""

    name: str
    ended: str
    """done, or how it ended otherwise."""
    seconds: float
    findings: tuple[Finding, ...]
    """What it said before it ended."""
    output: tuple[str, ...]
    """The last lines that it wrote besides; those on stderr unless it is done."""

    @property
    def ok(self) -> bool:
        """Whether it is done, and found nothing wrong."""
        return self.ended == "done" and not any(map(is_wrong, self.findings))

    def lines(self) -> Iterator[str]:
        """Yield the step as text."""
        yield f"== {self.name}: {self.ended}, {self.seconds:.0f} s"
        yield from table(self.findings) if self.findings else ()
        yield from (f"  | {line}" for line in self.output)


@dataclass(frozen=True)
class HourReport:
    """What became of all steps; nothing in it names a user, a machine or a folder."""

    outcomes: tuple[Outcome, ...]

    @property
    def wrong(self) -> list[str]:
        """The names of the steps that failed."""
        return [outcome.name for outcome in self.outcomes if not outcome.ok]

    def __str__(self) -> str:
        title = f"graphfeed {graphfeed.__version__}, the first hour on a GPU; docs/gpu.md says what is expected"
        told = f"failed: {', '.join(self.wrong)}" if self.wrong else "nothing failed"
        steps = [line for outcome in self.outcomes for line in ("", *outcome.lines())]
        return "\n".join([title, *steps, "", f"{len(self.outcomes)} steps, {told}", ""])

    def to_json(self) -> str:
        """Return the same for programs."""
        steps = [
            {**outcome._asdict(), "findings": [finding._asdict() for finding in outcome.findings]}
            for outcome in self.outcomes
        ]
        return json.dumps({"graphfeed": graphfeed.__version__, "steps": steps}, indent=1)

    def write(self, folder: Path) -> None:
        """Write the report as text and as JSON."""
        (folder / f"{REPORT}.txt").write_text(str(self), "utf-8")
        (folder / f"{REPORT}.json").write_text(self.to_json(), "utf-8")


def first_hour(steps: Sequence[Step], folder: Path, progress: IO[str]) -> HourReport:
    """Run steps one after the other, and write the report after each, so that it is there whenever somebody stops."""
    report = HourReport(())
    folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        progress.write(f"{step.name}: at most {step.seconds:.0f} s\n")
        progress.flush()
        report = HourReport((*report.outcomes, run_step(step)))
        progress.write("\n".join(report.outcomes[-1].lines()) + "\n")
        report.write(folder)
    return report


def run_step(step: Step) -> Outcome:
    """Run a step until it ends or its time is over."""
    begin = time.perf_counter()
    path = os.pathsep.join([str(CLONE), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Into files, as a pipe stays open for as long as a process that the step started.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *step.arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=CLONE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            ended = ended_by(process.wait(step.seconds))
        except subprocess.TimeoutExpired:
            ended = f"killed, as it took more than {step.seconds:g} s"
        finally:
            if process.poll() is None:
                kill(process)
        seconds = time.perf_counter() - begin
        findings, rest = split(lines_of(out))
        lines = [*rest, *(lines_of(errors) if ended != "done" else ())][-KEPT_LINES:]
    return Outcome(step.name, ended, round(seconds, 1), tuple(findings), tuple(map(without_private, lines)))


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a step, with all processes that it started."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_SECONDS)


def ended_by(status: int) -> str:
    """Say how a process ended."""
    if status >= 0:
        return f"exit status {status}" if status else "done"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-status).name}"
    return f"ended by signal {-status}"


def lines_of(file: IO[bytes]) -> list[str]:
    """Return what was written to a file."""
    file.seek(0)
    return file.read().decode("utf-8", "replace").splitlines()


def split(lines: Sequence[str]) -> tuple[list[Finding], list[str]]:
    """Return the findings among the lines of a step, and the other lines."""
    findings, rest = [], []
    for line in lines:
        try:
            finding = Finding(**json.loads(line))
        except (ValueError, TypeError):
            rest.append(line)
        else:
            findings.append(Finding(finding.status, *map(without_private, finding[1:])))
    return findings, rest


def without_private(line: str) -> str:
    """Return a line without folders, the user's name and the machine's: of a path, its last part is left."""
    folders = {
        str(folder) for folder in (CLONE, os.path.expanduser("~"), Path.cwd(), sys.prefix, tempfile.gettempdir())
    }
    for folder in sorted(folders - {os.sep, "~"}, key=len, reverse=True):
        # Before all other paths, as a folder may have spaces in its name.
        line = line.replace(folder, "~")
    line = PATH.sub(lambda found: ".../" + re.split(r"[/\\]", found[0])[-1], line)
    names = [platform.node(), platform.node().partition(".")[0]]
    with suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        names.append(getpass.getuser())
    for name in filter(None, names):
        line = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "...", line)
    return line


def all_steps() -> tuple[Step, ...]:
    """Return the steps in order; in a clone, tests and benchmarks too."""
    steps = [Step(name, ("-P", "-m", "graphfeed.gpu_steps", name), SECONDS) for name in gpu_steps.STEPS]
    first = next(number for number, step in enumerate(steps) if step.name.startswith("profile"))
    is_clone = (CLONE / "pyproject.toml").is_file()
    if is_clone and find_spec("pytest"):
        steps.insert(first, Step("pytest -m gpu", ("-m", "pytest", "-q", "-m", "gpu", "--tb=short"), LONG_SECONDS))
    if is_clone:
        steps.append(Step("benchmarks cuda", ("-m", "benchmarks", "cuda"), LONG_SECONDS))
    return tuple(steps)
