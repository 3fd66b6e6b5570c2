"""A table that is trained by several ranks, each of which has a part of its rows."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch

from graphfeed.distributed.cooperative.exchange import CHECK_SECONDS, Exchange
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partitioned_feature import PartitionedFeature
from graphfeed.distributed.ranks.owners import ranks_of_a_part
from graphfeed.distributed.ranks.peers import Peers, shared_peers
from graphfeed.distributed.ranks.transport.messages import Tensors
from graphfeed.ops.arguments import as_ids, as_tensor, check_ids, checked
from graphfeed.ops.process import Changes
from graphfeed.ops.rows import gather_unchecked
from graphfeed.storage import TorchBasedFeature, TrainableFeature
from graphfeed.storage.features import Tables, dtype_and_shape, new_table

ADVICE = (
    "all ranks must create their tables in the same order, and call step(), save() and load() equally often; give the "
    "DistributedItemSampler drop_uneven_inputs=True",
    "set the same lr on all ranks, and call the same methods of their tables in the same order",
)


class PartitionedTrainableFeature(TrainableFeature):
    """A `TrainableFeature` over ranks: each stores, and updates, the rows that it owns.

    `step()` sends the gradients of a mini-batch to the owners of its rows. An owner adds those of all ranks in the
    order of the ranks, so the table is bit-identical for any partition. It equals that of one process that fetches the
    mini-batches of all ranks before a step. Gradients are added over ranks, where DistributedDataParallel averages
    those of the model.

    All ranks call `step()`, `save` and `load` equally often; an error on one of them is raised on all. If a rank is
    lost, the others raise a `RankLostError` before they update their rows: restart all ranks, and load the last
    checkpoint. It is in a folder that all ranks share, to which each writes its own part, and any number of ranks can
    load it, as can a `TrainableFeature`.

    Args:
        book: The owner of each row: one part for each rank, or for as many ranks each, which then share out its rows.
        dim: Numbers per row.
        optimizer: As for `TrainableFeature`.
        lr: Learning rate, the same on all ranks.
        seed: The first rows are draws by seed, id and column, so they don't depend on the partition.
        peers: The ranks. Default: those of the default process group.
        name: Name of the table on all ranks.
        **options: Other arguments of `TrainableFeature`, except `journal` and `staleness`. A `path` must differ between
            ranks.

    Raises:
        ValueError: The ranks are not a multiple of the parts, or as for `TrainableFeature`.

    Example:
        >>> table = PartitionedTrainableFeature(PartBook.from_bounds([0, 4]), 2, "sgd", lr=0.5)  # a single rank
        >>> table.fetch(torch.tensor([3, 1])).sum().backward()
        >>> table.step()
        >>> table
        PartitionedTrainableFeature(float32[4, 2], part 0 of 1, sgd, lr=0.5, 1 steps)
    """

    _ids: torch.Tensor

    @checked
    def __init__(
        self,
        book: PartBook,
        dim: int,
        optimizer: Any = "adagrad",
        lr: float = 0.01,
        *,
        seed: int = 0,
        peers: Peers | None = None,
        name: str = "",
        **options: Any,
    ) -> None:
        for option in ("journal", "staleness"):
            if options.get(option):
                raise NotImplementedError(f"{option} is not for a table of several ranks; leave it out")
        self.peers = shared_peers() if peers is None else peers
        self.book = book_of_ranks(book, self.peers)
        self._part, self._num_parts = self.peers.rank, self.peers.world_size
        self._ids = own = self.book.ids_of(self._part)
        super().__init__(own.numel(), dim, optimizer, lr, seed=seed, **options)
        self._exchange = Exchange(self.peers, f"table {name}".rstrip(), "call of the table's methods", ADVICE)
        self._num_calls = 0
        self._stepped = Changes()
        said = f"{self._rule.name}, {self._rule.eps:g}, {self._rule.betas}, {self._rule.mean}, seed {seed}"
        self._reads = RowsAfterSteps(self, name, said)

    def step(self) -> None:
        """Update the rows that the ranks fetched since the last step, by their gradients. All ranks call it.

        Raises:
            RankLostError: A rank was lost. The rows of this rank are those after the last step.
            RuntimeError: A rank fetched no rows since the last step, or its rows have no gradients.
            ValueError: The ranks differ in `lr`, or in the methods that they call.
        """
        what = f"step(), lr={self.lr!r}"
        no_rows = torch.empty(0, dtype=torch.int64, device="cpu"), self._rows[:0]
        failure, (ids, gradients) = catch(self.fetched.gradients, no_rows)
        owners, offsets = self.book.locate(ids)
        order, counts = owners.argsort(stable=True), owners.long().bincount(minlength=self.peers.world_size).tolist()
        moved = [offsets.long(), gradients.detach()]
        arrived = self._trade(what, failure, [torch.split(gather_unchecked(own, order), counts) for own in moved])
        self.fetched.clear()
        # Once each rank knows that all ranks have all gradients, every one of them updates its rows.
        self._trade(what)
        self._update_rows(torch.cat(arrived[0]).long(), torch.cat(arrived[1]))
        self._stepped.notify_all()

    def _trade(self, what: str, failure: Exception | None = None, split: list[Any] | None = None) -> Any:
        """Exchange tensors with all ranks, and raise if the work of one of them failed."""
        self._num_calls += 1
        flags = [torch.tensor([failure is not None], device="cpu")] * self.peers.world_size
        *arrived, failed = self._exchange.trade((0, self._num_calls, 0), [*(split or []), flags], what)
        if failure is not None:
            raise failure
        others = [rank for rank, flag in enumerate(failed) if flag]
        if others:
            raise RuntimeError(f"ranks {others} failed in {what.partition(')')[0]}); see their errors")
        return arrived

    def _together(self, what: str, work: Callable[[], Any]) -> Any:
        """Work on all ranks, and raise an error on all ranks if it fails on one."""
        failure, result = catch(work, None)
        self._trade(what, failure)
        return result

    @checked
    def load(self, folder: str | Path) -> dict[str, Any] | None:
        """Read a checkpoint of any number of ranks, or of a `TrainableFeature`; return the loader's state of rank 0.

        The rows are copied twice, and replace the table once all ranks have theirs. All ranks call it.

        Raises:
            RuntimeError: Another rank failed. The table is unchanged.
        """
        parts, options = self._together("load()", lambda: self._open_checkpoint(folder))
        with ExitStack() as stack:
            what = f"load() of {options['num_steps']} steps"
            tables = self._together(what, lambda: self._copy_apart(parts, stack))
            # All ranks have their rows, so every one of them replaces its table, before others read it.
            state: dict[str, Any] | None = self._together("load()", lambda: self._replace_all([tables], options))
        return state

    def _copy_apart(self, parts: list[Tables], stack: ExitStack) -> Tables:
        """Return the own rows of a checkpoint as new tables, in memory or in files until the stack is closed."""
        place = None
        if self._files is not None:
            place = Path(stack.enter_context(TemporaryDirectory(dir=self._files.rows.parent)))
        tables = {
            name: new_table((len(table), table.shape[1]), table.dtype, place and place / name)
            for name, table in self._tables().items()
        }
        self._copy_parts(parts, tables)
        return {**tables, "ids": self._ids}

    def _find_own(self, ids: torch.Tensor) -> tuple[Any, torch.Tensor]:
        owners, offsets = self.book.locate(ids)
        own = (owners == self.peers.rank).nonzero().view(-1)
        return own, offsets[own].long()

    def load_state_dict(self, state_dict: dict[str, Any]) -> NoReturn:
        """Raise a NotImplementedError: the state of all ranks is in a folder."""
        raise NotImplementedError("the state of a table of several ranks is in a folder; use save() and load()")

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids` from their owners, after as many steps as this rank has made; all rows if None."""
        return self._reads.read(ids)

    def count(self) -> int:
        """Return the number of rows on all ranks."""
        return self.book.num_ids

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Overwrite the rows at `ids`, or all rows, which this rank owns; others are left out. All ranks call it."""
        ids = torch.arange(self.count(), device="cpu") if ids is None else as_ids("ids", ids).cpu()
        check_ids("ids", ids, self.count(), IndexError)
        value = as_tensor("value", value)
        if value.shape[:1] != ids.shape:
            raise ValueError(f"ids and value must have the same length, but have {len(ids)} and {[*value.shape][:1]}")
        chosen, offsets = self._find_own(ids)
        super().update(value[chosen], offsets)

    def __repr__(self) -> str:
        kind = dtype_and_shape(self.dtype, torch.Size([self.count(), *self.size()]))
        part = f"part {self.peers.rank} of {self.peers.world_size}"
        return f"{type(self).__name__}({kind}, {part}, {self._rule.name}, lr={self.lr:g}, {self.num_steps} steps)"


class RowsAfterSteps(PartitionedFeature):
    """The rows of a table, as they are after as many steps as the rank that requests them has made."""

    def __init__(self, table: PartitionedTrainableFeature, name: str, identity: str) -> None:
        self._table = table
        super().__init__(TorchBasedFeature(table._rows), table.book, table.peers, name, identity)

    def _request_options(self) -> dict[str, Any]:
        return {"steps": self._table.num_steps}

    def _answer(self, options: Mapping[str, Any], questions: Mapping[str, torch.Tensor]) -> Tensors:
        def has_stepped() -> bool:
            self.peers.check()
            return self._table.num_steps >= int(options["steps"])

        self._table._stepped.wait_for(has_stepped, every=CHECK_SECONDS)
        return super()._answer(options, questions)


def book_of_ranks(book: PartBook, peers: Peers) -> PartBook:
    """Return a book with a part for each rank: if several ranks store a part, each owns as many of its rows."""
    each = ranks_of_a_part(book, peers)
    if each == 1:
        return book
    owners, offsets = book.locate(torch.arange(book.num_ids, device="cpu"))
    return PartBook.from_assignment(owners.long() * each + offsets % each, peers.world_size)


def catch(work: Callable[[], Any], otherwise: Any) -> tuple[Exception | None, Any]:
    """Return an error of some work, or its result."""
    try:
        return None, work()
    except Exception as error:
        return error, otherwise
