"""Mini-batches as a JSON tree and named tensors, for machines that don't unpickle what others send."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes import MiniBatch
from graphfeed.ops import Key
from graphfeed.storage import CSCFormatBase, SampledSubgraph

Tree: TypeAlias = Any
"""None, a bool, a number, a text, or a list that begins with the type of what follows."""

OBJECTS = {cls.__name__: cls for cls in (MiniBatch, SampledSubgraph, CSCFormatBase)}
"""The classes that are sent, attribute by attribute."""
SCALARS = frozenset((type(None), bool, int, float, str))
Path: TypeAlias = "tuple[Path, object] | None"
"""The name of a value, behind the path of what it is in; a text, only where one is needed."""


def pack_value(value: Any) -> tuple[Tree, dict[str, torch.Tensor]]:
    """Return a mini-batch as a tree for JSON, and its tensors by their numbers in it."""
    tensors: dict[str, torch.Tensor] = {}
    return pack(value, (None, "minibatch"), tensors, {}), tensors


def pack(value: Any, path: Path, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> Tree:
    """Return the tree of a value, and add its tensors to those by name; `names` has the names by a tensor's id."""
    cls = type(value)
    # Exact types, as a subclass would come back as its base.
    if cls in SCALARS:
        return value
    if cls is torch.Tensor and value.layout is torch.strided and not (value.requires_grad or value.is_quantized):
        # A tensor that occurs twice is sent once.
        name = names.get(id(value))
        if name is None:
            name = names[id(value)] = str(len(tensors))
            tensors[name] = value
        return ["tensor", name]
    if cls is dict:
        keys = [pack(key, (path, "key"), tensors, names) for key in value]
        parts = [pack(part, (path, key), tensors, names) for key, part in value.items()]
        return ["dict", *zip(keys, parts, strict=True)]
    if OBJECTS.get(cls.__name__) is cls:
        return [cls.__name__, *[(key, pack(part, (path, key), tensors, names)) for key, part in vars(value).items()]]
    if cls is list or cls is tuple:
        return [cls.__name__, *[pack(part, (path, key), tensors, names) for key, part in enumerate(value)]]
    if cls is Key:
        return ["Key", value.seed, value.epoch, value.index]
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.insert(0, str(step))
    raise TypeError(
        f"{'.'.join(steps)} is a {cls.__name__}, which a sampling server can't send: mini-batches may hold "
        "dense tensors without gradients, dicts, lists, tuples, texts, numbers and None; let the stage that adds it "
        "run behind the cut, by runs_in = graphfeed.Placement.MAIN"
    )


def unpack_value(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    try:
        return unpack(tree, tensors)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"what came is no mini-batch: {type(error).__name__}: {error}") from error


def unpack(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value of a tree."""
    if not isinstance(tree, list):
        return tree
    word, *parts = tree
    if word in OBJECTS:
        # Nothing is executed, no constructor either.
        made = OBJECTS[word].__new__(OBJECTS[word])
        vars(made).update((str(name), unpack(part, tensors)) for name, part in parts)
        return made
    return UNPACK[word](parts, tensors)


UNPACK: dict[str, Callable[[list[Any], dict[str, torch.Tensor]], Any]] = {
    "Key": lambda parts, _: Key(*map(int, parts)),
    "dict": lambda parts, tensors: {unpack(name, tensors): unpack(part, tensors) for name, part in parts},
    "list": lambda parts, tensors: [unpack(part, tensors) for part in parts],
    "tensor": lambda parts, tensors: tensors[parts[0]],
    "tuple": lambda parts, tensors: tuple(unpack(part, tensors) for part in parts),
}
"""How to make what is not an object."""
