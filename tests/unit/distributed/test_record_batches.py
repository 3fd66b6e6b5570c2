"""Values and mini-batches as record batches: round trips, and errors for inconsistent messages."""

import json
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.wire import from_batch, to_batch
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_all_refused

arrow = pytest.importorskip("pyarrow")
KIND, FORMAT = "made", 3


def test_the_tensors_of_an_answer_are_sent_from_where_they_lie_and_copied_on_receipt() -> None:
    seeds = torch.arange(100_000)
    batch = to_batch(KIND, gf.MiniBatch(seeds=seeds, labels=torch.empty(0)))
    assert seeds.data_ptr() in [buffer.address for buffer in batch.column(0).buffers()[1:]]
    sent = through_the_wire(batch)
    kind, minibatch = from_batch(sent)
    assert kind == KIND
    assert minibatch.seeds.tolist() == list(range(100_000))
    minibatch.seeds += 1  # tensors are owned by this process
    assert from_batch(sent)[1].seeds[0] == 0


def test_tensors_of_every_kind_arrive_at_cache_lines_and_can_be_written_to() -> None:
    value = {
        "turned": torch.arange(6).reshape(2, 3).t(),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "negative": torch.tensor([1 + 2j]).conj().imag,
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "one": torch.tensor(2.5),
        "none": torch.empty(0, 4),
        "apart": torch.arange(10)[::5][:1],
        "of 32 kB": torch.arange(8192, dtype=torch.int32),
        "of 1 MB": torch.arange(1 << 18, dtype=torch.int32),
        "of more": torch.arange((1 << 18) + 1, dtype=torch.int32),
        **{f"of {count} bytes": torch.arange(count, dtype=torch.uint8) for count in range(1, 130)},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = from_batch(through_the_wire(to_batch(KIND, value)))[1]
        assert found.keys() == value.keys()
        for name, tensor in value.items():
            assert torch.equal(found[name], tensor)
            assert found[name].dtype == tensor.dtype
            assert found[name].data_ptr() % 64 == 0
            found[name].zero_()
    assert all(torch.equal(part, torch.zeros_like(part)) for part in found.values())


def through_the_wire(batch: Any, compression: str | None = None) -> Any:
    options = arrow.ipc.IpcWriteOptions(compression=compression)
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return arrow.ipc.open_stream(sink.getvalue()).read_next_batch()


def answer_of(head: Any, table: Any, *parts: bytes) -> Any:
    """Return a response whose parts occupy whole cache lines, as if it had been sent."""
    texts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (head, table)]
    header = b"[%b, %b]" % (texts[0], texts[1])
    lines = [header + b" " * (-len(header) % 64), *(part + bytes(-len(part) % 64) for part in parts)]
    buffers = [None, *map(arrow.py_buffer, (bytes(16), *lines))]
    return through_the_wire(column_of(arrow.Array.from_buffers(arrow.binary_view(), 1, buffers)))


def column_of(*columns: Any) -> Any:
    return arrow.record_batch(list(columns), names=[str(number) for number in range(len(columns))])


HEAD = [FORMAT, KIND, ["list", ["tensor", "0"], ["tensor", "1"]]]
TABLE = [["0", "int32", [2]], ["1", "uint8", [4]]]


def test_an_answer_by_hand_is_read() -> None:
    kind, (one, other) = from_batch(answer_of(HEAD, TABLE, bytes(8), b"1234"))
    assert kind == KIND
    assert one.tolist() == [0, 0]
    assert other.tolist() == [49, 50, 51, 52]


EIGHT, FOUR = bytes(8), bytes(4)
NO_MESSAGES: list[Any] = [
    column_of(arrow.array([1])),
    arrow.record_batch([arrow.nulls(1)] * 1000, names=["a" * 1000] * 1000),
    column_of(arrow.array([b"1"])),
    column_of(arrow.array([b"1"], arrow.binary_view())),
    column_of(*2 * [answer_of(HEAD, TABLE, EIGHT, FOUR).column(0)]),
    None,
    answer_of(b"", b""),
    *[
        answer_of(head, TABLE, EIGHT, FOUR)
        for head in (
            b"",
            b"\xff",
            b"[" * 100_000,
            [FORMAT, KIND],
            [FORMAT, KIND, ["tensor", "2"]],
            [FORMAT, KIND, ["tensor", []]],
        )
    ],
    *[answer_of(HEAD, table, EIGHT, FOUR) for table in (b"", b"[" * 100_000, 3)],
    *[answer_of(HEAD, TABLE, *parts) for parts in ([EIGHT], [EIGHT, bytes(65)], [EIGHT, FOUR, FOUR])],
    *[
        answer_of(HEAD, [["0", dtype, shape], TABLE[1]], EIGHT, FOUR)
        for dtype, shape in (
            ("uint8", [1 << 60]),
            ("object", [2]),
            ("int32", [-2]),
            ("int32", [-1, -2]),
            ("int32", [1 << 62]),
            ("int32", [float("inf")]),
            ("int32", ["x"]),
            ("int32", 2),
            ("int32", [2] + [1] * 200),
        )
    ],
    answer_of(HEAD, [["0", "int32", [0, 1 << 80]], TABLE[1]], b"", FOUR),
    *[through_the_wire(answer_of(HEAD, TABLE, EIGHT, bytes(999)), codec) for codec in ("zstd", "lz4")],
]


def test_an_answer_that_does_not_fit_together_is_refused() -> None:
    check_all_refused(from_batch, NO_MESSAGES, "is not a")


def test_texts_that_would_take_gigabytes_when_they_are_read_are_refused_and_not_sent() -> None:
    long, most = b"[]," * (6 << 20) + b"[]]", 1 << 24
    for batch in (answer_of(b'[3, "made", [' + long + b"]", []), answer_of([FORMAT, KIND, None], b"[" + long)):
        with pytest.raises(ValueError, match=rf"this is not a message .* more than {most}$"):
            from_batch(batch)
    with pytest.raises(ValueError, match=rf"may take {most} bytes, but takes {most + 64}; convert its lists to tens"):
        to_batch(KIND, "x" * (most - 20))


def test_an_answer_in_another_format_is_refused_by_its_format() -> None:
    with pytest.raises(ValueError, match=rf"mini-batch format 2, and this side format {FORMAT}; install the same"):
        from_batch(answer_of([2, KIND, "anything"], [], b""))


def test_broken_bytes_are_an_error_or_a_value_and_no_crash() -> None:
    batch = to_batch(KIND, next(iter(pipelines.homogeneous())))
    sent = np.frombuffer(batch.serialize(), np.uint8)
    generator = np.random.default_rng(0)
    text = bytes(sent).index(b"[["), bytes(sent).rindex(b"]]")
    refused = 0
    for number in range(200):
        broken = sent.copy()
        # Every other message is broken in the text that names its parts.
        places = generator.integers(*text, size=1) if number % 2 else generator.integers(sent.size, size=3)
        broken[places] ^= generator.integers(1, 256, size=len(places), dtype=np.uint8)
        try:
            from_batch(arrow.ipc.read_record_batch(arrow.py_buffer(broken), batch.schema))
        except (ValueError, OSError):
            refused += 1
    assert refused > 10


DEEP: Any = 1
for _ in range(900):
    DEEP = ["list", DEEP]


def there_and_back(value: Any) -> Any:
    return from_batch(through_the_wire(to_batch(KIND, value)))[1]


def test_every_kind_of_mini_batch_comes_back_equal() -> None:
    for build in pipelines.ALL:
        minibatch = next(iter(build()))
        assert_same(there_and_back(minibatch), minibatch)


def test_attributes_and_values_of_users_come_back() -> None:
    minibatch = gf.MiniBatch(key=gf.Key(1, 2, 3))
    minibatch.extra = {1: torch.arange(2), "1": torch.arange(3), ("a", None): (True, 1.5, "x", [float("inf")])}  # type: ignore[attr-defined]
    assert_same(there_and_back(minibatch), minibatch)


def test_a_tensor_that_occurs_twice_is_sent_once() -> None:
    ids = torch.arange(3)
    found = there_and_back(gf.MiniBatch(seeds=ids, input_nodes=ids))
    assert found.input_nodes is found.seeds


def test_what_cannot_be_sent_is_named_by_its_place() -> None:
    values = [object(), {1, 2}, torch.eye(2).to_sparse(), torch.float32, b"bytes", torch.ones(2, requires_grad=True)]
    words = r"^minibatch\.node_features\.feat is a .* after the cut"
    batches = [gf.MiniBatch(node_features={"feat": value}) for value in values]
    check_all_refused(partial(to_batch, KIND), batches, words, TypeError)


def test_what_is_no_mini_batch_is_refused() -> None:
    trees: list[Any] = [
        *[["nothing"], [], ["tensor"], ["tensor", "missing"], ["Key", 1], ["Key", float("inf"), 0, 0]],
        *[["dict", [1]], ["MiniBatch", 3], [["list"]], DEEP],
    ]
    for tree in trees:
        with pytest.raises(ValueError, match=r"is not a valid mini-batch|is not a message"):
            from_batch(answer_of([FORMAT, KIND, tree], []))
