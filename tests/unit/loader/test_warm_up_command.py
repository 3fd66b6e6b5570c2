import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.loader.warm_up_command import USES
from graphfeed.ops.cpu.compiler import ahead
from graphfeed.ops.cpu.compiler.folders import folders
from graphfeed.ops.cpu.jit import INTERPRETED
from tests.stand_ins.scripts import REPOSITORY, run
from tests.unit.compiler.kernels import loads_of

pytestmark = pytest.mark.skipif(INTERPRETED, reason="kernels are plain Python")
WARM_UP = """
import json
import graphfeed as gf
from tests.kinds import pipelines
from tests.unit.compiler.kernels import loads_of
pipes = []
built = loads_of(lambda: pipes.append(pipelines.heterogeneous()))
loads = gf.warm_up(*pipes)
later = loads_of(lambda: [list(pipes[0]), list(gf.DataLoader(pipes[0], num_workers=2))])
print(json.dumps([built, loads, later, gf.warm_up(*pipes)]))
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_pipeline_s_kernels_are_compiled_once_and_no_others(tmp_path: Path) -> None:
    runs = [run("-c", WARM_UP, cwd=REPOSITORY, GRAPHFEED_CACHE_DIR=str(tmp_path)) for _ in range(2)]
    kept = {".".join(path.name.split(".")[:-2]) for path in tmp_path.rglob("*.code")}
    for number, done in enumerate(runs):
        assert done.returncode == 0, done.stderr
        built, loads, later, again = json.loads(done.stdout)
        assert {f"{kernel}.{dtypes.replace(', ', '-')}" for kernel, dtypes, _, _ in built + loads} == kept
        assert any(compiled for *_, compiled in loads) == (number == 0)
        assert later == again == []
        count = sum(compiled for *_, compiled in loads)
        lines = done.stderr.splitlines()
        assert sum(line.startswith("graphfeed: compiled ") for line in lines) == count
        summary = f"graphfeed: {count} kernels compiled and {len(loads) - count} found on disk in "
        assert [line.startswith(summary) for line in lines if "found on disk" in line] == [True, False]
        assert lines[-1].startswith("graphfeed: 0 kernels compiled and 0 found on disk in ")


@pytest.fixture
def two_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend that there are two kernels, which are not compiled yet."""
    two = [pair for pair in ahead.all_kernels() if pair[0].__module__.endswith(".permute")]
    assert len(two) == 2
    monkeypatch.setattr(ahead, "all_kernels", lambda: two)
    monkeypatch.setenv("GRAPHFEED_CACHE_DIR", str(tmp_path))
    folders.cache_clear()
    yield
    folders.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("two_kernels")
def test_all_kernels_are_compiled_once_and_it_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["sampling.permute.hash_places", "sampling.permute.permute"]
    with torch.device("meta"):  # a program may have set another default device
        loads = gf.warm_up()
    assert sorted(load.kernel for load in loads) == names
    assert all(load.compiled and load.seconds > 0 for load in loads)
    *lines, last = capsys.readouterr().err.splitlines()
    assert last.startswith("graphfeed: 2 kernels compiled and 0 found on disk in ")
    assert sorted(line.split()[2] for line in lines) == names
    assert main(["warm-up"]) == 0
    (last,) = capsys.readouterr().err.splitlines()
    assert last.startswith("graphfeed: 0 kernels compiled and 2 found on disk in ")


def take_all(make: Callable[[], Iterable[gf.MiniBatch]], into: list[gf.MiniBatch]) -> None:
    into.extend(make())


def test_the_command_compiles_what_one_kind_of_pipeline_needs(capsys: pytest.CaptureFixture[str]) -> None:
    for use, run_it in USES.items():
        assert main(["warm-up", "--for", use]) == 0
        assert " found on disk in " in capsys.readouterr().err
        minibatches: list[gf.MiniBatch] = []
        assert loads_of(partial(take_all, run_it, minibatches)) == [], use
        assert len(minibatches) > 1
        assert all(len(minibatch.sampled_subgraphs or ()) == 2 for minibatch in minibatches)


def test_the_command_takes_several_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm-up", "--for", "uniform, typed-labor"]) == 0
    assert capsys.readouterr().err.count(" found on disk in ") == 2


def test_a_kind_that_is_none_is_named_before_anything_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    for uses, wrong in (("uniform,labour", "labour"), ("", ""), ("uniform,,typed", "")):
        assert main(["warm-up", "--for", uses]) == 1
        assert capsys.readouterr().err == (
            "graphfeed warm-up: --for must be a list of uniform, weighted, labor, negatives, in-time, typed, "
            f"typed-weighted, typed-labor, typed-in-time, but has {wrong!r}\n"
        )
