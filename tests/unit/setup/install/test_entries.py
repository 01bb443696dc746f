"""Settings files of other programs, changed and given back."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ClientFileInvalid, FileFailed, UsageError
from dragoman.setup.install import entries
from dragoman.setup.install.clients import ACP_EDITORS, MCP_CLIENTS, Client
from dragoman.setup.install.entries import (
    file_of,
    own_entries,
    plan,
    plan_removal,
    snippet,
    write,
)
from dragoman.setup.install.jsonc import read
from tests.unit.setup.install.samples import CASES, as_windows_has_it, name_of, sample

PROGRAM = ("/opt/dragoman/bin/dragoman",)
CLAUDE = MCP_CLIENTS["claude"]


def install(client: Client, path: Path, program: tuple[str, ...] = PROGRAM) -> Path | None:
    return write(plan(client, path, "dragoman", program))


def value_of(client: Client, data: bytes) -> dict[str, Any]:
    text = data.decode("utf-8-sig")
    if client.format == "toml":
        return tomllib.loads(text)
    node = read(text)
    assert node is not None
    value: dict[str, Any] = node.value
    return value


def without(data: bytes, client: Client) -> dict[str, Any]:
    value = value_of(client, data)
    value.get(client.section, {}).pop("dragoman", None)
    if not value.get(client.section):
        value.pop(client.section, None)
    return value


@pytest.mark.parametrize("windows", [False, True], ids=["unix", "windows"])
@pytest.mark.parametrize(("client", "name"), CASES, ids=name_of)
def test_a_sample_gets_its_entry_and_the_backup_restores_it_byte_for_byte(
    client: Client, name: str, windows: bool, tmp_path: Path
) -> None:
    original = as_windows_has_it(sample(name)) if windows else sample(name)
    path = tmp_path / "settings"
    path.write_bytes(original)
    backup = install(client, path)
    done = path.read_bytes()
    entry = value_of(client, done)[client.section]["dragoman"]
    assert client.words(entry) == [PROGRAM[0], "serve", client.server]
    assert without(done, client) == without(original, client)
    assert done.startswith(b"\xef\xbb\xbf") == windows
    assert (done.count(b"\r\n") == done.count(b"\n")) == windows
    assert kept(original, done)
    assert install(client, path) is None and path.read_bytes() == done, "a second time is nothing"
    assert backup is not None and backup.read_bytes() == original
    os.replace(backup, path)
    assert path.read_bytes() == original and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("windows", [False, True], ids=["unix", "windows"])
@pytest.mark.parametrize(("client", "name"), CASES, ids=name_of)
def test_the_removal_of_an_entry_leaves_the_file_as_it_was(
    client: Client, name: str, windows: bool, tmp_path: Path
) -> None:
    original = as_windows_has_it(sample(name)) if windows else sample(name)
    path = tmp_path / "settings"
    path.write_bytes(original)
    assert not plan_removal(client, path, "dragoman").changes
    install(client, path)
    assert own_entries(client, path) == ["dragoman"]
    backup = write(plan_removal(client, path, "dragoman"))
    assert backup is not None
    if value_of(client, original).get(client.section) == {}:
        # An empty section goes along.
        assert value_of(client, path.read_bytes()) == without(original, client)
    else:
        assert path.read_bytes() == original
    assert own_entries(client, path) == []
    assert write(plan_removal(client, path, "dragoman")) is None


def test_without_a_file_nothing_is_removed_or_created(tmp_path: Path) -> None:
    planned = plan_removal(CLAUDE, tmp_path / "none.json", "dragoman")
    assert not planned.changes and write(planned) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("entry", ['{"command": "x", "args": ["serve"]}', "3", "{}"])
def test_an_entry_that_starts_something_else_is_not_removed(entry: str, tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_text(f'{{"mcpServers": {{"dragoman": {entry}}}}}')
    with pytest.raises(ClientFileInvalid, match="does not start `dragoman serve mcp`"):
        plan_removal(CLAUDE, path, "dragoman")
    assert own_entries(CLAUDE, path) == []


def kept(original: bytes, done: bytes) -> bool:
    """Whether every byte is still there in its order, with one comma and one stretch put in."""
    at = len(os.path.commonprefix([original, done]))
    if done[at : at + 1] == b"," and original[at : at + 1] != b",":
        done = done[:at] + done[at + 1 :]
    head = len(os.path.commonprefix([original, done]))
    tail = len(os.path.commonprefix([original[::-1], done[::-1]]))
    return head + tail >= len(original)


@pytest.mark.parametrize(("client", "name"), CASES, ids=name_of)
def test_a_program_that_moved_is_followed_and_what_the_user_added_stays(
    client: Client, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings"
    path.write_bytes(sample(name))
    install(client, path, ("/old/python", "-m", "dragoman"))
    text = path.read_text().replace(f'"{client.server}"]', f'"{client.server}", "--verbose"]')
    path.write_text(text)
    install(client, path)
    assert (path.with_name("settings.before-dragoman-2")).read_text() == text
    expected = text.replace('"/old/python"', '"/opt/dragoman/bin/dragoman"')
    assert path.read_text() == expected.replace('"-m", "dragoman", "serve"', '"serve"')


@pytest.mark.parametrize(("client", "name"), CASES, ids=name_of)
def test_a_file_that_is_not_there_is_made_of_the_snippet_for_its_owner_alone(
    client: Client, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "settings"
    assert install(client, path) is None
    assert path.read_text() == snippet(client, "dragoman", PROGRAM)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["settings"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"mcpServers": {}, "mcpServers": {}}', 'line 1, column 20: the key "mcpServers" occurs'),
        (b"mcpServers:\n  a: 1\n", "it cannot be edited as JSON"),
        (b'{"mcpServers": ', "it cannot be edited as JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b'{"mcpServers": []}', "`mcpServers` is not a JSON object"),
        (b"[]", "the whole file is not a JSON object"),
        (b'{"n": ' + b"9" * 5000 + b"}", "it cannot be edited as JSON"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_not_understood_is_left_alone(
    data: bytes, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings"
    path.write_bytes(data)
    with pytest.raises(ClientFileInvalid) as refused:
        install(CLAUDE, path)
    assert problem in str(refused.value) and str(path) in str(refused.value)
    assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "entry",
    [
        '{"type": "http", "url": "http://127.0.0.1"}',
        '{"command": "other", "args": ["serve"]}',
        '{"command": "other"}',
        '{"command": ["x"], "args": ["serve", "mcp"]}',
    ],
)
def test_an_entry_of_the_same_name_that_starts_something_else_is_left_alone(
    entry: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings"
    path.write_text(f'{{"mcpServers": {{"dragoman": {entry}}}}}')
    with pytest.raises(ClientFileInvalid, match="does not start `dragoman serve mcp`") as refused:
        install(CLAUDE, path)
    assert "--name" in refused.value.remedy
    assert write(plan(CLAUDE, path, "dragoman-2", PROGRAM)) is not None


@pytest.mark.parametrize("text", ["a = 1\na = 2\n", f"a = {'9' * 5000}\n"], ids=["twice", "huge"])
def test_broken_toml_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ClientFileInvalid, match="it cannot be edited as TOML"):
        install(MCP_CLIENTS["codex"], path)


def test_what_is_not_an_ordinary_file_is_left_alone(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ClientFileInvalid, match="it is not a regular file"):
            plan(CLAUDE, path, "dragoman", PROGRAM)


def test_a_file_of_any_size_is_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "MAX_FILE_SIZE", 10)
    path = tmp_path / "settings"
    path.write_text('{"a": 12345}')
    with pytest.raises(ClientFileInvalid, match="larger than 10 bytes"):
        plan(CLAUDE, path, "dragoman", PROGRAM)


def test_permission_bits_are_kept_and_the_backup_has_them_too(tmp_path: Path) -> None:
    for mode in (0o640, 0o600, 0o664):
        path = tmp_path / f"settings-{mode:o}"
        path.write_text("{}")
        path.chmod(mode)
        backup = install(CLAUDE, path)
        assert backup is not None
        assert [stat.S_IMODE(each.stat().st_mode) for each in (path, backup)] == [mode, mode]


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    link = tmp_path / "settings.json"
    link.symlink_to("dotfiles/settings.json")
    install(CLAUDE, link)
    assert link.is_symlink() and "dragoman" in real.read_text()


def test_a_file_that_changed_since_it_was_planned_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    path.write_text("{}")
    planned = plan(CLAUDE, path, "dragoman", PROGRAM)
    path.write_text('{"a": 1}')
    with pytest.raises(UsageError, match="changed by another program"):
        write(planned)
    assert path.read_text() == '{"a": 1}' and list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_leaves_the_file_and_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings"
    path.write_text("{}")

    def fail(*_: object) -> None:
        raise FileFailed(str(path), "the disk is full")

    monkeypatch.setattr("dragoman.config.safe_files.write_file", fail)
    with pytest.raises(FileFailed):
        install(CLAUDE, path)
    assert path.read_text() == "{}" and list(tmp_path.iterdir()) == [path]


def test_the_path_of_a_program_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        plan(CLAUDE, tmp_path / "settings", "dragoman", ("/x/\udcff",))


def test_a_project_has_a_file_of_its_own_where_the_program_reads_one(tmp_path: Path) -> None:
    assert file_of(CLAUDE, project=tmp_path) == tmp_path / ".mcp.json"
    with pytest.raises(UsageError, match="only from your own settings"):
        file_of(ACP_EDITORS["jetbrains"], project=tmp_path)


def test_the_members_that_each_program_needs_are_there(tmp_path: Path) -> None:
    made = {
        (client.server, name): set(value_of(client, snippet(client, "d", PROGRAM).encode())[s]["d"])
        for client, name in CASES
        for s in [client.section]
    }
    plain = {"command", "args"}
    assert made == {
        ("mcp", "claude"): plain | {"type", "env"},
        ("mcp", "codex"): plain | {"tool_timeout_sec"},
        ("mcp", "cursor"): plain | {"type"},
        ("mcp", "gemini"): plain | {"timeout"},
        ("mcp", "qwen"): plain | {"timeout"},
        ("mcp", "copilot"): plain | {"type", "tools"},
        ("mcp", "opencode"): {"type", "command", "enabled", "timeout"},
        ("mcp", "kimi"): plain | {"toolTimeoutMs"},
        ("mcp", "zed"): plain | {"source", "env"},
        ("mcp", "vscode"): plain | {"type"},
        ("acp", "zed"): plain | {"type", "env"},
        ("acp", "jetbrains"): plain | {"env"},
    }
