import pickle
import threading
from functools import partial
from typing import Any

import torch

from graphfeed.loader.executors.worker_main import NUMBER, Calls, Reply, answer, receive_calls
from graphfeed.loader.transport.mailbox import open_mailbox
from graphfeed.loader.transport.pickling import decode, dump


def ask(number: int, function: Any, *arguments: Any) -> Reply:
    reply: Reply = decode(*answer(NUMBER.pack(number) + dump(partial(function, *arguments))))
    return reply


def test_a_call_gives_its_result_under_its_number() -> None:
    reply = ask(7, torch.add, torch.tensor([1, 2]), 3)
    assert reply.number == 7
    assert reply.error is None
    assert reply.result.tolist() == [4, 5]


def test_a_failure_is_the_answer() -> None:
    reply = ask(8, int, "x")
    assert reply.number == 8
    assert reply.error is not None
    assert isinstance(reply.error.unpack(), ValueError)


def test_what_does_not_unpickle_is_a_failure() -> None:
    reply: Reply = decode(*answer(NUMBER.pack(3) + b"no pickle"))
    assert reply.error is not None
    assert isinstance(reply.error.unpack(), pickle.UnpicklingError)


def test_a_result_that_does_not_pickle_is_a_failure() -> None:
    reply = ask(9, threading.Lock)
    assert reply.error is not None
    assert "pickle" in str(reply.error.unpack())


def test_calls_are_passed_on_in_order_and_the_end_after_them() -> None:
    outbox, inbox = open_mailbox()
    calls: Calls = Calls()
    ended: list[int] = []
    for number in range(3):
        outbox.send(NUMBER.pack(number))
    outbox.close()
    receive_calls(inbox, calls, ended.append)
    assert [calls.get(timeout=1) for _ in range(4)] == [*(NUMBER.pack(number) for number in range(3)), None]
    assert ended == [1]
    inbox.close()
