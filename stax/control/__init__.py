"""Ops that hold graphs: a call, a choice among branches, loops.

The rules of such an op are transforms of the graphs it holds.  For reverse mode its `linearize`
rule emits two nodes, a primal one that also returns residuals and a linear one that consumes them,
so the split by dependence never looks inside a node; plain forward mode keeps one joint node.
"""

from __future__ import annotations

from stax.control import taylor
from stax.control.call import Call, call
from stax.control.checkpoint import Checkpoint
from stax.control.held import HoldsGraphs, with_graphs
from stax.control.scan import Scan, scan
from stax.control.switch import Switch, switch
from stax.control.while_loop import While, while_loop

__all__ = [
    "Call", "Checkpoint", "HoldsGraphs", "Scan", "Switch", "While", "call", "scan", "switch",
    "taylor", "while_loop", "with_graphs",
]  # fmt: skip
