"""The transforms as users call them: jit, grad, vmap and their kin."""

from stax.api.abstract import ShapeDtypeStruct
from stax.api.callbacks import pure_callback
from stax.api.checkpoint import checkpoint
from stax.api.closures import closure_convert, custom_gradient, linear_call
from stax.api.compiled import JitFunction, clear_caches, jit
from stax.api.custom import custom_jvp, custom_vjp
from stax.api.derivatives import (
    grad,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from stax.api.inspection import eval_shape, make_graph, typeof
from stax.api.jacobians import hessian, jacfwd, jacobian, jacrev
from stax.api.linear import linear_transpose
from stax.api.mapping import vmap
from stax.api.placing import (
    block_until_ready,
    copy_to_host_async,
    default_backend,
    default_device,
    device_count,
    device_get,
    device_put,
    devices,
    effects_barrier,
    live_arrays,
    local_device_count,
    local_devices,
    process_count,
    process_index,
    process_indices,
)

__all__ = [
    "JitFunction", "ShapeDtypeStruct", "block_until_ready", "checkpoint", "clear_caches",
    "closure_convert", "copy_to_host_async", "custom_gradient", "custom_jvp", "custom_vjp",
    "default_backend", "default_device", "device_count", "device_get", "device_put", "devices",
    "effects_barrier", "eval_shape", "grad", "hessian", "jacfwd", "jacobian", "jacrev", "jit",
    "jvp", "linear_call", "linear_transpose", "linearize", "live_arrays", "local_device_count",
    "local_devices", "make_graph", "process_count", "process_index", "process_indices",
    "pure_callback", "typeof", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
