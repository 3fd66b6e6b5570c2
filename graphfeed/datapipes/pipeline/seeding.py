"""Random generators for stages from outside of this package, seeded by the key of each mini-batch.

In the main thread, the global generators of torch, NumPy and Python are seeded while the stage runs, and then put back.
Worker threads share those generators. There, torch's functions that take a generator are given one of the stage's own,
which draws the same; what takes none, such as dropout, is watched for in the first calls on the CPU, and warned of.
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
"""Keeps the seeds of global generators apart from the keys that stages draw by."""
RANDOM: Any = np.random
"""Its stubs don't list the global bit generator."""
BITS = np.random.MT19937(0)
"""NumPy's functions draw from it while a stage runs, whatever the program lets them draw from."""
WATCHED_CALLS = 3
"""How many calls of a stage in threads are watched for draws from generators that all threads share."""
WATCHED: "WeakKeyDictionary[Transform, list[set[str]]]" = WeakKeyDictionary()
"""The generators that moved during each watched call of a stage."""
# One call at a time is watched, so that one draw elsewhere does not count for several. Nobody waits for this lock: a
# process that is forked while it is held watches no call.
WATCHING = threading.Lock()
TAKE_A_GENERATOR = {
    *("rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "normal", "bernoulli"),
    *("multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet", "rrelu", "rrelu_"),
    *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"),
    "kaiming_uniform_",
}
"""The functions of torch that draw from a generator that they are given."""


def call_seeded(
    stage: "Transform", function: Callable[[Any], Any], minibatch: Any, key: Key, kept: "KeptGlobals"
) -> Any:
    seed = key.at(stage.foreign_number, GLOBALS)
    # Other threads draw from the global generators too: only the main thread may seed them.
    if threading.current_thread() is threading.main_thread():
        kept.seed(seed)
        return function(minibatch)
    with watched(stage), KeyedDraws(seed):
        return function(minibatch)


class KeptGlobals:
    """Keeps the global generators of torch, NumPy and Python for the caller, once for several stages that draw."""

    # To read NumPy's state takes 30 us, to read Python's and to put it back 10, and to seed them all 8. So ten stages
    # behind each other take a third of the time that they would take one by one.
    def __init__(self) -> None:
        self.saved: tuple[Any, ...] | None = None
        """NumPy's bit generator and state, and Python's."""
        self.states: dict[torch.Generator, torch.Tensor] = {}
        """Of torch's generators."""

    def seed(self, seed: int) -> None:
        """Seed the generators; at first, keep what they are."""
        if self.saved is None:
            # As a dict, which there is for every bit generator that a program may have set.
            self.saved = RANDOM.get_bit_generator(), RANDOM.get_state(legacy=False), random.getstate()
            RANDOM.set_bit_generator(BITS)
        generators = [torch.default_generator]
        # To ask for the current device would start CUDA where the program has not.
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
        for generator in generators:
            if generator not in self.states:
                self.states[generator] = generator.get_state()
            generator.manual_seed(seed)
        # NumPy takes a seed of 32 bits.
        np.random.seed(seed >> 32)  # noqa: NPY002
        random.seed(seed)

    def put_back(self) -> None:
        """Put the generators back as they were."""
        if self.saved is None:
            return
        (bits, numpy_state, python_state), self.saved = self.saved, None
        while self.states:
            generator, state = self.states.popitem()
            generator.set_state(state)
        RANDOM.set_bit_generator(bits)
        # NumPy draws normals in pairs, and forgets the second one with the bit generator.
        # Where one of these runs inside another, the bit generator is the very one that was seeded here.
        if numpy_state["has_gauss"] or bits is BITS:
            RANDOM.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and put them back as they were."""
    kept = KeptGlobals()
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
        # Under the lock: another thread may have passed the test above before this call was noted.
        if len(calls) == WATCHED_CALLS:
            # Other threads may use one meanwhile: that it moved in each call tells what draws from what does not.
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
        given = dict(kwargs or {})
        if getattr(func, "__name__", None) not in TAKE_A_GENERATOR or given.get("generator") is not None:
            return func(*args, **given)
        devices = (value.device for value in (*args, *given.values()) if isinstance(value, torch.Tensor))
        device = given.get("device")
        device = next(devices, torch.get_default_device()) if device is None else torch.device(device)
        if device.type in ("cpu", "cuda"):
            # To draw on a device takes a generator of that device.
            if device not in self.generators:
                self.generators[device] = torch.Generator(device).manual_seed(self.seed)
            try:
                return func(*args, **{**given, "generator": self.generators[device]})
            except TypeError:
                pass  # The function of the same name in torch.nn takes none, or the call is wrong: torch says so again.
        return func(*args, **given)
