"""Stores a feature of a dataset in 4, 8 or 16 bits per number."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml

from graphfeed.ops.arguments import nearest
from graphfeed.storage.datasets.array_files import checksum, sync_folder, write_array, write_text
from graphfeed.storage.datasets.dataset_writer import PROCESSED
from graphfeed.storage.datasets.folder_writing import process_lock
from graphfeed.storage.datasets.metadata import FILE_NAME, read_yaml
from graphfeed.storage.datasets.on_disk_dataset import open_in_files
from graphfeed.storage.datasets.preprocess import LOCK
from graphfeed.storage.features.encode import encode
from graphfeed.storage.features.encoded_feature import EncodedFeature
from graphfeed.storage.features.torch_based_feature_store import ENCODING_FILES
from graphfeed.storage.memory import map_new_npy

BITS: dict[str, int | torch.dtype] = {"4": 4, "8": 8, "float16": torch.float16}
"""Choices of the command. NumPy's files can't store bfloat16."""


def encode_dataset(
    folder: str | os.PathLike[str], feature: str, bits: int | torch.dtype, per: Literal["column", "row"] = "column"
) -> list[EncodedFeature]:
    """Write the codes of a feature, of each type that has it, next to the preprocessed files, and name them there.

    The rows are read in parts, and stay where they are. Preprocessing again uses them instead of the codes.

    Raises:
        ValueError: There is no such feature, it is encoded already, or a number has no code.
    """
    dataset, root = open_in_files(folder).load(), Path(folder).resolve()
    path = dataset._prepare()
    with process_lock(root / LOCK):
        data = read_yaml(root, path)
        entries = data.get("feature_data") or []
        wanted = [number for number, entry in enumerate(entries) if entry["name"] == feature]
        if not wanted:
            names = [str(entry["name"]) for entry in entries]
            raise ValueError(f"{path} has no feature {feature!r}{nearest(feature, names) or f'; it has {names}'}")
        encoded, new = [], list[Path]()
        try:
            for number in wanted:
                entry = entries[number]
                if "encoding" in entry:
                    raise ValueError(f"feature {feature!r} in {path} is encoded already; preprocess the dataset again")
                rows = dataset.feature[entry["domain"], entry.get("type"), feature]
                stem = f"{entry['domain']}_{number}_{bits if isinstance(bits, int) else 16}_bits"
                files = {name: path.parent / f"{stem}_{name}.npy" for name in ("codes", *ENCODING_FILES)}
                new += files.values()
                codes = files.pop("codes")
                encoded.append(encode(rows, bits, per, new=partial(new_array, codes)))
                sync_file(codes)
                arrays = encoded[-1].arrays()
                for name, array in arrays.items():
                    write_array(files[name], array.numpy(), np.dtype(np.float32))
                replaced = str(entry["path"]).removeprefix(f"{PROCESSED}/")
                entry |= {"format": "numpy", "path": codes.relative_to(root).as_posix()}
                named = {name: files[name].relative_to(root).as_posix() for name in arrays}
                entry["encoding"] = {**encoded[-1].coding(), **named}
                if "checksums" in data:
                    data["checksums"].pop(replaced, None)
                    data["checksums"] |= {
                        file.name: checksum(file) for file in (codes, *(files[name] for name in arrays))
                    }
            write_text(path.with_name(f".{FILE_NAME}"), yaml.safe_dump(data, sort_keys=False))
        except BaseException:
            for file in new:
                file.unlink(missing_ok=True)
            raise
        # Last, in one step: until then, the dataset has its old rows.
        path.with_name(f".{FILE_NAME}").replace(path)
        sync_folder(path.parent)
    return encoded


def new_array(path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor in a new `.npy` file."""
    kind = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
    if 0 in shape:  # can't be mapped
        np.save(path, np.empty(shape, kind))
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.from_numpy(map_new_npy(path, shape, kind))


def sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def add_encode_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the folder of an OnDiskDataset")
    parser.add_argument("--feature", required=True, help="its name; of all types that have it")
    parser.add_argument("--bits", choices=BITS, default="8", help="size of each number (default: 8)")
    parser.add_argument("--per", choices=("column", "row"), default="column", help="scales of codes (default: column)")


def run_encode(options: Any) -> None:
    for feature in encode_dataset(options.folder, options.feature, BITS[options.bits], options.per):
        sys.stdout.write(f"{feature!r}\n")
