"""`dragoman uninstall`: what it shows, what it removes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli_shell import AGENT, FOLDERS, Cli, cli_in, warm_cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def used(cli: Cli) -> None:
    """Use dragoman as somebody would who then has enough of it."""
    assert cli("peers", "add", "mine", "--roles", "review", "--no-turns", "--", *AGENT).code == 0
    assert cli("run", "mine", "hello").code == 0
    (cli.home / ".claude.json").write_text('{"theme": "dark"}')
    assert cli("mcp", "install", "--client", "claude", "--write").code == 0
    assert cli("mcp", "install", "--client", "codex", "--write", "--name", "others").code == 0
    assert cli("acp", "install", "--client", "zed", "--write").code == 0
    assert cli("skill", "--write", str(cli.home / ".claude" / "skills")).code == 0
    (cli.cwd / "dragoman.toml").write_text('[policy]\npreset = "approve-reads"\n')


def folders(cli: Cli) -> list[Path]:
    return [cli.home / name.lower() for name in FOLDERS]


def test_all_of_it_is_shown_and_removed_and_a_project_is_left_alone() -> None:
    with warm_cli() as cli:
        used(cli)
        (broker,) = cli("broker", "list", "--format", "quiet").out.split()
        shown = cli("uninstall")
        assert shown.code == 2 and "add --yes" in shown.err
        for word in (
            f"broker     {broker} ",
            f"entry      dragoman of Claude Code in {cli.home}/.claude.json",
            f"entry      others of Codex in {cli.home}/.codex/config.toml",
            "entry      dragoman of Zed in ",
            f"skill      {cli.home}/.claude/skills/dragoman/SKILL.md",
            f"directory  {cli.home}/config_home (settings and your own peers, ",
            f"directory  {cli.home}/state_home (sessions, jobs, the ledger, logs, ",
            f"kept       {cli.home}/.claude.json.before-dragoman: remove it by hand",
        ):
            assert word in shown.out
        assert cli("broker", "list", "--format", "quiet").out.split() == [broker]

        done = cli("uninstall", "--yes")
        assert done.code == 0, done.err
        assert "Removed." in done.out and "pip uninstall dragoman" in done.out
        assert [path for path in folders(cli) if path.exists()] == []
        assert (cli.home / ".claude.json").read_text() == '{"theme": "dark"}'
        assert not (cli.home / ".claude" / "skills" / "dragoman").exists()
        assert "others" not in (cli.home / ".codex" / "config.toml").read_text()
        assert (cli.cwd / "dragoman.toml").exists()
        assert cli.agents_left() == []

        again = cli("uninstall")
        assert again.code == 0 and "There is nothing to remove." in again.out


def test_an_entry_in_a_named_file_is_not_found_and_the_help_says_how_to_remove_it(cli: Cli) -> None:
    file = cli.home / "elsewhere.json"
    named = ("--client", "claude", "--write", "--file", str(file))
    assert cli("mcp", "install", *named).code == 0
    assert str(file) not in cli("uninstall").out
    told = " ".join(cli("uninstall", "--help").out.split())
    assert "everything" not in told
    assert "in a file that you named with --file are not found" in told
    assert "`mcp uninstall` or `acp uninstall` and the same option" in told
    assert "dragoman" in file.read_text()
    assert cli("mcp", "uninstall", *named).code == 0
    assert "dragoman" not in file.read_text()


def test_settings_stay_if_that_is_wanted(cli: Cli) -> None:
    used(cli)
    done = cli("uninstall", "--yes", "--keep-config")
    assert done.code == 0
    assert f"kept       {cli.home}/config_home" in done.out
    assert (cli.home / "config_home" / "peers" / "mine.toml").exists()
    assert not (cli.home / "state_home").exists()


def test_a_person_is_asked(cli: Cli) -> None:
    assert cli("config", "set", "format", "text").code == 0
    with cli.terminal("uninstall") as terminal:
        terminal.expect("Remove all of this? [y/N]")
        terminal.type("n\n")
        terminal.expect("Nothing was changed")
        assert terminal.wait() == 0
    assert (cli.home / "config_home" / "config.toml").exists()


def test_a_folder_of_another_user_is_never_removed(cli: Cli) -> None:
    repository = cli.home / "dotfiles"
    (repository / ".git").mkdir(parents=True)
    linked = cli.home / "linked"
    linked.symlink_to(repository)
    places = {"CONFIG_HOME": repository, "DATA_HOME": cli.home, "CACHE_HOME": linked}
    cli.extra |= {f"DRAGOMAN_{name}": str(path) for name, path in places.items()}
    cli.extra["DRAGOMAN_STATE_HOME"] = str(cli.cwd.parent)
    done = cli("uninstall", "--yes")
    assert done.code == 0
    assert f"kept       {repository} " in done.out and "it is a git repository" in done.out
    assert f"kept       {linked} " in done.out and "it is a symbolic link" in done.out
    assert done.out.count("it contains") == 2
    assert repository.exists() and cli.home.exists() and cli.cwd.exists()


def test_folders_that_cannot_be_examined_are_not_there(cli: Cli) -> None:
    long = str(cli.home / ("x" * 300))
    cli.extra.update(XDG_CONFIG_HOME=long, DRAGOMAN_STATE_HOME=long, CODEX_HOME=long)
    done = cli("uninstall", "--yes")
    assert (done.code, done.err) == (0, ""), done.err


def test_an_entry_in_settings_that_cannot_be_read_is_not_passed_over(cli: Cli) -> None:
    assert cli("mcp", "install", "--client", "codex", "--write").code == 0
    file = cli.home / ".codex" / "config.toml"
    file.write_text(f"{file.read_text()}broken =\n")
    done = cli("uninstall", "--yes")
    assert done.code == 1
    assert f"unread     {file}: it is not valid TOML: " in done.out
    assert "There is nothing else to remove." in done.out
    assert "fix the files that cannot be read, then run this again" in done.err
