"""Checkpoints of trained tables: files of a folder, of which the manifest is written last."""

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphfeed.ops.process import current_limits
from graphfeed.storage.memory.new_file import new_file
from graphfeed.storage.memory.outside_files import read_npy

MANIFEST = "manifest.json"
VERSION = 1


def write_checkpoint(folder: Path, tables: dict[str, torch.Tensor], options: dict[str, Any]) -> None:
    """Write tables and a manifest with options to a folder, and then delete the tables of the checkpoint before."""
    # Each checkpoint has a number, so that it doesn't overwrite the files of the one before.
    number = 0
    with suppress(FileNotFoundError, ValueError):
        number = read_manifest(folder)["number"] + 1
    files = {name: f"{name}.{number}.npy" for name in tables}
    text = json.dumps({"version": VERSION, "number": number, "files": files, "options": options}, indent=1).encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_table(folder / files[name], table)
    with new_file(folder / MANIFEST, len(text)) as file:
        file.write(text)
    for path in folder.iterdir():
        if path.name not in files.values() and re.fullmatch(rf"({'|'.join(tables)})\.\d+\.npy", path.name):
            path.unlink()


def write_table(path: Path, table: torch.Tensor) -> None:
    """Write a table to a `.npy` file in parts."""
    values = table.numpy()
    step = max(current_limits().part_bytes // max(math.prod(values.shape[1:]) * values.itemsize, 1), 1)
    with new_file(path, values.nbytes) as file:
        header = {"descr": values.dtype.str, "fortran_order": False, "shape": values.shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(values) if values.size else 0, step):
            file.write(values[start : start + step].tobytes())


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """Return the options of a checkpoint and its tables, which are mapped.

    Raises:
        FileNotFoundError: There is no manifest, or it names a file that is missing.
        ValueError: A file is damaged.
    """
    manifest = read_manifest(folder)
    tables = {}
    for name, file in manifest["files"].items():
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder} has a part of a checkpoint: {file} is missing; load another one")
        try:
            # Mapped, because tables may be larger than the memory.
            tables[name] = torch.from_numpy(read_npy(folder / file, mapped=True))
        except (EOFError, OSError, ValueError) as error:
            raise ValueError(f"{folder / file} is damaged: {error}; load another checkpoint") from error
    return {**manifest["options"], **tables}


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no complete checkpoint: {MANIFEST} is missing; save() writes it last")
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']} is not {VERSION}")
        number, options = found["number"], found["options"]
        # Other names could lead to files outside of the folder.
        named = all(name.isidentifier() and file == f"{name}.{number}.npy" for name, file in found["files"].items())
        if type(number) is not int or not named or not isinstance(options, dict) or "loader" not in options:
            raise ValueError("its number, files or options are not those of a checkpoint")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or of another release: {error}; load another checkpoint") from error
    return found
