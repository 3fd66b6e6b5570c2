"""Queries of files: Parquet, CSV, NDJSON and lists of edges. They have numbers instead of the names of columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphfeed.ingest.queries.columns import literal

FILE_ROWS = 40
"""A row of a Parquet file has the number `file << FILE_ROWS | row`."""
LINE_BYTES = 1 << 22
"""Maximum length of a line of text; a longer one may have an unclosed quote."""
SPECIAL = str.maketrans({mark: f"[{mark}]" for mark in "*?["})
NO_REJECTS = "DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans"


def is_gzip(file: Path) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return file.suffix.lower() == ".gz"


def paths(files: Sequence[Path]) -> str:
    """Return a list of paths, in which brackets escape the special characters of patterns."""
    return literal([str(path).translate(SPECIAL) for path in files])


def compression(file: Path) -> str:
    """Return the compression as an argument: a name with a ? hides its suffix from the engine, as if it were a URL."""
    return f"compression='{'gzip' if is_gzip(file) else 'none'}'"


def numbered(count: int) -> str:
    """Return the names of columns."""
    return ", ".join(f"c{number}" for number in range(count))


def parquet_rows(files: Sequence[Path], width: int) -> str:
    """Return the rows of Parquet files with the same `width` columns."""
    return f"read_parquet({paths(files)}, hive_partitioning=false) AS t({numbered(width)})"


def numbered_parquet_rows(files: Sequence[Path], width: int, columns: Mapping[str, str]) -> str:
    """Return expressions, by name, for the rows of Parquet files, with the file of each row and its number `n`."""
    selected = ", ".join(f"{sql} AS {name}" for name, sql in columns.items())
    row = f"(file_index::BIGINT << {FILE_ROWS}) + file_row_number AS n, file_index::INTEGER AS file"
    return f"(SELECT {row}, {selected} FROM {parquet_rows(files, width)})"


def count_parquet_rows(files: Sequence[Path]) -> str:
    """Return the number of rows of Parquet files, from their metadata."""
    return f"SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata({paths(files)})"


def parquet_columns(files: Sequence[Path]) -> str:
    """Return a string for the columns of each Parquet file, which is equal for files with the same columns."""
    fields = "(name, type, converted_type, logical_type, repetition_type)"
    columns = f"list({fields} ORDER BY column_id)[2:]::VARCHAR"
    return f"SELECT file_name, {columns} FROM parquet_schema({paths(files)}) GROUP BY file_name"


def text_lines(files: Sequence[Path], width: int, delimiter: str, skip: int = 0, quoted: bool = True) -> str:
    """Return the lines of files as `width` strings, without the first `skip` lines of each file."""
    names = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(width))
    quote = "'\"'" if quoted else "''"
    return (
        f"read_csv({paths(files)}, auto_detect=false, columns={{{names}}}, header=false, skip={skip}, "
        f"delim={literal(delimiter)}, quote={quote}, escape={quote}, nullstr='', max_line_size={LINE_BYTES}, "
        f"hive_partitioning=false, null_padding=false, {compression(files[0])}, "
        f"strict_mode={str(quoted).lower()}, store_rejects={str(quoted).lower()})"
    )


def rejected_lines() -> str:
    """Return the lines of the last CSV files that were read that do not have the right number of values."""
    columns = "file_id, error_type::VARCHAR, line, csv_line, error_message"
    return f"SELECT {columns} FROM reject_errors ORDER BY file_id, line"


def typed_csv_rows(file: Path, delimiter: str, skip: int, count: int) -> str:
    """Return the first rows of a CSV file, with types that the engine guesses."""
    settings = f"delim={literal(delimiter)}, header=false, skip={skip}, hive_partitioning=false, {compression(file)}"
    return f"SELECT * FROM read_csv({paths([file])}, {settings}) LIMIT {count}"


def json_rows(file: Path, width: int = 0) -> str:
    """Return the lines of an NDJSON file as rows; with the names of the columns if `width` is 0."""
    alias = f" AS t({numbered(width)})" if width else ""
    return (
        f"read_json({paths([file])}, format='newline_delimited', records='true', sample_size=-1, "
        f"hive_partitioning=false, {compression(file)}){alias}"
    )


def edge_list_lines(file: Path, comments: Sequence[str]) -> str:
    """Return the lines of a list of edges: `has_text`, `line`, its `parts` between blanks, and `is_row`."""
    marks = " OR ".join(f"starts_with(line, {literal(mark)})" for mark in comments)
    lines = text_lines([file], 1, "\x01", quoted=False)
    trimmed = f"SELECT trim(c0, '\r\n') <> '' AS has_text, trim(c0, ' \t\r\n') AS line FROM {lines}"
    parts = "regexp_split_to_array(line, '[ \t]+') AS parts"
    return f"(SELECT {parts}, has_text, line, line <> '' AND NOT ({marks}) AS is_row FROM ({trimmed}))"


def edge_list_rows(lines: str, width: int) -> str:
    """Return the rows of a list of edges that have `width` values, as strings."""
    own = ", ".join(f"parts[{1 + number}] AS c{number}" for number in range(width))
    return f"(SELECT {own} FROM {lines} WHERE is_row AND len(parts) = {width})"


def count_edge_list_lines(lines: str, width: int) -> str:
    """Return the number of lines with text, that of rows with other numbers of values, and the first of these."""
    wrong = f"FILTER (is_row AND len(parts) <> {width})"
    found = f"count(*) FILTER (has_text), count(*) {wrong}, first(line) {wrong}, first(len(parts)) {wrong}"
    return f"SELECT {found} FROM {lines}"
