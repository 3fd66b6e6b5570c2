"""Public names: listed in the `__all__` of a folder, existing, and documented; and side effects of imports."""

import importlib
import inspect
import json
import pickle
import pkgutil
import re
import subprocess
import sys
from typing import Any, assert_type

import pytest

import graphfeed
from graphfeed import Datapipe
from graphfeed.channels import ShmChannel
from graphfeed.interop.graphbolt import Waiter
from tests.repository import fill_exports

MODULES = [importlib.import_module("graphfeed")] + [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(graphfeed.__path__, "graphfeed.")
    if "cuda" not in info.name.split(".")
]
PACKAGES = [module for module in MODULES if hasattr(module, "__path__")]
PUBLIC = [(package, name) for package in PACKAGES for name in getattr(package, "__all__", ())]

FOUND_ON_FIRST_USE = [(graphfeed, name) for name in graphfeed._FOUND_IN]
BY_NAME = PUBLIC + FOUND_ON_FIRST_USE


def stages() -> list[type[Any]]:
    """Return the stages that the package has, without the bases and private classes."""
    return [
        value
        for module in MODULES
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Datapipe)
        if value.__module__ == module.__name__ != Datapipe.__module__ and not name.startswith("_")
    ]


def test_a_package_lists_all_that_it_shows_once() -> None:
    for package in PACKAGES:
        names = list(getattr(package, "__all__", ()))
        assert len(names) == len(set(names)), package.__name__
        there = {name for name, value in vars(package).items() if name[0] != "_" and not inspect.ismodule(value)}
        assert there - set(names) == set(), package.__name__


def test_each_public_name_is_there_and_described() -> None:
    for package, name in BY_NAME:
        value = getattr(package, name)
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            # The generated docstring of a dataclass is its signature.
            assert value.__doc__, f"{package.__name__}.{name}"
            assert not value.__doc__.startswith(f"{name}("), f"{package.__name__}.{name}"


def test_the_order_of_hops_stands_with_each_sampler_and_loader() -> None:
    orders = {"fanouts": "the outermost hop first", "num_neighbors": "the seeds' own hop first"}
    found = {value for value in (getattr(package, name) for package, name in BY_NAME) if inspect.isclass(value)}
    checked = []
    for value in found:
        taken = inspect.signature(value).parameters if value.__name__.endswith(("Sampler", "Loader")) else {}
        for name in orders.keys() & taken.keys():
            if taken[name].annotation not in (int, "int"):  # one number for all hops
                assert orders[name] in " ".join((value.__doc__ or "").split()), value
                checked.append(value.__name__)
    assert {"NeighborSampler", "TemporalSampler", "DistNeighborLoader", "LinkNeighborLoader"} <= set(checked)


def test_each_public_method_is_described() -> None:
    bare = {
        f"{value.__qualname__}.{method}"
        for package, name in BY_NAME
        if inspect.isclass(value := getattr(package, name)) and value.__module__.startswith("graphfeed.")
        for method, own in vars(value).items()
        # A field that is checked when it is set is a property, with its docstring under its name.
        if inspect.isfunction(function := getattr(own, "fget", None) or getattr(own, "__func__", own))
        if function.__name__ == method and method[0] != "_" and not function.__doc__
    }
    assert sorted(bare) == []


def test_the_docstring_of_a_stage_lists_its_arguments() -> None:
    """Fields have no docstrings at run time, so `help()` shows only those of the class."""
    missing = {
        f"{stage.__name__}.{name}"
        for stage in stages()
        if ".datapipes." in stage.__module__
        for name in inspect.signature(stage).parameters.keys() - {"record"}  # which a loader sets
        if not re.search(rf"^    Args:\n(.+\n)* +{name}: ", f"{stage.__doc__}\n", re.MULTILINE)
    }
    assert missing <= {"SubgraphSampler.datapipe", "Transform.datapipe"}


def test_a_stage_is_public_and_those_of_every_pipeline_have_a_file_of_their_name() -> None:
    """Stages for programs of other libraries share files; GraphBolt's are found in `graphfeed`."""
    for stage in stages():
        if stage.__module__ == "graphfeed.interop.graphbolt":
            assert graphfeed._FOUND_IN[stage.__name__] == stage.__module__
            continue
        if ".datapipes." in stage.__module__:
            assert stage.__module__.rpartition(".")[2].replace("_", "") == stage.__name__.lower()
        room = importlib.import_module(".".join(stage.__module__.split(".")[:2]))
        assert stage.__name__ in room.__all__


def test_global_generators_are_seeded_for_code_of_others_alone() -> None:
    seeded = {stage.__name__ for stage in stages() if vars(stage)["_traits"].seeded}
    assert seeded == {"SampleWith"}  # which calls a PyG sampler


def test_the_stubs_are_those_of_the_stages() -> None:
    """`make exports` writes them."""
    assert fill_exports.FLUENT.read_text() == fill_exports.fluent_stub()
    assert fill_exports.TOP.read_text() == fill_exports.top_stub()


def test_what_a_pipeline_is_written_with_is_found_at_the_top() -> None:
    written = {stage for stage in stages() if ".datapipes." in stage.__module__}
    assert all(getattr(graphfeed, stage.__name__) is stage for stage in written)


def test_the_top_shows_about_fifty_names_and_finds_the_others() -> None:
    assert 45 <= len(dir(graphfeed)) <= 60
    names: dict[str, object] = {}
    exec("from graphfeed import *", names)
    assert dir(graphfeed) == sorted(names.keys() - {"__builtins__"})
    assert graphfeed._FOUND_IN.keys().isdisjoint(dir(graphfeed))


def test_names_are_found_by_an_import_too() -> None:
    for name in [*dir(graphfeed), *graphfeed._FOUND_IN]:
        names: dict[str, Any] = {}
        exec(f"from graphfeed import {name}", names)
        assert names[name] is getattr(graphfeed, name)
    assert graphfeed.interop is importlib.import_module("graphfeed.interop")
    assert graphfeed.interop.dgl is importlib.import_module("graphfeed.interop.dgl")


def test_type_checkers_know_the_names_that_are_found_on_first_use() -> None:
    """mypy checks the types, and reports unused ignores."""
    assert_type(graphfeed.Waiter, type[Waiter])
    assert_type(graphfeed.ShmChannel, type[ShmChannel])
    assert_type(graphfeed.ORIGINAL_EDGE_ID, str)
    with pytest.raises(AttributeError, match=r"no attribute 'ItemSamplers'; did you mean ItemSampler"):
        graphfeed.ItemSamplers  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'graphfeed' has no attribute 'xyz'$"):
        graphfeed.xyz  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute '_ItemSampler'$"):
        graphfeed._ItemSampler  # type: ignore[attr-defined] # noqa: B018


def test_the_error_for_a_name_that_was_removed_has_a_recipe_that_runs() -> None:
    networkx = pytest.importorskip("networkx")
    scipy = pytest.importorskip("scipy.sparse") and sys.modules["scipy"]
    g = networkx.MultiDiGraph([(0, 1), (2, 0), (2, 1)])
    given = {"g": g, "matrix": networkx.to_scipy_sparse_array(g), "values": [1, 1, 1]}
    given["graph"] = graphfeed.from_coo(([0, 2, 2], [1, 0, 1]), 3)
    made = {}
    for name in ("from_networkx", "from_scipy", "to_networkx", "to_scipy"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'; write ") as caught:
            getattr(graphfeed, name)
        names = given | {"from_coo": graphfeed.from_coo, "networkx": networkx, "scipy": scipy}
        exec(str(caught.value).partition("write ")[2], names)
        made[name] = names
    for name in ("from_networkx", "from_scipy"):
        assert made[name]["graph"] is not given["graph"]
        assert made[name]["graph"].indices.tolist() == [2, 0, 2]
    assert made["to_networkx"]["g"] is not g
    assert sorted(made["to_networkx"]["g"].edges()) == sorted(g.edges())
    assert (made["to_scipy"]["matrix"] != given["matrix"]).nnz == 0


def test_public_names_of_the_release_before_work_with_a_warning() -> None:
    own: Any = graphfeed
    with pytest.warns(DeprecationWarning, match="RendezvousAddress"):
        assert own.MeetingPoint is graphfeed.RendezvousAddress
    with pytest.warns(DeprecationWarning, match=r"rename Before\.begin to sample_window"):

        class Before(graphfeed.NeighborSampler):
            def begin(self, minibatches: Any, each: Any = map) -> Any:
                with pytest.warns(DeprecationWarning, match="sample_window"):
                    return super().begin(minibatches, each)

    ring = graphfeed.from_coo(([0, 1, 2], [1, 2, 0]), num_nodes=3)
    sampler = Before(graphfeed.ItemSampler(graphfeed.ItemSet(3, names="seeds"), batch_size=3), ring, [1])
    [minibatch] = graphfeed.ItemSampler(graphfeed.ItemSet(3, names="seeds"), batch_size=3)
    [hops] = sampler.sample_window([minibatch])
    with pytest.warns(DeprecationWarning, match="attach_hops"):
        assert sampler.finish(minibatch, hops).input_nodes.tolist() == [0, 1, 2]
    with pytest.warns(DeprecationWarning, match=r"rename Read\.begin_reading to start_read"):

        class Read(graphfeed.DiskBasedFeature):
            def begin_reading(self, *given: Any) -> Any: ...

    assert Read.start_read is Read.begin_reading


def test_classes_of_the_top_pickle_by_name() -> None:
    classes = [getattr(graphfeed, name) for name in [*dir(graphfeed), *graphfeed._FOUND_IN]]
    classes = [value for value in classes if inspect.isclass(value)]
    assert pickle.loads(pickle.dumps(classes)) == classes


# The dependencies are imported first, because their side effects don't count.
PROGRAM = """
import json, logging, multiprocessing, os, random, signal, sys, threading, warnings
import numpy, torch

def state():
    return {
        "environment": dict(os.environ),
        "module path": list(sys.path),
        "threads": [thread.name for thread in threading.enumerate()],
        "torch threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "torch defaults": [str(torch.get_default_dtype()), str(torch.get_default_device())],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "sharing strategy": torch.multiprocessing.get_sharing_strategy(),
        "warnings": repr([warnings.formatwarning, warnings.showwarning, warnings.filters]),
        "logging": repr(logging.getLogger().handlers),
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "random numbers": [
            repr(random.getstate()), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
        ],
        "files": sorted(os.listdir("/proc/self/fd")),
    }

before, loaded = state(), set(sys.modules)
import graphfeed
after = state()
changed = [name for name in before if before[name] != after[name]]
modules = sorted(set(sys.modules) - loaded)
print(json.dumps({"changed": changed, "modules": modules}))
"""

OPTIONAL_OR_SLOW = {
    "cupy",
    "graphfeed.channels",
    "graphfeed.distributed",
    "graphfeed.ingest",
    "graphfeed.interop",
    "graphfeed.pyg",
    "matplotlib",
    "pandas",
    "pyarrow",
    "scipy",
    "torch._dynamo",
    "torchdata",
}


@pytest.mark.slow
def test_an_import_changes_nothing_and_loads_neither_compilers_nor_optional_packages() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(run.stdout)
    assert report["changed"] == []
    assert {"llvmlite", "numba", *OPTIONAL_OR_SLOW}.isdisjoint(report["modules"])
