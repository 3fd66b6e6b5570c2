import ast
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import pytest
import torch
from torch.utils.data import functional_datapipe

import graphfeed as gf
from graphfeed.datapipes.pipeline import fluent
from graphfeed.datapipes.pipeline.fluent import find_stage, list_names

STUB = ast.parse(Path(fluent.__file__).with_suffix(".pyi").read_text())
FOUND = {name: find_stage(name) for name in list_names()}
OURS = {name: stage for name, stage in FOUND.items() if stage is not None and stage.__module__.startswith("graphfeed.")}


def stub_methods() -> dict[str, ast.FunctionDef]:
    """Return the methods of `Fluent` in the stub."""
    (body,) = (node.body for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == "Fluent")
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")}


def stub_names() -> dict[str, Any]:
    """Return the names that the stub imports."""
    names: dict[str, Any] = {}
    imports: list[ast.stmt] = [node for node in STUB.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    exec(compile(ast.Module(imports, []), "fluent.pyi", "exec"), names)
    return names


def evaluate(node: ast.expr | None) -> Any:
    assert node is not None
    return eval(ast.unparse(node), stub_names())


def stub_signature(method: ast.FunctionDef) -> list[inspect.Parameter]:
    """Return the parameters of a method in the stub, without self."""
    given = method.args
    assert (given.vararg, given.kwarg, given.posonlyargs) == (None, None, [])
    positional = given.args[1:]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + given.defaults
    return [
        inspect.Parameter(
            name.arg,
            inspect.Parameter.KEYWORD_ONLY if name in given.kwonlyargs else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=evaluate(name.annotation),
            default=inspect.Parameter.empty if default is None else evaluate(default),
        )
        for name, default in zip([*positional, *given.kwonlyargs], [*defaults, *given.kw_defaults], strict=True)
    ]


def make_pipe() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)


def make_graph() -> gf.FusedCSCSamplingGraph:
    return gf.from_coo(torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)


def test_the_stub_has_each_registered_name_and_no_other() -> None:
    assert list(stub_methods()) == sorted(OURS)


def test_the_stub_has_the_parameters_of_each_stage() -> None:
    for name, stage in OURS.items():
        method = stub_methods()[name]
        _source, *expected = inspect.signature(stage).parameters.values()
        assert stub_signature(method) == expected, name
        assert evaluate(method.returns) == (gf.Datapipe[Any] if name == "to_pyg_data" else gf.Datapipe), name


def test_the_stub_has_all_else_of_the_module() -> None:
    def defined(module: ast.Module) -> list[str]:
        kinds = (ast.FunctionDef, ast.ClassDef, ast.AnnAssign)
        found = [node for node in module.body if isinstance(node, kinds)]
        return [ast.unparse(node.target) if isinstance(node, ast.AnnAssign) else node.name for node in found]

    assert defined(STUB) == defined(ast.parse(Path(fluent.__file__).read_text()))


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
                assert isinstance(minibatch.seeds, torch.Tensor)
                return gf.MiniBatch(seeds=minibatch.seeds * self.times + self.first)

        pipe: Any = make_pipe()
        expected = [[start, 3 + start], [6 + start, 9 + start]]
        assert [batch.seeds.tolist() for batch in pipe.times_for_this_test(times=3)] == expected


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'copy_to' of .*Mine is taken by graphfeed.datapipes.copy_to.CopyTo; choose"):

        class Mine(gf.Transform, name="copy_to"):
            pass

    assert isinstance(make_pipe().copy_to("cpu"), gf.CopyTo)
