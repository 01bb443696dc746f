"""What is trusted: these bytes at this real place, and nothing else."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from dragoman.config.trust import Trust
from dragoman.errors import ConfigInvalid
from tests.unit.config.folders import paths_in

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes and links of POSIX")


def test_trust_is_for_the_bytes_and_a_change_withdraws_it(tmp_path: Path) -> None:
    trust, file = Trust(paths_in(tmp_path)), tmp_path / "dragoman.toml"
    assert not trust.trusts(file, b"one")
    trust.trust(file, b"one")
    assert trust.trusts(file, b"one")
    assert not trust.trusts(file, b"two")
    assert not trust.trusts(tmp_path / "other.toml", b"one")
    assert trust.withdraw(file)
    assert not trust.withdraw(file)
    assert not trust.trusts(file, b"one")


@posix
def test_the_record_is_for_its_owner_alone(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    Trust(paths).trust(tmp_path / "dragoman.toml", b"one")
    assert stat.S_IMODE(paths.trust_file.stat().st_mode) == 0o600


@posix
def test_a_link_is_as_good_as_what_it_leads_to_and_no_better(tmp_path: Path) -> None:
    trust = Trust(paths_in(tmp_path))
    good, bad, link = tmp_path / "good.toml", tmp_path / "bad.toml", tmp_path / "link.toml"
    good.write_bytes(b"good")
    bad.write_bytes(b"bad")
    link.symlink_to(good)
    trust.trust(link, b"good")
    assert trust.trusts(good, b"good")
    link.unlink()
    link.symlink_to(bad)
    assert not trust.trusts(link, b"bad")
    # Even the same bytes at another place are another project's.
    bad.write_bytes(b"good")
    assert not trust.trusts(link, b"good")


def test_an_adapter_is_trusted_with_its_project_by_its_own_bytes(tmp_path: Path) -> None:
    trust, file = Trust(paths_in(tmp_path)), tmp_path / "dragoman.toml"
    adapter = tmp_path / "adapter.py"
    trust.trust(file, b"one", {adapter: b"code"})
    assert trust.trusts_adapter(file, adapter, b"code")
    assert not trust.trusts_adapter(file, adapter, b"evil")
    assert not trust.trusts_adapter(file, tmp_path / "other.py", b"code")
    trust.trust(file, b"one")
    assert not trust.trusts_adapter(file, adapter, b"code")


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"files": {"x": 3}}', b'{"format": 9}', b"\xff"])
def test_a_damaged_record_trusts_nothing_and_is_reported_on_request(
    tmp_path: Path, damage: bytes
) -> None:
    paths = paths_in(tmp_path)
    trust, file = Trust(paths), tmp_path / "dragoman.toml"
    trust.trust(file, b"one")
    paths.trust_file.write_bytes(damage)
    assert not trust.trusts(file, b"one")
    with pytest.raises(ConfigInvalid):
        trust.record()
    with pytest.raises(ConfigInvalid):
        trust.trust(file, b"one")
    assert paths.trust_file.read_bytes() == damage
