import os
import socket
import threading
from collections.abc import Iterator

import pytest

from graphfeed.channels.bounded_queue_state import NOTHING, OK, STATISTICS, BoundedQueueState
from graphfeed.channels.broker import CANCEL, END_EPOCH, GET, LOOK, WITHDRAW, Broker, control_record
from graphfeed.loader.transport.message import INLINE, PREFIX, Record

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


def test_a_message_goes_from_a_producer_to_a_consumer(broker: Broker) -> None:
    with connect(broker) as producer, connect(broker, GET) as consumer:
        message = Record(INLINE, 3).pack() + b"abc"
        producer.send(message)
        assert receive(producer) == OK
        assert consumer.recv(1000) == message


def test_questions_may_be_taken_back(broker: Broker) -> None:
    with connect(broker, GET, CANCEL) as consumer, connect(broker) as producer:
        assert receive(consumer) == NOTHING
        producer.send(Record(INLINE, 3).pack() + b"abc")
        assert receive(producer) == OK
        producer.send(Record(INLINE, 3).pack() + b"def")
        producer.send(control_record(WITHDRAW))
        assert receive(producer) == NOTHING
        producer.send(control_record(END_EPOCH))
        assert receive(producer) == OK


def test_who_says_nothing_sensible_does_no_harm(broker: Broker) -> None:
    with connect(broker, 77, CANCEL, WITHDRAW, 5, END_EPOCH, GET, CANCEL) as stranger, connect(broker, LOOK) as looker:
        assert receive(looker) == STATISTICS
        stranger.send(b"short")
    with connect(broker, LOOK) as looker:
        assert receive(looker) == STATISTICS


def test_it_has_no_name_in_the_file_system(broker: Broker) -> None:
    assert broker.address.startswith("\0")


def test_its_end_is_noticed_and_ends_its_thread() -> None:
    broker = Broker(BoundedQueueState(capacity=1, limit_bytes=100))
    with connect(broker, LOOK) as looker:
        assert receive(looker) == STATISTICS
        broker.close()
        assert looker.recv(1000) == b""
    broker.thread.join(10)
    assert broker.thread not in threading.enumerate()
    with pytest.raises(ConnectionRefusedError, match="refused"):
        connect(broker)


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
