"""The library of kernels: what is built, what is found in it, and which libraries are refused."""

import ast
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler import library
from graphfeed.ops.cpu.compiler.build import all_kernels, build_library, link_shared
from graphfeed.ops.cpu.compiler.folders import SOURCES, warn_once
from graphfeed.ops.cpu.compiler.library import FLAGS, Library, level, levels, library_name, open_library
from graphfeed.ops.cpu.compiler.store import function_name
from graphfeed.ops.cpu.records.crc32c import crc32c
from graphfeed.ops.cpu.sampling.permute import hash_places, permute
from tests.unit.compiler.bare import printed
from tests.unit.compiler.kernels import anew, double, loads_of, make_array, was_compiled

VARIANTS: Any = [(hash_places, ()), (crc32c, ())]

HASH = """
import logging
import numpy
logging.disable()  # on a busy machine, compiling takes long enough to be logged
from graphfeed.ops.cpu.compiler import library
library.open_library = lambda opened=library.open_library(library.Path(FOLDER)): opened
from graphfeed.ops.cpu.sampling.permute import hash_places
hash_places(numpy.uint64(1), places := numpy.empty(3, dtype=numpy.uint64))
print(places.tolist(), "llvmlite" in sys.modules)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library of two kernels in a folder of its own."""
    if not levels() or shutil.which("cc") is None:
        pytest.skip("no libraries are built for this architecture, or without a C compiler")
    counts: list[tuple[int, int]] = []
    path = build_library(tmp_path_factory.mktemp("library"), VARIANTS, lambda *count: counts.append(count))
    total = len(levels()) * len(VARIANTS)
    assert counts == [(done, total) for done in range(1, total + 1)]
    return path


@pytest.fixture
def opened(built: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """Make that library the one of this installation."""
    found = open_library(built.parent)
    monkeypatch.setattr(library, "open_library", lambda: found)
    return found


def refusal(folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Return why the library in a folder is refused, which is also logged."""
    caplog.clear()
    warn_once.cache_clear()
    open_library.cache_clear()
    found = open_library(folder)
    assert found.code is None
    assert [record.message for record in caplog.records] == [f"graphfeed's library of kernels {found.reason}"]
    return found.reason


def test_all_kernels_of_the_package_are_listed_once_for_each_choice_of_dtypes() -> None:
    listed = [(kernel.__module__, kernel.__name__, dtypes) for kernel, dtypes in all_kernels()]
    assert len(listed) == len(set(listed))
    written = {
        (".".join(path.relative_to(SOURCES.parents[2]).with_suffix("").parts), node.name)
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and {"kernel", "Kernel"} & {ast.unparse(by) for by in node.decorator_list}
    }
    assert {(module, name) for module, name, _ in listed} == written
    assert ("graphfeed.ops.cpu.compiler.program", "run_steps") in written
    assert {dtypes for *_, name, dtypes in listed if name == "gather_words"} == {
        (words, ids) for words in ("uint8", "uint16", "uint32", "uint64") for ids in ("int32", "int64")
    }


@pytest.mark.slow
def test_a_kernel_in_it_is_run_without_llvm_and_gives_the_same_bits(built: Path) -> None:
    body = HASH.replace("FOLDER", repr(str(built.parent)))
    found = printed(body)
    assert found.endswith("] False\n")
    compiled = printed(body, GRAPHFEED_KERNELS="compile")
    assert compiled == found.replace("False", "True")


@pytest.mark.slow
def test_the_functions_for_each_kind_of_processor_give_the_same_bits(
    opened: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    best, data = str(level()), np.arange(77, dtype=np.uint8)
    for own in levels()[levels().index(best) :]:
        monkeypatch.setattr(library, "level", lambda own=own: own)
        places, wanted, checksum = np.empty(3, np.uint64), np.empty(3, np.uint64), anew(crc32c)
        loads = loads_of(partial(anew(hash_places), np.uint64(1), places))
        loads += loads_of(partial(checksum, data))
        assert [load.compiled for load in loads] == [False, False]
        hash_places.interpret(np.uint64(1), wanted)
        assert places.tolist() == wanted.tolist()
        assert checksum(data) == crc32c.interpret(data)


@pytest.mark.slow
def test_what_it_lacks_and_kernels_of_changed_sources_are_compiled(
    opened: Library, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAPHFEED_KERNELS")
    assert [was_compiled(own) for own in (hash_places, permute, double)] == [False, True, True]
    monkeypatch.setattr("graphfeed.ops.cpu.compiler.store.kernel_digest", lambda _: "of other sources")
    assert was_compiled(hash_places)


@pytest.mark.slow
def test_it_can_be_ignored_and_another_wish_is_an_error(opened: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    name = function_name(hash_places, ())
    assert library.find_function(name) is not None
    monkeypatch.setenv("GRAPHFEED_KERNELS", "compile")
    assert library.find_function(name) is None
    monkeypatch.setenv("GRAPHFEED_KERNELS", "library")
    with pytest.raises(ValueError, match=r"^GRAPHFEED_KERNELS must be \"compile\" or unset, but is 'library'$"):
        library.find_function(name)


@pytest.mark.slow
def test_a_library_that_is_damaged_another_platforms_or_writable_by_others_is_refused(
    built: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = built.read_bytes()

    def put(content: bytes, name: str = built.name) -> Path:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        (tmp_path / "copy").mkdir()
        path = tmp_path / "copy" / name
        path.write_bytes(content)
        return path

    middle = len(whole) // 2
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (changed, whole[:middle], b""):  # the system would end a process that opens a truncated one
        assert "its content has changed; install graphfeed again" in refusal(put(damaged).parent, caplog)
    foreign = whole[:18] + b"\xff\xff" + whole[20:]  # ELF's number of the architecture
    for content in (foreign, b"not a library"):
        assert "is not used, because " in refusal(put(content, library_name(content)).parent, caplog)
    path = put(whole)
    path.chmod(0o646)
    assert "other users can write to it" in refusal(path.parent, caplog)
    path.chmod(0o644)
    open_library.cache_clear()
    assert open_library(path.parent).code is not None
    path.with_name("kernels.so.0").touch()
    said = f"because there is another one, {built.name}; remove both; install graphfeed again"
    assert said in refusal(path.parent, caplog)
    for file in path.parent.iterdir():
        file.unlink()
    open_library.cache_clear()
    assert open_library(path.parent) == (None, None, "does not come with this installation, so kernels are compiled")


WITHOUT_NUMBA = """
import sys
sys.modules["llvmlite"] = None
from tests.unit.compiler.kernels import double
try:
    double.code(())
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("setting", "reason"), [("compile", "GRAPHFEED_KERNELS=compile is set"), ("", "the library of kernels ")]
)
def test_without_numba_a_kernel_that_is_missing_names_what_to_install(setting: str, reason: str) -> None:
    said = printed(WITHOUT_NUMBA, GRAPHFEED_KERNELS=setting)
    assert said.startswith("tests.unit.compiler.kernels.double must be compiled, which needs Numba: ")
    assert f'pip install "graphfeed[compile]" ({reason}' in said


def test_the_kind_of_processor_is_read_from_the_system(tmp_path: Path) -> None:
    if len(levels()) < 2:
        pytest.skip("this architecture has one kind")
    path = tmp_path / "cpuinfo"
    newer, older = levels()
    for flags, expected in (
        (FLAGS[newer] | {"avx512f"}, newer),
        (FLAGS[newer] - {"bmi2"}, older),
        (FLAGS[older] - {"ssse3"}, None),
    ):
        path.write_text(f"processor\t: 0\nflags\t\t: {' '.join(sorted(flags))}\n\nprocessor\t: 1\n")
        level.cache_clear()
        assert level(path) == expected
    level.cache_clear()
    assert level(tmp_path / "missing") == older
    level.cache_clear()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_what_can_not_be_compiled_or_linked_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=rf"{make_array.__name__}.* kernels can't create arrays"):
        build_library(tmp_path, [(make_array, ())])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "bad.o").write_bytes(b"no object file")
    with pytest.raises(RuntimeError, match=r"^kernels can't be linked: "):
        link_shared([tmp_path / "bad.o"], tmp_path / "out")
