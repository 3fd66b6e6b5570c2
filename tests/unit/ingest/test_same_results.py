"""Data sets of random tables are those of a slow reference, for any format, memory limit and number of files."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from graphfeed.storage import ORIGINAL_EDGE_ID
from tests.kinds.example_tables import write

FORMATS = [".parquet", ".csv", ".tsv", ".ndjson", ".arrow", ".npz", ".tfrecord", "arrays", "table"]
KIND = "user:likes:item"


def files(folder: Path, name: str, columns: dict[str, list[Any]], chance: random.Random) -> list[Any]:
    """Write columns to two tables in a random format."""
    suffix, cut = chance.choice(FORMATS), chance.randrange(1, len(columns["f"]))
    tables: list[Any] = []
    for place, rows in enumerate((slice(cut), slice(cut, None))):
        own = {key: values[rows] for key, values in columns.items()}
        if suffix == "arrays":
            tables.append({key: np.array(values) for key, values in own.items()})
        else:
            path = folder / f"{name}_{place}{suffix}"
            tables.append(pa.table(own) if suffix == "table" else write(path, own).name)
    return tables


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_random_tables_give_the_rows_that_a_slow_reference_keeps(tmp_path: Path, wrong: bool) -> None:
    for number in range(6):
        chance, folder = random.Random(number), tmp_path / str(number)
        folder.mkdir()
        tables, ids, nodes = dict[str, NodeTable](), dict[str, list[Any]](), dict[str, dict[Any, float]]()
        for kind in ("user", "item"):
            texts = chance.random() < 0.5
            own = [f"n {i} ü" if texts else i * 3 - 4 for i in chance.sample(range(60), chance.randrange(2, 30))]
            ids[kind] = [*own, own[0]] if wrong else own
            rows = [chance.randrange(20) * 0.5 for _ in ids[kind]]
            tables[kind] = NodeTable(
                files(folder, kind, {"id": ids[kind], "f": rows}, chance), id="id", features={"f": "f"}
            )
            nodes[kind] = dict(zip(reversed(ids[kind]), reversed(rows), strict=True))  # the first row counts
            ids[kind] = own
        count = chance.randrange(2, 60)
        edges: dict[str, list[Any]] = {
            "s": chance.choices(ids["user"], k=count), "d": chance.choices(ids["item"], k=count),
            "w": [chance.randrange(9) * 0.25 for _ in range(count)], "t": chance.choices(range(20), k=count),
            "f": [chance.randrange(9) * 0.5 for _ in range(count)],
        }  # fmt: skip
        if wrong:
            edges["s"][0], edges["w"][-1] = "nobody" if isinstance(edges["s"][0], str) else 10**6, -1.0
        order = [row for row in range(count) if edges["s"][row] in ids["user"] and edges["w"][row] >= 0]
        order.sort(key=lambda row: ids["item"].index(edges["d"][row]))
        expected = [[edges[name][row] for name in "sdwtf"] for row in order]
        table = EdgeTable(
            files(folder, "e", edges, chance), source="s", destination="d", weight="w", time="t", features={"f": "f"}
        )
        memory = 1 << 24 if number % 2 else None
        on_error: Any = "skip" if wrong else "raise"
        spec = Spec({KIND: table}, tables, folder=folder)
        dataset: Any = build_dataset(spec, folder / str(memory), memory=memory, on_error=on_error).load()
        for kind, own in ids.items():
            assert list(dataset.ids(kind)[:]) == own
            assert dataset.feature.read("node", kind, "f").flatten().tolist() == [nodes[kind][name] for name in own]
        graph = dataset.graph
        ends = np.repeat(np.arange(graph.total_num_nodes), np.diff(graph.csc_indptr.numpy()))
        ids_of_edges = graph.edge_attribute(ORIGINAL_EDGE_ID)
        first = graph.node_type_offset.tolist()
        users, items = (first[graph.node_type_to_id[kind]] for kind in ("user", "item"))
        found = zip(
            dataset.ids("user")[(graph.indices - users).tolist()], dataset.ids("item")[(ends - items).tolist()],
            graph.edge_attribute("weight").tolist(), graph.edge_attribute("time").tolist(),
            dataset.feature.read("edge", KIND, "f", ids_of_edges).flatten().tolist(), strict=True,
        )  # fmt: skip
        assert list(map(list, found)) == expected, (number, memory)
        assert bool(dataset.yaml_data["skipped"]) == wrong
