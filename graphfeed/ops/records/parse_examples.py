"""Parse the features of `tf.train.Example` messages into columns."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import bounds, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import align, as_bytes
from graphfeed.ops.records.example_layout import ALIGNMENT, KINDS, PLACES, ExampleLayout

FINE, MALFORMED, KIND, LENGTH, WIDTH, DOUBLE, MISSING = range(7)


class ExampleProblem(NamedTuple):
    """An error in a record."""

    record: int
    """Index of the record."""
    place: int
    """Position of the error in the data, in bytes."""
    text: str


def parse_examples(
    data: torch.Tensor,
    starts: torch.Tensor,
    sizes: torch.Tensor,
    layout: ExampleLayout,
    out: torch.Tensor,
    defaults: Mapping[str, torch.Tensor] | None = None,
) -> ExampleProblem | None:
    """Parse the features of each record into its row. Returns the error of the first invalid record, or None.

    Features that are not in the layout are skipped. Any input is safe: malformed bytes result in an error.

    Args:
        data: uint8, shape (bytes,).
        starts, sizes: int64: the start and size of each record.
        layout: The features to read.
        out: The target of `layout.buffer_bytes(len(starts))` bytes, uint8, contiguous; see `layout.columns`.
        defaults: Values for records without a feature, by name, with the dtype and the size of a row. A feature without
            a default must be present in all records.

    Raises:
        ValueError: A record exceeds the data, or `out` or a default has a wrong size.

    Example:
        >>> layout = ExampleLayout(["id"], ["int64"], counts=[1], widths=[8])
        >>> data = torch.tensor(list(bytes.fromhex("0a0d0a0b0a02696412051a030a0105")), dtype=torch.uint8)
        >>> out = torch.zeros(layout.buffer_bytes(1), dtype=torch.uint8)
        >>> parse_examples(data, torch.tensor([0]), torch.tensor([len(data)]), layout, out)  # the id of one row is 5
        >>> layout.columns(out, 1)["id"].flatten().tolist()
        [5]
    """
    check_example_places(data, starts, sizes)
    rows = len(starts)
    check_out(out, layout.buffer_bytes(rows))
    features, problem = len(layout.names), torch.zeros(5, dtype=torch.int64, device="cpu")
    module = kernels("records.parse_examples", data, starts=starts, sizes=sizes, out=out)
    # The expected successor of each feature, which kernels try first and update, as most records have one order.
    follower = (torch.arange(features + 1, device="cpu") + 1) % (features + 1)
    module.parse_examples(
        data.contiguous(), starts.contiguous(), sizes.contiguous(), module.Layout(*layout.kernel_arguments(rows)),
        module.Defaults(*lay_out_defaults(layout, defaults or {})), out, out.numpy().view(np.int64),
        module.State(torch.full((features,), -1, device="cpu"), follower, problem),
    )  # fmt: skip
    return None if problem[0] == FINE else word_problem(problem.tolist(), layout)


def check_example_places(data: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor) -> None:
    """Raise unless all records are within the data."""
    check_vector("data", data, (torch.uint8,))
    check_vector("starts", starts, (torch.int64,))
    check_vector("sizes", sizes, (torch.int64,))
    if len(sizes) != len(starts):
        raise ValueError(f"starts and sizes must be equally long, but have {len(starts)} and {len(sizes)} values")
    if len(starts) == 0:
        return
    # Don't add starts and sizes: the sum may overflow int64.
    if bounds(starts)[0] < 0 or bounds(sizes)[0] < 0 or bool((sizes > len(data) - starts).any()):
        raise ValueError(f"each record must be inside the {len(data)} bytes of data, but one does not")


def check_out(out: torch.Tensor, size: int) -> None:
    check_vector("out", out, (torch.uint8,))
    if not out.is_contiguous():
        raise ValueError(f"out must be contiguous, but has the stride {out.stride(0)}")
    if len(out) != size or out.data_ptr() % 8:
        raise ValueError(f"out must have {size} bytes at an address that is a multiple of 8, but has {len(out)}")


def lay_out_defaults(
    layout: ExampleLayout, defaults: Mapping[str, torch.Tensor]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all defaults, and the offset of each feature's default; -1 without a default."""
    starts = np.full(len(layout.names), -1, dtype=np.int64)
    parts = [np.zeros(8, dtype=np.uint8)]
    at = 8
    for feature, name in enumerate(layout.names):
        if name not in defaults:
            continue
        content = as_bytes(defaults[name])
        if len(content) != layout.counts[feature] * layout.widths[feature]:
            raise ValueError(f"the default of {name!r} must have the size of a row, but has {len(content)} bytes")
        starts[feature], size = at, align(len(content), ALIGNMENT)
        parts += [content, np.zeros(size - len(content), dtype=np.uint8)]
        at += size
    return np.concatenate(parts), starts


def word_problem(problem: list[int], layout: ExampleLayout) -> ExampleProblem:
    """Convert the problem that a kernel reports to a message."""
    code, record, place, feature, found = problem
    if feature < 0:
        return ExampleProblem(record, place, "the content is not a tf.train.Example")
    name, kind, count = layout.names[feature], layout.kinds[feature], layout.counts[feature]
    kinds = {number: text for text, number in KINDS.items()}
    advice = "pad them when writing the file, or omit the feature"
    texts = {
        MALFORMED: "is malformed",
        KIND: f"is a list of {kinds.get(found)}, and not of {'bytes' if kind == PLACES else kind}",
        LENGTH: f"has {found} values, and not {count}; all records must have the same number: {advice}",
        WIDTH: f"has {found} bytes, and not {layout.widths[feature]}; all values must have the same length: {advice}",
        DOUBLE: "occurs twice",
        MISSING: "is missing",
    }
    return ExampleProblem(record, place, f"feature {name!r} {texts[code]}")
