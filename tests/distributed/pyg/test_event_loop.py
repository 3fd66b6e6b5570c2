import asyncio
import queue
import threading

import pytest

from graphfeed.distributed.pyg.event_loop import ConcurrentEventLoop


def test_coroutines_run_in_a_thread_that_ends(no_leaks: None) -> None:
    loop = ConcurrentEventLoop(concurrency=1)
    loop.start_loop()
    loop.start_loop()

    async def name() -> str:
        return threading.current_thread().name

    assert loop.run_task(name()) == "graphfeed-event-loop"

    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.run_task(fail())
    loop.shutdown_loop()
    loop.shutdown_loop()


def test_the_thread_ends_with_the_object(no_leaks: None) -> None:
    loop = ConcurrentEventLoop(concurrency=1)
    loop.start_loop()
    del loop
    ConcurrentEventLoop(concurrency=1)  # one that never ran


def test_the_object_may_end_in_a_thread_that_the_loop_waits_for(no_leaks: None) -> None:
    loop = ConcurrentEventLoop(concurrency=1)
    loop.start_loop()
    go, ended = threading.Event(), threading.Event()
    holder = [loop]

    def drop() -> None:
        go.wait(60)
        holder.clear()
        ended.set()

    asyncio.run_coroutine_threadsafe(asyncio.to_thread(drop), loop._loop)
    del loop
    go.set()
    assert ended.wait(60)


def test_so_many_tasks_run_at_a_time() -> None:
    loop, running, most = ConcurrentEventLoop(concurrency=2), 0, 0
    done: queue.Queue[int] = queue.Queue()

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return number

    loop.start_loop()
    for number in range(6):
        loop.add_task(work(number), done.put)
    assert sorted(done.get(timeout=60) for _ in range(6)) == list(range(6))
    assert most == 2
    loop.shutdown_loop()
