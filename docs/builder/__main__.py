"""python -m docs.builder FOLDER: build the site; its start page is `FOLDER/html/index.html`."""

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.builder.api import write_api
from docs.builder.measured import write_measured
from docs.builder.notebooks import write_notebooks
from docs.builder.pages import write_pages
from docs.builder.plans import write_pictures

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> int:
    """Write the sources for Sphinx and the site into a folder, whose previous contents are removed.

    Returns:
        The exit status, nonzero if Sphinx warned.
    """
    shutil.rmtree(folder, ignore_errors=True)
    sources = folder / "sources"
    write_pages(ROOT, sources)
    write_notebooks(ROOT, sources / "pages" / "tutorials")
    write_api(sources / "pages" / "api")
    write_measured(ROOT / "docs" / "measured", sources / "pages" / "measured")
    write_pictures(sources / "pages" / "pictures")
    settings = ["-c", str(ROOT / "docs"), "-d", str(folder / "doctrees")]
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--fresh-env", "--quiet"]
    return build_main([*strict, *settings, str(sources / "pages"), str(folder / "html")])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.builder", description=__doc__)
    parser.add_argument("folder", type=Path)
    sys.exit(build(parser.parse_args().folder))
