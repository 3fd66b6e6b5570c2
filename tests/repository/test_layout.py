"""The packages on disk are those that the documents name; files are short, and public names have tests."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import graphfeed
from tests.kinds.pages import files_of, rows

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "graphfeed"
FOLDERS = [ROOT / name for name in ("graphfeed", "tests", "benchmarks", "examples", "tutorials", "docs")]
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py*") if path.suffix in {".py", ".pyi"})
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
KERNELS = [PACKAGE / "ops" / "cpu", PACKAGE / "ops" / "cuda"]

TOUR = [
    "graphfeed/datapipes/__init__.py",
    "graphfeed/datapipes/datapipe.py",
    "graphfeed/loader/plan.py",
    "graphfeed/storage/graph/sampling_graph.py",
    "graphfeed/ops/__init__.py",
]
"""Pages that newcomers read first."""

OPTIONAL = ["channels", "distributed", "ingest", "interop", "pyg"]
TYPES_OF_RESULTS = {
    "ChannelBase", "ExcludeSeedLinks", "GraphPart", "HeteroSamplerOutput", "InitWorker", "PipelineGraph",
    "SampleMessage", "SampleWith", "WholeGraph",
}  # fmt: skip
"""Users name them in annotations; tests check the results themselves."""

PREDECESSORS = {"NeighborSampler", "TemporalDataLoader"}
"""Names of classes that two predecessors have, so that they stand in two modules."""

FILE_LINES = 400
GPU_ALONE = {"sample_neighbors.py", "gpu_hops.py"}
"""Only a GPU has kernels for one hop: the CPU has programs of passes."""
PARTS_OF_KERNELS = {
    "instructions.py",
    "issue_launches.py",
    "jit.py",
    "launch.py",
    "launch_table.py",
    "pages.py",
    "relabel.py",
    "running_sum.py",
    "search.py",
    "source.py",
    "protobuf.py",
    *GPU_ALONE,
}
"""Parts of several kernels, which are tested through these."""
COMPILER, PASSES = KERNELS[0] / "compiler", KERNELS[0] / "sampling" / "passes"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    """Return all functions of a file, methods and inner ones too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters."""
    arguments = function.args
    return [part.arg for part in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def is_kernel(path: Path) -> bool:
    """Return whether a file contains kernels."""
    return any(folder in path.parents for folder in KERNELS) and COMPILER not in path.parents


def relative(paths: Iterable[Path]) -> list[str]:
    """Return paths relative to the repository's root."""
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def rooms() -> set[str]:
    """Return the folders of the package and those next to it, each with a slash at the end."""
    inside = {path.parent for path in PACKAGE.rglob("*.py")}
    return {f"{folder.relative_to(ROOT).as_posix()}/" for folder in [*inside, *FOLDERS]}


def test_the_architecture_names_every_room_and_its_purpose() -> None:
    """Folders inside a package are named in its description."""
    purposes = {room.strip("`"): purpose for room, purpose in rows(ROOT / "ARCHITECTURE.md", "package")}
    inside = {f"{room}{own}" for room, purpose in purposes.items() for own in re.findall(r"`([\w/]+/)`", purpose)}
    named = purposes.keys() | inside
    assert sorted(rooms() - named) == [], "not in the table of packages in ARCHITECTURE.md"
    assert sorted(named - rooms()) == [], "not on disk, but in ARCHITECTURE.md"
    assert all(purpose.endswith(".") for purpose in purposes.values())


def test_the_architecture_begins_with_five_files_and_names_what_there_is() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert [path.strip("`") for path, _ in rows(ROOT / "ARCHITECTURE.md", "file")] == TOUR
    outside = re.sub(r"^\|.*", "", text, flags=re.MULTILINE)  # the table of packages has its own test
    paths = re.findall(r"`(\w+(?:/\w+)*\.py)`", text) + re.findall(r"`(\w+(?:/\w+)*/)`", outside)
    assert [path for path in paths if not any((top / path).exists() for top in (ROOT, PACKAGE))] == []


def strings(path: Path) -> Iterator[str]:
    """Return the strings of a file except docstrings of functions, classes and names."""
    tree = ast.parse(path.read_text())
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.value


def test_no_string_of_the_core_names_a_module_of_an_optional_room() -> None:
    """import-linter checks imports, but does not see `import_module("graphfeed.pyg")`."""
    optional = re.compile(rf"graphfeed\.({'|'.join(OPTIONAL)})\b")
    files = [path for room in ("ops", "storage", "datapipes", "loader") for path in (PACKAGE / room).rglob("*.py")]
    assert relative(path for path in files if any(map(optional.search, strings(path)))) == []


def imported_past_doors(name: str, text: str) -> Iterator[str]:
    """Return the names that a file imports from another package, and that no `__all__` of that package lists."""
    for node in ast.walk(ast.parse(text)):
        parts = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
        if not isinstance(node, ast.ImportFrom) or parts[0] != "graphfeed" or parts[1:2] in ([], [name.split("/")[1]]):
            continue
        package = importlib.import_module(".".join(parts))
        modules = {module.name for module in pkgutil.iter_modules(getattr(package, "__path__", ()))}
        listed = {*getattr(package, "__all__", ()), *modules} if modules else set()
        yield from (f"{name}: {node.module}.{part.name}" for part in node.names if part.name not in listed)


def test_rooms_take_from_each_other_what_their_packages_list() -> None:
    """Also the code in CONTRIBUTING.md, which contributors copy."""
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in PACKAGE.glob("*/**/*.py")}
    files |= {name: text for name, text in files_of(ROOT / "CONTRIBUTING.md").items() if name.startswith("graphfeed/")}
    assert [past for name, text in files.items() for past in imported_past_doors(name, text)] == []
    inside = "from graphfeed.storage.graph.graph_arrays import GraphArrays"
    assert list(imported_past_doors("graphfeed/loader/a.py", inside))
    assert not list(imported_past_doors("graphfeed/storage/a.py", inside))


REGISTRIES = {
    "graphfeed.datapipes.pipeline.fluent",
    "graphfeed.distributed.servers.serve_command",
    "graphfeed.loader.executors.thread_executor",
    "graphfeed.loader.transport.thread_channel",
    "graphfeed.ops.process.forks",
}
"""Modules with the kinds that contracts go over, which no package exports."""


def imported_modules(path: Path) -> Iterator[str]:
    """Return the module files of the package that a file imports, or imports names from."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{part.name}" for part in node.names)]
        elif isinstance(node, ast.Import):
            names = [part.name for part in node.names]
        yield from (name for name in names if (ROOT / name.replace(".", "/")).with_suffix(".py") in MODULES)


def test_laws_contracts_and_programs_import_public_packages_alone() -> None:
    files = [path for folder in ("laws", "contracts", "programs") for path in (ROOT / "tests" / folder).rglob("*.py")]
    allowed = {"graphfeed.testing", "graphfeed.__main__", *REGISTRIES}
    found = {(path.name, name) for path in files for name in imported_modules(path)}
    assert len(files) > 30
    assert sorted((path, name) for path, name in found if name not in allowed) == []


def words(path: Path) -> set[str]:
    """Return the names in a file, and the words of its strings."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Name, ast.Attribute, ast.alias)):
            found.add(
                node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.name
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value))
    return found


def test_each_public_name_is_used_in_a_test() -> None:
    """Public names are those that `graphfeed` finds, and those in `__all__` of optional packages."""
    rooms = [importlib.import_module(f"graphfeed.{room}") for room in OPTIONAL]
    public = {*dir(graphfeed), *graphfeed._FOUND_IN, *(name for room in rooms for name in room.__all__)}
    used = set().union(*(words(path) for path in (ROOT / "tests").rglob("*.py")))
    assert sorted(public - used - TYPES_OF_RESULTS) == []


def test_kernels_share_the_test_of_their_op() -> None:
    ops = PACKAGE / "ops"
    kernels = {
        path.relative_to(folder)
        for folder in KERNELS
        for path in MODULES
        if folder in path.parents and is_kernel(path) and PASSES not in path.parents
    }
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


def test_operations_call_kernels_that_exist() -> None:
    """Type checkers don't see them, because a kernel's module is imported by name."""
    missing = []
    for path in (PACKAGE / "ops").rglob("*.py"):
        source = path.read_text()
        modules = [name.replace(".", "/") for name in re.findall(r'kernels\([^)"]*"(\w+\.\w+)"', source)]
        files = [folder / f"{name}.py" for folder in KERNELS for name in modules]
        if not is_kernel(path) and modules:
            bodies = [node for file in files if file.exists() for node in ast.parse(file.read_text()).body]
            known = {getattr(node, "name", None) for node in bodies}
            known |= {alias.name for node in bodies if isinstance(node, ast.ImportFrom) for alias in node.names}
            called = re.findall(r"\bmodule\.(\w+)|kernels\([^\n]*?\)\.(\w+)", source)
            missing += [(path.name, name) for pair in called for name in pair if name and name not in known]
    assert missing == []


def test_each_loop_of_a_kernel_says_when_it_ends() -> None:
    """Nothing can stop machine code, not even Ctrl-C."""
    loops = [(path.name, node) for path in filter(is_kernel, MODULES) for node in ast.walk(ast.parse(path.read_text()))]
    assert [name for name, node in loops if isinstance(node, ast.While) and isinstance(node.test, ast.Constant)] == []


MAKERS = {
    "arange", "as_tensor", "asarray", "empty", "empty_strided", "eye", "full", "linspace", "ones", "rand", "randint",
    "randn", "randperm", "scalar_tensor", "sparse_coo_tensor", "sparse_csr_tensor", "tensor", "zeros",
}  # fmt: skip
"""Functions of torch that create a tensor on the device of `torch.set_default_device`, unless they are given one."""


def test_each_tensor_is_made_on_a_named_device() -> None:
    wrong = []
    for path in MODULES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        named = {id(node.func) for node in calls if any(keyword.arg == "device" for keyword in node.keywords)}
        makers = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in MAKERS]
        makers = [node for node in makers if isinstance(node.value, ast.Name) and node.value.id == "torch"]
        wrong += [f"{path.name}:{node.lineno}: torch.{node.attr}" for node in makers if id(node) not in named]
    assert not wrong, "\n".join(wrong)


def test_a_file_has_at_most_400_lines() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in SOURCES}
    assert {place: size for place, size in sizes.items() if size > FILE_LINES} == {}, "split it by subject"


def modules_by_name(kind: type[ast.AST]) -> dict[str, set[str]]:
    """Return the modules that define each top-level class or function; the back ends of an operation count as one."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = re.sub(r"^ops/(cpu|cuda)/", "ops/", path.relative_to(PACKAGE).as_posix())
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and isinstance(node, kind) and node.name[:2] != "__":
                found.setdefault(node.name, set()).add(module)
    return found


def test_a_class_name_stands_in_one_module() -> None:
    repeated = {name: modules for name, modules in modules_by_name(ast.ClassDef).items() if len(modules) > 1}
    assert set(repeated) == PREDECESSORS


def test_a_function_name_stands_in_at_most_two_modules() -> None:
    assert {name: found for name, found in modules_by_name(ast.FunctionDef).items() if len(found) > 2} == {}
