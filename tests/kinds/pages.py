"""Code, links and tables of a documentation page."""

import contextlib
import gc
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphfeed import DataLoader
from graphfeed.pyg.data import import_pyg


def check_code(page: Path) -> int:
    """Run the Python code of a page from top to bottom, compare its output with the page, and count the outputs."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    shown = 0
    if "torch_geometric" in page.read_text():
        import_pyg("torch_geometric.data", "tests")  # which may warn when it is imported
    try:
        for place, (language, text) in enumerate(blocks):
            if language != "python":
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, page.name, "exec"), names)
            if printed.getvalue():
                assert blocks[place + 1] == ("text", printed.getvalue())
                shown += 1
    finally:
        for value in names.values():
            if isinstance(value, DataLoader):
                value.close()
        # The workers of a loader that the page does not name end with the page.
        names.clear()
        gc.collect()
    return shown


def files_of(page: Path) -> dict[str, str]:
    """Return the programs of a page that have a file name in their first line."""
    return dict(re.findall(r"^```py(?:thon)?\n# (\S+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))


def links_of(text: str) -> list[str]:
    """Return the targets of links in a Markdown text, except other sites and without titles."""
    return re.findall(r"\]\((?!https?:)([^)\s]+)[^)]*\)", text)


def links(page: Path) -> list[str]:
    """Return the targets of a page's links, except other sites."""
    return links_of(page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings, as they are written in links."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    """Return the broken links of a page."""
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


def rows(page: Path, first_column: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the tables whose first column has a name."""
    wanted = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            wanted = False
        elif wanted and set(line) - set("|- "):
            yield cells
        elif cells[0] == first_column:
            wanted = True
