"""Invalid rows: reported in an error, or left out and counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfeed.ingest.dataset.values import Check
from graphfeed.ingest.queries import entries
from graphfeed.ingest.tables.engine import Engine
from graphfeed.ingest.tables.relation import Relation
from graphfeed.ops.arguments import brief

OnError: TypeAlias = Literal["raise", "skip"]
MOST_NAMED = 5
"""Number of invalid rows that an error lists."""
MOST_LETTERS = 300


@dataclass
class BadRows:
    """How to handle invalid rows, and which rows were left out."""

    on_error: OnError = "raise"
    skipped: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Number of rows left out and the first of them, by file and reason."""

    def count(self, file: str, reason: str, rows: int, example: str) -> None:
        known = {"file": file, "reason": reason, "rows": 0, "first": example}
        self.skipped.setdefault((file, reason), known)["rows"] += rows

    def as_list(self) -> list[dict[str, Any]]:
        return [self.skipped[key] for key in sorted(self.skipped)]

    def raise_or_count(self, engine: Engine, relation: Relation, checks: Sequence[Check]) -> NDArray[np.int64]:
        """Raise an error for the first row in the table of invalid rows, or count these; return their numbers."""
        found = engine.rows(entries.first_bad(MOST_NAMED))
        if not found:
            return np.zeros(0, dtype=np.int64)
        if self.on_error == "raise":
            code, first, total = found[0]
            texts = bad_row_texts(engine, relation, checks, [(n, code) for code, n, _ in found])
            more = f" ({total} rows in all; {'; '.join(texts[1:])})" if total > 1 else ""
            source, _ = relation.place(first)
            raise ValueError(f"{source.name}, {texts[0]}, {checks[code].reason}{more}"[:MOST_LETTERS])
        groups = relation.by_table(engine, entries.BAD)
        texts = bad_row_texts(engine, relation, checks, [(n, code) for code, n, _ in groups])
        for (code, n, count), text in zip(groups, texts, strict=True):
            check, (source, _) = checks[code], relation.place(n)
            self.count(source.name, f"{check.column}: {check.reason}", count, f"{text}, {check.reason}")
        return np.array([n for (n,) in engine.rows(entries.bad_numbers())], dtype=np.int64)


def bad_row_texts(
    engine: Engine, relation: Relation, checks: Sequence[Check], rows: Sequence[tuple[int, int]]
) -> list[str]:
    """Return messages for rows, given by their numbers and the rules that they break."""
    shown = {code: checks[code].shown for _, code in rows}
    found = engine.rows(entries.values_of_rows([*shown.values()], relation.sql, [n for n, _ in rows]))
    values = {n: dict(zip(shown, own, strict=True)) for n, *own in found}
    return [f"row {relation.place(n)[1]}: {checks[code].column} is {brief(values[n][code])}" for n, code in rows]
