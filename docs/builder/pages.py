"""Markdown pages, with links adapted to the site.

In the repository, pages link to each other as files, so that they can be read there. The site has the pages of `docs/`
at its top level, pages that include the pages of the root folder, and the tutorials as notebooks.
"""

import os
import re
from pathlib import Path, PurePosixPath

from docs.builder.figures import FIGURE, find

TEXTS = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "ROADMAP.md": "roadmap.md",
    "SECURITY.md": "security.md",
}
"""Pages of the root folder, and the pages of the site that include them or parts of them."""
ELSEWHERE = {"ARCHITECTURE.md#five-ideas": "concepts.md"}
"""Parts of these pages that another page includes."""
NAVIGATION = {
    "": "start compare tutorials/index",
    "Tasks": (
        "how-to/loaders how-to/link-prediction how-to/edge-classification how-to/heterogeneous how-to/in-time "
        "how-to/walks how-to/trained-rows "
        "how-to/inference how-to/database ingest how-to/trainers how-to/ddp how-to/resume how-to/torchdata"
    ),
    "Larger and faster": "how-to/find-what-is-slow how-to/larger-than-memory gpu many-machines how-to/containers",
    "Parts of your own": (
        "how-to/own-stage how-to/own-sampler how-to/own-storage how-to/own-executor how-to/test-your-stage"
    ),
    "From another library": "from-graphbolt from-pyg from-pyg-distributed how-to/pool-of-samplers",
    "Why": "concepts architecture decisions reliability security contributing roadmap",
    "Reference": "api/index glossary performance changelog",
}
"""The pages of the site by the headings of its navigation."""
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[([^]]*)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def write_pages(root: Path, folder: Path) -> None:
    """Write the pages of `docs/` into `pages/` in a folder, and the included pages into the folder itself."""
    for path in [*(root / name for name in TEXTS), *(root / "docs").rglob("*.md")]:
        name = path.relative_to(root).as_posix()
        # Links of an included page are relative to the including page, at the top level of the site.
        target = folder / (name if name in TEXTS else f"pages/{name.removeprefix('docs/')}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(lead_links(path.read_text(), name, root) + (navigation() if name == "docs/index.md" else ""))


def navigation() -> str:
    """Return the tables of contents that the start page ends with; only the site's sidebar shows them."""
    return "".join(
        "\n".join(
            ["", "```{toctree}", ":hidden:", *([f":caption: {title}"] if title else []), "", *pages.split(), "```", ""]
        )
        for title, pages in NAVIGATION.items()
    )


def lead_links(text: str, name: str, root: Path) -> str:
    """Return a page with links to pages of the site; a link to a file that the site lacks becomes plain text.

    A figure is replaced by its value in the record, with a link to the record's table.

    Args:
        text: Contents of the page.
        name: Path of the page in the repository.
        root: The root of the repository.
    """
    on_site = PurePosixPath(TEXTS.get(name, name.removeprefix("docs/")))

    def lead(match: re.Match[str]) -> str:
        image, words, path, anchor = match.groups()
        target = place(os.path.normpath(PurePosixPath(name).parent / path), anchor or "", root)
        if target is None:
            return words
        if words in (path, PurePosixPath(path).name):
            words = ""  # the site writes the title of the page
        return f"{image}[{words}]({os.path.relpath(target, on_site.parent)})"

    def lead_figure(match: re.Match[str]) -> str:
        figure = find(root / "docs" / "measured", match[3], match[4])
        return f"[{figure.words}](#measured-{match[3]}-{figure.table})"

    # Every second piece is code between fences.
    pieces = FENCED.split(text)
    return "".join(
        piece if number % 2 else LINK.sub(lead, FIGURE.sub(lead_figure, piece)) for number, piece in enumerate(pieces)
    )


def place(path: str, anchor: str, root: Path) -> str | None:
    """Return the path on the site of a file of the repository and its anchor; None if the site lacks it."""
    if path + anchor in ELSEWHERE:
        return ELSEWHERE[path + anchor]
    if path == "tutorials":
        return "tutorials/index.md"
    if path in TEXTS:
        return TEXTS[path] + anchor
    if path.startswith("docs/"):
        return path.removeprefix("docs/") + anchor
    notebook = PurePosixPath(path).with_suffix(".ipynb")
    return f"{notebook}{anchor}" if path.startswith("tutorials/") and (root / notebook).exists() else None
