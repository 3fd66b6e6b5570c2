"""A feature whose rows are trained: a table of embeddings with its optimizer."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import torch
from torch import distributed

from graphfeed.ops import MASK, draw_unkeyed, fold, is_gpu
from graphfeed.ops.arguments import MOST_VALUES, as_ids, brief, check_count, check_ids, check_seed, checked
from graphfeed.ops.memory import read_at_random
from graphfeed.ops.process import uninterrupted
from graphfeed.ops.rows import FLOATS, StepRule, gather_rows, train_rows
from graphfeed.storage.features.feature import Feature, TorchBasedFeature, dtype_and_shape
from graphfeed.storage.features.fetched_rows import EarlierRows, FetchAhead, FetchedRows
from graphfeed.storage.features.step_journal import StepJournal, lock_of
from graphfeed.storage.features.trained_files import (
    EARLIER,
    Tables,
    begin_checkpoint,
    check_parts,
    claim_folder,
    draw_table,
    end_checkpoint,
    files_of,
    new_table,
    read_checkpoint,
    read_pages,
    rows_per_step,
    rule_of,
    write_part,
)

OPTIMIZERS = {"adagrad": 1e-10, "adam": 1e-8, "sgd": 0.0}
"""Default of epsilon for each optimizer."""
MOST_STALENESS = 1 << 10


class TrainableFeature(Feature):
    """A feature whose rows are trained, for nodes or edges without features. It has its own optimizer.

    `fetch_feature` yields its rows as tensors that require gradients. After `backward()`, `step()` updates only the
    rows of the mini-batch. Workers sample ahead, but the rows themselves are fetched when you ask for the next
    mini-batch, after the step. So the table is the same for any number of workers. Under `torch.no_grad()`, as in an
    evaluation, rows are only read.

    A step must follow each mini-batch: fetching rows before it is an error, and so is a second one. `save` writes
    checkpoints. The table is trained by one process: it can't be pickled, and several ranks need a
    `PartitionedTrainableFeature`.

    Args:
        num_rows, dim: Number of rows, and of numbers per row.
        optimizer: "adagrad", "adam" or "sgd". Adam has a number of steps for each row, and decays only the moments of
            rows that are updated.
        lr: Learning rate.
        dtype: torch.float32 or torch.float64.
        rowwise: Whether Adagrad keeps one sum for each row, of the mean of its squared gradients, instead of one for
            each number, which takes as much memory as the rows.
        combine: Whether gradients of equal ids in a mini-batch are added ("sum") or averaged ("mean").
        eps: Added to the denominator; 1e-10 for Adagrad and 1e-8 for Adam by default.
        betas: Decay rates of Adam's moments.
        seed: The first rows are uniform draws by seed, row and column. None draws a seed (`graphfeed.seed`).
        init: The largest number of the first rows; 1 / sqrt(dim) by default.
        path: A new `.npy` file that is mapped, for a table that is larger than the memory. The state of the optimizer
            is in another one, `NAME.state.npy`. These files change with each step: after a crash, load a checkpoint.
        journal: Whether `NAME.journal` has what a step overwrites, so that the process may be killed at any time: the
            next one, which creates the table alike, finds its files as they were after the last complete step, and
            continues after `num_steps` steps, without what a `staleness` keeps of earlier ones. A step writes its rows
            twice, which takes up to 1.6 times as long. After a power cut, load a checkpoint.
        staleness: The rows of a mini-batch are those before the last `staleness` steps, so that a loader with workers
            fetches them while you train with earlier mini-batches. Their values are the same for any workers. This
            makes a table of four times the memory up to 1.5 times as fast if a GPU trains the model; in memory, it
            takes longer than fetching after the step, because the rows that a step overwrites are copied.

    Raises:
        FileExistsError: A file exists already, and no journal.
        FileNotFoundError: There is a journal, but not the state of the optimizer.
        OSError: The disk is too small for the files.
        RuntimeError: Another process has a table with this journal.
        ValueError: An argument is out of range, or not that of a table in files that exist.

    Example:
        >>> table = TrainableFeature(4, 2, optimizer="sgd", lr=0.5, seed=0)
        >>> before, ids = table.read().clone(), torch.tensor([3, 1])
        >>> table.fetch(ids).sum().backward()
        >>> table.step()
        >>> (before - table.read()).tolist()
        [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0], [0.5, 0.5]]
    """

    is_trained = True
    num_steps = 0
    """Number of steps so far."""
    _ids: torch.Tensor | None = None
    """Ids of the rows that are here; None: all."""
    _part, _num_parts = 0, 1
    _rule: StepRule
    _state: torch.Tensor
    _journal: StepJournal | None = None

    @checked
    def __init__(  # noqa: PLR0913 - those of an optimizer, too
        self,
        num_rows: int,
        dim: int,
        optimizer: Literal["adagrad", "adam", "sgd"] = "adagrad",
        lr: float = 0.01,
        dtype: torch.dtype = torch.float32,
        *,
        rowwise: bool = True,
        combine: Literal["sum", "mean"] = "sum",
        eps: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        seed: int | None = None,
        init: float | None = None,
        path: str | Path | None = None,
        journal: bool = False,
        staleness: int = 0,
    ) -> None:
        check_count("num_rows", num_rows, 0, MOST_VALUES)
        check_count("dim", dim, 1, MOST_VALUES // max(num_rows, 1))
        check_count("staleness", staleness, 0, MOST_STALENESS)
        for name, value, allowed in (
            ("optimizer", optimizer, [*OPTIMIZERS]),
            ("combine", combine, ["sum", "mean"]),
            ("dtype", dtype, [*FLOATS]),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, but is {brief(value)}")
        bound = 1 / math.sqrt(dim) if init is None else init
        if not 0 <= bound < math.inf:
            raise ValueError(f"init must be a finite number of 0 or more, but is {init}")
        if journal and path is None:
            raise ValueError("journal is for a table in files, but path is None; give a path")
        key = fold((draw_unkeyed() if seed is None else check_seed("seed", seed)) & MASK, 0)
        own_rule = "rowwise" if optimizer == "adagrad" and rowwise else optimizer
        rule = StepRule(own_rule, lr, OPTIMIZERS[optimizer] if eps is None else eps, betas, combine == "mean").checked()
        self.fetched, self.earlier = FetchedRows(), EarlierRows(staleness)
        self._files = None if path is None else files_of(path, journal=journal, has_state=rule.width(dim) > 0)
        self.is_mapped = self._files is not None
        # Before any file is created, which is deleted if this method fails: it may be that of another process.
        lock = lock_of(self._files.journal) if self._files and journal and num_rows else None
        is_new = self._files is None or not self._files.rows.exists()
        try:
            self._rows = new_table((num_rows, dim), dtype, self._files and self._files.rows)
            self.set_rule(rule)
            if self._files and lock:
                self._journal = StepJournal(self._files.journal, self._tables(), lock)
            # The system should read, and later write, only the pages of rows: not large parts of the file.
            read_at_random([table for table in (self._rows, self._state) if self._files and table.numel()], yes=True)
            if is_new:
                with self._change(None):
                    draw_table(self._rows, self._ids, key, bound)
            elif self._journal:
                self._begin_from(self._journal.restore(), {})
        except BaseException:
            for file in self._files or () if is_new else ():
                file.unlink(missing_ok=True)
            if is_new and lock:
                lock.file.close()  # also if the error, which refers to it, is kept
            raise

    @property
    def lr(self) -> float:
        """The learning rate, which you may set between steps; a number below 0 or NaN raises a ValueError."""
        return self._rule.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._rule = self._rule._replace(lr=lr).checked()

    def set_rule(self, rule: StepRule) -> None:
        """Use another optimizer, whose state is that before its first step."""
        self._rule = rule
        count, dim = self._rows.shape
        self._state = new_table((count, rule.width(dim)), self._rows.dtype, self._files and self._files.state)

    def _change(self, offsets: torch.Tensor | None) -> AbstractContextManager[None]:
        """Record what is overwritten if there is a journal: the rows at some offsets; None: all of them."""
        return self._journal.change(offsets, self._options) if self._journal else nullcontext()

    def fetch(self, ids: torch.Tensor, key: Any = None) -> torch.Tensor:
        """Return the rows at `ids` as a leaf that requires a gradient, which the next `step()` uses.

        Several fetches before a step are added up, as long as they are for the same mini-batch. Without gradients, as
        under `torch.no_grad()`, this is `read`.

        Args:
            ids: int32 or int64, 1-D. An id outside of the rows raises an IndexError.
            key: The key of the mini-batch; any fetch without one belongs to the same mini-batch.

        Raises:
            RuntimeError: Rows of another mini-batch were fetched, and `step()` didn't follow.
        """
        if isinstance(key, FetchAhead):
            return key.fetch(self, ids)
        if not torch.is_grad_enabled():
            return self.read(ids)
        rows = self.earlier.read(self.read, ids, self.earlier.due()).requires_grad_()
        self.fetched.add(ids, rows, key)
        return rows

    def step(self) -> None:
        """Update the rows that were fetched since the last step by their gradients.

        Raises:
            NotImplementedError: There are several ranks.
            RuntimeError: No rows were fetched since the last step, or they have no gradients.
        """
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise NotImplementedError(
                "a TrainableFeature is trained by one process, but there are several ranks, whose tables would differ; "
                "use a PartitionedTrainableFeature"
            )
        ids, gradients = self.fetched.gradients()
        # Before the update, so that no gradient is used twice, even after Ctrl-C. The kernel can't be interrupted.
        self.fetched.clear()
        self._update_rows(ids, gradients)

    def _update_rows(self, offsets: torch.Tensor, gradients: torch.Tensor) -> None:
        with uninterrupted(), self._change(offsets), self.earlier.change(self._rows, offsets):
            train_rows(self._rows, self._state, offsets, gradients, self._rule)
            self.num_steps += 1

    def zero_grad(self) -> None:
        """Drop the rows that were fetched since the last step, with their gradients."""
        if self.fetched.parts:
            self.earlier.skip()
        self.fetched.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the state of the optimizer, which are not copied: the next step changes them.

        Raises:
            RuntimeError: Rows were fetched, and `step()` didn't follow, so that a mini-batch would be lost.
        """
        if self.fetched.parts:
            raise RuntimeError(
                "rows of a mini-batch were fetched, and step() didn't follow; call step() or zero_grad() first"
            )
        return {**self._options(), **self._tables(), **self.earlier.tables(self._rows)}

    def _options(self) -> dict[str, Any]:
        return {"num_steps": self.num_steps, **self._rule._asdict()}

    @checked
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Copy the rows and the state of the optimizer, its learning rate and its other numbers.

        Raises:
            ValueError: The state is of another number of rows, dtype or optimizer. The table is unchanged.
        """
        names = *self._tables(), *(() if state_dict.keys().isdisjoint(EARLIER) else EARLIER)
        rule_of(state_dict, self._rule.name, *names)
        part = {name: state_dict[name] for name in names}
        check_parts([part], len(self._rows), self._tables())
        self._replace_all([part], state_dict)

    def _replace_all(self, parts: list[Tables], options: dict[str, Any]) -> dict[str, Any] | None:
        """Overwrite the rows and their state, and return the state of the loader. Ctrl-C comes after it."""
        with uninterrupted(), self._change(None):
            self._copy_parts(parts, self._tables())
            self._begin_from(options, parts[0])
        return options.get("loader")

    def _begin_from(self, options: dict[str, Any], tables: Tables) -> None:
        self.fetched.clear()
        self.earlier.load(tables)
        self._rule = rule_of(options, self._rule.name)
        self.num_steps = options["num_steps"]

    @checked
    def save(self, folder: str | Path, loader_state: dict[str, Any] | None = None) -> None:
        """Write a checkpoint to a folder of this table, with the state of a loader, `loader.state_dict()`.

        The tables are copied in parts, so this takes no memory. `manifest.json` comes last: until it is complete, the
        folder has the checkpoint before.

        Raises:
            OSError: The disk is full. The folder has the checkpoint before.
            RuntimeError: As for `state_dict`.
            ValueError: Another table of this program was saved to the folder.
        """
        place, ids = Path(folder).resolve(), {} if self._ids is None else {"ids": self._ids}
        tables = {**self._tables(), **self.earlier.tables(self._rows), **ids}

        def begin() -> dict[str, Any]:
            self.state_dict()  # raises if a step didn't follow
            claim_folder(place, self._part, self)
            return begin_checkpoint(place, self._num_parts, tables, {**self._options(), "loader": loader_state})

        manifest = self._together("save()", begin)
        self._together("save()", lambda: write_part(place, self._part, manifest["number"], tables))
        self._together("save()", lambda: None if self._part else end_checkpoint(place, manifest))

    def _together(self, what: str, work: Callable[[], Any]) -> Any:  # noqa: ARG002
        """Do a part of the work of a method; a table of several ranks then waits for the other ranks."""
        return work()

    def _tables(self) -> Tables:
        return {"rows": self._rows, "state": self._state}

    @checked
    def load(self, folder: str | Path) -> dict[str, Any] | None:
        """Read a checkpoint that `save` wrote to a folder, and return the state of the loader.

        Raises:
            FileNotFoundError: The folder has no complete checkpoint, or lacks a file.
            ValueError: A file is damaged, or as for `load_state_dict`. The table is unchanged.
        """
        return self._replace_all(*self._open_checkpoint(folder))

    def _open_checkpoint(self, folder: str | Path) -> tuple[list[Tables], dict[str, Any]]:
        """Return the parts and the options of a checkpoint, which must be of such a table."""
        options, parts = read_checkpoint(Path(folder))
        rule_of(options, self._rule.name)
        check_parts(parts, self.count(), self._tables())
        return parts, options

    def _copy_parts(self, parts: list[Tables], tables: Tables) -> None:
        """Copy the own rows of the parts of a checkpoint to tables."""
        for part in parts:
            step = min(map(rows_per_step, tables.values()))
            for first in range(0, len(part["rows"]), step):
                last = min(first + step, len(part["rows"]))
                ids = part["ids"][first:last] if "ids" in part else torch.arange(first, last, device="cpu")
                chosen, offsets = self._find_own(ids)
                for name, table in tables.items():
                    # A copy, because a state of the table may have the table itself.
                    table[offsets] = part[name][first:last][chosen].clone()

    def _find_own(self, ids: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return which of some ids have their rows here, as an index, and the offsets of these rows."""
        return slice(None), ids

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids` without gradients; all rows if None, which are not copied."""
        if ids is None:
            return self._rows
        return gather_rows(self._rows, as_ids("ids", ids).cpu())

    def read_ahead(self, ids: torch.Tensor) -> None:
        """Read the pages of rows in a file, and of their state, so that the next fetch and step find them in memory."""
        check_ids("ids", ids, self.count(), IndexError)
        _, offsets = self._find_own(as_ids("ids", ids).cpu())
        for table in (self._rows, self._state) if self.is_mapped else ():
            read_pages(table, offsets)

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self._rows.shape[1:]

    def count(self) -> int:
        """Return the number of rows."""
        return self._rows.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the rows."""
        return self._rows.dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Overwrite the rows at `ids`, or all rows, by others of the same shape. The optimizer keeps its state.

        With a `staleness`, the next mini-batches have these rows, too.
        """
        offsets = torch.arange(self.count(), device="cpu") if ids is None else as_ids("ids", ids).cpu()
        with self._change(offsets):
            TorchBasedFeature(self._rows).update(value, offsets)
        self.earlier.load({})

    @checked
    def to(self, device: torch.device | str) -> Self:
        """Return this feature for the CPU. For a GPU, raise a NotImplementedError."""
        if str(device) == "pinned" or is_gpu(device):
            raise NotImplementedError(
                f"rows of a TrainableFeature are trained in CPU memory, not on {str(device)!r}; keep it there, and put "
                "copy_to() after fetch_feature()"
            )
        return self

    def pin_memory_(self) -> Self:
        """Raise a NotImplementedError, because rows are trained in other memory."""
        return self.to("pinned")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a TrainableFeature can't be pickled or copied, because only one table is trained; save() it to a folder, "
            "and load() it into another one"
        )

    def __repr__(self) -> str:
        kind = dtype_and_shape(self.dtype, self._rows.shape)
        return f"TrainableFeature({kind}, {self._rule.name}, lr={self.lr:g}, {self.num_steps} steps)"
