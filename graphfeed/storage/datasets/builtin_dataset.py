"""GraphBolt's public datasets, from a folder that they have been put into."""

import os
from pathlib import Path

from graphfeed.storage.datasets.metadata import FILE_NAME
from graphfeed.storage.datasets.on_disk_dataset import OnDiskDataset


class BuiltinDataset(OnDiskDataset):
    """A dataset of GraphBolt by name, such as "cora" or "ogbn-products", unpacked into a folder; nothing is downloaded.

    Args:
        name: The dataset's; its folder has that name, or that name and "-seeds", as GraphBolt calls it.
        root: Where the folder is.

    Raises:
        FileNotFoundError: There is no such folder; the text says where to put it.
    """

    def __init__(self, name: str, root: str | os.PathLike[str] = "datasets") -> None:
        names = [name] if "seeds" in name else [f"{name}-seeds", name]
        places = [Path(root) / known for known in names]
        for place in places:
            if place.is_dir():
                super().__init__(place)
                return
        raise FileNotFoundError(
            f"there is no dataset {name!r} in {Path(root).resolve()}, and graphfeed downloads none; unpack it so that "
            f"{places[0] / FILE_NAME} is there"
        )
