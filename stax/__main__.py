"""The command line: `python -m stax compare` and `python -m stax explain`."""

from __future__ import annotations

import argparse
import sys

from stax.compare import command, explaining


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stax", description="Stax on the command line.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command.add_arguments(commands.add_parser("compare", help="compare Stax with JAX"))
    explaining.add_arguments(commands.add_parser("explain", help="show how Stax computes"))
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
