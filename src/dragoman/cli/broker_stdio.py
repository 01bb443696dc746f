"""`dragoman broker stdio`: the remote side of `--host`, with this machine's settings and policy.

Turns a prompt from another machine into a run and submits it to a broker. `runs.host_server`
implements the protocol.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from dragoman.broker.host_protocol import HostPrompt, HostSubmitted
from dragoman.cli import read_input
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.prompt_session import request_of
from dragoman.cli.run_plan import RunOptions, RunPlan, plan_of
from dragoman.client.folders import make_private
from dragoman.errors import BrokerBusy, BrokerUnavailable, RoleNotClaimed, UsageError
from dragoman.events.parts import Image
from dragoman.paths import LASTING, Paths, find_paths
from dragoman.runs.context import load_context
from dragoman.runs.host_files import working_directory
from dragoman.runs.host_server import HostServer
from dragoman.runs.host_submission import submission
from dragoman.runs.run import Run
from dragoman.runs.run_values import RunListener
from dragoman.store.records import JobRecord
from dragoman.transports.stdio import open_stdio

RUNTIME: Final = "DRAGOMAN_RUNTIME_DIR"

TAKEN: Final = frozenset(
    {
        "approve_all",
        "approve_reads",
        "deny_all",
        "allow_unenforced",
        "timeout",
        "model",
        "mode",
        "role",
        "system_prompt",
        "allow_tool",
        "max_turns",
        "meta",
        "fresh",
        "brief",
        "ttl",
    }
)
"""The options that another machine may send. This machine decides which program is started and with
which variables."""


async def serve() -> None:
    """Serve one connection from another machine on stdin and stdout."""
    use_lasting_runtime()
    paths = find_paths()

    async def submit(prompt: HostPrompt) -> HostSubmitted:
        return await submit_prompt(prompt, paths)

    server = HostServer(submit, paths=paths, program=(sys.executable, "-m", "dragoman"))
    await server.serve(await open_stdio())


def use_lasting_runtime() -> None:
    """Make all processes of this user keep sockets and locks in the state directory, where they
    survive the logout. Changes nothing if DRAGOMAN_RUNTIME_DIR is set, or if XDG_RUNTIME_DIR is set
    and lingering is enabled.

    Without lingering, systemd removes XDG_RUNTIME_DIR at the last logout, but a broker keeps
    running. A marker file tells the user's other processes; if it cannot be written, only this
    process and its children use the directory.
    """
    if RUNTIME in os.environ or (os.environ.get("XDG_RUNTIME_DIR") and _lingers()):
        return
    folder = find_paths().state / "run"
    try:
        make_private(folder)
        (folder / LASTING).touch(mode=0o600)
    except OSError:
        os.environ[RUNTIME] = str(folder)


def _lingers() -> bool:
    try:
        return Path("/var/lib/systemd/linger", getpass.getuser()).exists()
    except (KeyError, OSError):
        return False


async def submit_prompt(prompt: HostPrompt, paths: Paths) -> HostSubmitted:
    """Submit a prompt from another machine to a broker on this one. If its job already exists here,
    return that job instead."""
    async with submission(prompt.job, paths=paths) as found:
        if isinstance(found, JobRecord):
            return HostSubmitted(job=found.id, session=found.session_key, peer=found.peer)
        plan = _plan(prompt)
        typed = _typed(prompt, plan)
        added = read_input.AddedText(prompt.file, prompt.piped, prompt.dashed)
        text = _prefix(plan, prompt) + read_input.join_prompt(typed, added)
        heard = _Notices(plan.notices)
        read_input.tell_missing(typed or "", plan.workspace, heard.notice)
        request = request_of(plan, CommandLoop())
        request = structs.replace(
            request,
            job=prompt.job,
            once=plan.session is None and not prompt.lasting,
        )
        run = Run(request, listener=heard)
        wait = load_context(plan.workspace).config.settings.question_timeout
        async with run:
            blocks = read_input.blocks(
                text,
                typed=typed or "",
                images=[Image(each.data, each.mime_type) for each in prompt.images],
                workspace=plan.workspace,
                can=run.peer.capabilities,
                peer=plan.name,
            )
            found.sending()
            try:
                await run.submit(blocks, wait=wait)
            except (UsageError, BrokerBusy):
                # The broker refuses these before it takes the job. Other errors may come later.
                found.not_sent()
                raise
            return HostSubmitted(
                job=prompt.job,
                session=run.opened.key,
                peer=plan.name,
                notices=heard.texts,
                permissions=plan.policy.value,
            )


def _plan(prompt: HostPrompt) -> RunPlan:
    unknown = sorted(prompt.options.keys() - TAKEN)
    if unknown:
        named = ", ".join("--" + name.replace("_", "-") for name in unknown)
        raise UsageError(f"{named} cannot be used with --host")
    given: dict[str, Any] = dict(prompt.options)
    plan = plan_of(
        RunOptions(
            peer=prompt.peer,
            takes_prompt=True,
            command=None,
            prompt=prompt.words,
            cwd=_folder(prompt.cwd),
            session=prompt.session,
            no_wait=True,
            is_asked=prompt.is_asked,
            **given,
        )
    )
    if plan.way.has_adapter:
        raise UsageError(
            f"--host cannot be used with {plan.name}, which is run by a Python adapter"
        )
    if not plan.warm:
        raise BrokerUnavailable(
            "--host needs a broker, but brokers are disabled on the host (`warm = false`)"
        )
    return plan


def _folder(cwd: str | None) -> Path:
    if not cwd:
        raise UsageError(
            "name the directory to work in on the host with --cwd DIR, or set `workspace` for the "
            "host in your settings"
        )
    return working_directory(cwd)


def _typed(prompt: HostPrompt, plan: RunPlan) -> str | None:
    words = [*([] if prompt.peer is None else [prompt.peer]), *prompt.words]
    return " ".join(words[1:] if plan.is_named else words) or None


def _prefix(plan: RunPlan, prompt: HostPrompt) -> str:
    role = prompt.options.get("role")
    descriptor = plan.way.descriptor
    if role is None or descriptor is None:
        return ""
    if role not in descriptor.roles:
        raise RoleNotClaimed(descriptor.name, role, descriptor.roles)
    return descriptor.role_prefixes.get(role, "")


class _Notices(RunListener):
    """Collects the notices for the user on the other machine."""

    def __init__(self, texts: Any) -> None:
        self.texts = list(texts)

    def notice(self, text: str) -> None:
        self.texts.append(text)
