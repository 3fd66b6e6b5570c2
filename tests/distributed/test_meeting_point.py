"""Ranks that meet at an address, or can't."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphfeed.distributed import MeetingPoint, Peers
from tests.distributed.ranks import free_port


def test_ranks_get_the_same_store() -> None:
    port = free_port()
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(MeetingPoint("127.0.0.1", port, rank, 2).open_store, 30) for rank in range(2)]
        first, second = (future.result() for future in futures)
    first.set("word", "from rank 0")
    assert second.get("word") == b"from rank 0"


def check_no_meeting(rank: int, port: int, reason: str) -> None:
    """Fail unless a rank that can't meet the other one says where it tried."""
    peers = Peers(start_timeout=0.5, meeting=MeetingPoint("127.0.0.1", port, rank, 2))
    peers.join()
    with pytest.raises(OSError, match=f"rank 0 {reason}"):
        peers.ask("graph 0", {}, {1 - rank: {}})


def test_an_address_where_nobody_listens_is_named(no_leaks: None) -> None:
    port = free_port()
    check_no_meeting(1, port, rf"did not listen at 127\.0\.0\.1:{port} within 0\.5 s")


def test_an_address_that_others_use_is_named() -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        port = server.getsockname()[1]
        check_no_meeting(0, port, rf"can't listen at 127\.0\.0\.1:{port}.*choose another port")
