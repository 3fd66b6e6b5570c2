"""`make exports`: write what follows from the stages and imports of the package.

These are the `__all__` of each folder, the types of the fluent names (`fluent.pyi`), and the names of the stages in
`graphfeed/__init__.pyi`, below the version unless they are listed above it.
"""

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, get_args

import graphfeed
from graphfeed import datapipes
from graphfeed.datapipes.pipeline.fluent import find_stage, list_names

ROOT = Path(graphfeed.__file__).parent
NAMES = re.compile(
    r"(?<=^# fmt: off\n__all__ = \[\n)[^]]*(?=^\]$)|(?<=^__all__ = \[\n)[^]]*(?=^\]  # fmt: skip$)", re.MULTILINE
)
"""The lists that `ruff format` leaves alone."""
TOP, FLUENT = ROOT / "__init__.pyi", ROOT / "datapipes/pipeline/fluent.pyi"
OF_STAGES = re.compile(r"^(?:from graphfeed\.datapipes import .*\n)+", re.MULTILINE)
RUFF = (sys.executable, "-m", "ruff")


def wrap(names: re.Match[str]) -> str:
    """Return the names of an `__all__` in lines of up to 120 columns. Ruff writes one name per line."""
    return textwrap.fill(" ".join(names[0].split()), 120, initial_indent="    ", subsequent_indent="    ") + "\n"


def top_stub() -> str:
    """Return `graphfeed/__init__.pyi` with all stages of `graphfeed.datapipes`."""
    version = "\n__version__: str\n"
    above, _, below = TOP.read_text().partition(version)
    there = set(re.findall(r"(\w+) as \1", "".join(OF_STAGES.findall(below))))
    stages = {name for name in datapipes.__all__ if is_stage(getattr(datapipes, name)) and f" {name} as " not in above}
    lines, start = [""], "from graphfeed.datapipes import "
    for part in (f"{name} as {name}" for name in sorted(there | stages)):
        longer = f"{lines[-1]}, {part}" if lines[-1] else start + part
        lines[-1:] = [longer] if len(longer) <= 120 else [lines[-1], start + part]
    return above + version + OF_STAGES.sub("\n".join(lines) + "\n", below, count=1)


def is_stage(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, graphfeed.Datapipe)


def fluent_stub() -> str:
    """Return `fluent.pyi` with the parameters of each stage that has a fluent name."""
    found = {name: stage for name in list_names() if (stage := find_stage(name)) and is_ours(stage)}
    imports = ["from typing import Any", "from graphfeed.datapipes.datapipe import Datapipe"]
    methods = "".join(method_of(name, stage, imports) for name, stage in found.items())
    before, _, rest = FLUENT.read_text().partition('\n"""\n')
    kept = rest[rest.index("\nFLUENT: ") :]
    start = kept.index("    def buffer(")
    text = f'{before}\n"""\n\n' + "\n".join(imports) + "\n" + kept[:start] + methods + kept[kept.index("\ndef bind(") :]
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        options = [*RUFF, *command, "--stdin-filename", str(FLUENT), "-"]
        text = subprocess.run(options, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return text


def is_ours(stage: type) -> bool:
    return stage.__module__.partition(".")[0] == graphfeed.__name__


def method_of(name: str, stage: type, imports: list[str]) -> str:
    """Return the constructor of a stage as a method, and add the imports of the names that it needs."""
    _source, *parameters = inspect.signature(stage).parameters.values()
    texts: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        annotation = find_annotation(stage, parameter.name, imports)
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        texts.append(f"{parameter.name}: {ast.unparse(annotation)}{default}")
    yields = "[Any]" if any(get_args(base) == (Any,) for base in vars(stage).get("__orig_bases__", ())) else ""
    return f"    def {name}({', '.join(['self', *texts])}) -> Datapipe{yields}: ...\n"


def find_annotation(stage: type, name: str, imports: list[str]) -> ast.expr:
    """Return the annotation of a field or of a parameter as it is written, and add the imports that it needs."""
    for base in stage.__mro__:
        module = ast.parse(Path(inspect.getfile(base)).read_text())
        (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == base.__name__)
        fields = {ast.unparse(node.target): node.annotation for node in body if isinstance(node, ast.AnnAssign)}
        inits = [node.args for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        fields |= {each.arg: each.annotation for given in inits for each in given.args if each.annotation is not None}
        if name in fields:
            used = [node.id for node in ast.walk(fields[name]) if isinstance(node, ast.Name)]
            imports += [line for own in used for line in import_of(module, base.__module__, own)]
            return fields[name]
    raise ValueError(f"{stage.__name__} has no annotation of {name}")


def import_of(module: ast.Module, path: str, name: str) -> list[str]:
    """Return the statement that imports a name which a module uses; none if it is built in."""
    for node in module.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(each.name == name for each in node.names):
            return [f"import {name}" if isinstance(node, ast.Import) else f"from {node.module} import {name}"]
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in ast.unparse(node).partition("=")[0].split(":")[0]:
            return [f"from {path} import {name}"]
    return []


if __name__ == "__main__":
    files = sorted(ROOT.rglob("__init__.py"))
    options = ["--quiet", "--fix", "--preview", "--select", "F401,RUF022"]
    status = subprocess.run([*RUFF, "check", *options, *files], check=False).returncode
    for file in files:
        file.write_text(NAMES.sub(wrap, file.read_text()))
    TOP.write_text(top_stub())
    FLUENT.write_text(fluent_stub())
    sys.exit(status)
