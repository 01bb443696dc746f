"""Which wheels fit which machine, and where they come from."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.setup import host_wheels
from dragoman.setup.host_wheels import Target, collect, own_wheel
from dragoman.setup.remote_scripts.probe import machine, python
from dragoman.transports.process.query import ProgramOutput
from dragoman.version import __version__
from tests.aio import aio

GLIBC = Target((3, 12), "linux", "x86_64", "glibc", (2, 31))
MUSL = Target((3, 12), "linux", "aarch64", "musl", (1, 2))
MAC = Target((3, 13), "darwin", "arm64", "", (14, 2))
THREADS = Target((3, 14), "linux", "x86_64", "glibc", (2, 39), free_threaded=True)


def make_wheel(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", "a = 1\n")
    return path


def here() -> Target:
    return Target.from_report({"python": python(), "platform": machine()})


@pytest.mark.parametrize(
    ("target", "name", "fits"),
    [
        (GLIBC, "a-1-py3-none-any.whl", True),
        (GLIBC, "a-1-py2.py3-none-any.whl", True),
        (GLIBC, "a-1-py313-none-any.whl", False),
        (GLIBC, "a-1-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        (GLIBC, "a-1-cp312-cp312-manylinux2014_x86_64.whl", True),
        (GLIBC, "a-1-cp312-cp312-manylinux_2_34_x86_64.whl", False),
        (GLIBC, "a-1-cp312-cp312-manylinux_2_17_aarch64.whl", False),
        (GLIBC, "a-1-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        (GLIBC, "a-1-cp311-cp311-manylinux_2_17_x86_64.whl", False),
        (GLIBC, "a-1-cp39-abi3-manylinux_2_17_x86_64.whl", True),
        (GLIBC, "a-1-cp313-abi3-manylinux_2_17_x86_64.whl", False),
        (GLIBC, "a-1-cp312-cp312-macosx_11_0_arm64.whl", False),
        (GLIBC, "a-1-cp312-cp312-win_amd64.whl", False),
        (GLIBC, "a-1-cp312-cp312-linux_x86_64.whl", False),
        (GLIBC, "a-1.tar.gz", False),
        (MUSL, "a-1-cp312-cp312-musllinux_1_2_aarch64.whl", True),
        (MUSL, "a-1-cp312-cp312-musllinux_1_3_aarch64.whl", False),
        (MUSL, "a-1-cp312-cp312-manylinux_2_17_aarch64.whl", False),
        (MAC, "a-1-cp313-cp313-macosx_11_0_arm64.whl", True),
        (MAC, "a-1-cp313-cp313-macosx_10_13_universal2.whl", True),
        (MAC, "a-1-cp313-cp313-macosx_15_0_arm64.whl", False),
        (MAC, "a-1-cp313-cp313-macosx_11_0_x86_64.whl", False),
        (THREADS, "a-1-cp314-cp314t-manylinux_2_28_x86_64.whl", True),
        (THREADS, "a-1-cp314-cp314-manylinux_2_28_x86_64.whl", False),
        (THREADS, "a-1-cp39-abi3-manylinux_2_28_x86_64.whl", False),
    ],
)
def test_a_wheel_is_matched_by_its_tags(target: Target, name: str, fits: bool) -> None:
    assert bool(target.rank(name)) is fits


def test_pip_gets_every_platform_tag_that_fits() -> None:
    assert "manylinux_2_28_x86_64" in GLIBC.platforms()
    assert "manylinux_2_34_x86_64" not in GLIBC.platforms()
    assert "manylinux2014_x86_64" in GLIBC.platforms()
    assert MUSL.platforms() == ["musllinux_1_1_aarch64", "musllinux_1_2_aarch64"]
    assert "macosx_11_0_arm64" in MAC.platforms() and "macosx_15_0_arm64" not in MAC.platforms()
    assert str(MUSL) == "Python 3.12, linux aarch64, musl 1.2"


def test_the_wheel_of_dragoman_has_every_module_and_is_reproducible(tmp_path: Path) -> None:
    first = own_wheel(tmp_path).read_bytes()
    path = own_wheel(tmp_path)
    assert path.read_bytes() == first
    assert path.name == f"dragoman-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        info = f"dragoman-{__version__}.dist-info"
        assert {"dragoman/__main__.py", "dragoman/catalogue/peers/codex.toml"} <= names
        assert f"Version: {__version__}" in archive.read(f"{info}/METADATA").decode()
        recorded = archive.read(f"{info}/RECORD").decode().splitlines()
    assert len(recorded) == len(names) and not any("__pycache__" in name for name in names)


@aio
async def test_for_a_machine_like_this_one_nothing_is_downloaded(tmp_path: Path) -> None:
    chosen = await collect(here(), wheels=None, scratch=tmp_path)
    names = {path.name.partition("-")[0] for path in chosen}
    assert {"dragoman", "msgspec", "typer", "websockets", "tree_sitter_bash"} <= names
    with zipfile.ZipFile(next(p for p in chosen if p.name.startswith("msgspec-"))) as archive:
        assert any(name.endswith(".so") for name in archive.namelist())


@aio
async def test_a_wheels_directory_is_preferred_and_in_it_the_installed_version(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    version = metadata.version("tomlkit")
    for number in (version, "99.0"):
        make_wheel(folder / f"tomlkit-{number}-py3-none-any.whl")
    make_wheel(folder / "wcwidth-9.1-py3-none-any.whl")
    make_wheel(folder / "wcwidth-10.0-py3-none-any.whl")
    chosen = await collect(here(), wheels=folder, scratch=tmp_path)
    assert folder / f"tomlkit-{version}-py3-none-any.whl" in chosen
    assert folder / "wcwidth-10.0-py3-none-any.whl" in chosen


@aio
async def test_missing_wheels_are_named_with_the_download_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no wheel of msgspec") as caught:
        await collect(MUSL, wheels=tmp_path, scratch=tmp_path)
    assert "--platform=musllinux_1_2_aarch64" in caught.value.remedy
    assert f"msgspec=={metadata.version('msgspec')}" in caught.value.remedy
    # Needed only on other systems, so it is not requested.
    assert "colorama" not in caught.value.remedy


@aio
async def test_the_download_command_has_every_platform_tag_that_fits(tmp_path: Path) -> None:
    for target in (GLIBC, MUSL, MAC):
        with pytest.raises(UsageError) as caught:
            await collect(target, wheels=tmp_path, scratch=tmp_path)
        words = caught.value.remedy.split()
        assert [f"--platform={tag}" for tag in target.platforms()] == [
            word for word in words if word.startswith("--platform")
        ]


@aio
async def test_wheels_for_another_machine_are_named(tmp_path: Path) -> None:
    make_wheel(tmp_path / "msgspec-0.20.0-cp310-cp310-musllinux_1_2_aarch64.whl")
    with pytest.raises(UsageError, match="made for another Python or platform: msgspec-0.20.0"):
        await collect(MUSL, wheels=tmp_path, scratch=tmp_path)


@pytest.mark.parametrize("damage", ["empty", "cut", "changed"])
@aio
async def test_a_damaged_wheel_is_named_with_the_download_command(
    tmp_path: Path, damage: str
) -> None:
    wheel = make_wheel(tmp_path / "msgspec-0.20.0-cp312-cp312-musllinux_1_2_aarch64.whl")
    data = wheel.read_bytes()
    changed = data.replace(b"a = 1", b"a = 2")
    wheel.write_bytes({"empty": b"", "cut": data[:-20], "changed": changed}[damage])
    with pytest.raises(UsageError, match="the wheel is damaged") as caught:
        await collect(MUSL, wheels=tmp_path, scratch=tmp_path)
    assert str(wheel) in str(caught.value)
    assert "pip download" in caught.value.remedy and "msgspec==" in caught.value.remedy


@aio
async def test_pip_downloads_the_wheels_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    async def pip(argv: list[str], **_: object) -> ProgramOutput:
        calls.append(argv)
        for word in argv:
            name, pinned, version = word.partition("==")
            if pinned:
                file = f"{name.replace('-', '_')}-{version}-cp312-cp312-musllinux_1_2_aarch64.whl"
                make_wheel(tmp_path / "downloaded" / file)
        return ProgramOutput(0, b"", "")

    monkeypatch.setattr(host_wheels, "run_program", pip)
    chosen = await collect(MUSL, wheels=None, scratch=tmp_path)
    (argv,) = calls
    assert argv[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--abi=cp312", "--python-version=3.12", "--only-binary=:all:"} <= set(argv)
    assert any(path.name.startswith("msgspec-") for path in chosen)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ProgramOutput(1, b"", "/usr/bin/python3: No module named pip"), "pip is not installed"),
        (ProgramOutput(1, b"", "ERROR: No matching distribution found for msgspec"), "No matching"),
        (ProgramOutput(None, b"", "", cut=True), "did not finish within"),
        (
            ProgramOutput(
                1,
                b"",
                "WARNING: Retrying after connection broken by 'NameResolutionError'\n"
                "ERROR: No matching distribution found for msgspec",
            ),
            "pip cannot reach the package index",
        ),
    ],
)
@aio
async def test_a_failed_download_has_a_reason_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: ProgramOutput, words: str
) -> None:
    async def pip(*_: object, **__: object) -> ProgramOutput:
        return answer

    monkeypatch.setattr(host_wheels, "run_program", pip)
    with pytest.raises(UsageError, match=words) as caught:
        await collect(MUSL, wheels=None, scratch=tmp_path)
    assert "--wheels DIR" in caught.value.remedy


@aio
async def test_a_version_without_a_matching_wheel_is_replaced_by_an_allowed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    async def pip(argv: list[str], **_: object) -> ProgramOutput:
        calls.append(argv)
        if len(calls) == 1:
            return ProgramOutput(1, b"", "ERROR: No matching distribution found for msgspec")
        for word in argv:
            if not word.startswith("-") and ">=" in word or "==" in word:
                name = word.partition(">")[0].partition("=")[0].replace("-", "_")
                file = f"{name}-99.0-cp312-cp312-musllinux_1_2_aarch64.whl"
                make_wheel(tmp_path / "downloaded" / file)
        return ProgramOutput(0, b"", "")

    monkeypatch.setattr(host_wheels, "run_program", pip)
    chosen = await collect(MUSL, wheels=None, scratch=tmp_path)
    assert "msgspec>=0.19" in calls[1]
    assert any(path.name.startswith("msgspec-99.0-") for path in chosen)
