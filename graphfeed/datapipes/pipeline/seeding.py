"""The generators that a stage from outside of this package may draw from, seeded by the key of each mini-batch.

In the main thread, the global generators of torch, NumPy and Python are seeded while the stage runs, and then put back.
In other threads that can't be: all threads share those generators. There, torch's functions are given a generator of
the stage's own, which draws the same. What can't be given one draws from what all share, and is warned of.
"""

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
PROBED_CALLS = 3
"""How many calls of a stage in threads are watched for draws from NumPy's and Python's generators."""
DRAWING = {
    *("rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "normal", "bernoulli"),
    *("multinomial", "poisson", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_", "kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_"),
    *("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "native_dropout", "feature_dropout"),
    *("alpha_dropout", "feature_alpha_dropout", "gumbel_softmax", "rrelu", "rrelu_"),
}
"""The functions of torch that draw."""
PROBES: "WeakKeyDictionary[Transform, int]" = WeakKeyDictionary()


def call_seeded(stage: "Transform", minibatch: Any, key: Key) -> Any:
    """Call a stage with generators seeded for it and the mini-batch; the caller's generators stay as they are."""
    seed = key.at(stage.foreign_number, GLOBALS)
    if threading.current_thread() is threading.main_thread():
        with seeded_globals(seed):
            return stage(minibatch)
    probes = PROBES.get(stage, 0)
    with KeyedDraws(stage, seed):
        if probes == PROBED_CALLS:
            return stage(minibatch)
        PROBES[stage] = probes + 1
        return call_probed(stage, minibatch)


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and put them back as they were."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    torch_states = [generator.get_state() for generator in generators]
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        for generator in generators:
            generator.manual_seed(seed)
        np.random.seed(seed >> 32)  # noqa: NPY002
        random.seed(seed)
        yield
    finally:
        for generator, state in zip(generators, torch_states, strict=True):
            generator.set_state(state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def call_probed(stage: "Transform", minibatch: Any) -> Any:
    """Call a stage in a thread, and warn if NumPy's or Python's generator was used meanwhile."""
    numpy_place, python_state = numpy_position(), random.getstate()
    result = stage(minibatch)
    if numpy_place != numpy_position():
        warn_of_draw(stage, "NumPy's global generator")
    if python_state != random.getstate():
        warn_of_draw(stage, "Python's random module")
    return result


def numpy_position() -> tuple[Any, ...]:
    """Return where NumPy's global generator stands."""
    _, words, *rest = np.random.get_state()  # noqa: NPY002
    return (np.asarray(words).tobytes(), *rest)


def warn_of_draw(stage: "Transform", source: str) -> None:
    """Warn of draws that depend on which thread comes first."""
    warnings.warn(
        f"{describe_stage(stage)} draws from {source} in a thread; all threads share that, so the draws are not the "
        "same in every run. Draw from a generator of the mini-batch's own, such as "
        "numpy.random.default_rng(minibatch.key.at(1)), or run the stage where it is seeded for each mini-batch: with "
        "DataLoader(..., worker='process') or num_workers=0",
        stacklevel=2,
    )


class KeyedDraws(TorchFunctionMode):
    """Gives torch's functions, as far as this thread calls them, a generator of the mini-batch's own."""

    def __init__(self, stage: "Transform", seed: int) -> None:
        super().__init__()
        self.stage = stage
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
        before = torch.default_generator.get_state()
        result = func(*args, **given)
        if not torch.equal(before, torch.default_generator.get_state()):
            warn_of_draw(self.stage, f"torch's global generator, by {func.__name__}(),")
        return result


def device_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.device:
    """Return the device on which a function of torch draws."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
    first = next(tensors, None)
    return torch.get_default_device() if first is None else first.device
