"""The generators that a stage from outside of this package may draw from, seeded by the key of each mini-batch.

In the main thread, the global generators of torch, NumPy and Python are seeded while the stage runs, and then put back.
In other threads that can't be: all threads share those generators. There, torch's functions that take a generator are
given one of the stage's own, which draws the same. What takes none, such as dropout, draws from what all threads share.
The first calls of a stage are watched for that on the CPU, and it is warned of.
"""

import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from graphfeed.datapipes.pipeline.description import describe_stage
from graphfeed.ops import Key

if TYPE_CHECKING:
    from graphfeed.datapipes.transform import Transform

GLOBALS = 0x474C4F42
"""Keeps the seeds of global generators apart from the keys that stages draw by."""
TORCH = "torch's global generator"
PROBED_CALLS = 3
"""How many calls of a stage in threads are watched for draws from generators that all threads share."""
DRAWING = {
    *("rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "normal", "bernoulli"),
    *("multinomial", "poisson", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"),
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "native_dropout", "feature_dropout"),
    *("alpha_dropout", "feature_alpha_dropout", "gumbel_softmax", "rrelu", "rrelu_"),
    *("binomial", "_standard_gamma", "_sample_dirichlet"),
}
"""The functions of torch that are given a generator if they take one."""


@dataclass
class Probe:
    """What the watched calls of a stage in threads had in common."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """One call is watched at a time, so that one draw elsewhere does not fall into several."""
    calls: int = 0
    used: set[str] = field(default_factory=set)
    """The generators that were used in each of the calls."""
    functions: set[str] = field(default_factory=set)
    """The functions of torch during which its generator was used in each of the calls."""

    def add(self, used: set[str], functions: set[str]) -> None:
        """Add a call."""
        self.used = self.used & used if self.calls else used
        self.functions = self.functions & functions if self.calls else functions
        self.calls += 1


PROBES: "WeakKeyDictionary[Transform, Probe]" = WeakKeyDictionary()


def call_seeded(stage: "Transform", minibatch: Any, key: Key) -> Any:
    """Call a stage with generators seeded for it and the mini-batch; the caller's generators stay as they are."""
    seed = key.at(stage.foreign_number, GLOBALS)
    if threading.current_thread() is threading.main_thread():
        with seeded_globals(seed):
            return stage(minibatch)
    probe = PROBES.get(stage) or PROBES.setdefault(stage, Probe())
    if probe.calls >= PROBED_CALLS or not probe.lock.acquire(blocking=False):
        with KeyedDraws(seed):
            return stage(minibatch)
    try:
        return call_probed(stage, minibatch, seed, probe)
    finally:
        probe.lock.release()


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and put them back as they were."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    torch_states = [generator.get_state() for generator in generators]
    # As a dict, which there is for every bit generator that a program may have set.
    numpy_state, python_state = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    try:
        for generator in generators:
            generator.manual_seed(seed)
        np.random.seed(seed >> 32)  # noqa: NPY002
        if numpy_state["has_gauss"]:
            # NumPy draws normals in pairs; seeding drops the second one only of its default bit generator.
            np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 0})  # noqa: NPY002
        random.seed(seed)
        yield
    finally:
        for generator, state in zip(generators, torch_states, strict=True):
            generator.set_state(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def call_probed(stage: "Transform", minibatch: Any, seed: int, probe: Probe) -> Any:
    """Call a stage in a thread; after the last watched call, warn of the generators that were used in all of them.

    Other threads may have used one meanwhile: that it was used in each call tells what draws from what does not.
    """
    draws = WatchedDraws(seed)
    before = positions()
    with draws:
        result = stage(minibatch)
    probe.add({source for source, place in positions().items() if place != before[source]}, draws.functions)
    for source in sorted(probe.used) if probe.calls == PROBED_CALLS else ():
        warn_of_draw(stage, source, probe.functions if source == TORCH else set())
    return result


def positions() -> dict[str, Any]:
    """Return where the global generators stand."""
    return {
        TORCH: torch.default_generator.get_state().numpy().tobytes(),
        "NumPy's global generator": pickle.dumps(np.random.get_state(legacy=False)),  # noqa: NPY002
        "Python's random module": random.getstate(),
    }


def warn_of_draw(stage: "Transform", source: str, functions: set[str]) -> None:
    """Warn of draws that may depend on which thread comes first."""
    name = describe_stage(stage)
    by = f", by {', '.join(f'{function}()' for function in sorted(functions))}," if functions else ""
    warnings.warn(
        f"{source} was used{by} each time that {name} ran in a thread; if {name} draws from it, the draws are not the "
        "same in every run, because all threads share it. Draw from a generator of the mini-batch's own, such as "
        "numpy.random.default_rng(minibatch.key.at(1)) or torch.Generator().manual_seed(minibatch.key.at(1)), or run "
        "the stage where it is seeded for each mini-batch: with DataLoader(..., worker='process') or num_workers=0",
        stacklevel=2,
    )


class KeyedDraws(TorchFunctionMode):
    """Gives torch's functions, as far as this thread calls them, a generator of the mini-batch's own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        given = dict(kwargs or {})
        if getattr(func, "__name__", None) not in DRAWING or given.get("generator") is not None:
            return func(*args, **given)
        device = device_of(args, given)
        if device.type in ("cpu", "cuda"):
            if device not in self.generators:
                self.generators[device] = torch.Generator(device).manual_seed(self.seed)
            try:
                return func(*args, **{**given, "generator": self.generators[device]})
            except TypeError:
                pass  # It takes no generator, or the call is wrong, which it says again.
        return func(*args, **given)


class WatchedDraws(KeyedDraws):
    """Notes the functions during which torch's global generator was used."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.functions: set[str] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        before = torch.default_generator.get_state()
        result = super().__torch_function__(func, types, args, kwargs)
        if not torch.equal(before, torch.default_generator.get_state()):
            self.functions.add(getattr(func, "__name__", str(func)))
        return result


def device_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.device:
    """Return the device on which a function of torch draws."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
    first = next(tensors, None)
    return torch.get_default_device() if first is None else first.device
