import asyncio
import queue
import threading

import pytest

from graphfeed.distributed.pyg.event_loop import ConcurrentEventLoop


def test_coroutines_run_in_a_thread_that_ends(no_leaks: None) -> None:
    loop = ConcurrentEventLoop(concurrency=1)
    loop.start_loop()

    async def name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ZeroDivisionError

    async def inside() -> str:
        return loop.run_task(name())  # as in a notebook, whose own loop runs

    assert asyncio.run(inside()) == "graphfeed-event-loop_0"
    with pytest.raises(ZeroDivisionError):
        loop.run_task(fail())
    loop.shutdown_loop()
    loop.shutdown_loop()


def test_so_many_tasks_run_at_a_time() -> None:
    loop, both = ConcurrentEventLoop(concurrency=2), threading.Barrier(2)
    done: queue.Queue[int] = queue.Queue()
    running, most = [0], [0]

    async def work(number: int) -> int:
        running.append(1)
        most.append(sum(running))
        both.wait(60)
        await asyncio.sleep(0.01)
        running.append(-1)
        return number

    for number in range(6):
        loop.add_task(work(number), done.put)
    assert sorted(done.get(timeout=60) for _ in range(6)) == list(range(6))
    assert max(most) == 2
    loop.shutdown_loop()
