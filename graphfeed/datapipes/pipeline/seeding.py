"""Random generators for user-defined stages, seeded by the key of each mini-batch.

In the main thread, the global generators of torch, NumPy and Python are seeded while the stage runs, and then restored.
Worker threads share those generators. There, torch functions that accept a generator are given a separate one that
draws the same. If other functions draw in the first calls on the CPU, such as dropout, a warning is issued.
"""

import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
"""Separates the seeds of global generators from the keys of the stages' draws."""
RANDOM: Any = np.random
"""NumPy's random module, whose stubs don't list the global bit generator."""
BITS = np.random.MT19937(0)
"""Bit generator that NumPy's functions use while a stage runs, whichever one the program has set."""
WATCHED_CALLS = 3
"""Number of calls of a stage in threads that are watched for draws from generators shared by all threads."""
WATCHED: "WeakKeyDictionary[Transform, list[set[str]]]" = WeakKeyDictionary()
"""Generators that changed during each watched call of a stage."""
# One call at a time is watched, so that one draw elsewhere does not count for several. The lock is never waited for: a
# process that is forked while it is held watches no call.
WATCHING = threading.Lock()
TAKE_A_GENERATOR = {
    *("rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "normal", "bernoulli"),
    *("multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "rrelu", "rrelu_"),
    *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"),
    "kaiming_uniform_",
}
"""Functions of torch that accept a generator."""


def call_seeded(
    stage: "Transform", function: Callable[[Any], Any], minibatch: Any, key: Key, kept: "SavedGenerators"
) -> Any:
    seed = key.at(stage.seeded_number, GLOBALS)
    # Other threads draw from the global generators too: only the main thread may seed them.
    if threading.current_thread() is threading.main_thread():
        kept.seed(seed)
        return function(minibatch)
    with watched(stage), KeyedDraws(seed):
        return function(minibatch)


class SavedGenerators:
    """Saves and restores the global generators of torch, NumPy and Python, once for several stages that draw."""

    # Reading NumPy's state takes 30 us, reading and restoring Python's 10, and seeding all of them 8. So ten stages in
    # a row take a third of the time that they would take one by one.
    def __init__(self) -> None:
        self.saved: tuple[Any, ...] | None = None
        """NumPy's bit generator and state, and Python's."""
        self.states: dict[torch.Generator, torch.Tensor] = {}
        """States of torch's generators."""

    def seed(self, seed: int) -> None:
        """Seed the generators. The first call saves their states."""
        if self.saved is None:
            # As a dict, which every bit generator supports that a program may have set.
            self.saved = RANDOM.get_bit_generator(), RANDOM.get_state(legacy=False), random.getstate()
            RANDOM.set_bit_generator(BITS)
        generators = [torch.default_generator]
        # Querying the current device would initialise CUDA if the program has not done so.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
        for generator in generators:
            if generator not in self.states:
                self.states[generator] = generator.get_state()
            generator.manual_seed(seed)
        # NumPy accepts a seed of 32 bits.
        np.random.seed(seed >> 32)  # noqa: NPY002
        random.seed(seed)

    def put_back(self) -> None:
        """Restore the generators."""
        if self.saved is None:
            return
        (bits, numpy_state, python_state), self.saved = self.saved, None
        while self.states:
            generator, state = self.states.popitem()
            generator.set_state(state)
        RANDOM.set_bit_generator(bits)
        # NumPy draws normals in pairs, and loses the second one with the bit generator. If seeding is nested, the
        # restored bit generator is the one that was seeded here.
        if numpy_state["has_gauss"] or bits is BITS:
            RANDOM.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and restore them at the end."""
    kept = SavedGenerators()
    try:
        kept.seed(seed)
        yield
    finally:
        kept.put_back()


@contextmanager
def watched(stage: "Transform") -> Iterator[None]:
    """Warn of global generators that are used in each of the first calls of a stage."""
    calls = WATCHED.setdefault(stage, [])
    if len(calls) >= WATCHED_CALLS or not WATCHING.acquire(blocking=False):
        yield
        return
    drawn_from: set[str] = set()
    try:
        before = global_states()
        yield
        calls.append({source for source, state in global_states().items() if state != before[source]})
        # Under the lock: another thread may have passed the test above before this call was recorded.
        if len(calls) == WATCHED_CALLS:
            # Other threads may draw in the meantime, so only generators that changed in every call count.
            drawn_from = set.intersection(*calls)
    finally:
        WATCHING.release()
    for source in sorted(drawn_from):
        name = describe_stage(stage)
        warnings.warn(
            f"{source} was used each time that {name} ran in a thread; if {name} draws from it, the draws are not the "
            "same in every run, because all threads share it. Draw from minibatch.generator(), or with NumPy from "
            "numpy.random.default_rng(minibatch.generator().initial_seed()), or run the stage where it is seeded for "
            "each mini-batch: with DataLoader(..., worker='process') or num_workers=0",
            stacklevel=2,
        )


def global_states() -> dict[str, Any]:
    return {
        "torch's global generator": torch.default_generator.get_state().numpy().tobytes(),
        "NumPy's global generator": pickle.dumps(np.random.get_state(legacy=False)),  # noqa: NPY002
        "Python's random module": random.getstate(),
    }


class KeyedDraws(TorchFunctionMode):
    """Passes torch functions that are called in this thread a generator seeded for the mini-batch."""

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
        given = dict(kwargs or {})
        if getattr(func, "__name__", None) not in TAKE_A_GENERATOR or given.get("generator") is not None:
            return func(*args, **given)
        devices = (value.device for value in (*args, *given.values()) if isinstance(value, torch.Tensor))
        device = given.get("device")
        device = next(devices, torch.get_default_device()) if device is None else torch.device(device)
        if device.type in ("cpu", "cuda"):
            # Draws on a device need a generator of that device.
            if device not in self.generators:
                self.generators[device] = torch.Generator(device).manual_seed(self.seed)
            try:
                return func(*args, **{**given, "generator": self.generators[device]})
            except TypeError:
                pass  # torch.nn's function of that name accepts none, or the call is wrong, which fails again below.
        return func(*args, **given)
