from pathlib import Path

import pytest

from graphfeed.interop.graphbolt import BuiltinDataset
from tests import on_disk


@pytest.mark.parametrize("folder", ["cora", "cora-seeds"])
def test_from_a_folder_of_either_name(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    on_disk.write(place, on_disk.untyped(place))
    dataset = BuiltinDataset("cora", root=tmp_path).load()
    assert dataset.dataset_name == "small"
    assert dataset.graph is not None
    assert dataset.graph.total_num_edges == 6


def test_an_error_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no data set 'cora' .* downloads none; .*cora-seeds/metadata\.yaml"):
        BuiltinDataset("cora", root=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ogbn-seeds/metadata\.yaml"):
        BuiltinDataset("ogbn-seeds", root=tmp_path)
