from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.pyg.data.store_feature import StoreFeature
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.stores import counting_store


def feature(values: Any, store: Any = None) -> StoreFeature:
    store = store or counting_store()
    store.put_tensor(values, group_name="paper", attr_name="x", index=None)
    return StoreFeature(store, import_pyg("torch_geometric.data", "tests").TensorAttr("paper", "x"))


def test_rows_come_in_the_order_of_the_ids() -> None:
    found = feature(torch.arange(6).reshape(3, 2))
    assert found.read(torch.tensor([2, 0, 2], dtype=torch.int32)).tolist() == [[4, 5], [0, 1], [4, 5]]
    assert found.read().shape == (3, 2)
    assert found.read(torch.empty(0, dtype=torch.int64)).shape == (0, 2)
    assert (found.size(), found.count()) == (torch.Size([2]), 3)
    assert not found.may_read_in_threads()


def test_arrays_become_tensors() -> None:
    base: Any = import_pyg("torch_geometric.testing", "tests").MyFeatureStore

    class Arrays(base):  # type: ignore[misc]
        def _get_tensor(self, attr: Any) -> Any:
            return np.asarray(super()._get_tensor(attr))

    found = feature(torch.arange(3.0), Arrays())
    assert found.read(torch.tensor([1])).tolist() == [1.0]
    assert found.read().tolist() == [0.0, 1.0, 2.0]


def test_a_store_that_leaves_rows_out_is_an_error() -> None:
    found = feature(torch.arange(3))
    with pytest.raises(ValueError, match="feature 'x' of 'paper' in CountingStore has 1 rows for 2 ids"):
        found.read(torch.tensor([1, 7]))


def test_it_is_only_read() -> None:
    with pytest.raises(TypeError, match=r"is only read here; call update_tensor\(\)"):
        feature(torch.arange(3)).update(torch.arange(3))
