"""`dragoman agents`: show, set and validate which peer each agent file delegates to.

`catalogue.agent_files` parses and edits the files; an edit changes one field only.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat, YesOption
from dragoman.errors import DelegationInvalid

if TYPE_CHECKING:
    from dragoman.catalogue.agent_files import AgentFile, AgentFileEdit, Problem
    from dragoman.runs.context import RunContext

HELP: Final = """
Set which peer each of your agent files delegates to.

An agent file is a text file with YAML front matter: agents/*.md and .claude/agents/*.md, unless the
setting agent_files names other files. Its field `delegate_to: <peer>-<role>` hands the agent's work
to that peer; with `none` it is never delegated. Only this field is edited; every other byte of the
file is kept.

\b
Examples:
  dragoman agents list                          list agent files and their peers
  dragoman agents set codex-execute builder     agents/builder.md goes to codex
  dragoman agents set none 'agents/priv*.md'    these are never delegated
  dragoman agents unset builder                 back to the default
  dragoman agents validate                      check every value
"""

app: Final = new_app(help=HELP, default="list")

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Agent files: paths, patterns in quotes, or bare names. Default: all.",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Show what would change, without changing it.")
]


@app.command("list", context_settings=CONTEXT)
def list_command(
    files: FilesArgument = None, *, format: FormatOption = ListFormat.TEXT, cwd: CwdOption = None
) -> None:
    """List the agent files and the peer each delegates to.

    \b
    Examples:
      dragoman agents list
      dragoman agents list '.claude/agents/*.md'
      dragoman agents list --format json
    """
    from dragoman.catalogue.agent_files import list_files
    from dragoman.cli.output.tables import write_list

    place = _place(cwd)
    found = list_files(place.find_agent_files(tuple(files or ())), place.role_catalogue())
    patterns = ", ".join(place.config.settings.agent_files)
    write_list(
        found,
        format,
        head=["file", "delegate_to", "enabled", "note"],
        cells=lambda file: [
            _shown(file.path, place),
            file.value or "",
            _enabled(file, place),
            _note(file),
        ],
        as_json=lambda file: _as_json(file, place),
        name=lambda file: _shown(file.path, place),
        empty=f"There are no agent files ({patterns}) in {place.agent_folder}.",
        drop=["enabled", "note"],
    )


@app.command("set", context_settings=CONTEXT)
def set_command(
    target: Annotated[
        str,
        typer.Argument(metavar="PEER-ROLE", help="The peer and role to delegate to, or `none`."),
    ],
    files: FilesArgument = None,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    cwd: CwdOption = None,
) -> None:
    """Set the peer that agent files delegate to: `<peer>-<role>`, or `none`.

    The value is checked before a file is changed, and all files are validated afterwards; if that
    fails, the change is undone. You are asked before several files are changed. The files may also
    come first: `dragoman agents set agents/builder.md codex-execute`.

    \b
    Examples:
      dragoman agents set codex-execute agents/builder.md
      dragoman agents set gemini-research researcher reader
      dragoman agents set none --yes
    """
    from dragoman.catalogue.agent_files import parse_target, set_target

    place = _place(cwd)
    if files and _is_file(target, files[-1], place):
        target, files = files[-1], [target, *files[:-1]]
    named = parse_target(target, place.role_catalogue())
    paths = place.find_agent_files(tuple(files or ()))
    if _agreed(paths, target, place, yes=yes, dry_run=dry_run):
        _tell(set_target(paths, target, place.role_catalogue(), others=place.agent_files()), place)
        if named is not None and not place.is_enabled(named.peer):
            put_err(
                f"{named.peer} is not enabled, so nothing is delegated to it yet: "
                f"`dragoman peers enable {named.peer}`\n"
            )


@app.command("unset", context_settings=CONTEXT)
def unset_command(
    files: FilesArgument = None,
    *,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    cwd: CwdOption = None,
) -> None:
    """Remove the field from agent files, so that the default applies again.

    \b
    Examples:
      dragoman agents unset builder
      dragoman agents unset 'agents/*.md' --yes
    """
    from dragoman.catalogue.agent_files import unset_target

    place = _place(cwd)
    paths = place.find_agent_files(tuple(files or ()))
    if _agreed(paths, None, place, yes=yes, dry_run=dry_run):
        _tell(unset_target(paths, place.role_catalogue(), others=place.agent_files()), place)


@app.command("validate", context_settings=CONTEXT)
def validate_command(
    files: FilesArgument = None, *, format: FormatOption = ListFormat.TEXT, cwd: CwdOption = None
) -> None:
    """Check the field in every agent file. The exit code is 1 if one is invalid.

    \b
    Examples:
      dragoman agents validate
      dragoman agents validate 'docs/agents/*.md'
    """
    from dragoman.catalogue.agent_files import validate
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.output.jsonl import write_json

    place = _place(cwd)
    paths = place.find_agent_files(tuple(files or ()))
    problems = validate(paths, place.role_catalogue())
    if format is ListFormat.JSON:
        for problem in problems:
            write_json(
                {
                    "type": "Problem",
                    "file": str(problem.path),
                    "line": problem.line,
                    "problem": problem.text,
                    "remedy": problem.remedy,
                }
            )
    else:
        _complain(problems, place)
        if format is ListFormat.TEXT:
            put_out(f"{len(paths)} agent files, {len(problems)} invalid\n")
    if problems:
        raise typer.Exit(ExitCode.FAILED)


def _is_file(first: str, last: str, place: RunContext) -> bool:
    """Return whether `first`, the first argument of `set`, names a file rather than a target. That
    is so if it looks like a path; or if it is not a valid target, and `last`, the last argument, is
    a valid target or an agent file has the name `first`."""
    from dragoman.catalogue.agent_files import parse_target

    if "/" in first or first.endswith(".md"):
        return True
    try:
        parse_target(first, place.role_catalogue())
    except DelegationInvalid:
        with contextlib.suppress(DelegationInvalid):
            parse_target(last, place.role_catalogue())
            return True
        return any(file.stem == first for file in place.agent_files())
    return False


def _place(cwd: Path | None) -> RunContext:
    from dragoman.runs.context import load_context

    return load_context(cwd)


def _agreed(
    paths: list[Path], value: str | None, place: RunContext, *, yes: bool, dry_run: bool
) -> bool:
    """Return whether to write `value`, or with None remove the field, in the agent files `paths`.

    With `dry_run` the changes are only shown, and the result is False. Otherwise, unless `yes` is
    set, the user has to confirm a change of several files, and the command exits with code 1 if it
    is declined. Raises `UsageError` if there are no files.
    """
    from dragoman.catalogue.agent_files import preview
    from dragoman.cli.output.config_diffs import write_diff
    from dragoman.cli.output.questions import confirm
    from dragoman.errors import UsageError

    if not paths:
        patterns = ", ".join(place.config.settings.agent_files)
        raise UsageError(f"there are no agent files ({patterns}) in {place.agent_folder}")
    changes = preview(paths, value)
    if dry_run:
        write_diff(changes, cwd=place.cwd)
        return False
    if len(changes) > 1 and not yes:
        names = ", ".join(_shown(change.path, place) for change in changes)
        if not confirm(f"Change {len(changes)} files ({names})?", instead="--yes"):
            put_err("Nothing was changed.\n")
            raise typer.Exit(1)
    return True


def _tell(edit: AgentFileEdit, place: RunContext) -> None:
    from dragoman.cli.output.config_diffs import write_diff

    write_diff(edit.changes, cwd=place.cwd)
    if not edit.changes:
        put_err("Nothing to change.\n")
    if edit.problems:
        put_err("These problems existed before the change:\n")
        _complain(edit.problems, place)


def _complain(problems: list[Problem] | tuple[Problem, ...], place: RunContext) -> None:
    from dragoman.cli.output.escape import neutral

    for problem in problems:
        where = _shown(problem.path, place)
        line = f":{problem.line}" if problem.line is not None else ""
        put_err(neutral(f"{where}{line}: {problem.text}") + "\n")
        if problem.remedy:
            put_err(neutral(f"  {problem.remedy}") + "\n")


def _shown(path: Path, place: RunContext) -> str:
    return str(path.relative_to(place.cwd)) if path.is_relative_to(place.cwd) else str(path)


def _enabled(file: AgentFile, place: RunContext) -> str:
    if file.target is None:
        return ""
    return "yes" if place.is_enabled(file.target.peer) else "no"


def _note(file: AgentFile) -> str:
    if file.problem is not None:
        return file.problem.text
    return "never delegated" if file.value == "none" else ""


def _as_json(file: AgentFile, place: RunContext) -> dict[str, object]:
    return {
        "type": "AgentFile",
        "file": str(file.path),
        "delegate_to": file.value,
        "peer": None if file.target is None else file.target.peer,
        "role": None if file.target is None else file.target.role,
        "enabled": None if file.target is None else place.is_enabled(file.target.peer),
        "problem": None if file.problem is None else file.problem.text,
        "remedy": None if file.problem is None else file.problem.remedy or None,
    }
