"""The API of the peers screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dragoman.config.edit import set_value
from dragoman.paths import VARIABLES, Paths
from dragoman.store.ledger import Ledger, ledger_path
from tests.aio import aio
from tests.unit.console.place import console, short_paths, told


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


@aio
async def test_peers_can_be_enabled_disabled_and_unparked(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:

        async def peer(name: str) -> dict[str, object]:
            found = (await client.get("/api/v1/peers/status")).json()["peers"]
            (one,) = [each for each in found if each["name"] == name]
            return dict(one)

        before = await peer("codex")
        assert not before["enabled"] and before["claims"] and before["card"] is None
        done = await client.post("/api/v1/peers/codex/enable", json={})
        assert done.json() == {"notes": []}
        assert (await peer("codex"))["enabled"] and "codex" in paths.config_file.read_text()
        again = await client.post("/api/v1/peers/codex/enable", json={})
        assert again.json()["notes"] == ["codex was already enabled."]
        with Ledger.open(ledger_path(paths.state)) as ledger:
            ledger.park("codex", 9e9, "its quota is used up")
        assert (await peer("codex"))["parked"] == {"until": 9e9, "why": "its quota is used up"}
        freed = await client.post("/api/v1/peers/codex/unpark", json={})
        assert freed.json() == {"unparked": True}
        assert (await peer("codex"))["parked"] is None
        assert (await client.post("/api/v1/peers/codex/disable", json={})).status_code == 200
        assert not (await peer("codex"))["enabled"]
        assert (await peer("scout"))["always"]
        for word in ("enable", "disable", "unpark", "verify"):
            answer = await client.post(f"/api/v1/peers/missing/{word}", json={})
            assert answer.status_code == 400 and "missing" in answer.json()["message"], word
        refused = await client.post("/api/v1/peers/scout/disable", json={})
        assert refused.status_code == 400


@aio
async def test_a_verification_is_sent_to_all_browsers_and_is_in_the_snapshot(paths: Paths) -> None:
    async with console(paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            assert (await told(socket, "snapshot"))["verifications"] == []
            started = await client.post("/api/v1/peers/scout/verify", json={"turns": False})
            assert started.json() == {"started": True}
            shown = (await told(socket, "verification"))["verification"]
            assert (shown["peer"], shown["state"]) == ("scout", "running")
            stopped = await client.post("/api/v1/peers/scout/verify/stop", json={})
            assert stopped.json() == {"stopped": True}
            while shown["state"] == "running":
                shown = (await told(socket, "verification"))["verification"]
        async with place.socket(client) as socket:
            (known,) = (await told(socket, "snapshot"))["verifications"]
            assert known["problem"] == "stopped"


@aio
async def test_invalid_settings_are_listed_next_to_the_peers(paths: Paths) -> None:
    set_value(paths, "enabled_peers", ["codex"])
    (paths.config / "peers").mkdir()
    (paths.config / "peers" / "odd.toml").write_text("name = 3\n")
    async with console(paths) as place, place.browser("read") as client:
        told_all = (await client.get("/api/v1/peers/status")).json()
        assert any("odd.toml" in problem for problem in told_all["problems"])
        answer = await client.post("/api/v1/peers/codex/disable", json={})
        assert answer.status_code == 403
