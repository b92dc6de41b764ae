"""The program: reads its command line, runs one command, turns errors into exit codes.

0 fine, 1 could not start, 2 wrong configuration or usage, 130 Ctrl-C, 141 nobody reads on.
Commands are imported where they run, so that `--help` costs nothing.
"""

import os
import sys
from collections.abc import Sequence

from mlxcel.config.flag_table import SERVER
from mlxcel.config.flags import Invocation, parse
from mlxcel.config.problems import ConfigErrors
from mlxcel.core.errors import MlxcelError

BROKEN_PIPE = 141
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    return _guarded("mlxcel", argv)


def server_main(argv: Sequence[str] | None = None) -> int:
    """`mlxcel-server`: `mlxcel serve` for those who come from llama-server."""
    return _guarded(SERVER, argv)


def _guarded(program: str, argv: Sequence[str] | None) -> int:
    try:
        code = _run(program, sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except ConfigErrors as error:
        print(error.message, file=sys.stderr)
        return 2
    except MlxcelError as error:
        print(f"{program}: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Or the interpreter complains once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(program: str, argv: Sequence[str]) -> int:
    invocation = parse(argv, os.environ, program=program)
    if invocation.options.get("help"):
        from mlxcel.cli.help import page

        command = invocation.command if argv[0] == invocation.command else None
        print(page(program, command))
        return 0
    if invocation.options.get("version"):
        from mlxcel import __version__

        print(f"{program} {__version__}")
        return 0
    for warning in invocation.warnings:
        print(f"{program}: warning: {warning}", file=sys.stderr)
    return _command(invocation)


def _command(invocation: Invocation) -> int:
    match invocation.command:
        case "config":
            from mlxcel.cli import config

            return config.run(invocation.asked, invocation.words)
        case "graph":
            from mlxcel.cli import graph

            return graph.run(invocation.asked, invocation.options)
        case "connect":
            from mlxcel.cli import connect

            return connect.run(invocation.asked, invocation.words, invocation.options)
        case _:
            from mlxcel.cli import serve

            return serve.run(invocation.asked)
