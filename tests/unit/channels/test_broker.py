"""The bounded queue of a channel, and the socket of its broker."""

import os
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from graphfeed.channels.bounded_queue import END, FAILED, NOTHING, OK, BoundedQueue, Client, Item
from graphfeed.channels.broker import END_EPOCH, GET, LOOK, STOP, Broker, control_record
from graphfeed.loader.transport import PREFIX
from tests.stand_ins.forked import in_child


def item(text: str, size: int = 1) -> Item:
    return Item(text.encode(), size)


class Replies(list[tuple[int, int, str]]):
    """Collects the replies of clients as processes, kinds and strings."""

    def client(self, process: int) -> Client:
        def reply(kind: int, what: Any) -> bool:
            self.append((process, kind, what.record.decode() if isinstance(what, Item) else what))
            return True

        return Client(process, reply)

    def take(self, queue: BoundedQueue) -> list[tuple[int, int, str]]:
        """Return what has been replied, once the queue has done what it can."""
        queue.step()
        taken = list(self)
        self.clear()
        return taken


@pytest.fixture
def queue() -> BoundedQueue:
    return BoundedQueue(capacity=2, limit_bytes=10)


@pytest.fixture
def replies() -> Replies:
    return Replies()


def test_a_failure_is_told_to_every_consumer_after_the_messages(queue: BoundedQueue, replies: Replies) -> None:
    producer = replies.client(1)
    queue.put(producer, item("last"))
    assert replies.take(queue) == [(1, OK, "")]
    queue.remove(producer, "died")
    for process in (7, 8):
        consumer = replies.client(process)
        queue.get(consumer)
        if process == 7:
            assert replies.take(queue) == [(7, OK, "last")]
            queue.get(consumer)
        assert replies.take(queue) == [(process, FAILED, "producer process 1 died")]
        queue.get(consumer)
        assert replies.take(queue) == []
        queue.stop(consumer)
        assert replies.take(queue) == [(process, NOTHING, "")]


def test_one_that_has_ended_the_epoch_may_go_unless_it_waits_to_send_more(replies: Replies) -> None:
    queue = BoundedQueue(capacity=2, limit_bytes=10, num_producers=3)
    quiet, waiting, last, consumer = map(replies.client, (1, 2, 3, 7))
    for producer in (quiet, waiting):
        queue.end(producer)
    queue.put(waiting, item("of the next epoch"))
    for producer in (quiet, waiting):
        queue.remove(producer, "died")
    queue.get(consumer)
    assert replies.take(queue) == [(7, FAILED, "producer process 2 died")]
    queue.end(last)
    queue.get(consumer)
    assert replies.take(queue) == [(7, END, "epoch 0 is over")]
    queue.get(consumer)
    assert replies.take(queue) == []


def test_a_consumer_that_dies_while_it_waits_takes_no_message_along(queue: BoundedQueue, replies: Replies) -> None:
    queue.get(Client(6, lambda *_: False))
    queue.put(replies.client(1), item("x", 4))
    queue.get(replies.client(7))
    assert replies.take(queue) == [(1, OK, ""), (7, OK, "x")]
    assert queue.statistics()["messages received"] == 1


def test_without_a_last_consumer_sending_fails_until_there_is_another(queue: BoundedQueue, replies: Replies) -> None:
    first, last, producer = map(replies.client, (6, 7, 1))
    for consumer in (first, last):
        queue.get(consumer)
    queue.remove(first, "died")
    queue.put(producer, item("0"))
    assert replies.take(queue) == [(1, OK, ""), (7, OK, "0")]
    queue.remove(last, "died")
    queue.put(producer, item("1"))
    assert replies.take(queue) == [(1, FAILED, "consumer process 7 died")]
    queue.get(replies.client(8))
    queue.put(producer, item("2"))
    assert replies.take(queue) == [(1, OK, ""), (8, OK, "2")]


pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BoundedQueue(capacity=1, limit_bytes=100))
    yield broker
    broker.close()
    broker.thread.join(10)


def connect(broker: Broker, *kinds: int) -> socket.socket:
    """Connect and send requests."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(10)
    try:
        sock.connect(broker.address)
    except OSError:
        sock.close()
        raise
    for kind in kinds:
        sock.send(control_record(kind))
    return sock


def receive(sock: socket.socket) -> int:
    """Return the kind of the next answer."""
    return int(PREFIX.unpack_from(sock.recv(1000))[0])


def test_who_says_nothing_sensible_does_no_harm(broker: Broker) -> None:
    with connect(broker, 77, STOP, 5, END_EPOCH, GET, GET, STOP) as stranger, connect(broker, LOOK) as looker:
        assert receive(looker) == OK
        stranger.send(b"short")
    with connect(broker, LOOK) as looker:
        assert receive(looker) == OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_processes_of_other_users_get_no_answer(broker: Broker) -> None:
    def ask(user: int) -> str:
        os.setuid(user)
        try:
            with connect(broker, LOOK) as sock:
                return f"{len(sock.recv(1000)) > 0}"
        except (BrokenPipeError, ConnectionResetError):
            return "False"

    assert [in_child(partial(ask, user)) for user in (0, 54321, 0)] == ["True", "False", "True"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_keep_it_alive() -> None:
    broker = Broker(BoundedQueue(capacity=1, limit_bytes=100))
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        there.send(b"started")
        there.recv(1)
        os._exit(0)
    there.close()
    here.recv(7)
    broker.close()
    broker.thread.join(10)
    with pytest.raises(ConnectionRefusedError, match="refused"):
        connect(broker)
    here.close()
    os.waitpid(child, 0)
