"""Run Triton source on NumPy arrays, in Triton's interpreter, with its known gaps repaired.

The interpreter is switched on for the duration of a call only, so that the same process can still
compile.  Repaired are: bfloat16 arithmetic and casts, reductions with a combine function of one's
own, and loads and stores outside of the arguments, which raise.  Functions of libdevice do not
exist there: wrappers named `sx_...` that call one are replaced by NumPy's.

All of this touches private parts of Triton, on one thread at a time.
"""

from __future__ import annotations

import contextlib
import linecache
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stax.lowering.loop_ir import Buffer, Var
from stax.lowering.numpy_scalar import FUNCTIONS
from stax.lowering.triton import TritonKernel
from stax.types import SHORT_NAMES

triton = pytest.importorskip("triton")
interpreter: Any = pytest.importorskip("triton.runtime.interpreter")
tl = triton.language
JITFunction = triton.runtime.jit.JITFunction
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class NumpyBuffer:
    """What Triton takes for a tensor, and for its storage: memory is shared with the array."""

    def __init__(self, array: np.ndarray) -> None:
        assert array.flags.c_contiguous
        self.array, self.dtype = array, array.dtype

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> NumpyBuffer:
        return self

    def cpu(self) -> NumpyBuffer:
        return self

    def new_empty(self, _size: int, device: Any = None) -> NumpyBuffer:
        return NumpyBuffer.__new__(NumpyBuffer)

    def set_(self, storage: NumpyBuffer, _offset: Any, _size: Any, _stride: Any) -> None:
        self.array, self.dtype = storage.array, storage.dtype

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple([s // self.array.itemsize for s in self.array.strides])

    def copy_(self, _other: Any) -> None:
        pass


def _value(handle: Any) -> np.ndarray:
    """Give the numbers of a handle, which holds bfloat16 as bit patterns."""
    if handle.dtype.scalar == tl.bfloat16 and handle.data.dtype != _BFLOAT16:
        return handle.data.view(_BFLOAT16).astype(np.float32)
    return handle.data


def _handle(data: np.ndarray, kind: Any) -> Any:
    kind = kind.scalar
    if kind == tl.bfloat16:
        data = np.asarray(data).astype(_BFLOAT16).view(np.uint16)
    else:
        with np.errstate(all="ignore"):
            data = np.asarray(data).astype(interpreter._get_np_dtype(kind), copy=False)
    return interpreter.TensorHandle(data, kind)


class _Builder(interpreter.InterpreterBuilder):
    regions: list[tuple[int, int]]

    def cast_impl(self, source: Any, kind: Any) -> Any:
        if kind.scalar == tl.int1:
            return interpreter.TensorHandle(_value(source) != 0, tl.int1)
        return _handle(_value(source), kind)

    def create_fp_to_fp(self, source: Any, kind: Any, rounding: Any) -> Any:
        return _handle(_value(source), kind)

    def create_masked_load(self, pointer: Any, mask: Any, other: Any, *rest: Any, **kw: Any) -> Any:
        mask = self._mask(pointer, mask)
        self._check(pointer, mask)
        return super().create_masked_load(pointer, mask, other, *rest, **kw)

    def create_masked_store(
        self, pointer: Any, value: Any, mask: Any, *rest: Any, **kw: Any
    ) -> Any:
        mask = self._mask(pointer, mask)
        self._check(pointer, mask)
        return super().create_masked_store(pointer, value, mask, *rest)

    def _mask(self, pointer: Any, mask: Any) -> Any:
        data = np.broadcast_to(mask.data, pointer.data.shape).astype(bool)
        return interpreter.TensorHandle(data, tl.int1)

    def _check(self, pointer: Any, mask: Any) -> None:
        touched = pointer.data[mask.data]
        if touched.size:
            low, high = int(touched.min()), int(touched.max())
            if not any(a <= low and high < b for a, b in self.regions):
                raise IndexError(f"program {self.grid_idx} touches memory outside its arguments")


def _tensor(data: np.ndarray, kind: Any) -> Any:
    data = np.ascontiguousarray(data)
    shape = tl.block_type(kind, list(data.shape)) if data.ndim else kind
    return tl.tensor(interpreter.TensorHandle(data, kind), shape)


def _reduce(self: Any, inputs: Any) -> list[Any]:
    """Reduce one block along axis 0 as the GPU does: halves with each other, until one is left."""
    (block,) = inputs
    kind, data = block.dtype.scalar, block.handle.data
    combine = getattr(self.combine_fn, "fn", self.combine_fn)
    while data.shape[0] > 1:
        half = data.shape[0] // 2
        data = combine(_tensor(data[:half], kind), _tensor(data[half:], kind)).handle.data
    return [tl.tensor(interpreter.TensorHandle(np.array([data[0]]), kind), kind)]


@contextlib.contextmanager
def interpreting(regions: list[tuple[int, int]]) -> Iterator[None]:
    """Interpret jitted functions; on exit everything is as it was."""
    builder = _Builder()
    builder.regions = regions
    saved = (
        interpreter.interpreter_builder,
        interpreter.interpreter_semantic,
        interpreter.ReduceOps.generic_reduce,
        JITFunction.__call__,
        triton.knobs.runtime.interpret,
    )
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic = interpreter.TritonSemantic(builder)
    interpreter.ReduceOps.generic_reduce = _reduce
    JITFunction.__call__ = lambda self, *a, **kw: _interpreted(self.fn).rewrite()(*a, **kw)
    triton.knobs.runtime.interpret = True
    # Device functions of Triton's standard library see `core`.
    names = types.FunctionType((lambda: 0).__code__, {"tl": tl, "core": tl.core})
    scope = interpreter._patch_lang(names)
    try:
        yield
    finally:
        scope.restore()
        interpreter.interpreter_builder, interpreter.interpreter_semantic = saved[:2]
        interpreter.ReduceOps.generic_reduce, JITFunction.__call__ = saved[2:4]
        triton.knobs.runtime.interpret = saved[4]


_FUNCTIONS: dict[Any, Any] = {}


def _interpreted(function: Any) -> Any:
    if function not in _FUNCTIONS:
        _FUNCTIONS[function] = interpreter.InterpretedFunction(function)
    return _FUNCTIONS[function]


_POINTERS = {"bool": "*i8", "bf16": "*bf16", "f16": "*fp16", "f32": "*fp32", "f64": "*fp64"}


def compile_for(kernel: TritonKernel, params: Sequence[Buffer], extents: Sequence[Var]) -> Any:
    """Compile a printed kernel for sm_90, which needs no GPU; give what Triton gives."""
    file = f"{kernel.name}_compiled"
    signature = {
        b.name: _POINTERS.get(SHORT_NAMES[b.dtype], f"*{SHORT_NAMES[b.dtype]}") for b in params
    }
    signature |= {extent.name: "i64" for extent in extents} | {"BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(
        fn=load_source(kernel.source, file)[kernel.name],
        signature=signature,
        constexprs={"BLOCK": kernel.block},
    )
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options={"enable_fp_fusion": False})


def load_source(source: str, name: str) -> dict[str, Any]:
    """Execute source text in a way that Triton finds the text again."""
    file = f"<triton:{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace: dict[str, Any] = {"__name__": f"generated.{name}", "__file__": file}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def _in_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    vectorized = np.vectorize(function)

    def on_blocks(*blocks: Any) -> Any:
        kind = blocks[0].dtype.scalar
        data = vectorized(*[b.handle.data for b in blocks])
        return _tensor(data.astype(blocks[0].handle.data.dtype), kind)

    return on_blocks


def launch(kernel: TritonKernel, arrays: list[np.ndarray], extents: dict[str, int]) -> None:
    """Run every program of a kernel's grid."""
    namespace = load_source(kernel.source, kernel.name)
    for key, wrapper in namespace.items():
        if key.startswith("sx_") and "libdevice" in wrapper.src:
            namespace[key] = _in_numpy(FUNCTIONS[key[3:]])
    function = namespace[kernel.name]
    buffers = [a.view(np.int8) if a.dtype == np.bool_ else a for a in arrays]
    regions = [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in buffers]
    with interpreting(regions):
        _interpreted(function.fn)[kernel.grid(extents)](
            *[NumpyBuffer(a) for a in buffers], *extents.values(), BLOCK=kernel.block
        )
