import pickle
import subprocess
import sys

import pytest

import graphfeed as gf
from graphfeed.ops.process.entry_points import ENTRY_POINTS, load_entry_point

ADDITIONS = [(group, name) for group, names in ENTRY_POINTS.items() for name in names]


@pytest.mark.parametrize(("group", "name"), ADDITIONS)
def test_each_addition_is_there(group: str, name: str) -> None:
    found = load_entry_point(group, name)
    assert callable(found)
    assert ENTRY_POINTS[group][name] == f"{found.__module__}:{found.__qualname__}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "use",
    [
        "gf.MiniBatch(seeds=torch.tensor([1]), sampled_subgraphs=[]).blocks",
        "gf.MiniBatch(seeds=torch.tensor([1])).to_pyg_data()",
        "gf.minibatcher_default(ids, ('seed_nodes',)).seeds",
        "list(gf.ItemSampler(gf.ItemSet(2, names='seeds'), 1).mark_end())",
        "gf.DataLoader(gf.ItemSampler(gf.ItemSet(2, names='seeds'), 1).sample_neighbor(graph, [1], cooperative=True))",
    ],
)
def test_an_addition_needs_no_import_but_that_of_the_package(use: str) -> None:
    program = f"""
import sys, torch, graphfeed as gf
ids = torch.zeros(1, dtype=torch.int64)
graph = gf.from_coo(torch.tensor([[1], [0]]), num_nodes=2)
optional = ("channels", "distributed", "ingest", "interop", "pyg")
before = [room for room in optional if f"graphfeed.{{room}}" in sys.modules]
try:
    {use}
except ImportError as error:
    assert error.name in ("dgl", "torch_geometric"), error
print(before, [room for room in optional if f"graphfeed.{{room}}" in sys.modules] != [])
"""
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout == "[] True\n"


@pytest.mark.slow
def test_a_process_that_unpickles_a_stage_knows_the_additions() -> None:
    """A pickle names the module of its class alone, and the package is imported before any of its modules."""
    data = pickle.dumps(gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1))
    program = f"import pickle; print(type(pickle.loads({data!r}).mark_end()).__name__)"
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout == "EndMarker\n"
