"""The command line: `graphfeed COMMAND`, or `python -m graphfeed COMMAND`."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "doctor": "graphfeed.doctor",
    "encode": "graphfeed.storage.datasets.encode",
    "ingest": "graphfeed.ingest.dataset.ingest_command",
    "inspect": "graphfeed.storage.datasets.inspect",
    "partition": "graphfeed.distributed.partition.command",
    "serve": "graphfeed.distributed.servers.serve_command",
    "warm-up": "graphfeed.loader.warm_up_command",
}
"""Module of each command C, with a docstring, `add_C_arguments(parser)` and `run_C(options)`."""
FORMER = {"reorder": "use the recipe in docs/how-to/larger-than-memory.md"}
"""Replacements of commands that were removed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status, 1 after an error and 130 after Ctrl-C. The reason is on stderr."""
    try:
        return run_command(arguments)
    except KeyboardInterrupt as error:
        sys.stderr.write("graphfeed: " + "; ".join(["interrupted", *getattr(error, "__notes__", ())]) + "\n")
        return 130


def run_command(arguments: Sequence[str] | None) -> int:
    """Import the modules of the commands, run one of them, and return 0 or 1."""
    parser = argparse.ArgumentParser(prog="graphfeed", description="Tools for graphs in files and partitioned graphs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, place in COMMANDS.items():
        module = import_module(place)
        # The help shows the first line of the module's docstring after its command.
        summary = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=summary, description=summary)
        function = name.replace("-", "_")
        getattr(module, f"add_{function}_arguments")(command)
        command.set_defaults(run=getattr(module, f"run_{function}"))
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in FORMER:
        parser.error(f"the command {given[0]!r} was removed in 0.2.0; {FORMER[given[0]]}")
    options = parser.parse_args(given)
    try:
        options.run(options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        sys.stderr.write("\n".join([f"graphfeed {options.command}: {error}", *getattr(error, "__notes__", ())]) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
