"""Figures of pages are those of records, and no page has others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.builder import figures
from docs.builder.pages import FENCED, lead_links

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "docs" / "measured"

NUMBER = r"(?<![\w.])\d[\d,.]*"
WORDS = r"\b(?:two|three|four|five|six|seven|eight|nine|ten|twenty|fifty)"
UNITS = r"ns|us|µs|ms|(?:milli|micro|nano)?seconds?|minutes?|[kMGT]i?B(?:/s)?|[MG]bit/s|percent|times"
HAND_WRITTEN = re.compile(
    rf"{NUMBER}(?:[ -]?(?:(?:{UNITS})\b|%|x\b)|[ -]s\b| \w+ (?:per|a) (?:CPU )?second\b)"
    rf"|{WORDS} (?:percent|times (?:as|faster|slower|more|less|fewer))\b"
    r"|(?<=\| )\d+\.\d+(?= \|)"
)
"""A number with a unit of time, memory, rate or ratio, or a decimal number that is alone in a cell of a table."""
HISTORICAL = (r"\b20\d\d-\d\d", r"commit\s[0-9a-f]{8}", r"`python -m [^`]*`|a\sscript\sthat\sis\snot\skept")
"""Patterns that a section of docs/decisions.md with figures matches: a date, a commit, and a command."""


def hand_written(text: str, historical: bool = False) -> Iterator[str]:
    """Yield the figures of a page that are not from records, outside code.

    Limits and defaults are code and are written as such, like the sizes of values in bytes, which are no figures.
    """
    text = figures.FIGURE.sub("", "".join(FENCED.split(text)[::2]))
    for section in re.split(r"^(?=#)", text, flags=re.MULTILINE):
        if not (historical and all(re.search(part, section) for part in HISTORICAL)):
            prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", section)
            yield from (match[0] for match in HAND_WRITTEN.finditer(prose))


def test_no_page_has_figures_that_are_written_by_hand() -> None:
    found = {page: [*hand_written(page.read_text(), page.name == "decisions.md")] for page in figures.pages()}
    assert {page.relative_to(ROOT).as_posix(): own for page, own in found.items() if own} == {}


@pytest.mark.parametrize(
    "text",
    [
        "It takes 33 ns.",
        "a 10-ms wait",
        "in 2.5 s, or",
        "takes\n3 seconds",
        "5.1 MB instead",
        "reads 56 GB/s",
        "28.9 % saved",
        "0.35 times as many",
        "1.5x",
        "within two percent",
        "four times as fast",
        "1,026 batches per second",
        "| a | 1.7 | b |",
        "# One\n2026-11, commit 5fa2e6ec, `python -m benchmarks x`: fast\n\n# Two\n\nIt takes 3 us",
    ],
)
def test_a_figure_that_is_written_by_hand_is_found(text: str) -> None:
    assert len([*hand_written(text, historical=True)]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "8 bytes per node, 1,024 seeds, PyTorch 2.4, fan-outs of 15 and 10",
        "above `4 MiB`, or `timeout=30`",
        "```text\n3 ms\n```",
        '[33 ns](docs/measured/peers.json "a / b")',
        "2026-11, commit 5fa2e6ec, by `python -m benchmarks x`: 3 ms",
    ],
)
def test_limits_code_and_figures_of_records_are_not_found(text: str) -> None:
    assert [*hand_written(text, historical=True)] == []


def test_pages_have_the_figures_that_records_have_today() -> None:
    """`python -m docs.builder.figures` fills them in."""
    for page in figures.pages():
        assert figures.fill(page.read_text(), MEASURED) == page.read_text(), page.name
    assert len(figures.FIGURE.findall((ROOT / "README.md").read_text())) > 10
    assert (ROOT / "docs" / "epoch.svg").read_text() == figures.chart()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with one record of two tables."""
    numbers = {"unit": "us", "median": 1234.0, "quartiles": [1, 2], "ratio": 0.347, "samples": 5, "goal": None}
    rows = [{"table": f"x: {table}; y", "what": what, **numbers} for table in ("first", "second") for what in "ab"]
    (tmp_path / "docs" / "measured").mkdir(parents=True)
    (tmp_path / "docs" / "measured" / "x.json").write_text(json.dumps({"rows": rows}))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words", "table"),
    [("first / a", "1.2 ms", 0), ("sec*nd / b / ratio", "0.35", 1), ("second / ? / name", None, 1), ("x / a", None, 1)],
)
def test_a_figure_is_filled_in_and_leads_to_its_table(root: Path, name: str, words: str | None, table: int) -> None:
    text = f'It takes [old](../measured/x.json "{name}").'
    if words is None:
        with pytest.raises(ValueError, match="names 2 rows of the record x"):
            figures.fill(text, root / "docs" / "measured")
        return
    assert figures.fill(text, root / "docs" / "measured") == text.replace("old", words)
    assert lead_links(text, "docs/how-to/page.md", root) == f"It takes [{words}](#measured-x-{table})."
