"""Tables of databases by ADBC: SQLite, and PostgreSQL where Debian's is installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_sqlite.dbapi
import pyarrow as pa
import pytest

from graphfeed.ingest import EdgeTable, NodeTable, Spec, build_dataset
from tests.distributed.rank_processes import free_port
from tests.ingest.example_tables import LIKES, USERS, edges_of

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
USER = "postgres" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
"""It refuses to be run by root."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start PostgreSQL on loopback, without a socket in a shared folder, and yield where it is."""
    if not PROGRAMS:
        pytest.skip("PostgreSQL is not installed")
    # The folder of the tests is closed to others.
    with tempfile.TemporaryDirectory(dir=None if USER is None else "/var/tmp") as folder:
        if USER is not None:
            shutil.chown(folder, USER)
        data, port = f"{folder}/data", free_port()
        given: dict[str, Any] = {"cwd": folder, "check": True, "user": USER, "stdout": subprocess.DEVNULL}
        subprocess.run([PROGRAMS[-1] / "initdb", "-D", data, "-A", "trust", "-U", "tester"], **given)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        control: list[str | Path] = [PROGRAMS[-1] / "pg_ctl", "-D", data, "-w", "-l", f"{folder}/log"]
        subprocess.run([*control, "-o", options, "start"], **given)
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **given)


def check(connection: Any) -> None:
    """Make a data set of two queries, whose cursors are open at the same time."""
    with closing(connection), connection.cursor() as users, connection.cursor() as likes:
        for name, columns in (("users", USERS), ("likes", LIKES)):
            users.adbc_ingest(name, pa.table(columns))
        connection.commit()
        users.execute("SELECT name, age FROM users ORDER BY name")
        rows = users.fetch_arrow_table()
        likes.execute('SELECT "user", item, "at" FROM likes ORDER BY "at"')
        edges = EdgeTable(likes.fetch_record_batch(), source="user", destination="item", time="at")
        nodes = {"user": NodeTable(rows, id="name", features={"age": "age"})}
        dataset = build_dataset(Spec({"user:likes:item": edges}, nodes))
    assert edges_of(dataset, "user:likes:item") == sorted(zip(LIKES["user"], LIKES["item"], strict=True))
    assert dataset.feature.read("node", "user", "age").flatten().tolist() == USERS["age"]
    assert sorted(dataset.graph.edge_attributes["time"].tolist()) == LIKES["at"]


def test_queries_of_sqlite_are_tables() -> None:
    check(adbc_driver_sqlite.dbapi.connect())


@pytest.mark.slow
def test_queries_of_postgresql_are_tables(server: str) -> None:
    dbapi: Any = pytest.importorskip("adbc_driver_postgresql.dbapi")
    check(dbapi.connect(server))
