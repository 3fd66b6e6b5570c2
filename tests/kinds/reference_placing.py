"""Slow reference version of assigning nodes to parts."""

from collections.abc import Sequence


def place_nodes(
    sources: Sequence[Sequence[int]],
    parts: Sequence[int],
    loads: Sequence[int],
    first: int,
    last: int,
    limit: int,
    items: tuple[Sequence[int], Sequence[int], int] | None = None,
) -> list[int]:
    """Return the parts of all nodes after assigning those of a range one by one.

    Args:
        sources: The sources of the in-edges of each node.
        parts: The part of each node, or -1.
        loads: Number of nodes of the range in each part.
        first: The first node of the range.
        last: The node after the last node of the range.
        limit: Maximum number of nodes of the range in a part.
        items: Number of items of each node, number in each part, and the maximum number in a part.
    """
    found, room = list(parts), [limit - load for load in loads]
    counts, item_loads, item_limit = items or ([0] * (last - first), [0] * len(room), 0)
    item_room = [item_limit - load for load in item_loads]
    for node in range(first, last):
        weight = counts[node - first]
        if found[node] >= 0:
            room[found[node]] += 1
            item_room[found[node]] += weight
        by = item_room if weight else room
        fits = [own > 0 and (not weight or item_room[part] >= weight) for part, own in enumerate(room)]
        scores = [
            sum(found[source] == part for source in sources[node]) * by[part] * fits[part] for part in range(len(room))
        ]
        found[node] = max(range(len(room)), key=scores.__getitem__ if any(scores) else by.__getitem__)
        room[found[node]] -= 1
        item_room[found[node]] -= weight
    return found
