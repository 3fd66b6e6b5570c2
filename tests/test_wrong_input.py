"""What a tired user gives by mistake: the error comes at once, and names the argument, the value and the remedy."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.features.torch_based_feature_store import OnDiskFeatureData
from tests.refusals import Refusal, check_refused

ANY: Any = gf
GRAPH = ANY.from_coo(([1, 2, 3, 4], [0, 0, 1, 3]), num_nodes=5)
IDS = ANY.ItemSet(torch.arange(5), names="seeds")
PAIRS = ANY.ItemSet(torch.tensor([[1, 0], [2, 0]]), names="seeds")
EYE = torch.eye(5)
CSC = ANY.CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0]))
KEY = ("node", None, "feat")


def items(ids: Any = IDS, size: Any = 2) -> Any:
    return ANY.ItemSampler(ids, size)


def run(pipe: Any) -> Any:
    return list(ANY.DataLoader(pipe, num_workers=1))


def layer() -> Any:
    return ANY.SampledSubgraph(CSC, torch.tensor([0]), torch.tensor([0]))


WRONG: list[Refusal] = [
    (lambda: ANY.ItemSet(None), TypeError, "items must be a tensor, .* but is None"),
    (lambda: ANY.ItemSet("seeds"), TypeError, "items must be a tensor, .* but is 'seeds'"),
    (lambda: ANY.ItemSet(3.5), TypeError, "items must be a tensor, .* but is 3.5"),
    (lambda: ANY.HeteroItemSet([IDS]), TypeError, "itemsets must be a dict .* but is a list"),
    (
        lambda: ANY.HeteroItemSet({"user": torch.arange(3)}),
        TypeError,
        r"itemsets\['user'\] must be an ItemSet, but is a Tensor; wrap it",
    ),
    (lambda: items(size=2.5), TypeError, "batch_size must be a whole number, but is 2.5"),
    (lambda: items(size="2"), TypeError, "batch_size must be a whole number, but is '2'"),
    (
        lambda: ANY.DataLoader(items(), num_workers=1.5),
        TypeError,
        "num_workers must be a whole number, but is 1.5",
    ),
    (lambda: items().buffer("2"), ValueError, "'buffer_size' is required .* but is '2'"),
    (lambda: items().prefetch("2"), TypeError, "buffer_size must be a whole number, but is '2'"),
    (
        lambda: ANY.NeighborSampler(IDS, GRAPH, [2]),
        TypeError,
        "NeighborSampler needs mini-batches, but got items; put an ItemSampler in between",
    ),
    (
        lambda: run(items(ANY.ItemSet(torch.arange(5))).sample_neighbor(GRAPH, [2])),
        ValueError,
        "the mini-batch has no seeds; name them in the item set: names='seeds'",
    ),
    (
        lambda: run(items(ANY.ItemSet(torch.zeros(4, 2))).sample_uniform_negative(GRAPH, 1)),
        ValueError,
        "the mini-batch has no seeds",
    ),
    (
        lambda: run(items(ANY.ItemSet(torch.zeros(4, 2, 2).long(), names="seeds")).sample_neighbor(GRAPH, [2])),
        ValueError,
        r"seeds must be nodes, .* but have shape \[2, 2, 2\]",
    ),
    (
        lambda: items().sample_neighbor(GRAPH, ["2"]),
        TypeError,
        r"fanouts\[0\] must be .* a list of numbers .* but is '2'",
    ),
    (
        lambda: items().sample_neighbor(GRAPH, [{"a:b:c": 2}]),
        ValueError,
        r"fanouts\[0\] must have a number for each edge type of the graph, which has no types, but has \['a:b:c'\]",
    ),
    (
        lambda: items().sample_neighbor(GRAPH, 2.5),
        ValueError,
        r"fanouts must hold one number per hop, as in \[10, 10\], but is 2.5",
    ),
    (
        lambda: items().sample_in_subgraph(None),
        TypeError,
        "graph must be a SamplingGraph, but is a NoneType; make one",
    ),
    (
        lambda: items(PAIRS).sample_uniform_negative(5, 1),
        TypeError,
        "graph must be a SamplingGraph, but is a int; make one",
    ),
    (
        lambda: items().sample_per_layer(GRAPH, 2),
        TypeError,
        "sampler must be a method of a graph, as graph.sample_neighbors, but is a FusedCSC",
    ),
    (lambda: items().transform(5), TypeError, "transformer must be a function .* but is a int"),
    (
        lambda: ANY.BasicFeatureStore({KEY: EYE}),
        TypeError,
        r"must be a Feature, but is a Tensor of shape \(5, 5\) .*; wrap a tensor in TorchBasedFeature",
    ),
    (
        lambda: ANY.BasicFeatureStore({"feat": ANY.TorchBasedFeature(EYE)}),
        TypeError,
        r"a key must be \(domain, type or None, name\), but is 'feat'",
    ),
    (lambda: ANY.BasicFeatureStore(None), TypeError, "features must be a dict .* but is a NoneType"),
    (
        lambda: ANY.TorchBasedFeature([["a", "b"]]),
        TypeError,
        r"torch_feature must be a torch.Tensor, a NumPy array, or a list of numbers .*, but is \[\['a', 'b'\]\]",
    ),
    (
        lambda: ANY.TorchBasedFeature(EYE).read([True, False]),
        TypeError,
        "ids must be torch.int32 or torch.int64, but is torch.bool; convert it",
    ),
    (
        lambda: ANY.TorchBasedFeatureStore([OnDiskFeatureData("nodes", "feat", "numpy", "a.npy")]),  # type: ignore[arg-type]
        ValueError,
        "a.npy: domain must be 'node', 'edge' or 'graph', but is 'nodes'",
    ),
    (
        lambda: layer().exclude_edges((torch.tensor([0]), torch.tensor([1]))),
        TypeError,
        r"edges must be a tensor of shape \(N, 2\), but is a tuple",
    ),
    (
        lambda: ANY.SampledSubgraph((torch.tensor([0, 1]), torch.tensor([0]))),
        TypeError,
        "sampled_csc must be a CSCFormatBase, .* but is a tuple",
    ),
    (
        lambda: ANY.traverse_dps(IDS),
        TypeError,
        "datapipe must be a pipeline of stages, but is a ItemSet",
    ),
]


@pytest.mark.filterwarnings("ignore:the item set has no names")
def test_the_error_says_what_is_wrong() -> None:
    check_refused(WRONG)


def test_a_file_that_holds_no_array_is_named(tmp_path: Path) -> None:
    path = tmp_path / "feat.npy"
    path.write_text("hello")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} is no .npy file: .*; write it with numpy.save"):
        gf.DiskBasedFeature(path)
