"""Ranks that find each other and exchange tensors.

`Peers` are the ranks of the process group, or those that meet at a `MeetingPoint`: each asks the others and answers
them, in a thread of its own. `ask_owners` sends each question to the rank that owns its id, and `merge_rows` and
`merge_columns` put the answers in order. What is exchanged is decided by `graphfeed.distributed.cooperative`, and by
graphs and features in parts.
"""

from graphfeed.distributed.ranks.exchange import (
    COUNTS,
    ask_owners,
    merge_columns,
    merge_rows,
    place_rows,
    starts_of,
)
from graphfeed.distributed.ranks.meeting_point import MeetingPoint
from graphfeed.distributed.ranks.messages import Tensors, Traffic
from graphfeed.distributed.ranks.peers import Answer, Peers, RankLostError, find_place, peers_at, shared_peers

__all__ = [
    "COUNTS", "Answer", "MeetingPoint", "Peers", "RankLostError", "Tensors", "Traffic", "ask_owners",
    "find_place", "merge_columns", "merge_rows", "peers_at", "place_rows", "shared_peers", "starts_of",
]  # fmt: skip
