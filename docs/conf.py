"""The settings of Sphinx. `make docs` writes the sources first: `python -m docs.builder`."""

import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import graphfeed

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

project = "graphfeed"
author = "The graphfeed authors"
version = release = graphfeed.__version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
]

exclude_patterns = ["measured/*", "tutorials/files/*"]  # included by a page, and downloaded

# Notebooks are shown with the outputs that are stored in them; the tests run them.
nb_execution_mode = "off"
suppress_warnings = ["mystnb.unknown_mime_type"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# In docstrings, `name` is a link if it is a name of the package, and code otherwise.
default_role = "py:obj"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True  # as `rules=RULES`, which Sphinx can parse
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
toc_object_entries = False
smartquotes = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True

nitpick_ignore_regex = [
    ("py:obj", ".*"),  # code in docstrings
    # Without inventories of other sites, which each build would download.
    ("py:.*", r"(abc|collections|concurrent|enum|os|pathlib|queue|threading|torch|torch_geometric)\..*"),
    ("py:.*", r"Flight\w+Error"),  # pyarrow's
    # Types that users receive and never create; they are described where they are returned.
    ("py:class", r"graphfeed\.[a-z_.]+\.\w+"),
    # Aliases, and types in overloads.
    ("py:class", r"(By(Edge)?Type|Cached|Compacted(ByType)?|CompletedFuture|DataPipeGraph|EdgeType|Name)"),
]

html_theme = "furo"
html_title = f"graphfeed {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_logo = html_favicon = "_static/logo.svg"
templates_path = ["_templates"]
html_context = {"description": tomllib.loads(PROJECT.read_text())["project"]["description"]}
html_copy_source = False
html_show_copyright = False


def write_no_types(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from parsing the part of a sentence before a colon as a type."""
    del app, name, value, options
    firsts = [number + 1 for number, line in enumerate(lines) if line.strip() in ("Returns:", "Yields:")]
    for first in [*firsts, *([0] if what in ("attribute", "data", "property") else [])]:
        text = lines[first].lstrip()
        lines[first] = f"{lines[first].removesuffix(text)}: {text}"


def setup(app: Sphinx) -> None:
    """Change docstrings before napoleon reads them."""
    app.connect("autodoc-process-docstring", write_no_types, priority=100)
