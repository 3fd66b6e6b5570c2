"""The notebooks, and a page of cards that lead to them."""

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INDEX = """# Notebooks

Each runs from top to bottom on a laptop, downloads nothing, and is shown here with what it printed and drew. The files
are in `tutorials/`: open them in Jupyter, or run their text, a script beside each.

"""


def write_notebooks(source: Path, target: Path) -> None:
    """Copy the notebooks of a folder, and write the page of cards beside them."""
    target.mkdir(parents=True, exist_ok=True)
    paths = sorted(source.glob("[0-9]*.ipynb"))
    for path in paths:
        shutil.copy(path, target)
    cards = "\n".join(card(json.loads(path.read_text()), target / path.name) for path in paths)
    listed = "\n".join(["```{toctree}", ":hidden:", "", *(path.stem for path in paths), "```"])
    grid = f"::::{{grid}} 1 2 2 3\n:gutter: 3\n\n{cards}\n::::\n\n{listed}\n" if paths else "There are none yet.\n"
    (target / "index.md").write_text(INDEX + grid)


def card(notebook: dict[str, Any], path: Path) -> str:
    """Return a card with title, first sentence and last picture of a notebook; the picture is written beside it."""
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
    """Yield the pictures that the cells of a notebook drew, as base64."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            picture = output.get("data", {}).get("image/png")
            if picture:
                yield "".join(picture)
