import os
import socket
import threading
from collections.abc import Iterator

import pytest

from graphfeed.channels.exchange import NOTHING, OK, STATE, Exchange
from graphfeed.channels.hub import CANCEL, CONSUMER, ENDED, LOOK, PRODUCER, WANT, WITHDRAW, Hub
from graphfeed.loader.transport.mailbox import INLINE, PREFIX, word

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(Exchange(capacity=1, limit_bytes=100))
    yield hub
    hub.close()
    hub.thread.join(10)


def call(hub: Hub, *kinds: int) -> socket.socket:
    """Connect and say something."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(10)
    try:
        sock.connect(hub.address)
    except OSError:
        sock.close()
        raise
    for kind in kinds:
        sock.send(word(kind))
    return sock


def hear(sock: socket.socket) -> int:
    """Return the kind of the next answer."""
    return int(PREFIX.unpack_from(sock.recv(1000))[0])


def test_a_message_goes_from_a_producer_to_a_consumer(hub: Hub) -> None:
    with call(hub, PRODUCER) as producer, call(hub, CONSUMER, WANT) as consumer:
        message = PREFIX.pack(INLINE, 3, 0, 0, 0, 0) + b"abc"
        producer.send(message)
        assert hear(producer) == OK
        assert consumer.recv(1000) == message


def test_questions_may_be_taken_back(hub: Hub) -> None:
    with call(hub, CONSUMER, WANT, CANCEL) as consumer, call(hub, PRODUCER) as producer:
        assert hear(consumer) == NOTHING
        producer.send(PREFIX.pack(INLINE, 3, 0, 0, 0, 0) + b"abc")
        assert hear(producer) == OK
        producer.send(PREFIX.pack(INLINE, 3, 0, 0, 0, 0) + b"def")
        producer.send(word(WITHDRAW))
        assert hear(producer) == NOTHING
        producer.send(word(ENDED))
        assert hear(producer) == OK


def test_who_says_nothing_sensible_does_no_harm(hub: Hub) -> None:
    with call(hub, 77, WANT, ENDED, 5, PRODUCER, WANT, CANCEL) as stranger, call(hub, LOOK) as looker:
        assert hear(looker) == STATE
        stranger.send(b"short")
    with call(hub, LOOK) as looker:
        assert hear(looker) == STATE


def test_it_has_no_name_in_the_file_system(hub: Hub) -> None:
    assert hub.address.startswith("\0")


def test_its_end_is_noticed_and_ends_its_thread() -> None:
    hub = Hub(Exchange(capacity=1, limit_bytes=100))
    with call(hub, LOOK) as looker:
        assert hear(looker) == STATE
        hub.close()
        assert looker.recv(1000) == b""
    hub.thread.join(10)
    assert hub.thread not in threading.enumerate()
    with pytest.raises(ConnectionRefusedError, match="refused"):
        call(hub)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_keep_it_alive() -> None:
    hub = Hub(Exchange(capacity=1, limit_bytes=100))
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        there.send(b"started")
        there.recv(1)
        os._exit(0)
    there.close()
    here.recv(7)
    hub.close()
    hub.thread.join(10)
    with pytest.raises(ConnectionRefusedError, match="refused"):
        call(hub)
    here.close()
    os.waitpid(child, 0)
