"""The loader as a torchdata node. No other module imports torchdata."""

from typing import TYPE_CHECKING, Any

from torchdata.nodes import BaseNode

if TYPE_CHECKING:
    from graphfeed.loader.dataloader import DataLoader


class LoaderNode(BaseNode):  # type: ignore[misc]
    """A `torchdata.nodes.BaseNode` that yields a loader's mini-batches; a reset starts the loader's next epoch."""

    def __init__(self, loader: "DataLoader") -> None:
        super().__init__()
        self.loader = loader
        self.batches: Any = None
        self.has_begun = False
        """Whether it has yielded a mini-batch since the latest reset."""
        self.was_over = False
        """Whether the latest reset was to the end of an epoch. The node that reads from this one has to see that."""

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.has_begun, self.was_over = False, False
        if initial_state is not None:
            state = dict(initial_state)
            self.was_over = state.pop("over", False)
            self.loader.load_state_dict(state)
        self.batches = iter(()) if self.was_over else iter(self.loader)

    def next(self) -> Any:
        minibatch = next(self.batches)
        self.has_begun = True
        return minibatch

    def get_state(self) -> dict[str, Any]:
        state = self.loader.state_dict()
        # After its last mini-batch, the loader's state is the start of the next epoch.
        return {**state, "over": self.was_over or (self.has_begun and state["index"] == 0)}
