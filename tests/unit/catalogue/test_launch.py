"""Which way leads to a peer here, and which command lines lead nowhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue import Credentials, Descriptor, Install, Launch
from dragoman.catalogue.command_unwrap import describe_command, wrong_form
from dragoman.catalogue.descriptor import WrongForm
from dragoman.catalogue.launch import (
    LaunchSpec,
    resolve,
    surroundings_of,
    way_to,
    with_env,
)
from dragoman.catalogue.load import Catalogue, KnownPeer, built_in
from dragoman.config.schema import PeerSettings, Settings
from dragoman.errors import NotInstalled, UnknownPeer, WrongLaunch
from tests.unit.catalogue import catalogues
from tests.unit.catalogue.catalogues import catalogue
from tests.unit.catalogue.test_node_runtime import script
from tests.unit.config.folders import write


@pytest.fixture(scope="module")
def ours() -> Catalogue:
    return Catalogue(built_in())


def peer(*launches: Launch, **more: Any) -> Descriptor:
    return Descriptor(name="tool", title="Tool", launch=launches, **more)


def finds(*programs: str) -> Any:
    """A PATH on which only these programs are."""

    def which(program: str, path: str | None = None) -> str | None:
        return f"/bin/{program}" if program in programs else None

    return which


OLD = Launch(command=("tool", "--old"), deprecated=True)
NEW = Launch(command=("tool", "--new"))
OTHER = Launch(command=("other",))
MAC = Launch(command=("mac-tool",), platforms=("macos",))


@pytest.mark.parametrize(
    ("launches", "there", "platform", "command"),
    [
        ((NEW, OTHER), ("tool", "other"), "linux", ("/bin/tool", "--new")),
        ((NEW, OTHER), ("other",), "linux", ("/bin/other",)),
        ((OLD, OTHER), ("tool", "other"), "linux", ("/bin/other",)),
        ((OLD, OTHER), ("tool",), "linux", ("/bin/tool", "--old")),
        ((MAC, NEW), ("mac-tool", "tool"), "linux", ("/bin/tool", "--new")),
        ((MAC, NEW), ("mac-tool", "tool"), "macos", ("/bin/mac-tool",)),
    ],
)
def test_the_first_way_that_is_there_is_taken_and_a_deprecated_one_last(
    launches: tuple[Launch, ...], there: tuple[str, ...], platform: Any, command: tuple[str, ...]
) -> None:
    way = resolve(peer(*launches), environ={}, platform=platform, which=finds(*there))
    assert way.command == command
    assert way.deprecated == ("--old" in command)


def test_an_address_needs_no_program() -> None:
    way = resolve(peer(Launch(address="unix:/run/x")), environ={}, which=finds())
    assert (way.command, way.address, way.shown) == (None, "unix:/run/x", "unix:/run/x")


def test_what_is_missing_is_said_with_the_command_that_installs_it() -> None:
    tool = peer(NEW, OLD, OTHER, install=Install(hint="npm install -g tool"))
    with pytest.raises(NotInstalled) as caught:
        resolve(tool, environ={}, which=finds())
    assert caught.value.looked_for == ("tool", "other")
    assert str(caught.value) == (
        "tool cannot be started: tool or other is not on the PATH; "
        "install it with `npm install -g tool`"
    )


def test_a_peer_of_another_platform_is_said_to_be_one() -> None:
    with pytest.raises(NotInstalled, match="only runs on macos; this is windows"):
        resolve(peer(MAC), environ={}, platform="windows", which=finds("mac-tool"))


@pytest.mark.skipif(sys.platform == "win32", reason="scripts of POSIX")
def test_a_relative_folder_on_the_path_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "here" / "tool", "#!/bin/sh\n")
    monkeypatch.chdir(tmp_path / "here")
    for path in (".", "", "../here", ".:/nonexistent"):
        with pytest.raises(NotInstalled):
            resolve(peer(NEW), environ={"PATH": path})
    found = resolve(peer(NEW), environ={"PATH": str(tmp_path / "here")})
    assert found.command == (str(tmp_path / "here" / "tool"), "--new")


def test_a_way_carries_what_the_descriptor_knows() -> None:
    tool = peer(
        NEW,
        env={"NO_RELAUNCH": "true"},
        credentials=Credentials(env=("A_KEY",), endpoints=("A_URL",)),
        protocol="acp",
        handshake_timeout=90.0,
    )
    way = resolve(tool, environ={}, which=finds("tool"))
    assert (way.env, way.inherit) == ({"NO_RELAUNCH": "true"}, ("A_KEY", "A_URL"))
    assert (way.protocol, way.descriptor, way.name) == ("acp", tool, "tool")
    assert way.budgets().initialize == 90.0
    assert with_env(way, ["B", "A_KEY"]).inherit == ("A_KEY", "A_URL", "B")
    assert not way.has_adapter
    assert resolve(peer(NEW, adapter="tool.py"), environ={}, which=finds("tool")).has_adapter


def test_a_name_leads_to_a_way_with_the_variables_of_the_users_settings() -> None:
    known = catalogue(peer(Launch(command=("{python}",))))
    settings = Settings(peer={"tool": PeerSettings(env=("MINE",))})
    way = way_to("tool", catalogue=known, settings=settings, environ={})
    assert way.inherit == ("MINE",)
    with pytest.raises(UnknownPeer):
        way_to("tol", catalogue=known)


def test_our_own_agent_is_started_by_our_own_interpreter_and_not_out_of_the_workspace(
    ours: Catalogue,
) -> None:
    way = resolve(ours.get("scout"), environ={"PATH": ""})
    assert way.command == (sys.executable, "-P", "-m", "dragoman.scout")


def test_scout_keeps_its_sessions_in_the_state_directory_that_a_user_has_chosen(
    ours: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", "mine")
    assert resolve(ours.get("scout")).env["DRAGOMAN_STATE_HOME"] == str(tmp_path / "mine")
    monkeypatch.delenv("DRAGOMAN_STATE_HOME")
    assert "DRAGOMAN_STATE_HOME" not in resolve(ours.get("scout")).env


# -- command lines


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("gemini acp", ["treats the word as a prompt", "`gemini --acp`"]),
        ("/opt/bin/gemini acp", ["`gemini --acp`"]),
        ("npx @google/gemini-cli acp", ["treats the word as a prompt", "`gemini --acp`"]),
        ("npx -y @google/gemini-cli@0.61.0 acp", ["`gemini --acp`"]),
        ("npm exec --yes -- @google/gemini-cli acp", ["`gemini --acp`"]),
        ("pnpm dlx @google/gemini-cli@latest acp", ["`gemini --acp`"]),
        ("bunx @google/gemini-cli acp", ["`gemini --acp`"]),
        ("env GEMINI_API_KEY=x gemini acp", ["`gemini --acp`"]),
        ("gemini --model pro acp", ["`gemini --acp`"]),
        ("gemini -p hello", ["not how Gemini CLI is started as an agent"]),
        ("gemini", ["not how Gemini CLI is started as an agent"]),
        ("qwen acp", ["sends the input to its model", "`qwen --acp`"]),
        ("C:\\npm\\qwen.cmd acp", ["`qwen --acp`"]),
        ("gh copilot --acp", ["is not an agent itself", "`copilot --acp`"]),
        ("gh copilot", ["`copilot --acp`"]),
        ("copilot acp", ["Invalid command format", "`copilot --acp`"]),
        ("codex acp", ["`codex app-server`"]),
        ("codex exec hello", ["`codex app-server`"]),
        ("opencode --acp", ["`opencode acp`"]),
        ("kimi --acp", ["`kimi acp`"]),
        ("cline acp", ["`cline --acp`"]),
        ("auggie acp", ["`auggie --acp`"]),
        ("claude --acp", ["`claude-agent-acp`"]),
        ("cursor acp", ["`cursor-agent acp`"]),
        ("vibe acp", ["`vibe-acp`"]),
    ],
)
def test_a_form_that_is_known_to_be_wrong_is_refused_with_cause_and_remedy(
    ours: Catalogue, argv: str, words: list[str]
) -> None:
    with pytest.raises(WrongLaunch) as caught:
        describe_command(argv.split(" "), ours)
    text = str(caught.value)
    assert "was not started" in text
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        ("gemini --acp", "gemini"),
        ("/opt/gemini --acp --debug", "gemini"),
        ("gemini --experimental-acp", "gemini"),
        ("npx -y @google/gemini-cli@0.61.0 --acp", "gemini"),
        ("gemini --model acp --acp", "gemini"),
        ("copilot --acp --stdio", "copilot"),
        ("codex app-server", "codex"),
        ("codex -c model=x app-server", "codex"),
        ("codex-acp -c approval_policy=untrusted", "codex-acp"),
        ("claude-agent-acp", "claude"),
        ("opencode acp --print-logs", "opencode"),
        ("kimi.exe acp", "kimi"),
    ],
)
def test_a_right_form_gets_what_is_known_of_its_peer(ours: Catalogue, argv: str, name: str) -> None:
    way = describe_command(argv.split(" "), ours)
    known = ours.get(name)
    assert way.descriptor == known
    assert way.command == tuple(argv.split(" "))
    assert (way.env, way.quirks, way.protocol) == (known.env, known.quirks, known.protocol)
    assert set(known.credentials.env) <= set(way.inherit)


def test_an_unknown_program_is_taken_as_it_is(ours: Catalogue) -> None:
    for argv in (["my-agent", "--acp"], ["npx", "my-agent"], ["node", "agent.js"], ["node"], []):
        way = describe_command(argv, ours)
        assert way == LaunchSpec(command=tuple(argv))


@pytest.mark.parametrize(
    "interpreter", ["python", "/usr/bin/python3.12", "C:\\py\\python.exe", "uv", "docker", "sh"]
)
def test_what_an_interpreter_runs_is_not_taken_for_another_peer_that_it_runs(
    interpreter: str,
) -> None:
    launch = Launch(command=(interpreter, "/home/me/agent.py"))
    mine = peer(launch, credentials=Credentials(env=("MY_KEY",)))
    known = catalogue(mine)
    stranger = describe_command([interpreter, "/home/me/stranger.py"], known)
    assert (stranger.descriptor, stranger.inherit) == (None, ())
    assert describe_command(launch.command, known).descriptor == mine


def test_another_form_of_a_harmless_peer_is_tried_with_its_environment(ours: Catalogue) -> None:
    way = describe_command(["goose", "serve"], ours)
    assert way.descriptor is not None and way.descriptor.name == "goose"
    assert way.protocol == "auto"


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_a_script_is_known_by_the_package_that_it_lies_in(ours: Catalogue, tmp_path: Path) -> None:
    home = tmp_path / "node_modules" / "@qwen-code" / "qwen-code"
    write(home / "package.json", json.dumps({"name": "@qwen-code/qwen-code", "version": "1"}))
    program = write(home / "cli.js", "")
    way = describe_command(["node", "--expose-gc", str(program), "--acp"], ours)
    assert way.descriptor == ours.get("qwen")
    with pytest.raises(WrongLaunch, match="qwen --acp"):
        describe_command(["node", str(program), "acp"], ours)


@pytest.mark.parametrize(
    "script",
    [
        "qwen acp",
        "cd /x && exec qwen acp",
        "A=1 B='2 3' qwen acp",
        "x; npx qwen acp",
        "qwen acp 2>/dev/null",
        "qwen acp | tee log",
        "(qwen acp); true",
    ],
)
def test_a_wrong_form_inside_of_a_shells_command_is_refused_too(
    ours: Catalogue, script: str
) -> None:
    for shell in (["sh", "-c"], ["/bin/bash", "-l", "-c"], ["bash", "-lc"]):
        with pytest.raises(WrongLaunch, match="qwen --acp"):
            describe_command([*shell, script], ours)
    assert describe_command(["sh", "-c", "echo 'unclosed"], ours).descriptor is None
    right = describe_command(["sh", "-c", "cd /x && qwen --acp"], ours)
    assert right.descriptor == ours.get("qwen")


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "`qwen acp`"],
        ["env", "-u", "X", "qwen", "acp"],
        ["timeout", "-s", "KILL", "5", "qwen", "acp"],
        ["QWEN.CMD", "acp"],
    ],
)
def test_a_wrong_form_is_seen_through_whatever_only_starts_it(
    ours: Catalogue, argv: list[str]
) -> None:
    with pytest.raises(WrongLaunch, match="qwen --acp"):
        describe_command(argv, ours)


def test_a_wrong_form_is_seen_behind_a_link_of_another_name(
    ours: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "real" / "qwen"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "q").symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    for word in ("q", str(tmp_path / "q")):
        with pytest.raises(WrongLaunch, match="qwen --acp"):
            describe_command([word, "acp"], ours)


@pytest.mark.parametrize(
    "words", ["claude", "claude -p", "npx claude --print", "vibe", "vibe -p x"]
)
def test_a_program_that_takes_its_input_for_a_prompt_is_not_started(words: str) -> None:
    with pytest.raises(WrongLaunch, match="prompt"):
        describe_command(words.split(), Catalogue(built_in()))


def test_what_starts_nothing_is_not_a_wrong_form() -> None:
    descriptor = Descriptor(
        name="tool",
        title="Tool",
        launch=(Launch(command=("tool", "--acp")),),
        wrong_forms=(WrongForm(command=("tool", "acp"), effect="hangs", remedy="--acp"),),
    )
    assert wrong_form(("env",), (descriptor,)) is None
    assert wrong_form(("env", "tool", "acp"), (descriptor,)) is not None


def test_a_described_launch_is_refused_if_it_is_known_to_be_wrong(
    ours: Catalogue,
) -> None:
    wrong = catalogues.peer("mine", "plan", command=("env", "gemini", "acp"))
    right = catalogues.peer("yours", "plan", command=("env", "gemini", "--acp"))
    known = Catalogue([*map(ours.known, ours.names), KnownPeer(wrong, "f"), KnownPeer(right, "f")])
    with pytest.raises(WrongLaunch, match="gemini --acp"):
        way_to("mine", catalogue=known)
    assert way_to("yours", catalogue=known).descriptor == right


KEYED = peer(Launch(), credentials=Credentials(env=("A_KEY", "B_KEY"), endpoints=("A_URL",)))


def mark(environ: dict[str, str], *env: str) -> str:
    return surroundings_of(KEYED, env=env, environ=environ)


def test_surroundings_differ_by_which_variables_are_set_and_not_by_their_values() -> None:
    assert mark({"A_KEY": "x", "C": "1"}) == mark({"A_KEY": "y"})
    assert len({mark({}), mark({"A_KEY": "x"}), mark({"B_KEY": "x"}), mark({"A_URL": "x"})}) == 4
    assert mark({"A_KEY": ""}) == mark({})
    assert surroundings_of(None, environ={"A_KEY": "x"}) == ""


def test_variables_that_the_user_lets_through_count() -> None:
    assert mark({"MINE": "x"}) == mark({})
    assert mark({"MINE": "x"}, "MINE") != mark({}, "MINE")
    assert mark({"MINE_1": "x"}, "MINE_*") != mark({}, "MINE_*")
