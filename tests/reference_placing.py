"""The slow and obvious version of placing nodes in parts."""

from collections.abc import Sequence


def place_nodes(
    sources: Sequence[Sequence[int]], parts: Sequence[int], loads: Sequence[int], first: int, last: int, limit: int
) -> list[int]:
    """Return the parts of all nodes after those of a range were placed, one after the other.

    Args:
        sources: The sources of the in-edges of each node.
        parts: The part of each node, or -1.
        loads: The nodes of the range that each part has.
        first: The first node of the range.
        last: The node behind its last.
        limit: How many of them a part may have.
    """
    found, room = list(parts), [limit - load for load in loads]
    for node in range(first, last):
        if found[node] >= 0:
            room[found[node]] += 1
        scores = [sum(found[source] == part for source in sources[node]) * max(own, 0) for part, own in enumerate(room)]
        found[node] = max(range(len(room)), key=scores.__getitem__ if any(scores) else room.__getitem__)
        room[found[node]] -= 1
    return found
