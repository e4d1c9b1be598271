"""Loops whose steps depend on one another: recurrences, solvers, stencils."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark, integers, well_conditioned
from stax.compare.programs import Workload, normal, uniform


@benchmark("gated recurrent unit", small={"batch": 2, "width": 5, "steps": 4},
           odd={"batch": 15, "width": 47, "steps": 99})  # fmt: skip
def gated_unit(lib: Any, batch: int = 16, width: int = 48, steps: int = 100) -> Workload:
    sigmoid, tanh = lib.nn.sigmoid, lib.numpy.tanh

    def run(inside: Any, outside: Any, inputs: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            keep = sigmoid(x @ inside[0] + state @ outside[0])
            reset = sigmoid(x @ inside[1] + state @ outside[1])
            fresh = tanh(x @ inside[2] + (reset * state) @ outside[2])
            return keep * state + (1.0 - keep) * fresh, None

        return lib.lax.scan(cell, lib.numpy.zeros((batch, width)), inputs)[0]

    weights = normal(3, 16, width, scale=0.2), normal(3, width, width, scale=0.1)
    return run, (*weights, normal(steps, batch, 16))


@benchmark("long short-term memory, gradient", small={"batch": 2, "width": 3, "steps": 4},
           odd={"batch": 31, "width": 33, "steps": 49})  # fmt: skip
def memory_gradient(lib: Any, batch: int = 32, width: int = 32, steps: int = 50) -> Workload:
    np_, sigmoid = lib.numpy, lib.nn.sigmoid

    def loss(weights: Any, inputs: Any) -> Any:
        def cell(carried: Any, x: Any) -> Any:
            shown, kept = carried
            gates = np_.concatenate([x, shown], axis=-1) @ weights
            enter, forget, leave, fresh = np_.split(gates, 4, axis=-1)
            kept = sigmoid(forget) * kept + sigmoid(enter) * np_.tanh(fresh)
            shown = sigmoid(leave) * np_.tanh(kept)
            return (shown, kept), shown

        start = np_.zeros((batch, width)), np_.zeros((batch, width))
        return (lib.lax.scan(cell, start, inputs)[1] ** 2).mean()

    weights = normal(8 + width, 4 * width, scale=0.2)
    return lib.grad(loss), (weights, normal(steps, batch, 8))


@benchmark("an attractor, scalars only", small={"steps": 20}, odd={"steps": 777}, tolerance=1e-3,
           plain=True)  # fmt: skip
def attractor(lib: Any, steps: int = 800) -> Workload:
    """Too short a time for the chaos to show the rounding of single steps."""

    def run(start: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, y, z = state
            moved = (
                x + 0.005 * 10.0 * (y - x),
                y + 0.005 * (x * (28.0 - z) - y),
                z + 0.005 * (x * y - 2.667 * z),
            )
            return moved, x

        return lib.lax.scan(step, (start[0], start[1], start[2]), None, length=steps)[1]

    return run, (np.ones(3, np.float32),)


@benchmark("pendulums, a loop for each", small={"count": 7, "steps": 5},
           odd={"count": 4999, "steps": 101})  # fmt: skip
def pendulums(lib: Any, count: int = 5000, steps: int = 100) -> Workload:
    def swing(angle: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            angle, speed = state
            speed = speed - 0.01 * lib.numpy.sin(angle)
            return angle + 0.01 * speed, speed

        return lib.lax.fori_loop(0, steps, step, (angle, 0.0 * angle))

    return lib.vmap(swing), (normal(count),)


@benchmark("power iteration", small={"side": 6, "steps": 5}, odd={"side": 199, "steps": 31},
           plain=True)  # fmt: skip
def power_iteration(lib: Any, side: int = 200, steps: int = 30) -> Workload:
    np_ = lib.numpy

    def leading(matrix: Any, start: Any) -> Any:
        def step(_: Any, vector: Any) -> Any:
            vector = matrix @ vector
            return vector / np_.sqrt((vector * vector).sum())

        vector = lib.lax.fori_loop(0, steps, step, start)
        return vector, vector @ matrix @ vector

    return leading, (well_conditioned(side, side), np.ones(side, np.float32))


@benchmark("conjugate gradients until done", small={"side": 5}, odd={"side": 127}, plain=True)
def conjugate_gradients(lib: Any, side: int = 128) -> Workload:
    def solve(matrix: Any, right: Any) -> Any:
        def unfinished(state: Any) -> Any:
            return (state[3] > 1e-6) & (state[4] < 100)

        def step(state: Any) -> Any:
            x, residual, direction, size, steps = state
            along = matrix @ direction
            length = size / (direction @ along)
            x, residual = x + length * direction, residual - length * along
            smaller = residual @ residual
            return x, residual, residual + smaller / size * direction, smaller, steps + 1

        start = 0.0 * right, right, right, right @ right, 0
        return lib.lax.while_loop(unfinished, step, start)[0]

    return solve, (well_conditioned(side, side), normal(side))


@benchmark("game of life", small={"side": 9, "steps": 3}, odd={"side": 255, "steps": 11},
           plain=True)  # fmt: skip
def game_of_life(lib: Any, side: int = 256, steps: int = 10) -> Workload:
    np_ = lib.numpy

    def play(grid: Any) -> Any:
        def step(_: Any, grid: Any) -> Any:
            row = grid + np_.roll(grid, 1, axis=1) + np_.roll(grid, -1, axis=1)
            around = row + np_.roll(row, 1, axis=0) + np_.roll(row, -1, axis=0) - grid
            return ((around == 3) | ((grid == 1) & (around == 2))).astype(np.int32)

        return lib.lax.fori_loop(0, steps, step, grid)

    return play, (integers(0, 2, side, side),)


@benchmark("waves on a string", small={"count": 17, "steps": 4},
           odd={"count": 9999, "steps": 99}, plain=True)  # fmt: skip
def waves(lib: Any, count: int = 10_000, steps: int = 100) -> Workload:
    np_ = lib.numpy

    def run(start: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            place, speed = state
            speed = speed + 0.1 * (np_.roll(place, 1) + np_.roll(place, -1) - 2.0 * place)
            return (place + 0.1 * speed, speed), place[0]

        return lib.lax.scan(step, (start, 0.0 * start), None, length=steps)

    return run, (normal(count),)


@benchmark("tridiagonal systems, two sweeps", small={"count": 3, "side": 6},
           odd={"count": 255, "side": 99}, plain=True)  # fmt: skip
def tridiagonal(lib: Any, count: int = 256, side: int = 100) -> Workload:
    def solve(diagonal: Any, right: Any) -> Any:
        def eliminate(above: Any, row: Any) -> Any:
            pivot = 1.0 / (row[0] - above[0])
            current = pivot, (row[1] + above[1]) * pivot
            return current, current

        def substitute(below: Any, row: Any) -> Any:
            x = row[1] + row[0] * below
            return x, x

        nothing = 0.0 * diagonal[0]
        _, rows = lib.lax.scan(eliminate, (nothing, nothing), (diagonal, right))
        return lib.lax.scan(substitute, nothing, rows, reverse=True)[1]

    return solve, (uniform(2.5, 4.0, side, count), normal(side, count))
