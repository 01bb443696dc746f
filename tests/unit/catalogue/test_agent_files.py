"""What delegate_to means, which files are meant, and edits of all files or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.catalogue import agent_files
from dragoman.catalogue.agent_files import (
    DelegationTarget,
    Problem,
    find_files,
    list_files,
    parse_target,
    preview,
    refuse_new_problems,
    set_target,
    unset_target,
    validate,
)
from dragoman.errors import ConfigInvalid, DelegationInvalid, FrontMatterInvalid, UsageError
from tests.unit.catalogue.catalogues import USUAL, catalogue, peer

PATTERNS = ("agents/*.md",)


def agents(folder: Path, **files: str) -> list[Path]:
    """Agent files with a value of the field each; an empty text is none."""
    (folder / "agents").mkdir(exist_ok=True)
    paths = []
    for name, value in files.items():
        path = folder / "agents" / f"{name}.md"
        field = f"delegate_to: {value}\n" if value else ""
        path.write_bytes(f"---\nname: {name}\n{field}---\nbody\n".encode())
        paths.append(path)
    return paths


# -- values


def test_a_value_names_a_peer_and_one_of_its_roles() -> None:
    assert parse_target("codex-execute", USUAL) == DelegationTarget("codex", "execute")
    assert str(DelegationTarget("codex", "execute")) == "codex-execute"


def test_none_is_an_opt_out() -> None:
    assert parse_target("none", USUAL) is None


def test_the_longest_name_of_a_peer_wins() -> None:
    assert parse_target("codex-acp-plan", USUAL) == DelegationTarget("codex-acp", "plan")
    short = catalogue(peer("codex", "acp-plan"), peer("codex-acp", "review"))
    with pytest.raises(DelegationInvalid, match="codex-acp does not claim the role 'plan'"):
        parse_target("codex-acp-plan", short)


def test_a_role_may_have_hyphens_too() -> None:
    peers = catalogue(peer("a-b", "code-review"))
    assert parse_target("a-b-code-review", peers) == DelegationTarget("a-b", "code-review")


def test_a_value_with_two_readings_is_an_error_that_names_both() -> None:
    peers = catalogue(peer("codex", "acp-plan"), peer("codex-acp", "plan"))
    with pytest.raises(DelegationInvalid) as caught:
        parse_target("codex-acp-plan", peers)
    assert "ambiguous: 'codex-acp' with the role 'plan' and 'codex' with the role" in str(
        caught.value
    )
    assert "rename" in caught.value.remedy


def test_a_peer_that_does_not_exist_points_to_peers_add() -> None:
    with pytest.raises(DelegationInvalid) as caught:
        parse_target("mine-review", USUAL)
    assert "`dragoman peers add mine --roles review -- COMMAND`" in caught.value.remedy


def test_a_misspelt_peer_is_guessed() -> None:
    with pytest.raises(DelegationInvalid, match=r"did you mean codex-execute\?"):
        parse_target("codx-execute", USUAL)


def test_a_value_that_is_the_name_of_a_peer_is_not_split_into_another_peer_and_a_role() -> None:
    with pytest.raises(DelegationInvalid, match="names a peer but no role") as caught:
        parse_target("codex-acp", USUAL)
    assert caught.value.remedy == "write codex-acp-execute or codex-acp-plan"


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ("mine", "peers add mine --roles ROLE"),
        ("mine-review", "peers add mine --roles review"),
        ("", "peers add NAME --roles ROLE"),
    ],
)
def test_the_command_that_adds_a_peer_takes_no_role_from_a_value_without_one(
    value: str, command: str
) -> None:
    with pytest.raises(DelegationInvalid) as caught:
        parse_target(value, USUAL)
    assert command in caught.value.remedy


def test_the_opt_out_in_capitals_is_guessed() -> None:
    with pytest.raises(DelegationInvalid, match="did you mean none"):
        parse_target("None", USUAL)


def test_a_role_that_is_not_claimed_lists_what_is_and_suggests_the_nearest() -> None:
    with pytest.raises(DelegationInvalid) as caught:
        parse_target("gemini-reserch", USUAL)
    assert "it claims research, exploration; did you mean gemini-research?" in str(caught.value)


def test_a_role_that_another_peer_claims_names_that_peer() -> None:
    with pytest.raises(DelegationInvalid) as caught:
        parse_target("gemini-plan", USUAL)
    assert "plan is claimed by codex-acp-plan" in caught.value.remedy


def test_a_peer_without_a_role_lists_what_could_be_written() -> None:
    with pytest.raises(DelegationInvalid) as caught:
        parse_target("gemini", USUAL)
    assert caught.value.remedy == "write gemini-research or gemini-exploration"
    for value in ("codex-", "-execute", "", "-"):
        with pytest.raises(DelegationInvalid):
            parse_target(value, USUAL)


# -- which files


def test_files_are_found_by_pattern_by_path_and_by_name(tmp_path: Path) -> None:
    a, b = agents(tmp_path, a="", b="")
    (tmp_path / "agents" / "folder.md").mkdir()
    other = tmp_path / "other.md"
    other.touch()

    def found(*named: str) -> list[Path]:
        return find_files(named, folder=tmp_path, patterns=PATTERNS)

    assert found() == [a, b]
    assert found("a") == [a]
    assert found("b.md", "agents/b.md", str(b)) == [b]
    assert found("other.md") == [other]
    assert found("**/*.md") == [a, b, other]


def test_a_name_that_finds_nothing_is_an_error_that_says_where_it_looked(tmp_path: Path) -> None:
    agents(tmp_path, a="")
    for name in ("c", "agents/c.md", "x/*.md"):
        with pytest.raises(UsageError, match=r"no agent file .*agents/\*\.md"):
            find_files([name], folder=tmp_path, patterns=PATTERNS)


def test_paths_count_from_where_the_user_stands_and_names_from_the_project(tmp_path: Path) -> None:
    (a,) = agents(tmp_path, a="")
    below = tmp_path / "below"
    below.mkdir()
    (b,) = agents(below, b="")
    found = find_files(["a", "agents/b.md"], folder=tmp_path, patterns=PATTERNS, cwd=below)
    assert found == [a, b]
    with pytest.raises(UsageError):
        find_files(["agents/a.md"], folder=tmp_path, patterns=PATTERNS, cwd=below)


def test_a_link_of_a_checkout_does_not_lead_an_edit_outside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (a,) = agents(project, a="")
    outside = tmp_path / "secret.md"
    outside.write_bytes(b"mine")
    (project / "agents" / "b.md").symlink_to(outside)
    assert find_files([], folder=project, patterns=PATTERNS) == [a]
    # Whoever names the link means it.
    named = find_files(["agents/b.md"], folder=project, patterns=PATTERNS)
    assert named == [project / "agents" / "b.md"]


def test_a_pattern_visits_each_directory_once_although_links_lead_in_circles(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    (project / "agents" / "below" / ".hidden").mkdir(parents=True)
    for name in ("agents/a.md", "agents/below/b.md", "agents/below/.hidden/c.md", "d.md"):
        (project / name).touch()
    for number in range(8):
        (project / f"round{number}").symlink_to(".")
        (project / "agents" / f"back{number}").symlink_to("..")
    (project / "outside").symlink_to(tmp_path)
    for pattern, found in (
        ("**/*.md", ["agents/a.md", "agents/below/b.md", "d.md"]),
        ("**/**/**", ["agents/a.md", "agents/below/b.md", "d.md"]),
        ("/".join(["*"] * 30) + "/*.md", ["agents/a.md", "agents/below/b.md", "d.md"]),
        ("agents/below/**", ["agents/below/b.md"]),
        ("agents/*/.hid*/*.md", ["agents/below/.hidden/c.md"]),
        ("./agents//below/b.md", ["agents/below/b.md"]),
        ("agents/../d.md", ["d.md"]),
        ("outside/*/d.md", []),
        ("nowhere/*", []),
        ("x" * 5000 + "/*", []),
        ("*/" + "x" * 300, []),
        ("a\0b", []),
    ):
        files = find_files([], folder=project, patterns=[pattern])
        assert sorted(os.path.realpath(each) for each in files) == [
            str(project / name) for name in found
        ], pattern


def test_two_names_of_one_file_are_one_file(tmp_path: Path) -> None:
    (a,) = agents(tmp_path, a="")
    (tmp_path / "agents" / "b.md").symlink_to("a.md")
    assert find_files([], folder=tmp_path, patterns=PATTERNS) == [a]


# -- reading


def test_every_file_is_listed_with_what_it_names(tmp_path: Path) -> None:
    paths = agents(tmp_path, a="codex-execute", b="none", c="", d="nobody-plan")
    a, b, c, d = list_files(paths, USUAL)
    assert (a.name, a.value, a.target, a.problem) == (
        "a",
        "codex-execute",
        DelegationTarget("codex", "execute"),
        None,
    )
    assert (b.value, b.target, b.problem) == ("none", None, None)
    assert (c.value, c.problem) == (None, None)
    assert d.problem is not None and d.problem.line == 3
    assert "peers add" in d.problem.remedy


def test_what_is_wrong_is_reported_with_file_and_line(tmp_path: Path) -> None:
    good, bad = agents(tmp_path, good="codex-execute", bad="codex-write")
    empty = tmp_path / "agents" / "empty.md"
    empty.write_bytes(b"---\ndelegate_to:\n---\n")
    broken = tmp_path / "agents" / "broken.md"
    broken.write_bytes(b"---\na: b: c\n---\n")
    gone = tmp_path / "agents" / "gone.md"
    told = [str(problem) for problem in validate([good, bad, empty, broken, gone], USUAL)]
    assert told[0].startswith(f"{bad}:3: cannot delegate to 'codex-write': codex does not")
    assert told[1] == f"{empty}:2: delegate_to is empty"
    assert told[2].startswith(f"{broken}: line 2: the front matter is not valid YAML")
    assert told[3] == f"{gone}: there is no such file"


# -- changing


def test_a_value_is_set_in_every_file_and_taken_out_again(tmp_path: Path) -> None:
    paths = agents(tmp_path, a="", b="none")
    before = [path.read_bytes() for path in paths]
    edit = set_target(paths, "codex-execute", USUAL)
    assert [change.path for change in edit.changes] == paths
    assert [file.value for file in list_files(paths, USUAL)] == ["codex-execute"] * 2
    edit = unset_target(paths, USUAL)
    assert paths[0].read_bytes() == before[0]
    assert paths[1].read_bytes() == before[1].replace(b"delegate_to: none\n", b"")
    assert unset_target(paths, USUAL).changes == ()


def test_a_wrong_value_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    (a,) = agents(tmp_path, a="none")
    stamp = a.stat().st_mtime_ns
    with pytest.raises(DelegationInvalid):
        set_target([a], "nobody-execute", USUAL)
    assert a.stat().st_mtime_ns == stamp


def test_one_file_that_cannot_be_edited_stops_the_edit_of_all(tmp_path: Path) -> None:
    a, b = agents(tmp_path, a="", b="")
    b.write_bytes(b"---\nname: \xff\n---\n")
    before = a.read_bytes()
    with pytest.raises(FrontMatterInvalid, match=r"b\.md: the file is not UTF-8.*no file was"):
        set_target([a, b], "codex-execute", USUAL)
    assert a.read_bytes() == before


def test_a_preview_writes_nothing(tmp_path: Path) -> None:
    a, b = agents(tmp_path, a="", b="codex-execute")
    before = a.read_bytes()
    (change,) = preview([a, b], "codex-execute")
    assert (change.path, change.before) == (a, before)
    assert a.read_bytes() == before
    assert [change.path for change in preview([a, b], None)] == [b]


def test_a_file_that_breaks_by_the_edit_takes_every_file_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = agents(tmp_path, a="", b="")
    before = a.read_bytes()
    looks = iter([[], [Problem(b, 3, "broken")]])
    monkeypatch.setattr(agent_files, "validate", lambda paths, catalogue: next(looks))
    with pytest.raises(UsageError, match="undone.*broken"):
        set_target([a], "codex-execute", USUAL, others=[b])
    assert a.read_bytes() == before


def test_trouble_that_was_there_before_stops_no_edit_and_is_reported(tmp_path: Path) -> None:
    a, b = agents(tmp_path, a="", b="nobody-plan")
    edit = set_target([a], "codex-execute", USUAL, others=[a, b])
    assert [problem.path for problem in edit.problems] == [b]
    assert set_target([b], "codex-execute", USUAL, others=[a, b]).problems == ()


def test_only_new_trouble_counts() -> None:
    old, new = Problem(Path("a"), 1, "old"), Problem(Path("a"), 2, "new")
    refuse_new_problems([old], [Problem(Path("a"), 5, "old")])
    with pytest.raises(UsageError, match="new"):
        refuse_new_problems([old], [old, new])


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="there is no such file"):
        set_target([tmp_path / "x.md"], "none", USUAL)
