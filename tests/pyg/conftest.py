"""PyG, or a stand-in where it is not installed."""

import sys
import warnings
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Data(SimpleNamespace):
    """Takes attributes by either way, as PyG's."""

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class HeteroData:
    """Has a store for each type."""

    def __init__(self) -> None:
        self.stores: dict[Any, Data] = defaultdict(Data)

    def __getitem__(self, kind: Any) -> Data:
        return self.stores[kind]


@pytest.fixture(params=["stand-in", "installed"])
def pyg(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "installed":
        if find_spec("torch_geometric") is None:
            pytest.skip("torch_geometric is not installed")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other packages warn of on import is not ours
            import_module("torch_geometric.data")
    if request.param == "stand-in":
        module = ModuleType("torch_geometric.data")
        vars(module).update(Data=Data, HeteroData=HeteroData)
        monkeypatch.setitem(sys.modules, "torch_geometric", ModuleType("torch_geometric"))
        monkeypatch.setitem(sys.modules, "torch_geometric.data", module)
