"""Processes without torch, as those that compile kernels for others are: they start in a fraction of the time."""

from graphfeed.ops.cpu.compiler.ahead import PROGRAM
from graphfeed.ops.cpu.compiler.folders import SOURCES
from tests.stand_ins.scripts import REPOSITORY, SECONDS, run

BEGIN = PROGRAM.rpartition("from graphfeed")[0].format(folder=str(SOURCES.parent))


def printed(body: str, *arguments: str, **settings: str) -> str:
    """Run a program to its end with some environment variables; return what it prints."""
    done = run("-c", BEGIN + body, *arguments, cwd=REPOSITORY, seconds=SECONDS, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
