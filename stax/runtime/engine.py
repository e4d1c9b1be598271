"""LLVM through llvmlite: IR text in, machine code and its addresses out.

The one idea: emitters write vectors and unrolling out explicitly, so LLVM is used as an assembler
with a good instruction selector and register allocator, and compiles in milliseconds. The object
code holds no address of this process, so it can be cached and loaded by another one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from stax.config import __version__
from stax.runtime.forking import hold_during_fork
from stax.runtime.object_cache import digest, object_cache
from stax.runtime.once import once
from stax.runtime.portable import is_portable, with_halves

# A number that changes when the same text is compiled otherwise: by other passes or options.
_EMISSION = 2
# Versions of LLVM whose options are known: it ends the process at one that it does not know.
_LLVM_KNOWN = range(20, 23)
_VECTOR_FEATURES = (("avx512f", 64), ("avx2", 32), ("avx", 32))
_VECTOR_BYTES_VARIABLE = "STAX_VECTOR_BYTES"


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that code is generated for; part of every cache key."""

    cpu: str
    features: str
    vector_bytes: int
    triple: str

    @property
    def attributes(self) -> str:
        """Attributes every emitted function carries: no unwinding, and full-width vector registers.

        LLVM tunes AVX-512 parts to 256 bits unless told; the second attribute makes 512-bit values
        legal in function arguments too, so all functions of a module must agree on it.
        """
        bits = self.vector_bytes * 8
        return f'nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'


def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def _vector_bytes(features: dict[str, bool]) -> int:
    # On Sapphire Rapids and later 64-byte vectors tie with 32 when memory is the limit and are
    # 1.2 to 1.9 times faster when arithmetic is, so there is no reason to hold back.
    override = os.environ.get(_VECTOR_BYTES_VARIABLE)
    if override is not None:
        if override not in ("16", "32", "64"):
            raise ValueError(
                f"{_VECTOR_BYTES_VARIABLE} must be 16, 32 or 64 (the width of a vector register "
                f"in bytes), got {override!r}; unset it to use the host's width"
            )
        return int(override)
    return next((width for name, width in _VECTOR_FEATURES if features.get(name)), 16)


@once
def target() -> Target:
    """The host, asked once. STAX_VECTOR_BYTES overrides the vector width, STAX_PORTABLE the CPU."""
    _initialize()
    triple = llvm.get_process_triple()
    if is_portable():
        cpu = "x86-64" if triple.startswith("x86_64") else "generic"
        return Target(cpu=cpu, features="", vector_bytes=_vector_bytes({}), triple=triple)
    features = llvm.get_host_cpu_features()
    return Target(
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bytes=_vector_bytes(features),
        triple=triple,
    )


def _complete(text: str) -> str:
    """Add what the machine code of a module calls and the process may not have."""
    host = target()
    has_halves = "+f16c" in host.features or host.triple.startswith(("aarch64", "arm64"))
    return text if has_halves else with_halves(text)


def _target_machine(opt: int) -> llvm.TargetMachine:
    host = target()
    # Small and position independent: constants are reached relative to the program counter, and
    # the linker puts each library in one block, so everything is in reach.
    return llvm.Target.from_triple(host.triple).create_target_machine(
        cpu=host.cpu, features=host.features, opt=opt, reloc="pic", codemodel="small"
    )


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    """Leave the arithmetic of addresses as it is, since emitters write it as it should be.

    LLVM's pass for it takes a fifth of the time that code generation does.  There is one option for
    the whole process, so it is given back; code that another thread generates meanwhile is right.
    """
    if llvm.llvm_version_info[0] not in _LLVM_KNOWN:
        yield
        return
    llvm.set_option("stax", "-disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("stax", "-disable-lsr=false")


class _Engine:
    """The process-wide compiler and linker. A lock guards the target machine, which is not shared
    safely between threads."""

    def __init__(self) -> None:
        self._machines = {True: _target_machine(opt=2), False: _target_machine(opt=0)}
        # The linker takes ownership of the machine it is given, hence a second one.
        self._linker = llvm.create_lljit_compiler(_target_machine(opt=2), use_jit_link=True)
        self._serial = itertools.count()
        self._lock = threading.Lock()
        # llvmlite's own lock is taken inside of ours. Where a fork happens meanwhile, neither may
        # be held by a thread that the child does not have.
        hold_during_fork(self._lock)
        hold_during_fork(getattr(ffi.lib, "_lock", contextlib.nullcontext()))

    def emit(self, text: str, optimize: bool) -> bytes:
        with self._lock:
            module = llvm.parse_assembly(_complete(text))
            self._run_passes(module, text)
            with _as_written() if optimize else contextlib.nullcontext():
                code: bytes = self._machines[optimize].emit_object(module)
            return code

    def assembly(self, text: str) -> str:
        with self._lock:
            module = llvm.parse_assembly(text)
            self._run_passes(module, text)
            with _as_written():
                listing: str = self._machines[True].emit_assembly(module)
            return listing

    def _run_passes(self, module: llvm.ModuleRef, text: str) -> None:
        # Measured on emitted kernels, sroa, instcombine and simplifycfg cost up to twice the whole
        # compile time and change no run time, so inlining on demand is all.
        if "alwaysinline" not in text:
            return
        options = llvm.create_pipeline_tuning_options(0)
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.run(module, llvm.create_pass_builder(self._machines[True], options))

    def link(self, code: bytes, names: Iterable[str]) -> llvm.ResourceTracker:
        with self._lock:
            library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name in names:
                library.export_symbol(name)
            # A library's name can never be used again, even after it is unloaded.
            return library.link(self._linker, f"stax.{next(self._serial)}")


@once
def _engine() -> _Engine:
    _initialize()
    return _Engine()


class CompiledModule:
    """Linked machine code. Addresses are valid while this object lives: whoever keeps an address
    keeps the module."""

    __slots__ = ("_addresses", "_tracker", "object_code")

    def __init__(self, object_code: bytes, names: Iterable[str]) -> None:
        exported = tuple(names)
        self.object_code = object_code
        self._tracker = _engine().link(object_code, exported)
        self._addresses: dict[str, int] = {name: self._tracker[name] for name in exported}

    def address(self, name: str) -> int:
        """The address of an exported function or global."""
        if name not in self._addresses:
            raise KeyError(f"{name!r} is not exported; this module exports {list(self._addresses)}")
        return self._addresses[name]

    def keep_forever(self) -> CompiledModule:
        """Never unload: for code that threads or the interpreter may still run at exit."""
        if not self._tracker.closed:
            self._tracker.detach()
        return self


@once
def dependences() -> str:
    """What object code depends on beside the text."""
    versions = (__version__, llvmlite.__version__, llvm.llvm_version_info)
    return f"{versions} {_EMISSION} {target()}"


def emit_object(text: str, *, optimize: bool = True, is_kept: bool = True) -> bytes:
    """Compile LLVM IR text to relocatable object code. Raises RuntimeError on malformed text.

    It is kept on disk, and looked for there, unless somebody else sees to that.

    Without `optimize` code is generated about eight times sooner, and runs slower: for code that
    runs rarely or only calls other code.
    """
    cache = object_cache() if is_kept else None
    if cache is None:
        return _engine().emit(text, optimize)
    name = digest(dependences(), f"optimize {optimize}", text)
    code = cache.load(name)
    if code is None:
        code = _engine().emit(text, optimize)
        cache.store(name, code)
    return code


def assembly(text: str) -> str:
    """The machine code of LLVM IR text, as a person reads it."""
    return _engine().assembly(text)


def load_object(object_code: bytes, names: Iterable[str]) -> CompiledModule:
    """Link object code (from `emit_object`, perhaps by another process) into this process."""
    return CompiledModule(object_code, names)


def compile_module(text: str, names: Iterable[str], *, optimize: bool = True) -> CompiledModule:
    """Compile LLVM IR text and link it; `names` are the symbols whose addresses are wanted."""
    return load_object(emit_object(text, optimize=optimize), names)
