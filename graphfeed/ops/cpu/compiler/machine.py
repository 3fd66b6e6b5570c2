"""LLVM: the target machine, and the linker that loads object files into this process."""

import os
from functools import cache
from typing import Any

from llvmlite import binding


@cache
def target_machine() -> Any:
    """Return the machine to generate code for: this one, or the processor named by NUMBA_CPU_NAME."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name, features = processor()
    target = binding.Target.from_triple(binding.get_process_triple())
    # On x86, code is not moved after it is loaded.
    reloc = {"x86": "static", "ppc": "pic"}.get(target.name[:3], "default")
    return target.create_target_machine(
        cpu=name, features=features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )


@cache
def processor() -> tuple[str, str]:
    given = os.environ.get("NUMBA_CPU_NAME")
    if given:
        return given, os.environ.get("NUMBA_CPU_FEATURES", "")
    return binding.get_host_cpu_name(), os.environ.get("NUMBA_CPU_FEATURES", binding.get_host_cpu_features().flatten())


@cache
def engine() -> Any:
    # Begins with an empty module; object files are added later.
    return binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine())


def link(symbol: str, code: bytes) -> int:
    # MCJIT is not thread-safe: the caller holds `store.COMPILING`.
    engine().add_object_file(binding.ObjectFileRef.from_data(code))
    engine().finalize_object()
    return int(engine().get_function_address(symbol))
