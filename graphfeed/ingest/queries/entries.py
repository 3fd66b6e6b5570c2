"""Queries and statements about the rows of an entry of a specification: types, invalid rows, nodes, edges and items.

`rows` is a table or a query in parentheses whose rows have a number `n`. A `condition` is an expression of bool.
"""

from collections.abc import Mapping, Sequence

from graphfeed.ingest.queries.columns import common_bits, literal

BAD = "bad_rows"
"""Table of the invalid rows, each with its number `n` and the index `code` of the rule that it breaks."""


def create_rows(name: str, kinds: Sequence[str]) -> str:
    """Create an empty table with the file of each row, and columns of these types."""
    columns = [f"c{number} {kind}" for number, kind in enumerate(kinds)]
    return f"CREATE OR REPLACE TABLE {name} ({', '.join(['file INTEGER', *columns])})"


def insert_rows(name: str, file: str, values: Sequence[str], source: str) -> str:
    """Append expressions of a source's columns to a table of rows."""
    return f"INSERT INTO {name} SELECT {', '.join([file, *values])} FROM {source}"


def number_rows(name: str) -> str:
    """Return the rows of a table with their numbers."""
    return f"(SELECT rowid AS n, * FROM {name})"


def filter_rows(rows: str, condition: str) -> str:
    """Return the rows that fulfil a condition."""
    return f"(SELECT * FROM {rows} WHERE {condition})"


def with_places(rows: str) -> str:
    """Return rows with the position of each as `place`."""
    return f"(SELECT *, row_number() OVER (ORDER BY n) - 1 AS place FROM {rows})"


def create_skipped(number: int, rows: str) -> str:
    """Create a table of the positions of the invalid rows of a node table among all rows."""
    places = f"SELECT place FROM {with_places(rows)} WHERE n IN (SELECT n FROM {BAD})"
    return f"CREATE OR REPLACE TABLE skipped_{number} AS {places}"


def without_skipped(rows: str, number: int) -> str:
    """Return rows with their positions, except those of invalid nodes; the positions are counted again."""
    kept = filter_rows(rows, f"place NOT IN (SELECT place FROM skipped_{number})")
    return with_places(f"(SELECT * EXCLUDE (place) FROM {kept})")


def is_left_out(number: int, sql: str) -> str:
    """Return whether an id is that of a row of a node table which was left out."""
    return f"coalesce({sql} IN (SELECT id FROM left_out_{number} WHERE id IS NOT NULL), false)"


def coded(rows: str, code: int) -> str:
    """Return rows with the same code."""
    return f"(SELECT n, {code} AS code FROM {rows})"


def create_lists(table: str, lists: str, rows: str, number: int | None, count: int) -> str:
    """Create a table of the ids in lists, with the row `n` of each, its position `k`, and its node's `place` or NULL.

    The `number` is that of the table of ids; None if they are those of `count` rows.
    """
    listed = f"SELECT n, unnest({lists}) AS id, unnest(range(len({lists}))) AS k FROM {rows}"
    if number is None:
        found = f"SELECT *, CASE WHEN id >= 0 AND id < {count} THEN id END AS place FROM ({listed})"
    else:
        join = join_ids(f"ids_{number}", "ids", "listed.id")
        found = f"SELECT listed.*, ids.rowid AS place FROM ({listed}) AS listed {join}"
    return f"CREATE OR REPLACE TABLE {table} AS {found}"


def count_listed(table: str, lists: str, part: str) -> str:
    """Return the number of nodes in the list of each row of a part."""
    found = f"{table} LEFT JOIN {lists} ON {lists}.n = {table}.n"
    return f"SELECT count(place) FROM {found} WHERE {part} GROUP BY {table}.n ORDER BY {table}.n"


def select_listed(table: str, lists: str, part: str) -> str:
    """Return the nodes in the lists of the rows of a part."""
    rows = f"SELECT n FROM {table} WHERE {part}"
    return f"SELECT place FROM {lists} WHERE place IS NOT NULL AND n IN ({rows}) ORDER BY n, k"


def drop_rows(name: str) -> str:
    """Remove a table of rows, if there is one."""
    return f"DROP TABLE IF EXISTS {name}"


def number_nodes(count: int) -> str:
    """Return rows without columns."""
    return f"(SELECT range AS n FROM range({count}))"


def count_all(source: str) -> str:
    """Return the number of rows."""
    return f"SELECT count(*) FROM {source}"


def count_by_file(name: str, first: int) -> str:
    """Return the number of rows of each file, except those before `first`."""
    return f"SELECT file, count(*) FROM {name} WHERE file >= {first} GROUP BY file"


def first_of_files(rows: str) -> str:
    """Return the number of each file's first row, and the file, in ascending order."""
    return f"SELECT min(n) AS first, file FROM {rows} GROUP BY file ORDER BY first"


def count_codes(rows: str, firsts: Sequence[int]) -> str:
    """Return each `code` with its first row and its count, per file; `firsts` are the numbers of their first rows."""
    file = f"list_last(list_filter({literal(list(firsts))}, lambda first: first <= n))"
    return f"SELECT code, min(n), count(*) FROM {rows} GROUP BY {file}, code ORDER BY 2"


def types_by_file(name: str, roles: Mapping[str, str]) -> str:
    """Return the bits of types that can represent all strings of each column, by file; `roles` has their roles."""
    return f"SELECT {', '.join(['file', *map(common_bits, roles, roles.values())])} FROM {name} GROUP BY file"


def types_of_first(lines: str, values: Sequence[str], count: int) -> str:
    """Return the bits that are common to the first values of each column; 0 if any of them is missing.

    The values are bits of types, from `types_of`.
    """
    found = ", ".join(f"if(min({own}) > 0, bit_and({own}), 0)" for own in values)
    return f"SELECT {found} FROM (SELECT * FROM {lines} LIMIT {count})"


def select(columns: Sequence[str], source: str, condition: str = "true") -> str:
    """Return expressions for the rows of a source that fulfil a condition, in their order."""
    return f"SELECT {', '.join(columns)} FROM {source} WHERE {condition}"


def is_any(conditions: Sequence[str], rows: str) -> str:
    """Return for each condition whether some row fulfils it; NULL if there are no rows."""
    return select([f"bool_or({condition})" for condition in conditions], rows)


def length_of_first(sql: str, rows: str) -> str:
    """Return the length of the first vector of a column."""
    return f"SELECT len({sql}) FROM {rows} WHERE {sql} IS NOT NULL LIMIT 1"


def distinct_values(sql: str, rows: str, most: int) -> str:
    """Return the distinct values of a column in ascending order, at most `most`."""
    return f"SELECT DISTINCT {sql} AS value FROM {rows} WHERE {sql} IS NOT NULL ORDER BY value LIMIT {most}"


def count_letters(values: str) -> str:
    """Return the number of values in a query, and that of their characters."""
    return f"SELECT count(*), coalesce(sum(len(value)), 0) FROM ({values})"


def create_codes(kind: str, sql: str, rows: str) -> str:
    """Create a type whose codes are the positions of values among the distinct ones in ascending order."""
    values = f"SELECT DISTINCT {sql} AS value FROM {rows} WHERE {sql} IS NOT NULL"
    names = f"SELECT value::VARCHAR FROM ({values}) ORDER BY value"
    return f"DROP TYPE IF EXISTS {kind}; CREATE TYPE {kind} AS ENUM ({names})"


def code_of(kind: str, sql: str, otherwise: int) -> str:
    """Return the code of a value of a type of `create_codes`; `otherwise` if it is missing."""
    return f"coalesce(enum_code(({sql})::VARCHAR::{kind})::BIGINT, {otherwise})"


def first_values(sql: str, rows: str, most: int) -> str:
    """Return the distinct values of a column as strings, in the order of their first rows."""
    return f"SELECT {sql}::VARCHAR, min(n) AS first FROM {rows} GROUP BY ALL ORDER BY first LIMIT {most}"


def are_whole(value: str, rows: str) -> str:
    """Return whether all numbers of a column of DOUBLE are integers of 0 or more, and some is NaN."""
    # Data frames convert integers to floats if some are missing.
    integer = f"(isnan({value}) OR ({value} >= 0 AND {value} < 9e18 AND {value} = trunc({value})))"
    return f"SELECT bool_or(isnan({value})) AND bool_and({integer}) FROM {rows}"


def first_broken(conditions: Sequence[str]) -> str:
    """Return the index of the first condition that a row fulfils, or NULL."""
    cases = " ".join(f"WHEN {condition} THEN {number}" for number, condition in enumerate(conditions))
    return f"CASE {cases} END::SMALLINT" if conditions else "NULL::SMALLINT"


def with_code(conditions: Sequence[str], rows: str) -> str:
    """Return the rows with the index of the first condition that each fulfils."""
    return f"(SELECT n, {first_broken(conditions)} AS code FROM {rows})"


def create_bad(coded: str) -> str:
    """Create the table of the invalid rows: those with a `code`."""
    return f"CREATE OR REPLACE TABLE {BAD} AS SELECT n, code FROM {coded} WHERE code IS NOT NULL"


def add_bad(places: str, code: int, rows: str) -> str:
    """Add rows to the table of the invalid rows, given by their positions, unless they are in it."""
    numbered = f"SELECT n, row_number() OVER (ORDER BY n) - 1 AS place FROM {rows}"
    new = f"place IN (SELECT c0 FROM {places}) AND n NOT IN (SELECT n FROM {BAD})"
    return f"INSERT INTO {BAD} SELECT n, {code} FROM ({numbered}) WHERE {new}"


def first_bad(most: int) -> str:
    """Return the first rows that break the same rule as the first invalid row: code, number, and count in all."""
    first = f"code = (SELECT arg_min(code, n) FROM {BAD})"
    return f"SELECT code, n, count(*) OVER () FROM {BAD} WHERE {first} ORDER BY n LIMIT {most}"


def bad_numbers() -> str:
    """Return the numbers of the invalid rows in ascending order."""
    return f"SELECT n FROM {BAD} ORDER BY n"


def values_of_rows(columns: Sequence[str], rows: str, numbers: Sequence[int]) -> str:
    """Return rows with these numbers: the number, and expressions."""
    return f"SELECT {', '.join(['n', *columns])} FROM {rows} WHERE n IN ({', '.join(map(str, numbers))})"


def without_bad(rows: str) -> str:
    """Return the rows that are not invalid, in their order."""
    return f"(SELECT * FROM {rows} WHERE n NOT IN (SELECT n FROM {BAD}) ORDER BY n)"


def unlabelled(rows: str, part: str, labelled: str) -> str:
    """Return the valid rows of a part of the split that have no label, with 0 as `code`."""
    bad = f"n IN (SELECT n FROM {BAD})"
    return f"(SELECT n, 0 AS code FROM {rows} WHERE ({part}) AND NOT ({labelled}) AND NOT ({bad}))"


def create_column(table: str, name: str, sql: str, rows: str) -> str:
    """Create a table with a column: an expression of the rows, in their order."""
    return f"CREATE OR REPLACE TABLE {table} AS SELECT {sql} AS {name} FROM {rows}"


def create_repeated(sql: str, rows: str) -> str:
    """Create the table `repeated` of the rows whose id an earlier row has."""
    named = f"SELECT {sql} AS id, n FROM {rows}"
    several = f"SELECT id, min(n) AS first FROM ({named}) WHERE id IS NOT NULL GROUP BY id HAVING count(*) > 1"
    found = f"SELECT n FROM ({named}) JOIN ({several}) USING (id) WHERE n <> first"
    return f"CREATE OR REPLACE TEMP TABLE repeated AS {found}"


IS_REPEATED = "n IN (FROM repeated)"
"""Whether a row is in the table `repeated`."""


def create_distinct_ids(table: str, columns: Sequence[tuple[str, str]]) -> str:
    """Create a table of the distinct ids in columns, given by expressions and rows, in ascending order."""
    parts = [f"SELECT DISTINCT {sql} AS id FROM {rows}" for sql, rows in columns]
    every = f"SELECT DISTINCT id FROM ({' UNION ALL '.join(parts)}) WHERE id IS NOT NULL ORDER BY id"
    return f"CREATE OR REPLACE TABLE {table} AS {every}"


def describe_ids(table: str) -> str:
    """Return whether ids are strings, and whether they are 0, 1, 2, ..."""
    same = "TRY_CAST(id AS BIGINT) IS NOT DISTINCT FROM rowid"
    texts = f"(SELECT data_type = 'VARCHAR' FROM duckdb_columns() WHERE table_name = '{table}')"
    return f"SELECT {texts}, coalesce(bool_and({same}), true) FROM {table}"


def join_ids(table: str, alias: str, sql: str) -> str:
    """Return the join of edges with a table of ids: `alias.rowid` is the number of the node, or NULL."""
    return f"LEFT JOIN {table} AS {alias} ON {alias}.id = {sql}"


def create_edges(table: str, columns: Mapping[str, str], rows: str, joins: Sequence[str]) -> str:
    """Create a table of edges in the order of their rows, with expressions by name."""
    selected = ", ".join(["n", *(f"{sql} AS {name}" for name, sql in columns.items())])
    # Neither a join nor a window keeps the order.
    order = "ORDER BY n" if joins or "place" in columns.values() else ""
    return f"CREATE OR REPLACE TABLE {table} AS SELECT {selected} FROM {' '.join([rows, *joins])} {order}"


def mark_earlier(table: str, code: int) -> str:
    """Give a code to valid edges whose time is earlier than that of a preceding valid edge."""
    before = "max(time) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    times = f"SELECT n, time, {before} AS latest FROM {table} WHERE code IS NULL"
    return f"UPDATE {table} SET code = {code} WHERE n IN (SELECT n FROM ({times}) WHERE time < latest)"


def drop_bad(table: str) -> str:
    """Remove the invalid edges from a table, whose other rows keep their order."""
    kept = f"CREATE OR REPLACE TABLE kept AS FROM {without_bad(table)}"
    return f"{kept}; DROP TABLE {table}; ALTER TABLE kept RENAME TO {table}"


def count_edges(table: str, in_graph: str) -> str:
    """Return the number of edges, and of those that fulfil a condition."""
    return f"SELECT count(*), count(*) FILTER ({in_graph}) FROM {table}"


def edges_of_graph(table: str, *, turned: bool, some: bool) -> str:
    """Return edges with their `row`: with exchanged ends if `turned`, and only those in the graph if `some`."""
    ends = " REPLACE (destination AS source, source AS destination)" if turned else ""
    return f"(SELECT rowid AS row, *{ends} FROM {table}{' WHERE in_graph' if some else ''})"


def same_times(time: int, count: int) -> str:
    """Return the times of nodes that have the same one."""
    return f"(SELECT ({time})::BIGINT AS time FROM range({count}))"


def create_again(edges: str, size: int, *, redrawn: bool) -> str:
    """Create the table `again` of the places of negatives that are edges; each edge is the first of `size` pairs.

    The table `links` has pairs: place `c0`, source `c1` and destination `c2`. `drawn` has the new destinations `c1` of
    some places `c0`, the only ones to look at if `redrawn`.
    """
    some = " AND c0 IN (SELECT c0 FROM drawn)" if redrawn else ""
    wrong = f"c0 % {size} <> 0 AND (c1, c2) IN (SELECT source, destination FROM {edges}){some}"
    return f"CREATE OR REPLACE TABLE again AS SELECT c0 FROM links WHERE {wrong}"


TAKE_DRAWN = "UPDATE links SET c2 = drawn.c1 FROM drawn WHERE links.c0 = drawn.c0"
"""Gives the pairs in `links` the destinations that were drawn again."""
FIRST_AGAIN = "SELECT any_value(c1), count(*) FROM links WHERE c0 IN (FROM again)"
"""Returns a source of negatives that are edges, and the number of these negatives."""
DROP_PAIRS = "DROP TABLE links; DROP TABLE again; DROP TABLE IF EXISTS drawn"
