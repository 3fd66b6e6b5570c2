"""python -m docs.builder.versions SITE FOLDER REF: put a built site into a folder with one site per version.

The site of the tag `v0.2.1` becomes `FOLDER/0.2`, and that of any other reference `FOLDER/dev`. `FOLDER/index.html`
leads to the newest version, or to `dev` before the first one, and `FOLDER/versions.html` lists all.
"""

import argparse
import re
import shutil
from pathlib import Path

DEV = "dev"
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>graphfeed: versions</title>
{body}
</html>
"""


def version_of(reference: str) -> str:
    """Return the folder of a tag or a branch."""
    released = re.fullmatch(r"v(\d+\.\d+)\.\d+", reference)
    return released[1] if released else DEV


def versions_in(folder: Path) -> list[str]:
    """Return the versions in a folder, newest first, and `dev` last."""
    released = [path.name for path in folder.iterdir() if path.is_dir() and re.fullmatch(r"\d+\.\d+", path.name)]
    released.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    return released + [DEV] * (folder / DEV).is_dir()


def add_version(site: Path, folder: Path, reference: str) -> None:
    """Copy a built site to its version in a folder, replacing the previous one, and write the lists of versions."""
    target = folder / version_of(reference)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target)
    versions = versions_in(folder)
    links = "\n".join(f'<li><a href="{name}/index.html">{name}</a></li>' for name in versions)
    (folder / "versions.html").write_text(PAGE.format(body=f"<h1>graphfeed</h1>\n<ul>\n{links}\n</ul>"))
    first = f"{versions[0]}/index.html"
    lead = f'<meta http-equiv="refresh" content="0; url={first}">\n<a href="{first}">graphfeed {versions[0]}</a>'
    (folder / "index.html").write_text(PAGE.format(body=lead))
    (folder / ".nojekyll").touch()  # else GitHub leaves out folders such as _static


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.builder.versions", description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("reference")
    options = parser.parse_args()
    add_version(options.site, options.folder, options.reference)
