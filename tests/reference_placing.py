"""The slow and obvious version of placing nodes in parts."""

from collections.abc import Sequence


def place_nodes(
    sources: Sequence[Sequence[int]],
    parts: Sequence[int],
    loads: Sequence[int],
    first: int,
    last: int,
    step: int,
    limit: int,
) -> list[int]:
    """Return the parts of all nodes after those of a range were placed.

    Args:
        sources: The sources of the in-edges of each node.
        parts: The part of each node, or -1.
        loads: The nodes of the range that each part has.
        first: The first node of the range.
        last: The node behind its last.
        step: How many nodes are placed together.
        limit: How many of them a part may have.
    """
    found, room = list(parts), [limit - load for load in loads]
    for start in range(first, last, step):
        place_block(sources, found, room, range(start, min(start + step, last)))
    return found


def place_block(sources: Sequence[Sequence[int]], parts: list[int], room: list[int], block: range) -> None:
    """Place some nodes."""
    for node in block:
        if parts[node] >= 0:
            room[parts[node]] += 1
    numbers = range(len(room))
    scores = {
        node: [sum(parts[source] == part for source in sources[node]) * room[part] for part in numbers]
        for node in block
    }
    placed: dict[int, int] = {}
    while True:
        wishes = []
        for node in block:
            score, part = max((score * (room[part] > 0), -part) for part, score in enumerate(scores[node]))
            if node not in placed and score > 0:
                wishes.append((-score, node, -part))
        if not wishes:
            break
        for _, node, part in sorted(wishes):
            if room[part] > 0:
                placed[node] = part
                room[part] -= 1
    others = [node for node in block if node not in placed]
    before, chosen = list(room), []
    for _ in others:
        emptiest = max(numbers, key=lambda part: (room[part], before[part], -part))
        room[emptiest] -= 1
        chosen.append(emptiest)
    for node, part in [*placed.items(), *zip(others, sorted(chosen), strict=True)]:
        parts[node] = part
