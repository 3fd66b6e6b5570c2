"""Data sets of random tables are those that earlier versions made, bit by bit, whatever the memory and the threads."""

from pathlib import Path
from typing import Any

import pytest

from graphfeed.ingest import build_dataset
from graphfeed.ingest.tables import engine
from tests.ingest.random_specs import RandomTables, digest, parts_of

DIGESTS = [
    "ffa189b08cc1", "b39ef530549e", "3587b54351cc", "17c11d8a6ec9", "a151fe5e98dd", "65989e30328c", "97701cd3a214",
    "84fc8726d5bc", "391e101a67b1", "ValueError", "a9409ac18940", "b8f98b728feb", "f69819e1b5d0", "b7a5e3ee1944",
    "c280a42284bb", "5080f1ca14d8", "37efd58f49fa", "8d0164692467", "b6d50ccc2429", "3562faa0dfda", "72d011d205ab",
    "c735d5278483", "c13823158da1", "295a08432ead", "68f5ac6067ce", "39db8a22b438", "49dcf39eb6d8", "00a541fd56aa",
    "821644a8f967", "ValueError",
]  # fmt: skip
"""What came of the tables of each number before DuckDB read them, but for `seed_edge_ids` of items (number 19),
the names of tasks, and the times of items where one number is the time of all edges.

Numbers 9 and 29 fill missing booleans with 7, which is refused."""


@pytest.mark.parametrize("number", range(len(DIGESTS)))
def test_random_tables_give_what_they_gave(tmp_path: Path, number: int) -> None:
    assert digest(number, tmp_path) == DIGESTS[number]


def test_memory_and_threads_do_not_change_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = RandomTables(3, tmp_path)
    spec, found = tables.spec(), list[Any]()
    for threads, memory in ((1, 1 << 24), (8, None)):
        monkeypatch.setattr(engine, "available_cores", lambda threads=threads: threads)
        dataset = build_dataset(spec, tmp_path / str(threads), memory=memory, on_error="skip")
        found.append(list(parts_of(tmp_path / str(threads), dataset)))
    assert found[0] == found[1]
