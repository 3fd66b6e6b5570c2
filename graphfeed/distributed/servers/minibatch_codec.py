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
PLAIN = frozenset((type(None), bool, int, float, str))
Place: TypeAlias = "tuple[Place, object] | None"
"""The name of a value, behind the place of what it is in; a text, only where one is needed."""


def pack_minibatch(minibatch: Any) -> tuple[Tree, dict[str, torch.Tensor]]:
    """Return a mini-batch as a tree for JSON, and its tensors by their numbers in it.

    A tensor that occurs twice is sent once. Beside tensors there may be dicts, lists, tuples, texts, numbers, bools and
    None, at any depth.

    Raises:
        TypeError: There is something else in it; the message names the place.

    Example:
        >>> pack_minibatch(MiniBatch(seeds=torch.tensor([5])))[1]
        {'0': tensor([5])}
    """
    tensors: dict[str, torch.Tensor] = {}
    return pack(minibatch, (None, "minibatch"), tensors, {}), tensors


def pack(value: Any, place: Place, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> Tree:
    """Return the tree of a value, and add its tensors to those by name; `names` has the names by a tensor's id."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is torch.Tensor and value.layout is torch.strided and not (value.requires_grad or value.is_quantized):
        name = names.get(id(value))
        if name is None:
            name = names[id(value)] = str(len(tensors))
            tensors[name] = value
        return ["tensor", name]
    if kind is dict:
        keys = [pack(key, (place, "key"), tensors, names) for key in value]
        parts = [pack(part, (place, key), tensors, names) for key, part in value.items()]
        return ["dict", *zip(keys, parts, strict=True)]
    if OBJECTS.get(kind.__name__) is kind:
        return [kind.__name__, *[(key, pack(part, (place, key), tensors, names)) for key, part in vars(value).items()]]
    if kind is list or kind is tuple:
        return [kind.__name__, *[pack(part, (place, key), tensors, names) for key, part in enumerate(value)]]
    if kind is Key:
        return ["Key", value.seed, value.epoch, value.index]
    raise TypeError(
        f"{describe(place)} is a {kind.__name__}, which a sampling server can't send: mini-batches may hold dense "
        "tensors without gradients, "
        "dicts, lists, tuples, texts, numbers and None; let the stage that adds it run behind the cut, by "
        "runs_in = graphfeed.Placement.MAIN"
    )


def describe(place: Place) -> str:
    """Return a place as text."""
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(str(name))
    return ".".join(reversed(names))


def unpack_minibatch(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value that was packed. Nothing is executed.

    Raises:
        ValueError: The tree is not of a mini-batch.
    """
    try:
        return unpack(tree, tensors)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
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
