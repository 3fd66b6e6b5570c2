"""LLVM: the target machine, and the linker that loads object files into this process."""

import os
from functools import cache
from importlib.metadata import version
from typing import Any

import llvmlite
from llvmlite import binding


@cache
def target_machine() -> Any:
    """Return the machine to generate code for: this one, or the processor named by NUMBA_CPU_NAME."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name, features = processor()
    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(cpu=name, features=features, opt=3, reloc="pic", codemodel="default")


@cache
def processor() -> tuple[str, str]:
    given = os.environ.get("NUMBA_CPU_NAME")
    if given:
        return given, os.environ.get("NUMBA_CPU_FEATURES", "")
    return binding.get_host_cpu_name(), os.environ.get("NUMBA_CPU_FEATURES", binding.get_host_cpu_features().flatten())


@cache
def numba_version() -> str:
    return version("numba")


def dependencies() -> tuple[str, ...]:
    """Return all that machine code depends on except its sources."""
    return numba_version(), llvmlite.__version__, *processor()


@cache
def engine() -> Any:
    # Begins with an empty module; object files are added later. With `use_lmm`, the code and constants of a file are
    # adjacent. Otherwise, LLVM aborts the process where free memory is so scattered that they are over 2 GiB apart.
    return binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine(), use_lmm=True)


def link(symbol: str, code: bytes) -> int:
    # MCJIT is not thread-safe: the caller holds `store.LOADING`.
    engine().add_object_file(binding.ObjectFileRef.from_data(code))
    engine().finalize_object()
    return int(engine().get_function_address(symbol))
