"""The engine that reads, numbers and checks tables: DuckDB, with a file next to the data set being built."""

import errno
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from graphfeed.ingest.queries.entries import insert_rows
from graphfeed.ingest.queries.files import numbered
from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.loader.executors import available_cores
from graphfeed.ops.process import current_limits, import_optional, in_one_step, install_hint, result_of

SAFE = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""Settings that prevent DuckDB from loading extensions that don't come with it."""
BESIDE = 1 << 27
"""Memory that the engine uses in addition to the given limit."""
THREAD_BYTES = 1 << 26
"""Minimum memory per thread of the engine."""
BATCH_ROWS = 1 << 17
"""Number of rows in a batch from the engine."""


def duckdb() -> Any:
    return import_optional("duckdb", "reading tables", install_hint("arrow"))


def connect(*args: Any, config: Mapping[str, Any] = SAFE, **options: Any) -> Any:
    """Open a connection that finds NaN in Parquet files."""
    connection = duckdb().connect(*args, config={**config}, **options)
    # The least and largest values that these files state don't count NaN, so queries for it would skip them.
    connection.execute("SET GLOBAL parquet_can_have_nan = true")
    return connection


class Engine:
    """A connection to a file of tables."""

    def __init__(self, file: Path, memory: int, read_only: bool = False) -> None:
        self.file, self.memory, self.read_only = file, memory, read_only
        self.streams: list[ExitStack] = []
        """Open streams. After an error, their generators stay alive and would keep the file open."""
        settings = {**SAFE, "memory_limit": f"{memory + BESIDE}B", "preserve_insertion_order": True}
        settings["temp_directory"] = str(file.with_suffix(".spilled"))
        self.threads = max(min(available_cores(), (memory + BESIDE) // THREAD_BYTES), 1)
        settings["threads"] = self.threads
        with translated():
            self.connection = connect(str(file), read_only=read_only, config=settings)
            # DuckDB's bar would interrupt a program's output. Without widgets, a notebook has none: an error here.
            with suppress(duckdb().Error):
                self.connection.execute("SET enable_progress_bar_print = false")

    def __reduce__(self) -> Any:
        return Engine, (self.file, self.memory, self.read_only)  # each worker opens its own connection

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (*self.streams, self.connection):
            opened.close()

    def run(self, sql: str) -> None:
        self.wait_for(lambda: self.connection.execute(sql))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.wait_for(lambda: self.connection.execute(sql).fetchall()))

    def wait_for(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call of the engine, and interrupt it at Ctrl-C."""
        # In this thread, DuckDB rarely checks for signals: joins of 20 million edges continued for 25 seconds.
        with translated(), ThreadPoolExecutor(1) as thread:
            try:
                return result_of(in_one_step(thread.submit, call))
            except BaseException:
                self.connection.interrupt()
                raise

    def stream(self, sql: str) -> Generator[Any, None, None]:
        """Yield Arrow batches with the rows of a query; other queries may run at the same time."""
        opened = ExitStack()
        self.streams.append(opened)
        with opened, translated():
            cursor = opened.enter_context(self.connection.cursor())
            yield from opened.enter_context(
                cursor.sql(sql).to_arrow_reader(min(BATCH_ROWS, current_limits().part_values))
            )

    def insert(self, name: str, file: int, columns: list[Any]) -> None:
        """Append Arrow columns to a table whose first column is the index of a file."""
        names = numbered(len(columns)).split(", ")
        with translated():
            self.connection.register("batch", arrow().table(columns, names))
            self.connection.execute(insert_rows(name, str(file), names, "batch"))
            self.connection.unregister("batch")


@contextmanager
def translated() -> Iterator[None]:
    """Translate DuckDB's errors to Python's."""
    library = duckdb()
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise
    except library.OutOfMemoryException as error:
        if "max_temp_directory_size" in str(error):  # all of the disk's free space, by default
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {first_line(error)}") from error
        raise MemoryError(f"the tables need more than the memory limit; raise it: {first_line(error)}") from error
    except library.Error as error:
        text = first_line(error)
        if "No space left" in text or "Could not write" in text or "write to file" in text:  # maybe within a commit
            code = errno.ENOSPC if "No space left" in text else errno.EFBIG
            raise OSError(code, f"{os.strerror(code)}: {text}") from error
        raise ValueError(text) from error
    except OSError as error:
        if error.errno is None:  # from Arrow, for a file that can't be read
            raise ValueError(first_line(error)) from error
        raise


def as_numpy(values: Any) -> NDArray[Any]:
    """Return an Arrow column as an array; it must not have NULL, which would turn integers into floats."""
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def first_line(error: Exception) -> str:
    text = re.sub(r"^[\w ]*Error: ", "", str(error).strip())
    return text.partition("\n")[0][:200]
