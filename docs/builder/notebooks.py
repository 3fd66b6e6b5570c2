"""The notebooks, and a page of cards that link to them."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.builder.pages import lead_links

INDEX = """# Notebooks

Each runs from top to bottom on a laptop, downloads nothing, and is shown here with its output. Each page has a link to
download the notebook, and `tutorials/` has a script of the same name.

"""


def write_notebooks(root: Path, target: Path) -> None:
    """Write the notebooks of a repository, with links to pages of the site, their original files, and cards."""
    files = target / "files"
    files.mkdir(parents=True, exist_ok=True)
    paths = sorted((root / "tutorials").glob("[0-9]*.ipynb"))
    cards = []
    for path in paths:
        text = path.read_text()
        (files / path.name).write_text(text)
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = lead_links("".join(cell["source"]), f"tutorials/{path.name}", root)
        download = f"{{download}}`Download this notebook <files/{path.name}>`"
        notebook["cells"].insert(1, {"cell_type": "markdown", "id": "download", "metadata": {}, "source": download})
        (target / path.name).write_text(json.dumps(notebook))
        cards.append(card(notebook, target / path.name))
    listed = "\n".join(["```{toctree}", ":hidden:", "", *(path.stem for path in paths), "```"])
    grid = "\n".join(["::::{grid} 1 2 2 3", ":gutter: 3", "", *cards, "::::", "", listed, ""])
    (target / "index.md").write_text(INDEX + grid)


def card(notebook: dict[str, Any], path: Path) -> str:
    """Return a card with title, first sentence and last picture of a notebook, and write the picture to a file."""
    texts = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    title, _, rest = "\n\n".join(texts).partition("\n")
    sentence = re.split(r"(?<=[.!?])\s", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", rest.strip()), maxsplit=1)[0]
    options = [f":link: {path.stem}", ":link-type: doc"]
    drawn = list(pictures(notebook))
    if drawn:
        picture = path.with_suffix(".png")
        picture.write_bytes(base64.b64decode(drawn[-1]))
        options += [f":img-top: {picture.name}", f":img-alt: The last picture of the notebook: {title.lstrip('# ')}"]
    return "\n".join(
        [f":::{{grid-item-card}} {title.lstrip('# ')}", *options, "", " ".join(sentence.split()), ":::", ""]
    )


def pictures(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the output pictures of a notebook, as base64."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            picture = output.get("data", {}).get("image/png")
            if picture:
                yield "".join(picture)
