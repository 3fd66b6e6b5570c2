"""What lies between the processes of a channel: a bounded queue whose rules are a model's, behind a socket."""

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.channels.bounded_queue_state import (
    END,
    FAILED,
    OK,
    STATISTICS,
    BoundedQueueState,
    Item,
    Peer,
    Reply,
)
from graphfeed.channels.broker import CANCEL, END_EPOCH, GET, LOOK, WITHDRAW, Broker, control_record
from graphfeed.loader.transport.mailbox import PREFIX

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.sampled_from(["withdraw", "end"]), st.integers(0, 2), st.just(0)),
        st.tuples(st.sampled_from(["get", "cancel"]), st.integers(0, 1), st.just(0)),
    ),
    max_size=80,
)


def item(text: str, size: int = 1) -> Item:
    return Item(text.encode(), size)


def texts(replies: list[Reply]) -> list[tuple[str, int, str | None]]:
    """Return the replies as peers' names, kinds and texts."""
    return [(peer.name, kind, what.record.decode() if isinstance(what, Item) else what) for peer, kind, what in replies]


class Model:
    """Drives a state, and counts beside it what must come out."""

    def __init__(self) -> None:
        self.state = BoundedQueueState(capacity=3, limit_bytes=100, num_producers=3)
        self.producers = [self.state.add_producer(f"p{number}") for number in range(3)]
        self.consumers = [self.state.add_consumer(f"c{number}") for number in range(2)]
        self.offered: dict[Peer, str] = {}
        self.accepted: dict[Peer, list[str]] = {producer: [] for producer in self.producers}
        self.received: list[tuple[int, str]] = []
        self.ends: dict[Peer, list[str]] = {consumer: [] for consumer in self.consumers}
        self.count = 0

    def act(self, action: str, who: int, size: int) -> None:
        state = self.state
        if action in ("put", "withdraw", "end"):
            producer = self.producers[who]
            if action == "put" and producer not in self.offered:
                self.offered[producer] = f"{who} {producer.epoch} {self.count}"
                self.count += 1
                state.put(producer, item(self.offered[producer], size))
            elif action == "withdraw":
                state.withdraw(producer)
                self.offered.pop(producer, None)
            elif action == "end" and producer not in self.offered:
                state.end(producer)
        elif action == "get" and self.consumers[who] not in state.waiting:
            state.get(self.consumers[who])
        elif action == "cancel":
            state.cancel(self.consumers[who])
        self.note(state.step())

    def note(self, replies: list[Reply]) -> None:
        for peer, kind, what in replies:
            if peer in self.accepted:
                assert kind == OK
                self.accepted[peer].append(self.offered.pop(peer))
            elif kind == END:
                self.ends[peer].append(what)
            else:
                self.received.append((peer.epoch, what.record.decode()))
        assert len(self.state.queue) <= 3
        assert self.state.queued_bytes == sum(each.size for each in self.state.queue) <= 100


@given(ACTIONS)
def test_nothing_is_lost_doubled_reordered_or_too_much_and_epochs_do_not_mix(
    actions: list[tuple[str, int, int]],
) -> None:
    model = Model()
    for action in actions:
        model.act(*action)
    queued = [each.record.decode() for each in model.state.queue]
    received = [text for _, text in model.received]
    for number, producer in enumerate(model.producers):
        own = [text for text in received + queued if text.startswith(f"{number} ")]
        assert own == model.accepted[producer]
    for consumer, ends in model.ends.items():
        assert ends == [str(epoch) for epoch in range(consumer.epoch)]
    assert all(int(text.split()[1]) == epoch for epoch, text in model.received)


@pytest.fixture
def state() -> BoundedQueueState:
    return BoundedQueueState(capacity=2, limit_bytes=10)


def test_bytes_bound_as_messages_do(state: BoundedQueueState) -> None:
    producers = [state.add_producer(name) for name in "abc"]
    for producer, size in zip(producers, (8, 8, 2), strict=True):
        state.put(producer, item(producer.name, size))
    assert texts(state.step()) == [("a", OK, None)], "and the small one does not pass the large one"
    consumer = state.add_consumer("x")
    state.get(consumer)
    assert texts(state.step()) == [("x", OK, "a"), ("b", OK, None), ("c", OK, None)]


def test_a_failure_is_told_to_every_consumer_after_the_messages(state: BoundedQueueState) -> None:
    producer = state.add_producer("a")
    state.put(producer, item("last"))
    state.step()
    state.remove(producer, "a died")
    for name in "xy":
        consumer = state.add_consumer(name)
        state.get(consumer)
        if name == "x":
            assert texts(state.step()) == [("x", OK, "last")]
            state.get(consumer)
        assert texts(state.step()) == [(name, FAILED, "a died")]
        state.get(consumer)
        assert state.step() == []
        state.cancel(consumer)


def test_one_that_has_ended_the_epoch_may_go_without_a_word(state: BoundedQueueState) -> None:
    producer = state.add_producer("a")
    state.end(producer)
    state.remove(producer, "a died")
    consumer = state.add_consumer("x")
    for _ in range(2):
        state.get(consumer)
    assert texts(state.step()) == [("x", END, "0")]


def test_what_a_dead_producer_offered_is_gone(state: BoundedQueueState) -> None:
    producer = state.add_producer("a")
    state.put(producer, item("x", 10))
    state.remove(producer, "a died")
    assert state.step() == []
    assert state.statistics()["waiting producers"] == 0


def test_without_a_last_consumer_sending_fails_until_there_is_another(state: BoundedQueueState) -> None:
    consumer = state.add_consumer("x")
    state.get(consumer)
    state.remove(consumer, "x died")
    producer = state.add_producer("a")
    state.put(producer, item("1"))
    assert texts(state.step()) == [("a", FAILED, "x died")]
    state.add_consumer("y")
    state.put(producer, item("2"))
    assert texts(state.step()) == [("a", OK, None)]


def test_what_comes_in_time_is_not_cancelled(state: BoundedQueueState) -> None:
    consumer, producer = state.add_consumer("x"), state.add_producer("a")
    state.get(consumer)
    state.put(producer, item("1"))
    state.step()
    assert not state.cancel(consumer)
    state.withdraw(producer)
    assert state.statistics()["messages received"] == 1


def test_the_state_is_counted(state: BoundedQueueState) -> None:
    producer = state.add_producer("a")
    state.put(producer, item("1", 4))
    state.step()
    state.put(producer, item("2", 7))
    state.step()
    state.withdraw(producer)
    assert state.statistics() == {
        "messages": 1,
        "bytes": 4,
        "epoch": 0,
        "waiting producers": 0,
        "waiting consumers": 0,
        "messages sent": 1,
        "bytes sent": 4,
        "most messages": 1,
        "most bytes": 4,
        "send timeouts": 1,
    }


pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker(BoundedQueueState(capacity=1, limit_bytes=100))
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
    with connect(broker, 77, CANCEL, WITHDRAW, 5, END_EPOCH, GET, CANCEL) as stranger, connect(broker, LOOK) as looker:
        assert receive(looker) == STATISTICS
        stranger.send(b"short")
    with connect(broker, LOOK) as looker:
        assert receive(looker) == STATISTICS


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_keep_it_alive() -> None:
    broker = Broker(BoundedQueueState(capacity=1, limit_bytes=100))
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
