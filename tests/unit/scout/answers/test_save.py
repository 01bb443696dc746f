from __future__ import annotations

from pathlib import Path

from dragoman.client.permissions import approve_all
from tests.aio import aio
from tests.unit.scout.asking import answer


@aio
async def test_an_existing_file_is_shown_and_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.md").write_text("old\n")
    reply = await answer(
        folder, tmp_path / "state", "what is in this folder?", "/save notes.md", permit=approve_all
    )
    assert reply.stop == "end_turn"
    assert reply.text.startswith("`notes.md` was replaced:")
    assert "- `notes.md`" in (folder / "notes.md").read_text()
    (updates,) = reply.tools.values()
    (diff,) = updates[0].content
    assert (diff.old_text, diff.path) == ("old\n", str(folder / "notes.md"))
    assert [update.status for update in updates if update.status][-1] == "completed"


@aio
async def test_nothing_is_said_after_a_refusal(tmp_path: Path) -> None:
    reply = await answer(tmp_path, tmp_path / ".state", "what is in this folder?", "/save x.md")
    assert reply.text == ""
    assert not (tmp_path / "x.md").exists()
    (updates,) = reply.tools.values()
    assert updates[-1].status == "failed"


@aio
async def test_there_has_to_be_something_to_save(tmp_path: Path) -> None:
    reply = await answer(tmp_path, tmp_path / ".state", "/save x.md", permit=approve_all)
    assert reply.stop == "refusal"
    assert reply.tools == {}


@aio
async def test_what_could_not_be_answered_is_not_saved(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    await answer(
        folder, tmp_path / "state", "what is in this folder?", "why?", "/save x.md",
        permit=approve_all,
    )  # fmt: skip
    assert (folder / "x.md").read_text() == "There are no files here.\n"


@aio
async def test_outside_and_folders_are_refused_without_a_question(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for path in ("../x.md", "sub", str(tmp_path / "x.md")):
        reply = await answer(
            folder, tmp_path / "state", "what is in this folder?", f"/save {path}",
            permit=approve_all,
        )  # fmt: skip
        assert (reply.stop, reply.tools) == ("refusal", {})
    assert not (tmp_path / "x.md").exists()
