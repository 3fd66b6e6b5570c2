"""Invalid rows: reported in an error, or skipped and counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.values import Check
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import Relation
from graphfeed.ops.arguments import brief

OnError: TypeAlias = Literal["raise", "skip"]
MOST_NAMED = 5
"""Number of invalid rows that an error lists."""
MOST_LETTERS = 300


@dataclass
class Problems:
    """How to handle invalid rows, and which rows were skipped."""

    on_error: OnError = "raise"
    skipped: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Number of skipped rows and the first of them, by file and reason."""

    def count(self, file: str, reason: str, rows: int, example: str) -> None:
        known = {"file": file, "reason": reason, "rows": 0, "first": example}
        self.skipped.setdefault((file, reason), known)["rows"] += rows

    def as_list(self) -> list[dict[str, Any]]:
        return [self.skipped[key] for key in sorted(self.skipped)]


def first_broken(checks: Sequence[Check]) -> str:
    """Return SQL for the index of the first rule that a row breaks, or NULL."""
    cases = " ".join(f"WHEN {check.broken} THEN {number}" for number, check in enumerate(checks))
    return f"CASE {cases} END::SMALLINT" if checks else "NULL::SMALLINT"


def raise_or_count(
    engine: Engine, relation: Relation, bad: str, checks: Sequence[Check], problems: Problems
) -> NDArray[np.int64]:
    """Raise an error for the first invalid row, or count the invalid rows; return their numbers in ascending order."""
    # The table has the number `n` of each invalid row, and as `code` the index of the rule that it breaks.
    found = engine.rows(f"SELECT code, n FROM {bad} ORDER BY n LIMIT 1")
    if not found:
        return np.zeros(0, dtype=np.int64)
    if problems.on_error == "raise":
        code = found[0][0]
        total = engine.rows(f"SELECT count(*) FROM {bad} WHERE code = {code}")[0][0]
        rows = engine.rows(f"SELECT n FROM {bad} WHERE code = {code} ORDER BY n LIMIT {MOST_NAMED}")
        texts = bad_row_texts(engine, relation, checks, [(n, code) for (n,) in rows])
        more = f" ({total} rows in all; {'; '.join(texts[1:])})" if total > 1 else ""
        source, _ = relation.place(rows[0][0])
        raise ValueError(f"{source.name}, {texts[0]}, {checks[code].reason}{more}"[:MOST_LETTERS])
    groups = relation.by_table(engine, bad)
    texts = bad_row_texts(engine, relation, checks, [(n, code) for code, n, _ in groups])
    for (code, n, count), text in zip(groups, texts, strict=True):
        check, (source, _) = checks[code], relation.place(n)
        problems.count(source.name, f"{check.column}: {check.reason}", count, f"{text}, {check.reason}")
    return np.array([n for (n,) in engine.rows(f"SELECT n FROM {bad} ORDER BY n")], dtype=np.int64)


def bad_row_texts(
    engine: Engine, relation: Relation, checks: Sequence[Check], rows: Sequence[tuple[int, int]]
) -> list[str]:
    """Return messages for rows, given by their numbers and the rules that they break."""
    shown = {code: checks[code].shown for _, code in rows}
    wanted = ", ".join(str(n) for n, _ in rows)
    found = engine.rows(f"SELECT n, {', '.join(shown.values())} FROM {relation.sql} WHERE n IN ({wanted})")
    values = {n: dict(zip(shown, own, strict=True)) for n, *own in found}
    return [f"row {relation.place(n)[1]}: {checks[code].column} is {brief(values[n][code])}" for n, code in rows]
