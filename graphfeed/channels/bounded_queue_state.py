"""The rules of a bounded queue with several producers and consumers: who may send, and who receives what. No I/O."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

OK, NOTHING, END, FAILED, STATISTICS = range(32, 37)
"""Replies: done; nothing was sent or received; the epoch is over; another peer failed; the statistics."""


@dataclass(eq=False)
class Item:
    """A message in the queue."""

    record: bytes
    size: int
    memory: Any = None
    """Keeps alive what the record refers to."""


@dataclass(eq=False)
class Peer:
    """A producer or a consumer."""

    name: str
    epoch: int = 0
    """The peer's epoch: a producer's grows when it ends one, a consumer's when it gets the end of one."""
    sent: int = 0
    """Messages that a producer has sent in its epoch."""
    offer: Item | None = None
    """The message that a producer waits to send."""
    failures_seen: int = 0
    """How many failures a consumer has had as replies."""


Reply = tuple[Peer, int, Any]


@dataclass
class BoundedQueueState:
    """The state of a channel: calls only change it, and then `step` does what has become possible."""

    capacity: int
    limit_bytes: int
    num_producers: int = 1
    epoch: int = 0
    queue: deque[Item] = field(default_factory=deque)
    queued_bytes: int = 0
    offering: list[Peer] = field(default_factory=list)
    """Producers that wait for room, the longest waiting first."""
    waiting: list[Peer] = field(default_factory=list)
    """Consumers that wait for a message, the longest waiting first."""
    consumers: list[Peer] = field(default_factory=list)
    ended: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    last_consumer_failure: str | None = None
    """How the last consumer failed, if no other has come since."""
    counts: Counter[str] = field(default_factory=Counter)

    def add_producer(self, name: str) -> Peer:
        return Peer(name, self.epoch)

    def add_consumer(self, name: str) -> Peer:
        self.last_consumer_failure = None
        # From epoch 0 on: it gets the end of every epoch, also of those before it came.
        self.consumers.append(Peer(name))
        return self.consumers[-1]

    def put(self, producer: Peer, item: Item) -> None:
        producer.offer = item
        self.offering.append(producer)  # the reply comes once the message is in the queue

    def withdraw(self, producer: Peer) -> None:
        if producer.offer is not None:  # otherwise it is in the queue, and stays there
            producer.offer = None
            self.offering.remove(producer)
            self.counts["send timeouts"] += 1

    def end(self, producer: Peer) -> None:
        self.ended[producer.epoch] += 1
        producer.epoch += 1
        producer.sent = 0

    def get(self, consumer: Peer) -> None:
        self.waiting.append(consumer)  # the reply comes once there is a message

    def cancel(self, consumer: Peer) -> bool:
        if consumer not in self.waiting:
            return False  # the reply has been given already
        self.waiting.remove(consumer)
        self.counts["receive timeouts"] += 1
        return True

    def remove(self, peer: Peer, failure: str | None) -> None:
        if peer in self.consumers:
            self.consumers.remove(peer)
            if peer in self.waiting:
                self.waiting.remove(peer)
            if failure and not self.consumers:
                self.last_consumer_failure = failure  # nobody is left to receive, which producers are told
            return
        in_epoch = peer.sent > 0 or peer.offer is not None
        if peer.offer is not None:
            self.offering.remove(peer)
        # Of a producer that has ended the epoch, and sent nothing since, nothing is missing.
        if failure and (in_epoch or peer.epoch <= self.epoch):
            self.failures.append(failure)  # each consumer gets it, behind all messages in the queue

    def clear(self) -> None:
        self.queue.clear()
        for producer in self.offering:
            producer.offer = None
        self.offering.clear()

    def step(self) -> list[Reply]:
        replies: list[Reply] = []
        while self._accept_offer(replies) or self._serve_consumer(replies) or self._end_epoch():
            pass
        return replies

    def statistics(self) -> dict[str, int]:
        return {
            "messages": len(self.queue),
            "bytes": self.queued_bytes,
            "epoch": self.epoch,
            "waiting producers": len(self.offering),
            "waiting consumers": len(self.waiting),
            **self.counts,
        }

    def _accept_offer(self, replies: list[Reply]) -> bool:
        for producer in self.offering:
            item = producer.offer
            assert item is not None
            if self.last_consumer_failure is not None:
                replies.append((producer, FAILED, self.last_consumer_failure))
            elif producer.epoch > self.epoch:
                continue  # it is an epoch ahead, and may not take the room of those that are still in this one
            elif len(self.queue) >= self.capacity or self.queued_bytes + item.size > self.limit_bytes:
                return False  # smaller messages may not overtake it, or it might never get in
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

    def _serve_consumer(self, replies: list[Reply]) -> bool:
        for consumer in self.waiting:
            # Consumers get the end of an epoch before samples of the next one, and failures behind all samples.
            if consumer.epoch < self.epoch:
                replies.append((consumer, END, str(consumer.epoch)))
                consumer.epoch += 1
            elif self.queue:
                item = self.queue.popleft()
                self.queued_bytes -= item.size
                self.counts["messages received"] += 1
                replies.append((consumer, OK, item))
            elif consumer.failures_seen < len(self.failures):
                replies.append((consumer, FAILED, self.failures[consumer.failures_seen]))
                consumer.failures_seen += 1
            else:
                continue
            self.waiting.remove(consumer)
            return True
        return False

    def _end_epoch(self) -> bool:
        if self.queue or self.ended[self.epoch] < self.num_producers:
            return False
        del self.ended[self.epoch]
        self.epoch += 1
        return True
