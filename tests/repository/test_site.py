"""The site builds without a warning, its links are valid, and its reference has each public name once."""

import json
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

import graphfeed
from benchmarks import predicted
from benchmarks.record import HISTORY
from docs.builder import api, drawing, measured, notebooks, pages, plans, versions

ROOT = Path(__file__).resolve().parents[2]
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


class Links(HTMLParser):
    """The links of a page of the site, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Record the links and the anchors of a tag."""
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.add(value or "")
            elif name == "id":
                self.ids.add(value or "")


def dead_links(site: Path) -> list[str]:
    """Return the broken links of a site's pages; links to other sites are not followed."""
    read = {page: Links(page) for page in site.rglob("*.html")}
    dead = []
    for page, own in read.items():
        for link in own.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in read and anchor not in read[target].ids):
                dead.append(f"{page.relative_to(site)}: {link}")
    return sorted(dead)


@pytest.mark.thorough
@pytest.mark.timeout(600)  # half a minute of one core, which other tests may need
def test_it_builds_without_a_warning_and_no_link_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs.builder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "html"
    assert dead_links(site) == []
    built = {page.relative_to(site).with_suffix("").as_posix() for page in site.rglob("*.html")}
    written = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert written - built == set()
    start = (site / "index.html").read_text()
    assert re.search(r'<meta name="description" content="[^"]{40,}"', start)
    assert re.search(r'<meta property="og:title" content="[^"]+"', start)
    assert "<code" in re.findall(r"<h2>.*?</h2>", (site / "api" / "loader.html").read_text())[0]
    index = json.loads((site / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))
    assert {"sampler", "resum"} <= set(index["terms"])


def test_the_reference_describes_fields_of_bases_that_are_on_no_page_but_not_those_of_stages() -> None:
    text = "\n".join(line for group in api.groups() for line in api.lines(group))
    assert text.count("   .. autoattribute:: graphfeed.ingest.NodeTable.files\n") == 1
    assert "NeighborSampler.fanouts" not in text


def test_the_reference_has_each_public_name_once() -> None:
    counts = Counter(name for group in api.groups() for name in group.names)
    assert [name for name, count in counts.items() if count > 1] == []
    top = {f"graphfeed.{name}" for name in [*dir(graphfeed), *graphfeed._FOUND_IN]} - {"graphfeed.__version__"}
    in_rooms = {f"graphfeed.{room}.{name}": name for room in api.ROOMS for name in getattr(graphfeed, room).__all__}
    # A name of both is documented in its own package, or at the top level if it is one of the fifty names there.
    missing = [name for name in sorted(top - counts.keys()) if name.rpartition(".")[2] not in in_rooms.values()]
    assert missing == []
    assert [name for name, own in in_rooms.items() if name not in counts and f"graphfeed.{own}" not in counts] == []
    for group in api.groups():
        text = "\n".join(api.lines(group))
        assert [name for name in group.names if f":: {name}\n" not in text] == []


LINKS = [
    ("[words](glossary.md#hop)", "[words](../glossary.md#hop)"),
    ("[README](../../README.md)", "[README](../index.md)"),
    ("[docs/gpu.md](../gpu.md)", "[docs/gpu.md](../gpu.md)"),
    ("[../gpu.md](../gpu.md)", "[](../gpu.md)"),
    ("[ideas](../../ARCHITECTURE.md#five-ideas)", "[ideas](../concepts.md)"),
    ("[the licence](../../LICENSE)", "the licence"),
    ("![a\nb](../pipeline.svg)", "![a\nb](../pipeline.svg)"),
    ("[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
    ("```text\n[x](../../LICENSE)\n```", "```text\n[x](../../LICENSE)\n```"),
    ("[first](../../tutorials/01.py)", "[first](../tutorials/01.ipynb)"),
    ("[second](../../tutorials/02.py)", "second"),
    ("[all](../../tutorials/)", "[all](../tutorials/index.md)"),
]
"""Links as they are written in the repository, and on the site."""


def test_links_of_a_text_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "tutorials").mkdir()
    (tmp_path / "tutorials" / "01.ipynb").touch()
    for written, shown in LINKS:
        text = written.replace("(glossary", "(../glossary")
        assert pages.lead_links(text, "docs/how-to/page.md", tmp_path) == shown


def cell(kind: str, source: str, *pictures: str) -> dict[str, Any]:
    """Return a cell of a notebook, with pictures as its output."""
    outputs = [{"output_type": "display_data", "data": {"image/png": picture}} for picture in pictures]
    return {"cell_type": kind, "source": source.splitlines(keepends=True), "outputs": outputs}


def test_a_card_shows_title_sentence_and_last_picture_of_a_notebook(tmp_path: Path) -> None:
    source, target = tmp_path / "tutorials", tmp_path / "pages"
    source.mkdir()
    text = "# Sample\n\nDraws [neighbours](../docs/glossary.md)\nof seeds. And more.\n"
    book = {"cells": [cell("markdown", text), cell("code", "1", "AAAA"), cell("code", "2", PICTURE)]}
    (source / "01_sample.ipynb").write_text(json.dumps(book))
    notebooks.write_notebooks(tmp_path, target)
    index = (target / "index.md").read_text()
    assert ":::{grid-item-card} Sample\n:link: 01_sample\n" in index
    assert "\nDraws neighbours of seeds.\n" in index
    assert ":img-top: 01_sample.png" in index
    assert (target / "01_sample.png").read_bytes().startswith(b"\x89PNG")
    assert "\n01_sample\n" in index
    shown = (target / "01_sample.ipynb").read_text()
    assert "[neighbours](../glossary.md)" in shown
    assert "<files/01_sample.ipynb>" in shown
    assert (target / "files" / "01_sample.ipynb").read_text() == json.dumps(book)


def test_pictures_show_what_runs_and_say_it_in_words(tmp_path: Path) -> None:
    plans.write_pictures(tmp_path / "pictures")
    words = {}
    for path in (tmp_path / "pictures").iterdir():
        picture = ElementTree.parse(path).getroot()
        title, text, *parts = picture
        assert picture.get("role") == "img"
        assert picture.get("aria-labelledby", "").split() == [title.get("id"), text.get("id")]
        assert title.text
        assert text.text
        assert all(int(part.get("x", "0").partition(".")[0]) <= drawing.WIDTH for part in parts)
        words[path.stem] = [part.text for part in parts if part.tag.endswith("text")]
    assert words["written"][::2] == ["ItemSampler", "NeighborSampler", "FeatureFetcher"]
    assert {"ByIndex", "InWorkers", "cut_at_main_stages", "your loop"} <= set(words["plan"])
    program = ["ItemSampler", "ByIndex", "NeighborSampler", "FeatureFetcher", "InWorkers", "your loop"]
    assert [word for word in words["program"] if word not in ("worker", "main")] == program
    assert words["passes"].count("fill_uniform") == 1
    assert words["places"][words["places"].index("FeatureFetcher") + 1 :][:3] == ["main", "worker", "thread"]
    of_inline, of_threads, resumed = (words["bits"].index(name) for name in ("inline", "2 threads", "resumed"))
    made = words["bits"][of_inline + 1 : of_threads]
    assert len(set(made)) == plans.BATCHES
    assert words["bits"][of_threads + 1 : resumed] == made
    assert [word for word in words["bits"][resumed + 1 :] if word] == made[2:]


def test_a_record_becomes_tables_each_above_a_picture(tmp_path: Path) -> None:
    numbers = {"quartiles": [1.0, 3.0], "samples": 7, "ratio": None, "goal": None}
    row = {"table": "reads: time", "what": "slow <one>", "unit": "ms", "median": 2.0, **numbers}
    goal = {"bound": "<= 2", "met": False}
    rows = [row, {**row, "what": "how: fast", "median": 1.0, "ratio": 0.5, "goal": goal}, {**row, "table": "one: row"}]
    machine = {"processor": "P", "cores": 2, "load": 0.5, "huge pages": "always"}
    content = {
        "machine": machine,
        "versions": {"torch": "2"},
        "command": "c",
        "date": "d",
        "commit": "abc",
        "rows": rows,
    }
    (tmp_path / "reads.json").write_text(json.dumps(content))
    measured.write_measured(tmp_path, tmp_path / "pages")
    text = (tmp_path / "pages" / "reads.md").read_text()
    assert text.startswith(
        "Measured by `c` on d, at commit `abc`: \nP, 2 cores, load 0.5, huge pages \n`always`; torch 2."
    )
    assert "| how: fast | ms | 1 | 1 - 3 | 0.50 | <= 2: not met |" in text
    assert "| what | unit | median | quartiles |\n| --- | --- | ---: | ---: |\n| slow <one> | ms | 2 | 1 - 3 |" in text
    pictures = re.findall("<svg.*?</svg>", text, re.DOTALL)
    first = ElementTree.parse(tmp_path / "pages" / "reads.svg").getroot()
    assert [part.text for part in first.findall("{*}text")] == ["slow <one>", "2 ms", "how: fast", "1 ms"]
    boxes = [ElementTree.fromstring(picture).findall("{*}rect") for picture in pictures]
    assert [[float(box.get("width", "")) for box in own] for own in boxes] == [[260.0, 130.0]]


def test_ratios_to_other_libraries_become_lines_over_commits(tmp_path: Path) -> None:
    title = "peers: reads; ratio to graphfeed"
    ratios = [
        ("aaa", {"graphfeed": 1.0, "PyG 2.5.3 (sparse 0.6), torch 2.2": 4.0}),
        ("bbb", {"PyG 2.8 (sparse 1)": 2.0}),
    ]
    entries = [
        {
            "commit": commit,
            "date": "d",
            "tables": {title: {what: [1, "ms", own] for what, own in rows.items()}, "x": {}},
        }
        for commit, rows in ratios
    ]
    (tmp_path / HISTORY).write_text("\n".join(map(json.dumps, entries)))
    measured.write_measured(tmp_path, tmp_path / "pages")
    text = (tmp_path / "pages" / "history.md").read_text()
    assert text.count("**Peers: reads**") == text.count("<svg") == 1
    picture = ElementTree.fromstring(re.search("<svg.*?</svg>", text, re.DOTALL)[0])  # type: ignore[index]
    (line,) = picture.findall("{*}polyline")
    (_, high), (_, low) = (map(float, spot.split(",")) for spot in line.get("points", "").split())
    assert low - high == measured.PLOT / 2
    words = [part.text for part in picture.findall("{*}text")]
    assert words == ["4", "2", "PyG (sparse)", "aaa, d", "bbb, d"]


def test_each_minor_version_has_a_site_and_the_first_page_leads_to_the_newest(tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "pages"
    site.mkdir()
    folder.mkdir()
    for reference, newest in (("main", "dev"), ("v0.9.0", "0.9"), ("v0.10.0", "0.10"), ("v0.9.1", "0.10")):
        (site / "index.html").write_text(reference)
        (site / f"only-{reference}.html").touch()
        versions.add_version(site, folder, reference)
        (site / f"only-{reference}.html").unlink()
        assert f"url={newest}/index.html" in (folder / "index.html").read_text()
    assert {path.parent.name: path.read_text() for path in folder.glob("*/index.html")} == {
        "dev": "main",
        "0.9": "v0.9.1",
        "0.10": "v0.10.0",
    }
    assert not (folder / "0.9" / "only-v0.9.0.html").exists()
    assert re.findall(r'href="([^/]+)/', (folder / "versions.html").read_text()) == ["0.10", "0.9", "dev"]
    assert dead_links(folder) == []


def test_the_page_about_gpus_includes_what_is_expected(tmp_path: Path) -> None:
    measured.write_measured(tmp_path, tmp_path / "pages")
    lines = (tmp_path / "pages" / "expected.md").read_text().splitlines()
    assert [line.count(" | ") for line in lines] == [5] * (2 + len(predicted.WORK))
    assert "{include} measured/expected.md" in (ROOT / "docs" / "gpu.md").read_text()
