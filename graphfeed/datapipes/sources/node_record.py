"""Reading of torchdata's nodes, whose states a loader saves."""

import copy
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

READERS: "WeakKeyDictionary[Any, NodeRecord]" = WeakKeyDictionary()
"""The latest reader of each node."""
END = object()


def is_node(iterable: Any) -> bool:
    """Return whether an iterable has the interface of a `torchdata.nodes.BaseNode`."""
    return all(hasattr(iterable, name) for name in ("__next__", "reset", "get_state", "state_dict"))


class NodeRecord:
    """Reads an epoch of a node, and keeps the node's states, because a loader reads ahead.

    Args:
        given: State to continue from. None starts the node's next epoch.
        is_over: Whether the epoch of that state is over, so that the node starts the one after it.
        replays: Whether the loader reads every epoch from its start. Then, only that state is kept.
    """

    def __init__(self, given: Any = None, is_over: bool = False, replays: bool = False) -> None:
        self.given = given
        self.is_over = is_over
        self.replays = replays
        self.states: dict[int, Any] = {}

    def read(self, node: Any, start: int) -> Iterator[tuple[int, Any]]:
        """Yield items and their indexes, starting at `start`."""
        continues = self.given is not None and not self.is_over
        READERS[node] = self
        if self.given is not None:
            node.reset(self.given)
        if self.is_over:
            next(node, END)  # as nodes count only those epochs that something was read from
        if not continues:
            node.reset()
        first = start if continues else 0
        self.states[first] = copy.deepcopy(node.state_dict())
        index = first
        while (item := next(node, END)) is not END:
            index += 1
            if not self.replays and index >= start:
                self.states[index] = copy.deepcopy(node.state_dict())
            if index > start:
                yield index - 1, item
            if READERS.get(node) is not self:
                raise RuntimeError(
                    f"{type(node).__name__} is being read by another epoch, and a node can be read by only one at a "
                    "time; end the earlier epoch first, or create another node"
                )

    def state_at(self, index: int) -> Any:
        """Return the node's state after `index` items, or at the start of the epoch if the loader replays it."""
        return next(iter(self.states.values()), None) if self.replays else self.states.get(index)

    def drop(self, index: int) -> None:
        """Forget the state after `index` items."""
        if not self.replays:
            self.states.pop(index, None)
