"""For any argument of a public function or an operation, errors name an argument in a few words."""

import datetime
import decimal
import inspect
import json
import os
import re
import resource
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from tests.kinds import calls
from tests.kinds.public_calls import IDS, NOT_CALLED, Call, every_call, feature, graph, items, write_files
from tests.kinds.refusals import MOST_LETTERS, check_refused
from tests.stand_ins.attack import attack_all
from tests.stand_ins.forked import in_child
from tests.stand_ins.scripts import REPOSITORY, run

KINDS = (TypeError, ValueError, IndexError, KeyError)
MEMORY_BYTES = 3 << 29
NO_MEMORY = "allocate memory"
MOST_UNNAMED = 0.02
"""Maximum share of errors that only name another argument, which this one contradicts."""
CALLED = {
    "dst_nodes": "seeds", "edge_index": "edge_id", "edge_timestamp_attr_name": "attributes?", "edges": "pairs",
    "ids": "index", "key": "keys", "neg_sampling": "mode", "neighbor_sampler": "sampler", "node_idx": "input_nodes",
    "node_timestamp_attr_name": "attributes?", "nodes": "seeds", "num_neighbors": "fanouts", "old_datapipe": "old",
    "pre_time_window": "windows|seeds_pre_time_window", "prob_name": "attributes?", "probs_name": "attributes?",
    "rows": "torch_feature", "seeds": "seed", "unique_dst_nodes": "seeds",
    "seeds_pre_time_window": "windows|pre_time_window", "tensor": "edge_attributes|node_attributes",
}  # fmt: skip
"""Names in errors of arguments that users know by another name."""
NO_FLAGS: list[Any] = [None, "no", "", -1, 2, 0.0, [], {}, torch.tensor([True]), object()]


def odd_values() -> list[Any]:
    """Return values of many kinds: most of them are wrong for most arguments."""
    ids = torch.arange(3)
    return [
        None, True, False, 0, 1, -1, 2, 2**31, 2**63, 1 << 100, 1.5, -0.5, float("nan"), float("inf"), 1j,
        "", "text", "5", "a:b:c", "x" * 1000, b"x", Path("none such"), ...,
        [], [1], [-1], [1.5], ["a"], [None], [[1, 2], [3]], (), (1,), (1, "a"), ("a", "b", "c"), range(3),
        {}, {"a": 1}, {1: 2}, {"x" * 99: "y" * 1000}, set(), {1}, iter([]), slice(3),
        object(), int, len, lambda: None, datetime.datetime(2020, 1, 1), decimal.Decimal("1.5"), torch.float32,
        ids, -ids, torch.empty(0), torch.tensor(1), torch.tensor(-1.5), torch.ones(2, 2), torch.ones(10_000), ids > 0,
        torch.full((3,), 2**62), torch.ones(2, dtype=torch.complex64), ids.to_sparse(),
        np.ones(2), np.array(["a", "b"]), np.float32(0.5), np.int64(3), gf.ItemSet(3), graph(), feature(), items(),
    ]  # fmt: skip


def swept(call: Call) -> Iterator[inspect.Parameter]:
    """Return the parameters that can be given a value, and the other arguments of the call."""
    parameters = inspect.signature(call.function).parameters
    for parameter in parameters.values():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            yield parameter
    for name, value in call.arguments.items():
        if name not in parameters:
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=type(value))


def refusal(call: Call, name: str, value: Any) -> Exception | None:
    """Make a call with another value for an argument; return the error, if there is one."""
    try:
        call.then(call.function(**call.arguments | {name: value}))
    except Exception as error:
        return error
    return None


def is_clear(error: Exception, name: str) -> bool:
    """Return whether an error names an argument in a few words."""
    if isinstance(error, OSError):
        return True  # it names the file
    words = rf"\b({name}|{CALLED.get(name, name)})\b"
    return isinstance(error, KINDS) and re.search(words, str(error)) is not None and len(str(error)) <= MOST_LETTERS


def sweep(folder: Path, values: list[Any]) -> list[tuple[str, str, str, str]]:
    """Pass each value for each argument; return the outcomes: "taken", "named", "short of memory" or "unnamed"."""
    os.chdir(folder)
    write_files(folder)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = []
    for place, make in every_call(folder).items():
        # Of each callable, because threads and programs that earlier ones leave have memory, too.
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        for parameter in swept(make()):
            call, name = make(), parameter.name
            for value in values:
                if name == "datapipe" and hasattr(value, "__iter__"):
                    continue  # user-defined stages may accept other objects as mini-batches
                if "SAINT" in place and isinstance(value, int) and value > 1 << 20:
                    continue  # a valid number of samples or steps, but counting them takes hours
                error = refusal(call, name, value)
                if error is None:
                    call, end = make(), "taken"  # it may have changed its arguments
                elif isinstance(error, MemoryError) or NO_MEMORY in str(error):
                    end = "short of memory"
                else:
                    end = "named" if is_clear(error, name) else "unnamed"
                found.append((end, place, name, f"{value!r:.40}: {error!r:.200}"))
    return found


def ends_of_sweep(folder: Path, values: list[Any]) -> list[Any]:
    """Sweep in a separate process."""
    text = in_child(lambda: json.dumps(sweep(folder, values)), seconds=580)
    assert text.startswith("["), text
    return list(json.loads(text))


def test_every_public_callable_is_called(tmp_path: Path) -> None:
    public = {name: getattr(gf, name) for name in {*dir(gf), *gf._FOUND_IN}}
    errors = {name for name, value in public.items() if isinstance(value, type) and issubclass(value, BaseException)}
    callables = {name for name, value in public.items() if isinstance(value, type) or inspect.isfunction(value)}
    called = {place.split(".")[0].split(" of ")[0] for place in every_call(tmp_path)}
    assert callables - errors - called == set(" ".join(NOT_CALLED.values()).split())


def test_valid_calls_of_public_names_work_whatever_the_default_device_is(tmp_path: Path) -> None:
    write_files(tmp_path)
    for make in every_call(tmp_path).values():
        call = make()
        with torch.device("meta"):
            made = call.function(**call.arguments)
        call.then(made)


def rows_from_lists(num_workers: int) -> list[Any]:
    """Return the features that a loader fetches if all arguments are lists."""
    ring = gf.from_coo([[0, 1, 2], [1, 2, 0]], 3, edge_attributes={"time": [3, 4, 5]})
    items = gf.ItemSet(([0, 1, 2], np.array([9, 9, 9])), names=("seeds", "timestamp"))
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature([[0.5], [1.5], [2.5]])})
    pipe = gf.ItemSampler(items, batch_size=2, shuffle=True)
    pipe = pipe.temporal_sample_neighbor(ring, [2, 1], edge_timestamp_attr_name="time").fetch_feature(store, ["feat"])
    with gf.DataLoader(pipe, num_workers=num_workers, seed=0) as loader:
        return [minibatch.node_features["feat"].tolist() for minibatch in loader]


def test_lists_become_tensors_on_the_cpu_whatever_the_default_device_is() -> None:
    expected = rows_from_lists(0)
    with torch.device("meta"):
        assert rows_from_lists(0) == rows_from_lists(2) == expected


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_refusal_names_the_argument(step: int, tmp_path: Path) -> None:
    ends = ends_of_sweep(tmp_path, odd_values()[::step])
    unnamed = [end for end in ends if end[0] == "unnamed"]
    refused = len(unnamed) + sum(end[0] == "named" for end in ends)
    assert refused > 100 * len(odd_values()[::step])
    assert len(unnamed) <= MOST_UNNAMED * refused, "\n".join(" ".join(end[1:]) for end in unnamed)


def test_a_flag_is_true_or_false(tmp_path: Path) -> None:
    write_files(tmp_path)
    wrong = []
    for place, make in every_call(tmp_path).items():
        call = make()
        for parameter in swept(call):
            if parameter.annotation in (bool, bool | None):
                for value in NO_FLAGS[parameter.annotation is not bool :]:
                    error = refusal(call, parameter.name, value)
                    if not isinstance(error, TypeError) or parameter.name not in str(error):
                        wrong.append(f"{place}({parameter.name}={value!r}): {error!r}")
    assert not wrong, "\n".join(wrong)


def test_what_is_no_number_flag_or_list_is_refused_by_its_name() -> None:
    made = every_call(Path())
    table: list[tuple[str, dict[str, Any], str]] = [
        ("DataLoader", {"observer": {}}, "^observer must be an object with the methods of Observer, but is {}"),
        ("SamplingServers", {"patience": np.ones(2)}, "^patience must be a number, but is array"),
        ("DataLoader", {"num_workers": True}, "^num_workers must be an integer, but is True"),
        ("DataLoader", {"overlap_graph_fetch": "no"}, "^overlap_graph_fetch must be True or False, but is 'no'"),
        ("SamplingServers", {"tls_root_certs": "text"}, "^tls_root_certs must be bytes, .* but is 'text'"),
        ("DataLoader", {"servers": np.array([1])}, "^servers must be a list of addresses"),
        ("MiniBatch.to", {"device": "a:b"}, "^device must be a device, such as 'cpu' .*, but is 'a:b'"),
        ("PartBook", {"owners": torch.tensor(1)}, r"^owners must be .*, but is tensor\(1\)"),
        ("NeighborSampler", {"fanouts": gf.ItemSet(3)}, "^fanouts must hold one number per hop, .*, but is an ItemSet"),
        ("from_coo", {"num_nodes": np.bool_(True)}, "^num_nodes must be an integer or a dict, but is np.True_"),
        ("replace", {"new": None}, "^new must be a stage, but is None"),
        ("loaders", {"task": gf.OnDiskTask({}, gf.ItemSet(IDS), None, None), "negative_ratio": 2},
         "^negative_ratio is for items that are edges, but task has items that are nodes; leave it out"),
        ("loaders", {"task": gf.OnDiskTask({}, gf.ItemSet(IDS), None, None), "reverse_etypes": {}},
         "^reverse_etypes is for items that are edges, but task has items that are nodes; leave it out"),
    ]  # fmt: skip
    check_refused((partial(refused, made[place](), given), KINDS, words) for place, given, words in table)


def refused(call: Call, given: dict[str, Any]) -> Any:
    return call.function(**call.arguments | given)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    for two in (np.int64(2), torch.tensor(2)):
        number: Any = two
        with gf.DataLoader(
            gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=number), num_workers=number
        ) as loader:
            assert [minibatch.seeds.tolist() for minibatch in loader] == [[0, 1], [2, 3]]


def test_names_that_are_nearly_right_are_told_the_right_one() -> None:
    own: Any = gf
    pipe, pairs = own.ItemSampler(own.ItemSet(3, names="seeds"), 2), torch.tensor([[0, 1], [1, 2]])
    ring = gf.from_coo(pairs, num_nodes=3)
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.eye(3))})
    check_refused([
        (lambda: pipe.sample_neighbour(ring, [2]), AttributeError, "neighbour'; did you mean 'sample_neighbor'"),
        (lambda: pipe.sample_neighbor(ring, fanout=[2]), TypeError,
         r"^sample_neighbor\(\) has no argument 'fanout'; did you mean 'fanouts'\?$"),
        (lambda: own.DataLoader(pipe, num_worker=2), TypeError,
         r"^DataLoader\(\) has no argument 'num_worker'; did you mean 'num_workers'"),
        (lambda: own.from_coo(pairs, num_node=5), TypeError,
         r"^from_coo\(\) has no argument 'num_node'; did you mean 'num_nodes'\?$"),
        (lambda: store["node", None, "feet"], KeyError,
         r"^feature \('node', None, 'feet'\) is not in the feature store; did you mean 'feat'\?$"),
        (lambda: ring.edge_attribute("w"), KeyError, "^Edge attribute w does not exist; the graph has"),
    ])  # fmt: skip


UNCHECKED = {"group_by_type", "latest_cells", "place_nodes"}
"""Operations that don't check all values: grouping of picks that were just sampled; edges of a checked graph; and
assignment of nodes range by range, for which checking the parts of all nodes would cost more than a range."""
NAMES = sorted(set(calls.calls()) - UNCHECKED)
EXAMPLES = [10, pytest.param(60, marks=pytest.mark.thorough)]


def is_operation(value: object) -> bool:
    """Return whether a function documents its errors; the others get checked arguments, or reach no kernel."""
    return isinstance(value, FunctionType) and "Raises:" in (value.__doc__ or "")


def test_every_operation_is_attacked() -> None:
    doors = (ops.rows, ops.sampling, ops.structure)
    operations = {name for door in doors for name in door.__all__ if is_operation(getattr(door, name))}
    called = {name.split()[0] for name in NAMES}
    assert operations - called <= UNCHECKED
    assert called <= set(ops.__all__)


def test_valid_calls_of_operations_work() -> None:
    for name, call in calls.calls().items():
        if name != "pin_in_place":
            call.run(**call.arguments)


@pytest.mark.slow
@pytest.mark.parametrize("examples", EXAMPLES)
def test_no_argument_ends_the_process_and_each_error_names_one(examples: int, tmp_path: Path) -> None:
    record = tmp_path / "call"
    said = in_child(lambda: "\n".join(attack_all(NAMES, examples, record)), seconds=280)
    assert not said, f"{said}\nat {record.read_text()}"


@pytest.mark.slow
@pytest.mark.parametrize("examples", EXAMPLES)
def test_no_argument_makes_a_kernel_reach_outside_of_an_array(examples: int, tmp_path: Path) -> None:
    given = ["-m", "tests.stand_ins.attack", json.dumps(NAMES), str(examples), str(tmp_path / "call")]
    done = run(*given, cwd=REPOSITORY, seconds=280, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stdout, done.stdout
