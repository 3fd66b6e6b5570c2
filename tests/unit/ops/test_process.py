"""Process-wide utilities: optional packages, entry points, progress bars, and state that is reset after a fork."""

import io
import pickle
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.ops.process import (
    ENTRY_POINTS,
    Closeable,
    import_optional,
    load_entry_point,
    progress_bar,
)
from tests.kinds.refusals import check_refused


class Counted(Closeable):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_end_of_a_block_closes_whatever_ends_it() -> None:
    with Counted() as whole:
        assert whole.closed == 0
    with pytest.raises(KeyError), Counted() as failed:
        raise KeyError
    assert (whole.closed, failed.closed) == (1, 1)


def test_each_addition_of_another_room_is_there() -> None:
    for group, names in ENTRY_POINTS.items():
        for name, place in names.items():
            found = load_entry_point(group, name)
            assert callable(found), place
            assert place == f"{found.__module__}:{found.__qualname__}"


USES = [
    "gf.MiniBatch(seeds=torch.tensor([1]), sampled_subgraphs=[]).blocks",
    "gf.MiniBatch(seeds=torch.tensor([1])).to_pyg_data()",
    "gf.minibatcher_default(ids, ('seed_nodes',)).seeds",
    "list(gf.ItemSampler(gf.ItemSet(2, names='seeds'), 1).mark_end())",
    "gf.DataLoader(gf.ItemSampler(gf.ItemSet(2, names='seeds'), 1).sample_neighbor(graph, [1], cooperative=True))",
]
IMPORTING = f"""
import os, sys, torch, graphfeed as gf
ids = torch.zeros(1, dtype=torch.int64)
graph = gf.from_coo(torch.tensor([[1], [0]]), num_nodes=2)
optional = ("channels", "distributed", "ingest", "interop", "pyg")
list(gf.DataLoader(gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1), 0))  # an epoch imports none of them
for use in {USES!r}:
    if os.fork() == 0:
        before = [room for room in optional if f"graphfeed.{{room}}" in sys.modules]
        try:
            eval(use)
        except ImportError as error:
            assert error.name in ("dgl", "torch_geometric"), error
        print(before, [room for room in optional if f"graphfeed.{{room}}" in sys.modules] != [], flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_an_addition_needs_no_import_but_that_of_the_package() -> None:
    """Each is used in a child of its own, in which nothing else has been imported."""
    run = subprocess.run([sys.executable, "-c", IMPORTING], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout == "[] True\n" * len(USES)


@pytest.mark.slow
def test_a_process_that_unpickles_a_stage_knows_the_additions() -> None:
    """A pickle names the module of its class alone, and the package is imported before any of its modules."""
    data = pickle.dumps(gf.ItemSampler(gf.ItemSet(2, names="seeds"), 1))
    program = f"import pickle; print(type(pickle.loads({data!r}).mark_end()).__name__)"
    run = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert run.stdout == "EndMarker\n"


def test_what_is_missing_is_named_with_its_purpose_and_remedy() -> None:
    text = "^drawing needs no_such_package, which is not installed: pip install it$"
    check_refused([
        (lambda: import_optional("no_such_package", "drawing", "pip install it"), ImportError, text),
        (lambda: import_optional("no_such_package.data", "drawing", "pip install it"), ImportError, text),
    ])  # fmt: skip
    with pytest.raises(ImportError) as caught:
        import_optional("no_such_package.data", "drawing", "pip install it")
    assert caught.value.name == "no_such_package"


def test_what_fails_for_another_reason_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_there.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        import_optional("half_there", "drawing", "pip install it")


def test_threads_wait_for_a_whole_module_and_leave_the_filters_of_warnings_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("left_half", "right_half"):
        (tmp_path / f"{name}.py").write_text("from time import sleep\nsleep(0.1)\nwhole = True")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "warns_on_import.py").write_text("import warnings\nwarnings.warn('old', DeprecationWarning)")
    before = list(warnings.filters)
    assert import_optional("warns_on_import", "drawing", "pip install it").warnings is warnings

    def find(name: str) -> bool:
        return bool(import_optional(name, "drawing", "pip install it").whole)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(find, ["left_half", "right_half"] * 2)) == [True] * 4
    assert warnings.filters == before


class Terminal(io.StringIO):
    """Text that says it is shown to somebody."""

    def isatty(self) -> bool:
        return True


def test_a_progress_bar_appears_after_a_second_in_a_terminal_and_ends_whole_without_a_thread() -> None:
    """Also where steps come more slowly than before."""
    said, threads = {}, threading.enumerate()
    for name, out, seconds, wanted in (
        ("slow", Terminal(), 1.1, True), ("fast", Terminal(), 0, True), ("file", io.StringIO(), 1.1, True),
        ("unwanted", Terminal(), 1.1, False),
    ):  # fmt: skip
        with redirect_stderr(out), progress_bar("adding", 2000, "edge", wanted=wanted) as bar:
            for steps in (1000, 980, 20):
                time.sleep(seconds if steps == 1000 else seconds / 5)
                bar.update(steps)
            assert threading.enumerate() == threads
        said[name] = out.getvalue()
    assert "100%" in said.pop("slow")
    assert set(said.values()) == {""}
