"""The public names of GraphBolt, with parameters and defaults, and their counterparts here.

A signature is written as in a `def`, without `self`; `...` stands for a default that is an object of the library's.
A dot leads to a member of a class.
"""

from graphfeed.interop.graphbolt import REPLACED as REPLACED_BY

SAMPLE = "seeds, fanouts, replace=False, probs_name=None"
OPTIONAL = "returning_indices_and_original_edge_ids_are_optional=False"
TIMES = (
    "seeds, seeds_timestamp, fanouts, replace=False, seeds_pre_time_window=None, probs_name=None, "
    "node_timestamp_attr_name=None, edge_timestamp_attr_name=None"
)
LABOR = "random_seed=None, seed2_contribution=0.0"
LAYERS = "datapipe, graph, fanouts, replace=False, prob_name=None, deduplicate=True"
FETCHING = "overlap_fetch=False, num_gpu_cached_edges=0, gpu_cache_threshold=1, cooperative=False, asynchronous=False"
TIMED = (
    "datapipe, graph, fanouts, replace=False, prob_name=None, node_timestamp_attr_name=None, "
    "edge_timestamp_attr_name=None"
)
STORE = "domain, type_name, feature_name"
PREPROCESSING = "include_original_edge_id=False, force_preprocess=None, auto_cast_to_optimal_dtype=True"

CALLED: dict[str, str] = {
    # Of items.
    "ItemSet": "items, names=None",
    "ItemSet.__getitem__": "index",
    "ItemSet.__len__": "",
    "HeteroItemSet": "itemsets",
    "HeteroItemSet.__getitem__": "index",
    "HeteroItemSet.__len__": "",
    "ItemSetDict": "itemsets",
    "ItemSampler": "item_set, batch_size, minibatcher=..., drop_last=False, shuffle=False, seed=None",
    "DistributedItemSampler": (
        "item_set, batch_size, minibatcher=..., drop_last=False, shuffle=False, drop_uneven_inputs=False, seed=None"
    ),
    "minibatcher_default": "batch, names",
    # Of mini-batches.
    "MiniBatch": (
        "labels=None, seeds=None, indexes=None, sampled_subgraphs=None, input_nodes=None, node_features=None, "
        "edge_features=None, compacted_seeds=None, _blocks=None"
    ),
    "MiniBatch.node_ids": "",
    "MiniBatch.num_layers": "",
    "MiniBatch.edge_ids": "layer_id",
    "MiniBatch.set_node_features": "node_features",
    "MiniBatch.set_edge_features": "edge_features",
    "MiniBatch.compute_blocks": "",
    "MiniBatch.to_pyg_data": "",
    "MiniBatch.to": "device, non_blocking=False",
    "MiniBatch.pin_memory": "",
    "MiniBatch.is_pinned": "",
    # Of graphs.
    "SamplingGraph.copy_to_shared_memory": "shared_memory_name",
    "SamplingGraph.to": "device",
    "fused_csc_sampling_graph": (
        "csc_indptr, indices, node_type_offset=None, type_per_edge=None, node_type_to_id=None, edge_type_to_id=None, "
        "node_attributes=None, edge_attributes=None"
    ),
    "load_from_shared_memory": "name",
    "from_dglgraph": "g, is_homogeneous=False, include_original_edge_id=False",
    "FusedCSCSamplingGraph.node_attribute": "name",
    "FusedCSCSamplingGraph.edge_attribute": "name",
    "FusedCSCSamplingGraph.add_node_attribute": "name, tensor",
    "FusedCSCSamplingGraph.add_edge_attribute": "name, tensor",
    "FusedCSCSamplingGraph.to": "device",
    "FusedCSCSamplingGraph.pin_memory_": "",
    "FusedCSCSamplingGraph.copy_to_shared_memory": "name",
    "FusedCSCSamplingGraph.in_subgraph": "nodes",
    "FusedCSCSamplingGraph.sample_neighbors": f"{SAMPLE}, {OPTIONAL}, async_op=False",
    "FusedCSCSamplingGraph.sample_layer_neighbors": f"{SAMPLE}, {OPTIONAL}, {LABOR}, async_op=False",
    "FusedCSCSamplingGraph.temporal_sample_neighbors": TIMES,
    "FusedCSCSamplingGraph.temporal_sample_layer_neighbors": f"{TIMES}, {LABOR}",
    "FusedCSCSamplingGraph.sample_negative_edges_uniform": "edge_type, node_pairs, negative_ratio",
    # Of sampled subgraphs.
    "CSCFormatBase": "indptr, indices",
    "CSCFormatBase.to": "device",
    "CSCFormatBase.pin_memory": "",
    "CSCFormatBase.is_pinned": "",
    "SampledSubgraphImpl": (
        "sampled_csc, original_column_node_ids=None, original_row_node_ids=None, original_edge_ids=None, "
        "_edge_ids_in_fused_csc_sampling_graph=None"
    ),
    "SampledSubgraphImpl.exclude_edges": "edges, assume_num_node_within_int32=True, async_op=False",
    "SampledSubgraphImpl.to_pyg": "x",
    "SampledSubgraphImpl.to": "device",
    "SampledSubgraphImpl.pin_memory": "",
    "SampledSubgraphImpl.is_pinned": "",
    # Of stages and the loader.
    "SubgraphSampler": "datapipe, *args, **kwargs",
    "NeighborSampler": f"{LAYERS}, {FETCHING}",
    "LayerNeighborSampler": f"{LAYERS}, layer_dependency=False, batch_dependency=1, {FETCHING}",
    "InSubgraphSampler": "datapipe, graph",
    "TemporalNeighborSampler": TIMED,
    "TemporalLayerNeighborSampler": TIMED,
    "SamplePerLayer": "datapipe, sampler, fanout, replace, prob_name, overlap_fetch, asynchronous=False",
    "FetchInsubgraphData": "datapipe, graph, prob_name",
    "CombineCachedAndFetchedInSubgraph": "datapipe, prob_name",
    "NegativeSampler": "datapipe, negative_ratio",
    "UniformNegativeSampler": "datapipe, graph, negative_ratio",
    "FeatureFetcher": (
        "datapipe, feature_store, node_feature_keys=None, edge_feature_keys=None, overlap_fetch=True, cooperative=False"
    ),
    "FeatureFetcherStartMarker": "datapipe",
    "MiniBatchTransformer": "datapipe, transformer=None",
    "CopyTo": "datapipe, device, non_blocking=False",
    "Bufferer": "datapipe, buffer_size=1",
    "Waiter": "datapipe",
    "EndMarker": "datapipe",
    "PrefetcherIterDataPipe": "datapipe, buffer_size=10",
    "DataLoader": "datapipe, num_workers=0, persistent_workers=True, max_uva_threads=10240",
    "datapipe_graph_to_adjlist": "datapipe_graph",
    "find_dps": "graph, dp_type",
    "replace_dp": "graph, old_datapipe, new_datapipe",
    "traverse_dps": "datapipe",
    "to_graph": "dp, *, debug=False",
    # Of operations.
    "unique_and_compact": "nodes, rank=0, world_size=1, async_op=False",
    "unique_and_compact_csc_formats": "csc_formats, unique_dst_nodes, rank=0, world_size=1, async_op=False",
    "compact_csc_format": "csc_formats, dst_nodes, dst_timestamps=None",
    "add_reverse_edges": "edges, reverse_etypes_mapping=None",
    "exclude_seed_edges": "minibatch, include_reverse_edges=False, reverse_etypes_mapping=None, async_op=False",
    "isin": "elements, test_elements",
    "index_select": "tensor, index",
    "expand_indptr": "indptr, dtype=None, node_ids=None, output_size=None",
    "indptr_edge_ids": "indptr, dtype=None, offset=None, output_size=None",
    "numpy_save_aligned": "*args, **kwargs",
    "etype_str_to_tuple": "c_etype",
    "etype_tuple_to_str": "c_etype",
    "seed_type_str_to_ntypes": "seed_type, seed_size",
    "seed": "val",
    "convert_to_hetero": "item",
    "revert_to_homo": "d",
    "all_to_all": "outputs, inputs, group=None, async_op=False",
    "get_host_to_device_uva_stream": "",
    "get_device_to_host_uva_stream": "",
    "CooperativeConv": "",
    # Of features and caches.
    "Feature.read": "ids=None",
    "Feature.read_async": "ids",
    "Feature.read_async_num_stages": "ids_device",
    "Feature.size": "",
    "Feature.count": "",
    "Feature.update": "value, ids=None",
    "Feature.metadata": "",
    "FeatureStore.__getitem__": "feature_key",
    "FeatureStore.__setitem__": "feature_key, feature",
    "FeatureStore.__contains__": "feature_key",
    "FeatureStore.read": f"{STORE}, ids=None",
    "FeatureStore.size": STORE,
    "FeatureStore.count": STORE,
    "FeatureStore.metadata": STORE,
    "FeatureStore.update": f"{STORE}, value, ids=None",
    "FeatureStore.keys": "",
    "FeatureKey": "domain, type, name",
    "BasicFeatureStore": "features",
    "BasicFeatureStore.__len__": "",
    "TorchBasedFeature": "torch_feature, metadata=None",
    "TorchBasedFeature.pin_memory_": "",
    "TorchBasedFeature.is_pinned": "",
    "TorchBasedFeature.to": "device",
    "DiskBasedFeature": "path, metadata=None, num_threads=None",
    "DiskBasedFeature.read_into_memory": "",
    "DiskBasedFeature.to": "device",
    "DiskBasedFeature.pin_memory_": "",
    "TorchBasedFeatureStore": "feat_data",
    "TorchBasedFeatureStore.pin_memory_": "",
    "TorchBasedFeatureStore.is_pinned": "",
    "TorchBasedFeatureStore.to": "device",
    "cpu_cached_feature": "fallback_features, max_cache_size_in_bytes, policy=None, pin_memory=False",
    "CPUCachedFeature": "fallback_feature, cache, offset=0",
    "CPUCachedFeature.is_pinned": "",
    "CPUFeatureCache": "cache_shape, dtype, policy=None, num_parts=None, pin_memory=False",
    "CPUFeatureCache.query": "keys, offset=0",
    "CPUFeatureCache.query_and_replace": "keys, reader_fn, offset=0",
    "CPUFeatureCache.replace": "keys, values, offsets=None, offset=0",
    "CPUFeatureCache.is_pinned": "",
    "gpu_cached_feature": "fallback_features, max_cache_size_in_bytes",
    "GPUCachedFeature": "fallback_feature, cache, offset=0",
    "GPUFeatureCache": "cache_shape, dtype",
    "GPUFeatureCache.query": "keys",
    "GPUFeatureCache.replace": "keys, values",
    "GPUGraphCache": "num_edges, threshold, indptr_dtype, dtypes, has_original_edge_ids",
    "bytes_to_number_of_items": "cache_capacity_in_bytes, single_item",
    "wrap_with_cached_feature": ("cached_feature_type, fallback_features, max_cache_size_in_bytes, *args, **kwargs"),
    # Of data sets.
    "OnDiskTask": "metadata, train_set, validation_set, test_set",
    "OnDiskDataset": f"path, {PREPROCESSING}",
    "OnDiskDataset.load": "tasks=None",
    "preprocess_ondisk_dataset": f"dataset_dir, {PREPROCESSING}",
    "BuiltinDataset": "name, root='datasets'",
    "LegacyDataset": "legacy",
}

ATTRIBUTES = {
    "ItemSet": "names num_items",
    "HeteroItemSet": "names",
    "MiniBatch": "blocks",
    "SamplingGraph": "num_nodes num_edges",
    "FusedCSCSamplingGraph": (
        "total_num_nodes total_num_edges num_nodes num_edges csc_indptr indices node_type_offset type_per_edge "
        "node_type_to_id edge_type_to_id node_attributes edge_attributes"
    ),
    "CPUCachedFeature": "miss_rate cache_size_in_bytes",
    "CPUFeatureCache": "max_size_in_bytes miss_rate",
    "GPUCachedFeature": "miss_rate cache_size_in_bytes",
    "GPUFeatureCache": "max_size_in_bytes miss_rate",
    "Task": "metadata train_set validation_set test_set",
    "Dataset": "tasks graph feature dataset_name all_nodes_set",
    "OnDiskDataset": "yaml_data tasks graph feature dataset_name all_nodes_set",
}
"""Properties and fields of classes."""

NOT_CALLED = (
    "GBWarning SamplingGraph FusedCSCSamplingGraph SampledSubgraph subgraph_sampler "
    "CANONICAL_ETYPE_DELIMITER ORIGINAL_EDGE_ID CooperativeConvFunction Feature FeatureStore Task Dataset "
    "OnDiskFeatureData OnDiskMetaData OnDiskGraphTopology OnDiskGraphTopologyType OnDiskFeatureDataDomain "
    "OnDiskFeatureDataFormat OnDiskTVTSet OnDiskTVTSetData OnDiskTaskData"
)
"""Constants, modules, and classes that users don't instantiate."""

SURFACE: dict[str, str | None] = {
    **dict.fromkeys(NOT_CALLED.split()),
    **{f"{owner}.{name}": None for owner, names in ATTRIBUTES.items() for name in names.split()},
    **CALLED,
}

FLUENT = {
    "buffer": "Bufferer",
    "combine_cached_and_fetched_insubgraph": "CombineCachedAndFetchedInSubgraph",
    "compact_per_layer": "CompactPerLayer",
    "copy_to": "CopyTo",
    "exclude_seed_edges": "SeedEdgesExcluder",
    "fetch_cached_insubgraph_data": "FetchCachedInsubgraphData",
    "fetch_feature": "FeatureFetcher",
    "fetch_insubgraph_data": "FetchInsubgraphData",
    "mark_end": "EndMarker",
    "mark_feature_fetcher_start": "FeatureFetcherStartMarker",
    "prefetch": "PrefetcherIterDataPipe",
    "sample_in_subgraph": "InSubgraphSampler",
    "sample_layer_neighbor": "LayerNeighborSampler",
    "sample_negative": "NegativeSampler",
    "sample_neighbor": "NeighborSampler",
    "sample_per_layer": "SamplePerLayer",
    "sample_subgraph": "SubgraphSampler",
    "sample_uniform_negative": "UniformNegativeSampler",
    "temporal_sample_layer_neighbor": "TemporalLayerNeighborSampler",
    "temporal_sample_neighbor": "TemporalNeighborSampler",
    "transform": "MiniBatchTransformer",
    "wait": "Waiter",
}
"""Each fluent name with its stage."""

OF_A_GRAPH_IN_MEMORY = {"SamplingGraph.copy_to_shared_memory", "SamplingGraph.to"}
FETCHES = {"combine_cached_and_fetched_insubgraph", "fetch_cached_insubgraph_data", "fetch_insubgraph_data"}
REPLACED = (REPLACED_BY.keys() & SURFACE.keys()) | OF_A_GRAPH_IN_MEMORY | FETCHES
"""Names that another name or a file replaces, with the reason in the package or on the page."""

IGNORED = {
    "CPUFeatureCache": "num_parts",
    "CPUFeatureCache.replace": "offsets",
    "CompactPerLayer": "cooperative asynchronous",
    "FusedCSCSamplingGraph.sample_layer_neighbors": "returning_indices_and_original_edge_ids_are_optional",
    "FusedCSCSamplingGraph.sample_neighbors": "returning_indices_and_original_edge_ids_are_optional",
    "LayerNeighborSampler": "num_gpu_cached_edges gpu_cache_threshold asynchronous",
    "NeighborSampler": "num_gpu_cached_edges gpu_cache_threshold asynchronous",
    "SampledSubgraphImpl.exclude_edges": "assume_num_node_within_int32",
    "SamplePerLayer": "asynchronous",
    "SeedEdgesExcluder": "asynchronous",
}
"""Parameters that do nothing, and are accepted by name, with a warning."""

BEHIND_IGNORED = {
    "CPUFeatureCache": "pin_memory",
    "CPUFeatureCache.replace": "offset",
    "FusedCSCSamplingGraph.sample_layer_neighbors": "random_seed seed2_contribution async_op",
    "FusedCSCSamplingGraph.sample_neighbors": "async_op",
    "LayerNeighborSampler": "cooperative",
    "NeighborSampler": "cooperative",
    "SampledSubgraphImpl.exclude_edges": "async_op",
}
"""Parameters that came after these, and are no longer positional."""

DIFFERENT: dict[tuple[str, str], str] = {
    **{(owner, name): "ignored" for owner, names in IGNORED.items() if owner in CALLED for name in names.split()},
    **{(owner, name): "by name alone" for owner, names in BEHIND_IGNORED.items() for name in names.split()},
    ("DataLoader", "num_workers"): "None, a thread a core: threads copy nothing, so workers are the default",
    ("MiniBatch", "_blocks"): "blocks are made when asked for, and not kept",
    ("SampledSubgraphImpl", "_edge_ids_in_fused_csc_sampling_graph"): "original_edge_ids always says them",
}
"""Parameters that differ, with the reason."""
