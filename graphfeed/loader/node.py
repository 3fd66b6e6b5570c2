"""The loader among torchdata's nodes: the one module that imports torchdata."""

from typing import TYPE_CHECKING, Any

from torchdata.nodes import BaseNode

if TYPE_CHECKING:
    from graphfeed.loader.dataloader import DataLoader


class LoaderNode(BaseNode):  # type: ignore[misc]
    """A `torchdata.nodes.BaseNode` that gives a loader's mini-batches; a reset begins the loader's next epoch."""

    def __init__(self, loader: "DataLoader") -> None:
        super().__init__()
        self.loader = loader
        self.batches: Any = None

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin the next epoch, or go on where a state was taken."""
        super().reset(initial_state)
        if initial_state is not None:
            self.loader.load_state_dict(initial_state)
        self.batches = iter(self.loader)

    def next(self) -> Any:
        """Return the next mini-batch."""
        return next(self.batches)

    def get_state(self) -> dict[str, Any]:
        """Return where the epoch stands."""
        return self.loader.state_dict()
