"""`dragoman policy`: show the permission rules, and test one request against them.

The package `dragoman.policy` evaluates the rules, `dragoman.config` merges them from several files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, WithCommandLine, new_app, words_after_dashes
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat, Preset, check_peer
from dragoman.events.words import ToolKind

if TYPE_CHECKING:
    from dragoman.policy import Policy
    from dragoman.runs.context import RunContext

HELP: Final = """
Show and test the permission policy.

An agent asks before it edits, runs or fetches something. Rules in your config.toml allow, deny or
ask; the setting `permissions` decides requests that no rule matches. These commands do not run or
change anything.

\b
Examples:
  dragoman policy show                           the rules that apply here
  dragoman policy test edit --path src/a.py      may a file be edited?
  dragoman policy test execute -- git push       may this command be run?
"""

app: Final = new_app(help=HELP, default="show")


PeerOption = Annotated[
    str,
    typer.Option("--peer", metavar="PEER", help="Evaluate as for this peer.", show_default=False),
]
PermissionsOption = Annotated[
    Preset | None,
    typer.Option(
        "--permissions", help="Evaluate with this value of `permissions`.", show_default=False
    ),
]


@app.command("show", context_settings=CONTEXT)
def show_command(
    *, peer: PeerOption = "", format: FormatOption = ListFormat.TEXT, cwd: CwdOption = None
) -> None:
    """Show every rule that applies here.

    \b
    Examples:
      dragoman policy show
      dragoman policy show --peer codex
      dragoman policy show --format json | jq 'select(.action == "deny")'
    """
    import msgspec

    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.tables import write_table

    place = _place(cwd)
    policy = _policy(place, peer, None)
    where = place.config.origin
    listed = [
        (name, number, rule)
        for name, rules in (("rules", policy.rules), ("limits", policy.limits))
        for number, rule in enumerate(rules)
    ]
    if format is ListFormat.JSON:
        origin = where("permissions")
        write_json({"type": "Preset", "permissions": policy.preset, "origin": origin})
        for name, number, rule in listed:
            told = {"type": "Rule", "list": name, "number": number, "rule": str(rule)}
            write_json({**told, **msgspec.to_builtins(rule)})
    else:
        if listed:
            write_table(
                ["list", "rule", "why"],
                [[f"{name}[{number}]", str(rule), rule.why] for name, number, rule in listed],
                drop=["why"],
            )
            for name in ("rules", "limits"):
                if getattr(policy, name):
                    put_out(f"{name} from {neutral(where(f'policy.{name}'))}\n")
        else:
            put_out("There are no rules.\n")
        put_out(f"Everything else: {policy.preset} (from {where('permissions')})\n")
    for ignored in place.config.untrusted:
        put_err(neutral(str(ignored)) + "\n")


@app.command("test", context_settings=CONTEXT, cls=WithCommandLine)
def test_command(
    context: typer.Context,
    kind: Annotated[
        ToolKind,
        typer.Argument(
            metavar="KIND",
            help="The kind of request, as the agent calls it.",
            show_choices=False,
            show_default=False,
        ),
    ],
    *,
    path: Annotated[
        list[str] | None,
        typer.Option(
            "--path",
            metavar="PATH",
            help="A file that the request names. May be repeated.",
            show_default=False,
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option("--line", help="The command as a shell command line.", show_default=False),
    ] = None,
    peer: PeerOption = "",
    role: Annotated[
        str, typer.Option("--role", help="Evaluate as for work in this role.", show_default=False)
    ] = "",
    permissions: PermissionsOption = None,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Show how one request would be decided, and by which rule. Nothing is run.

    KIND is what the agent calls it: read, edit, delete, move, search, execute, think, fetch,
    switch_mode or other. The exit code is 5 if the request is denied, otherwise 0.

    \b
    Examples:
      dragoman policy test edit --path src/a.py --path ../b.py
      dragoman policy test execute -- git push --force
      dragoman policy test execute --line "make && git push" --peer codex --role review
      dragoman policy test delete --path build --permissions approve-all --format json
    """
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.tables import facts
    from dragoman.errors import UsageError
    from dragoman.policy import Act, judge
    from dragoman.policy.evaluation import ActFacts

    words = words_after_dashes(context)
    if words is not None and line is not None:
        raise UsageError("give the command after -- or with --line, not both")
    place = _place(cwd)
    act = Act(
        kind=kind.value,
        paths=tuple(path or ()),
        argv=words,
        line=line,
        hidden=kind is ToolKind.EXECUTE and words is None and line is None,
        peer=peer,
        role=role,
        workspace=str(place.cwd),
    )
    verdict = judge(_policy(place, peer, permissions), act)
    kinds = sorted(ActFacts(act).kinds)
    if format is ListFormat.JSON:
        write_json(
            {
                "type": "Verdict",
                "action": verdict.action,
                "by": verdict.by,
                "rule": verdict.rule,
                "why": verdict.why,
                "kinds": kinds,
            }
        )
    elif format is ListFormat.QUIET:
        put_out(f"{verdict.action}\n")
    else:
        reasons = {
            "by": f"{verdict.by}: {verdict.rule}",
            "why": verdict.why,
            "kind": ", ".join(kinds),
        }
        put_out(f"{verdict.action}\n", facts(reasons.items(), indent="  "))
    if verdict.action == "deny":
        raise typer.Exit(ExitCode.DENIED)


def _place(cwd: CwdOption) -> RunContext:
    """Load the context of a directory (default: the current one). Raises the first problem in its
    settings: a skipped rule could allow too much."""
    from dragoman.runs.context import load_context

    place = load_context(cwd)
    for problem in place.config.problems:
        raise problem
    return place


def _policy(place: RunContext, peer: str, wished: Preset | None) -> Policy:
    from dragoman.policy import of_settings

    if peer:
        check_peer(peer, place.cwd)
    settings = place.config.settings
    preset = settings.permissions_for(peer) if wished is None else wished.value
    return of_settings(settings.policy, preset)
