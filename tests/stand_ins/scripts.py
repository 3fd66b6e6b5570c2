"""Separate interpreters that may hang, each with a time limit; prefer `tests/stand_ins/programs.py`."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 100.0
IMPORTS = """
import os, signal, sys, threading, time
import graphfeed as gf
from tests.kinds import pipelines
"""


def without_kernels(folder: Path) -> dict[str, str]:
    """Return settings with which a process finds no compiled kernels at first, and keeps its own in a folder."""
    # The features are part of the names of files: written twice, they are the same features, and no file has that name.
    features = import_module("llvmlite.binding").get_host_cpu_features().flatten()
    compiled = {"GRAPHFEED_KERNELS": "compile", "GRAPHFEED_CACHE_DIR": str(folder)}
    return {**compiled, "NUMBA_CPU_FEATURES": f"{features},{features}"}


def run(
    *arguments: str, stdin: str | None = None, cwd: Path | None = None, seconds: float = SECONDS, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run the interpreter to its end; a program that takes too long is killed, and the test fails.

    Args:
        arguments: Of the interpreter.
        stdin: Input of the program.
        cwd: Working directory.
        seconds: Time limit.
        settings: Additional environment variables.
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
