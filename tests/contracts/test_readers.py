"""Readers of files from outside: what strangers, broken disks and lost files can do to them."""

import gzip
import io
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import interop
from graphfeed.__main__ import main
from graphfeed.distributed import Partitioner, open_part, write_partition
from graphfeed.ingest import (
    EdgeTable,
    NodeTable,
    Spec,
    build_dataset,
    inspect_dataset,
    inspect_graph_file,
    read_tfrecords,
    write_tfrecords,
)
from graphfeed.pyg import ClusterData, GraphSAINTNodeSampler
from graphfeed.storage import OnDiskFeatureData, TorchBasedFeatureStore
from tests import on_disk
from tests.distributed.pyg_data import plain_data
from tests.ingest.example_tables import LIKES, write
from tests.scripts import run

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
GRAPH = gf.from_coo(EDGES, num_nodes=4, edge_attributes={"w": torch.arange(5.0)})
ROWS = np.arange(8.0).reshape(4, 2)
SUFFIXES = {".npy", ".npz", ".pt", ".pkl", ".yaml"}
"""Formats of files in which a stranger can put an object."""


class Touches:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


class WithStorage:
    """Pickles as a tensor whose storage is the given content."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        return torch.storage._load_from_bytes, (self.content,)


def save_by_torch(file: io.BytesIO, value: Any, **options: Any) -> None:
    torch.save(value, file, **options)


def saved(write: Callable[..., Any], *values: Any, **options: Any) -> bytes:
    """Return the content of a file that a function of NumPy or torch writes."""
    content = io.BytesIO()
    write(content, *values, **options)
    return content.getvalue()


def contents(path: Path, marker: Path) -> Iterator[tuple[str, bytes]]:
    """Yield files in the format of a file, and in similar formats, with an object that creates the marker."""
    evil = Touches(marker)
    if path.suffix == ".yaml":
        call = f"!!python/object/apply:os.mkdir ['{marker}']"
        yield "a call", f"{call}\n".encode()
        yield "a call as a value", path.read_bytes() + f"\nmore: {call}\n".encode()
        yield "a call as a key", path.read_bytes() + f"\n? {call}\n: 1\n".encode()
        return
    yield "a pickle", pickle.dumps(evil, protocol=2)  # torch warns of other protocols
    objects, fields = np.array([evil] * 4, dtype=object), np.zeros(4, dtype=[("a", "i8"), ("b", object)])
    fields["b"] = objects
    if path.suffix in {".npy", ".npz"}:
        names = np.load(path).files if path.suffix == ".npz" else ["a"]
        for name, array in (("objects", objects), ("structures", fields)):
            yield f"an array of {name}", saved(np.save, array)
            yield f"an archive of {name}", saved(np.savez, **dict.fromkeys(names, array))
    elif path.suffix == ".pt":
        values: dict[str, Any] = {"an object": evil, "a dict": {"a": evil}, "an array": objects}
        for name, value in values.items():
            yield name, saved(save_by_torch, value)
        yield "an object in the old format", saved(save_by_torch, evil, _use_new_zipfile_serialization=False)
    else:
        parts = {"an object": pickle.dumps(evil), "a storage": pickle.dumps(WithStorage(saved(save_by_torch, evil)))}
        for name, content in parts.items():
            yield name, content
            yield f"{name} after a tensor", pickle.dumps(torch.zeros(2)) + content


def consume(dataset: Any) -> None:
    """Read the graph, the rows of all features and the items of a data set."""
    assert dataset.graph is not None
    for key in dataset.feature.keys():  # noqa: SIM118
        dataset.feature.read(*key)
    for task in dataset.tasks:
        for items in (task.train_set, task.validation_set, task.test_set):
            if items is not None:
                list(gf.ItemSampler(items, batch_size=2))


def write_saved_graph(folder: Path) -> None:
    GRAPH.save(folder / "graph")


def sample(folder: Path) -> None:
    graph = gf.load_graph(folder / "graph").check()
    list(gf.ItemSampler(gf.ItemSet(torch.arange(4), "seeds"), 2).sample_neighbor(graph, [2, 2]))


def write_graph(folder: Path) -> None:
    torch.save({"csc_indptr": torch.tensor([0, 1, 2]), "indices": torch.tensor([1, 0])}, folder / "graph.pt")


def write_rows(folder: Path) -> None:
    np.save(folder / "rows.npy", ROWS)
    torch.save(torch.from_numpy(ROWS), folder / "rows.pt")


def read_rows(folder: Path) -> None:
    rows: list[tuple[Any, str, bool]] = [("numpy", "rows.npy", True), ("torch", "rows.pt", True)]
    for format, name, in_memory in [*rows, ("numpy", "rows.npy", False)]:
        given = [OnDiskFeatureData("node", "a", format, folder / name, in_memory=in_memory)]
        TorchBasedFeatureStore(given).read("node", None, "a")


def write_metadata(folder: Path) -> None:
    on_disk.write(folder, on_disk.untyped(folder))


def write_metadata_of_tensors(folder: Path) -> None:
    on_disk.write(folder, on_disk.untyped(folder, "pt", "pt"))


def read_dataset(folder: Path) -> None:
    consume(gf.OnDiskDataset(folder).load())


def write_tables(folder: Path) -> None:
    np.save(folder / "pairs.npy", EDGES.T.numpy())
    np.save(folder / "rows.npy", ROWS)
    np.savez(folder / "more.npz", rows=ROWS)
    np.savez(folder / "nodes.npz", id=np.arange(4), label=np.array([0, 1, 0, 1]))
    nodes = NodeTable("nodes.npz", id="id", label="label", features={"x": "rows.npy", "y": "more.npz#rows"})
    edges = EdgeTable("pairs.npy", source="0", destination="1")
    (folder / "spec.yaml").write_text(Spec({"n:r:n": edges}, {"n": nodes}).to_yaml())


def build(folder: Path) -> Any:
    return build_dataset(folder / "spec.yaml", folder / "out")


def write_likes(suffix: str, folder: Path) -> None:
    write(folder / f"likes{suffix}", {**LIKES, "x": [0.5] * len(LIKES["user"])})


def build_likes(suffix: str, folder: Path) -> Any:
    edges = EdgeTable(f"likes{suffix}", source="user", destination="item", time="at", features={"x": "x"})
    return build_dataset(Spec({"user:likes:item": edges}, folder=folder))


RECORDS = {"id": torch.arange(30).reshape(10, 3), "w": torch.arange(10) / 2}


def write_records(folder: Path) -> None:
    write_tfrecords(folder / "a.tfrecord", RECORDS)
    write_tfrecords(folder / "b.tfrecord.gz", RECORDS, "gzip")


def read_records(folder: Path) -> None:
    """Read records; nothing may be lost without an error but whole records at the end of a plain file."""
    found = [read_tfrecords(folder / name) for name in ("a.tfrecord", "b.tfrecord.gz")]
    for columns in found[:1] if all(found) else []:
        assert all(torch.equal(values, RECORDS[name][: len(values)]) for name, values in columns.items())
    assert all(torch.equal(values, RECORDS[name]) for name, values in found[1].items())


def write_guessed_tables(folder: Path) -> None:
    np.savez(folder / "edges_n_r_n.npz", source=EDGES[0].numpy(), destination=EDGES[1].numpy())


def guess(folder: Path) -> None:
    if main(["ingest", "--guess", str(folder / "edges_n_r_n.npz")]):
        raise ValueError("the command failed")


def write_built_dataset(folder: Path) -> None:
    write_tables(folder)
    build(folder)
    for path in [*folder.glob("*.np?"), folder / "spec.yaml"]:
        path.unlink()


def read_built_dataset(folder: Path) -> None:
    dataset = gf.OnDiskDataset(folder / "out").load()
    consume(dataset)
    assert dataset.ids("n").find([3]).tolist() == [3]


def inspect(folder: Path) -> None:
    inspect_dataset(folder / "out")


def write_ogb(folder: Path) -> None:
    for part in ("raw", "split/time"):
        (folder / part).mkdir(parents=True)
    arrays: dict[str, Any] = {"edge_index": EDGES.numpy(), "num_nodes_list": np.array([4]), "node_feat": ROWS}
    np.savez(folder / "raw" / "data.npz", **arrays)
    np.savez(folder / "raw" / "node-label.npz", node_label=np.arange(4))
    for part in ("train", "valid", "test"):
        (folder / "split" / "time" / f"{part}.csv.gz").write_bytes(gzip.compress(b"0\n2\n"))


def write_ogb_links(folder: Path) -> None:
    write_ogb(folder)
    (folder / "raw" / "node-label.npz").unlink()
    for part in ("train", "valid", "test"):
        (folder / "split" / "time" / f"{part}.csv.gz").unlink()
        torch.save({"edge": EDGES.T}, folder / "split" / "time" / f"{part}.pt")


def write_graphlearn(folder: Path) -> None:
    edges, rows = folder / "part0" / "graph", folder / "part0" / "node_feat"
    for path in (edges, rows):
        path.mkdir(parents=True)
    tensors = {"rows": EDGES[0], "cols": EDGES[1], "eids": torch.arange(5), "weights": torch.ones(5)}
    for name, values in tensors.items():
        torch.save(values, edges / f"{name}.pt")
    torch.save(torch.zeros(4), folder / "node_pb.pt")
    torch.save(torch.zeros(5), folder / "edge_pb.pt")
    (rows / "ids.pkl").write_bytes(pickle.dumps(torch.arange(4)))
    (rows / "feats.pkl").write_bytes(pickle.dumps(torch.from_numpy(ROWS)))


def write_partition_files(folder: Path) -> None:
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.from_numpy(ROWS))})
    write_partition(folder / "parts", GRAPH, torch.zeros(4, dtype=torch.int64), 1, store)


def write_pyg_partition(folder: Path) -> None:
    Partitioner(plain_data(), 1, folder / "parts", method="hash").generate_partition()


def read_part(folder: Path) -> None:
    stored = open_part(folder / "parts", 0, check=True)
    for key in stored.features.keys():  # noqa: SIM118
        stored.features.read(*key)


def write_seeds(folder: Path) -> None:
    np.save(folder / "seeds.npy", np.arange(4))
    GRAPH.save(folder / "graph")


def partition_by_seeds(folder: Path) -> None:
    command = ["partition", folder / "graph", folder / "parts", "--parts", 2, "--balance", folder / "seeds.npy"]
    if main(list(map(str, command))):
        raise ValueError("the command failed")


def cluster(folder: Path) -> None:
    ClusterData(plain_data(), 4, save_dir=str(folder))


def count_norms(folder: Path) -> None:
    GraphSAINTNodeSampler(plain_data(), 8, num_steps=2, sample_coverage=1, save_dir=str(folder), num_workers=0)


READERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "load_graph": (write_graph, lambda folder: gf.load_graph(folder / "graph.pt").check()),
    "load_graph of save": (write_saved_graph, sample),
    "inspect_graph_file": (write_graph, lambda folder: inspect_graph_file(folder / "graph.pt")),
    "TorchBasedFeatureStore": (write_rows, read_rows),
    "OnDiskDataset": (write_metadata, read_dataset),
    "OnDiskDataset with tensors": (write_metadata_of_tensors, read_dataset),
    "build_dataset": (write_tables, build),
    "a guess of a specification": (write_guessed_tables, guess),
    "OnDiskDataset after build_dataset": (write_built_dataset, read_built_dataset),
    "inspect_dataset": (write_built_dataset, inspect),
    "read_ogb": (write_ogb, lambda folder: consume(interop.ogb.read_ogb(folder))),
    "read_ogb with links": (write_ogb_links, lambda folder: consume(interop.ogb.read_ogb(folder))),
    "read_graphlearn": (write_graphlearn, interop.read_graphlearn),
    "open_part": (write_partition_files, read_part),
    "open_part in PyG's layout": (write_pyg_partition, read_part),
    "partition by seeds": (write_seeds, partition_by_seeds),
    "ClusterData": (cluster, cluster),
    "GraphSAINTNodeSampler": (count_norms, count_norms),
    "read_tfrecords": (write_records, read_records),
}
"""Functions that write the files of a reader to a folder, and that read them."""
OF_OBJECTS = [name for name in READERS if name not in {"load_graph of save", "read_tfrecords"}]
READERS |= {
    f"build_dataset from {suffix}": (partial(write_likes, suffix), partial(build_likes, suffix))
    for suffix in (".parquet", ".arrow", ".csv", ".tsv.gz", ".npz", ".ndjson", ".tfrecord", ".tfrecord.gz")
}
SLOW = [
    name for name in READERS if name.startswith(("build", "a guess", "OnDisk", "inspect_d", "open", "Cluster", "Graph"))
]
"""Readers that take more than some milliseconds."""
MADE_ANEW = {"ClusterData", "GraphSAINTNodeSampler"}
"""Readers that write a missing file anew."""
OPTIONAL = {"feats.pkl", "weights.pt"}
TEXTS = {".csv", ".ndjson", ".yaml", ".json", ".tfrecord"}
"""Files that may end after any line or record."""
ERRORS = (ValueError, TypeError, OSError, KeyError, IndexError)


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_an_object_in_any_file_is_an_error_and_runs_no_code(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    whole, marker = tmp_path / "whole", tmp_path / "marker"
    whole.mkdir()
    write(whole)
    shutil.copytree(whole, tmp_path / "good")
    read(tmp_path / "good")
    files = [path for path in sorted(whole.rglob("*")) if path.suffix in SUFFIXES]
    assert files
    wrong = []
    for number, path in enumerate(files):
        for place, (kind, content) in enumerate(contents(path, marker)):
            folder = Path(shutil.copytree(whole, tmp_path / f"{number} {place}"))
            changed = folder / path.relative_to(whole)
            changed.write_bytes(content)
            try:
                read(folder)
                wrong.append(f"{changed.name} with {kind}: no error")
            except Exception as error:
                if not isinstance(error, ValueError):
                    wrong.append(f"{changed.name} with {kind}: {error!r}")
            if marker.exists():
                wrong.append(f"{changed.name} with {kind}: code was run")
                marker.rmdir() if marker.is_dir() else marker.unlink()
    assert wrong == []


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return content that was truncated, or in which bits, bytes or whole ranges were changed."""
    changed = bytearray(content)
    place, size = chance.randrange(len(content)), chance.randrange(1, 40)
    way = chance.randrange(6)
    if way == 0:
        return content[:place]
    if way == 1:
        changed[place : place + size] = chance.randbytes(chance.randrange(40))
    elif way == 2:
        # Bytes that readers interpret as continued or as zero lengths.
        changed[place : place + size] = chance.choice([b"\xff", b"\x80", b"\x00"]) * size
    else:
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(content))
            changed[place] = chance.randrange(256) if way == 3 else changed[place] ^ 1 << chance.randrange(8)
    return bytes(changed)


@pytest.mark.filterwarnings("ignore")  # libraries warn about the content of such files
@pytest.mark.parametrize("times", [1, pytest.param(8, marks=[pytest.mark.slow, pytest.mark.thorough])])
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_was_cut_changed_or_removed_is_an_error_or_a_value(name: str, times: int, tmp_path: Path) -> None:
    """A library that reads such a file may also end the process."""
    write, read = READERS[name]
    whole, folder = tmp_path / "whole", tmp_path / "damaged"
    whole.mkdir()
    write(whole)
    chance, wrong = random.Random(f"{name} {times}"), []
    count = times * (1 if name in SLOW else 20)
    for path in [path for path in sorted(whole.rglob("*")) if path.is_file()]:
        content, file = path.read_bytes(), folder / path.relative_to(whole)
        cuts = [content[: int(len(content) * share)] for share in (0.0, 0.6)]
        for changed in [None, *cuts, *[damaged(content, chance) for _ in range(count if content else 0)]]:
            shutil.copytree(whole, folder)
            file.unlink() if changed is None else file.write_bytes(changed)
            try:
                read(folder)
                may_be_shorter = changed is not None and file.suffix in TEXTS
                if changed in (None, *cuts) and not (name in MADE_ANEW or file.name in OPTIONAL or may_be_shorter):
                    wrong.append(f"{file.name} with {changed!r:.60}: no error")
            except Exception as error:
                if not isinstance(error, ERRORS) or len(str(error)) < 10:
                    wrong.append(f"{file.name} with {changed!r:.60}: {error!r}")
            shutil.rmtree(folder)
    assert wrong == []


@pytest.mark.slow
@pytest.mark.thorough
def test_kernels_in_plain_python_find_no_index_beyond_an_array() -> None:
    """Without a compiler, an index beyond the end raises an IndexError, which is no error of `read_tfrecords`."""
    chosen = ["-k", "test_a_file_that_was_cut and read_tfrecords-1]", "-p", "no:cacheprovider"]
    done = run("-m", "pytest", "-q", __file__, *chosen, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("name", ["OnDiskDataset", "OnDiskDataset after build_dataset", "inspect_dataset", "open_part"])
def test_no_path_in_a_file_leads_out_of_its_folder(name: str, tmp_path: Path) -> None:
    write, read = READERS[name]
    whole, folder, refused = tmp_path / "whole", tmp_path / "folder", 0
    whole.mkdir()
    write(whole)
    (named,) = [path for path in whole.rglob("*") if path.name in {"metadata.yaml", "partition.json"}]
    for path in sorted(named.parent.rglob("*.npy")):
        relative, other = str(path.relative_to(named.parent)), Path(shutil.copy(path, tmp_path / path.name))
        above = "../" * (len(named.relative_to(tmp_path).parts) - 1)
        for given in (None, f"{above}{path.name}", str(other)):
            shutil.copytree(whole, folder)
            changed = folder / named.relative_to(whole)
            before = changed.read_text()
            if given is None:
                (changed.parent / relative).unlink()
                (changed.parent / relative).symlink_to(other)
            else:
                changed.write_text(re.sub(rf'(path"?: "?){re.escape(relative)}', rf"\g<1>{given}", before))
            if given is None or changed.read_text() != before:
                with pytest.raises(ValueError, match="out of the"):
                    read(folder)
                refused += 1
            shutil.rmtree(folder)
    assert refused > 3
