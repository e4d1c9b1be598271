"""debug.breakpoint: a prompt on the variables around a line, where a compiled program comes by it.

The program runs long after the function that it was traced from has returned, so variables are kept
when it is traced; those that are arrays, or trees with arrays in them, have their values in it.
"""

from __future__ import annotations

import bdb
import cmd
import linecache
import pprint
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from stax import tree
from stax.api.callbacks import debug_callback
from stax.errors import ArgumentValueError
from stax.source import is_internal
from stax.trace import is_array

# So many lines are shown around the one where the program is.
_CONTEXT = 5


@dataclass(frozen=True)
class _Frame:
    """A call of one of the user's functions: where it is, and the names that are global there."""

    file: str
    line: int
    function: str
    globals: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}({self.line}) {self.function}"


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> None:
    """Stop whenever the program comes by, and read commands: `p` prints an expression of the
    variables around, `l` the lines, `w` the calls, `u` and `d` go to the caller and back, `c` goes
    on, `q` ends the program with bdb.BdbQuit, `h` lists them.

    Variables are those of the innermost `num_frames` calls that are under way where it is traced,
    all by default, of the user's functions if `filter_frames`.  Commands are read from `stdin` and
    answers written to `stdout`, if those are given in `kwargs`.  Under vmap it stops in each lane;
    with `ordered` it has its place among all ordered callbacks.

    Raises ArgumentValueError for a `backend` other than "cli", a `token`, and other `kwargs`.
    """
    if backend not in (None, "cli") or token is not None or kwargs.keys() - {"stdin", "stdout"}:
        raise ArgumentValueError(
            f"debug.breakpoint: backend={backend!r}, token={token!r} and {sorted(kwargs)} are not "
            "all known.",
            advice="There is the backend 'cli', which takes stdin= and stdout=.",
        )
    frames, variables = list[_Frame](), list[dict[str, Any]]()
    frame = sys._getframe(1)
    while frame is not None and (num_frames is None or len(frames) < num_frames):
        code = frame.f_code
        if not (filter_frames and is_internal(code)):
            frames.append(
                _Frame(code.co_filename, frame.f_lineno, code.co_name, dict(frame.f_globals))
            )
            variables.append(tree.tree_map(_kept, dict(frame.f_locals)))
        frame = frame.f_back  # type: ignore[assignment]

    def stop(variables: Sequence[Any]) -> None:
        found = tree.tree_map(lambda x: x.value if type(x) is _Kept else x, variables)
        _Prompt(frames, found, **kwargs).cmdloop()

    debug_callback(stop, variables, ordered=ordered)


@dataclass(frozen=True, eq=False)
class _Kept:
    """A variable that is no array, as it is."""

    value: Any


def _kept(value: Any) -> Any:
    return value if is_array(value) or isinstance(value, np.ndarray | np.generic) else _Kept(value)


class _Prompt(cmd.Cmd):
    """Reads commands on the variables of some frames, the innermost first."""

    prompt = "(stax) "

    def __init__(
        self,
        frames: Sequence[_Frame],
        variables: Sequence[dict[str, Any]],
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
    ) -> None:
        super().__init__(stdin=stdin or sys.stdin, stdout=stdout or sys.stdout)
        self.use_rawinput = stdin is None
        self._frames, self._variables, self._at = frames, variables, 0
        self.intro = f"> {frames[0]}" if frames else None

    def _say(self, text: Any) -> None:
        print(text, file=self.stdout)

    def _value(self, expression: str) -> Any:
        frame, variables = self._frames[self._at], self._variables[self._at]
        return eval(expression, frame.globals, variables)

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> bool:  # type: ignore[override]
        """Print an expression, or why it has no value; the end of input goes on."""
        return True if line == "EOF" else self._shown(line, repr)

    def do_p(self, line: str) -> bool:
        """p EXPRESSION: print it."""
        return self._shown(line, repr)

    def do_pp(self, line: str) -> bool:
        """pp EXPRESSION: print it over several lines."""
        return self._shown(line, pprint.pformat)

    def _shown(self, line: str, form: Callable[[Any], str]) -> bool:
        try:
            self._say(form(self._value(line)))
        except Exception as error:
            self._say(f"{type(error).__name__}: {error}")
        return False

    def do_l(self, line: str) -> bool:
        """l: show the lines around."""
        frame = self._frames[self._at]
        for number in range(max(1, frame.line - _CONTEXT), frame.line + _CONTEXT + 1):
            text = linecache.getline(frame.file, number)
            if text:
                self._say(f"{'->' if number == frame.line else '  '} {number:4} {text.rstrip()}")
        return False

    def do_w(self, line: str) -> bool:
        """w: show the calls that are under way."""
        for i, frame in enumerate(self._frames):
            self._say(f"{'>' if i == self._at else ' '} {frame}")
        return False

    def do_u(self, line: str) -> bool:
        """u: go to the caller."""
        return self._go(self._at + 1)

    def do_d(self, line: str) -> bool:
        """d: go back to what it called."""
        return self._go(self._at - 1)

    def _go(self, at: int) -> bool:
        self._at = min(max(at, 0), len(self._frames) - 1)
        self._say(f"> {self._frames[self._at]}")
        return False

    def do_c(self, line: str) -> bool:
        """c: go on."""
        return True

    def do_q(self, line: str) -> bool:
        """q: end the program."""
        raise bdb.BdbQuit

    do_bt, do_where, do_list, do_up, do_down = do_w, do_w, do_l, do_u, do_d
    do_cont, do_continue, do_quit, do_exit, do_print = do_c, do_c, do_q, do_q, do_p
