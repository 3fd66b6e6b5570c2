"""Lists of edges as plain text, as SNAP and KONECT publish them."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ingest import EdgeTable, Spec, build_dataset
from graphfeed.ingest.tables.text_lines import EdgeListText, line_blocks, one_tab_between_values

SNAP = "# Directed graph: 4 nodes\n# FromNodeId\tToNodeId\n0\t1\n0\t2\n3\t1\n"


@pytest.mark.parametrize("name", ["e.txt", "e.edges", "e.edgelist", "e.txt.gz"])
@pytest.mark.parametrize("between", ["\t", " ", "  \t "])
def test_a_list_of_edges_of_snap_is_a_table(tmp_path: Path, name: str, between: str) -> None:
    text = SNAP.replace("\t", between).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    spec = Spec({"e": EdgeTable(name, source="0", destination="1")}, folder=tmp_path)
    graph = build_dataset(spec).graph
    assert graph is not None
    assert graph.csc_indptr.tolist() == [0, 0, 2, 3, 3]
    assert graph.indices.tolist() == [0, 3, 0]


@given(
    rows=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.sampled_from(["", "\r"]))),
    blanks=st.sampled_from([" ", "\t", "  ", " \t\t"]),
    outside=st.sampled_from(["", " ", "\t "]),
    comment=st.sampled_from(["", "# a b\n", " % c\td\n"]),
)
def test_values_have_one_tab_between_them(
    rows: list[tuple[int, int, str]], blanks: str, outside: str, comment: str
) -> None:
    text = "".join(f"{comment}{outside}{one}{blanks}{other}{outside}{end}\n" for one, other, end in rows)
    wanted = "".join(f"{one}\t{other}{end}\n" for one, other, end in rows)
    assert one_tab_between_values(text.encode()) == wanted.encode()


def test_text_comes_in_whole_lines_whatever_is_read_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("".join(f"{number} {number}\n" for number in range(100)) + "# end\n100 100")
    blocks = list(line_blocks(path, 16))
    assert b"".join(blocks) == path.read_bytes()
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    wanted = "".join(f"{number}\t{number}\n" for number in range(100)) + "100\t100"
    assert EdgeListText(path, 16).read() == wanted.encode()
    with pytest.raises(ValueError, match="a line is longer than 4 bytes"):
        list(line_blocks(path, 4))
