"""Tables and pictures of the benchmarks' results, generated from their records."""

import json
import math
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.predicted import DEVICES, expected
from benchmarks.record import HISTORY
from benchmarks.table import number
from docs.builder.drawing import COLOURS, WIDTH, Drawing

LABEL, BAR, PLOT = 19, 14, 120
TO_PEERS = "; ratio to graphfeed"
"""End of the titles of tables that compare libraries."""
PARTS = {"sampling": "worker", "features": "thread", "step": "main", "waiting": "prefetch"}
"""Colours of the parts of an epoch, as names of places in other pictures."""


def write_measured(source: Path, target: Path) -> None:
    """Write a Markdown file for each record of a folder, and the picture of its first table, for pages to include.

    In addition, `history.md` has pictures of the ratios to other libraries over all records, and `expected.md` the
    times that are expected of GPUs.
    """
    target.mkdir(parents=True)
    for path in source.glob("*.json"):
        record = json.loads(path.read_text())
        (target / f"{path.stem}.md").write_text("\n".join(describe(record, path.stem)))
        (target / f"{path.stem}.svg").write_text(first_picture(record, f"{path.stem}-first").svg())
    names = ["case", "in its memory", "over the bus", "requests", *(f"{gpu.name}, {gpu.bus_name}" for gpu in DEVICES)]
    rows = [names, ["---"] * len(names), *expected()]
    (target / "expected.md").write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))
    history = source / HISTORY
    if history.exists():
        entries = [json.loads(line) for line in history.read_text().splitlines()]
        (target / "history.md").write_text("\n".join(over_time(entries)))


STYLE = "svg{color:#1f2328;font-family:sans-serif}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}"
"""Colours and font of a picture in a separate file."""


def first_picture(record: dict[str, Any], name: str) -> Drawing:
    """Draw the first table of a record."""
    title = record["rows"][0]["table"]
    return picture(title, [row for row in record["rows"] if row["table"] == title], name)


def picture_alone(record: dict[str, Any], name: str) -> str:
    """Return the picture of a record's first table as a file, for light and dark themes."""
    drawn = first_picture(record, name).svg()
    return drawn.replace("<title", f"<style>{STYLE}</style>\n<title", 1)


def describe(record: dict[str, Any], name: str) -> Iterator[str]:
    """Yield the lines for a record: the command, the machine, and each table with its picture, folded."""
    machine, versions = record["machine"], record["versions"]
    yield f"Measured by `{record['command']}` on {record['date']}" + (
        f", at commit `{record['commit']}`: " if record["commit"] else ": "
    )
    yield f"{machine['processor']}, {machine['cores']} cores, load {machine['load']}, huge pages "
    yield f"`{machine['huge pages']}`; {', '.join(f'{package} {release}' for package, release in versions.items())}."
    yield from ("", "<details><summary>Tables and pictures</summary>", "")
    for place, (title, rows) in enumerate(groupby(record["rows"], key=lambda row: row["table"])):
        yield from describe_table(title, list(rows), f"{name}-{place}")
    yield "</details>"


def describe_table(title: str, rows: list[dict[str, Any]], name: str) -> Iterator[str]:
    """Yield the lines of a table, below a target for links and its title, and above a picture of its medians."""
    samples = {row["samples"] for row in rows} - {None}
    told = f" (samples: {', '.join(map(str, sorted(samples)))})" if samples else ""
    yield from ("", f"(measured-{name})=", "", f"**{title[0].upper()}{title[1:]}**{told}", "")
    columns = {"ratio": "---:", "goal": "---"}
    shown = {name: line for name, line in columns.items() if any(row[name] is not None for row in rows)}
    yield " | ".join(["| what | unit | median | quartiles", *shown]) + " |"
    yield " | ".join(["| --- | --- | ---: | ---:", *shown.values()]) + " |"
    for row in rows:
        quartiles = " - ".join(map(number, row["quartiles"]))
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        goal = "" if row["goal"] is None else f"{row['goal']['bound']}: {'met' if row['goal']['met'] else 'not met'}"
        further = [{"ratio": ratio, "goal": goal}[name] for name in shown]
        yield " | ".join([f"| {row['what']} | {row['unit']} | {number(row['median'])} | {quartiles}", *further]) + " |"
    if len(rows) > 1 and len({row["unit"] for row in rows}) == 1:
        yield from ("", "```{raw} html", picture(title, rows, name).svg().rstrip(), "```")
    yield ""


def picture(title: str, rows: list[dict[str, Any]], name: str) -> Drawing:
    """Draw one bar for the parts of an epoch, which are named "library: part"; otherwise, a bar for each row."""
    parts = [row["what"].partition(": ")[2] for row in rows]
    return (stacks if PARTS.keys() >= {*parts} else bars)(title, rows, name)


def stacks(title: str, rows: list[dict[str, Any]], name: str) -> Drawing:
    """Draw a bar for each whole, divided into its parts."""
    unit, wholes = rows[0]["unit"], dict[str, dict[str, float]]()
    for row in rows:
        whole, _, part = row["what"].partition(": ")
        wholes.setdefault(whole, {})[part] = row["median"]
    shown = [part for part in PARTS if any(part in parts for parts in wholes.values())]
    longest = max(sum(parts.values()) for parts in wholes.values())
    drawing = Drawing(name, title, "; ".join(f"{row['what']}: {number(row['median'])} {unit}" for row in rows))
    for whole, parts in wholes.items():
        drawing.write(0, drawing.height + LABEL - 5, whole, anchor="start", size=12)
        left = 0.0
        for part, value in parts.items():
            width = value / longest * (WIDTH - 80)
            drawing.box(left, drawing.height + LABEL, max(width, 1), BAR, PARTS[part])
            left += width
        words = f"{number(sum(parts.values()))} {unit}"
        drawing.write(left + 6, drawing.height + LABEL + 11, words, anchor="start", size=11)
        drawing.height += LABEL + BAR + 4
    for place, part in enumerate(shown):
        drawing.box(place * WIDTH / 4, drawing.height + 8, BAR, BAR, PARTS[part])
        drawing.write(place * WIDTH / 4 + BAR + 5, drawing.height + 19, part, anchor="start", size=11)
    drawing.height += 30
    return drawing


def bars(title: str, rows: list[dict[str, Any]], name: str) -> Drawing:
    """Draw a bar for the median of each row."""
    unit, longest = rows[0]["unit"], max(row["median"] for row in rows)
    text = "; ".join(f"{row['what']}: {number(row['median'])} {unit}" for row in rows)
    drawing = Drawing(name, title, text)
    for row in rows:
        drawing.write(0, drawing.height + LABEL - 5, row["what"], anchor="start", size=12)
        width = row["median"] / longest * (WIDTH - 80)
        drawing.box(0, drawing.height + LABEL, max(width, 1), BAR, "worker")
        words = f"{number(row['median'])} {unit}"
        drawing.write(max(width, 1) + 6, drawing.height + LABEL + 11, words, anchor="start", size=11)
        drawing.height += LABEL + BAR + 4
    return drawing


def over_time(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines for the ratios to other libraries in all records, a picture for each table that has them."""
    tables: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for entry in entries:
        for title, rows in entry["tables"].items():
            for what, (_, _, ratio) in rows.items():
                # Releases change: a library is known by its name and its back end.
                library = re.sub(r" \d[\w.]*", "", what.partition(", ")[0])
                if title.endswith(TO_PEERS) and not library.startswith("graphfeed"):
                    table = tables.setdefault(title.removesuffix(TO_PEERS), {})
                    table.setdefault(library, []).append((f"{entry['commit']}, {entry['date']}", ratio))
    for place, (title, libraries) in enumerate(tables.items()):
        yield from (f"**{title[0].upper()}{title[1:]}**", "")
        yield from ("```{raw} html", lines(title, libraries, f"history-{place}").svg().rstrip(), "```", "")


def lines(title: str, libraries: dict[str, list[tuple[str, float]]], name: str) -> Drawing:
    """Draw a line through the ratios of each library, by commit and on a logarithmic scale that begins at 1."""
    commits = list(dict.fromkeys(commit for points in libraries.values() for commit, _ in points))
    most = math.log(max(2.0, *(ratio for points in libraries.values() for _, ratio in points)))
    text = "; ".join(
        f"{library}: {', '.join(f'{ratio:.2g} at {commit}' for commit, ratio in points)}"
        for library, points in libraries.items()
    )
    drawing = Drawing(name, title, text)
    top, step = drawing.height + LABEL, (WIDTH - 20) / max(len(commits) - 1, 1)
    drawing.height = top + PLOT + LABEL
    for place, (library, points) in zip([*COLOURS] * len(libraries), libraries.items(), strict=False):
        spots = [
            (10 + step * commits.index(commit), top + PLOT * (1 - max(math.log(ratio), 0) / most))
            for commit, ratio in points
        ]
        drawing.line(spots, place)
        for (x, y), (_, ratio) in zip(spots, points, strict=True):
            drawing.write(x, y - 6, f"{ratio:.2g}", size=10)
        drawing.box(0, drawing.height, BAR, BAR, place)
        drawing.write(BAR + 5, drawing.height + 11, library, anchor="start", size=11)
        drawing.height += LABEL
    drawing.write(0, top + PLOT + 14, commits[0], anchor="start", size=10)
    if len(commits) > 1:
        drawing.write(WIDTH, top + PLOT + 14, commits[-1], anchor="end", size=10)
    return drawing
