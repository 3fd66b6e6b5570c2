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

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        if initial_state is not None:
            self.loader.load_state_dict(initial_state)
        self.batches = iter(self.loader)

    def next(self) -> Any:
        return next(self.batches)

    def get_state(self) -> dict[str, Any]:
        return self.loader.state_dict()
