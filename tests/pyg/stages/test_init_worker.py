import threading

from graphfeed.loader.executors.worker_task import forget_work
from graphfeed.pyg import NeighborLoader
from graphfeed.pyg.stages.init_worker import LOCAL
from tests.pyg.neighborhood import homogeneous


def test_it_is_called_once_in_each_worker_and_not_without_workers() -> None:
    called: list[tuple[int, str]] = []

    def note(number: int) -> None:
        called.append((number, threading.current_thread().name))

    data = homogeneous()
    list(NeighborLoader(data, [1], batch_size=5, worker_init_fn=note))
    assert called == []
    with NeighborLoader(data, [1], batch_size=5, worker_init_fn=note, num_workers=2) as loader:
        list(loader)
        list(loader)
    assert 1 <= len(called) <= 2
    assert len({name for _, name in called}) == len({number for number, _ in called}) == len(called)


def test_a_worker_that_goes_to_another_loader_calls_its_function_again() -> None:
    LOCAL.done = {forget_work}
    forget_work()
    assert not hasattr(LOCAL, "done")
