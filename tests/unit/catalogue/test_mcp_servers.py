from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue.descriptor import Descriptor, Launch, McpServers
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.load import built_in
from dragoman.catalogue.mcp_servers import kind_of, taken
from dragoman.dialects.acp import v1 as acp
from tests.unit.catalogue.test_enforcement import card

PROGRAM = acp.McpServerStdio(name="program", command="x", args=[], env=[])
HTTP = acp.McpServerHttp(name="web", url="http://127.0.0.1/", headers=[])
SSE = acp.McpServerSse(name="stream", url="http://127.0.0.1/", headers=[])
ALL = (PROGRAM, HTTP, SSE)


def way(table: McpServers | None = None) -> LaunchSpec:
    if table is None:
        return LaunchSpec(command=("python", "agent.py"))
    descriptor = Descriptor(name="x", title="X", launch=(Launch(command=("x",)),), mcp=table)
    return LaunchSpec(command=("x",), env={"BASE": "1"}, descriptor=descriptor)


def test_the_kinds_of_servers_are_distinguished() -> None:
    assert [kind_of(one) for one in ALL] == ["stdio", "http", "sse"]


def test_a_peer_of_which_nothing_is_known_is_handed_all_of_them(tmp_path: Path) -> None:
    found = taken(way(), ALL, workspace=tmp_path)
    assert (found.way, found.ignored, found.notice) == (way(), (), "")


def test_the_kinds_that_a_peer_ignores_are_named(tmp_path: Path) -> None:
    found = taken(way(McpServers(ignored=("stdio", "sse"))), ALL, workspace=tmp_path)
    assert found.ignored == ("program", "stream")
    assert found.notice.startswith("x does not use the MCP servers program, stream: ")


@pytest.mark.parametrize(("mcp", "ignored"), [(False, ("program",)), (True, ()), (None, ())])
def test_a_card_that_says_no_counts(
    tmp_path: Path, mcp: bool | None, ignored: tuple[str, ...]
) -> None:
    found = taken(way(McpServers()), ALL, workspace=tmp_path, card=card(mcp=mcp))
    assert found.ignored == ignored


TRUSTING = McpServers(env={"TRUST": "true"}, trusts=(".gemini", ".env"))


def test_a_folder_is_trusted_for_the_run_only_if_servers_are_handed_over(tmp_path: Path) -> None:
    assert taken(way(TRUSTING), (), workspace=tmp_path).way.env == {"BASE": "1"}
    found = taken(way(TRUSTING), ALL, workspace=tmp_path, card=card(mcp=False))
    assert found.way.env == {"BASE": "1", "TRUST": "true"}
    assert found.ignored == ()


@pytest.mark.parametrize("place", [".gemini", "sub/.env"])
def test_a_folder_that_would_decide_something_is_not_trusted(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    workspace = project / "sub" / "deeper"
    workspace.mkdir(parents=True)
    (project / place).mkdir()
    found = taken(way(TRUSTING), ALL, workspace=workspace)
    assert found.way.env == {"BASE": "1"}
    assert found.ignored == ("program", "web", "stream")
    assert place in found.notice


def test_what_lies_in_the_users_home_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gemini").mkdir()
    workspace = tmp_path / "project"
    workspace.mkdir()
    assert taken(way(TRUSTING), ALL, workspace=workspace).way.env["TRUST"] == "true"


def test_the_peers_that_were_seen_to_ignore_servers_say_so() -> None:
    tables = {one.descriptor.name: one.descriptor.mcp for one in built_in()}
    assert tables["copilot"].ignored == ("stdio",)
    assert tables["cline"].ignored == ("stdio", "http", "sse")
    assert tables["gemini"].env == {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
