"""A network of spiking neurons, differentiated in two ways, and one that learns without.

Leaky integrate-and-fire neurons with exponential synapses, wired to each other, are to spike for
the first time at given times.

- From event to event, spike times are exact, and so is the gradient from the adjoint equations,
  which jump at spikes (EventProp: Wunderlich and Pehle, 2021).  Finite differences agree.
- In steps of time, spikes sit on a grid: the loss is constant between jumps and its finite
  differences are 0.  Back-propagation through time replaces the derivative of a spike by a
  surrogate; what comes out is not the gradient, but points downhill.
- STDP strengthens a synapse whose spikes come before those of its neuron and weakens it otherwise:
  the neuron finds the inputs that come first, and answers earlier.

Run it with `python examples/spiking_network.py`.
"""

import numpy as np

import stax
import stax.numpy as snp
from stax import lax

NEURONS, EVENTS, TAU = 6, 60, 0.5  # currents decay with TAU, potentials with 2 TAU; threshold 1
ARRIVE = np.sort(np.random.default_rng(0).uniform(0, 3, EVENTS))  # input k spikes once, then
TARGETS = np.linspace(0.8, 2.0, NEURONS)
STEP = 0.005


def advance(v, i, t):
    """Return potentials and currents a time `t` later, if nothing happens until then."""
    x = snp.exp(-t / (2 * TAU))
    return (v + i - i * x) * x, i * x * x


def time_to_spike(v, i):
    """Return when each potential reaches 1: by a quadratic equation in exp(-t / 2 TAU)."""
    inside = (v + i) ** 2 - 4 * i
    real = (inside > 0) & (i > 0)
    x = snp.where(real, (v + i + snp.sqrt(inside)) / (2 * i), 2.0)
    return snp.where((x > 0) & (x < 1), -2 * TAU * snp.log(x), snp.inf)


def run_events(weights):
    """Return the time of each event in the column of the neuron that spiked, and all about it."""

    def step(state, _):
        t, v, i, arrived = state
        waits = time_to_spike(v, i)
        first, arrival = snp.argmin(waits), snp.array(ARRIVE)[arrived] - t
        wait = snp.minimum(waits[first], arrival)
        v, i = advance(v, i, wait)
        fired = (waits[first] < arrival) & (snp.arange(NEURONS) == first)
        source = snp.where(fired.any(), first, NEURONS + arrived)
        after = t + wait, snp.where(fired, 0.0, v), i + weights[:, source], arrived + ~fired.any()
        return after, (snp.where(fired, t + wait, snp.inf), (wait, source, fired, i))

    start = snp.array(0.0), snp.zeros(NEURONS), snp.zeros(NEURONS), 0
    return lax.scan(step, start, None, length=EVENTS)[1]


spike_times = stax.custom_vjp(lambda weights: run_events(weights)[0])


def forward(weights):
    times, events = run_events(weights)
    return times, (weights, events)


def backward(kept, cotangents):
    """Carry the derivatives with respect to potentials and currents from event to event, back."""
    weights, events = kept

    def step(state, event):
        by_v, by_i, gradient = state
        ct, (wait, source, fired, i) = event
        w = weights[:, source]
        later = (ct * fired).sum() + (w @ (2 * by_i - by_v) - by_v @ (fired * i)) / (2 * TAU)
        by_v = snp.where(fired, -later / ((i - 1) / (2 * TAU)), by_v)  # the spike moves with v
        gradient = gradient.at[:, source].add(by_i)
        x = snp.exp(-wait / (2 * TAU))
        return (x * by_v, (x - x * x) * by_v + x * x * by_i, gradient), None

    start = snp.zeros(NEURONS), snp.zeros(NEURONS), snp.zeros_like(weights)
    return (lax.scan(step, start, (cotangents, events), reverse=True)[0][2],)


spike_times.defvjp(forward, backward)


def event_loss(weights):
    return snp.sum((spike_times(weights).min(0) - TARGETS) ** 2)


@stax.custom_jvp
def spike(v):
    return (v >= 1).astype(v.dtype)


@spike.defjvp
def with_surrogate(primals, tangents):
    return spike(*primals), tangents[0] / (1 + 10 * snp.abs(primals[0] - 1)) ** 2


def loss_on_grid(weights):
    """The same loss of a run in steps of time."""
    step_of = np.floor(ARRIVE / STEP)
    arrivals = (np.arange(3 / STEP)[:, None] == step_of).astype("float32")

    def step(state, arriving):
        v, i, silent = state
        v, i = advance(v, i, STEP)
        spikes = spike(v)
        i = i + weights @ snp.concatenate([spikes, arriving])
        return (v * (1 - spikes), i, silent * (1 - spikes)), silent

    start = snp.zeros(NEURONS), snp.zeros(NEURONS), snp.ones(NEURONS)
    silent = lax.scan(step, start, arrivals)[1]  # 1 until the first spike of each
    return snp.sum((STEP * silent.sum(0) - TARGETS) ** 2)


def compare(name, loss, weights, direction) -> None:
    """Print a directional derivative by reverse mode and by finite differences; then descend."""
    gradient = stax.jit(stax.grad(loss))
    ahead, behind = (float(loss(weights + e * direction)) for e in (1e-6, -1e-6))
    along = float((gradient(weights) * direction).sum())
    print(f"{name}: slope {along:.5f}, by finite differences {(ahead - behind) / 2e-6:.5f}")
    for _ in range(100):
        weights = weights - 0.02 * gradient(weights)
    print(f"  after 100 steps the exact loss is {float(event_loss(weights)):.1e}")


def stdp(volleys, weights):
    """Learn as spikes come: `volleys` says for each step of time which inputs spike."""

    def step(state, spikes):
        v, i, weights, before, after = state
        v, i = advance(v, i, 0.1)
        fires = v >= 1
        i = i + weights @ spikes
        before, after = 0.8 * before + spikes, 0.8 * after + fires  # traces of recent spikes
        weights = weights + 0.01 * fires * before - 0.012 * after * spikes
        return (snp.where(fires, 0.0, v), i, snp.clip(weights, 0, 1), before, after), fires

    start = 0.0, 0.0, weights, 0 * weights, 0.0
    (_, _, weights, *_), fires = lax.scan(step, start, volleys)
    return weights, fires


def main() -> None:
    generator = np.random.default_rng(1)
    with stax.enable_x64():
        weights = snp.array(generator.normal(0.2, 0.3, (NEURONS, NEURONS + EVENTS)))
        direction = generator.standard_normal(weights.shape)
        print(f"loss at the start: {float(event_loss(weights)):.1e}")
        compare("exact", event_loss, weights, direction)
        compare("surrogate", loss_on_grid, weights, direction)
    inputs, steps, volleys = 20, 50, 200
    arrivals = np.arange(inputs) + generator.integers(0, 5, (volleys, inputs))
    spikes = (np.arange(steps)[:, None] == arrivals[:, None]).reshape(-1, inputs).astype("float32")
    weights, fires = stdp(spikes, snp.full(inputs, 0.5))
    first = np.asarray(fires).reshape(volleys, steps).argmax(1)
    print(f"STDP: answers after {first[:20].mean():.1f} steps, then {first[-20:].mean():.1f};")
    early, late = (float(w.mean()) for w in (weights[:8], weights[12:]))
    print(
        f"  synapses of early inputs grow from 0.5 to {early:.2f}, of late ones fall to {late:.2f}"
    )


if __name__ == "__main__":
    main()
