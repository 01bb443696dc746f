"""What people type by habit: words without quotes, no peer, `last`, a time with its unit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.integration.cli_shell import AGENT, Cli, cli_in, warm_cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def test_words_without_quotes_are_one_prompt(cli: Cli) -> None:
    said = cli("run", "where", "is", "main", "defined?", "--", *cli.agent)
    assert said.code == 0 and "where is main defined?" in said.out
    assert cli("run", "scout", "list", "the", "TODOs").code == 0
    assert cli("delegate", "exploration", "list", "the", "TODOs").code == 0


def test_a_peer_that_is_not_named_is_the_default_one(cli: Cli) -> None:
    assert cli("config", "set", "default_peer", "scout").code == 0
    said = cli("run", "list", "the", "TODOs")
    assert said.code == 0 and "using scout (default_peer)" in said.err
    assert cli("config", "unset", "default_peer").code == 0
    again = cli("run", "list the TODOs")
    assert again.code == 0 and "using scout (the last one used)" in again.err


def test_without_a_default_a_peer_has_to_be_named(cli: Cli) -> None:
    said = cli("run", "hello")
    assert said.code == 2 and "config set default_peer NAME" in said.err
    assert cli("chat").code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("codx", "fix", "it"), "did you mean codex?"),
        (("scuot",), "did you mean scout?"),
        (("aider", "fix all of it"), "there is no peer 'aider'"),
    ],
)
def test_a_mistake_in_the_name_of_a_peer_is_never_a_prompt(
    cli: Cli, words: tuple[str, ...], why: str
) -> None:
    assert cli("config", "set", "default_peer", "scout").code == 0
    said = cli("run", *words)
    assert (said.code, said.out) == (2, "") and why in said.err


def test_a_peer_whose_descriptor_is_left_out_is_never_a_prompt(cli: Cli) -> None:
    assert cli("config", "set", "default_peer", "scout").code == 0
    file = cli.home / "config_home" / "peers" / "mine.toml"
    file.parent.mkdir()
    file.write_text('name = "mine"\ntitle = "Mine"\nprotocol = "acp"\ncolour = "red"\n')
    for words in (("run", "mine", "hello"), ("delegate", "review", "hello", "--peer", "mine")):
        said = cli(*words)
        assert (said.code, said.out) == (2, "")
        assert (
            f"the peer 'mine' cannot be used; its descriptor is invalid: {file}: colour" in said.err
        )
        assert "what next:   fix the descriptor, then try again" in said.err


def test_a_peer_and_a_command_contradict_each_other(cli: Cli) -> None:
    said = cli("run", "codex", "hello", "--", *cli.agent)
    assert said.code == 2 and "choose one" in said.err


def test_a_time_has_a_unit_or_is_seconds(cli: Cli) -> None:
    for time in ("30s", "0.5m", "30"):
        assert cli("run", "hello", "--timeout", time, "--", *cli.agent).code == 0
    said = cli("run", "hello", "--timeout", "soon", "--", *cli.agent)
    assert said.code == 2 and "is not a time such as 90s, 30m or 2h" in said.err


def test_a_job_is_named_by_its_beginning_or_as_the_last_one() -> None:
    with warm_cli() as cli:
        assert cli("jobs", "result", "last").code == 4
        assert cli("run", "scout", "list the TODOs", "-s", "todos").code == 0
        first = cli("jobs", "--format", "quiet").out.strip()
        assert f'"job":"{first}"' in cli("jobs", "result", first[:-2], "--format", "json").out
        key = cli("sessions", "--format", "quiet").out.strip()
        assert cli("sessions", "show", key[:-2]).code == 0
        assert cli("run", "scout", "where is main defined?").code == 1
        newest = cli("jobs", "-n", "1", "--format", "quiet").out.strip()
        assert f'"job":"{newest}"' in cli("jobs", "result", "last", "--format", "json").out
        assert "2 jobs begin with 'j-'" in cli("jobs", "result", "j-").err
        assert f"did you mean {first}?" in cli("jobs", "result", first + first[-1]).err
        assert cli("jobs", "watch", "last").code == 1
        assert "has already ended" in cli("jobs", "cancel", "last").err
        assert cli("sessions", "show", "last").code == 0
        assert "did you mean 'todos'?" in cli("sessions", "show", "todo").err
        assert cli("sessions", "close", "last").code == 0
        # A closed session can be read, but a run does not continue it without its name.
        assert cli("sessions", "show", "last").code == 0
        continued = cli("run", "scout", "list the TODOs", "-s", "last")
        assert continued.code == 4 and "there is no open session of scout" in continued.err


def test_the_last_session_is_shown_although_a_run_has_closed_it() -> None:
    with warm_cli() as cli:
        wrong = cli("sessions", "show", "last")
        assert wrong.code == 4 and "`dragoman sessions list --all --closed`" in wrong.err
        assert cli("run", "scout", "list the TODOs").code == 0
        assert "> list the TODOs" in cli("sessions", "show", "last").out
        assert cli("sessions", "export", "last").out.startswith('{"session":')
        assert cli("sessions", "close", "last").code == 4
        assert cli("run", "scout", "list the TODOs", "-s", "todos").code == 0
        closed = cli("sessions", "close", "last")
        assert (closed.code, closed.out) == (0, "")
        assert closed.err.startswith("The session todos (s-")
        assert closed.err.endswith(") of scout is closed.\n")


def test_a_command_without_its_words_says_which_it_needs(cli: Cli) -> None:
    said = cli("explain")
    assert said.code == 2 and "name a role: debug, execute, " in said.err
    said = cli("delegate")
    assert said.code == 2 and "name a role and the task: the roles are debug, " in said.err
    assert "dragoman delegate ROLE TASK" in said.err
    said = cli("run", "hello")
    assert said.code == 2 and "what next:   `dragoman init` sets up your agents" in said.err


def test_an_error_names_the_help_page_and_says_once_how_to_install(cli: Cli) -> None:
    assert "`dragoman jobs --help` shows examples" in cli.child("jobs", "--limit", "-3").err
    said = cli("run", "goose", "hello").err
    assert said.count("install it with") == 1
    said = cli("delegate", "review", "x", "--peer", "goose").err
    assert "`dragoman explain review` shows why" in said


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("config", "get"), "'show'"),
        (("jobs", "show"), "'result'"),
        (("sessions", "continue"), "'resume'"),
        (("broker", "kill"), "'stop'"),
        (("peers", "rm"), "'remove'"),
        (("completion",), "`dragoman --install-completion`"),
        (("mcp", "install", "--client", "claud"), "Did you mean claude?"),
        (("acp", "install", "zed"), "Did you mean --client zed?"),
        (("run", "scout", "hi", "--format", "jsn"), "Did you mean json?"),
    ],
)
def test_a_word_of_another_program_leads_to_ours(
    cli: Cli, words: tuple[str, ...], meant: str
) -> None:
    said = cli(*words)
    assert said.code == 2 and meant in said.err


def test_a_setting_is_set_and_taken_back_without_touching_the_rest(cli: Cli) -> None:
    file = cli.home / "config_home" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\n[timeouts]\ntotal = 60 # a minute\n")
    assert cli("config", "set", "default_peer", "scout").code == 0
    assert cli("config", "set", "enabled_peers", '["scout"]').code == 0
    text = file.read_text()
    assert "# mine" in text and "total = 60 # a minute" in text
    assert cli("config", "unset", "default_peer").code == 0
    assert cli("config", "unset", "enabled_peers").code == 0
    assert "default_peer" not in file.read_text() and "was not set" in (
        cli("config", "unset", "default_peer").err
    )
    before = file.read_text()
    for key, value, why in (
        ("defalt_peer", "scout", "did you mean `default_peer`?"),
        ("ttl", "soon", "ttl"),
        ("timeouts.total.x", "1", "is not a table"),
    ):
        said = cli("config", "set", key, value)
        assert said.code == 2 and why in said.err
    assert file.read_text() == before


def test_the_configuration_is_edited_and_checked(cli: Cli) -> None:
    file = cli.home / "config_home" / "config.toml"
    said = cli("config", "edit")
    assert said.code == 2 and "set EDITOR" in said.err
    for editor, why in (("no-such-editor", "was not found"), ("vi 'a", "not a valid command")):
        cli.extra["EDITOR"] = editor
        said = cli("config", "edit")
        assert said.code == 2 and why in said.err
    cli.extra["EDITOR"] = "sed -i s/enabled_peers/enabled_piers/"
    said = cli("config", "edit")
    assert said.code == 2 and "enabled_piers" in said.err and "enabled_piers" in file.read_text()
    cli.extra["EDITOR"] = "sed -i s/enabled_piers/enabled_peers/"
    assert cli("config", "edit").code == 0


def test_a_mentioned_file_that_does_not_exist_is_reported_and_the_prompt_goes_on(cli: Cli) -> None:
    (cli.cwd / "here.py").write_text("x = 1\n")
    prompt = 'see @here.py, @nope.py, @src/nope, @nope.py. and @"two words" as @property of @v1.5'
    said = cli.ask(prompt)
    assert said.code == 0 and prompt in said.out
    told = [line for line in said.err.splitlines() if "there is no such file" in line]
    assert [line.split(":")[1].strip() for line in told] == ["@nope.py", "@src/nope", "@two words"]
    delegated = cli("delegate", "exploration", "list the TODOs of @nope.py")
    assert delegated.err.count("@nope.py: there is no such file") == 1
    chatted = cli("chat", "--", *cli.agent, stdin="see @nope.py\n")
    assert chatted.code == 0 and chatted.err.count("@nope.py: there is no such file") == 1


def test_a_near_miss_of_a_model_a_mode_and_a_role_is_suggested(cli: Cli) -> None:
    assert cli("peers", "add", "mine", "--roles", "review", "--no-turns", "--", *AGENT).code == 0
    model = cli("run", "mine", "hello", "-m", "smal")
    assert model.code == 2 and "mine has no model 'smal'; did you mean small?" in model.err
    assert "`dragoman peers models mine` lists the models" in model.err
    mode = cli("run", "mine", "hello", "--mode", "coed")
    assert mode.code == 2 and "has no mode 'coed'; did you mean code?" in mode.err
    role = cli("run", "mine", "hello", "--role", "reveiw")
    assert role.code == 2 and "the role 'reveiw'; did you mean review?" in role.err
    # A program without a name cannot be listed.
    nameless = cli.ask("hello", "-m", "smal", agent=("another",))
    assert nameless.code == 2 and "did you mean small?" in nameless.err
    assert "peers models" not in nameless.err


def completed(cli: Cli, *words: str) -> list[str]:
    """What bash would be offered for the last word."""
    line = ("dragoman", *words)
    cli.extra |= {
        "_DRAGOMAN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    try:
        return cli.child().out.split()
    finally:
        for name in ("_DRAGOMAN_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
            del cli.extra[name]


def test_a_shell_completes_models_modes_roles_and_brokers() -> None:
    with warm_cli() as cli:
        added = cli("peers", "add", "mine", "--roles", "haiku", "--no-turns", "--", *AGENT)
        assert added.code == 0
        assert completed(cli, "run", "mine", "-m", "s") == ["small"]
        assert completed(cli, "run", "mine", "--mode", "") == ["code", "plan"]
        assert completed(cli, "run", "mine", "--role", "ha") == ["haiku"]
        assert completed(cli, "sessions", "new", "mine", "--model", "l") == ["large-preview"]
        assert completed(cli, "delegate", "--peer", "mine", "--model", "") == [
            "small",
            "large-preview",
        ]
        assert cli("run", "mine", "hello").code == 0
        (name,) = cli("broker", "list", "--format", "quiet").out.split()
        assert completed(cli, "broker", "stop", "mi") == ["mine", name]
        assert completed(cli, "broker", "logs", "x") == []


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("codex", "fix it"), "codex is a peer: `dragoman run codex PROMPT` asks it."),
        (("exec", "codex", "fix it"), "Did you mean `dragoman run`?"),
        (("run", "scout", "hi", "--json"), "(Possible options: --format json)"),
        (("run", "scout", "hi", "--yolo"), "(Possible options: --approve-all)"),
        (("delegate", "review", "hi", "-q"), "(Possible options: --format quiet)"),
    ],
)
def test_words_of_similar_programs_lead_to_ours(
    cli: Cli, words: tuple[str, ...], meant: str
) -> None:
    said = cli(*words)
    assert (said.code, said.out) == (2, "") and meant in said.err


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("run", "scout", " "),
            [
                "dragoman: the prompt is empty",
                "  what next:   give it as an argument, with -f FILE, or by pipe",
            ],
        ),
        (
            ("peers", "remove", "scout"),
            [
                "dragoman: scout ships with dragoman, so it cannot be removed; "
                "`dragoman peers disable scout` keeps delegation from using it"
            ],
        ),
        (
            ("run", "scout", "--no-stdin"),
            [
                "dragoman: there is no prompt",
                "  what next:   give it as an argument, with -f FILE, or by pipe",
            ],
        ),
        (
            ("login", "mine"),
            [
                "dragoman: mine has no login that dragoman can start",
                "  what next:   run `mine login`",
            ],
        ),
        (
            ("config", "set", "format", "jsn"),
            [
                "dragoman: CONFIG: format: 'jsn' is not a valid value here; did you mean 'json'?",
                "  what next:   nothing was changed; `dragoman config show` lists the settings",
            ],
        ),
        (
            ("delegate", "reviw", "hi"),
            [
                "dragoman: no peer claims the role 'reviw' (did you mean review?); the roles are "
                "debug, execute, exploration, plan, research, review, write",
                "  what next:   `dragoman peers` lists the roles of each peer",
            ],
        ),
    ],
)
def test_an_error_says_what_to_do_once(cli: Cli, words: tuple[str, ...], lines: list[str]) -> None:
    (peers := cli.home / "config_home" / "peers").mkdir(parents=True)
    (peers / "mine.toml").write_text(
        'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n[credentials]\n'
        f'login = "run `mine login`"\n[[launch]]\ncommand = {json.dumps(cli.agent)}\n'
    )
    said = cli(*words)
    told = said.err.replace(str(cli.home / "config_home" / "config.toml"), "CONFIG")
    assert (said.code, said.out, told.splitlines()) == (2, "", lines)


LOCKED = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    methods = [{"id": "key", "name": "Key"}]
    said = {"result": {"protocolVersion": 1, "authMethods": methods}}
    if asked["method"] == "authenticate":
        said = {"error": {"code": -32603, "message": "the key is wrong"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""


def test_a_login_that_fails_has_done_no_work(cli: Cli) -> None:
    peers = cli.home / "config_home" / "peers"
    peers.mkdir(parents=True)
    command = f"[[launch]]\ncommand = {json.dumps([sys.executable, '-c', LOCKED])}\n"
    (peers / "mine.toml").write_text(f'name = "mine"\ntitle = "Mine"\nprotocol = "acp"\n{command}')
    done = cli("login", "mine")
    assert (done.code, "the key is wrong" in done.err) == (1, True), done.err
    assert "part of the work" not in done.err
