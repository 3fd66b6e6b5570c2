import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from typing import Any, assert_type

import pytest
import torch
from torch.utils.data import functional_datapipe

import graphfeed as gf
from graphfeed.datapipes.pipeline.fluent import find_stage, list_names

FOUND = {name: find_stage(name) for name in list_names()}
OURS = {name: stage for name, stage in FOUND.items() if stage is not None and stage.__module__.startswith("graphfeed.")}


def make_pipe() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)


def test_type_checkers_see_the_stages() -> None:
    """Mypy checks the types, and also reports ignored errors that don't occur."""
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.eye(4))})
    pipe = assert_type(gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2), gf.Datapipe)
    pipe = assert_type(pipe.sample_neighbor(make_graph(), [1]), gf.Datapipe)
    pipe = pipe.fetch_feature(store, node_feature_keys=["feat"]).transform().copy_to("cpu")
    assert_type(next(iter(gf.DataLoader(pipe, num_workers=0))), gf.MiniBatch)
    assert [type(stage) for stage in gf.traverse(pipe)] == [
        gf.ItemSampler,
        gf.NeighborSampler,
        gf.FeatureFetcher,
        gf.MiniBatchTransformer,
        gf.CopyTo,
    ]
    with pytest.raises(AttributeError, match="sample_neighbors"):
        make_pipe().sample_neighbors(make_graph(), [1])  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="fan_outs"):
        make_pipe().sample_neighbor(make_graph(), fan_outs=[1])  # type: ignore[call-arg]


@pytest.mark.slow
def test_a_stage_is_found_when_its_name_is_first_used() -> None:
    program = """
import sys
import graphfeed as gf

pipe = gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1)
assert {"mark_end", "prefetch", "sample_neighbor"} <= set(dir(pipe))
assert "graphfeed.interop" not in sys.modules
try:
    class Mine(gf.Transform, name="mark_end"):
        pass
except ValueError as error:
    print(error)
print(pipe.mark_end())
"""
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    taken, shown = run.stdout.splitlines()
    assert "'mark_end' of Mine is taken by graphfeed.interop.graphbolt.EndMarker" in taken
    assert shown == "ItemSampler(item_set=ItemSet(2 items), batch_size=1) -> EndMarker()"


def test_dir_and_help_show_the_stages() -> None:
    pipe: Any = make_pipe()
    assert OURS.keys() | {"batch_size", "with_seed", "__iter__"} <= set(dir(pipe))
    assert dir(pipe) == sorted(set(dir(pipe)))
    constructor = pipe.sample_neighbor
    assert constructor.__doc__ == gf.NeighborSampler.__doc__
    assert (constructor.__name__, constructor.__module__) == ("sample_neighbor", gf.NeighborSampler.__module__)
    assert constructor.__qualname__ == "ItemSampler.sample_neighbor"
    shown = inspect.signature(constructor)
    assert list(shown.parameters) == list(inspect.signature(gf.NeighborSampler).parameters)[1:]
    assert shown.return_annotation is gf.NeighborSampler
    # Since Python 3.13, each parameter has a line.
    assert re.search(r"sample_neighbor\(\s*graph: ", pydoc.plain(pydoc.render_doc(constructor)))


def test_an_unknown_name_is_named_beside_the_stages_there_are() -> None:
    pipe: Any = make_pipe()
    with pytest.raises(
        AttributeError,
        match=r"'ItemSampler' has no attribute or stage 'xyz'; stages are \[.*'copy_to'.*; transform\(function\)",
    ):
        pipe.xyz()
    assert not hasattr(pipe, "shape")
    with pytest.raises(AttributeError, match=r"no attribute or stage 'bufer'; did you mean 'buffer'\?$") as raised:
        pipe.bufer()
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_name_that_torchs_decorator_did_not_give_is_explained() -> None:
    @functional_datapipe("tripled")
    class Tripled(gf.Transform):
        pass

    pipe: Any = make_pipe()
    with pytest.raises(AttributeError, match=r"'tripled'.*adds one, which torch's functional_datapipe does not"):
        pipe.tripled()


def test_a_stage_of_ones_own_gets_a_fluent_name_which_a_class_statement_that_runs_again_takes_over() -> None:
    for start in (0, 1):  # as in a notebook

        class Doubled(gf.Transform, name="times_for_this_test"):
            times: int = 2
            first: int = start

            def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
                return gf.MiniBatch(seeds=minibatch.seeds * self.times + self.first)

        pipe: Any = make_pipe()
        expected = [[start, 3 + start], [6 + start, 9 + start]]
        assert [batch.seeds.tolist() for batch in pipe.times_for_this_test(times=3)] == expected


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'copy_to' of .*Mine is taken by graphfeed.datapipes.copy_to.CopyTo; choose"):

        class Mine(gf.Transform, name="copy_to"):
            pass

    assert isinstance(make_pipe().copy_to("cpu"), gf.CopyTo)
