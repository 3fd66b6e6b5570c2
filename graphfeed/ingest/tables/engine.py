"""The engine that reads, numbers and checks tables: DuckDB, in a file beside the data set that is made."""

import errno
import os
import re
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from graphfeed.ingest.tables.arrow_types import arrow
from graphfeed.ingest.tables.scans import SAFE, duckdb, numbered
from graphfeed.loader.executors import available_cores
from graphfeed.ops.process import in_one_step, result_of

BESIDE = 1 << 27
"""What the engine takes beside the memory that is given for edges."""
THREAD_BYTES = 1 << 26
"""What each thread of the engine should have."""
BATCH_ROWS = 1 << 17
"""How many rows leave the engine at a time."""


class Engine:
    """A connection to a file of tables."""

    def __init__(self, file: Path, memory: int, read_only: bool = False) -> None:
        self.file, self.memory, self.read_only = file, memory, read_only
        self.streams: list[ExitStack] = []
        """What streams have open: an error keeps their generators, and these would keep the file."""
        settings = {**SAFE, "memory_limit": f"{memory + BESIDE}B", "preserve_insertion_order": True}
        settings["temp_directory"] = str(file.with_suffix(".spilled"))
        settings["threads"] = max(min(available_cores(), (memory + BESIDE) // THREAD_BYTES), 1)
        with translated():
            self.connection = duckdb().connect(str(file), read_only=read_only, config=settings)
            # Its bar would stand between a program's lines. In notebooks without widgets it has none, and says so here.
            with suppress(duckdb().Error):
                self.connection.execute("SET enable_progress_bar_print = false")

    def __reduce__(self) -> Any:
        return Engine, (self.file, self.memory, self.read_only)  # a worker has a connection of its own

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
        """Return what a call of the engine returns, and end it at Ctrl-C."""
        # In this thread, DuckDB looks for signals once in a while: joins of 20 million edges went on for 25 seconds.
        with translated(), ThreadPoolExecutor(1) as thread:
            try:
                return result_of(in_one_step(thread.submit, call))
            except BaseException:
                self.connection.interrupt()
                raise

    def stream(self, sql: str) -> Generator[Any, None, None]:
        """Yield batches of Arrow with the rows of a query; other queries may run meanwhile."""
        opened = ExitStack()
        self.streams.append(opened)
        with opened, translated():
            cursor = opened.enter_context(self.connection.cursor())
            yield from opened.enter_context(cursor.sql(sql).to_arrow_reader(BATCH_ROWS))

    def insert(self, name: str, file: int, columns: list[Any]) -> None:
        """Append columns of Arrow to a table that begins with the number of a file."""
        names = numbered(len(columns))
        with translated():
            self.connection.register("batch", arrow().table(columns, names.split(", ")))
            self.connection.execute(f"INSERT INTO {name} SELECT {file}, {names} FROM batch")
            self.connection.unregister("batch")


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of DuckDB as those of Python."""
    library = duckdb()
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise
    except library.OutOfMemoryException as error:
        raise MemoryError(f"the tables need more memory than they may take; give more: {first_line(error)}") from error
    except library.IOException as error:
        text = first_line(error)
        if "No space left" in text or "Could not write" in text or "write to file" in text:
            code = errno.ENOSPC if "No space left" in text else errno.EFBIG
            raise OSError(code, f"{os.strerror(code)}: {text}") from error
        raise ValueError(text) from error
    except library.Error as error:
        raise ValueError(first_line(error)) from error
    except OSError as error:
        if error.errno is None:  # of a file that can't be read, by way of Arrow
            raise ValueError(first_line(error)) from error
        raise


def as_numpy(values: Any) -> NDArray[Any]:
    """Return a column of Arrow without NULL, which would make floats of integers."""
    array: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return array


def first_line(error: Exception) -> str:
    text = re.sub(r"^[\w ]*Error: ", "", str(error).strip())
    return text.partition("\n")[0][:200]
