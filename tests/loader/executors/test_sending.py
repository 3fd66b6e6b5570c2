import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader.executors.sending import LIMIT_BYTES, can_be_sent
from tests.pipelines import seeds
from tests.scripts import run

NOTEBOOK = """
import sys
import graphfeed as gf
from graphfeed.loader.executors.sending import can_be_sent

class Stage(gf.Transform):
    pass

def work(minibatch):
    return minibatch

source = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)
for _ in range(2):
    print(can_be_sent(source.transform()), can_be_sent(Stage(source)), can_be_sent(source.transform(work)))
    sys.modules["cloudpickle"] = None
"""


class Holds(gf.Transform):
    value: Any


@pytest.mark.parametrize("value", [3, torch.arange(9), np.arange(9), "text", Holds])
def test_small_values_travel(value: Any) -> None:
    assert can_be_sent(Holds(seeds(), value))


@pytest.mark.parametrize(
    "value",
    [lambda: 3, torch.zeros(LIMIT_BYTES), np.zeros(LIMIT_BYTES), torch.zeros(1, device="meta"), "a" * LIMIT_BYTES],
)
def test_functions_without_a_name_and_large_values_do_not(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    assert not can_be_sent(Holds(seeds(), value))


def test_what_is_sent_as_a_handle_stays_where_it_is() -> None:
    feature = gf.TorchBasedFeature(torch.zeros(LIMIT_BYTES, 2))
    address = feature.read().data_ptr()
    assert can_be_sent(seeds().fetch_feature(gf.BasicFeatureStore({("node", None, "feat"): feature}), ["feat"]))
    assert feature.read().data_ptr() == address


def test_stages_before_do_not_count() -> None:
    assert can_be_sent(Holds(Holds(seeds(), threading.Lock()), 3))
    assert not can_be_sent(Holds(seeds(), threading.Lock()))


def test_cloudpickle_sends_functions_without_a_name_but_no_large_values() -> None:
    pytest.importorskip("cloudpickle")
    assert can_be_sent(Holds(seeds(), lambda: 3))
    assert not can_be_sent(Holds(seeds(), torch.zeros(LIMIT_BYTES)))


def test_a_class_of_a_notebook_needs_cloudpickle() -> None:
    done = run("-c", NOTEBOOK)
    assert (done.returncode, done.stdout) == (0, "True True True\nTrue False False\n"), done.stderr
