"""Who may send and who receives what, on a bounded queue of several producers and consumers: rules, no sockets."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

OK, NOTHING, END, FAILED, STATE = range(32, 37)
"""What a peer is answered: done; nothing for you; the epoch is over; somebody failed; what you asked for."""


@dataclass(eq=False)
class Item:
    """A message in the queue."""

    record: bytes
    size: int
    memory: Any = None
    """Keeps what the record refers to."""


@dataclass(eq=False)
class Peer:
    """A producer or a consumer."""

    name: str
    epoch: int = 0
    """The one that it is in: a producer's grows with its own end marks, a consumer's with those it was told of."""
    sent: int = 0
    """Messages of a producer since its last end mark."""
    offer: Item | None = None
    told: int = 0
    """Failures that a consumer knows of."""


Reply = tuple[Peer, int, Any]


@dataclass
class Exchange:
    """The state of a channel.

    Calls change the state; `step` then returns what has become possible, as replies to peers.
    """

    capacity: int
    limit_bytes: int
    num_producers: int = 1
    epoch: int = 0
    queue: deque[Item] = field(default_factory=deque)
    queued_bytes: int = 0
    offering: list[Peer] = field(default_factory=list)
    """Producers that wait for room, longest first."""
    waiting: list[Peer] = field(default_factory=list)
    """Consumers that wait for a message, longest first."""
    consumers: list[Peer] = field(default_factory=list)
    ended: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    orphaned: str | None = None
    """Says which consumer died, when it was the last one."""
    counts: Counter[str] = field(default_factory=Counter)

    def add_producer(self, name: str) -> Peer:
        """Let somebody send, from the current epoch on."""
        return Peer(name, self.epoch)

    def add_consumer(self, name: str) -> Peer:
        """Let somebody receive; it is told the end of every epoch, also of those before it came."""
        self.orphaned = None
        self.consumers.append(Peer(name))
        return self.consumers[-1]

    def put(self, producer: Peer, item: Item) -> None:
        """Offer a message; the producer is answered when it is in the queue."""
        producer.offer = item
        self.offering.append(producer)

    def withdraw(self, producer: Peer) -> None:
        """Take back an offer that waits for room; one that is in the queue already stays there."""
        if producer.offer is not None:
            producer.offer = None
            self.offering.remove(producer)
            self.counts["send timeouts"] += 1

    def end(self, producer: Peer) -> None:
        """Note that a producer sends no more in its epoch."""
        self.ended[producer.epoch] += 1
        producer.epoch += 1
        producer.sent = 0

    def want(self, consumer: Peer) -> None:
        """Ask for a message."""
        self.waiting.append(consumer)

    def cancel(self, consumer: Peer) -> bool:
        """Stop asking; return whether nothing was on its way yet."""
        if consumer not in self.waiting:
            return False
        self.waiting.remove(consumer)
        self.counts["receive timeouts"] += 1
        return True

    def leave(self, peer: Peer, failure: str | None) -> None:
        """Forget a peer; a failure is told to every consumer, after all messages that are in the queue."""
        if peer in self.consumers:
            self.consumers.remove(peer)
            if peer in self.waiting:
                self.waiting.remove(peer)
            if failure and not self.consumers:
                self.orphaned = failure
            return
        in_epoch = peer.sent > 0 or peer.offer is not None
        if peer.offer is not None:
            self.offering.remove(peer)
        if failure and (in_epoch or peer.epoch <= self.epoch):
            self.failures.append(failure)

    def clear(self) -> None:
        """Drop all messages."""
        self.queue.clear()
        for producer in self.offering:
            producer.offer = None
        self.offering.clear()

    def step(self) -> list[Reply]:
        """Do all that has become possible."""
        replies: list[Reply] = []
        while self._admit(replies) or self._serve(replies) or self._turn_epoch():
            pass
        return replies

    def state(self) -> dict[str, int]:
        """Return what is in the queue, and counts of what has happened."""
        return {
            "messages": len(self.queue),
            "bytes": self.queued_bytes,
            "epoch": self.epoch,
            "waiting producers": len(self.offering),
            "waiting consumers": len(self.waiting),
            **self.counts,
        }

    def _admit(self, replies: list[Reply]) -> bool:
        for producer in self.offering:
            item = producer.offer
            assert item is not None
            if self.orphaned is not None:
                replies.append((producer, FAILED, self.orphaned))
            elif producer.epoch > self.epoch:
                continue  # it is ahead; its messages may not take the room of those that are still in this epoch
            elif len(self.queue) >= self.capacity or self.queued_bytes + item.size > self.limit_bytes:
                return False  # smaller ones behind it may not pass, or it would never get in
            else:
                self.queue.append(item)
                self.queued_bytes += item.size
                producer.sent += 1
                self.counts["messages sent"] += 1
                self.counts["bytes sent"] += item.size
                self.counts["most messages"] = max(self.counts["most messages"], len(self.queue))
                self.counts["most bytes"] = max(self.counts["most bytes"], self.queued_bytes)
                replies.append((producer, OK, None))
            producer.offer = None
            self.offering.remove(producer)
            return True
        return False

    def _serve(self, replies: list[Reply]) -> bool:
        for consumer in self.waiting:
            if consumer.epoch < self.epoch:
                replies.append((consumer, END, str(consumer.epoch)))
                consumer.epoch += 1
            elif self.queue:
                item = self.queue.popleft()
                self.queued_bytes -= item.size
                self.counts["messages received"] += 1
                replies.append((consumer, OK, item))
            elif consumer.told < len(self.failures):
                replies.append((consumer, FAILED, self.failures[consumer.told]))
                consumer.told += 1
            else:
                continue
            self.waiting.remove(consumer)
            return True
        return False

    def _turn_epoch(self) -> bool:
        if self.queue or self.ended[self.epoch] < self.num_producers:
            return False
        del self.ended[self.epoch]
        self.epoch += 1
        return True
