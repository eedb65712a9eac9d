"""All commands but ``serve``, put together, and the one place where their errors end."""

import os
import re
import sys
from typing import Annotated, Any

import typer

from raftline import __version__
from raftline.cli import cluster, dlq, exits, group, message, pipeline, scheduled, task, topic
from raftline.cli.bench import bench
from raftline.cli.chaos import chaos
from raftline.cli.consume import consume
from raftline.cli.flags import GLOBAL_VALUES, globals_first, one_form
from raftline.cli.local import down, up
from raftline.cli.produce import produce
from raftline.cli.session import Session
from raftline.cli.trace import trace
from raftline.cli.worker import worker
from raftline.config.quantities import parse_span_ms
from raftline.model.errors import InvalidArgument, RaftlineError

SERVER_VARIABLE = "RAFTLINE_SERVER"
DEBUG_VARIABLE = "RAFTLINE_DEBUG"
TIMEOUT_MS_MAX = 86_400_000
COMPLETE_VARIABLE = "_RAFTLINE_COMPLETE"  # a shell asks what could come next

app = typer.Typer(
    name="raftline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},  # of every command
    help="A durable, replicated log that is also a work queue.",
)
for command in (up, down, produce, consume, trace, worker, bench, chaos):
    app.command()(command)
for part in (topic, group, message, scheduled, dlq, task, cluster, pipeline):
    app.add_typer(part.commands, name=part.__name__.rpartition(".")[2])


@app.command(add_help_option=False)
def serve() -> None:
    """Run one node (raftline serve --help)."""
    # Never reached: run() and main() tell serve apart.


@app.callback()
def every_command(
    context: typer.Context,
    server: Annotated[
        str, typer.Option(help=f"URL of a node, or several with commas (or {SERVER_VARIABLE})")
    ] = "",
    timeout: Annotated[str, typer.Option(help="how long a call may take")] = "15s",
    json: Annotated[bool, typer.Option("--json", help="output for programs")] = False,
) -> None:
    """Set what all commands share. These flags may stand anywhere in the line."""
    servers = server or os.environ.get(SERVER_VARIABLE, "")
    try:
        timeout_ms = parse_span_ms(timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from error
    if not 1 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise typer.BadParameter(
            f"{timeout!r} is no time to answer in: 1ms to 24h", param_hint="--timeout"
        )
    session = Session(servers, timeout_ms=timeout_ms, as_json=json)
    context.obj = session
    context.call_on_close(session.close)


def run(words: list[str]) -> int:
    """Run one command line and return its exit code. Nothing a user does ends in a stack trace."""
    return exits.while_read(lambda: _run(words))


def _run(words: list[str]) -> int:
    if words in (["--version"], ["version"]):
        sys.stdout.write(f"raftline {__version__}\n")
        return exits.DONE
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    if COMPLETE_VARIABLE in os.environ:
        _add_flags_of_serve()
    try:
        words = globals_first(words)
    except RaftlineError as error:
        return exits.fail(error, as_json="--json" in words)
    command: Any = typer.main.get_command(app)
    named = _named(words)
    if named == "serve":
        from raftline.cli import serve as node

        return node.run(words[words.index(named) + 1 :])
    inner = _inner(command, words)
    _refuse_empty(inner)
    try:
        result = command.main(
            one_form(words, _options(inner)), prog_name="raftline", standalone_mode=False
        )
    except RaftlineError as error:
        return exits.fail(error, as_json="--json" in words)
    except typer.TyperException as error:
        return _misused(error, as_json="--json" in words)
    except (KeyboardInterrupt, typer.Abort):
        return exits.INTERRUPTED
    except typer.Exit as error:
        return error.exit_code
    except OSError:  # of an output: while_read tells
        raise
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # the parser makes it an exit code 1
            raise error.__context__ from None
        raise
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        exits.complain(f"a bug: {error!r}", f"{DEBUG_VARIABLE}=1 shows where; please report it")
        return exits.BUG
    return result if isinstance(result, int) else exits.DONE


def _add_flags_of_serve() -> None:
    """Tell a shell the flags of serve, which has a parser of its own."""
    import inspect

    from raftline.cli.serve import SWITCHES, VALUE_FLAGS

    kinds: dict[str, Any] = {}
    for flag in ("config", "set", *VALUE_FLAGS, "print-config", *SWITCHES):
        kind = str if flag in VALUE_FLAGS or flag in ("config", "set") else bool
        kinds[re.sub(r"\W", "_", flag)] = Annotated[kind, typer.Option(f"--{flag}")]
    function: Any = serve
    function.__annotations__ = kinds
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=kind.__origin__(), annotation=kind
            )
            for name, kind in kinds.items()
        ]
    )


def _named(words: list[str]) -> str:
    """Return the command that a line names; the shared flags are in front."""
    rest = iter(words)
    for word in rest:
        if word in GLOBAL_VALUES:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


def _misused(error: Any, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "raftline"
    message: str = error.format_message() if hasattr(error, "format_message") else str(error)
    if message.strip():
        told = InvalidArgument(message.strip().rstrip("."), f"{where} --help")
        exits.fail(told, as_json=as_json)
    return exits.USAGE


def _inner(command: Any, words: list[str]) -> Any:
    """Return the command that ``words`` name."""
    skip = False
    for word in words:
        inner = getattr(command, "commands", None)
        if inner is None:
            break
        if skip or word.startswith("-"):
            skip = not skip and word in ("--server", "--timeout")
            continue
        if word not in inner:
            break
        command = inner[word]
    return command


def _refuse_empty(command: Any) -> None:
    """Let a command take no empty name: in a path it would mean all of a kind, or another call."""

    def check(context: Any, argument: Any, value: Any) -> Any:
        if value == "" or (argument.nargs == -1 and "" in value):
            raise typer.BadParameter("it is empty", ctx=context, param=argument)
        return value

    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.required:
            parameter.callback = check


def _options(command: Any) -> dict[str, bool]:
    """Return the flags of a command: flag -> is a switch."""
    return {
        flag: bool(getattr(option, "is_flag", False))
        for option in command.params
        if option.param_type_name == "option"
        for flag in option.opts
    }
