from pathlib import Path
from types import SimpleNamespace

import pytest

from graphfeed.ingest import SerializedTFRecordInfo
from graphfeed.ingest.gigl.serialized_graph import share_of


def info(prefix: object) -> SerializedTFRecordInfo:
    return SerializedTFRecordInfo(prefix, [], {}, 0, "id")


@pytest.mark.parametrize("as_uri", [str, lambda path: path, lambda path: SimpleNamespace(uri=str(path))])
def test_files_are_those_of_the_pattern_sorted_by_path(tmp_path: Path, as_uri: object) -> None:
    assert callable(as_uri)
    wanted = ["b/0-of-2.tfrecord", "b/1-of-2.tfrecord.gz", "c/a-of-b.tfrecord"]
    for name in [*wanted, "b/_SUCCESS", "b/0-of-2.tfrecord.part", "b/plain.tfrecord", "other/0-of-1.tfrecord"]:
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).touch()
    (tmp_path / "x" / "other").rename(tmp_path / "other")
    assert info(as_uri(tmp_path / "x")).find_files() == [tmp_path / "x" / name for name in wanted]
    assert info(as_uri(tmp_path / "x" / "b" / "1-")).find_files() == [tmp_path / "x" / wanted[1]]


def test_a_pattern_that_no_file_matches_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.tfrecord").touch()
    with pytest.raises(FileNotFoundError, match=f"no file under {tmp_path} matches tfrecord_uri_pattern, which is"):
        info(tmp_path).find_files()


def test_a_folder_that_is_not_there_and_a_remote_address_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        info(tmp_path / "nowhere" / "files-").find_files()
    with pytest.raises(ValueError, match="must be a path on this machine, but is 'gs://bucket/x'"):
        info("gs://bucket/x").find_files()


@pytest.mark.parametrize("count", [0, 1, 5, 8])
def test_each_file_is_one_ranks_and_the_order_stays(count: int) -> None:
    files = [Path(str(number)) for number in range(count)]
    shares = [share_of(files, rank, 3) for rank in range(3)]
    assert [file for share in shares for file in share] == files
    assert sorted(map(len, shares), reverse=True) == list(map(len, shares))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rank must lie in 0 \.\. 3 - 1, but is 3"):
        share_of([], 3, 3)
