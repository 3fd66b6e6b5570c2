"""Programs of their own that tests run and that may hang or die, each with a time limit."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SECONDS = 100.0
IMPORTS = """
import os, signal, sys, threading, time
import graphfeed as gf
from tests import pipelines
"""


def start(body: str) -> "subprocess.Popen[str]":
    """Start a program that begins with some imports."""
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTS + textwrap.dedent(body)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    *arguments: str, stdin: str | None = None, cwd: Path | None = None, seconds: float = SECONDS, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run the interpreter to its end; a program that takes too long is killed, and the test fails.

    Args:
        arguments: Of the interpreter.
        stdin: What the program reads.
        cwd: Where it runs.
        seconds: How long it may take.
        settings: More environment variables.
    """
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **settings},
    )


def run_body(body: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that begins with some imports to its end, as `run` does."""
    return run("-c", IMPORTS + textwrap.dedent(body))
