"""Names of node types, edge types and seed types, as strings and as tuples; and dicts by type."""

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import torch

from graphfeed.ops.arguments import brief, checked, kind_of

Value = TypeVar("Value")

CANONICAL_ETYPE_DELIMITER = ":"
"""Separates the parts of an edge type, 'source:relation:destination'."""
ONLY_NODE_TYPE = "_N"
"""Node type that `convert_to_hetero` uses, as in GraphBolt."""
NodeType: TypeAlias = str | None
"""The name of a node type. In dicts by type, None is the only type of a graph without types."""
EdgeType: TypeAlias = str | None
"""The name of an edge type, "source:relation:destination"; None as for node types."""


def etype_str_to_tuple(c_etype: str | tuple[str, str, str]) -> tuple[str, str, str]:
    """Return an edge type as a tuple; a tuple is returned unchanged.

    Raises:
        ValueError: The number of parts is not three.

    Example:
        >>> etype_str_to_tuple("user:likes:item")
        ('user', 'likes', 'item')
    """
    if not isinstance(c_etype, (str, tuple)):
        raise TypeError(f"c_etype must be a string or a tuple of three, but is {brief(c_etype)}")
    parts = c_etype if isinstance(c_etype, tuple) else tuple(c_etype.split(CANONICAL_ETYPE_DELIMITER))
    check_type_parts("c_etype", c_etype, len(parts))
    source, relation, destination = parts
    return source, relation, destination


def etype_tuple_to_str(c_etype: tuple[str, str, str]) -> str:
    """Return an edge type as a string.

    Raises:
        ValueError: The number of parts is not three, or a part contains the separator ":".

    Example:
        >>> etype_tuple_to_str(("user", "likes", "item"))
        'user:likes:item'
    """
    if not isinstance(c_etype, tuple):
        raise TypeError(f"c_etype must be a tuple (source, relation, destination), but is {brief(c_etype)}")
    check_type_parts("c_etype", c_etype, len(c_etype))
    if not all(isinstance(part, str) for part in c_etype):
        raise TypeError(f"c_etype must be a tuple of three strings, but is {brief(c_etype)}")
    if any(CANONICAL_ETYPE_DELIMITER in part for part in c_etype):
        raise ValueError(f"c_etype has {CANONICAL_ETYPE_DELIMITER!r} in a part, {brief(c_etype)}; rename the type")
    return CANONICAL_ETYPE_DELIMITER.join(c_etype)


def type_name(given: Any) -> Any:
    """Return the name of a type: an edge type given as a tuple is joined, anything else is returned unchanged.

    Example:
        >>> type_name(("user", "likes", "item")), type_name("user")
        ('user:likes:item', 'user')
    """
    return etype_tuple_to_str(given) if isinstance(given, tuple) else given


@overload
def ends_of(edge_type: str) -> tuple[str, str]: ...


@overload
def ends_of(edge_type: EdgeType) -> tuple[NodeType, NodeType]: ...


def ends_of(edge_type: EdgeType) -> tuple[NodeType, NodeType]:
    """Return the source and destination node types of an edge type; both None for a graph without types.

    Example:
        >>> ends_of("user:likes:item"), ends_of(None)
        (('user', 'item'), (None, None))
    """
    if edge_type is None:
        return None, None
    source, _, destination = etype_str_to_tuple(edge_type)
    return source, destination


def has_ends(edge_type: str, node_types: Container[Any]) -> bool:
    """Return whether a string is an edge type "source:relation:destination" with known node types."""
    parts = edge_type.split(CANONICAL_ETYPE_DELIMITER)
    return len(parts) == 3 and parts[0] in node_types and parts[2] in node_types


def first_ids(num_nodes: Mapping[Any, int] | int) -> dict[Any, int]:
    """Return the first id of each node type in a graph, from the number of nodes of each type.

    Example:
        >>> first_ids({"user": 3, "item": 2}), first_ids(5)
        ({'user': 0, 'item': 3}, {None: 0})
    """
    sizes = to_type_dict(num_nodes)
    return dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))


def to_type_dict(values: Any) -> dict[Any, Any]:
    """Return a dict by type; the value of a graph without types, which is not a dict, gets the key None.

    Example:
        >>> to_type_dict(3), to_type_dict({"user": 3})
        ({None: 3}, {'user': 3})
    """
    return dict(values) if isinstance(values, Mapping) else {None: values}


def match_types(name: str, given: Any, num_nodes: Mapping[Any, int] | int) -> dict[Any, Any]:
    """Return values per node as by `to_type_dict`. Raises a TypeError unless they are by type like `num_nodes`."""
    by_type, typed = to_type_dict(given), isinstance(num_nodes, Mapping)
    if (None in by_type) == typed:
        wanted = "a dict by node type" if typed else "a tensor"
        raise TypeError(f"{name} must be {wanted} for this graph, but is {kind_of(given)}")
    return by_type


def from_type_dict(values: Any) -> Any:
    """Undo `to_type_dict`: return the value of the key None if it exists, else the dict.

    Example:
        >>> from_type_dict({None: 3}), from_type_dict({"user": 3})
        (3, {'user': 3})
    """
    return values.get(None, values)


def split_by_type(values: torch.Tensor, num_nodes: Mapping[Any, int] | int) -> dict[Any, torch.Tensor]:
    """Split values of all nodes by node type, given the number of nodes of each type; without types, the key is None.

    Example:
        >>> split_by_type(torch.tensor([4, 5, 6]), {"user": 2, "item": 1})
        {'user': tensor([4, 5]), 'item': tensor([6])}
    """
    sizes = to_type_dict(num_nodes)
    return dict(zip(sizes, torch.split(values, list(sizes.values())), strict=True))


def with_all_types(values: Mapping[Any, Any], types: Iterable[Any]) -> dict[Any, Any]:
    """Return the tensors of the given types, in their order, with empty tensors for missing types."""
    some = next(iter(values.values()), torch.empty(0, dtype=torch.int64, device="cpu"))
    empty = some[:0]  # of the dtype and device of the others
    return {name: values.get(name, empty) for name in types}


def by_type_name(values: Mapping[Any, Value]) -> dict[str, Value]:
    """Return a dict by type in the same order, with edge types given as tuples converted to strings."""
    return {type_name(name): value for name, value in values.items()}


def check_type_parts(name: str, value: object, count: int) -> None:
    if count != 3:
        raise ValueError(f"{name} must have three parts, 'source:relation:destination', but is {brief(value)}")


@checked
def seed_type_str_to_ntypes(seed_type: str, seed_size: int) -> list[str]:
    """Return the node type of each column of edge or hyperlink seeds.

    If the type has as many parts as the seeds have columns, each part is a node type. For seeds with three columns, the
    relation of an edge type thus counts as a node type, which the graph then reports as unknown.

    Args:
        seed_type: For two columns, an edge type "source:relation:destination"; otherwise, node types joined by ":".

    Raises:
        ValueError: The numbers of node types in the name and of columns differ.

    Example:
        >>> seed_type_str_to_ntypes("user:likes:item", 2), seed_type_str_to_ntypes("user:item:shop", 3)
        (['user', 'item'], ['user', 'item', 'shop'])
    """
    parts = seed_type.split(CANONICAL_ETYPE_DELIMITER)
    if len(parts) == seed_size:
        return parts
    if seed_size == 2 and len(parts) == 3:
        return [parts[0], parts[2]]
    raise ValueError(
        f"seeds of type {seed_type!r} have {seed_size} columns; name an edge type 'source:relation:destination', "
        "and a hyperlink by its node types joined by ':'"
    )


def convert_to_hetero(item: Any) -> dict[str, Any]:
    """Return a value as a dict by node type, with a single type."""
    return {ONLY_NODE_TYPE: item}


def revert_to_homo(d: Any) -> Any:
    """Return the value from a dict of `convert_to_hetero`; any other value is returned unchanged."""
    return d[ONLY_NODE_TYPE] if isinstance(d, dict) and list(d) == [ONLY_NODE_TYPE] else d


class Types(NamedTuple):
    """The types of a graph as arrays for kernels."""

    ends: torch.Tensor
    """int64, shape (edge types, 2): numbers of the source and destination types of each edge type."""
    order: torch.Tensor
    """int64: numbers of the edge types in the order of their dict."""


def type_numbers(node_type_to_id: Mapping[str, int], edge_type_to_id: Mapping[str, int]) -> Types:
    # Pairs are hashable, unlike dicts. All callers share the tensors, so they must not be modified.
    return number_types(tuple(node_type_to_id.items()), tuple(edge_type_to_id.items()))


@lru_cache(maxsize=64)
def number_types(nodes: tuple[tuple[str, int], ...], edges: tuple[tuple[str, int], ...]) -> Types:
    """Return the arrays for types given as pairs of name and number."""
    numbers = dict(nodes)
    joined = [ends_of(name) for name, _ in sorted(edges, key=lambda item: item[1])]
    ends = torch.tensor([[numbers[source], numbers[end]] for source, end in joined], dtype=torch.int64, device="cpu")
    return Types(ends.reshape(-1, 2), torch.tensor([number for _, number in edges], dtype=torch.int64, device="cpu"))
