"""Messages to another process: graphfeed, torch's queues, torch's DataLoader, and memcpy of the same size."""

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.limits import Copy
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, compare, render
from benchmarks.timing import WARM_UP_ROUNDS, Times, in_turn
from graphfeed.channels import ShmChannel
from graphfeed.loader.transport import Inbox, Outbox, decode, encode, open_mailbox

SIZES = ((10_000, 1), (1_000_000, 5), (8_000_000, 20), (50_000_000, 5))
"""Bytes of a message, and the number of its tensors."""
TIMES_CHEAPER = 8
TIMES_MEMCPY = 2
ECHOES = 50
"""Round trips in one round."""
STREAMED = 10
"""Messages received from a stream in one round."""
WAIT_SECONDS = 60
OURS, CHANNEL = "Outbox to Inbox", "ShmChannel"
QUEUES = {
    "torch queue, file_descriptor": "file_descriptor",
    "torch queue, file_system": "file_system",
}
THEIRS = "torch queue, file_descriptor"
"""Default transport of the batches of torch's DataLoader."""

Message = dict[str, torch.Tensor]
share_by: Any = torch.multiprocessing.set_sharing_strategy
"""Typed as Any, because torch has no types here."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each size, one of round trips and one of streams."""
    with other_process() as ends:
        for size, count in SIZES:
            size = min(size, scale.largest_message)
            title = f"channels: {size / 1e6:g} MB in {count} tensors to another process, which reads a value a page"
            reference = THEIRS if count == 20 else "memcpy"
            shown = f"ratio of {reference} to it" if count == 20 else "ratio to memcpy"
            yield render(f"{title}; {shown}", one_way(ends, size, count, scale, reference))
        yield render("channels: 10 kB there and back; ratio to bare sockets with 64 bytes", round_trips(ends, scale))
    size = min(8_000_000, scale.largest_message)
    yield render(
        f"channels: a stream of {size / 1e6:g} MB in 20 tensors, made in the other process", streams(size, scale)
    )


class Ends:
    """Ends of all transports in two processes."""

    def __init__(self, context: Any) -> None:
        self.words, self.their_words = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.there, self.their_inbox = open_mailbox()
        self.their_outbox, self.back = open_mailbox()
        self.channel = ShmChannel(4, "1GB")
        self.queue = context.Queue()

    def far_side(self) -> tuple[Any, ...]:
        """Return the ends for the other process."""
        return self.their_words, self.their_inbox, self.their_outbox, self.channel, self.queue

    def send(self, name: str, message: Message) -> None:
        """Send a message by one of the transports."""
        if name == OURS:
            self.there.send(*encode(message))
        elif name == CHANNEL:
            self.channel.send(message)
        else:
            self.queue.put(message)


@contextmanager
def other_process() -> Iterator[Ends]:
    """Run a process that receives."""
    context = torch.multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ends = Ends(context)
    child = context.Process(target=receive, args=ends.far_side(), daemon=True)
    child.start()
    for own in (ends.their_words, ends.their_inbox, ends.their_outbox):
        own.close()
    try:
        yield ends
    finally:
        torch.set_num_threads(threads)
        ends.words.close()
        child.join(WAIT_SECONDS)
        ends.there.close()
        ends.back.close()
        ends.channel.close()
        ends.queue.close()


def receive(words: socket.socket, inbox: Inbox, outbox: Outbox, channel: ShmChannel, queue: Any) -> None:
    """Execute commands until there are no more: receive and read a message, or send it back."""
    torch.set_num_threads(1)
    take: dict[str, Callable[[], Any]] = {
        OURS: lambda: decode(*inbox.receive(WAIT_SECONDS)),
        CHANNEL: channel.recv,
        **dict.fromkeys(QUEUES, queue.get),
    }
    while word := words.recv(100).decode():
        if word == "bare":
            for _ in range(ECHOES):
                words.send(words.recv(100))
        elif word == "back":
            for _ in range(ECHOES):
                outbox.send(*inbox.receive(WAIT_SECONDS))
        else:
            message = take[word]()
            for value in message.values():
                value.view(torch.uint8)[::4096].sum()
            del message
            words.send(b"done")


def one_way(ends: Ends, size: int, count: int, scale: Scale, reference: str) -> list[Row]:
    """Time each transport from sending a message to the reply that it was read and dropped."""
    copy = Copy(size)
    names = [OURS, CHANNEL, *QUEUES]
    seconds: dict[str, list[float]] = {name: [] for name in ("memcpy", *names)}
    for number in range(-WARM_UP_ROUNDS, scale.repeats):
        for name in seconds:
            elapsed = time_copy(copy) if name == "memcpy" else time_message(ends, name, make(size, count))
            if number >= 0:
                seconds[name].append(elapsed)
    times = {name: Times(values) for name, values in seconds.items()}
    rows = []
    for name, single in times.items():
        cheaper = reference != "memcpy"
        ratio = times[reference].over(single) if cheaper else single.over(times[reference])
        goal = None
        if name == OURS and cheaper:
            goal = Goal(ratio, TIMES_CHEAPER, at_least=True)
        elif name == OURS and size >= SIZES[-1][0]:
            goal = Goal(ratio, TIMES_MEMCPY)
        rows.append(Row(name, "us", single.times(1e6), ratio, goal))
    return rows


def make(size: int, count: int) -> Message:
    """Return tensors that were not sent before."""
    return {f"tensor {number}": torch.ones(size // count // 4) for number in range(count)}


def time_copy(copy: Copy) -> float:
    """Return the seconds of a memcpy."""
    start = time.perf_counter()
    copy.run()
    return time.perf_counter() - start


def time_message(ends: Ends, name: str, message: Message) -> float:
    """Return the seconds of a message."""
    if name in QUEUES:
        share_by(QUEUES[name])
    ends.words.send(name.encode())
    start = time.perf_counter()
    ends.send(name, message)
    ends.words.recv(100)
    return time.perf_counter() - start


def round_trips(ends: Ends, scale: Scale) -> list[Row]:
    """Time a small message that comes back."""
    header, buffers = encode(make(10_000, 1))

    def back(_: int) -> None:
        ends.words.send(b"back")
        for _ in range(ECHOES):
            ends.there.send(header, buffers)
            ends.back.receive(WAIT_SECONDS)

    def bare(_: int) -> None:
        ends.words.send(b"bare")
        for _ in range(ECHOES):
            ends.words.send(bytes(64))
            ends.words.recv(100)

    times = in_turn({"bare sockets": bare, OURS: back}, scale.repeats, time.perf_counter)
    return compare(times, "bare sockets", "us", 1e6 / ECHOES)


class Stream(IterableDataset[Message]):
    """Endless messages."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Message]:
        while True:
            yield make(self.size, 20)


def produce(channel: ShmChannel, size: int) -> None:
    """Send messages until the channel is closed."""
    torch.set_num_threads(1)
    for message in Stream(size):
        channel.send(message)


def streams(size: int, scale: Scale) -> list[Row]:
    """Time some messages of a stream that is produced concurrently."""
    share_by("file_descriptor")
    loader = DataLoader(Stream(size), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    with ShmChannel(2, "1GB") as channel:
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=produce, args=(channel, size), daemon=True)
        child.start()
        batches = iter(loader)
        times = in_turn(
            {
                "torch DataLoader, 1 worker": lambda _: [next(batches) and None for _ in range(STREAMED)],
                CHANNEL: lambda _: [channel.recv() and None for _ in range(STREAMED)],
            },
            scale.repeats,
            time.perf_counter,
        )
        child.kill()
        child.join(WAIT_SECONDS)
    theirs = times["torch DataLoader, 1 worker"]
    return [
        Row(name, "us a message", single.times(1e6 / STREAMED), theirs.over(single)) for name, single in times.items()
    ]
