"""`dragoman sessions`: list, show, resume, close, delete, export and import stored sessions.

Sessions are stored in `store` and looked up in `runs.sessions`. Subcommands that need the peer are
in `cli.session_actions`, the others in `cli.stored_sessions`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.prompt_options import (
    complete_mode,
    complete_model,
    complete_peer,
    complete_session,
)
from dragoman.cli.shared_options import (
    AfterOption,
    CwdOption,
    FormatOption,
    LimitOption,
    ListFormat,
    YesOption,
    check_limit,
)
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.store import SessionRecord, Store

HELP: Final = """
Show, continue and keep conversations.

A session is a conversation with one peer in one project (the git repository around this folder,
else the folder). `dragoman run PEER -s NAME` begins or continues the one of that name, from any
folder of the project and in any shell. Everything said in it is stored here with secrets cut out,
and can be read without the peer.

SESSION is a name, the key that `list` shows (s-...), or the id that the peer gave it.

\b
Examples:
  dragoman run codex "begin with the parser" -s parser
  dragoman sessions list                    those of this project
  dragoman sessions show parser             all that was said
  dragoman run codex "now the tests" -s parser
  dragoman sessions watch parser            what is happening in it right now
  dragoman sessions export parser > parser.jsonl
  dragoman sessions prune --older-than 90d
"""

app: Final = new_app(help=HELP, default="list")

SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Its name, key, or the beginning of the key; `last` is the one used last.",
        show_default=False,
        autocompletion=complete_session,
    ),
]
PeerArgument = Annotated[
    str, typer.Argument(metavar="PEER", show_default=False, autocompletion=complete_peer)
]
PeerOption = Annotated[
    str | None,
    typer.Option(
        "--peer",
        metavar="PEER",
        help="Whose session, where a name alone does not say it.",
        autocompletion=complete_peer,
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--session", "-s", metavar="NAME", help="What the session is called.")
]
ColdOption = Annotated[bool, typer.Option("--cold", help="Start a peer for this command alone.")]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME", help="The model to use.", autocompletion=complete_model
    ),
]
ModeOption = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="NAME",
        help="The peer's mode to work in.",
        autocompletion=complete_mode,
    ),
]


@app.command("list", context_settings=CONTEXT)
def list_command(
    peer: Annotated[
        str | None,
        typer.Argument(
            metavar="[PEER]",
            help="Only its sessions, with those that only it remembers.",
            show_default=False,
            autocompletion=complete_peer,
        ),
    ] = None,
    *,
    everywhere: Annotated[
        bool, typer.Option("--all", "-a", help="Those of other projects, too.")
    ] = False,
    closed: Annotated[bool, typer.Option("--closed", help="Closed ones, too.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the peer; show what is stored.")
    ] = False,
    limit: LimitOption = 50,
    cold: ColdOption = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """List sessions, the last used one first.

    With a PEER, it is asked for the sessions that it remembers itself: those can be continued, too,
    with `dragoman sessions resume PEER ID -s NAME`.

    \b
    Examples:
      dragoman sessions list
      dragoman sessions list --all --closed
      dragoman sessions list gemini
      dragoman sessions list --format json | jq -r .key
    """
    from dragoman.cli.output import session_pages
    from dragoman.cli.output.tables import write_list
    from dragoman.runs.sessions import merge
    from dragoman.store import root_of

    check_limit(limit)
    root = None if everywhere else str(root_of(cwd or Path.cwd()))
    asks = peer is not None and not offline
    with _store(read_only=True) as store:
        # What the peer remembers may be stored as closed, so that all of its sessions are needed.
        # One more than is shown, to know whether there are more.
        records = store.sessions(
            peer=peer, root=root, include_closed=asks or closed, limit=-1 if asks else limit + 1
        )
    told = None
    if peer is not None and asks:
        from dragoman.cli.session_actions import ask_for_sessions

        told = ask_for_sessions(peer, cwd=cwd, cold=cold, everywhere=everywhere)
        if told is None and format is ListFormat.TEXT:
            put_err(f"{peer} does not list its own sessions; only those stored here are shown.\n")
    listed = [
        each
        for each in merge(records, told, peer=peer or "")
        if closed or each.record is None or each.record.closed_at is None
    ]
    now = time.time()
    where = "stored" if root is None else f"of {root}"
    write_list(
        listed,
        format,
        head=session_pages.HEAD,
        cells=lambda each: session_pages.as_cells(each, now),
        as_json=session_pages.as_json,
        name=lambda each: each.record.key if each.record else each.peer_session_id,
        empty=f"There is no session {where}. `dragoman run PEER PROMPT -s NAME` begins one.",
        limit=limit,
        drop=session_pages.DROP,
    )


@app.command("show", context_settings=CONTEXT)
def show_command(
    session: SessionArgument,
    *,
    peer: PeerOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show everything, in full length.")
    ] = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Show a session and all that happened in it, as it is stored. No peer is asked.

    \b
    Examples:
      dragoman sessions show parser
      dragoman sessions show s-01h9x2k7ab --format json | jq 'select(.type == "MessageDelta").text'
    """
    from dragoman.cli import stored_sessions
    from dragoman.cli.output import session_pages
    from dragoman.cli.output.jsonl import write_json

    with _store(read_only=True) as store:
        record = _find(store, session, peer, cwd)
        if format is ListFormat.JSON:
            write_json(session_pages.record_as_json(record))
        elif format is ListFormat.TEXT:
            put_out(session_pages.page(record, time.time()) + "\n")
        stored_sessions.show(store, record, format, verbose=verbose)


@app.command("new", context_settings=CONTEXT)
def new_command(
    peer: PeerArgument,
    *,
    name: NameOption = None,
    model: ModelOption = None,
    mode: ModeOption = None,
    cold: ColdOption = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Begin a session and print its key. An earlier one of that name is closed and kept.

    \b
    Examples:
      dragoman sessions new gemini -s parser
      key=$(dragoman sessions new codex --format quiet)
    """
    from dragoman.cli.session_actions import SessionAction, begin

    begin(SessionAction(peer, cwd, cold=cold, model=model, mode=mode), name, format, anew=True)


@app.command("ensure", context_settings=CONTEXT)
def ensure_command(
    peer: PeerArgument,
    *,
    name: NameOption = None,
    model: ModelOption = None,
    mode: ModeOption = None,
    cold: ColdOption = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Print the key of the open session of that name; begin it if there is none.

    \b
    Examples:
      dragoman sessions ensure codex -s parser
    """
    from dragoman.cli.session_actions import SessionAction, begin

    if name is None:
        raise UsageError("say which one with --session NAME")
    begin(SessionAction(peer, cwd, cold=cold, model=model, mode=mode), name, format, anew=False)


@app.command("resume", context_settings=CONTEXT)
def resume_command(
    peer: PeerArgument,
    session: SessionArgument,
    *,
    name: NameOption = None,
    cold: ColdOption = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Let a peer open a session again, also a closed one or one that only the peer remembers.

    The next prompt in it then starts at once. -s gives it a name.

    \b
    Examples:
      dragoman sessions resume codex parser
      dragoman sessions resume gemini 0f3c6a52-... -s parser
    """
    from dragoman.cli.session_actions import SessionAction, resume

    resume(SessionAction(peer, cwd, cold=cold), session, name, format)


@app.command("close", context_settings=CONTEXT)
def close_command(
    session: SessionArgument, *, peer: PeerOption = None, cwd: CwdOption = None
) -> None:
    """Close a session: its peer may forget it, its name is free again. What was said is kept.

    \b
    Examples:
      dragoman sessions close parser
    """
    from dragoman.cli.session_actions import close

    with _store() as store:
        close(store, _find(store, session, peer, cwd))


@app.command("delete", context_settings=CONTEXT)
def delete_command(
    session: SessionArgument,
    *,
    peer: PeerOption = None,
    yes: YesOption = False,
    cwd: CwdOption = None,
) -> None:
    """Delete all that is stored of a session here. What its peer keeps is the peer's.

    \b
    Examples:
      dragoman sessions delete parser
      dragoman sessions delete s-01h9x2k7ab --yes
    """
    from dragoman.broker.client.sessions import running_job
    from dragoman.cli.output.escape import one_line
    from dragoman.cli.output.questions import confirm
    from dragoman.errors import TurnInProgress
    from dragoman.paths import find_paths

    with _store() as store:
        record = _find(store, session, peer, cwd)
        if (job := running_job(record.key, find_paths())) is not None:
            # A deleted job could not be found any more to watch or cancel it.
            raise TurnInProgress(
                f"the job {job.id} of it has not ended; `dragoman jobs cancel {job.id}` ends it"
            )
        named = f"{one_line(record.name)} ({record.key})" if record.name else record.key
        question = f"Delete the session {named} of {record.peer}, {record.events} events?"
        if not yes and not confirm(question, instead="--yes"):
            raise typer.Exit(1)
        store.delete_session(record.key)


@app.command("export", context_settings=CONTEXT)
def export_command(
    session: SessionArgument,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there; - is stdout."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With -o: replace a file that exists.")
    ] = False,
    peer: PeerOption = None,
    cwd: CwdOption = None,
) -> None:
    """Write a session as lines of JSON, to be kept or imported elsewhere.

    A new file is for its owner alone. An existing one is replaced only with --force. Devices and
    pipes are written to, links are followed.

    \b
    Examples:
      dragoman sessions export parser > parser.jsonl
      dragoman sessions export s-01h9x2k7ab -o parser.jsonl
    """
    from dragoman.cli.stored_sessions import write_lines

    with _store(read_only=True) as store:
        write_lines(store.export(_find(store, session, peer, cwd).key), output, force=force)


@app.command("import", context_settings=CONTEXT)
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported session; - is stdin.")],
    *,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Store a session that was exported, and print its key.

    It can be read at once. It can be continued where its peer still knows it.

    \b
    Examples:
      dragoman sessions import parser.jsonl
    """
    from dragoman.cli.read_input import read_lines

    with _store() as store:
        record = store.import_(read_lines(file))
    _told(record, format)


@app.command("watch", context_settings=CONTEXT)
def watch_command(
    session: SessionArgument,
    *,
    peer: PeerOption = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="NUMBER",
            help="The event to begin with; only what is new if not given.",
            show_default=False,
        ),
    ] = None,
    after: AfterOption = None,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Watch what happens in a session, in whatever shell it was asked for. Ctrl-C leaves.

    With --format json each event has a cursor, and --after goes on behind it.

    \b
    Examples:
      dragoman sessions watch parser
      dragoman sessions watch parser --from 0
      dragoman sessions watch parser --format json --after s-01h9x2k7ab:41
    """
    from dragoman.cli.watch import watch_session

    if start is not None and after is not None:
        raise UsageError("--from and --after say twice where to begin; give one of them")

    with _store(read_only=True) as store:
        record = _find(store, session, peer, cwd)
    raise typer.Exit(watch_session(record, start=start, after=after, format=format))


@app.command("prune", context_settings=CONTEXT)
def prune_command(
    *,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="AGE", help="Not used for so long: 30d, 12h, 2w."),
    ] = "90d",
    keep: Annotated[
        int, typer.Option("--keep", metavar="NUMBER", help="The latest so many stay in any case.")
    ] = 0,
    yes: YesOption = False,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Delete what is stored of old sessions and jobs, everywhere.

    \b
    Examples:
      dragoman sessions prune --older-than 90d
      dragoman sessions prune --older-than 30d --keep 20 --yes
    """
    from dragoman.cli.stored_sessions import prune

    with _store() as store:
        prune(store, older_than, keep=keep, yes=yes, format=format)


def _store(*, read_only: bool = False) -> Store:
    from dragoman.store.open import open_store, open_told

    if read_only:
        return open_store(read_only=True)
    return open_told(lambda notice: put_err(f"dragoman: {notice}\n"))


def _find(store: Store, word: str, peer: str | None, cwd: Path | None) -> SessionRecord:
    from dragoman.runs.sessions import find_session
    from dragoman.store import root_of

    return find_session(store, word, root=root_of(cwd or Path.cwd()), peer=peer)


def _told(record: SessionRecord, format: ListFormat) -> None:
    from dragoman.cli.output import session_pages
    from dragoman.cli.output.jsonl import write_json

    if format is ListFormat.JSON:
        write_json(session_pages.record_as_json(record))
    else:
        put_out(f"{record.key}\n")
