"""Docstrings, comments, messages and pages are in plain English, and the files that they name exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("graphfeed", "tests", "benchmarks", "docs", "examples", "tutorials")
FILES = sorted([*ROOT.glob("*.md"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file())])
PYTHON = [path for path in FILES if path.suffix == ".py" and path != Path(__file__)]
PAGES = [path for path in FILES if path.suffix == ".md"]

NEVER_FIRST = (r"^What (?!if\b|to\b)\w+(?![^.]*\?)", r"^(Let|Have) (?!a look)\w+")
"""Phrases that begin no docstring or comment: they name a thing by a clause, or a cause instead of the effect."""
NEVER = (
    r"\b[Tt]ells? (whether|if|of)\b",
    r"\b[Nn]obody\b",
    r"\b[Aa]new\b",
    r"\b[Tt]exts\b",
    r"\bheeds?\b",
    r"\b[Rr]ooms\b",
    r"\ball else\b",
    r"\b[Oo]thers than\b",
    r"\b[Ii]n the place of\b",
    r"\bone behind the other\b",
    r"\beach once\b|(?<!at )\bonce each\b",
    r"\b[Ss]o many (bytes|rows|nodes|ids|edges|seeds|values|columns|items|threads)\b",
    r"\b[Dd]o(es)? as (the\b|`|it\b)",
    r"\bnothing the second time\b",
    r"\bas a whole,? or not at all\b",
    r"(?<![Tt]here )\b(is|are) no (node|edge|graph|row|tensor|field|item|stage|array)s?\b",
    r"\bstays? as (it|they) (is|are)\b",
    r"\bwhere (it|they) lies?\b",
    r"\blies? (in memory|on (a|the) (GPU|CPU|disk))\b",
    r"\b[Ww]hole numbers?\b|\btruth values?\b",
    r"\bwhat (is|are|was) asked for\b",
    r"\bin the hands of\b",
    r"\bgraphs? in parts\b",
    r"\bsampl\w+ in time\b",
)
"""Phrases that are wrong wherever they stand; docs/glossary.md has the terms of the field."""


EXAMPLES = ("tutorials/NN_name.py",)
"""Names of files that a page uses as an example."""


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs and list entries on one line each, without doctests and inline code."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.|\w+:) )", text):
        if ">>>" not in block:
            yield " ".join(re.sub(r"`+[^`]+`+|(?<=\])\([^)\s]*\)", "`code`", block).split())


def comments(source: str) -> Iterator[str]:
    """Yield comments; those on successive lines are one."""
    for block in re.findall(r"(?:^ *# .*\n)+|(?<=\S)  # .*", source, re.MULTILINE):
        yield re.sub(r"^ *# ", "", block, flags=re.MULTILINE)


@cache
def texts_of(path: Path) -> list[tuple[str, bool]]:
    """Return the text of a page, or the docstrings, comments and messages of a module, and whether it is a message."""
    source = path.read_text()
    if path.suffix == ".md":
        return [(re.sub(r"^ *(```|~~~).*?^ *\1", "", source, flags=re.DOTALL | re.MULTILINE), False)]
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    texts = [(str(node.value), id(node) not in docstrings) for node in strings]
    return texts + [(comment, False) for comment in comments(source)]


def prose_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the paragraphs of a file, and whether each begins a docstring or a comment."""
    for text, is_message in texts_of(path):
        if not is_message or len(re.findall(r"[A-Za-z][a-z']+", text)) > 2:
            opens = not is_message and path.suffix == ".py"
            yield from ((paragraph, opens and not number) for number, paragraph in enumerate(paragraphs(text)))


def phrases(text: str, opens: bool) -> list[str]:
    """Return the phrases of a paragraph that are never right."""
    return [found[0] for rule in (*(NEVER_FIRST if opens else ()), *NEVER) if (found := re.search(rule, text))]


def test_no_phrase_is_one_that_is_never_right() -> None:
    found = {path: [wrong for part in prose_of(path) for wrong in phrases(*part)] for path in [*PYTHON, *PAGES]}
    assert {path.relative_to(ROOT).as_posix(): wrong for path, wrong in found.items() if wrong} == {}


def test_phrases_are_found_across_lines_and_not_in_code(tmp_path: Path) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("It is sampled in\ntime. `anew`\n\n```\nanew\n```\n")
    module.write_text('"""What it is."""\n# Let it\n# go, and\n# begin anew\nraise ValueError("no whole number")\n')
    assert [phrases(*part) for part in prose_of(page)] == [["sampled in time"], []]
    assert [phrases(*part) for part in prose_of(module)] == [["What it"], ["whole number"], ["Let it", "anew"]]


def test_files_that_are_named_exist() -> None:
    known = "".join(f"/{path.relative_to(ROOT).as_posix()}\n" for path in FILES)
    ours = "|".join(
        path.name for path in [*map(ROOT.joinpath, FOLDERS), *(ROOT / "graphfeed").iterdir()] if path.is_dir()
    )
    missing = {}
    for path in [*PYTHON, *PAGES]:
        texts = "\n".join(text for text, is_message in texts_of(path) if not is_message)
        names = re.findall(rf"(?<![\w/.*}}-])(?:{ours})/[\w/]+\.(?:pyi?|md|cu|ipynb)\b", texts)
        if ROOT / "graphfeed" in path.parents:
            names += re.findall(r"(?<![\w/.*}-])\w+\.(?:pyi?|md|cu)\b", texts)
        missing[path] = [name for name in names if f"/{name}\n" not in known and name not in EXAMPLES]
    assert {path.relative_to(ROOT).as_posix(): names for path, names in missing.items() if names} == {}
