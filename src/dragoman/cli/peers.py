"""`dragoman peers`: list, show, verify, add, remove, enable, disable and unpark peers; list models.

The rows come from `delegation.peer_status`; adding and enabling are in `setup.add_peer`, measuring
in `verify`, rendering in `output.peer_pages`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, WithCommandLine, new_app, words_after_dashes
from dragoman.cli.completions import complete_dialect, complete_peer, complete_variable
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat, YesOption

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from dragoman.catalogue.card import Card
    from dragoman.catalogue.launch import LaunchSpec
    from dragoman.runs.context import RunContext
    from dragoman.setup.add_peer import Done

HELP: Final = """
List, verify, add and enable agents.

Without a subcommand it lists every peer: whether it is installed and enabled, its version,
protocol, roles, and verification results. This starts nothing. Delegation uses only enabled peers;
a peer that you name (`dragoman run codex`) need not be enabled.

\b
Examples:
  dragoman peers                                          all peers
  dragoman peers show gemini                              one peer, with its card
  dragoman peers models gemini                            the models it offers
  dragoman peers verify gemini                            measure what it can do
  dragoman peers verify -- my-agent --acp                 the same for any program
  dragoman peers add mine --roles review -- my-agent --acp
  dragoman peers remove mine
  dragoman peers enable codex gemini                      allow delegation to these
  dragoman peers unpark codex                             after a login
"""

app: Final = new_app(help=HELP, default="list")

WORKING: Final = ("login", "echo")
"""Steps (rungs) whose failure does not prevent adding a peer, although it does not work until they
succeed."""

NameArgument = Annotated[
    str, typer.Argument(metavar="PEER", show_default=False, autocompletion=complete_peer)
]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="PEER", show_default=False, autocompletion=complete_peer)
]
TurnsOption = Annotated[
    bool | None,
    typer.Option(
        "--turns/--no-turns",
        help="Also run the steps that call the peer's model; this may cost money. Default: ask on "
        "a terminal, otherwise no.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Timeout for the peer's first response. Default: 30.",
        show_default=False,
    ),
]


DialectOption = Annotated[
    str | None,
    typer.Option(
        "--dialect",
        metavar="NAME",
        help="The dialect it speaks, if it cannot be detected.",
        show_default=False,
        autocompletion=complete_dialect,
    ),
]


@app.command("list", context_settings=CONTEXT)
def list_command(*, format: FormatOption = ListFormat.TEXT, cwd: CwdOption = None) -> None:
    """List every peer.

    \b
    Examples:
      dragoman peers list
      dragoman peers list --format json | jq -r 'select(.installed) | .name'
    """
    from dragoman.cli.output import peer_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.delegation.peer_status import overview

    place = _place(cwd)
    rows = overview(place)
    write_list(
        [row for row in rows if row.installed] if format is ListFormat.QUIET else rows,
        format,
        head=peer_pages.HEAD,
        cells=peer_pages.row_as_cells,
        as_json=peer_pages.row_as_json,
        name=lambda row: row.descriptor.name,
        drop=peer_pages.DROP,
    )
    _warn(place)


@app.command("show", context_settings=CONTEXT)
def show_command(
    name: NameArgument, *, format: FormatOption = ListFormat.TEXT, cwd: CwdOption = None
) -> None:
    """Show one peer and its card.

    \b
    Examples:
      dragoman peers show codex
      dragoman peers show gemini --format json | jq .card.facts
    """
    from dragoman.cli.output import peer_pages
    from dragoman.cli.output.jsonl import write_json
    from dragoman.delegation.peer_status import credentials_set, row_of, with_parking

    place = _place(cwd)
    (row,) = with_parking([row_of(name, place)], place)
    credentials = credentials_set(row.descriptor, place)
    if format is ListFormat.JSON:
        write_json(peer_pages.page_as_json(row, credentials))
    else:
        env = place.config.settings.for_peer(name).env
        put_out(peer_pages.page(row, credentials, env))


@app.command("models", context_settings=CONTEXT)
def models_command(
    name: NameArgument,
    *,
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the peer even if its card has the answer.")
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start the peer only for this command, without a broker.")
    ] = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """List the models that a peer offers, and its default model.

    A running peer is asked. Otherwise the names come from its card; a peer without a card is
    started and asked. No prompt is sent.

    \b
    Examples:
      dragoman peers models codex
      dragoman peers models gemini --ask
      dragoman run codex -m "$(dragoman peers models codex --format quiet | head -1)" hello
    """
    from dragoman.cli.output import peer_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.events.parts import Choice

    place = _place(cwd)
    place.catalogue.get(name)
    card = place.cards().latest(name)
    measured = None if card is None or card.facts.models is None else card
    if measured is not None and not ask and not _runs(name, place):
        models: list[Choice] = [Choice(each, "") for each in measured.facts.models or ()]
        current, since = measured.facts.model, measured.measured_at[:10]
        put_err(f"Measured on {since}; use --ask to query {name} again.\n")
    else:
        from dragoman.cli.session_actions import ask_for_models

        offered, current = ask_for_models(name, cwd=cwd, cold=cold)
        models, since = list(offered), None
        if not models and current is not None:
            models = [Choice(current, "")]
    write_list(
        models,
        format,
        head=peer_pages.MODELS_HEAD,
        cells=lambda each: peer_pages.model_as_cells(each, current),
        as_json=lambda each: peer_pages.model_as_json(each, current, peer=name, since=since),
        name=lambda each: each.value,
        empty=f"{name} does not report its models.",
        drop=peer_pages.MODELS_DROP,
    )


@app.command("verify", cls=WithCommandLine, context_settings=CONTEXT)
def verify_command(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="PEER", show_default=False, autocompletion=complete_peer),
    ] = None,
    *,
    turns: TurnsOption = None,
    timeout: TimeoutOption = None,
    dialect: DialectOption = None,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Measure what a peer can do, step by step, and save the result as its card.

    An unknown program is first tried without credentials and with an empty home directory. No login
    is ever attempted. A program that rejects the ACP handshake is restarted and tried with the
    other dialects. The exit code is 10 if the peer cannot be used, needs a login, or failed a turn.

    \b
    Examples:
      dragoman peers verify gemini
      dragoman peers verify codex --turns
      dragoman peers verify --timeout 60 -- npx some-agent --acp
      dragoman peers verify --dialect threads -- my-agent app-server
    """
    from dragoman.catalogue.command_unwrap import describe_command
    from dragoman.catalogue.launch import LaunchSpec, way_to
    from dragoman.client.options import ADDRESSES, AUTO
    from dragoman.errors import UsageError
    from dragoman.setup.add_peer import in_dialect, note_verified, settled_command

    place = _place(cwd)
    dialect = _named(dialect)
    command = words_after_dashes(context)
    if (name is None) == (command is None):
        raise UsageError("name a peer or give a command line after --, but not both")
    if name is not None:
        known = way_to(name, catalogue=place.catalogue, settings=place.config.settings)
        launch = in_dialect(known, dialect)
        # The card is about the dialect that the descriptor names.
        keep = launch.protocol == known.protocol or known.protocol == AUTO
        card = _measure(launch, name, place, turns, timeout, format, keep=keep)
        if not keep and format is ListFormat.TEXT:
            put_err(
                f"The card is not saved: the descriptor of {name} names another dialect,"
                f" {known.protocol}.\n"
            )
        note_verified(card, launch, place)
    else:
        words = settled_command(command or (), place.cwd)
        address = words[0] if words[0].startswith(ADDRESSES) else None
        launch = (
            LaunchSpec(address=address) if address else describe_command(words, place.catalogue)
        )
        launch = in_dialect(launch, dialect)
        card = _measure(launch, launch.name, place, turns, timeout, format, keep=False)
    if not card.usable or _works_not_yet(card):
        _leave_unverified()


@app.command("add", cls=WithCommandLine, context_settings=CONTEXT)
def add_command(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and hyphens.")
    ],
    *,
    roles: Annotated[
        str,
        typer.Option(
            "--roles", metavar="ROLE,ROLE", help="The roles it claims, such as review,research."
        ),
    ] = "",
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its display name.")] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME",
            help="An environment variable that it may see, by name. May be repeated.",
            autocompletion=complete_variable,
        ),
    ] = None,
    python: Annotated[
        bool, typer.Option("--python", help="Also write a Python adapter for you to complete.")
    ] = False,
    turns: TurnsOption = None,
    timeout: TimeoutOption = None,
    dialect: DialectOption = None,
    cwd: CwdOption = None,
) -> None:
    """Add a peer of your own, after verifying it.

    The peer is verified first; if it speaks no supported protocol, the command fails with exit code
    10. Then its descriptor is written to your configuration and shown, and all descriptors and
    agent files are validated; if that fails, the change is undone.

    \b
    Examples:
      dragoman peers add mine --roles review,research -- my-agent --acp
      dragoman peers add local --roles write --env MY_KEY -- python agent.py
      dragoman peers add remote --roles plan -- ws://127.0.0.1:8765
      dragoman peers add old --roles plan --dialect chained -- old-agent serve
      dragoman peers add odd --roles debug --python -- odd-agent serve
    """
    from dragoman.setup import add_peer
    from dragoman.setup.descriptor_draft import PeerDraft

    place = _place(cwd)
    draft = PeerDraft(
        name=name,
        roles=_split(roles),
        command=add_peer.settled_command(words_after_dashes(context) or (), place.cwd),
        title=title,
        env=tuple(env or ()),
        python=python,
        dialect=_named(dialect),
    )
    launch = add_peer.prepare(draft, place)
    card = _measure(launch, name, place, turns, timeout, ListFormat.TEXT, keep=True)
    if not card.usable:
        put_err(f"{name} was not added: only its card was written.\n")
        _leave_unverified()
    _tell(add_peer.add_peer(draft, launch, card, place), place)


@app.command("remove", context_settings=CONTEXT)
def remove_command(name: NameArgument, *, yes: YesOption = False, cwd: CwdOption = None) -> None:
    """Remove a peer that you added: its descriptor, adapter, cards and enabled state.

    A peer that ships with dragoman cannot be removed; `disable` excludes it from delegation.

    \b
    Examples:
      dragoman peers remove mine
      dragoman peers remove mine --yes
    """
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.output.questions import confirm
    from dragoman.delegation.parked import unpark
    from dragoman.setup.add_peer import plan_removal, remove_peer

    place = _place(cwd)
    removal = plan_removal(name, place)
    for file in (*removal.files, *removal.cards):
        put_err(f"deletes {neutral(str(file))}\n")
    for key in removal.settings:
        put_err(f"removes {name} from {key} in {neutral(str(place.paths.config_file))}\n")
    if not yes and not confirm(f"Remove {name}?", instead="--yes"):
        put_err("Nothing was changed.\n")
        return
    _tell(remove_peer(removal, place), place)
    unpark([name], place.paths)
    if _runs(name, place, anywhere=True):
        put_err(f"It is still running: `dragoman broker stop {name}` stops it.\n")


@app.command("enable", context_settings=CONTEXT)
def enable_command(names: NamesArgument, *, cwd: CwdOption = None) -> None:
    """Enable peers for routing and delegation, and unpark them.

    \b
    Examples:
      dragoman peers enable codex
      dragoman peers enable gemini qwen
      dragoman peers enable codex@box          codex on the host box, after `hosts check`
    """
    from dragoman.delegation.parked import unpark
    from dragoman.setup.add_peer import enable

    place = _place(cwd)
    _tell(enable(tuple(names), place), place)
    unpark(names, place.paths)


@app.command("unpark", context_settings=CONTEXT)
def unpark_command(names: NamesArgument, *, cwd: CwdOption = None) -> None:
    """Let delegation use parked peers again, and reset their failure counts.

    A peer is parked while it needs a login or has no quota; a successful turn unparks it. After
    three failures in a row, a peer is not used for a while either: this command ends that too.

    \b
    Examples:
      dragoman peers unpark codex
    """
    from dragoman.delegation.parked import unpark

    place = _place(cwd)
    for name in names:
        if name not in place.config.settings.enabled_peers:
            place.catalogue.get(name)
    freed = unpark(names, place.paths)
    for name in names:
        put_out(f"{name}: {'unparked' if name in freed else 'was not parked'}\n")


@app.command("disable", context_settings=CONTEXT)
def disable_command(names: NamesArgument, *, cwd: CwdOption = None) -> None:
    """Exclude peers from routing and delegation. You can still name them.

    \b
    Examples:
      dragoman peers disable codex
    """
    from dragoman.setup.add_peer import disable

    place = _place(cwd)
    _tell(disable(tuple(names), place), place)


def _place(cwd: Path | None) -> RunContext:
    from dragoman.runs.context import load_context

    return load_context(cwd)


def _runs(peer: str, place: RunContext, *, anywhere: bool = False) -> bool:
    """Return whether a broker of the peer is running for the directory of `place` or, with
    `anywhere`, for any directory."""
    from dragoman.broker.client.brokers import list_brokers

    folder = os.path.realpath(place.cwd)
    return any(
        broker.peer == peer and (anywhere or broker.workspace == folder)
        for broker in list_brokers(place.paths)
    )


def _warn(place: RunContext) -> None:
    """Report invalid settings and descriptors, and ignored project settings: they explain why a
    peer is missing from the list."""
    from dragoman.cli.output.escape import neutral

    for problem in (*place.config.problems, *place.catalogue.problems):
        put_err(neutral(f"skipped: {problem}") + "\n")
    for ignored in place.config.untrusted:
        put_err(neutral(str(ignored)) + "\n")


def _named(dialect: str | None) -> str | None:
    """Return the name of the dialect that an option names, or None without the option. Raises
    `UsageError` if there is no such dialect."""
    if dialect is None:
        return None
    from dragoman.client.options import named_dialect

    return named_dialect(dialect)


def _split(roles: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(role.strip() for role in roles.split(",") if role.strip()))


def _measure(
    launch: LaunchSpec,
    name: str,
    place: RunContext,
    turns: bool | None,
    timeout: float | None,
    format: ListFormat,
    *,
    keep: bool,
) -> Card:
    from dragoman.catalogue.discovery_store import DiscoveryStore
    from dragoman.cli.output.jsonl import write_json
    from dragoman.cli.output.verify_progress import LadderProgress, card_as_json
    from dragoman.errors import UsageError
    from dragoman.setup.add_peer import measure
    from dragoman.verify.time_limits import LadderLimits

    if timeout is not None and not timeout > 0:
        raise UsageError("--timeout must be a number of seconds greater than 0")
    progress = LadderProgress(format)
    if turns is None:
        turns = _asked_for_turns(name)
    if launch.descriptor is None and launch.command is not None:
        progress.say(
            f"`{launch.shown}` is unknown, so it is started without credentials and with an empty"
            " home directory."
        )
    card = _run(
        measure(
            launch,
            peer=name,
            turns=turns,
            paths=place.paths if keep else None,
            limits=None if timeout is None else LadderLimits(handshake=timeout),
            on_rung=progress.rung,
            cache=DiscoveryStore(place.paths.cache),
        )
    )
    progress.end(card)
    if format is ListFormat.JSON:
        write_json(card_as_json(card))
    return card


def _run(work: Coroutine[Any, Any, Card]) -> Card:
    """Run a verification and return its card. SIGTERM and SIGHUP end it cleanly, as Ctrl-C does,
    and leave no directory behind."""
    import asyncio
    import signal

    from dragoman.cli.exit_codes import ExitCode

    async def main() -> Card:
        task = asyncio.current_task()
        assert task is not None
        for name in ("SIGTERM", "SIGHUP") if os.name == "posix" else ():
            number = getattr(signal, name)
            # A signal that the parent process ignores (nohup) stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise typer.Exit(ExitCode.TERMINATED) from None


def _asked_for_turns(name: str) -> bool:
    from dragoman.cli.output.questions import confirm
    from dragoman.cli.output.terminal import is_interactive

    if not is_interactive():
        return False
    return confirm(
        f"Also run turns with {name}? They call its model and may cost money.",
        instead="--turns or --no-turns",
    )


def _works_not_yet(card: Card) -> bool:
    """Return whether the login or the first turn failed, so that the peer does not work yet."""
    from dragoman.catalogue.card import RungVerdict

    return any(one.verdict is RungVerdict.FAIL and one.rung in WORKING for one in card.rungs)


def _leave_unverified() -> None:
    from dragoman.cli.exit_codes import ExitCode

    raise typer.Exit(ExitCode.UNVERIFIED)


def _tell(done: Done, place: RunContext) -> None:
    from dragoman.cli.output.config_diffs import write_diff
    from dragoman.cli.output.escape import neutral

    write_diff(done.changes, cwd=place.cwd)
    for note in done.notes:
        put_err(neutral(note) + "\n")
