"""A valid call of each public callable, with its arguments, which are created for each use."""

import inspect
import os
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import graphfeed as gf
from graphfeed import channels, distributed, ingest
from graphfeed.storage.graph import WalkRequest
from tests.kinds.stages import BUILDERS, HERE

KNOWS, LIKES = "user:knows:user", "user:likes:item"
NODES, EDGES = 6, 9
ENDS = torch.tensor([[1, 2, 3, 4, 5, 0, 2, 3, 1], [0, 0, 1, 3, 4, 5, 5, 2, 2]])
IDS, ROWS, SHAPE = torch.arange(3), torch.ones(3, 2), (4, 2)
PAIRS = torch.tensor([[1, 0], [2, 0]])
PARTS = torch.tensor([0, 0, 0, 1, 1, 1])
FEAT: dict[str, Any] = {"domain": "node", "type_name": None, "feature_name": "feat"}
TOKEN = "t" * 20
NUMBERS = count()
NOT_CALLED = {
    "bases of classes of users": """ChannelBase Datapipe FanoutSampler Feature FeatureStore NegativeSampler SamplerPool
        SamplingGraph SubgraphSampler Task TemporalSampler Transform""",
    "made by the library alone": """CooperativeConvFunction DistRole LoadedGraphTensors OnDiskTask
        PartitionReport PipelineGraph Placement PyGLayerData PyGLayerHeteroData StoredPart datapipe_graph_to_adjlist
        minibatcher_default""",
    "by another name": "ItemSetDict SampledSubgraphImpl",
    "need a GPU, other processes or another library": """CooperativeConv DistLinkNeighborLoader DistLoader
        DistNeighborLoader DistNeighborSampler GPUCachedFeature GPUFeatureCache Partitioner SamplerReceiver
        SamplerSender cuda_check from_dglgraph warm_up""",
    "take a folder that tests of their packages write": """BuiltinDataset OnDiskDataset SerializedGraphMetadata
        SerializedTFRecordInfo load_torch_tensors_from_tf_record preprocess_ondisk_dataset read_graphlearn
        read_ogb""",
}
"""Public callables that have no call here, by the reason."""


class Call(NamedTuple):
    """A call, and a function for its result, because some wrong arguments only raise then."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    then: Callable[[Any], object] = lambda made: made


def call(function: Any, /, **arguments: Any) -> Call:
    return Call(function, arguments)


def graph() -> Any:
    edges = {"w": torch.ones(EDGES), "time": torch.arange(EDGES)}
    return gf.from_coo(ENDS, NODES, node_attributes={"age": torch.arange(NODES)}, edge_attributes=edges)


def typed() -> Any:
    return gf.from_coo({KNOWS: ENDS % 3, LIKES: ENDS % 2}, {"user": 3, "item": 2})


def coded() -> Any:
    return feature().encode(8)


def feature(rows: int = NODES) -> Any:
    return gf.TorchBasedFeature(torch.arange(2.0 * rows).reshape(rows, 2))


def store() -> Any:
    return gf.BasicFeatureStore({("node", None, "feat"): feature(), ("edge", None, "row"): feature(EDGES)})


def items(values: Any = IDS, names: Any = "seeds") -> Any:
    return gf.ItemSampler(gf.ItemSet(values, names=names), batch_size=2)


def sampled() -> Any:
    return items(PAIRS).sample_neighbor(graph(), [2])


def subgraph() -> Any:
    csc = gf.CSCFormatBase(torch.tensor([0, 2, 3]), torch.tensor([2, 0, 1]))
    return gf.SampledSubgraph(csc, torch.tensor([4, 5]), torch.tensor([4, 5, 3]), torch.tensor([7, 8, 6]))


def minibatch() -> Any:
    return next(iter(sampled()))


def loading() -> Call:
    name = f"swept-{os.getpid()}-{next(NUMBERS)}"
    held = graph().copy_to_shared_memory(name)
    return Call(gf.load_from_shared_memory, {"name": name}, lambda made: (made, held))


def request(**options: Any) -> Any:
    return gf.SamplingRequest([torch.tensor([2])], **options)


def book() -> Any:
    return gf.PartBook.from_bounds([0, 3, NODES])


def cut(parts: Any = PARTS) -> Any:
    return distributed.cut_graph(graph(), parts, 0)


def shared() -> Any:
    return channels.ShmChannel(4, "1MB")


def holding() -> Any:
    channel = shared()
    channel.send({"a": IDS})
    return channel


def of_loader(kind: Any, /, *given: Any, **arguments: Any) -> Call:
    """Return a call of a loader like PyG's, and of its first mini-batch."""
    names = list(inspect.signature(kind).parameters)
    return Call(kind, dict(zip(names, given, strict=False)) | arguments, lambda made: next(iter(made), None))


def of_stage(kind: type) -> Call:
    stage = BUILDERS[kind]()
    names = inspect.signature(kind).parameters
    return Call(kind, {name: getattr(stage, name) for name in names}, lambda made: next(iter(made), None))


def write_files(root: Path) -> None:
    """Write a file or a folder of each kind."""
    graph().save(root / "graph")
    np.save(root / "feat.npy", np.arange(2.0 * NODES).reshape(NODES, 2))
    gf.write_tfrecords(root / "a.tfrecord", {"id": IDS, "x": ROWS})
    np.savez(root / "a.npz", source=ENDS[0].numpy(), destination=ENDS[1].numpy())
    (root / "spec.yaml").write_text("edges: {e: {files: a.npz}}")
    gf.write_partition(root / "parts", graph(), PARTS, 2, store())


def of_files(root: Path) -> dict[str, Callable[[], Call]]:
    """Return the calls that read and write files, in a folder with these files."""
    disk = gf.OnDiskFeatureData("node", "feat", "numpy", root / "feat.npy")

    def on_disk() -> Any:
        return gf.DiskBasedFeature(root / "feat.npy")

    return {
        "DiskBasedFeature": lambda: call(gf.DiskBasedFeature, path=root / "feat.npy"),
        "DiskBasedFeature.read": lambda: call(on_disk().read, ids=IDS),
        "OnDiskFeatureData": lambda: call(
            gf.OnDiskFeatureData, domain="node", name="feat", format="numpy", path=root / "feat.npy"
        ),
        "TorchBasedFeatureStore": lambda: call(gf.TorchBasedFeatureStore, feat_data=[disk]),
        "build_dataset": lambda: call(ingest.build_dataset, spec=root / "spec.yaml"),
        "guess_spec": lambda: call(ingest.guess_spec, files=[root / "a.npz"]),
        "load_graph": lambda: call(gf.load_graph, path=root / "graph"),
        "open_part": lambda: call(gf.open_part, root=root / "parts", part=0),
        "read_spec": lambda: call(ingest.read_spec, path=root / "spec.yaml"),
        "read_tfrecords": lambda: call(gf.read_tfrecords, files=root / "a.tfrecord"),
        "save": lambda: call(graph().save, path=root / "other"),
        "write_partition": lambda: call(
            gf.write_partition, root=root / f"new {next(NUMBERS)}", graph=graph(), assignment=PARTS, num_parts=2
        ),
        "write_tfrecords": lambda: call(gf.write_tfrecords, path=root / "b.tfrecord", columns={"id": IDS}),
        "numpy_save_aligned": lambda: call(gf.numpy_save_aligned, file=root / "b.npy", arr=np.ones(2)),
    }


GRAPHS: dict[str, Callable[[], Call]] = {
    "CSCFormatBase": lambda: call(gf.CSCFormatBase, indptr=torch.tensor([0, 1]), indices=torch.tensor([0])),
    "CSCFormatBase.to": lambda: call(subgraph().sampled_csc.to, device="cpu"),
    "FusedCSCSamplingGraph": lambda: call(
        gf.FusedCSCSamplingGraph, csc_indptr=torch.tensor([0, 1]), indices=torch.tensor([0]), node_type_offset=None,
        type_per_edge=None, node_type_to_id=None, edge_type_to_id=None, node_attributes={}, edge_attributes={},
    ),
    "SampledSubgraph": lambda: call(
        gf.SampledSubgraph, sampled_csc=subgraph().sampled_csc, original_column_node_ids=torch.tensor([4, 5]),
        original_row_node_ids=torch.tensor([4, 5, 3]), original_edge_ids=torch.tensor([7, 8, 6]),
    ),
    "SampledSubgraph.exclude_edges": lambda: call(subgraph().exclude_edges, edges=PAIRS),
    "SampledSubgraph.to": lambda: call(subgraph().to, device="cpu"),
    "SamplingRequest": lambda: Call(
        gf.SamplingRequest, {"fanouts": [torch.tensor([2])]}, lambda made: graph().sample_hops(IDS, made, [7])
    ),
    "Seeds": lambda: Call(
        gf.Seeds, {"ids": IDS, "times": IDS + 5, "windows": IDS + 1},
        lambda made: graph().sample_hops(made, request(temporal=gf.TemporalQuery(None, "time")), [7]),
    ),
    "TemporalQuery": lambda: Call(
        gf.TemporalQuery, {"edge_timestamp_attr_name": "time"},
        lambda made: graph().sample_hops(IDS, request(temporal=made), [7], seeds_timestamp=IDS + 5),
    ),
    "NegativeQuery": lambda: call(gf.NegativeQuery),
    "NodeWeights": lambda: call(gf.NodeWeights, weights=torch.ones(3)),
    "add_edge_attribute": lambda: call(graph().add_edge_attribute, name="w2", tensor=torch.ones(EDGES)),
    "add_node_attribute": lambda: call(graph().add_node_attribute, name="w2", tensor=torch.ones(NODES)),
    "add_reverse_edges": lambda: call(gf.add_reverse_edges, edges=PAIRS),
    "assign_nodes": lambda: call(gf.assign_nodes, graph=graph(), num_parts=2),
    "compact_csc_format": lambda: call(
        gf.compact_csc_format, csc_formats=subgraph().sampled_csc, dst_nodes=torch.tensor([4, 5])
    ),
    "copy_to_shared_memory": lambda: call(graph().copy_to_shared_memory, name=f"swept-{os.getpid()}-{next(NUMBERS)}"),
    "convert_to_hetero": lambda: call(gf.convert_to_hetero, item=IDS),
    "revert_to_homo": lambda: call(gf.revert_to_homo, d={"_N": IDS}),
    "edge_attribute": lambda: call(graph().edge_attribute, name="w"),
    "node_attribute": lambda: call(graph().node_attribute, name="age"),
    "etype_str_to_tuple": lambda: call(gf.etype_str_to_tuple, c_etype=KNOWS),
    "etype_tuple_to_str": lambda: call(gf.etype_tuple_to_str, c_etype=tuple(KNOWS.split(":"))),
    "expand_indptr": lambda: call(gf.expand_indptr, indptr=torch.tensor([0, 1]), dtype=torch.int64),
    "from_coo": lambda: call(gf.from_coo, edges=ENDS, num_nodes=NODES),
    "from_coo of types": lambda: call(gf.from_coo, edges={KNOWS: ENDS}, num_nodes={"user": NODES}),
    "fused_csc_sampling_graph": lambda: call(
        gf.fused_csc_sampling_graph, csc_indptr=torch.tensor([0, 1]), indices=torch.tensor([0])
    ),
    "in_subgraph": lambda: call(graph().in_subgraph, nodes=IDS),
    "index_select": lambda: call(gf.index_select, tensor=ROWS, index=IDS),
    "indptr_edge_ids": lambda: call(gf.indptr_edge_ids, indptr=torch.tensor([0, 1])),
    "isin": lambda: call(gf.isin, elements=IDS, test_elements=IDS),
    "load_from_shared_memory": loading,
    "page_rank": lambda: call(graph().page_rank, seeds=IDS, top=3, alpha=0.2, bound=0.01),
    "random_walks": lambda: call(graph().random_walks, starts=IDS, length=2, key=7),
    "sample_walks": lambda: call(graph().sample_walks, seeds=IDS, request=WalkRequest(2, 2, q=2.0), key=7),
    "sample_hops": lambda: call(graph().sample_hops, seeds=IDS, request=request(), keys=[7]),
    "sample_layer_neighbors": lambda: call(graph().sample_layer_neighbors, seeds=IDS, fanouts=torch.tensor([2])),
    "sample_negative_edges_uniform": lambda: call(
        graph().sample_negative_edges_uniform, edge_type=None, node_pairs=PAIRS, negative_ratio=2, key=7
    ),
    "sample_neighbors": lambda: call(graph().sample_neighbors, seeds=IDS, fanouts=torch.tensor([2]), key=7),
    "sample_neighbors of types": lambda: call(
        typed().sample_neighbors, seeds={"user": IDS}, fanouts=torch.tensor([2, 1]), key=7
    ),
    "seed_type_str_to_ntypes": lambda: call(gf.seed_type_str_to_ntypes, seed_type=KNOWS, seed_size=2),
    "temporal_sample_neighbors": lambda: call(
        graph().temporal_sample_neighbors, seeds=IDS, seeds_timestamp=IDS + 5, fanouts=torch.tensor([2]),
        edge_timestamp_attr_name="time", key=7,
    ),
    "temporal_sample_layer_neighbors": lambda: call(
        graph().temporal_sample_layer_neighbors, seeds=IDS, seeds_timestamp=IDS + 5, fanouts=torch.tensor([2]),
        edge_timestamp_attr_name="time",
    ),
    "to": lambda: call(graph().to, device="cpu"),
    "unique_and_compact": lambda: call(gf.unique_and_compact, nodes=[IDS, IDS]),
    "unique_and_compact_csc_formats": lambda: call(
        gf.unique_and_compact_csc_formats, csc_formats=subgraph().sampled_csc, unique_dst_nodes=torch.tensor([4, 5])
    ),
}  # fmt: skip

FEATURES: dict[str, Callable[[], Call]] = {
    "BasicFeatureStore": lambda: call(gf.BasicFeatureStore, features={("node", None, "feat"): feature()}),
    "BasicFeatureStore.count": lambda: call(store().count, **FEAT),
    "BasicFeatureStore.metadata": lambda: call(store().metadata, **FEAT),
    "BasicFeatureStore.size": lambda: call(store().size, **FEAT),
    "BasicFeatureStore.read": lambda: call(store().read, ids=IDS, **FEAT),
    "BasicFeatureStore.update": lambda: call(store().update, value=ROWS, ids=IDS, **FEAT),
    "CPUCachedFeature": lambda: call(
        gf.CPUCachedFeature, fallback_feature=feature(), cache=gf.CPUFeatureCache(SHAPE, torch.float32)
    ),
    "CPUFeatureCache": lambda: call(gf.CPUFeatureCache, cache_shape=SHAPE, dtype=torch.float32),
    "CPUFeatureCache.query": lambda: call(gf.CPUFeatureCache(SHAPE, torch.float32).query, keys=IDS),
    "CPUFeatureCache.replace": lambda: call(gf.CPUFeatureCache(SHAPE, torch.float32).replace, keys=IDS, values=ROWS),
    "FeatureKey": lambda: call(gf.FeatureKey, domain="node", type=None, name="feat"),
    "EncodedFeature": lambda: call(
        gf.EncodedFeature, stored=coded().stored, bits=8, scale=torch.ones(2), offset=torch.zeros(2)
    ),
    "EncodedFeature.decode": lambda: call(coded().decode, codes=torch.ones(2, 2).byte()),
    "EncodedFeature.read": lambda: call(coded().read, ids=IDS),
    "EncodedFeature.to": lambda: call(coded().to, device="cpu"),
    "EncodedFeature.with_stored": lambda: call(coded().with_stored, stored=coded().stored),
    "TorchBasedFeature.encode": lambda: call(feature().encode, bits=8),
    "TorchBasedFeature": lambda: call(gf.TorchBasedFeature, torch_feature=ROWS),
    "TorchBasedFeature.read": lambda: call(feature().read, ids=IDS),
    "TorchBasedFeature.update": lambda: call(feature().update, value=ROWS, ids=IDS),
    "TorchBasedFeature.to": lambda: call(feature().to, device="cpu"),
    "TrainableFeature": lambda: call(gf.TrainableFeature, num_rows=6, dim=2, optimizer="adam", lr=0.1, seed=1),
    "TrainableFeature.fetch": lambda: call(gf.TrainableFeature(NODES, 2).fetch, ids=IDS),
    "TrainableFeature.read": lambda: call(gf.TrainableFeature(NODES, 2).read, ids=IDS),
    "TrainableFeature.to": lambda: call(gf.TrainableFeature(NODES, 2).to, device="cpu"),
    "TrainableFeature.update": lambda: call(gf.TrainableFeature(NODES, 2).update, value=ROWS, ids=IDS),
    "bytes_to_number_of_items": lambda: call(
        gf.bytes_to_number_of_items, cache_capacity_in_bytes=100, single_item=torch.ones(2)
    ),
    "cpu_cached_feature": lambda: call(
        gf.cpu_cached_feature, fallback_features=feature(), max_cache_size_in_bytes=100
    ),
    "gpu_cached_feature": lambda: call(
        gf.gpu_cached_feature, fallback_features=feature(), max_cache_size_in_bytes=100, device="cpu"
    ),
    "wrap_with_cached_feature": lambda: call(
        gf.wrap_with_cached_feature, cached_feature_type=gf.CPUCachedFeature, fallback_features=feature(),
        max_cache_size_in_bytes=100,
    ),
}  # fmt: skip

PIPELINES: dict[str, Callable[[], Call]] = {
    **{kind.__name__: (lambda kind=kind: of_stage(kind)) for kind in HERE},  # type: ignore[misc]
    "DataLoader": lambda: call(gf.DataLoader, datapipe=items(), num_workers=0, seed=0),
    "DataLoader of workers": lambda: of_loader(gf.DataLoader, items(), 1, seed=0),
    "DataLoader.load_state_dict": lambda: call(
        gf.DataLoader(items(), num_workers=0, seed=0).load_state_dict,
        state_dict=gf.DataLoader(items(), num_workers=0, seed=0).state_dict(),
    ),
    "DataLoader.set_epoch": lambda: call(gf.DataLoader(items(), num_workers=0).set_epoch, epoch=1),
    "DataLoader.explain": lambda: call(gf.DataLoader(items(), num_workers=0).explain),
    "loaders": lambda: call(
        gf.loaders, task=gf.OnDiskTask({}, gf.ItemSet(PAIRS, names="seeds"), None, None), graph=graph(), fanouts=[2],
        batch_size=2, features=store(), num_workers=0,
    ),
    "Dataset": lambda: call(
        gf.Dataset, name="small", graph=graph(), feature=store(), train_set=gf.ItemSet(3), validation_set=gf.ItemSet(3),
        test_set=gf.ItemSet(3), all_nodes_set=gf.ItemSet(3), metadata={},
    ),
    "HeteroItemSet": lambda: call(gf.HeteroItemSet, itemsets={"user": gf.ItemSet(3)}),
    "ItemSet": lambda: call(gf.ItemSet, items=IDS, names="seeds"),
    "Key": lambda: Call(gf.Key, {"seed": 0, "epoch": 1, "index": 2}, lambda made: made.at(0)),
    "Key.at": lambda: call(gf.Key(0, 1, 2).at, stage=1),
    "MiniBatch.set_node_features": lambda: call(minibatch().set_node_features, node_features={"feat": torch.ones(4)}),
    "MiniBatch.set_edge_features": lambda: call(minibatch().set_edge_features, edge_features=[{"row": torch.ones(4)}]),
    "MiniBatch.edge_ids": lambda: call(minibatch().edge_ids, layer_id=0),
    "MiniBatch.to": lambda: call(minibatch().to, device="cpu"),
    "ProcessExecutor": lambda: call(gf.ProcessExecutor, max_workers=1),
    "draw_key": lambda: call(gf.draw_key),
    "exclude_seed_edges": lambda: call(gf.exclude_seed_edges, minibatch=minibatch()),
    "find": lambda: call(gf.find, pipe=sampled(), kind=gf.ItemSampler),
    "find_dps": lambda: call(gf.find_dps, graph=gf.traverse_dps(sampled()), dp_type=gf.ItemSampler),
    "functional_datapipe": lambda: call(gf.functional_datapipe, name="swept_stage"),
    "replace": lambda: call(gf.replace, pipe=(pipe := sampled()), old=pipe, new=items()),
    "replace_dp": lambda: call(
        gf.replace_dp, graph=gf.traverse_dps(pipe := sampled()), old_datapipe=pipe, new_datapipe=items()
    ),
    "seed": lambda: call(gf.seed, val=1),
    "to_graph": lambda: call(gf.to_graph, dp=sampled()),
    "traverse": lambda: call(gf.traverse, pipe=sampled()),
    "traverse_dps": lambda: call(gf.traverse_dps, datapipe=sampled()),
    "with_seed": lambda: call(sampled().with_seed, seed=1),
    "with_negatives": lambda: call(gf.with_negatives, seeds=torch.zeros(4, 2, dtype=torch.int64), num_positives=2),
}  # fmt: skip

DISTRIBUTED: dict[str, Callable[[], Call]] = {
    "DistContext": lambda: call(
        gf.DistContext, rank=0, global_rank=0, world_size=1, global_world_size=1, group_name="a"
    ),
    "GraphPart": lambda: call(gf.GraphPart, columns=cut().columns, book=book(), number=0, num_edges=EDGES),
    "LocalFeatureStore.from_data": lambda: call(gf.LocalFeatureStore.from_data, node_id=IDS, x=ROWS),
    "LocalGraphStore.from_data": lambda: call(
        gf.LocalGraphStore.from_data, edge_id=torch.arange(EDGES), edge_index=ENDS, num_nodes=NODES
    ),
    "RendezvousAddress": lambda: call(gf.RendezvousAddress, address="127.0.0.1", port=4000, rank=0, world_size=1),
    "MpChannel": lambda: call(gf.MpChannel),
    "PartBook": lambda: call(gf.PartBook, owners=PARTS, num_parts=2),
    "PartBook.from_assignment": lambda: call(gf.PartBook.from_assignment, assignment=PARTS, num_parts=2),
    "PartBook.from_bounds": lambda: call(gf.PartBook.from_bounds, bounds=[0, 3, 6]),
    "PartBook.ids_of": lambda: call(book().ids_of, part=0),
    "PartitionedFeature": lambda: call(
        gf.PartitionedFeature, rows=torch.ones(6, 2), book=gf.PartBook.from_bounds([0, 6])
    ),
    "PartitionedGraph": lambda: call(gf.PartitionedGraph, part=cut(PARTS * 0)),
    "Peers": lambda: call(gf.Peers),
    "RemoteReceivingChannel": lambda: call(
        gf.RemoteReceivingChannel, server_rank="127.0.0.1:4000", producer_id=0, token=TOKEN, timeout=1.0
    ),
    "SamplingServers": lambda: call(gf.SamplingServers, addresses=["127.0.0.1:4000"], token=TOKEN),
    "SamplingServer": lambda: Call(
        gf.SamplingServer, {"pipe": sampled(), "token": TOKEN, "num_workers": 1}, lambda made: made.close()
    ),
    "ShmChannel": lambda: call(gf.ShmChannel, capacity=4, shm_size="1MB"),
    "ShmChannel.recv": lambda: call(holding().recv, timeout_ms=1),
    "ShmChannel.send": lambda: call(shared().send, msg={"a": IDS}, timeout_ms=1),
    "cut_graph": lambda: call(gf.cut_graph, graph=graph(), assignment=PARTS, part=0),
    "cut_rows": lambda: call(gf.cut_rows, values=torch.ones(6, 2), book=book(), part=0),
    "report_partition": lambda: call(gf.report_partition, graph=graph(), assignment=PARTS, num_parts=2),
    "ldg_memory": lambda: call(distributed.ldg_memory, num_nodes=100, num_parts=2),
}  # fmt: skip

INGEST: dict[str, Callable[[], Call]] = {
    "EdgeTable": lambda: call(ingest.EdgeTable, files="a.csv", source="a", destination="b"),
    "NodeTable": lambda: call(ingest.NodeTable, files="a.csv", id="a"),
    "Split": lambda: call(ingest.Split, column="split"),
    "Spec": lambda: call(ingest.Spec, edges={"e": ingest.EdgeTable("a.csv")}),
    "FixedLenFeature": lambda: call(gf.FixedLenFeature, shape=[2], dtype="float32"),
    "TFDatasetOptions": lambda: call(gf.TFDatasetOptions),
    "TFRecordDataLoader": lambda: call(gf.TFRecordDataLoader, rank=0, world_size=1),
}


def every_call(root: Path) -> dict[str, Callable[[], Call]]:
    """Return the calls that are possible with the installed packages; `folder` contains the files to read."""
    found = {**GRAPHS, **FEATURES, **PIPELINES, **DISTRIBUTED, **INGEST, **of_files(root)}
    if find_spec("torch_geometric"):
        from tests.programs.pyg_calls import PYG  # noqa: PLC0415 - it imports this module

        found |= PYG
    return found
