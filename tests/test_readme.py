"""What the README shows is what happens."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_code_runs_and_prints_what_is_shown() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    shown = 0
    try:
        for place, (language, text) in enumerate(blocks):
            if language != "python":
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, README.name, "exec"), names)
            if printed.getvalue():
                assert blocks[place + 1] == ("text", printed.getvalue())
                shown += 1
    finally:
        if "loader" in names:
            names["loader"].close()
    assert shown == 1


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text())
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
