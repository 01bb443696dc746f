"""`dragoman agents` as a program: questions on a terminal, links, and edits that are undone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, cli_in


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def agent(cli: Cli, name: str, text: bytes = b"---\nname: x\n---\nbody\n") -> Path:
    path = cli.cwd / "agents" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    return path


@pytest.mark.parametrize(("answer", "code", "changed"), [("y", 0, True), ("n", 1, False)])
def test_a_person_is_asked_before_many_files_change(
    cli: Cli, answer: str, code: int, changed: bool
) -> None:
    files = [agent(cli, name) for name in "ab"]
    with cli.terminal("agents", "set", "none") as terminal:
        terminal.expect("Change 2 files (agents/a.md, agents/b.md)? [y/N]")
        terminal.type(f"{answer}\n")
        assert terminal.wait() == code
    assert [b"delegate_to: none\n" in file.read_bytes() for file in files] == [changed] * 2


def test_a_link_stays_a_link_and_the_mode_stays_the_mode(cli: Cli) -> None:
    real = agent(cli, "real")
    real.chmod(0o604)
    link = cli.cwd / "link.md"
    link.symlink_to(real)
    assert cli("agents", "set", "scout-exploration", "link.md").code == 0
    assert link.is_symlink()
    assert b"delegate_to: scout-exploration\n" in real.read_bytes()
    assert stat.S_IMODE(real.stat().st_mode) == 0o604
    assert sorted(os.listdir(real.parent)) == ["real.md"]


def test_a_mistaken_target_is_reported_and_not_the_agent_before_it(cli: Cli) -> None:
    agent(cli, "rev")
    done = cli("agents", "set", "rev", "codex")
    assert (done.code, "cannot delegate to 'codex'" in done.err) == (2, True), done.err


def test_one_broken_file_leaves_all_files_as_they_were(cli: Cli) -> None:
    good = agent(cli, "a")
    broken = agent(cli, "b", b"---\nname: a\nname: b\n---\n")
    before = [good.read_bytes(), broken.read_bytes()]
    done = cli("agents", "set", "none", "--yes")
    assert done.code == 2
    assert "b.md: line 3: name is in the front matter twice" in done.err
    assert "no file was changed" in done.err
    assert [good.read_bytes(), broken.read_bytes()] == before


def test_set_and_unset_give_the_file_back_byte_for_byte(cli: Cli) -> None:
    text = b"\xef\xbb\xbf---\r\n# c\r\nname: 'x' # y\nlist:\n- delegate_to: no\r\n---\r\nbody \xff"
    text = text.replace(b"\xff", b"\xc3\xbf")
    file = agent(cli, "a", text)
    assert cli("agents", "set", "codex-execute", "a").code == 0
    assert file.read_bytes() != text
    assert cli("agents", "unset", "a").code == 0
    assert file.read_bytes() == text


def test_a_pipe_gets_plain_text(cli: Cli) -> None:
    agent(cli, "a")
    done = cli("agents", "set", "none", "a")
    assert "\x1b" not in done.out and "+delegate_to: none" in done.out
