"""What the README shows is what happens."""

from pathlib import Path

from tests.pages import check_code, dead_links, links

README = Path(__file__).resolve().parents[1] / "README.md"


def test_it_is_read_at_once() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_the_code_runs_and_prints_what_is_shown() -> None:
    assert check_code(README) == 2


def test_links_lead_somewhere() -> None:
    assert links(README)
    assert dead_links(README) == []
