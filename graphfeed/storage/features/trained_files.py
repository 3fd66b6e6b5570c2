"""Files of trained tables. A checkpoint has a folder for each part of the rows, and a manifest, which comes last."""

import json
import math
import mmap
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch

from graphfeed.ops.arguments import brief, check_ids, check_tensors
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import current_limits
from graphfeed.ops.rows import StepRule, draw_rows, gather_by_page
from graphfeed.storage.features.feature import dtype_and_shape
from graphfeed.storage.memory.new_file import map_new_npy, new_file
from graphfeed.storage.memory.outside_files import read_npy

MANIFEST = "manifest.json"
VERSION = 1
Tables = dict[str, torch.Tensor]
"""The "rows" and the "state" of a part; its "ids", too, if there are other parts."""
SAVED: "WeakValueDictionary[Path, Any]" = WeakValueDictionary()
"""The table whose checkpoint this process has written to each folder of a part."""
EARLIER = ("earlier", "earlier_rows")
"""Tables with what the last steps overwrote, if there is a staleness."""


class Files(NamedTuple):
    """The files of a table, of which some may not exist."""

    rows: Path
    state: Path
    journal: Path


def files_of(path: str | Path, *, journal: bool, has_state: bool) -> Files:
    """Return the files of a table; raise a FileExistsError if there are some that no journal allows to open again.

    Raises:
        FileNotFoundError: There is a table with a journal, but its optimizer has no state.
    """
    rows = Path(path)
    files = Files(rows, *(rows.with_name(f"{rows.stem}.{end}") for end in ("state.npy", "journal")))
    if journal and files.journal.exists() and files.rows.exists():
        if has_state and not files.state.exists():
            raise FileNotFoundError(f"{files.state} is missing, the state of this optimizer; create the table alike")
        return files
    for file in files:
        if file.exists():
            raise FileExistsError(
                f"{file} exists; delete it, or give another path: only load(), or a journal, continues a training"
            )
    return files


def new_table(shape: tuple[int, int], dtype: torch.dtype, path: Path | None) -> torch.Tensor:
    """Return a table of zeros, in memory or in a new file; or that of a file that exists."""
    if path is None or 0 in shape:
        return buffers.empty_long_lived(shape, dtype, buffers.CPU).zero_()
    kind = np.dtype(str(dtype).removeprefix("torch."))
    if not path.exists():
        return torch.from_numpy(map_new_npy(path, shape, kind))
    found = np.lib.format.open_memmap(path, mode="r+")
    if (found.shape, found.dtype) != (shape, kind):
        raise ValueError(f"{path} has {found.dtype}{[*found.shape]}, but this table {kind}{[*shape]}; create it alike")
    return torch.from_numpy(found)


def draw_table(rows: torch.Tensor, ids: torch.Tensor | None, key: int, bound: float) -> None:
    """Draw the first rows of a table, for some ids or all, in parts, between which Ctrl-C can interrupt."""
    step = rows_per_step(rows)
    for first in range(0, len(rows), step):
        last = min(first + step, len(rows))
        own = torch.arange(first, last, device="cpu") if ids is None else ids[first:last]
        draw_rows(rows[first:last], own, key, bound)


def rule_of(options: dict[str, Any], name: str, *tables: str) -> StepRule:
    """Return the rule of a state; raise a ValueError if it is not of the optimizer `name`, or lacks something."""
    lacks = {*StepRule._fields, "num_steps", *tables} - options.keys()
    if lacks:
        raise ValueError(f"state_dict lacks {sorted(lacks)}; pass the result of state_dict()")
    betas = options["betas"]
    if options["name"] != name:
        raise ValueError(f"optimizer of the state is {options['name']}, but this table has {name}; create it alike")
    if type(options["num_steps"]) is not int or options["num_steps"] < 0:
        raise ValueError(
            f"num_steps of the state must be an integer of 0 or more, but is {brief(options['num_steps'])}"
        )
    if not isinstance(betas, (list, tuple)) or len(betas) != 2:  # JSON has lists
        raise ValueError(f"betas of the state must be two numbers, but are {brief(betas)}")
    return StepRule(*(options[field] for field in StepRule._fields)).checked()


def read_pages(table: torch.Tensor, rows: torch.Tensor) -> None:
    """Read the pages of some rows of a mapped table into memory, many at a time."""
    width = table.shape[1]
    if width and rows.numel():
        # A number of each page: those from the start of the row on, and the last one.
        of_row = torch.tensor([*range(0, width, mmap.PAGESIZE // table.itemsize), width - 1], device="cpu")
        words = table.view(-1).view(torch.int32 if table.itemsize == 4 else torch.int64)
        gather_by_page(words, (rows.long()[:, None] * width + of_row).view(-1))


def claim_folder(folder: Path, part: int, table: Any) -> None:
    """Raise a ValueError if another table of this program was saved to the folder of a part."""
    if SAVED.setdefault(folder / f"part_{part}", table) is not table:
        raise ValueError(f"{folder} has the checkpoint of another table; give each table a separate folder")


def begin_checkpoint(folder: Path, parts: int, tables: Tables, options: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of the next checkpoint, whose files don't overwrite those of the one before.

    Raises:
        TypeError: JSON has no such options.
    """
    number = 0
    with suppress(FileNotFoundError, ValueError):
        number = int(read_manifest(folder)["number"]) + 1
    manifest = {"version": VERSION, "number": number, "parts": parts, "tables": [*tables], "options": options}
    json.dumps(manifest)
    return manifest


def write_part(folder: Path, part: int, number: int, tables: Tables) -> None:
    """Write the tables of a part."""
    for name, table in tables.items():
        path = table_file(folder, part, name, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, table)


def end_checkpoint(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest if no part is missing, and then delete the files of the checkpoint before."""
    files_of_parts(folder, manifest)
    text = json.dumps(manifest, indent=1).encode()
    with new_file(folder / MANIFEST, len(text)) as file:
        file.write(text)
    for path in folder.glob("part_*/*.npy"):
        found = re.fullmatch(r"(rows|state|ids|earlier|earlier_rows)\.(\d+)\.npy", path.name)
        if found and found[2] != str(manifest["number"]):
            path.unlink()


def files_of_parts(folder: Path, manifest: dict[str, Any]) -> list[dict[str, Path]]:
    """Return the files of each part of a checkpoint by name; raise a FileNotFoundError if one is missing."""
    parts = range(manifest["parts"])
    files = [
        {name: table_file(folder, part, name, manifest["number"]) for name in manifest["tables"]} for part in parts
    ]
    for path in [path for part in files for path in part.values()]:
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} has a part of a checkpoint: {path} is missing; save to a folder that all ranks share, or "
                "load another one"
            )
    return files


def table_file(folder: Path, part: int, name: str, number: int) -> Path:
    return folder / f"part_{part}" / f"{name}.{number}.npy"


def write_table(path: Path, table: torch.Tensor) -> None:
    """Write a table to a `.npy` file in parts."""
    values = table.numpy()
    step = rows_per_step(table)
    with new_file(path, values.nbytes) as file:
        header = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(values) if values.size else 0, step):
            file.write(values[start : start + step].tobytes())


def rows_per_step(table: torch.Tensor) -> int:
    """Return how many rows are copied at once."""
    return max(current_limits().part_bytes // max(math.prod(table.shape[1:]) * table.itemsize, 1), 1)


def read_checkpoint(folder: Path) -> tuple[dict[str, Any], list[Tables]]:
    """Return the options of a checkpoint, and the tables of its parts, which are mapped.

    Raises:
        FileNotFoundError: There is no manifest, or a part is missing.
        ValueError: A file is damaged.
    """
    manifest = read_manifest(folder)
    parts = [{name: map_table(path) for name, path in part.items()} for part in files_of_parts(folder, manifest)]
    return manifest["options"], parts


def map_table(path: Path) -> torch.Tensor:
    """Map a table, which may be larger than the memory."""
    try:
        return torch.from_numpy(read_npy(path, mapped=True))
    except (EOFError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; load another checkpoint") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no complete checkpoint: {MANIFEST} is missing; save() writes it last")
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']} is not {VERSION}")
        number, parts, options = found["number"], found["parts"], found["options"]
        whole = parts == 1 and found["tables"] in (["rows", "state"], ["rows", "state", *EARLIER])
        named = type(number) is int and type(parts) is int and (whole or found["tables"] == ["rows", "state", "ids"])
        if not named or not isinstance(options, dict) or "loader" not in options:
            raise ValueError("its number, parts, tables or options are not those of a checkpoint")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or of another release: {error}; load another checkpoint") from error
    return found


def check_parts(parts: Sequence[Tables], count: int, like: Tables) -> None:
    """Raise a ValueError unless the parts have a row for each of `count` ids, of the dtype and size of other tables."""
    for part in parts:
        check_tensors(**part)
    for name, table in like.items():
        total = sum(len(part[name]) for part in parts)
        kinds = {dtype_and_shape(part[name].dtype, torch.Size([total, *part[name].shape[1:]])) for part in parts}
        wanted = dtype_and_shape(table.dtype, torch.Size([count, *table.shape[1:]]))
        if kinds != {wanted} or any(len(part[name]) != len(part["rows"]) for part in parts):
            raise ValueError(
                f"{name} of the state is {' and '.join(kinds)}, but this table has {wanted}; create it alike"
            )
    for pairs, rows in [[part[name] for name in EARLIER] for part in parts if not part.keys().isdisjoint(EARLIER)]:
        both = dtype_and_shape(pairs.dtype, pairs.shape), dtype_and_shape(rows.dtype, rows.shape)
        wanted = dtype_and_shape(like["rows"].dtype, torch.Size([len(pairs), *like["rows"].shape[1:]]))
        if both != (dtype_and_shape(torch.int64, torch.Size([len(pairs), 2])), wanted):
            raise ValueError(f"earlier rows of the state are {' and '.join(both)}, but should be {wanted} with pairs")
        check_ids("earlier ids", pairs[:, 1], count, ValueError)
    if "ids" in parts[0]:
        seen = torch.zeros(count, dtype=torch.bool, device="cpu")
        for part in parts:
            check_ids("ids", part["ids"], count, ValueError)
            seen[part["ids"]] = True
        if sum(len(part["ids"]) for part in parts) != count or not seen.all():
            raise ValueError("the ids of the checkpoint's parts are not those of all rows; load another one")
