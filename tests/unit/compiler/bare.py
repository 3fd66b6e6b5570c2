"""Processes without torch, which start in a fraction of the time."""

from graphfeed.ops.cpu.compiler.folders import SOURCES
from tests.stand_ins.scripts import REPOSITORY, SECONDS, run

BEGIN = f"""
import sys, types, pathlib
folder = pathlib.Path({str(SOURCES.parent)!r})
for name, path in (("graphfeed", folder.parent), ("graphfeed.ops", folder)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(path)]
"""
"""Defines the two upper packages as bare folders, so that only kernels are imported."""


def printed(body: str, *arguments: str, **settings: str) -> str:
    """Run a program to its end with some environment variables; return what it prints."""
    done = run("-c", BEGIN + body, *arguments, cwd=REPOSITORY, seconds=SECONDS, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
