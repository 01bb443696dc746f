"""The ssh command line for a host, and the meaning of its failures."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dragoman.broker.client.ssh_command import (
    SSH_VARIABLE,
    Host,
    by_hand_command,
    explain_exit,
    explain_remote,
    host_named,
    ssh_command,
)
from dragoman.config.schema import HostSettings
from dragoman.errors import (
    AuthRequired,
    DragomanError,
    FileFailed,
    HostUnavailable,
    IsolationFailed,
    ProcessExited,
    ProgramNotFound,
    RemoteError,
    StoreFull,
    StoreRefused,
    UsageError,
)

HOST = Host("box", HostSettings(destination="me@box", ssh_options=("-p", "2222"),
                                dragoman="/opt/my tools/dragoman"))  # fmt: skip


def test_ssh_forwards_no_agent_asks_no_password_and_quotes_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(SSH_VARIABLE, raising=False)
    argv = ssh_command(HOST, [HOST.program, "run", "it's; $HOME `x`\n*"])
    assert argv[:4] == ["ssh", "-T", "-oBatchMode=yes", "-oForwardAgent=no"]
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[-3:-1] == ["--", "me@box"]
    assert shlex.split(argv[-1]) == ["/opt/my tools/dragoman", "run", "it's; $HOME `x`\n*"]


def effective(tmp_path: Path, config: str, *options: str) -> dict[str, str]:
    """What ssh itself makes of the command line and a configuration."""
    file = tmp_path / "config"
    file.write_text(f"Host *\n{config}\n")
    host = Host("box", HostSettings(destination="me@box", ssh_options=("-F", str(file), *options)))
    ssh = shutil.which("ssh")
    if ssh is None:
        pytest.skip("there is no ssh")
    told = subprocess.run(
        [ssh, "-G", *ssh_command(host, ["true"])[1:]], capture_output=True, text=True, check=True
    )
    return dict(line.split(" ", 1) for line in told.stdout.splitlines() if " " in line)


def test_the_configuration_of_the_user_opens_no_port_and_shares_no_connection(
    tmp_path: Path,
) -> None:
    config = """
        LocalForward 8080 localhost:80
        RemoteForward 9090 localhost:90
        DynamicForward 1080
        ForwardAgent yes
        ForwardX11 yes
        BatchMode no
        ControlMaster auto
        ServerAliveInterval 0
    """
    for options in ((), ("-A", "-oForwardAgent=yes", "-oBatchMode=no", "-L", "1:localhost:1")):
        found = effective(tmp_path, config, *options)
        assert not {"localforward", "remoteforward", "dynamicforward"} & found.keys()
        assert (found["forwardagent"], found["forwardx11"]) == ("no", "no")
        assert (found["batchmode"], found["controlmaster"]) == ("yes", "false")
        assert found["serveraliveinterval"] == "5"
    assert effective(tmp_path, "", "-oServerAliveInterval=60")["serveraliveinterval"] == "60"


@pytest.mark.parametrize("destination", ["-oProxyCommand=x", "me@-x", "a b"])
def test_a_destination_that_looks_like_an_option_is_rejected(destination: str) -> None:
    with pytest.raises(UsageError, match=r"hosts\.box\.destination"):
        ssh_command(Host("box", HostSettings(destination=destination)), ["true"])


def test_another_program_can_replace_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "/opt/ssh")
    assert ssh_command(HOST, ["true"])[0] == "/opt/ssh"


def test_a_host_is_found_only_by_its_exact_name() -> None:
    hosts = {"laptop": HostSettings()}
    assert host_named("laptop", hosts).program == "dragoman"
    with pytest.raises(UsageError, match="did you mean laptop"):
        host_named("latop", hosts)
    with pytest.raises(UsageError, match="is not a valid host name"):
        host_named("-oProxyCommand=x", hosts)


@pytest.mark.parametrize(
    ("code", "said", "problem", "remedy", "passing"),
    [
        (255, "REMOTE HOST IDENTIFICATION HAS CHANGED!", "host key has changed", "-R", False),
        (
            255,
            "Host key verification failed.",
            "host key is unknown",
            "ssh -p 2222 -- me@box",
            False,
        ),
        (255, "me@box: Permission denied (publickey).", "password", "ssh-copy-id", False),
        (255, "ssh: Could not resolve hostname box", "cannot be resolved", "destination", True),
        (255, "connect: Connection refused", "no SSH server", "sshd", True),
        (255, "Cannot execute command-line and remote command.", "RemoteCommand", "=none", False),
        (
            255,
            "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found.",
            "in common: Unable to negotiate",
            "~/.ssh/config",
            False,
        ),
        (255, "something else", "something else", "ssh -p 2222 -- me@box", True),
        (
            127,
            "sh: 1: /opt/my tools/dragoman: not found",
            "was not found there",
            "bootstrap",
            False,
        ),
        (126, "Permission denied", "cannot be run there", "bootstrap", False),
        (2, "Error: No such command 'x'.", "too old", "bootstrap", False),
        (1, "OSError: No space left on device", "disk there is full", "free some space", False),
        (3, "strange", "exit code 3): strange", "hosts check", False),
        (
            127,
            "Welcome\nsh: 1: /opt/my tools/dragoman: not found\nGoodbye",
            "was not found there: sh: 1: /opt/my tools/dragoman: not found",
            "bootstrap",
            False,
        ),
        (
            127,
            "/opt/my tools/dragoman: 2: exec: /gone/python: not found\nGoodbye",
            "the Python of /opt/my tools/dragoman was not found there",
            "install Python there",
            False,
        ),
        (
            1,
            "/usr/bin/python3: No module named dragoman",
            "is incomplete there: /usr/bin/python3",
            "bootstrap",
            False,
        ),
        (
            1,
            "dragoman: the socket cannot be created\n  what next:   x\n  whose fault: y\nGoodbye",
            "(exit code 1): the socket cannot be created",
            "hosts check",
            False,
        ),
        (2, "Error: No such command 'x'.\nGoodbye", "`--host`: Error: No such", "bootstrap", False),
    ],
)
def test_exit_codes_of_ssh_are_explained(
    code: int, said: str, problem: str, remedy: str, passing: bool
) -> None:
    error = explain_exit(HOST, ProcessExited(exit_code=code, stderr_tail=said))
    assert problem in str(error) and remedy in error.remedy and error.retryable is passing


def test_the_command_to_try_manually_is_quoted() -> None:
    assert by_hand_command(HOST) == "ssh -p 2222 -- me@box"


@pytest.mark.parametrize(
    ("error", "words", "remedy"),
    [
        (FileFailed("/home/x", "No space left on device", 28), "disk there is full", "free some"),
        (IsolationFailed("unpacking", "Disk quota exceeded"), "disk there is full", "free some"),
        (StoreFull("/home/x", "it is full"), "disk there is full", "free some"),
        (FileFailed("/home/x", "Read-only file system"), "cannot be used", "mounted writable"),
        (IsolationFailed("x", "Read-only file system"), "cannot be used", "mounted writable"),
        (FileFailed("/home/x", "Permission denied"), "cannot be used", "permissions"),
        (StoreRefused("/home/x", "denied"), "cannot be used", "permissions"),
    ],
)
def test_a_problem_with_the_disk_there_names_the_host(
    error: DragomanError, words: str, remedy: str
) -> None:
    told = explain_remote(HOST, error)
    assert isinstance(told, HostUnavailable) and remedy in told.remedy
    assert str(told).startswith("box: ") and words in str(told)


@pytest.mark.parametrize("may_have_run", [False, True])
@pytest.mark.parametrize("problem", ["No space left on device", "Read-only file system"])
def test_a_problem_with_the_disk_there_says_whether_the_request_may_have_run(
    problem: str, may_have_run: bool
) -> None:
    error = RemoteError(-32603, problem)
    error.may_have_run = may_have_run
    told = explain_remote(HOST, error)
    assert isinstance(told, HostUnavailable) and told.may_have_run is may_have_run


def test_a_missing_login_there_names_the_host_and_was_not_a_prompt() -> None:
    told = explain_remote(HOST, RemoteError(-32000, "log in first"))
    assert isinstance(told, AuthRequired) and not told.may_have_run
    assert "on box: `ssh -p 2222 -- me@box`" in str(told)


def test_a_program_that_is_missing_there_is_named_with_the_host() -> None:
    told = explain_remote(HOST, ProgramNotFound("codex"))
    assert isinstance(told, ProgramNotFound)
    assert str(told) == "box: the program 'codex' was not found"


def test_another_error_of_the_host_stays_as_it_is() -> None:
    error = UsageError("there is no such peer")
    assert explain_remote(HOST, error) is error
