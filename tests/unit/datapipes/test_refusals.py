"""Errors of stages, in the words that users read. Odd values of each field are tested in test_datapipe.py."""

from functools import partial
from typing import Any, cast

import torch

import graphfeed as gf
from graphfeed.datapipes.sources.items_by_owner import group_items
from graphfeed.distributed import PartBook
from graphfeed.storage import OnDiskFeatureData
from graphfeed.storage.graph import ByType
from tests.kinds import pipelines
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.stages import ByFields, ByInit, InPairs, make_items, make_join

ANY: Any = gf
EMPTY: Any = gf.IterableSource([])
GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 600, 0), 50, edge_attributes={"time": torch.arange(600)})
LIKES, LIKED = "user:likes:item", "item:liked_by:user"
TYPED = gf.from_coo(
    {LIKES: pipelines.random_edges(20, 10, 100, 1), LIKED: pipelines.random_edges(10, 20, 100, 2)},
    {"user": 20, "item": 10},
    edge_attributes={"time": {LIKES: torch.arange(100), LIKED: torch.arange(100)}},
)
NODES, EDGES, CUBE = torch.arange(3), torch.tensor([[4, 9], [9, 1], [3, 3]]), torch.zeros(2, 2, 2).long()
ITEMS = gf.ItemSet(10, names="seeds")


class Plain(gf.SamplingGraph):
    """A graph without times."""

    num_nodes = num_edges = 50

    def sample_neighbors(self, seeds: ByType, *args: Any, **kwargs: Any) -> gf.SampledSubgraph:
        raise AssertionError


def batches(seeds: Any, **fields: Any) -> Any:
    return gf.IterableSource([gf.MiniBatch(seeds=seeds, **fields)])


def fanouts(given: Any, graph: gf.SamplingGraph = TYPED, **options: Any) -> Any:
    return EMPTY.sample_neighbor(graph, given, **options)


def test_fan_outs() -> None:
    check_refused([
        (lambda: fanouts([]), ValueError, r"fanouts must hold one number per hop, as in \[10, 10\], but is \[\]"),
        (lambda: fanouts({}), ValueError, r"fanouts must hold one number per hop, .* but is \{\}"),
        (lambda: fanouts("55"), ValueError, "fanouts must hold one number per hop, .* but is '55'"),
        (lambda: fanouts([5, 2.5]), TypeError, r"fanouts\[1\] must be an integer, .*, but is 2.5"),
        (lambda: fanouts(["all"]), TypeError, r"fanouts\[0\] must be an integer, or one per edge type, but is 'all'"),
        (lambda: fanouts([True]), TypeError, r"fanouts\[0\] must be an integer, .*, but is True"),
        (lambda: fanouts([5, -2]), ValueError, r"fanouts\[1\] must be -1 \(all neighbours\) or more, but is -2"),
        (lambda: fanouts([[5, 5]], GRAPH), ValueError,
         r"fanouts\[0\] has 2 numbers; give one fan-out for all edge types: the graph has one"),
        (lambda: fanouts([5, [1, 2, 3]]), ValueError, r"fanouts\[1\] has 3 numbers; give one .*, or 2: one per"),
        (lambda: fanouts([[]]), ValueError, r"fanouts\[0\] has 0 numbers; give one fan-out for all edge types"),
        (lambda: fanouts([{LIKES: 1}]), ValueError,
         r"fanouts\[0\] must have a number for each edge type .*, but has \['user:likes:item'\]; 0 s"),
        (lambda: fanouts([2, {LIKES: 1, "a:b:c": 2}]), ValueError, r"fanouts\[1\] must have a number for each"),
        (lambda: fanouts({LIKES: [1], LIKED: [1, 2]}), ValueError, "fanouts must have equally many numbers for "),
        (lambda: fanouts({LIKES: 1, LIKED: 1}), TypeError, r"fanouts\['user:likes:item'\] must hold one number pe"),
        (lambda: fanouts([{LIKES: 1, LIKED: -2}]), ValueError, r"fanouts\[0\] must be -1 \(all neighbours\) or"),
        (lambda: fanouts([{LIKES: 1, LIKED: 1.5}]), TypeError, r"fanouts\[0\] must be an integer, .*, but is \{"),
        (lambda: fanouts([{LIKES: 1, LIKED: None}]), TypeError, r"fanouts\[0\] must be an integer, .*': None\}"),
        (lambda: fanouts([{LIKES: 1, ("item", "user"): 1}]), ValueError, "must have three parts"),
        (lambda: fanouts([torch.zeros(10**6)]), TypeError, r"integer, .*, but is a Tensor of shape \(1000000,\)"),
        (lambda: fanouts([{LIKES: 2}], GRAPH), ValueError, r"which has no types, but has \['user:likes:item'\]"),
    ])  # fmt: skip


def test_flags_numbers_and_names_are_told_apart() -> None:
    check_refused([
        (lambda: fanouts([1], replace="yes"), TypeError, "^replace must be True or False, but is 'yes'"),
        (lambda: fanouts([1], replace=2), TypeError, "^replace must be True or False, but is 2"),
        (lambda: fanouts([1], prob_name=3), TypeError, "^prob_name must be a string, but is 3$"),
        (lambda: EMPTY.copy_to("cpu", None), TypeError, "^non_blocking must be True or False, but is None$"),
        (lambda: labor(batch_dependency=1.5), TypeError, "^batch_dependency must be an integer, but is 1.5"),
        (lambda: EMPTY.prefetch(1 << 70), ValueError, "^buffer_size must be in .*, but is 118059"),
        (lambda: pairs("binary", "2"), TypeError, "amount must be a number, but is '2'"),
        (lambda: ANY.Bufferer(3), TypeError, "^datapipe, the source of Bufferer, must be a stage or an iterable"),
    ])  # fmt: skip


def labor(**options: Any) -> Any:
    return EMPTY.sample_layer_neighbor(GRAPH, [3], **options)


def in_time(**options: Any) -> Any:
    return EMPTY.temporal_sample_neighbor(
        **{"graph": GRAPH, "fanouts": [1], "edge_timestamp_attr_name": "time"} | options
    )


def by_budget(numbers: Any, graph: Any = TYPED) -> Any:
    return EMPTY.sample_by_budget(graph, numbers)


def test_samplers_when_the_pipeline_is_written() -> None:
    check_refused([
        (lambda: fanouts([1], prob_name="x"), KeyError, "Edge attribute x does not exist"),
        (lambda: fanouts([1], cooperative=True, only_new=True), ValueError, "cooperative and only_new are both Tr"),
        (lambda: fanouts([1], cooperative=True, disjoint=True), ValueError, "cooperative and disjoint are both Tr"),
        (lambda: labor(batch_dependency=0), ValueError, "batch_dependency must be 1 or more, but is 0"),
        (lambda: in_time(edge_timestamp_attr_name=None), ValueError,
         "neither node_timestamp_attr_name nor edge_timestamp_attr_name is given"),
        (lambda: in_time(edge_timestamp_attr_name="when"), KeyError, "Edge attribute when does not exist"),
        (lambda: in_time(node_timestamp_attr_name="when"), KeyError, "Node attribute when does not exist"),
        (lambda: in_time(strategy="latest", replace=True), ValueError, "strategy='latest' takes each edge once"),
        (lambda: in_time(strategy="latest", prob_name="time"), ValueError,
         "whatever its weight, but 'time' has weights of torch.int64"),
        (lambda: EMPTY.sample_in_subgraph(GRAPH, "x"), KeyError, "Edge attribute x does not exist"),
        (lambda: in_time(pre_time_window=-1), ValueError, "pre_time_window must be an integer, 0 or more"),
        (lambda: in_time(pre_time_window=2**63), ValueError, "pre_time_window must be an integer, 0 or more"),
        (lambda: gf.TemporalSampler(EMPTY, GRAPH, [3], edge_timestamp_attr_name="time"), NotImplementedError,
         "TemporalSampler must implement chosen_by"),
        (lambda: by_budget({"user": [1]}), ValueError, r"must have the node types \['user', 'item'\], but has \['"),
        (lambda: by_budget({"user": [1], "item": [-1]}), ValueError, "num_samples of 'item' must be 0 or more, bu"),
        (lambda: by_budget({"user": 1, "item": [1]}), TypeError, "num_samples of 'user' must be numbers, one per "),
        (lambda: by_budget([]), ValueError, "num_samples is empty"),
        (lambda: by_budget([1], GRAPH), ValueError, "graph has no types"),
        (lambda: EMPTY.compact_per_layer(True, cooperative=True), ValueError, "cooperative must be False"),
        (lambda: EMPTY.sample_in_subgraph(None), TypeError, "graph must be a SamplingGraph, but is None; "),
        (lambda: EMPTY.sample_per_layer(GRAPH, 2), TypeError, "must be a method of a graph, such as graph.sample"),
        (lambda: EMPTY.transform(5), TypeError, "transformer must be a function .* but is an int"),
        (lambda: ANY.NeighborSampler(ITEMS, GRAPH, [2]), TypeError, "but got items; put an ItemSampler in between"),
    ])  # fmt: skip


def test_samplers_when_mini_batches_come() -> None:
    timed = batches(NODES, timestamp=NODES).temporal_sample_neighbor(Plain(), [1], edge_timestamp_attr_name="time")
    hop = batches(NODES).sample_per_layer(GRAPH.sample_neighbors, 2)
    check_refused(
        [
            (lambda: list(batches(None).sample_neighbor(GRAPH, [1])), ValueError, "the mini-batch has no seeds; name"),
            (lambda: list(batches(NODES + 48).sample_neighbor(GRAPH, [1])), ValueError, "seeds must be in 0 .. 49, b"),
            (lambda: list(batches(NODES - 1).sample_neighbor(GRAPH, [1])), ValueError, "seeds must be in .* holds -1"),
            (lambda: list(batches(NODES / 2).sample_neighbor(GRAPH, [1])), TypeError, "seeds must be torch.int32 or"),
            (lambda: list(batches(CUBE).sample_neighbor(GRAPH, [1])), ValueError, r"nodes, .* have shape \[2, 2, 2\]"),
            (
                lambda: list(batches({"shop": NODES}).sample_neighbor(TYPED, [1])),
                KeyError,
                r"seeds have node type 'shop', but the graph has \['user', 'item'\]",
            ),
            (
                # If any of the types has node seeds, all are used unchanged.
                lambda: list(batches({"user": NODES, LIKES: NODES}).sample_neighbor(TYPED, [1])),
                KeyError,
                "seeds have node type 'user:likes:item', but the graph has",
            ),
            (lambda: list(batches(NODES + 48).sample_in_subgraph(GRAPH)), ValueError, "seeds must be in 0 .. 49, but"),
            (lambda: list(batches(NODES).sample_by_budget(TYPED, [1])), TypeError, "seeds"),
            (lambda: list(batches({"d": NODES}).sample_by_budget(TYPED, [1])), KeyError, "seeds"),
            (lambda: list(batches({"user": NODES + 18}).sample_by_budget(TYPED, [1])), ValueError, "seeds"),
            (lambda: list(batches(NODES).sample_subgraph()), NotImplementedError, "must implement sample_subgraphs"),
            (lambda: list(timed), NotImplementedError, "Plain has no pick for temporal hops"),
            (lambda: list(batches(NODES).induce_subgraph(GRAPH)), ValueError, "put a sampler before induce_subgraph"),
            (
                lambda: list(hop.sample_per_layer(GRAPH.sample_neighbors, 2)),
                ValueError,
                "the previous hop has no original_row_node_ids; put compact_per_layer",
            ),
            (
                lambda: list(batches(NODES).compact_per_layer(True)),
                ValueError,
                "has no sampled_subgraphs yet; put sample_per_layer before",
            ),
            (
                lambda: list(batches(NODES).sample_neighbor(GRAPH, [2]).compact_per_layer(True)),
                ValueError,
                "the outermost layer already has original_row_node_ids",
            ),
        ]
    )


def negatives(graph: gf.SamplingGraph, seeds: Any) -> list[Any]:
    return list(batches(seeds).sample_uniform_negative(graph, 2))


def pairs(mode: Any, amount: Any) -> Any:
    return EMPTY.sample_negative_pairs(GRAPH, mode, amount)


def test_negative_samplers() -> None:
    words = "Negative_ratio should be positive Integer: negative_ratio is"
    rows: list[Refusal] = [
        (lambda: gf.NegativeSampler(EMPTY, 0), ValueError, f"{words} 0; give the number of negatives"),
        (lambda: ANY.NegativeSampler(EMPTY, 1.5), ValueError, f"{words} 1.5"),
        (lambda: ANY.NegativeSampler(EMPTY, True), ValueError, f"{words} True"),
        (lambda: ANY.NegativeSampler(EMPTY, "2"), ValueError, f"{words} '2'"),
        (lambda: EMPTY.sample_uniform_negative(GRAPH, -1), ValueError, f"{words} -1"),
        (lambda: list(batches(EDGES).sample_negative(1)), NotImplementedError, "must implement _sample_with_etype"),
        (lambda: negatives(GRAPH, None), ValueError, "the mini-batch has no seeds"),
        (lambda: negatives(GRAPH, NODES), ValueError, r"Only tensor with shape N\*2 is supported for negative samplin"),
        (lambda: negatives(TYPED, {"user": NODES}), ValueError, "seeds of type 'user' are nodes, .* give pairs"),
        (lambda: negatives(GRAPH, EDGES[:1] + 41), ValueError,
         "destinations of node_pairs must be in 0 .. 49, but holds"),
        (lambda: negatives(TYPED, {LIKES: EDGES + 17}), ValueError, "sources of node_pairs must be in"),
        (lambda: negatives(TYPED, {"user:has:shop": EDGES}), KeyError,
         r"edge_type is 'user:has:shop', but the graph has the node types \["),
        (lambda: negatives(GRAPH, {"user:has:item": EDGES}), KeyError, "edge_type is .*, but the graph has no types"),
        (lambda: EMPTY.exclude_seed_edges(False, [LIKES]), TypeError,
         "reverse_etypes_mapping must be a dict of edge types, but is"),
        (lambda: pairs("some", 1), ValueError, "mode must be 'binary' or 'triplet', but is 'some'"),
        (lambda: pairs("binary", 0), ValueError, "amount must be more than 0, .* but is 0"),
        (lambda: pairs("triplet", 0.5), ValueError, "amount must be an integer in the mode 'triplet', but is 0.5"),
        (lambda: list(batches(NODES).sample_negative_pairs(GRAPH, "binary")), ValueError, "must be edges, shape"),
    ]  # fmt: skip
    check_refused(rows)


WITHOUT_IDS = gf.fused_csc_sampling_graph(GRAPH.csc_indptr, GRAPH.indices)
BY_TYPE = gf.BasicFeatureStore({("node", "user", "feat"): gf.TorchBasedFeature(torch.ones(20, 1))})
STORE = gf.BasicFeatureStore(
    {
        ("node", None, "feat"): gf.TorchBasedFeature(torch.ones(3, 1)),
        ("node", "user", "feat"): gf.TorchBasedFeature(torch.ones(20, 1)),
        ("edge", None, "row"): gf.TorchBasedFeature(torch.ones(600, 1)),
        ("edge", None, "cost"): gf.TorchBasedFeature(torch.ones(599, 1)),
    }
)


def fetched(graph: gf.SamplingGraph, seeds: Any, *names: Any) -> list[Any]:
    return list(batches(seeds).sample_neighbor(graph, [2]).fetch_feature(STORE, *names))


def test_features() -> None:
    features: Any = {("node", None, "feat"): torch.ones(3)}
    users = {"user": NODES}
    on_disk: Any = OnDiskFeatureData
    bare: Any = {("node", None, "feat"): torch.eye(5)}
    rows: list[Refusal] = [
        (lambda: ANY.BasicFeatureStore(None), TypeError, "features must be a dict .* but is None"),
        (lambda: ANY.BasicFeatureStore(bare), TypeError, r"a Tensor of shape \(5, 5\) .*; wrap a tensor in TorchBased"),
        (lambda: ANY.BasicFeatureStore({"feat": STORE}), TypeError,
         r"be \(domain, type or None, name\), but is 'feat'"),
        (lambda: on_disk("nodes", "feat", "numpy", "a.npy"), ValueError, "a.npy: domain must be 'node', 'edge' or"),
        (lambda: EMPTY.fetch_feature(features), TypeError, "feature_store must be a FeatureStore, but is a dict; make"),
        (lambda: EMPTY.fetch_feature(STORE, "feat"), TypeError, "node_feature_keys must be a list of names, or a dict"),
        (lambda: EMPTY.fetch_feature(STORE, {"user": "feat"}), TypeError, "node_feature_keys must be a list of names,"),
        (lambda: EMPTY.fetch_feature(STORE, [3]), TypeError, "node_feature_keys must be a list of names, or a dict of"),
        (lambda: EMPTY.fetch_feature(STORE, {"user": ["faet"]}), KeyError,
         "node_feature_keys: feature .*faet.* of node type .*user.* is not in the store; did you mean 'feat'"),
        (lambda: EMPTY.fetch_feature(STORE, ["feat", "x"]), KeyError, "feature .*x.* of nodes is not in the store; it"),
        (lambda: EMPTY.fetch_feature(BY_TYPE, ["x"]), KeyError, "not in the store, which has features by node type"),
        (lambda: EMPTY.fetch_feature(STORE, None, ["x"]), KeyError, "edge_feature_keys: feature .*x.* of edges is not"),
        (lambda: fetched(TYPED, users, ["feat"]), TypeError, r"is a list, but the mini-batch has types \['user', 'ite"),
        (lambda: fetched(TYPED, users, None, ["row"]), TypeError, r"edge_feature_keys is a list, but the mini-batch h"),
        (lambda: fetched(GRAPH, NODES, {"user": ["feat"]}), TypeError, "is a dict by type, but the mini-batch has no"),
        (lambda: EMPTY.sample_neighbor(GRAPH, [2]).fetch_feature(STORE, ["feat"]), ValueError,
         "^node_feature_keys: feature 'feat' has 3 rows, but the graph has 50 nodes; give it a row for each"),
        (lambda: EMPTY.sample_neighbor(WITHOUT_IDS, [2]).fetch_feature(STORE, None, ["cost"]), ValueError,
         "^edge_feature_keys: feature 'cost' has 599 rows, but the graph has 600 edges, by their ids; give it"),
        (lambda: EMPTY.fetch_feature(STORE, ["feet"]), KeyError,
         "^node_feature_keys: feature 'feet' of nodes is not in the store; did you mean 'feat'"),
    ]  # fmt: skip
    check_refused(rows)


def ranks(total: int = 10, batch_size: int = 4, rank: Any = 0, world_size: Any = 2, **more: Any) -> Any:
    items = gf.ItemSet(torch.arange(total), names="seeds")
    return gf.DistributedItemSampler(items, batch_size, rank=rank, world_size=world_size, **more)


def test_sources() -> None:
    wrong: Any = torch.arange(3)
    loop: Any = {"__iter__": lambda self: iter([])}
    rows: list[Refusal] = [
        *((partial(ANY.ItemSet, given), TypeError, f"a tensor, .* but is {given!r}") for given in (None, "seeds", 3.5)),
        (lambda: ANY.HeteroItemSet([ITEMS]), TypeError, "itemsets must be a dict .* but is a list"),
        (lambda: ANY.HeteroItemSet({"user": wrong}), TypeError, r"itemsets\['user'\] must be an ItemSet, .*; wrap it"),
        (lambda: gf.ItemSampler(wrong, 1), TypeError, "item_set must be an ItemSet or HeteroItemSet, but is a Tensor;"),
        (lambda: gf.ItemSampler(gf.ItemSet(0), 1), ValueError, "item_set is empty; give it at least one item"),
        (lambda: gf.ItemSampler(ITEMS, 0), ValueError, "batch_size must be 1 or more, but is 0"),
        (lambda: gf.ItemSampler(ITEMS), TypeError, "batch_size is missing; give the number of items of a mini-batch"),
        (lambda: ANY.ItemSampler(ITEMS, 4)[0], TypeError, r"no item 0; iterate it: next\(iter\(pipe\)\) is the first"),
        (lambda: ANY.ItemSampler(ITEMS, 4).minibatch(-1), IndexError, "index must be in 0 .. 2, but is -1"),
        (lambda: ANY.ItemSampler(ITEMS, 4).minibatch(3), IndexError, "index must be in 0 .. 2, but is 3"),
        (lambda: ANY.ItemSampler(ITEMS, 4, 5), TypeError, "minibatcher must be a function of rows and names, but is 5"),
        (
            # Workers call `minibatch(index)`, which would skip the loop.
            lambda: type("Looping", (gf.ItemSampler,), loop),
            TypeError,
            r"Looping defines __iter__, but workers call minibatch\(index\)",
        ),
        (lambda: ranks(rank=1, world_size=None), ValueError, "rank and world_size go together, but are 1 and None"),
        (lambda: ranks(rank=2), ValueError, "rank must be in 0 .. world_size - 1, but is 2 of 2"),
        (lambda: ranks(rank=-1), ValueError, "rank must be in 0 .. world_size - 1, but is -1 of 2"),
        (
            lambda: ranks(drop_uneven_inputs=True, pad_uneven_inputs=True),
            ValueError,
            "drop_uneven_inputs and pad_uneven_inputs are both True",
        ),
        (lambda: ranks(batch_size=0), ValueError, "batch_size must be 1 or more, but is 0"),
        (lambda: ranks(total=0), ValueError, "item_set is empty"),
        (lambda: ranks(total=16).minibatch(2), IndexError, "index must be in 0 .. 1, but is 2"),
        (lambda: gf.DataLoader(ranks()), ValueError, "no process group of them to agree on a seed; give the DataLoade"),
        (lambda: ANY.IterableSource(5), TypeError, "iterable must be an iterable of mini-batches, but is 5"),
        (lambda: len(gf.IterableSource(iter([]))), TypeError, "has no len"),
    ]
    check_refused(rows)


def test_owners_of_items() -> None:
    book, wide = PartBook.from_bounds([0, 2, 3]), PartBook.from_bounds([0, 1, 2, 4])
    four, negative = gf.ItemSet(4, names="seeds"), gf.ItemSet(torch.tensor([0, -1]), names="seeds")
    typed = gf.HeteroItemSet({"user": four, "item": four})
    no_book: Any = torch.zeros(4)
    rows: list[Refusal] = [
        (lambda: group_items(four, book), ValueError, "every node, but has 3 of them, and an item has node 3"),
        (lambda: group_items(negative, book), ValueError, "and an item has node -1"),
        (lambda: group_items(gf.ItemSet(3), book), ValueError, "a member named 'seeds', but the names are"),
        (lambda: group_items(gf.ItemSet(3, "labels"), book), ValueError, "a member named 'seeds', but the names are"),
        (lambda: group_items(four, {"a": book}), TypeError, "owners must be a PartBook for items without types, but i"),
        (lambda: group_items(four, no_book), TypeError, "owners must have the part of each node, as a PartBook does,"),
        (lambda: group_items(typed, {"user": wide}), KeyError, r"owners lacks node type 'item'; it has \['user'\]"),
        (lambda: group_items(typed, wide), TypeError, "owners must be a dict of PartBooks by node type for items with"),
        (lambda: group_items(typed, {"user": PartBook.from_bounds([0, 1, 4]), "item": wide}), ValueError,
         r"the same number of parts for all node types, but have \[2, 3\]"),
    ]  # fmt: skip
    check_refused(rows)


class Empty(gf.Datapipe):
    datapipe: gf.Datapipe


def test_what_is_no_stage_or_no_pipeline() -> None:
    items, fields = make_items(), cast(Any, ByFields)
    loader: Any = gf.DataLoader(items, num_workers=0)
    rows: list[Refusal] = [
        (lambda: list(Empty(items)), NotImplementedError, "Empty must implement __iter__, or derive from Transform"),
        (lambda: list(gf.Transform(items)), NotImplementedError, "Transform must implement __call__"),
        (lambda: len(ByInit(InPairs(items), 1)), TypeError,
         "the number of mini-batches of InPairs is unknown; it has"),
        (lambda: fields(items), TypeError, "by"),
        (lambda: fields(5, 1), TypeError, "source of ByFields, must be a stage or an iterable of mini-batches, but is"),
        (lambda: gf.replace(make_join(), items, items), ValueError,
         r"ItemSampler is not a stage of this pipeline; find\("),
        (lambda: gf.to_graph(loader), TypeError, "dp must be a pipeline of stages, but is a DataLoader; give it the l"),
    ]  # fmt: skip
    check_refused(rows)


def timed(seeds: Any, times: Any, **fields: Any) -> Any:
    graph = TYPED if isinstance(seeds, dict) else GRAPH
    pipe = batches(seeds, timestamp=times, **fields)
    return list(pipe.temporal_sample_neighbor(graph, [1], edge_timestamp_attr_name="time"))


def sampled(seeds: Any) -> Any:
    return list(batches(seeds).sample_neighbor(TYPED, [1]))


def test_seeds() -> None:
    edges, times = torch.zeros(3, 2, dtype=torch.int64), torch.tensor([1, 2])
    of_negatives = partial(timed, edges, times)
    rows: list[Refusal] = [
        (lambda: sampled({"user": edges}), ValueError, "seeds of type 'user' have 2 columns; name an edge type 'so"),
        (lambda: sampled({"a:b:c:d": edges}), ValueError, "seeds of type 'a:b:c:d' have 2 columns; name an edge"),
        (lambda: timed(edges, times), ValueError, "^seeds has 3 rows, but 2 timestamps; give one per seed"),
        (lambda: timed(torch.arange(4), times), ValueError, "^seeds has 4 rows, but 2 timestamps"),
        (lambda: timed({LIKES: edges}, {LIKES: times[:0]}), ValueError,
         r"^seeds\['user:likes:item'\] has 3 rows, but 0 timestamps; .* or set indexes"),
        (lambda: timed(edges, {LIKES: times}), TypeError, "^timestamp is a dict, but seeds is a tensor"),
        (lambda: timed({LIKES: edges}, {}), TypeError, "^timestamp must be a dict with the types of seed"),
        (lambda: timed(edges, torch.zeros(2, 3)), ValueError,
         r"^seeds has shape \(3, 2\), but its timestamps \(2, 3\); give one per row"),
        (lambda: of_negatives(indexes=times), ValueError, "^seeds has 3 rows, but 2 timestamps"),
        (lambda: of_negatives(indexes=torch.tensor([0, 1, 2])), ValueError,
         "^indexes of seeds with 2 timestamps must be in 0 .. 1, but holds 2"),
        (lambda: of_negatives(indexes=torch.tensor([0, 1, -1])), ValueError, "^indexes of seeds .* but holds -1"),
        (lambda: timed(edges, times.repeat(2)[:3], pre_time_window=times), ValueError, "^seeds has 3 rows, but 2 pre_"),
    ]  # fmt: skip
    check_refused(rows)
