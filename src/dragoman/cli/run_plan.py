"""Build the run plan (`RunPlan`) from command-line options and configuration.

The plan says which agent to start, in which workspace, with which model, policy and timeouts.
`prepare` sets up the renderer, log and trace for it; an error in the plan is shown in the requested
output format. Starts nothing: `cli.prompt_session` executes the plan.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field, structs

from dragoman.cli.output.renderer import Format, PassedVariables, Renderer, show_as
from dragoman.cli.output.terminal import is_interactive
from dragoman.cli.output.terminal_log import TerminalLog
from dragoman.cli.permission_flags import ApprovalMode, policy_of, whole_policy
from dragoman.client.budgets import Budgets
from dragoman.client.options import ADDRESSES
from dragoman.errors import DragomanError, UsageError
from dragoman.errors.usage import shown
from dragoman.rpc.connection import TRACE_VARIABLE

if TYPE_CHECKING:
    from dragoman.catalogue import Catalogue
    from dragoman.catalogue.card import Card
    from dragoman.catalogue.enforcement import Enforced
    from dragoman.catalogue.launch import LaunchSpec
    from dragoman.catalogue.session_settings import WantedSettings
    from dragoman.config import Config, Paths
    from dragoman.config.schema import Settings
    from dragoman.policy import Policy as RulesPolicy
    from dragoman.policy import PolicySettings
    from dragoman.runs.run_values import Deadline


MAX_NAME_LENGTH: Final = 200
"""Maximum length of --session, in characters. Lists show names in full, so names must be short;
the ids of agents' sessions, which the option takes too, are shorter than this."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of `run` and other commands for a single peer, as given on the command line."""

    peer: str | None
    """The first word on the command line, which may be the name of a peer."""
    takes_prompt: bool = False
    """Whether a first word that is not a peer is part of the prompt, as for `run`."""
    command: tuple[str, ...] | None
    prompt: Sequence[str] = ()
    """The words after the first one."""
    cwd: Path | None = None
    approve_all: bool = False
    approve_reads: bool = False
    deny_all: bool = False
    allow_unenforced: bool = False
    timeout: float | None = None
    model: str | None = None
    mode: str | None = None
    role: str | None = None
    system_prompt: str | None = None
    allow_tool: Sequence[str] = ()
    max_turns: int | None = None
    mcp_config: Path | None = None
    dialect: str | None = None
    any_version: bool = False
    env: Sequence[str] = ()
    meta: Sequence[str] = ()
    format: str | None = None
    json_strict: bool = False
    verbose: bool = False
    agent_stderr: bool = False
    session: str | None = None
    fresh: bool = False
    brief: bool = False
    no_wait: bool = False
    cold: bool = False
    ttl: str | None = None
    is_asked: bool = False
    """Whether a person answers permission requests although this process has no terminal."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """What a command will run: the agent and how to start it, its workspace, policy, limits and
    session."""

    is_named: bool = True
    """Whether the first word names the agent. Otherwise it belongs to the prompt."""
    way: LaunchSpec
    enforced: Enforced
    """How the policy is enforced on the agent."""
    name: str
    """The agent's name in messages."""
    workspace: Path
    policy: ApprovalMode
    rules: PolicySettings | None = None
    """Permission rules of the settings, which take precedence over the policy."""
    ceilings: Sequence[RulesPolicy] = ()
    """The policies of the agents that delegated this work. It may do nothing that they forbid."""
    lineage: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that pass these policies and the delegation depth to an agent."""
    budgets: Budgets
    deadline: Deadline | None = None
    """When the command has to end, if it has an overall time limit."""
    format: Any
    model: str | None = None
    mode: str | None = None
    role: str = ""
    """The kind of work; empty if none was requested."""
    mcp_servers: Sequence[Any] = ()
    ignored_servers: Sequence[str] = ()
    """The names of the MCP servers that the agent will ignore."""
    dialect: str | None = None
    any_version: bool = False
    terminals: bool = False
    """Whether the agent may run commands through us, if the policy allows them."""
    tools_allowed: bool = False
    """Whether the user lets the agent use some tools without asking for permission."""
    env: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Context for a new session."""
    max_line_size: int | None = None
    cards: Path | None = None
    """The directory of the cards of verified peers; None if the agent is not a known peer."""
    notices: Sequence[str] = ()
    """Notices to show before the agent is started."""
    agent_stderr: bool = False
    """Whether to show the agent's stderr."""
    warm: bool = False
    """Whether to use a broker, which keeps the agent for the next command."""
    ttl: float | None = None
    """Seconds that an idle broker stays; None leaves it unchanged."""
    max_idle: int | None = None
    """Maximum number of idle brokers."""
    session: str | None = None
    """The stored session to continue or start: a name, a key, or the agent's own id."""
    fresh: bool = False
    brief: bool = False
    """Whether a new session may replace one that the agent has lost, and whether it gets a summary
    of the lost one."""
    no_wait: bool = False
    """Whether to submit the prompt to the broker without waiting."""
    keep_open: bool = False
    """Whether the session stays open at the agent when the command ends."""

    @property
    def whole_policy(self) -> RulesPolicy:
        """The effective policy, with rules and ceilings."""
        return whole_policy(self.policy, self.rules, self.ceilings)


def workspace_of(cwd: Path | None) -> Path:
    """Return the directory that a command works in. Raises `UsageError` if it is invalid."""
    path = (cwd or Path.cwd()).absolute()
    # Unlike `Path.is_dir`, it does not raise for names that are too long.
    if not os.path.isdir(path):
        raise UsageError(f"--cwd: not a directory: {_short(path)}")
    if not os.access(path, os.X_OK):
        raise UsageError(f"--cwd: permission denied: {_short(path)}")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the path of the workspace is not UTF-8 text and cannot be sent to an agent: {path}"
        ) from None
    return path


def _short(path: Path) -> str:
    return str(path) if len(str(path)) <= 200 else shown(str(path))


def plan_of(options: RunOptions) -> RunPlan:
    """Build the plan from the options and the configuration."""
    from dragoman.catalogue import load_catalogue
    from dragoman.catalogue.card import CARDS
    from dragoman.catalogue.enforcement import NOT_ENFORCED, enforce
    from dragoman.config import find_paths, load_config
    from dragoman.policy import allows_everything

    workspace = workspace_of(options.cwd)
    paths = find_paths()
    config = load_config(workspace, paths, flags={"format": options.format})
    catalogue = load_catalogue(config)
    options, is_named, chosen = _with_peer(options, catalogue, config, paths)
    way = _way(options, catalogue, config)
    settings = config.settings
    wanted = _session_settings(options)
    if wanted is not None:
        if options.dialect is not None:
            raise UsageError(
                "--dialect cannot be combined with --system-prompt, --allow-tool or --max-turns, "
                "which are supported only in the agent's usual dialect"
            )
        from dragoman.catalogue.session_settings import with_settings

        enabled = [each for each in catalogue if each.name in settings.enabled_peers]
        way = with_settings(way, wanted, others=enabled)
    name = way.name
    own = settings.for_peer(name)
    card = _card(way, paths)
    servers: Sequence[Any] = ()
    notices = [*chosen, *_notices(options, config, catalogue)]
    ignored: tuple[str, ...] = ()
    if options.mcp_config is not None:
        from dragoman.catalogue.mcp_servers import taken
        from dragoman.cli.mcp_config_option import read_servers

        servers = read_servers(options.mcp_config)
        handed = taken(way, servers, workspace=workspace, card=card)
        way, ignored = handed.way, handed.ignored
        notices += [handed.notice] if ignored else []
    policy = policy_of(
        approve_all=options.approve_all,
        approve_reads=options.approve_reads,
        deny_all=options.deny_all,
        interactive=options.is_asked or is_interactive() or _console_is_open(),
        default=settings.permissions_for(name),
    )
    ceilings, lineage = _inherited(policy, settings, name, options.role or "")
    if options.allow_tool:
        require_tools_may_be_allowed(deny_all=options.deny_all, ceilings=ceilings)
    whole = whole_policy(policy, settings.policy, ceilings)
    enforced = enforce(
        way,
        restricts=not allows_everything(whole),
        mode=options.mode or own.mode,
        card=card,
        allow_unenforced=options.allow_unenforced or own.allow_unenforced,
    )
    if enforced.gap:
        notices.append(f"{NOT_ENFORCED}: {name}: {enforced.gap}")
    return RunPlan(
        is_named=is_named,
        way=enforced.way,
        enforced=enforced,
        name=name,
        workspace=workspace,
        policy=policy,
        rules=settings.policy,
        ceilings=ceilings,
        lineage=lineage,
        budgets=_budgets(settings.budgets(way.budgets()), options.timeout),
        format=options.format or ("json" if options.json_strict else settings.format),
        model=options.model or own.model,
        mode=options.mode or own.mode,
        role=options.role or "",
        mcp_servers=servers,
        dialect=_dialect(options.dialect),
        any_version=options.any_version,
        # A warm agent gets no terminals: they are offered once, at its start, and later prompts may
        # have a stricter policy.
        terminals=way.descriptor is None
        and not _warm(options, settings)
        and _may_run_commands(policy, settings.policy),
        tools_allowed=bool(options.allow_tool),
        env=_env(options.env, own.env),
        metadata=_metadata(options.meta),
        max_line_size=settings.max_line_size,
        cards=paths.data / CARDS if way.descriptor is not None else None,
        notices=notices,
        ignored_servers=ignored,
        agent_stderr=options.agent_stderr or options.verbose,
        warm=_warm(options, settings),
        ttl=_ttl(options, config),
        max_idle=settings.max_idle_brokers,
        session=_session(options.session),
        fresh=options.fresh or options.brief,
        brief=options.brief,
        no_wait=options.no_wait,
        keep_open=options.session is not None or options.no_wait,
    )


def _session_settings(options: RunOptions) -> WantedSettings | None:
    if options.system_prompt is None and not options.allow_tool and options.max_turns is None:
        return None
    return session_settings(options.system_prompt, options.allow_tool, options.max_turns)


def session_settings(
    system_prompt: str | None, allow_tool: Sequence[str], max_turns: int | None
) -> WantedSettings:
    """Return the session settings that the options request; a system prompt of the form ``@FILE``
    is read from the file. Raises `UsageError` if an option is invalid."""
    from dragoman.catalogue.session_settings import WantedSettings

    if system_prompt is not None:
        system_prompt = _text_or_file(system_prompt)
    if not all(allow_tool):
        raise UsageError("--allow-tool takes the name of a tool, not an empty text")
    if max_turns is not None and max_turns < 1:
        raise UsageError(f"--max-turns must be at least 1, not {max_turns}")
    return WantedSettings(
        system_prompt=system_prompt or "", allow_tool=tuple(allow_tool), max_turns=max_turns
    )


def _text_or_file(word: str) -> str:
    if word.startswith("@"):
        from dragoman.cli.read_input import MAX_PROMPT_SIZE, read_named

        try:
            text = read_named(Path(os.path.expanduser(word[1:])), max_size=MAX_PROMPT_SIZE).decode()
        except UnicodeDecodeError:
            raise UsageError(f"--system-prompt: {shown(word[1:])} is not UTF-8 text") from None
    else:
        text = word
    if not text.strip():
        raise UsageError("--system-prompt is empty")
    return text


def require_tools_may_be_allowed(*, deny_all: bool, ceilings: Sequence[object]) -> None:
    """Raise `UsageError` if --allow-tool cannot be used: with --deny-all, or in delegated work."""
    if deny_all:
        raise UsageError("--allow-tool and --deny-all cannot be combined")
    if ceilings:
        # The agent would not ask, so the policy of the delegating agent could not be enforced.
        raise UsageError(
            "--allow-tool cannot be used in delegated work: it would bypass the policy"
        )


def _dialect(word: str | None) -> str | None:
    if word is None:
        return None
    from dragoman.client.options import named_dialect

    return named_dialect(word)


def _ttl(options: RunOptions, config: Config) -> float | None:
    if options.ttl is None:
        return config.chosen_ttl
    from dragoman.cli.output.times import seconds_of

    return seconds_of(options.ttl, option="--ttl")


def _card(way: LaunchSpec, paths: Paths) -> Card | None:
    """Return the latest card of the agent; None if it has none or is not a known peer."""
    from dragoman.catalogue.card import CARDS, CardStore

    return None if way.descriptor is None else CardStore(paths.data / CARDS).latest(way.name)


def within(plan: RunPlan, timeout: float | None, began_at: float) -> RunPlan:
    """Return the plan with the deadline of a command that started at `began_at` (`time.monotonic`).

    Without a time limit the plan is unchanged.
    """
    if timeout is None:
        return plan
    from dragoman.runs.run_values import Deadline

    return structs.replace(plan, deadline=Deadline(timeout, began_at + timeout, option="--timeout"))


def _inherited(
    policy: ApprovalMode, settings: Settings, peer: str, role: str
) -> tuple[Sequence[RulesPolicy], Mapping[str, str]]:
    """Return the policies of the agents that delegated this work, and the variables that pass them
    on to an agent that we start. Both are empty if the work was not delegated."""
    from dragoman.runs.lineage import inherited

    lineage = inherited()
    if not lineage.depth:
        return (), {}
    from dragoman.delegation.permission_ceiling import environment, inherited_ceilings

    ceilings = inherited_ceilings(lineage)
    whole = whole_policy(policy, settings.policy, ceilings)
    return ceilings, {**lineage.environment(warm=True), **environment(whole, peer=peer, role=role)}


def _console_is_open() -> bool:
    """Return whether a person at the console can be asked in place of the terminal."""
    from dragoman.broker.endpoint import console_is_open
    from dragoman.paths import find_paths

    return console_is_open(find_paths().runtime)


def _warm(options: RunOptions, settings: Settings) -> bool:
    if options.cold:
        if options.no_wait:
            raise UsageError("--cold and --no-wait cannot be combined: --no-wait needs a broker")
        return False
    if options.peer is not None and options.peer.startswith(ADDRESSES):
        return False
    # An ad-hoc command is started once and ends, unless its session is to be kept.
    lasting = options.session is not None or options.no_wait
    return settings.warm and (options.peer is not None or lasting)


def _session(name: str | None) -> str | None:
    if name is not None and (not name.strip() or not name.isprintable()):
        raise UsageError("--session must not be empty or contain unprintable characters")
    if name is not None and len(name) > MAX_NAME_LENGTH:
        raise UsageError(f"--session must not have more than {MAX_NAME_LENGTH} characters")
    return name


def _with_peer(
    options: RunOptions, catalogue: Catalogue, config: Config, paths: Paths
) -> tuple[RunOptions, bool, Sequence[str]]:
    """Return the options with the chosen peer, whether the first word names it, and the notices to
    show: one that names the default peer, if that was chosen.

    A first word that was meant as a peer is kept even if there is no such peer. Raises `UsageError`
    if there are both a peer and a command after ``--``, or if no peer can be chosen.
    """
    word = options.peer
    if options.command is not None:
        if word in catalogue.names and options.prompt:
            raise UsageError(f"choose one: the peer {word!r}, or the command after --")
        return structs.replace(options, peer=None), False, ()
    if word is not None and (not options.takes_prompt or _meant_as_peer(word, options, catalogue)):
        return options, True, ()
    from dragoman.runs.context import default_peer

    found, why = default_peer(config, catalogue, paths, word=word)
    return structs.replace(options, peer=found), False, (f"using {found} ({why})",)


def _meant_as_peer(word: str, options: RunOptions, catalogue: Catalogue) -> bool:
    """Return whether a first word is a peer name, possibly misspelled, rather than part of the
    prompt."""
    if word in catalogue.names or word.startswith(ADDRESSES):
        return True
    if any(character.isspace() for character in word):
        return False
    from dragoman.errors.usage import nearest

    # `run NAME "a quoted prompt"` is how a peer is called, whatever the name is.
    quoted = any(" " in each for each in options.prompt)
    left_out = bool(catalogue.problem_of(word))
    return quoted or left_out or bool(nearest(word, catalogue.names))


def _way(options: RunOptions, catalogue: Catalogue, config: Config) -> LaunchSpec:
    from dragoman.catalogue.launch import LaunchSpec, way_to

    if options.command is not None:
        from dragoman.catalogue.command_unwrap import describe_command

        if not options.command:
            raise UsageError("there is no command after --")
        return describe_command(options.command, catalogue)
    peer = options.peer
    assert peer is not None, "there is a default peer"
    if peer.startswith(ADDRESSES):
        return LaunchSpec(address=peer)
    return way_to(peer, catalogue=catalogue, settings=config.settings)


def _budgets(budgets: Budgets, timeout: float | None) -> Budgets:
    if timeout is None:
        return budgets
    if not timeout > 0:
        raise UsageError("--timeout must be greater than 0")
    # An explicit timeout is the only limit: silence alone does not end the turn.
    return structs.replace(
        budgets,
        initialize=min(budgets.initialize, timeout),
        session=min(budgets.session, timeout),
        first_event=None,
        silence=None,
        total=timeout,
    )


def _env(given: Sequence[str], own: Sequence[str]) -> list[str]:
    from dragoman.config.validate import VARIABLE

    for name in given:
        if "=" in name:
            # A value on the command line would be visible in the history and the process list.
            bare = name.partition("=")[0]
            raise UsageError(
                "--env takes the name of a variable, not a value: "
                f"set {bare} in the environment and use --env {bare}"
            )
        if name != "*" and VARIABLE.fullmatch(name.removesuffix("*")) is None:
            raise UsageError(f"--env: {name!r} is not the name of a variable")
    return [*given, *own]


def _may_run_commands(policy: ApprovalMode, rules: PolicySettings | None) -> bool:
    """Return whether there are commands that an agent may run, by itself or with the user's
    permission."""
    if policy in (ApprovalMode.APPROVE_ALL, ApprovalMode.ASK):
        return True
    allowed = () if rules is None else rules.rules
    return policy is not ApprovalMode.DENY_ALL and any(
        rule.action != "deny" and (not rule.kinds or "execute" in rule.kinds) for rule in allowed
    )


def _metadata(given: Sequence[str]) -> dict[str, str]:
    from dragoman.client.conversation import require_metadata

    told: dict[str, str] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageError(f"--meta takes NAME=VALUE, such as branch=main, not {word!r}")
        if told.setdefault(name, value) != value:
            raise UsageError(f"--meta: {name} is given twice with different values")
    return require_metadata(told)


def _notices(options: RunOptions, config: Config, catalogue: Catalogue) -> Sequence[str]:
    notices = [str(ignored) for ignored in config.untrusted]
    notices += [str(problem) for problem in catalogue.problems]
    notices += [
        f"--env {name}: the variable is not set"
        for name in options.env
        if name not in os.environ and not name.endswith("*")
    ]
    return notices


# -- setting up a command from the plan


def prepare(options: RunOptions, trace: Path | None) -> tuple[RunPlan, Renderer]:
    """Build the run plan and its renderer from the options, and set up log and trace. An error is
    shown and ends the process with its exit code (`SystemExit`)."""
    asked: Format = _format(options)
    log_for(strict=options.json_strict, verbose=options.verbose)
    try:
        plan = plan_of(options)
        if trace is not None:
            from dragoman.rpc.trace import check_file

            check_file(trace)
            # Not passed to agents: a child process only gets allowed variables.
            os.environ[TRACE_VARIABLE] = str(trace.absolute())
    except DragomanError as error:
        from dragoman.cli import error_messages

        show_as(asked, strict=options.json_strict).failed(error)
        # SystemExit passes through typer, and `run` bypasses typer.
        raise SystemExit(int(error_messages.exit_code(error))) from None
    return plan, show_of(plan, options)


def show_of(plan: RunPlan, options: RunOptions) -> Renderer:
    """Return the renderer of a plan, after showing the plan's notices. If a trace is written, the
    values of the variables that the peer gets are redacted in it from now on."""
    if os.environ.get(TRACE_VARIABLE):
        # Imported here: a command without a trace does not need it.
        from dragoman.config.secrets import redactor
        from dragoman.rpc.trace import redact_with

        redact_with(redactor((*plan.way.inherit, *plan.env)))
    show = show_as(plan.format, strict=options.json_strict, verbose=options.verbose)
    if plan.way.descriptor is not None:
        show.peer, show.credentials = plan.name, plan.way.descriptor.credentials
    show.passed = PassedVariables(
        (*plan.way.inherit, *plan.env), [name for name in plan.env if name not in options.env]
    )
    for notice in plan.notices:
        show.notice(notice)
    return show


def _format(options: RunOptions) -> Format:
    return shown_as(options.format, strict=options.json_strict) or "text"


def shown_as(format: str | None, *, strict: bool) -> Format | None:
    """Return the requested format, JSON if `strict`; None leaves it to the settings. Raises
    `UsageError` for --json-strict with another format."""
    if strict:
        if format not in (None, "json"):
            raise UsageError(f"--json-strict and --format {format} cannot be combined")
        return "json"
    return format  # type: ignore[return-value]


def log_for(*, strict: bool, verbose: bool) -> None:
    """Set up our own log output: none with `strict`, everything on stderr with `verbose`, else the
    default."""
    log = logging.getLogger("dragoman")
    if strict:
        log.addHandler(logging.NullHandler())
        log.propagate = False
    elif verbose:
        handler = TerminalLog()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.DEBUG)
