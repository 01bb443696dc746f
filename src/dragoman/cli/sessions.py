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
from dragoman.cli.completions import complete_mode, complete_model, complete_peer, complete_session
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.shared_options import (
    AfterOption,
    CwdOption,
    FormatOption,
    LimitOption,
    ListFormat,
    YesOption,
    check_limit,
    check_peer,
    project_root,
)
from dragoman.errors import UnknownSession, UsageError

if TYPE_CHECKING:
    from dragoman.store import SessionRecord, Store

HELP: Final = """
List, continue and export conversations.

A session is a conversation with one peer in one project: the git repository around the current
directory, or that directory itself. `dragoman run PEER -s NAME` starts or continues the session of
that name, from any directory of the project and in any shell. The whole conversation is stored on
this machine, with secrets redacted, and can be read without the peer.

SESSION is a name, the key that `list` shows (s-...), or the id that the peer uses.

\b
Examples:
  dragoman run codex "begin with the parser" -s parser
  dragoman sessions list                    the sessions of this project
  dragoman sessions show parser             everything said in it
  dragoman run codex "now the tests" -s parser
  dragoman sessions watch parser            follow it live
  dragoman sessions export parser > parser.jsonl
  dragoman sessions prune --older-than 90d
"""

app: Final = new_app(help=HELP, default="list")

SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Its name, its key or the beginning of the key; `last` is the one used last.",
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
        help="The peer of the session, if the name alone is ambiguous.",
        autocompletion=complete_peer,
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--session", "-s", metavar="NAME", help="The name of the session.")
]
ColdOption = Annotated[
    bool, typer.Option("--cold", help="Start the peer only for this command, without a broker.")
]
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
        help="The agent mode to work in.",
        autocompletion=complete_mode,
    ),
]


@app.command("list", context_settings=CONTEXT)
def list_command(
    peer: Annotated[
        str | None,
        typer.Argument(
            metavar="[PEER]",
            help="Only the sessions of this peer, including those that only it remembers.",
            show_default=False,
            autocompletion=complete_peer,
        ),
    ] = None,
    *,
    everywhere: Annotated[
        bool, typer.Option("--all", "-a", help="Include sessions of other projects.")
    ] = False,
    closed: Annotated[bool, typer.Option("--closed", help="Include closed sessions.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask the peer; show stored sessions only.")
    ] = False,
    limit: LimitOption = 50,
    cold: ColdOption = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """List sessions, last used first.

    With PEER, the peer is also asked for the sessions it remembers itself. Continue one of those
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

    check_limit(limit)
    remedy = "`dragoman sessions list --all` lists the sessions of all projects"
    root = None if everywhere else str(project_root(cwd, remedy=remedy))
    asks = peer is not None and not offline
    with _store(read_only=True) as store:
        # The peer may remember sessions stored as closed, so all of its sessions are needed. One
        # more than is shown, to know whether there are more.
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
    if peer is not None and not listed:
        check_peer(peer, cwd)
    now = time.time()
    where = "stored" if root is None else f"of {root}"
    empty = f"There are no sessions {where}. `dragoman run PEER PROMPT -s NAME` starts one."
    if not closed and not listed:
        with _store(read_only=True) as store:
            if store.sessions(peer=peer, root=root, limit=1):
                empty = f"There are no open sessions {where}. --closed lists the closed ones too."
    prompts: dict[str, str] = {}
    if format is ListFormat.TEXT and listed:
        with _store(read_only=True) as store:
            keys = [one.record.key for one in listed[:limit] if one.record and not one.title]
            prompts = store.first_prompts(keys)
    write_list(
        listed,
        format,
        head=session_pages.HEAD,
        cells=lambda each: session_pages.as_cells(each, now, prompts),
        as_json=session_pages.as_json,
        name=lambda each: each.record.key if each.record else each.peer_session_id,
        empty=empty,
        limit=limit,
        drop=session_pages.DROP,
    )


@app.command("show", context_settings=CONTEXT)
def show_command(
    session: SessionArgument,
    *,
    peer: PeerOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show everything in full.")
    ] = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Show a stored session and everything that happened in it. No peer is contacted.

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
    """Start a session and print its key. An earlier session of that name is closed but kept.

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
    """Print the key of the open session of that name; start one if there is none.

    \b
    Examples:
      dragoman sessions ensure codex -s parser
    """
    from dragoman.cli.session_actions import SessionAction, begin

    if name is None:
        raise UsageError("name the session with --session NAME")
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
    """Reopen a session at its peer, even a closed one or one that only the peer remembers.

    The next prompt in it then starts at once. -s names the session.

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
    """Close a session: the peer may forget it, and its name is free again. Stored messages are
    kept.

    \b
    Examples:
      dragoman sessions close parser
    """
    from dragoman.cli.session_actions import close

    with _store() as store:
        close(store, _find(store, session, peer, cwd, last_open=True))


@app.command("delete", context_settings=CONTEXT)
def delete_command(
    session: SessionArgument,
    *,
    peer: PeerOption = None,
    yes: YesOption = False,
    cwd: CwdOption = None,
) -> None:
    """Delete everything stored about a session here. What the peer itself keeps is not deleted.

    \b
    Examples:
      dragoman sessions delete parser
      dragoman sessions delete s-01h9x2k7ab --yes
    """
    from dragoman.cli.output.escape import one_line
    from dragoman.cli.output.questions import confirm

    with _store() as store:
        record = _find(store, session, peer, cwd)
        _require_no_job(record)
        named = f"{one_line(record.name)} ({record.key})" if record.name else record.key
        question = f"Delete the session {named} of {record.peer}, {record.events} events?"
        if not yes:
            if not confirm(question, instead="--yes"):
                put_err("Nothing was deleted.\n")
                raise typer.Exit(1)
            # One may have started while the question was open.
            _require_no_job(record)
        store.delete_session(record.key)


@app.command("export", context_settings=CONTEXT)
def export_command(
    session: SessionArgument,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is stdout."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="With -o: overwrite an existing file.")
    ] = False,
    peer: PeerOption = None,
    cwd: CwdOption = None,
) -> None:
    """Write a session as JSON lines, for a backup or to import elsewhere.

    A new file is readable only by its owner. An existing file is replaced only with --force.
    Devices and pipes are written to, links are followed.

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
    """Import an exported session and print its key.

    It can be read at once, and continued if its peer still knows it.

    \b
    Examples:
      dragoman sessions import parser.jsonl
    """
    from dragoman.cli.read_input import opened_lines

    with opened_lines(file) as lines, _store() as store:
        record = store.import_(lines)
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
            help="The number of the first event to show. Default: only new events.",
            show_default=False,
        ),
    ] = None,
    after: AfterOption = None,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    """Watch a session live, whichever shell it runs in. Ctrl-C stops watching.

    With --format json each event has a cursor, and --after continues after it.

    \b
    Examples:
      dragoman sessions watch parser
      dragoman sessions watch parser --from 0
      dragoman sessions watch parser --format json --after s-01h9x2k7ab:41
    """
    from dragoman.cli.watch import watch_session

    if start is not None and after is not None:
        raise UsageError("--from and --after cannot be combined: choose one")

    with _store(read_only=True) as store:
        record = _find(store, session, peer, cwd)
    raise typer.Exit(watch_session(record, start=start, after=after, format=format))


@app.command("prune", context_settings=CONTEXT)
def prune_command(
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Delete sessions not used for this long: 30d, 12h, 2w.",
        ),
    ] = "90d",
    keep: Annotated[
        int,
        typer.Option(
            "--keep", metavar="NUMBER", help="Always keep this many of the latest sessions."
        ),
    ] = 0,
    yes: YesOption = False,
    format: FormatOption = ListFormat.TEXT,
) -> None:
    """Delete old stored sessions and jobs, of all projects. Open sessions are deleted too.

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


def _find(
    store: Store, word: str, peer: str | None, cwd: Path | None, *, last_open: bool = False
) -> SessionRecord:
    from dragoman.runs.sessions import find_session
    from dragoman.store import root_of

    root = root_of(cwd or Path.cwd())
    try:
        return find_session(store, word, root=root, peer=peer, last_open=last_open)
    except UnknownSession:
        if peer is not None:
            check_peer(peer, cwd)
        raise
    except UnicodeEncodeError:
        # Without the root, only a session's whole key is found.
        remedy = "name the session by its key: `dragoman sessions list --all` lists all keys"
        project_root(cwd, remedy=remedy)
        raise


def _require_no_job(record: SessionRecord) -> None:
    """Raise `TurnInProgress` if the session has a job that has not ended: if the session were
    deleted, the job could no longer be watched or cancelled."""
    from dragoman.broker.client.sessions import running_job
    from dragoman.errors import TurnInProgress
    from dragoman.paths import find_paths

    if (job := running_job(record.key, find_paths())) is not None:
        raise TurnInProgress(
            f"its job {job.id} has not ended; `dragoman jobs cancel {job.id}` cancels it"
        )


def _told(record: SessionRecord, format: ListFormat) -> None:
    from dragoman.cli.output import session_pages
    from dragoman.cli.output.jsonl import write_json

    if format is ListFormat.JSON:
        write_json(session_pages.record_as_json(record))
    else:
        put_out(f"{record.key}\n")
