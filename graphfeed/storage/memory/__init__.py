"""Memory that processes or CUDA streams share, trees of tensors, and the codec of tensors to bytes.

Everything here works on tensors alone. What a graph or a feature puts into such memory is its own affair, in
`graphfeed.storage.graph` and `graphfeed.storage.features`.
"""

from graphfeed.storage.memory.tensor_codec import (
    DTYPE_NAMES,
    DTYPES,
    Frame,
    TensorSpec,
    decode_tensors,
    describe_tensors,
    encode_tensors,
    lay_out,
    read_frame,
    read_specs,
)

__all__ = [
    "DTYPES", "DTYPE_NAMES", "Frame", "TensorSpec", "decode_tensors", "describe_tensors", "encode_tensors", "lay_out",
    "read_frame", "read_specs",
]  # fmt: skip
