"""The house on disk is the house in the README; every room keeps its budgets and has its tests."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "graphfeed"
FOLDERS = [ROOT / name for name in ("graphfeed", "tests", "benchmarks", "examples", "tutorials", "docs")]
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py*") if path.suffix in {".py", ".pyi"})
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
KERNELS = [PACKAGE / "ops" / "cpu", PACKAGE / "ops" / "cuda"]

BANNED = {"utils", "helpers", "common", "misc", "base", "impl", "internal", "core"}
FILE_LINES = 400
FUNCTION_LINES = 60
KERNEL_LINES = 100
PARAMETERS = 7
MORE_PARAMETERS = {
    # Users bring this signature with them, and the graph keeps what it is given.
    "graphfeed/datapipes/pipeline/fluent.pyi": {
        "sample_layer_neighbor",
        "sample_neighbor",
        "temporal_sample_layer_neighbor",
        "temporal_sample_neighbor",
    },
    "graphfeed/loader/dataloader.py": {"__init__"},
    "graphfeed/storage/graph/fused_csc_sampling_graph.py": {"fused_csc_sampling_graph", "sample_layer_neighbors"},
    "graphfeed/storage/graph/graph_arrays.py": {"__init__"},
    "graphfeed/storage/graph/temporal_sampling.py": {"temporal_sample_neighbors", "temporal_sample_layer_neighbors"},
    # An op takes the arrays of a graph one by one, for it knows nothing of graphs.
    "graphfeed/ops/sampling/labor_sample_neighbors.py": {"sample_layer_neighbors", "labor_sample_hops"},
    "graphfeed/ops/sampling/sample_neighbors.py": {"sample_neighbors"},
    "graphfeed/ops/sampling/temporal_labor_sample_neighbors.py": {
        "temporal_sample_layer_neighbors",
        "temporal_labor_sample_hops",
    },
    "graphfeed/ops/sampling/temporal_sample_hops.py": {"temporal_sample_hops"},
    "graphfeed/ops/sampling/temporal_sample_neighbors.py": {"temporal_sample_neighbors"},
}
PARTS_OF_KERNELS = {
    "bottom_k.py",
    "jit.py",
    "launch.py",
    "pick.py",
    "simd.py",
    "source.py",
    "temporal_eligibility.py",
}
"""What several kernels are made of, tested through them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    """Return all functions of a file, methods and inner ones too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def parameters(function: Function) -> list[str]:
    """Name the parameters of a function."""
    arguments = function.args
    return [part.arg for part in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def is_kernel(path: Path) -> bool:
    """Tell whether a file holds kernels."""
    return any(folder in path.parents for folder in KERNELS)


def relative(paths: Iterable[Path]) -> list[str]:
    """Name paths from the repository's root."""
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def parse_map(readme: str) -> list[str]:
    """Return the paths of the tree under 'Map of the house', folders with a slash at the end."""
    block = re.search(r"^## Map of the house\n.*?^```text\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    assert block, "README.md needs a ```text block under '## Map of the house'"
    found: list[str] = []
    parents: list[str] = []
    for line in block[1].splitlines():
        entry = re.fullmatch(r"((?:  )*)(\S+)  +(\S.*)", line)
        assert entry, f"write {line!r} as: two spaces a level, path, two or more spaces, what is there"
        level = len(entry[1]) // 2
        assert level <= len(parents), f"{line!r} is indented under nothing"
        parents[level:] = [entry[2]]
        found.append("".join(parents))
        assert all(parent.endswith("/") for parent in parents[:-1]), f"{line!r} is not in a folder"
    return found


def needed_in_map() -> set[str]:
    """Return what a newcomer has to find in the tree: top folders, rooms, and their modules."""
    top = {f"{folder.name}/" for folder in FOLDERS if folder.is_dir()}
    rooms = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in PACKAGE.rglob("*.py")}
    modules = {
        path.relative_to(ROOT).as_posix()
        for path in [*PACKAGE.glob("*.py"), *PACKAGE.glob("*/*.py")]
        if path.name != "__init__.py"
    }
    return top | rooms | modules


def test_the_map_shows_the_house() -> None:
    shown = parse_map((ROOT / "README.md").read_text())
    assert sorted(needed_in_map() - set(shown)) == [], "not in the README"
    assert [path for path in shown if not (ROOT / path).exists()] == [], "not on disk"
    assert [path for path in shown if path.endswith("/") != (ROOT / path).is_dir()] == []
    assert len(shown) == len(set(shown)), "shown twice"


def test_the_map_is_read_by_its_indents() -> None:
    readme = "## Map of the house\n\n```text\na/  x\n  b/  y\n    c.py   z z\n  d.py  w\n```\n"
    assert parse_map(readme) == ["a/", "a/b/", "a/b/c.py", "a/d.py"]


def test_every_top_folder_is_known() -> None:
    made_by_tools = {"build", "dist"}
    there = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert there - made_by_tools <= {folder.name for folder in FOLDERS}


def test_tests_mirror_the_package() -> None:
    """A big module may have several files: test_name.py, test_name_subject.py."""
    mirrored = {
        ROOT / "tests" / module.relative_to(PACKAGE).parent / f"test_{module.stem}"
        for module in MODULES
        if not is_kernel(module)
    }
    tests = {path.with_suffix("") for path in (ROOT / "tests").rglob("test_*.py")}
    assert relative(sorted(mirrored - tests)) == [], "not tested"
    stray = [
        test
        for test in tests
        if test.parent != ROOT / "tests"  # those are about the house as a whole
        and not any(test.parent == own.parent and f"{test.name}_".startswith(f"{own.name}_") for own in mirrored)
    ]
    assert relative(stray) == [], "tests of nothing"


def test_kernels_share_the_test_of_their_op() -> None:
    ops = PACKAGE / "ops"
    kernels = {path.relative_to(folder) for folder in KERNELS for path in MODULES if folder in path.parents}
    own = {path.relative_to(ops) for path in MODULES if ops in path.parents and not is_kernel(path)}
    assert {path.name for path in kernels - own} <= PARTS_OF_KERNELS, "a kernel has the folder and file name of its op"


def test_back_ends_have_the_same_kernels() -> None:
    cpu, cuda = KERNELS
    for path in cuda.rglob("*.py"):
        if path.name in PARTS_OF_KERNELS:
            continue
        twins = {twin.name: parameters(twin) for twin in functions(cpu / path.relative_to(cuda))}
        for kernel in functions(path):
            if not kernel.name.startswith("_"):
                assert parameters(kernel) == twins.get(kernel.name), f"{path.name}: {kernel.name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_budgets(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES, "split it by subject"
    exempt = MORE_PARAMETERS.get(path.relative_to(ROOT).as_posix(), set())
    for function in functions(path):
        lines = (function.end_lineno or 0) - function.lineno + 1
        limit = KERNEL_LINES if is_kernel(path) else FUNCTION_LINES
        assert lines <= limit, f"{function.name} has {lines} lines"
        # A kernel takes arrays and scalars one by one, because Numba has no cheap record of them.
        if not is_kernel(path) and function.name not in exempt:
            names = [name for name in parameters(function) if name not in {"self", "cls"}]
            assert len(names) <= PARAMETERS, f"{function.name} has {len(names)} parameters"


def test_names_say_what_is_inside() -> None:
    paths = [path for folder in FOLDERS for path in folder.rglob("*") if "__pycache__" not in path.parts]
    assert relative([path for path in paths if BANNED & set(path.stem.split("_"))]) == []
