import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.loader.warm_up_command import USES
from graphfeed.ops.cpu.compiler import build
from graphfeed.ops.cpu.compiler.folders import folders
from graphfeed.ops.cpu.compiler.machine import processor
from graphfeed.ops.cpu.jit import INTERPRETED
from graphfeed.ops.kernel_load import KernelLoad
from tests.stand_ins.scripts import REPOSITORY, SECONDS, run, without_kernels
from tests.unit.compiler.kernels import anew, loads_of

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
FORKS = """
import json, os, sys
from tests.unit.loader.test_warm_up_command import loads_after_warm_up
for use in sys.argv[1:]:
    child = os.fork()
    if not child:
        print(json.dumps([use, loads_after_warm_up(use)]))
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, use
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_pipeline_s_kernels_are_compiled_once_and_no_others(tmp_path: Path) -> None:
    runs = [run("-c", WARM_UP, cwd=REPOSITORY, seconds=SECONDS, **without_kernels(tmp_path)) for _ in range(2)]
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
    found = [pair for pair in build.all_kernels() if pair[0].__module__.endswith(".permute")]
    two = [(anew(kernel), dtypes) for kernel, dtypes in found]
    assert len(two) == 2
    monkeypatch.setattr(build, "all_kernels", lambda: two)
    for name, value in without_kernels(tmp_path).items():
        monkeypatch.setenv(name, value)
    processor.cache_clear()
    folders.cache_clear()
    yield
    processor.cache_clear()
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
    assert last.startswith("graphfeed: 0 kernels compiled and 0 found on disk in ")


def random_pipe(use: str, size: int) -> Any:
    """Return a pipeline of a kind that `--for` knows, for a random graph."""
    kinds: list[Any]
    keys: Any
    pipe: Any
    kind, count = use.removeprefix("typed-"), 10 * size
    ends = torch.randint(size, (count,)), (torch.rand(count) ** 4 * size).long()
    attributes = {"weight": torch.rand(count), "time": torch.randint(900, (count,))}
    items: Any = gf.ItemSet((torch.randperm(size), torch.full((size,), 800)), ("seeds", "timestamp"))
    graph, kinds, keys = gf.from_coo(ends, size, edge_attributes=attributes), [None], ["x"]
    if use.startswith("typed"):
        ways, kinds = ("user:likes:item", "item:liked_by:user"), ["user", "item"]
        by_type = {name: dict.fromkeys(ways, values) for name, values in attributes.items()}
        graph = gf.from_coo(dict.fromkeys(ways, ends), {"user": size, "item": size}, edge_attributes=by_type)
        items, keys = gf.HeteroItemSet(dict.fromkeys(kinds, items)), {name: ["x"] for name in kinds}
    if use == "negatives":
        items = gf.ItemSet(torch.stack(ends, dim=1)[:size], "seeds")
    pipe = gf.ItemSampler(items, 256, shuffle=True)
    if use == "negatives":
        pipe = pipe.sample_uniform_negative(graph, 1).sample_neighbor(graph, [5, 5]).exclude_seed_edges()
    else:
        stage, options = {
            "weighted": ("sample_neighbor", {"prob_name": "weight"}),
            "labor": ("sample_layer_neighbor", {}),
            "in-time": ("temporal_sample_neighbor", {"edge_timestamp_attr_name": "time"}),
        }.get(kind, ("sample_neighbor", {}))
        pipe = getattr(pipe, stage)(graph, [5, 5], **options)
    rows = gf.TorchBasedFeature(torch.rand(size, 20))
    return pipe.fetch_feature(gf.BasicFeatureStore({("node", kind, "x"): rows for kind in kinds}), keys)


def take_all(pipe: gf.Datapipe) -> None:
    """Iterate over a pipeline, by itself and with workers."""
    with gf.DataLoader(pipe, num_workers=2) as loader:
        assert len(list(pipe)) == len(list(loader)) > 1


def loads_after_warm_up(use: str) -> list[KernelLoad]:
    """Compile the kernels of one kind of pipeline; return those that such pipelines load later nevertheless."""
    assert main(["warm-up", "--for", use]) == 0
    sizes = 300, 6_000  # items of the two sizes are shuffled by different kernels
    return [load for size in sizes for load in loads_of(partial(take_all, random_pipe(use, size)))]


@pytest.fixture(scope="module")
def later_loads() -> dict[str, list[Any]]:
    """The kernels that each kind of pipeline loads after it was warmed up, each in a process that had loaded none."""
    done = run("-c", FORKS, *USES, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(" found on disk in ") == len(USES)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("use", USES)
def test_the_command_compiles_what_one_kind_of_pipeline_needs(use: str, later_loads: dict[str, list[Any]]) -> None:
    assert later_loads[use] == []


def test_the_command_names_the_setting_for_images(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["warm-up", "--help"])
    assert "NUMBA_CPU_NAME=generic" in capsys.readouterr().out


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


@pytest.mark.slow
def test_kernels_that_run_as_python_are_not_compiled() -> None:
    done = run("-m", "graphfeed", "warm-up", NUMBA_DISABLE_JIT="1")
    said = "graphfeed: NUMBA_DISABLE_JIT is set, so kernels run as Python, and none is compiled\n"
    assert (done.returncode, done.stderr) == (0, said)
