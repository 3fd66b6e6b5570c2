"""A file that would become more than it is, is refused at once; ordinary YAML with aliases is read."""

import time
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.storage.datasets import bounded_yaml
from graphfeed.storage.datasets.bounded_yaml import load_yaml

LEVELS = range(1, 40)


def bomb(first: str, use: str) -> str:
    """Return a document in which each line stands for the line before it nine times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{level}: &a{level} {use.format(', '.join([f'*a{level - 1}'] * 9))}" for level in LEVELS]
    return "\n".join([*lines, f"graph: *a{LEVELS[-1]}", ""])


ATTACKS = {
    "aliases": (bomb("[lol]", "[{}]"), "there are more than 100000 values up to line 6"),
    "merged keys": (bomb("{x: lol}", "{{<<: [{}]}}"), "there are more than 100000 values up to line 6"),
    "a value in itself": ("graph: &a [*a]\n", "the value at line 1 contains itself"),
    "levels": ("[" * 10_000, "too many levels"),
    "a number in base 60": ("num: " + "1:" * 400_000 + "1\n", "the value at line 1 has 800001 letters"),
    "a number of many digits": ("num: " + "1" * 400_000 + "\n", "the value at line 1 has 400000 letters"),
    "a large file": ("a: 1\n" * 400_000, "has 2000000 bytes; a description of a dataset has 1048576 at most"),
    "a tag that no text fits": ('a: !!int ""\n', "a value does not fit its tag .IndexError"),
    "a tag that no number fits": ('a: !!float ""\n', "a value does not fit its tag .IndexError"),
    "a tag that no word fits": ("a: !!bool x\n", "a value does not fit its tag .KeyError"),
    "a tag that no date fits": ("a: !!timestamp x\n", "a value does not fit its tag .AttributeError"),
    "no YAML": ("graph: [\n", "can't be read as YAML: while parsing"),
    "no text": ("graph: \x01\n", "can't be read as YAML: unacceptable character"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_in_a_moment(name: str, tmp_path: Path) -> None:
    text, message = ATTACKS[name]
    path = tmp_path / "metadata.yaml"
    path.write_text(text)
    start = time.thread_time()
    with pytest.raises(ValueError, match=message) as caught:
        load_yaml(path)
    assert time.thread_time() - start < 5
    assert len(str(caught.value)) < 1000
    with pytest.raises(ValueError, match=message):
        gf.OnDiskDataset(tmp_path).load()


def test_values_beyond_the_most_are_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of 1 MiB holds 350,000 values, and the tree of all of them takes PyYAML ten seconds."""
    monkeypatch.setattr(bounded_yaml, "MOST_VALUES", 1000)
    path = tmp_path / "metadata.yaml"
    for text, line in (("[" + "[]," * 345_000 + "]", 1), ("- 1\n" * 250_000, 1000)):
        path.write_text(text)
        start = time.thread_time()
        with pytest.raises(ValueError, match=f"there are more than 1000 values up to line {line}$"):
            load_yaml(path)
        assert time.thread_time() - start < 1
    path.write_text("- 1\n" * 999)
    assert load_yaml(path) == [1] * 999


def test_a_value_of_another_kind_is_shown_in_short(tmp_path: Path) -> None:
    (tmp_path / "metadata.yaml").write_text(f"graph: [{', '.join('a' * 99 for _ in range(999))}]\n")
    with pytest.raises(ValueError, match=r"graph must be a mapping, but is \['aaa") as caught:
        gf.OnDiskDataset(tmp_path).load()
    assert len(str(caught.value)) < 1000


def test_aliases_and_merged_keys_of_ordinary_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metadata.yaml"
    path.write_text("a: &a {format: numpy, in_memory: true}\nb: {<<: *a, format: torch}\nc: [*a, *a]\nd: 12\n")
    plain = {"format": "numpy", "in_memory": True}
    assert load_yaml(path) == {"a": plain, "b": {**plain, "format": "torch"}, "c": [plain, plain], "d": 12}
