import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.channels.exchange import END, FAILED, OK, Exchange, Item, Peer, Reply

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 60)),
        st.tuples(st.sampled_from(["withdraw", "end"]), st.integers(0, 2), st.just(0)),
        st.tuples(st.sampled_from(["want", "cancel"]), st.integers(0, 1), st.just(0)),
    ),
    max_size=80,
)


def item(text: str, size: int = 1) -> Item:
    return Item(text.encode(), size)


def texts(replies: list[Reply]) -> list[tuple[str, int, str | None]]:
    """Return who was answered what."""
    return [(peer.name, kind, what.record.decode() if isinstance(what, Item) else what) for peer, kind, what in replies]


class Model:
    """Drives an exchange and keeps the account beside it."""

    def __init__(self) -> None:
        self.exchange = Exchange(capacity=3, limit_bytes=100, num_producers=3)
        self.producers = [self.exchange.add_producer(f"p{number}") for number in range(3)]
        self.consumers = [self.exchange.add_consumer(f"c{number}") for number in range(2)]
        self.offered: dict[Peer, str] = {}
        self.accepted: dict[Peer, list[str]] = {producer: [] for producer in self.producers}
        self.received: list[tuple[int, str]] = []
        self.told: dict[Peer, list[str]] = {consumer: [] for consumer in self.consumers}
        self.count = 0

    def act(self, action: str, who: int, size: int) -> None:
        exchange = self.exchange
        if action in ("put", "withdraw", "end"):
            producer = self.producers[who]
            if action == "put" and producer not in self.offered:
                self.offered[producer] = f"{who} {producer.epoch} {self.count}"
                self.count += 1
                exchange.put(producer, item(self.offered[producer], size))
            elif action == "withdraw":
                exchange.withdraw(producer)
                self.offered.pop(producer, None)
            elif action == "end" and producer not in self.offered:
                exchange.end(producer)
        elif action == "want" and self.consumers[who] not in exchange.waiting:
            exchange.want(self.consumers[who])
        elif action == "cancel":
            exchange.cancel(self.consumers[who])
        self.note(exchange.step())

    def note(self, replies: list[Reply]) -> None:
        for peer, kind, what in replies:
            if peer in self.accepted:
                assert kind == OK
                self.accepted[peer].append(self.offered.pop(peer))
            elif kind == END:
                self.told[peer].append(what)
            else:
                self.received.append((peer.epoch, what.record.decode()))
        assert len(self.exchange.queue) <= 3
        assert self.exchange.queued_bytes == sum(each.size for each in self.exchange.queue) <= 100


@given(ACTIONS)
def test_nothing_is_lost_doubled_reordered_or_too_much(actions: list[tuple[str, int, int]]) -> None:
    model = Model()
    for action in actions:
        model.act(*action)
    queued = [each.record.decode() for each in model.exchange.queue]
    received = [text for _, text in model.received]
    for number, producer in enumerate(model.producers):
        own = [text for text in received + queued if text.startswith(f"{number} ")]
        assert own == model.accepted[producer]
    for consumer, ends in model.told.items():
        assert ends == [str(epoch) for epoch in range(consumer.epoch)]


@given(ACTIONS)
def test_epochs_do_not_mix(actions: list[tuple[str, int, int]]) -> None:
    model = Model()
    for action in actions:
        model.act(*action)
    assert all(int(text.split()[1]) == epoch for epoch, text in model.received)


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(capacity=2, limit_bytes=10)


def test_bytes_bound_as_messages_do(exchange: Exchange) -> None:
    producers = [exchange.add_producer(name) for name in "abc"]
    for producer, size in zip(producers, (8, 8, 2), strict=True):
        exchange.put(producer, item(producer.name, size))
    assert texts(exchange.step()) == [("a", OK, None)], "and the small one does not pass the large one"
    consumer = exchange.add_consumer("x")
    exchange.want(consumer)
    assert texts(exchange.step()) == [("x", OK, "a"), ("b", OK, None), ("c", OK, None)]


def test_a_failure_is_told_to_every_consumer_after_the_messages(exchange: Exchange) -> None:
    producer = exchange.add_producer("a")
    exchange.put(producer, item("last"))
    exchange.step()
    exchange.leave(producer, "a died")
    for name in "xy":
        consumer = exchange.add_consumer(name)
        exchange.want(consumer)
        if name == "x":
            assert texts(exchange.step()) == [("x", OK, "last")]
            exchange.want(consumer)
        assert texts(exchange.step()) == [(name, FAILED, "a died")]
        exchange.want(consumer)
        assert exchange.step() == []
        exchange.cancel(consumer)


def test_one_that_has_ended_the_epoch_may_go_without_a_word(exchange: Exchange) -> None:
    producer = exchange.add_producer("a")
    exchange.end(producer)
    exchange.leave(producer, "a died")
    consumer = exchange.add_consumer("x")
    for _ in range(2):
        exchange.want(consumer)
    assert texts(exchange.step()) == [("x", END, "0")]


def test_what_a_dead_producer_offered_is_gone(exchange: Exchange) -> None:
    producer = exchange.add_producer("a")
    exchange.put(producer, item("x", 10))
    exchange.leave(producer, "a died")
    assert exchange.step() == []
    assert exchange.state()["waiting producers"] == 0


def test_without_a_last_consumer_sending_fails_until_there_is_another(exchange: Exchange) -> None:
    consumer = exchange.add_consumer("x")
    exchange.want(consumer)
    exchange.leave(consumer, "x died")
    producer = exchange.add_producer("a")
    exchange.put(producer, item("1"))
    assert texts(exchange.step()) == [("a", FAILED, "x died")]
    exchange.add_consumer("y")
    exchange.put(producer, item("2"))
    assert texts(exchange.step()) == [("a", OK, None)]


def test_what_comes_in_time_is_not_cancelled(exchange: Exchange) -> None:
    consumer, producer = exchange.add_consumer("x"), exchange.add_producer("a")
    exchange.want(consumer)
    exchange.put(producer, item("1"))
    exchange.step()
    assert not exchange.cancel(consumer)
    exchange.withdraw(producer)
    assert exchange.state()["messages received"] == 1


def test_the_state_is_counted(exchange: Exchange) -> None:
    producer = exchange.add_producer("a")
    exchange.put(producer, item("1", 4))
    exchange.step()
    exchange.put(producer, item("2", 7))
    exchange.step()
    exchange.withdraw(producer)
    assert exchange.state() == {
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
