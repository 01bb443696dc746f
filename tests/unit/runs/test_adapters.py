"""Work by role: the adapter of a descriptor, and adapters in Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.adapters import Adapter, Assignment
from dragoman.catalogue import Descriptor, Launch, Quirks, load_catalogue
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.load import Catalogue, KnownPeer, built_in
from dragoman.client.permissions import approve_all
from dragoman.config import Paths, trust_project
from dragoman.errors import ConfigInvalid, DragomanError, RoleNotClaimed
from dragoman.events import model
from dragoman.events.words import Outcome
from dragoman.runs.adapters import DescribedAdapter, adapter_source, load_adapter
from dragoman.testing.scripted import Die, Expect, Notify, Reply, Step, command
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned
from tests.aio import aio
from tests.unit.config.folders import load, paths_in, repository, write

PEER = Descriptor(
    name="tool",
    title="Tool",
    launch=(Launch(command=("tool",)),),
    protocol="acp",
    roles=("plan", "review"),
    role_prefixes={"plan": "/plan "},
)


def errand(tmp_path: Path, *steps: Step, quirks: Quirks | None = None) -> Assignment:
    script = command(Expect("initialize"), Reply({"protocolVersion": 1}), *steps)
    way = LaunchSpec(
        command=tuple(script), protocol="acp", quirks=quirks or Quirks(), descriptor=PEER
    )
    return Assignment(way=way, cwd=tmp_path, permit=approve_all)


def says(text: str) -> list[Step]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return [
        Expect("session/new"),
        Reply({"sessionId": "s"}),
        Expect("session/prompt"),
        Notify("session/update", {"sessionId": "s", "update": update}),
        Reply({"stopReason": "end_turn"}),
    ]


@aio
async def test_work_is_done_with_its_roles_prefix_and_every_event_is_reported(
    tmp_path: Path,
) -> None:
    seen: list[model.Event] = []
    adapter = DescribedAdapter(PEER)
    result = await adapter.dispatch(errand(tmp_path, *says("done")), "plan", "a house", seen.append)
    assert (result.outcome, result.text) == (Outcome.OK, "done")
    (started,) = [event for event in seen if isinstance(event, model.TurnStarted)]
    assert "/plan a house" in str(started)
    assert any(isinstance(event, model.MessageDelta) for event in seen)


@aio
async def test_a_role_that_is_not_claimed_starts_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"import os; os.mkdir({str(mark)!r})"
    way = LaunchSpec(command=(sys.executable, "-c", code), descriptor=PEER)
    with pytest.raises(RoleNotClaimed, match="it claims plan, review"):
        await DescribedAdapter(PEER).dispatch(Assignment(way=way, cwd=tmp_path), "debug", "x")
    assert not mark.exists()


@aio
async def test_an_error_told_as_text_is_judged(tmp_path: Path) -> None:
    launch = errand(tmp_path, *says("Error: 400"), quirks=Quirks(error_texts=("Error: ",)))
    result = await DescribedAdapter(PEER).dispatch(launch, "review", "x")
    assert result.outcome is Outcome.FAILED


@aio
async def test_the_client_is_closed_whatever_happens(tmp_path: Path) -> None:
    steps: list[Step] = [Expect("session/new"), Die()]
    with pytest.raises(DragomanError):
        await DescribedAdapter(PEER).dispatch(errand(tmp_path, *steps), "plan", "x")

    def fail(event: model.Event) -> None:
        raise RuntimeError("an observer that fails")

    result = await DescribedAdapter(PEER).dispatch(errand(tmp_path, *says("y")), "plan", "x", fail)
    assert result.ok
    assert find_owned(owner()) == []


def test_every_peer_of_ours_has_an_adapter_of_the_agreed_shape(tmp_path: Path) -> None:
    config = load(tmp_path, paths_in(tmp_path))
    for known in built_in():
        adapter = load_adapter(known, config)
        assert isinstance(adapter, Adapter)
        assert adapter.name == known.descriptor.name
        assert set(adapter.ROLE_PREFIX) == set(adapter.ROLES_CLAIMED)
        assert all(adapter.claims(role) for role in adapter.ROLES_CLAIMED)
        assert not adapter.claims("nonesuch")


# -- adapters in Python

CODE = """
class Make:
    protocol = "acp"
    ROLES_CLAIMED = ["plan"]
    ROLE_PREFIX = {"plan": ""}

    def __init__(self, descriptor):
        self.name = descriptor.name

    def claims(self, role):
        return role in self.ROLES_CLAIMED

    async def dispatch(self, launch, role, text, on_notification=None):
        return text
"""

MODULE = """
name, protocol, ROLES_CLAIMED, ROLE_PREFIX = "tool", "acp", ["plan"], {"plan": ""}

def claims(role):
    return role in ROLES_CLAIMED

async def dispatch(launch, role, text, on_notification=None):
    return text
"""

TABLE = 'name = "tool"\ntitle = "Tool"\nadapter = "{}"\n[[launch]]\ncommand = ["tool"]\n'


BROKEN_NAME = (
    MODULE
    + """
class Tool:
    protocol, ROLES_CLAIMED, ROLE_PREFIX = "acp", ["plan"], {}
    claims, dispatch = claims, dispatch

    def __init__(self, descriptor):
        pass

    @property
    def name(self):
        raise ValueError("no name")
"""
)


def users(paths: Paths, adapter: str) -> KnownPeer:
    write(paths.peers_folder / "tool.toml", TABLE.format(adapter))
    return load_catalogue(load(paths.config, paths), entry_points=list).known("tool")


@pytest.mark.parametrize(("value", "code"), [("tool.py:Make", CODE), ("tool.py", MODULE)])
def test_a_file_beside_the_descriptor_is_an_adapter(tmp_path: Path, value: str, code: str) -> None:
    paths = paths_in(tmp_path)
    known = users(paths, value)
    write(paths.peers_folder / "tool.py", code)
    adapter = load_adapter(known, load(tmp_path, paths))
    assert (adapter.name, adapter.claims("plan"), adapter.claims("x")) == ("tool", True, False)


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        ("tool.py", "1 / 0", "ZeroDivisionError"),
        ("tool.py", "class Own(Exception): ...\nraise Own('no')", "cannot be loaded: Own: no"),
        ("tool.py", "raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
        ("tool.py", "def (", "SyntaxError"),
        ("tool.py", "import nonesuch_module", "nonesuch_module"),
        ("tool.py", "x = 1", "the adapter lacks name, protocol, ROLES_CLAIMED"),
        ("tool.py:Make", MODULE, "has no attribute 'Make'"),
        ("tool.py", MODULE.replace('"tool"', '"other"'), "its name is 'other', not 'tool'"),
        ("tool.py", MODULE.replace("async ", ""), "not an `async def`"),
        ("tool.py", MODULE.replace('["plan"]', '"plan"'), "ROLES_CLAIMED is not a list of roles"),
        ("tool.py", MODULE.replace('["plan"]', "[7]"), "ROLES_CLAIMED is not a list of roles"),
        ("tool.py:Tool", BROKEN_NAME, "it cannot be created: ValueError: no name"),
        ("missing.py", "", "there is no"),
        ("nonsense", "", "neither module:attribute nor a Python file"),
        ("nonesuch_module:x", "", "cannot be imported"),
        ("../../outside.py", "", "is outside "),
    ],
)
def test_an_adapter_that_is_broken_is_an_error_that_names_its_descriptor(
    tmp_path: Path, value: str, code: str, words: str
) -> None:
    paths = paths_in(tmp_path)
    known = users(paths, value)
    write(paths.peers_folder / "tool.py", code)
    write(tmp_path / "outside.py", MODULE)
    with pytest.raises(ConfigInvalid) as caught:
        load_adapter(known, load(tmp_path, paths))
    assert words in str(caught.value)
    assert f"tool.toml: adapter: the adapter {value} of tool: " in str(caught.value)


def test_the_source_of_an_adapter_is_its_file_or_its_module(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    known = users(paths, "tool.py:Make")
    assert adapter_source(known, load(tmp_path, paths)) == str(paths.peers_folder / "tool.py")
    known = users(paths, "installed_adapter:Make")
    assert adapter_source(known, load(tmp_path, paths)) == "installed_adapter:Make"


def test_a_module_that_is_installed_is_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = paths_in(tmp_path)
    write(tmp_path / "lib" / "installed_adapter.py", CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    known = users(paths, "installed_adapter:Make")
    assert load_adapter(known, load(paths.config, paths)).name == "tool"


def test_a_module_of_an_untrusted_project_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = paths_in(tmp_path)
    root = repository(tmp_path / "repo", "")
    write(root / "hostile_adapter.py", f"import os; os.mkdir({str(tmp_path / 'mark')!r})")
    monkeypatch.chdir(root)
    monkeypatch.syspath_prepend(str(root))
    known = users(paths, "hostile_adapter:Make")
    with pytest.raises(ConfigInvalid, match="not trusted"):
        load_adapter(known, load(root, paths))
    assert not (tmp_path / "mark").exists()


def project(tmp_path: Path, code: str) -> tuple[Path, Paths]:
    paths = paths_in(tmp_path)
    text = TABLE.format("adapter.py").replace('name = "tool"\n', "[peers.tool]\n")
    root = repository(tmp_path / "repo", text.replace("[[launch]]", "[[peers.tool.launch]]"))
    write(root / "adapter.py", code)
    return root, paths


def loaded(root: Path, paths: Paths) -> Any:
    config = load(root, paths)
    catalogue = load_catalogue(config, entry_points=list)
    return load_adapter(catalogue.known("tool"), config)


def test_a_projects_adapter_runs_only_with_the_bytes_that_were_trusted(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    root, paths = project(tmp_path, MODULE)
    config = load(root, paths)
    assert "tool" not in load_catalogue(config, entry_points=list)
    trust_project(root, paths)
    assert loaded(root, paths).name == "tool"
    # The project's file is still the trusted one, and names the adapter.
    write(root / "adapter.py", f"import os; os.mkdir({str(mark)!r})\n{MODULE}")
    with pytest.raises(ConfigInvalid, match="has changed since"):
        loaded(root, paths)
    assert not mark.exists()
    trust_project(root, paths)
    assert loaded(root, paths).name == "tool"
    assert mark.exists()


def test_an_adapter_that_appears_after_the_trust_is_not_trusted(tmp_path: Path) -> None:
    root, paths = project(tmp_path, MODULE)
    (root / "adapter.py").unlink()
    trust_project(root, paths)
    with pytest.raises(ConfigInvalid, match="there is no"):
        loaded(root, paths)
    write(root / "adapter.py", MODULE)
    with pytest.raises(ConfigInvalid, match="not trusted"):
        loaded(root, paths)


def test_a_catalogue_says_where_a_peer_comes_from() -> None:
    assert Catalogue([KnownPeer(PEER, "here")]).known("tool").origin == "here"
