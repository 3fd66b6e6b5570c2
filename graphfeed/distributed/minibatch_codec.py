"""Mini-batches as a JSON tree and named tensors, for machines that don't unpickle what others send."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.ops import Key
from graphfeed.storage import CSCFormatBase, SampledSubgraph

Tree: TypeAlias = Any
"""None, a bool, a number, a text, or a list that begins with the kind of what follows."""

OBJECTS = {cls.__name__: cls for cls in (MiniBatch, SampledSubgraph, CSCFormatBase)}
"""The classes that are sent, attribute by attribute."""
PLAIN = (type(None), bool, int, float, str)


def pack_minibatch(minibatch: Any) -> tuple[Tree, dict[str, torch.Tensor]]:
    """Return a mini-batch as a tree for JSON, and its tensors by their place in it.

    A tensor that occurs twice is sent once. Beside tensors there may be dicts, lists, tuples, texts, numbers, bools and
    None, at any depth.

    Raises:
        TypeError: There is something else in it; the message names the place.

    Example:
        >>> pack_minibatch(MiniBatch(seeds=torch.tensor([5])))[1]
        {'minibatch.seeds': tensor([5])}
    """
    tensors: dict[str, torch.Tensor] = {}
    names: dict[int, str] = {}
    return pack(minibatch, "minibatch", tensors, names), tensors


def pack(value: Any, place: str, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> Tree:
    """Return the tree of a value, and add its tensors to those by name; `names` has the names by a tensor's id."""

    def inside(part: Any, name: object) -> Tree:
        return pack(part, f"{place}.{name}", tensors, names)

    kind = type(value)
    if kind in PLAIN:
        return value
    dense = kind is torch.Tensor and value.layout is torch.strided and not value.is_quantized
    if dense and not value.requires_grad:
        if id(value) not in names:
            while place in tensors:
                place += "'"  # the keys 1 and "1" of one dict
            names[id(value)] = place
            tensors[place] = value
        return ["tensor", names[id(value)]]
    if kind is Key:
        return ["Key", value.seed, value.epoch, value.index]
    if kind in (list, tuple):
        return [kind.__name__, *(inside(part, number) for number, part in enumerate(value))]
    if kind is dict:
        return ["dict", *([inside(name, "key"), inside(part, name)] for name, part in value.items())]
    if OBJECTS.get(kind.__name__) is kind:
        return [kind.__name__, *([name, inside(part, name)] for name, part in vars(value).items())]
    raise TypeError(
        f"{place} is a {kind.__name__}, which a sampling server can't send: mini-batches may hold dense tensors "
        "without gradients, "
        "dicts, lists, tuples, texts, numbers and None; let the stage that adds it run behind the cut, by "
        "runs_in = graphfeed.Placement.MAIN"
    )


def unpack_minibatch(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value that was packed. Nothing is executed.

    Raises:
        ValueError: The tree is not of a mini-batch.
    """
    try:
        return unpack(tree, tensors)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"what came is no mini-batch: {type(error).__name__}: {error}") from error


def unpack(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value of a tree."""
    if not isinstance(tree, list):
        return tree
    kind, *parts = tree
    if kind in OBJECTS:
        made = OBJECTS[kind].__new__(OBJECTS[kind])
        vars(made).update((str(name), unpack(part, tensors)) for name, part in parts)
        return made
    return KINDS[kind](parts, tensors)


KINDS: dict[str, Callable[[list[Any], dict[str, torch.Tensor]], Any]] = {
    "Key": lambda parts, _: Key(*map(int, parts)),
    "dict": lambda parts, tensors: {unpack(name, tensors): unpack(part, tensors) for name, part in parts},
    "list": lambda parts, tensors: [unpack(part, tensors) for part in parts],
    "tensor": lambda parts, tensors: tensors[parts[0]],
    "tuple": lambda parts, tensors: tuple(unpack(part, tensors) for part in parts),
}
"""How to make what is not an object."""
