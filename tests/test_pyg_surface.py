"""The loaders under PyG's names have its arguments, and docs/from-pyg.md says what each means."""

import inspect
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from graphfeed import distributed, pyg
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.loaders.extra_options import ExtraOptions
from graphfeed.pyg.loaders.torch_options import TorchOptions
from tests.pages import rows

PAGE = Path(__file__).resolve().parents[1] / "docs" / "from-pyg.md"
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
