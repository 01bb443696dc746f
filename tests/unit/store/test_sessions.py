"""Sessions are kept, found by name from their root, and deleted with all they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import StoreConflict, UnknownSession
from dragoman.store import sessions
from tests.unit.store.stores import SECRET, chunk, job, open_store, session


def test_a_session_comes_back_as_it_was_stored(tmp_path: Path) -> None:
    one = session(name="mine", title="About it", mode="plan", model="big", closed_at=3.5)
    with open_store(tmp_path) as store:
        store.create_session(one)
        assert store.session(one.key) == one
        assert store.session("s-other") is None


def test_a_name_is_found_in_its_own_root_and_peer_only(tmp_path: Path) -> None:
    one = session(name="mine")
    with open_store(tmp_path) as store:
        store.create_session(one)
        assert store.find_session("codex", one.root, "mine") == one
        assert store.find_session("gemini", one.root, "mine") is None
        assert store.find_session("codex", "/elsewhere", "mine") is None
        assert store.find_session("codex", one.root, "other") is None


def test_a_name_is_taken_until_its_session_is_closed(tmp_path: Path) -> None:
    one, two = session(name="mine"), session(name="mine")
    with open_store(tmp_path) as store:
        store.create_session(one)
        with pytest.raises(StoreConflict, match="already has the name 'mine'"):
            store.create_session(two)
        store.update_session(one.key, closed_at=5.0)
        assert store.find_session("codex", one.root, "mine") is None
        store.create_session(two)
        assert store.find_session("codex", one.root, "mine") == two
        # Nor can the first be opened again while the second has its name.
        with pytest.raises(StoreConflict):
            store.update_session(one.key, closed_at=None)


def test_a_key_is_given_once(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        with pytest.raises(StoreConflict, match="already"):
            store.create_session(one)


def test_sessions_without_a_name_do_not_collide(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_session(session())
        store.create_session(session())
        assert len(store.sessions()) == 2


def test_the_peers_own_id_finds_the_open_session_first(tmp_path: Path) -> None:
    closed = session(closed_at=9.0, updated_at=900.0)
    older, newer = session(updated_at=1.0), session(updated_at=2.0)
    with open_store(tmp_path) as store:
        for one in (closed, newer, older):
            store.create_session(one)
        assert store.find_by_peer_id("codex", "theirs") == newer
        assert store.find_by_peer_id("gemini", "theirs") is None


def test_a_list_has_the_last_used_first_and_what_was_asked_for(tmp_path: Path) -> None:
    a = session(updated_at=1.0)
    b = session(updated_at=3.0, peer="gemini", closed_at=3.0)
    c = session(updated_at=2.0, root="/other")
    with open_store(tmp_path) as store:
        for one in (a, b, c):
            store.create_session(one)
        assert store.sessions() == [b, c, a]
        assert store.sessions("codex") == [c, a]
        assert store.sessions(root="/other") == [c]
        assert store.sessions(include_closed=False) == [c, a]
        assert store.sessions(limit=1) == [b]


def test_only_what_may_change_is_changed(tmp_path: Path) -> None:
    one = session()
    with open_store(tmp_path) as store:
        store.create_session(one)
        store.update_session(one.key, mode="plan", title=f"with {SECRET}")
        store.update_session(one.key)
        found = store.session(one.key)
        assert found is not None and found.mode == "plan"
        assert found.title == "with [redacted]"
        for wrong in ("key", "next_event", "nonesuch"):
            with pytest.raises(TypeError, match=wrong):
                store.update_session(one.key, **{wrong: 1})
        with pytest.raises(UnknownSession, match="s-gone"):
            store.update_session("s-gone", mode="plan")


def test_what_is_deleted_is_gone_with_its_events_notes_and_jobs(tmp_path: Path) -> None:
    one, other = session(), session()
    with open_store(tmp_path) as store:
        for record in (one, other):
            store.create_session(record)
            store.create_job(job(record.key))
            store.append(record.key, 0, [chunk("unmistakable words")])
            store.note(record.key, 0, "permission", {"by": "policy"})
        store.delete_session(one.key)
        assert store.session(one.key) is None
        assert [found.session_key for found in store.jobs()] == [other.key]
        assert store.notes(one.key) == []
        with pytest.raises(UnknownSession):
            list(store.lines(one.key))
        with pytest.raises(UnknownSession):
            store.delete_session(one.key)
        store.delete_session(other.key)
        for file in store.path.parent.iterdir():
            assert b"unmistakable" not in file.read_bytes(), file.name


def test_only_columns_with_a_value_are_compared() -> None:
    assert sessions.equal(peer="codex", root=None) == ("TRUE AND peer = ?", ["codex"])
    assert sessions.equal(peer=None) == ("TRUE", [])
