"""The running sums of weights, which one rank of a machine makes for all, as they take 8 to 12 bytes per edge."""

import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch

from graphfeed import ops
from graphfeed.distributed.one_machine.memory_scope import open_place, write_place
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.memory.shared import SharedBlock

PLACE = "place"


class GraphWithSharedSums(FusedCSCSamplingGraph):
    """A graph all parts of which lie on this machine, where the sums of weights are shared too."""

    _sums: "SharedSums | None" = None

    def cumulative_weights(self, probs_name: str) -> torch.Tensor:
        """Return an edge attribute as fixed-point running sums."""
        if self._sums is None:
            return super().cumulative_weights(probs_name)
        return self._sums.of(self, probs_name).cumulative

    def guided_sums(self, probs_name: str) -> ops.GuidedSums:
        """Return them with guides."""
        return super().guided_sums(probs_name) if self._sums is None else self._sums.of(self, probs_name)


class SharedSums:
    """The sums of weights of a graph whose columns lie in shared memory.

    Args:
        peers: The ranks.
        ready: Returns the graph, once it lies there.
    """

    def __init__(self, peers: Peers, ready: Callable[[], FusedCSCSamplingGraph]) -> None:
        self.peers = peers
        self.first = peers.rank
        """The rank that makes them."""
        self._ready = ready
        self._lock = threading.Lock()
        self._blocks: WeakKeyDictionary[FusedCSCSamplingGraph, dict[str, SharedBlock]] = WeakKeyDictionary()
        """By the graph that the weights lie in, as there is another one after edits, and by attribute."""
        self._name = self.serve()

    def serve(self) -> str:
        """Let other ranks ask for sums; return the name by which they do."""
        return self.peers.serve("sums of weights", self._answer, takes_long=True)

    def of(self, graph: FusedCSCSamplingGraph, probs_name: str) -> ops.GuidedSums:
        """Return the sums of an edge attribute with guides; the first call waits for the rank that makes them."""
        with self._lock:
            blocks = self._blocks.setdefault(graph, {})
            if probs_name not in blocks:
                blocks[probs_name] = self._make(graph, probs_name)
            return ops.GuidedSums(*blocks[probs_name].tensors)

    def _make(self, graph: FusedCSCSamplingGraph, probs_name: str) -> SharedBlock:
        """Return a block with the sums."""
        weights = graph.edge_attribute(probs_name)
        if self.first == self.peers.rank:
            sums = ops.GuidedSums(ops.cumulate_weights(graph.csc_indptr, weights))
            if graph.node_type_to_id is None:  # no kernel for types takes guides
                sums = sums._replace(guides=ops.guide_sums(graph.csc_indptr, sums.cumulative))
            return SharedBlock.create(sums)
        future = self.peers.ask(self._name, {"probs_name": probs_name}, {self.first: {}})[self.first]
        block = open_place(self.peers.wait(self.first, future)[PLACE])[1]
        assert block is not None
        return block

    def _answer(self, options: Mapping[str, Any], questions: Tensors) -> Tensors:  # noqa: ARG002
        """Tell another rank where the sums lie."""
        graph, probs_name = self._ready(), options["probs_name"]
        self.of(graph, probs_name)
        return {PLACE: write_place(self._blocks[graph][probs_name].handle)}
