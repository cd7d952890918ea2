"""The command line: each verb is a public function, and its keywords are the flags, so the two cannot drift apart.

Results go to stdout, everything else to stderr. Exit code 0: fine; 2: wrong use or input; 3: no plan fits the
devices' memory; 130: interrupted.
"""

import inspect
import io
import json as json_format
import logging
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts.completion import CompletionContext

from evaluation.commands.arguments import as_declared, flag_type
from evaluation.commands.flag_values import completions, names_for
from evaluation.commands.verb_help import EXAMPLES, HEADINGS, START, help_ending
from evaluation.commands.wording import in_flags
from graphs.foundation.errors import DiffersError, DoesNotFitError, InputError, unknown
from graphs.foundation.plain_text import printable
from graphs.foundation.progress import is_quiet

JSON_HELP = "    json: print the result as one JSON document.\n"

Verb = Callable[..., object]


def run(verbs: Mapping[str, Verb], about: str, arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments (by default the process's own), run the verb, print its result; exits with the code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what an encoding other than UTF-8 lacks must not end a command
            stream.reconfigure(errors="replace")
    logging.getLogger("placelab").addFilter(_printable)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        print(START, end="")
        sys.exit(0)
    if given[0] == "help":
        given = [*given[1:], "--help"]
    needed = {given[0]: verbs[given[0]]} if given[0] in verbs else verbs  # all take eight times as long
    sys.exit(_run(parser(needed, about), given, verbs))


def parser(verbs: Mapping[str, Verb], about: str) -> cyclopts.App:
    """What parses the command line, and prints its help."""
    app = cyclopts.App(
        name="placelab",
        help=about,
        result_action="return_value",
        version=_version,
        default_parameter=cyclopts.Parameter(negative_iterable=(), consume_multiple=True),
    )
    app.group_commands = cyclopts.Group("Other", sort_key=len(EXAMPLES))
    headings = {heading: cyclopts.Group(heading, sort_key=place) for place, heading in enumerate(EXAMPLES)}
    order = list(HEADINGS)
    for name, verb in verbs.items():
        app.command(
            _command(verb), name=name, help_epilogue=help_ending(name, verb), group=headings[HEADINGS[name]],
            sort_key=order.index(name),
        )  # fmt: skip
    app.register_install_completion_command(
        group="Other", help="Let the shell complete commands, flags, names and files at TAB."
    )
    return app


def _run(app: cyclopts.App, given: list[str], verbs: Mapping[str, Verb]) -> int:
    try:
        command, bound, _ = app.parse_args(given, exit_on_error=False, print_error=False)
        is_shown = not is_quiet() and command not in (app.help_print, app.version_print)
        if given and given[0] in verbs and is_shown:
            print(printable(_repeat(given, verbs[given[0]])), file=sys.stderr)
        command(*bound.args, **bound.kwargs)
    except cyclopts.CycloptsError as error:
        if isinstance(error.__cause__, InputError):  # of a value
            return _fail(in_flags(str(error.__cause__), inspect.signature(verbs[given[0]]).parameters), 2)
        return _fail(wrong_use(error, given[0] if given[0] in verbs else "", verbs), 2)
    except (InputError, DoesNotFitError, DiffersError) as error:
        return _fail(in_flags(str(error), inspect.signature(verbs[given[0]]).parameters), error.exit_code)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    except MemoryError:
        return _fail("there is not enough memory for this; try a smaller graph, or a cluster of fewer devices", 2)
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "interrupted", 130)
    return 0


def _command(verb: Verb) -> Callable[..., None]:
    """The verb with text in place of objects and a flag --json; it prints what the verb returns."""
    signature = inspect.signature(verb)
    parameters = [p.replace(annotation=_flag(p)) for p in signature.parameters.values()]
    kind = Annotated[bool, cyclopts.Parameter(negative="", show_default=False)]
    json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)

    def command(*args: object, json: bool = False, **keywords: object) -> None:
        _print(verb(*args, **keywords), json)

    if verb.__doc__:  # every verb's docstring ends with its arguments; Python -OO leaves it out
        command.__doc__ = f"{inspect.getdoc(verb)}\n{JSON_HELP}"
    command.__signature__ = signature.replace(parameters=[*parameters, json], return_annotation=None)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*parameters, json]}
    return command


def _flag(parameter: inspect.Parameter) -> Any:
    """The type of a parameter's flag; help shows no default that says nothing, and no `--no-` of what is off."""
    default = parameter.default
    says = default not in ("", (), None, inspect.Parameter.empty) and not isinstance(default, bool)
    annotation = str(parameter.annotation)
    settings = cyclopts.Parameter(
        show_default=says,
        negative="" if default is False else None,
        converter=partial(_whole_number, parameter) if annotation.startswith(("int", "Groups")) else None,
        completer=partial(_completed, parameter.name) if names_for(parameter.name) else None,
    )
    return Annotated[flag_type(annotation), settings]


def _completed(name: str, context: CompletionContext) -> list[str]:
    """What the shell offers at TAB."""
    return completions(name, context.incomplete)


def _whole_number(parameter: inspect.Parameter, _: object, tokens: Sequence[cyclopts.Token]) -> object:
    """What was typed, as the verb reads it: the parser would round a number."""
    return as_declared(parameter.name, tokens[0].value, str(parameter.annotation))


def _print(result: object, json: bool) -> None:
    named = result if isinstance(result, Path) else getattr(result, "name", result)  # a trained placer: its spec
    plain = result.to_json() if hasattr(result, "to_json") else str(named)
    if json:
        print(json_format.dumps(plain))
    elif hasattr(result, "__rich__"):
        from evaluation.records.text_console import TextConsole  # not for --json: it takes a while to import

        TextConsole().print(result, crop=False)  # as wide as the terminal, or as COLUMNS says; 80 columns else
    else:
        print(printable(str(plain)))
    for required in ("require_fit", "require_equal"):
        if hasattr(result, required):
            getattr(result, required)()


def _repeat(given: list[str], verb: Verb) -> str:
    """The line that repeats this command, with the seed that it took."""
    seed = inspect.signature(verb).parameters.get("seed")
    if seed is not None and not any(word.startswith("--seed") for word in given):
        given = [*given, "--seed", str(seed.default)]
    return shlex.join(["placelab", *given])


def _version() -> str:
    from importlib.metadata import version  # slow to import, and rarely needed

    return version("placelab")


def _printable(record: logging.LogRecord) -> bool:
    """A warning, with what a terminal would obey shown in place of that."""
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def _fail(sentence: str, code: int) -> int:
    print(f"placelab: {printable(sentence)}", file=sys.stderr)
    return code


def wrong_use(error: cyclopts.CycloptsError, verb: str, verbs: Collection[str]) -> str:
    """What is wrong, and what to do instead; `verb` is empty where none was recognised."""
    return f"{_wrong(error, verb, verbs)} (see placelab {verb}{' ' if verb else ''}--help)"


def _wrong(error: cyclopts.CycloptsError, verb: str, verbs: Collection[str]) -> str:
    named = error.argument
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens:
        return unknown("command", error.unused_tokens[0], verbs)
    if isinstance(error, cyclopts.MissingArgumentError) and named is not None:
        if error.keyword or named.tokens:
            return f"{error.keyword or named.name} needs a value"
        what = named.name.removeprefix("--").upper() if named.index is not None else named.name
        return f"{verb} needs {what}, as in: {EXAMPLES[HEADINGS[verb]][verb][0]}"
    if isinstance(error, cyclopts.UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is one word too many"
    if isinstance(error, cyclopts.CoercionError) and error.token is not None and named is not None:
        return unknown(f"value of {named.name}", error.token.value, named.get_choices() or ())
    return str(error)
