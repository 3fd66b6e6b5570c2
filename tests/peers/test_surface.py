"""Names and parameters that GraphBolt's users know are here, or listed as replaced or different with the reason."""

import ast
import inspect
import re
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed import distributed, pyg
from graphfeed.datapipes.pipeline.fluent import find_stage
from graphfeed.pyg.data import import_pyg
from graphfeed.pyg.loaders import TorchOptions
from graphfeed.pyg.loaders.pyg_loader import ExtraOptions
from tests.kinds.pages import rows
from tests.peers import graphbolt_surface as theirs

KINDS = inspect.Parameter
ANY = object()
ALL = torch.tensor([-1])


def parse(signature: str) -> list[inspect.Parameter]:
    """Return the parameters of a signature in the table."""
    given = ast.parse(f"def f({signature}): pass").body[0]
    assert isinstance(given, ast.FunctionDef)
    arguments = given.args
    first = len(arguments.args) - len(arguments.defaults)
    defaults = dict(zip([part.arg for part in arguments.args[first:]], arguments.defaults, strict=True))
    parameters = [
        KINDS(part.arg, KINDS.POSITIONAL_OR_KEYWORD, default=value_of(defaults.get(part.arg)))
        for part in arguments.args
    ]
    parameters += [
        KINDS(part.arg, KINDS.KEYWORD_ONLY, default=value_of(default))
        for part, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return parameters


def value_of(default: ast.expr | None) -> Any:
    if default is None:
        return KINDS.empty
    value = ast.literal_eval(default)
    return ANY if value is ... else value


def find(name: str) -> Any:
    """Return the object of a name, or None; for a fluent name, its stage."""
    if name in theirs.FLUENT and name not in theirs.SURFACE:
        return find_stage(name)
    found: Any = gf
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None) if inspect.isclass(found) else getattr(found, part, None)
    if found is None and "." in name:
        owner, _, field = name.partition(".")
        found = getattr(gf, owner, None) and getattr(gf, owner).__dict__.get("__dataclass_fields__", {}).get(field)
    return found


def complaints(name: str) -> list[str]:
    """Describe the differences of a name; empty if it is missing."""
    signature = theirs.SURFACE.get(name)
    found = find(name)
    if signature is None or found is None:
        return []
    ours = list(inspect.signature(found).parameters.values())
    if "." in name:
        ours = ours[1:]
    wrong = []
    wanted = parse(signature)
    by_name = {parameter.name: parameter for parameter in ours}
    for place, parameter in enumerate(wanted):
        if (name, parameter.name) in theirs.DIFFERENT:
            continue
        own = by_name.get(parameter.name)
        if own is None:
            wrong.append(f"{parameter.name} is missing")
        elif parameter.kind is KINDS.POSITIONAL_OR_KEYWORD and (
            own.kind is not KINDS.POSITIONAL_OR_KEYWORD or ours.index(own) != place
        ):
            wrong.append(f"{parameter.name} is not at place {place}")
        elif parameter.default is ANY:
            if own.default is KINDS.empty:
                wrong.append(f"{parameter.name} has no default")
        elif parameter.default is not KINDS.empty and own.default != parameter.default:
            wrong.append(f"{parameter.name} is {own.default} by default, not {parameter.default}")
    known = {parameter.name for parameter in wanted} | {own for kind, own in theirs.DIFFERENT if kind == name}
    for own in ours:
        needed = own.default is KINDS.empty and own.kind not in (KINDS.VAR_POSITIONAL, KINDS.VAR_KEYWORD)
        if needed and own.name not in known and "*args" not in signature:
            wrong.append(f"{own.name} is needed, and was not there")
    return wrong


KNOWN = [*theirs.SURFACE, *(name for name in theirs.FLUENT if name not in theirs.SURFACE)]
HERE = [name for name in KNOWN if name not in theirs.REPLACED]


def test_each_name_is_here_and_is_called_as_it_was() -> None:
    for name in HERE:
        assert find(name) is not None, f"add {name}, or list it with the reason in REPLACED"
        assert complaints(name) == [], name


def test_fluent_names_are_of_their_stages() -> None:
    kept = {name: stage for name, stage in theirs.FLUENT.items() if name not in theirs.REPLACED}
    assert {name: getattr(find_stage(name), "__name__", None) for name in kept} == kept


def test_what_was_replaced_is_not_here_and_its_error_says_what_to_do() -> None:
    assert set(theirs.REPLACED) <= set(KNOWN)
    assert [name for name in theirs.REPLACED if find(name) is not None] == []
    for name in theirs.REPLACED:
        if "." not in name and name not in theirs.FLUENT:
            with pytest.raises(
                AttributeError, match=rf"no attribute '{name}'; .*(instead|leave it out|returns the graph)"
            ):
                getattr(gf, name)


def test_what_differs_is_known_and_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    different = theirs.DIFFERENT
    for name, parameter in different:
        assert name in theirs.SURFACE
        rest = {key: reason for key, reason in different.items() if key != (name, parameter)}
        monkeypatch.setattr(theirs, "DIFFERENT", rest)
        assert any(text.startswith(f"{parameter} ") for text in complaints(name)), (name, parameter)


def test_what_is_ignored_is_accepted_by_name_with_one_warning_and_changes_nothing() -> None:
    graph: Any = gf.from_coo(([1, 2, 3, 0], [0, 0, 1, 2]), num_nodes=4)
    pipe: Any = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=2)
    hop, cache = graph.sample_neighbors(torch.tensor([0]), ALL, key=1), gf.CPUFeatureCache((2, 1), torch.float32)
    layer, rows, pairs = pipe.sample_per_layer(graph.sample_neighbors, -1), torch.ones(1, 1), torch.tensor([[1, 0]])
    edges: Any = gf.ItemSampler(gf.ItemSet(pairs, names="seeds"), batch_size=2)
    sampled = edges.sample_neighbor(graph, [2])
    calls: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("CPUFeatureCache", gf.CPUFeatureCache, ((2, 1), torch.float32)),
        ("CPUFeatureCache", gf.CPUFeatureCache.within, (100, (1,), torch.float32)),
        ("CPUFeatureCache.replace", cache.replace, (torch.tensor([1]), rows)),
        ("CompactPerLayer", partial(gf.CompactPerLayer, layer), (True,)),
        ("CompactPerLayer", layer.compact_per_layer, (True,)),
        ("FusedCSCSamplingGraph.sample_layer_neighbors", partial(graph.sample_layer_neighbors, random_seed=[1]),
         (torch.tensor([0]), ALL)),
        ("FusedCSCSamplingGraph.sample_neighbors", partial(graph.sample_neighbors, key=1), (torch.tensor([0]), ALL)),
        ("LayerNeighborSampler", partial(gf.LayerNeighborSampler, pipe), (graph, [2])),
        ("LayerNeighborSampler", pipe.sample_layer_neighbor, (graph, [2])),
        ("NeighborSampler", partial(gf.NeighborSampler, pipe), (graph, [2])),
        ("NeighborSampler", partial(Derived, pipe), (graph, [2])),
        ("NeighborSampler", pipe.sample_neighbor, (graph, [2])),
        ("SampledSubgraphImpl.exclude_edges", hop.exclude_edges, (pairs,)),
        ("SamplePerLayer", partial(gf.SamplePerLayer, pipe), (graph.sample_neighbors, 2)),
        ("SamplePerLayer", pipe.sample_per_layer, (graph.sample_neighbors, 2)),
        ("SeedEdgesExcluder", partial(gf.SeedEdgesExcluder, sampled), ()),
        ("SeedEdgesExcluder", sampled.exclude_seed_edges, ()),
    ]  # fmt: skip
    assert {owner for owner, _, _ in calls} == theirs.IGNORED.keys()
    for owner, call, given in calls:
        ignored = dict.fromkeys(theirs.IGNORED[owner].split(), False)
        with pytest.warns(UserWarning, match=f"ignores {', '.join(ignored)}: ") as caught:
            made = call(*given, **ignored)
        assert [warning.filename for warning in caught] == [__file__], owner
        assert describe(made) == describe(call(*given)), owner


class Derived(gf.NeighborSampler):
    more: int = 0


def describe(made: Any) -> str:
    """Return the mini-batches of a stage, or the string form of another object."""
    if isinstance(made, gf.CPUFeatureCache):
        return str(made.max_size_in_bytes)
    return str(list(made)) if isinstance(made, gf.Datapipe) else str(made)


def test_a_stage_that_has_an_ignored_name_as_a_field_keeps_it() -> None:
    class Own(gf.NeighborSampler):
        asynchronous: bool = False

    pipe: Any = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=2)
    assert Own(pipe, gf.from_coo(([1], [0]), num_nodes=4), [2], asynchronous=True).asynchronous


PAGE = Path(__file__).resolve().parents[2] / "docs" / "from-pyg.md"
LOADERS = ("NeighborLoader", "LinkNeighborLoader", "NodeLoader", "LinkLoader")
FURTHER = [name for row in rows(PAGE, "loader") for name in re.findall(r"`(\w+)`", row[0])]
NAMED = {name for row in rows(PAGE, "argument") for name in re.findall(r"`(\w+)`", row[0])}


def arguments(loader: Any, known: Collection[str] = ()) -> dict[str, Any]:
    """Return the arguments of a class with their defaults, in order, without unknown ones that only names can give."""
    parameters = inspect.signature(loader).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.name in known or not known
    }


def test_arguments_their_order_and_their_defaults_are_pygs() -> None:
    classes: list[tuple[str, Any, str]] = [
        *((name, pyg, "loader") for name in (*LOADERS, *FURTHER)),
        *((name, pyg, "sampler") for name in ("HGTSampler", "NeighborSampler")),
        *((f"Dist{name}", distributed, "distributed") for name in ("Loader", *LOADERS[:2], "NeighborSampler")),
    ]
    for name, room, module in classes:
        theirs = arguments(getattr(import_pyg(f"torch_geometric.{module}", "tests"), name))
        assert list(arguments(getattr(room, name), theirs).items()) == list(theirs.items()), name


def test_the_page_names_each_argument() -> None:
    for name in LOADERS:
        assert set(arguments(getattr(pyg, name))) - NAMED - {"kwargs"} == set(), name


def test_the_page_names_each_argument_of_torchs_loader_and_no_other() -> None:
    loaders = {name for loader in LOADERS for name in arguments(getattr(pyg, loader))}
    options = {*TorchOptions.__dataclass_fields__, *ExtraOptions.__dataclass_fields__}
    assert options - NAMED == set()
    assert NAMED - loaders - options == set()
