"""DGL's `NodeEmbedding` and its sparse optimizers, as trainable features."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from graphfeed.ops import is_gpu
from graphfeed.ops.arguments import as_tensor, brief, checked
from graphfeed.ops.rows import StepRule
from graphfeed.storage import TrainableFeature


class NodeEmbedding(TrainableFeature):
    """A table of embeddings, like `dgl.nn.NodeEmbedding`; `embedding(ids)` returns rows that require gradients.

    It is also a `TrainableFeature`, which `fetch_feature` accepts. It stays in this process: there is no port.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Numbers per row.
        name: Any name.
        init_func: Is given the table of zeros, and returns the first rows.
        device: None or the CPU.
        partition: None.

    Raises:
        NotImplementedError: `device` is a GPU, or there is a `partition`.

    Example:
        >>> embedding = NodeEmbedding(3, 2, "user", init_func=torch.ones_like)
        >>> optimizer = SparseAdagrad([embedding], lr=0.5)
        >>> embedding(torch.tensor([2, 0, 2])).sum().backward()
        >>> optimizer.step()
        >>> embedding.weight.tolist()
        [[0.5, 0.5], [1.0, 1.0], [0.5, 0.5]]
    """

    @checked
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        name: str,
        init_func: Callable[..., Any] | None = None,
        device: Any = None,
        partition: Any = None,
    ) -> None:
        if partition is not None or (device is not None and is_gpu(device)):
            raise NotImplementedError("rows are trained in the memory of this process; leave out device and partition")
        # Its optimizer sets the rule.
        super().__init__(num_embeddings, embedding_dim, "sgd", 0.0, combine="mean", init=0.0, seed=0)
        self.name = name
        if init_func is not None:
            first = init_func(self.weight)
            if first is not self.weight:  # such as those of torch.nn.init, which fill the table in place
                self.update(as_tensor("init_func(...)", first).to(self.dtype))

    def __call__(self, node_ids: torch.Tensor, device: Any = "cpu") -> torch.Tensor:
        """Return rows on a device, for the next step of the optimizer; without gradients under `torch.no_grad()`."""
        return self.fetch(node_ids).to(device)

    @property
    def weight(self) -> torch.Tensor:
        """All rows."""
        return self.read()

    @property
    def num_embeddings(self) -> int:
        """Number of rows."""
        return self.count()

    @property
    def embedding_dim(self) -> int:
        """Numbers per row."""
        return self.size().numel()


class SparseOptimizer:
    """An optimizer of tables. Gradients of equal ids are averaged, as in DGL."""

    def __init__(self, params: Sequence[NodeEmbedding], rule: StepRule) -> None:
        if not params or not all(isinstance(table, NodeEmbedding) for table in params):
            raise TypeError(f"params must be a list of NodeEmbedding, but is {brief(params)}")
        names = [table.name for table in params]
        if len({*names}) < len(names):
            raise ValueError(f"the names of params must differ, by which state_dict() has them, but are {brief(names)}")
        self.params, rule = [*params], rule.checked()
        for table in self.params:
            table.set_rule(rule)

    def step(self) -> None:
        """Update the rows with gradients, of each table from which rows were requested since the last step."""
        for table in self.params:
            if table.fetched.parts:
                table.step()

    def zero_grad(self) -> None:
        """Drop the gradients of the rows that were requested since the last step, as before `backward()`."""
        for table in self.params:
            for _, rows in table.fetched.parts:
                rows.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each table by its name, with the rows: save it between two steps."""
        return {table.name: table.state_dict() for table in self.params}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of each table; one that is missing raises a KeyError."""
        states = [state_dict[table.name] for table in self.params]
        for table, state in zip(self.params, states, strict=True):
            table.load_state_dict(state)


class SparseAdagrad(SparseOptimizer):
    """Adagrad with a sum for each number, like `dgl.optim.SparseAdagrad`. Epsilon is added to the root of the sum."""

    @checked
    def __init__(self, params: Sequence[NodeEmbedding], lr: float, eps: float = 1e-10) -> None:
        super().__init__(params, StepRule("adagrad", lr, eps, mean=True))


class SparseAdam(SparseOptimizer):
    """Adam with a number of steps for each row, like `dgl.optim.SparseAdam`. `use_uva` has no effect.

    Raises:
        NotImplementedError: `dtype` is not torch.float32.
    """

    @checked
    def __init__(
        self,
        params: Sequence[NodeEmbedding],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        use_uva: bool | None = None,  # noqa: ARG002
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dtype != torch.float32:
            raise NotImplementedError(f"dtype must be torch.float32, but is {dtype}; leave it out")
        super().__init__(params, StepRule("adam", lr, eps, betas, mean=True))
