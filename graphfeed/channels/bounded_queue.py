"""State machine of a bounded queue with several producers and consumers, without I/O."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

OK, NOTHING, END, FAILED = range(32, 36)
"""Replies: success; nothing was sent or received; the epoch is over; another client failed."""


class PeerError(RuntimeError):
    """Another client of the channel failed or died. The message names it and the cause."""


class EndOfEpoch(Exception):
    """All producers have ended the epoch, and all its messages were received."""


@dataclass(eq=False)
class Item:
    """A message in the queue."""

    record: bytes
    size: int
    memory: Any = None
    """Memory that the record refers to, kept alive here."""


@dataclass(eq=False)
class Client:
    """A connected thread: a producer once it has sent, and a consumer once it has received."""

    process: int
    reply: Callable[[int, Any], bool]
    """Sends a reply with a message or a string. Returns whether it reached the client."""
    arena: Any = None
    """Shared memory of its messages."""
    sends_in: int | None = None
    """Epoch in which it sends; incremented when it ends the epoch."""
    offer: Item | None = None
    """Message that it is waiting to send."""
    receives_in: int | None = None
    """Epoch in which it receives; incremented when it has received the end of the epoch."""
    failures_seen: int = 0


class BoundedQueue:
    """State of a channel. Other methods only record requests; `step` then serves all that can be served."""

    def __init__(self, capacity: int, limit_bytes: int, num_producers: int = 1) -> None:
        self.capacity, self.limit_bytes, self.num_producers = capacity, limit_bytes, num_producers
        self.epoch = 0
        self.items: deque[Item] = deque()
        self.queued_bytes = 0
        self.waiting: list[Client] = []  # for space or for a message, the longest waiting first
        self.num_consumers = 0
        self.ended: Counter[int] = Counter()
        self.failures: list[str] = []
        self.last_consumer_failure: str | None = None  # None if another consumer has joined since
        self.counts: Counter[str] = Counter()

    def put(self, client: Client, item: Item) -> None:
        if client.sends_in is None:
            client.sends_in = self.epoch
        client.offer = item
        self.waiting.append(client)  # the reply comes once the message is in the queue

    def get(self, client: Client) -> None:
        if client.receives_in is None:
            # Starts at epoch 0: it receives the end of every epoch, also of those before it joined.
            client.receives_in = 0
            self.num_consumers += 1
            self.last_consumer_failure = None
        self.waiting.append(client)  # the reply comes once there is a message

    def stop(self, client: Client) -> None:
        if client in self.waiting:  # otherwise it already has a reply
            self.counts["receive timeouts" if client.offer is None else "send timeouts"] += 1
            self._reply(client, NOTHING)

    def end(self, client: Client) -> None:
        epoch = self.epoch if client.sends_in is None else client.sends_in
        self.ended[epoch] += 1
        client.sends_in = epoch + 1

    def remove(self, client: Client, failure: str | None) -> None:
        if client.receives_in is not None:
            self.num_consumers -= 1
            if failure and not self.num_consumers:  # no consumer is left, so producers get this error
                self.last_consumer_failure = f"consumer process {client.process} {failure}"
        # No message is missing if the producer has ended its epoch and is not sending in the next one.
        if failure and client.sends_in is not None and (client.offer is not None or client.sends_in <= self.epoch):
            # Each consumer receives the failure, after all messages in the queue.
            self.failures.append(f"producer process {client.process} {failure}")
        if client in self.waiting:
            self.waiting.remove(client)

    def drop(self) -> None:
        self.items.clear()
        self.waiting.clear()

    def step(self) -> None:
        while self._serve_one() or self._end_epoch():
            pass

    def statistics(self) -> dict[str, int]:
        num_producers = sum(client.offer is not None for client in self.waiting)
        return {
            "messages": len(self.items),
            "bytes": self.queued_bytes,
            "epoch": self.epoch,
            "waiting producers": num_producers,
            "waiting consumers": len(self.waiting) - num_producers,
            **self.counts,
        }

    def _serve_one(self) -> bool:
        """Serve the first client that can be served; return False if there is none."""
        has_room = self.last_consumer_failure is None
        for client in self.waiting:
            item, sends_in = client.offer, client.sends_in
            if item is None or sends_in is None:
                if self._give(client):
                    return True
            elif self.last_consumer_failure is not None:
                self._reply(client, FAILED, self.last_consumer_failure)
                return True
            # A producer that is an epoch ahead must not take the space of producers in this epoch. Among these, small
            # messages must not overtake a large one, or it might wait forever.
            elif sends_in <= self.epoch and has_room:
                has_room = len(self.items) < self.capacity and self.queued_bytes + item.size <= self.limit_bytes
                if has_room:
                    self._take(client, item)
                    return True
        return False

    def _take(self, client: Client, item: Item) -> None:
        self.items.append(item)
        self.queued_bytes += item.size
        self.counts.update({"messages sent": 1, "bytes sent": item.size})
        self.counts["most messages"] = max(self.counts["most messages"], len(self.items))
        self.counts["most bytes"] = max(self.counts["most bytes"], self.queued_bytes)
        self._reply(client, OK)

    def _give(self, client: Client) -> bool:
        # Consumers get the end of an epoch before samples of the next one, and failures after all samples.
        if client.receives_in is not None and client.receives_in < self.epoch:
            client.receives_in += 1
            self._reply(client, END, f"epoch {client.receives_in - 1} is over")
        elif self.items:
            if self._reply(client, OK, self.items[0]):  # if the client has died, the item stays
                self.queued_bytes -= self.items.popleft().size
                self.counts["messages received"] += 1
        elif client.failures_seen < len(self.failures):
            client.failures_seen += 1
            self._reply(client, FAILED, self.failures[client.failures_seen - 1])
        else:
            return False
        return True

    def _reply(self, client: Client, kind: int, what: Any = "") -> bool:
        client.offer = None
        self.waiting.remove(client)
        return client.reply(kind, what)

    def _end_epoch(self) -> bool:
        if self.items or self.ended[self.epoch] < self.num_producers:
            return False
        del self.ended[self.epoch]
        self.epoch += 1
        return True
