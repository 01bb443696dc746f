"""`dragoman config`: show, set and edit settings, trust a project.

The package `dragoman.config` merges the settings and checks trust.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.completions import complete_setting
from dragoman.cli.output.terminal import put_data, put_err, put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat, YesOption
from dragoman.errors import ConfigInvalid, UsageError

if TYPE_CHECKING:
    from dragoman.config import Project

HELP: Final = """
Show, set and trust configuration.

Settings come from five places, each of which overrides those before it: defaults, your config.toml,
the dragoman.toml of a project, environment variables such as DRAGOMAN_FORMAT, and command options.
Until you trust a project's file, its commands, addresses, variables, models, modes and wider
permissions are ignored.

\b
Examples:
  dragoman config show              every setting and its origin
  dragoman config set default_peer codex
  dragoman config edit              open your config.toml in your editor
  dragoman config path              where dragoman keeps its files
  dragoman config trust             review and trust this project's dragoman.toml
"""

UNCHANGED: Final = "nothing was changed; `dragoman config show` lists the settings"

KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The setting, as listed by `dragoman config show`.",
        show_default=False,
        autocompletion=complete_setting,
    ),
]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE", show_default=False)]

app: Final = new_app(help=HELP, default="show")


@app.command("show", context_settings=CONTEXT)
def show_command(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY",
            help="Only this setting, or the settings of this table, such as peer.codex.",
            show_default=False,
            autocompletion=complete_setting,
        ),
    ] = None,
    *,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Show every setting with its value and origin. Settings that are not set show their default.

    JSON output has the raw values: seconds, bytes, and null for unset ones.

    \b
    Examples:
      dragoman config show
      dragoman config show default_peer
      DRAGOMAN_FORMAT=json dragoman config show
      dragoman config show --format json | jq 'select(.origin != "default")'
    """
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.tables import write_table
    from dragoman.runs.context import load_context

    config = load_context(cwd).config
    values = sorted(config.values())
    if key is not None:
        values = _named(key, values)
    if format is ListFormat.JSON:
        for key, value, origin in values:
            write_json({"type": "Setting", "key": key, "value": value, "origin": origin})
        for ignored in config.untrusted:
            write_json(
                {
                    "type": "Ignored",
                    "key": ignored.key,
                    "file": str(ignored.file),
                    "reason": ignored.reason,
                }
            )
    else:
        write_table(
            ["setting", "value", "origin"],
            [[key, _in_words(key, value), origin] for key, value, origin in values],
            drop=["origin"],
        )
    for told in (*config.problems, *config.untrusted):
        put_err(neutral(str(told)) + "\n")
    if config.problems:
        from dragoman.cli.exit_codes import ExitCode

        raise typer.Exit(ExitCode.USAGE)


def _named(key: str, values: list[tuple[str, Any, str]]) -> list[tuple[str, Any, str]]:
    """Return those of `values` with this key, or in the table of this name, such as ``peer.codex``.
    Raises `UsageError` if there are none."""
    named = [each for each in values if each[0] == key or each[0].startswith(f"{key}.")]
    if not named:
        from dragoman.errors.usage import nearest

        close = nearest(key, [each[0] for each in values])
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(
            f"there is no setting {key!r}{meant}",
            remedy="`dragoman config show` lists the settings",
        )
    return named


@app.command("init", context_settings=CONTEXT)
def init_command() -> None:
    """Write a commented config.toml, unless one exists.

    \b
    Examples:
      dragoman config init
    """
    from dragoman.config import find_paths
    from dragoman.config.edit import init_config

    paths = find_paths()
    if init_config(paths):
        put_data(sys.stdout, f"{paths.config_file}\n")
    else:
        put_err(f"{paths.config_file} already exists and was not changed.\n")


@app.command("set", context_settings=CONTEXT)
def set_command(key: KeyArgument, value: ValueArgument) -> None:
    """Set a value in your config.toml. Comments and order of the file are kept.

    VALUE is a number, true, false or text. The parts of a list are separated by commas, and a time
    may have a unit, such as 90s or 10m. TOML works too, such as '["codex", "gemini"]'. An invalid
    key or value is an error, and nothing is written.

    \b
    Examples:
      dragoman config set default_peer codex
      dragoman config set enabled_peers codex,gemini
      dragoman config set timeouts.total 10m
      dragoman config set peer.codex.model gpt-5
    """
    from dragoman.config import find_paths
    from dragoman.config.edit import set_value, value_of

    paths = find_paths()
    parsed = value_of(value, key)
    if isinstance(parsed, str) and _is_time(key):
        from dragoman.cli.output.times import parse_age

        with suppress(ValueError):
            parsed = parse_age(parsed)
    _check_peers(key, parsed)
    try:
        set_value(paths, key, parsed)
    except ConfigInvalid as error:
        error.hint = UNCHANGED
        raise
    put_err(f"{paths.config_file}: {key} is set.\n")


def _check_peers(key: str, value: Any) -> None:
    """Raise `UsageError` if a setting names an unknown peer and this name is close to that of a
    known one. Other unknown peers may be added later."""
    from dragoman.errors.usage import nearest
    from dragoman.runs.context import load_context

    words = key.split(".")
    if words[0] == "peer":
        names = words[1:2]
    elif key in ("default_peer", "enabled_peers"):
        names = [str(each) for each in (value if isinstance(value, list) else [value])]
    else:
        return
    catalogue = load_context(None).catalogue
    for name in names:
        peer = name.partition("@")[0]
        if peer and peer not in catalogue and (close := nearest(peer, catalogue.names)):
            raise UsageError(
                f"there is no peer {peer!r}; did you mean {close[0]}?", remedy=UNCHANGED
            )


@app.command("unset", context_settings=CONTEXT)
def unset_command(key: KeyArgument) -> None:
    """Remove a setting from your config.toml, so that its default applies.

    \b
    Examples:
      dragoman config unset default_peer
    """
    from dragoman.config import find_paths
    from dragoman.config.edit import set_value

    paths = find_paths()
    changed = set_value(paths, key, None)
    put_err(f"{paths.config_file}: {key} {'is no longer set' if changed else 'was not set'}.\n")


@app.command("edit", context_settings=CONTEXT)
def edit_command() -> None:
    """Open your config.toml in your editor ($VISUAL or $EDITOR), then check it.

    \b
    Examples:
      dragoman config edit
      EDITOR="code --wait" dragoman config edit
    """
    import os
    import shlex
    import shutil

    from dragoman.config import find_paths
    from dragoman.config.edit import check_config, init_config

    paths = find_paths()
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(editor)
    except ValueError as error:
        raise UsageError(f"the editor {editor!r} is not a valid command: {error}") from None
    if not words:
        raise UsageError(f"no editor is set: set EDITOR, or open {paths.config_file} in any editor")
    if shutil.which(words[0]) is None:
        raise UsageError(f"the editor {words[0]!r} was not found: check EDITOR and VISUAL")
    init_config(paths)
    try:
        code = os.spawnvp(os.P_WAIT, words[0], [*words, str(paths.config_file)])
    except OSError as error:
        raise UsageError(f"the editor {words[0]!r} cannot be started: {error.strerror}") from None
    if code:
        raise UsageError(f"the editor {words[0]!r} exited with code {code}")
    check_config(paths)


@app.command("path", context_settings=CONTEXT)
def path_command(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[WHAT]",
            help="config, data, cache, state, runtime, file or peers. Default: all.",
            show_default=False,
        ),
    ] = None,
    *,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Show where dragoman keeps its files.

    \b
    Examples:
      dragoman config path
      $EDITOR "$(dragoman config path file)"
      ls "$(dragoman config path peers)"
    """
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.tables import write_table
    from dragoman.config import find_paths

    paths = find_paths()
    places: dict[str, Path] = {
        "file": paths.config_file,
        "peers": paths.peers_folder,
        **{name: getattr(paths, name) for name in ("config", "data", "cache", "state", "runtime")},
    }
    if what is not None:
        if what not in places:
            raise UsageError(f"unknown path {what!r}; choose from {', '.join(places)}")
        put_data(sys.stdout, f"{places[what]}\n")
    elif format is ListFormat.JSON:
        write_json({"type": "Paths", **{name: str(path) for name, path in places.items()}})
    else:
        write_table(["what", "where"], [[name, str(path)] for name, path in places.items()])


@app.command("trust", context_settings=CONTEXT)
def trust_command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", exists=True, file_okay=False, resolve_path=True, show_default=False
        ),
    ] = None,
    *,
    yes: YesOption = False,
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Stop trusting the file.", show_default=False)
    ] = False,
) -> None:
    """Trust the commands, addresses, variables and permissions in a project's dragoman.toml.

    You see what the file would do before you are asked. Trust applies to the current content: after
    a change, the file must be trusted again. Be careful: a checkout from a stranger can contain
    anything.

    \b
    Examples:
      dragoman config trust
      dragoman config trust ~/project --yes
      dragoman config trust --withdraw
    """
    from dragoman.cli.output.questions import confirm
    from dragoman.config import find_paths, read_project, trust_project
    from dragoman.config.trust import Trust

    paths = find_paths()
    where = folder or Path.cwd()
    project = read_project(where, paths)
    if project is None:
        raise UsageError(f"there is no dragoman.toml in {where} or above it in its repository")
    if withdraw:
        known = Trust(paths).withdraw(project.file)
        put_err(
            f"{project.file} is no longer trusted.\n"
            if known
            else f"{project.file} was not trusted.\n"
        )
        return
    if project.problem is not None:
        raise project.problem
    trust = Trust(paths)
    if project.trusted and all(
        trust.trusts_adapter(project.file, file, code) for file, code in project.adapters.items()
    ):
        put_err(f"{project.file} is already trusted in its current form.\n")
        return
    _present(project)
    if not yes and not confirm("Do you trust it?", instead="--yes"):
        put_err("Nothing was trusted.\n")
        raise typer.Exit(1)
    trust_project(where, paths, shown=project)
    put_err(f"{project.file} is now trusted.\n")


def _present(project: Project) -> None:
    """Show what a project file would do, as sentences and as written."""
    from dragoman.cli.output.escape import neutral
    from dragoman.config.trust_summary import wanted

    put_out(f"{project.file} would:\n")
    for want in wanted(project):
        put_out(f"  - {neutral(want)}\n")
    put_out("\nAs written in the file:\n")
    texts = {project.file: project.data, **project.adapters}
    for file, data in texts.items():
        if file != project.file:
            put_out(f"\n{file}:\n")
        for line in data.decode("utf-8", "replace").splitlines():
            put_out(f"  | {neutral(line)}\n")
    sys.stdout.flush()


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


_UNSET: Final = {
    "check": "none",
    "default_peer": "the only enabled peer, else the last used",
    "local_model.api": "none",
    "policy.limits": "none",
    "policy.rules": "none",
    "enabled_peers": "none",
}
"""Descriptions of defaults for settings without a default value."""


def _is_time(key: str) -> bool:
    """Return whether a setting is a time in seconds."""
    table, _, name = key.rpartition(".")
    return (
        table == "timeouts"
        or key in ("ttl", "question_timeout")
        or name.endswith("seconds")
        or name == "silence"
    )


def _in_words(key: str, value: Any) -> str:
    """Format a value for people: durations and sizes with units, and the default for an unset
    value."""
    from dragoman.cli.output.times import UNITS
    from dragoman.client.budgets import Budgets
    from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE

    table, _, name = key.rpartition(".")
    if table == "timeouts" and value is None:
        value = getattr(Budgets(), name)
        if value is None:
            return "never"
    if key == "max_line_size" and value is None:
        value = DEFAULT_MAX_LINE_SIZE
    if value in (None, "", []):
        return "no limit" if table.endswith("limits") else _UNSET.get(key, "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if _is_time(key):
            return next(
                f"{value / size:g} {word}"
                for word, size in (("h", UNITS["h"]), ("min", UNITS["m"]), ("s", 1.0))
                if value % size == 0 and value >= size or size == 1.0
            )
        if key == "keep_days":
            return f"{value:g} days" if value else "forever"
        if key in ("max_line_size", "max_store_size"):
            return (
                next(
                    f"{value / size:g} {unit}"
                    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("bytes", 1))
                    if value % size == 0
                )
                if value
                else "no limit"
            )
    return _shown(value)
