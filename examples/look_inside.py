"""Everything that happens between a Python function and machine code, printed stage by stage.

The function is a softmax followed by a weighted sum, and its gradient.  Every stage is an ordinary
object with a text form; nothing here needs a special build or a flag.
Run it with `python examples/look_inside.py`.
"""

import numpy as np

import stax
import stax.numpy as snp
from stax.lowering.pipeline import lower_graph
from stax.lowering.triton import emit_triton


def score(x, weights):
    """A softmax over each row, then a weighted sum of everything."""
    shifted = snp.exp(x - x.max(-1, keepdims=True))
    return (shifted / shifted.sum(-1, keepdims=True) * weights).sum()


def show(number: int, title: str, text: str, lines: int = 200) -> None:
    """Print a stage, its first lines if it is long."""
    rows = text.rstrip().splitlines()
    print(f"\n{number}. {title}\n{'-' * (len(title) + 3)}")
    print("\n".join(rows[:lines]))
    if len(rows) > lines:
        print(f"... and {len(rows) - lines} more lines")


def main() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((64, 256)).astype("float32")
    weights = generator.standard_normal(256).astype("float32")
    gradient = stax.jit(stax.grad(score))

    show(
        1,
        "The graph of the function: operations with types",
        str(stax.make_graph(score)(x, weights)),
    )

    lowered = gradient.lower(x, weights)
    show(2, "The graph of its gradient: the same kind of object", str(lowered.graph))

    show(3, "The kernels after fusion, as runnable Python", lowered.as_text("kernels"))

    kernels = lower_graph(lowered.graph).kernels
    show(4, "The same kernel for a GPU, as Triton source", emit_triton(kernels[0]).source)

    show(5, "The LLVM module for this machine", lowered.as_text("llvm"), lines=30)

    compiled = lowered.compile()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    numbers = {
        "operations in the graph": cost["nodes"],
        "kernels and library calls": cost["kernels"],
        "bytes read and written": int(cost["bytes accessed"]),
        "bytes of arguments": memory.argument_size_in_bytes,
        "bytes of results": memory.output_size_in_bytes,
        "bytes of temporaries": memory.temp_size_in_bytes,
    }
    rows = [f"{name:<28}{value:>10,}" for name, value in numbers.items()]
    show(6, "What one call costs", "\n".join(rows))

    probability = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    by_hand = probability * (weights - (probability * weights).sum(-1, keepdims=True))
    error = np.abs(np.asarray(gradient(x, weights)) - by_hand).max()
    show(7, "The result", f"differs from the formula on paper by at most {error:.1e}")
    assert error < 1e-6


if __name__ == "__main__":
    main()
