"""The page about editors and agents lists the programs and files that the code knows."""

from __future__ import annotations

from pathlib import Path

from dragoman.setup.install.clients import (
    ACP_EDITORS,
    MCP_CLIENTS,
    SCRIPTED_EDITORS,
    Client,
    HostEnvironment,
)
from dragoman.setup.install.entries import BACKUP
from tests.docs.markdown import ROOT, section, table

DOCUMENT = ROOT / "docs" / "how-to" / "use-from-editors-and-agents.md"
HOME = HostEnvironment(Path("~"), {}, "linux")


def place(client: Client) -> str:
    return f"`{client.user_file(HOME).as_posix()}`"


def test_the_table_of_mcp_clients_is_the_one_in_the_code() -> None:
    assert table(section(DOCUMENT, "Let an agent delegate")) == [
        [f"`{name}`", each.title, place(each), f"`{each.project_file}`", f"`{each.section}`"]
        for name, each in MCP_CLIENTS.items()
    ]


def test_the_table_of_editors_is_the_one_in_the_code() -> None:
    rows = table(section(DOCUMENT, "Put dragoman into an editor"))
    files = [[f"`{each.name}`", each.title] for each in ACP_EDITORS.values()]
    scripts = [[f"`{each.name}`", each.title] for each in SCRIPTED_EDITORS.values()]
    assert [row[:2] for row in rows] == files + scripts
    assert [row[2:] for row in rows[: len(ACP_EDITORS)]] == [
        [place(each), f"`{each.section}`"] for each in ACP_EDITORS.values()
    ]


def test_the_name_of_a_backup_is_the_real_one() -> None:
    assert f"`NAME{BACKUP}`" in DOCUMENT.read_text("utf-8")
