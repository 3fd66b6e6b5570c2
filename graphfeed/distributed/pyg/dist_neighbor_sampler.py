"""The distributed neighbor sampler, with the interface of `torch_geometric.distributed`."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from graphfeed.datapipes import Datapipe, IterableSource, MiniBatch
from graphfeed.distributed.pyg.dist_data import DistContext, DistData, check_rank, find_peers
from graphfeed.distributed.pyg.store_attributes import EDGES, type_of
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops import ALWAYS, draw_key
from graphfeed.ops.arguments import brief, check_count, checked
from graphfeed.ops.process import in_one_step, result_of
from graphfeed.pyg.data import NegativeSampling, import_pyg
from graphfeed.pyg.samplers import STRATEGIES, Neighborhoods
from graphfeed.pyg.stages import call_stages, random_links, transform_output
from graphfeed.storage import SamplingRequest, TemporalQuery
from graphfeed.storage.graph import Hop, ends_of, from_type_dict, one_draw, split_by_type, to_type_dict
from graphfeed.storage.memory import to_device

if TYPE_CHECKING:
    from graphfeed.distributed.pyg.local_feature_store import LocalFeatureStore
    from graphfeed.distributed.pyg.local_graph_store import LocalGraphStore

Result = TypeVar("Result")


class ConcurrentEventLoop:
    """Runs coroutines in its own threads, up to `concurrency` at a time; the threads end with the object."""

    def __init__(self, concurrency: int) -> None:
        self._threads = ThreadPoolExecutor(concurrency, "graphfeed-event-loop")

    def start_loop(self) -> None:
        """Do nothing; threads start on demand."""

    def shutdown_loop(self) -> None:
        self._threads.shutdown()  # waits for running coroutines

    def run_task(self, coro: Coroutine[Any, Any, Result]) -> Result:
        return result_of(in_one_step(self._threads.submit, asyncio.run, coro))

    def add_task(self, coro: Coroutine[Any, Any, Result], callback: Callable[[Result], object] | None = None) -> None:
        def run() -> None:
            result = asyncio.run(coro)
            if callback is not None:
                callback(result)

        self._threads.submit(run)


TIMEOUT = 180.0
"""Default of `rpc_timeout`: seconds without a heartbeat after which another rank is considered lost."""


class DistNeighborSampler:
    """Samples a partitioned graph, with the interface of `torch_geometric.distributed.DistNeighborSampler`.

    A loader samples by stages that the sampler appends to its pipeline (`append_to`). Methods that are called directly
    return PyG's `SamplerOutput`, or `HeteroSamplerOutput` if the graph has types, on the `device`. All ids are global;
    with types, they count within their type. Direct calls draw at random, and ranks may make them independently.

    Args:
        current_ctx: The rank of this process. Rank `i` stores part `i`.
        data: The feature store and the graph store of the part.
        num_neighbors: Number of neighbors per hop, the seeds' own hop first. See `graphfeed.pyg.NeighborLoader`, also
            for replace, subgraph_type, disjoint, temporal_strategy and time_attr. PyG's class lacks "induced".
        channel: A queue. If given, `sample_from_nodes` and `sample_from_edges` return at once and put their results
            there; up to `concurrency` such calls run at a time. Loaders pass none.
        kwargs: Has no effect, as in PyG.

    Raises:
        ValueError: The rank is not that of the part, or `concurrency` is below 1.
    """

    @checked
    def __init__(
        self,
        current_ctx: DistContext,
        data: tuple["LocalFeatureStore", "LocalGraphStore"],
        num_neighbors: Any,
        channel: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        concurrency: int = 1,
        device: torch.device | str | None = None,
        **kwargs: Any,
    ) -> None:
        del kwargs
        if not hasattr(data[0], "partitioned_features") or not hasattr(data[1], "graph_part"):
            raise TypeError(f"data must be a LocalFeatureStore and a LocalGraphStore, but is {brief(data)}")
        check_count("concurrency", concurrency, 1)
        check_rank(current_ctx, data[1])
        self.current_ctx, self.feature_store, self.graph_store = current_ctx, data[0], data[1]
        self.num_neighbors, self.channel, self.replace = num_neighbors, channel, replace
        self.subgraph_type, self.disjoint = getattr(subgraph_type, "value", subgraph_type), disjoint
        self.temporal_strategy, self.time_attr = temporal_strategy, time_attr
        self.concurrency, self.device = concurrency, device
        self.is_hetero, self.with_edge_attr = self.graph_store.is_hetero, self.feature_store.has_edge_attr()
        self.event_loop: ConcurrentEventLoop | None = None
        self.input_type: Any = None
        self._data: DistData | None = None

    def connect(self, peers: Peers | None = None) -> DistData:
        """Connect the stores, once, to those of other ranks; by default, of the process group or of MASTER_ADDR."""
        if self._data is None:
            peers = find_peers(self.current_ctx, None, None, TIMEOUT) if peers is None else peers
            self._data = DistData((self.feature_store, self.graph_store), peers, self.time_attr)
        return self._data

    def init_sampler_instance(self) -> None:
        """Connect the stores to those of other ranks. Otherwise, first use does."""
        self.connect()

    def register_sampler_rpc(self) -> None:
        """Connect the stores as well; there is nothing to register."""
        self.connect()

    def init_event_loop(self) -> None:
        """Create `event_loop`, the threads that run coroutines."""
        if self.event_loop is None:
            self.event_loop = ConcurrentEventLoop(self.concurrency)

    @property
    def edge_permutation(self) -> None:
        """None, because edge ids are global."""
        return None

    @cached_property
    def neighborhoods(self) -> Neighborhoods:
        """The neighborhoods to sample around seeds."""
        data = self.connect()
        return Neighborhoods(
            data.graph, self.num_neighbors, self.replace, self.subgraph_type, self.disjoint,
            self.temporal_strategy, data.node_time, data.edge_time,
        )  # fmt: skip

    @property
    def node_times(self) -> Any:
        """The timestamps of all nodes, by the types that have any if there are types; None if nodes have none."""
        data = self.connect()
        if data.node_time is None:
            return None
        by_type = split_by_type(data.part.columns.node_attribute(data.node_time), data.graph.num_nodes)
        return from_type_dict({name: own for name, own in by_type.items() if not name or bool((own != ALWAYS).any())})

    def append_to(self, pipe: Datapipe, report_time: bool = False) -> Datapipe:
        """Append the stages that sample to a pipeline of seed nodes."""
        return self._with_ids(self.neighborhoods.append_to(pipe, report_time))

    def append_links_to(self, pipe: Datapipe, negatives: NegativeSampling | None) -> Datapipe:
        """Append the stages that draw negatives and sample to a pipeline of seed edges."""
        return self._with_ids(self.neighborhoods.append_links_to(pipe, negatives))

    def _with_ids(self, pipe: Datapipe) -> Datapipe:
        # Edge ids that are not global would mislead.
        return (
            pipe
            if self.connect().has_edge_ids
            else pipe.transform(partial(transform_output, partial(replace, edge=None)))
        )

    def sample_from_nodes(self, inputs: Any, **kwargs: Any) -> Any:
        """Sample neighborhoods of nodes, and return them with features in the metadata.

        Args:
            inputs: PyG's `NodeSamplerInput`, or its fields as a tuple.
            kwargs: With a `channel`, `callback` is called with the result.

        Returns:
            PyG's output. Its metadata are `input_id`, the timestamps, the number of seeds, `x` of the nodes, labels,
            and `edge_attr` of the edges. None with a `channel`.
        """
        inputs = import_pyg("torch_geometric.sampler", type(self).__name__).NodeSamplerInput.cast(inputs)
        return self._answer(lambda: self._sample_nodes(inputs), kwargs.get("callback"))

    def sample_from_edges(self, inputs: Any, neg_sampling: Any = None, **kwargs: Any) -> Any:
        """Sample neighborhoods of edges, and return them with features in the metadata.

        Args:
            inputs: PyG's `EdgeSamplerInput`, or its fields as a tuple.
            neg_sampling: A `NegativeSampling` of graphfeed or PyG.
            kwargs: As for `sample_from_nodes`, whose last three metadata follow those of `edge_sample`.
        """
        inputs = import_pyg("torch_geometric.sampler", type(self).__name__).EdgeSamplerInput.cast(inputs)
        return self._answer(lambda: self._sample_edges(inputs, neg_sampling), kwargs.get("callback"))

    async def node_sample(self, inputs: Any) -> Any:
        """Sample neighborhoods of nodes.

        Args:
            inputs: PyG's `NodeSamplerInput`, or an object with `node_dict` and `time_dict` by node type.

        Raises:
            ValueError: The graph has types and the seeds have none, or temporal sampling lacks timestamps.
        """
        # Sampling waits for other ranks, which must not block other coroutines.
        return await asyncio.to_thread(self._sample_nodes, inputs)

    async def edge_sample(
        self,
        inputs: Any,
        sample_fn: Callable[..., Any] | None = None,
        num_nodes: Any = None,
        disjoint: bool | None = None,
        node_time: Any = None,
        neg_sampling: Any = None,
    ) -> Any:
        """Sample neighborhoods of the endpoints of edges and negatives; arguments not listed have no effect.

        Args:
            inputs: PyG's `EdgeSamplerInput`.
            neg_sampling: A `NegativeSampling` of graphfeed or PyG.

        Returns:
            PyG's output. Its metadata are `input_id`, `edge_label_index`, the labels and the timestamps; for triplets
            `input_id`, `src_index`, `dst_pos_index`, `dst_neg_index` and the timestamps.
        """
        del sample_fn, num_nodes, disjoint, node_time
        return await asyncio.to_thread(self._sample_edges, inputs, neg_sampling)

    async def sample_one_hop(
        self,
        srcs: torch.Tensor,
        one_hop_num: int,
        seed_time: torch.Tensor | None = None,
        src_batch: torch.Tensor | None = None,
        edge_type: tuple[str, str, str] | None = None,
    ) -> Any:
        """Sample neighbors of nodes from the ranks that own them, node by node.

        Args:
            srcs: Node ids, shape (N,); with types, of the edge type's destination.
            one_hop_num: Number of neighbors per node; -1 takes all.
            seed_time: The timestamp of each node, if there are timestamps.
            src_batch: The tree of each node, shape (N,).

        Returns:
            PyG's `SamplerOutput`: `node` has the neighbors in the order of the draws, without the nodes themselves;
            `edge` the global edge ids; `batch` the tree of each neighbor, if `disjoint`; `metadata[0]` the number of
            neighbors per node.
        """
        name, (_, destination) = type_of(edge_type), ends_of(type_of(edge_type))

        def sample() -> Any:
            data, replace = self.connect(), self.replace
            # Edges of other types are not sampled.
            fanouts = torch.tensor(
                [one_hop_num if name in (None, own) else 0 for own in data.graph.edge_types or [""]], device="cpu"
            )
            seeds: Any = from_type_dict({destination: srcs})
            if self.neighborhoods.in_time:
                query = TemporalQuery(data.node_time, data.edge_time, inclusive=True)
                strategy: Any = STRATEGIES[self.temporal_strategy]
                request = SamplingRequest([fanouts], replace, None, strategy, deduplicate=False, temporal=query)
                times = from_type_dict({destination: seed_time})
                hop, _ = data.graph.pick(seeds, Hop(request, one_draw(draw_key()), times=times))
            else:
                hop = data.graph.sample_neighbors(seeds, fanouts, replace)
            csc, ids = to_type_dict(hop.sampled_csc)[name], to_type_dict(hop.original_edge_ids)[name]
            nodes, counts = csc.indices, csc.indptr.diff()
            return import_pyg("torch_geometric.sampler", type(self).__name__).SamplerOutput(
                nodes.long(),
                None,
                None,
                ids.long() if data.has_edge_ids else None,
                None if src_batch is None else src_batch.repeat_interleave(counts),
                metadata=(counts.tolist(),),
            )

        return await asyncio.to_thread(sample)

    def _sample_nodes(self, inputs: Any) -> Any:
        self.input_type = inputs.input_type
        by_type = getattr(inputs, "node_dict", None)
        if by_type is not None:
            nodes, times = by_type, inputs.time_dict
        elif not self.is_hetero:
            nodes, times = inputs.node, inputs.time
        elif inputs.input_type is not None:
            nodes = {inputs.input_type: inputs.node}
            times = None if inputs.time is None else {inputs.input_type: inputs.time}
        else:
            raise ValueError("input_type must be a node type, because the graph has types, but is None")
        minibatch = MiniBatch(seeds=nodes, timestamp=self._times_of(nodes, times))
        output = self._sample(self.append_to, minibatch)
        output.metadata = None if by_type is not None else (inputs.input_id, inputs.time, len(inputs.node))
        return output

    def _sample_edges(self, inputs: Any, neg_sampling: Any) -> Any:
        negatives = NegativeSampling.cast(neg_sampling)
        self.input_type = inputs.input_type
        return self._sample(lambda pipe: self.append_links_to(pipe, negatives), random_links(inputs))

    def _sample(self, append: Callable[[Datapipe], Datapipe], minibatch: MiniBatch) -> Any:
        output = call_stages(append(IterableSource([])), minibatch).output
        return output if self.device is None else to_device(output, self.device)

    def _times_of(self, nodes: Any, times: Any) -> Any:
        """Return the given timestamps of seeds, or else those of the nodes."""
        if times is not None or not self.neighborhoods.in_time:
            return times
        known, by_type = to_type_dict(self.node_times), to_type_dict(nodes)
        missing = [node_type for node_type in by_type if known.get(node_type) is None]
        if missing:
            of = "" if None in known else f" of {missing[0]!r}"
            raise ValueError(f"the seeds{of} have no attribute {self.time_attr!r}; pass time, one value for each seed")
        return from_type_dict({node_type: known[node_type][ids] for node_type, ids in by_type.items()})

    def _answer(self, sample: Callable[[], Any], callback: Callable[[Any], object] | None) -> Any:
        """Return a sampler's output with features in the metadata; with a channel, put it there later."""

        def collate() -> Any:
            output = sample()
            output.metadata = (*(output.metadata or ()), *self._features_of(output))
            return output

        async def put() -> Any:
            try:
                result = collate()
            except Exception as error:  # so that a thread that waits for the channel gets it
                result = error
            self.channel.put(result)
            return result

        # With a channel, the result is put there later.
        if self.channel is None:
            return collate()
        self.init_event_loop()
        assert self.event_loop is not None
        self.event_loop.add_task(put(), callback)
        return None

    def _features_of(self, output: Any) -> tuple[Any, Any, Any]:
        """Return `x` of the nodes of an output, labels, and `edge_attr` of its edges; by type if there are types."""
        look_up, labels = self.feature_store.lookup_features, self.feature_store.labels
        has = {(attr.group_name, attr.attr_name) for attr in self.feature_store.get_all_tensor_attrs()}
        nodes, edges = to_type_dict(output.node), {} if output.edge is None else to_type_dict(output.edge)
        x = {name: look_up(ids, input_type=name).wait() if (name, "x") in has else None for name, ids in nodes.items()}
        edge_attr = {
            name: look_up(ids, False, name).wait() if (name or EDGES, "edge_attr") in has else None
            for name, ids in edges.items()
            if self.with_edge_attr
        }
        by_type: Any = labels if isinstance(labels, Mapping) else {} if labels is None else {self.input_type: labels}
        y = {name: values[(edges if isinstance(name, tuple) else nodes)[name]] for name, values in by_type.items()}
        return from_type_dict(x), from_type_dict(y) if y else None, from_type_dict(edge_attr) if edge_attr else None
