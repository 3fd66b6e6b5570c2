"""A program that damages files of one kind again and again, and says what reading them led to.

It runs as a process of its own, because a library that reads a damaged file may end the process.

    python -m tests.ingest.damage KIND FIRST COUNT FOLDER
"""

import contextlib
import random
import shutil
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import graphfeed as gf
from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset, inspect_dataset, read_spec
from tests.ingest.tables import write

EDGES = {"source": [n * 7 % 40 for n in range(60)], "destination": [n * 3 % 40 for n in range(60)], "x": [0.5] * 60}
NODES = {"name": [f"node {n}" for n in range(40)], "y": [n % 3 for n in range(40)]}
SUFFIXES = {"parquet": ".parquet", "arrow": ".arrow", "csv": ".csv", "npz": ".npz", "ndjson": ".ndjson"}
SUFFIXES |= {"tfrecord": ".tfrecord", "compressed tfrecord": ".tfrecord.gz"}
KINDS = [*SUFFIXES, "spec", "metadata"]


def spec_of(folder: Path, suffix: str) -> Spec:
    """Write the tables, and return their specification."""
    write(folder / f"edges{suffix}", EDGES)
    write(folder / f"nodes{suffix}", NODES)
    edges = EdgeTable(f"edges{suffix}", features={"x": "x"})
    return Spec({"n:r:n": edges}, {"n": NodeTable(f"nodes{suffix}", label="y")}, folder=folder)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return data that was truncated, or of which bits, bytes or whole ranges are other ones."""
    changed = bytearray(data)
    kind = chance.randrange(5)
    if kind == 0:
        return data[: chance.randrange(len(data))]
    if kind == 1:
        start = chance.randrange(len(data))
        changed[start : start + chance.randrange(1, 40)] = chance.randbytes(chance.randrange(40))
    else:
        for _ in range(chance.choice([1, 1, 2, 8])):
            place = chance.randrange(len(data))
            changed[place] = chance.randrange(256) if kind == 2 else changed[place] ^ 1 << chance.randrange(8)
    return bytes(changed)


def contents(dataset: Any) -> list[Any]:
    """Return all of a data set as plain values; nothing of one with other types and names."""
    graph, tasks = dataset.graph, dataset.tasks
    items: Any = tasks[0].train_set if tasks else None
    names = ("edge", "n:r:n", "x") in dataset.feature.keys() and isinstance(items, gf.HeteroItemSet)  # noqa: SIM118
    if graph is None or not names or "n" not in items._itemsets:
        return []
    values = [graph.csc_indptr.tolist(), graph.indices.tolist(), dataset.feature.read("edge", "n:r:n", "x").tolist()]
    return [*values, [part.tolist() for part in items._itemsets["n"][:]]]


def attack(kind: str, first: int, count: int, folder: Path) -> Counter[str]:
    """Damage files, and count what came of it: errors, data sets that are as before, and other ones."""
    spec = spec_of(folder, SUFFIXES.get(kind, ".npz"))
    build_dataset(spec, folder / "out")
    whole = contents(gf.OnDiskDataset(folder / "out").load())
    (folder / "spec.yaml").write_text(spec.to_yaml())
    if kind in SUFFIXES:
        targets = [folder / f"{name}{SUFFIXES[kind]}" for name in ("edges", "nodes")]
    else:
        targets = [folder / "spec.yaml" if kind == "spec" else folder / "out" / "graphfeed" / "metadata.yaml"]
    found: Counter[str] = Counter()
    for number in range(first, first + count):
        chance = random.Random(f"{kind} {number}")
        target = chance.choice(targets)
        data = target.read_bytes()
        target.write_bytes(damaged(data, chance))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        try:
            if kind == "metadata":
                dataset = gf.OnDiskDataset(folder / "out").load()
                inspect_dataset(folder / "out")
            else:
                dataset = build_dataset(read_spec(folder / "spec.yaml") if kind == "spec" else spec)
            found["same" if contents(dataset) == whole else "other"] += 1
        # Of a damaged specification or metadata, whatever they now name may be missing.
        except (ValueError, TypeError, OSError, KeyError, IndexError) as error:
            allowed = kind in {"spec", "metadata"} or isinstance(error, (ValueError, TypeError))
            found["error" if allowed and len(str(error)) > 10 else f"poor error: {error!r}"] += 1
        finally:
            target.write_bytes(data)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    mock.patch("os.fsync").start()  # the disk is not what is attacked
    with contextlib.suppress(BrokenPipeError):
        place = Path(sys.argv[4])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, times in attack(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), place).items():
            sys.stdout.write(f"= {times} {name}\n")
