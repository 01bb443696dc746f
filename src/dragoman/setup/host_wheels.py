"""Collect the wheels that another machine needs: this version of dragoman and its dependencies.

A wheel comes from the user's directory, is rebuilt from an installed package (its RECORD lists the
files), or is downloaded by pip for the other machine's Python, C library and architecture.
`setup.hosts` sends the wheels.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Final

import dragoman
from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.errors import UsageError
from dragoman.transports.process.query import ProgramOutput, run_program
from dragoman.version import __version__

DOWNLOAD_TIMEOUT: Final = 600.0
"""Seconds for pip to download a dozen wheels over a slow connection."""

UNREACHABLE: Final = "after connection broken by"
"""Part of pip's warning when it cannot reach an index. Its final error message says only that no
package was found."""

REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
WHEEL_NAME: Final = re.compile(
    r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)"
    r"-(?P<platform>[^-]+)\.whl"
)
LINUX_TAG: Final = re.compile(r"(many|musl)linux_(\d+)_(\d+)_(.+)")
MAC_TAG: Final = re.compile(r"macosx_(\d+)_(\d+)_(.+)")
OLD_MANYLINUX: Final = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
GLIBC_STEPS: Final = ((2, 5), (2, 12), (2, 17), (2, 24), (2, 26), (2, 27), (2, 28), (2, 31),
                      (2, 34), (2, 35), (2, 38), (2, 39))  # fmt: skip
"""glibc versions that wheels are built for. pip needs a platform tag for each."""


@dataclass(frozen=True, slots=True)
class Target:
    """The properties of another machine's Python that a wheel has to match."""

    python: tuple[int, int]
    system: str
    machine: str
    libc: str = ""
    libc_version: tuple[int, int] = (0, 0)
    """The version of the C library; on macOS, the version of the system."""
    free_threaded: bool = False

    @classmethod
    def from_report(cls, report: Mapping[str, Any]) -> Target:
        """Create the target from a report of the script `probe`."""
        python, place = report["python"], report["platform"]
        numbers = re.findall(r"\d+", str(place.get("libc_version", "")))
        major, minor = (int(each) for each in [*numbers, "0", "0"][:2])
        return cls(
            python=(python["version"][0], python["version"][1]),
            system=place["system"],
            machine=place["machine"],
            libc=place.get("libc", ""),
            libc_version=(major, minor),
            free_threaded=bool(python.get("free_threaded")),
        )

    def __str__(self) -> str:
        kind = " (free-threaded)" if self.free_threaded else ""
        libc = f", {self.libc} {'.'.join(map(str, self.libc_version))}" if self.libc else ""
        return f"Python {self.python[0]}.{self.python[1]}{kind}, {self.system} {self.machine}{libc}"

    @property
    def abi(self) -> str:
        return f"cp{self.python[0]}{self.python[1]}{'t' if self.free_threaded else ''}"

    def platforms(self) -> list[str]:
        """Return the platform tags of the wheels that run on the target, for pip."""
        if self.system == "darwin":
            arches = (self.machine, "universal2")
            versions = [(major, 0) for major in range(11, self.libc_version[0] + 1)]
            if self.machine == "x86_64":
                versions += [(10, minor) for minor in range(9, 17)]
            return [f"macosx_{a}_{b}_{arch}" for a, b in versions for arch in arches]
        if self.libc == "musl":
            return [f"musllinux_1_{minor}_{self.machine}" for minor in
                    range(1, self.libc_version[1] + 1)]  # fmt: skip
        fitting = [step for step in GLIBC_STEPS if step <= self.libc_version]
        tags = [f"manylinux_{a}_{b}_{self.machine}" for a, b in fitting]
        return tags + [f"{old}_{self.machine}" for old, step in OLD_MANYLINUX.items()
                       if step in fitting]  # fmt: skip

    def rank(self, file_name: str) -> int:
        """Return how well the wheel of this file name fits: 3 if it was built for exactly this
        Python, 2 for its stable ABI, 1 if it needs no ABI, and 0 if it does not fit."""
        found = WHEEL_NAME.fullmatch(file_name)
        if found is None:
            return 0
        return max(
            (
                self._rank(python, abi)
                for python in found["python"].split(".")
                for abi in found["abi"].split(".")
            ),
            default=0,
        ) * any(self._runs_on(tag) for tag in found["platform"].split("."))

    def _rank(self, python: str, abi: str) -> int:
        matched = re.fullmatch(r"(py|cp)(\d)(\d*)", python)
        if matched is None or int(matched[2]) != self.python[0]:
            return 0
        minor = int(matched[3]) if matched[3] else 0
        if matched[1] == "cp" and abi == self.abi:
            return 3 if minor == self.python[1] else 0
        if matched[1] == "cp" and abi == "abi3" and not self.free_threaded:
            return 2 if minor <= self.python[1] else 0
        if abi == "none" and minor <= self.python[1]:
            return 1 if matched[1] == "py" or minor == self.python[1] else 0
        return 0

    def _runs_on(self, tag: str) -> bool:
        if tag == "any":
            return True
        if self.system == "darwin":
            mac = MAC_TAG.fullmatch(tag)
            return (
                mac is not None
                and mac[3] in (self.machine, "universal2")
                and (int(mac[1]), int(mac[2])) <= self.libc_version
            )
        if self.system != "linux":
            return False
        for old, step in OLD_MANYLINUX.items():
            if tag == f"{old}_{self.machine}":
                return self.libc == "glibc" and step <= self.libc_version
        linux = LINUX_TAG.fullmatch(tag)
        if linux is None:
            return False
        libc = "musl" if linux[1] == "musl" else "glibc"
        needs = (int(linux[2]), int(linux[3]))
        return linux[4] == self.machine and libc == self.libc and needs <= self.libc_version


async def collect(target: Target, *, wheels: Path | None, scratch: Path) -> list[Path]:
    """Return the wheels for a machine, dragoman's own first. New files are created in `scratch`.

    `wheels` is a directory of wheels that the user has downloaded; if it is given, nothing is
    downloaded. Raises `UsageError` if a wheel is missing or damaged.
    """
    chosen = [own_wheel(scratch)]
    missing: list[str] = []
    optional: set[str] = set()
    for name, is_optional in _needed():
        found = _from_folder(wheels, name, target) or _from_installed(name, target, scratch)
        if found is not None:
            chosen.append(found)
        elif is_optional:
            optional.add(name)
        else:
            missing.append(name)
    if not missing:
        return chosen
    if wheels is not None:
        unfit = [path.name for path in _wheels_of(wheels, missing)]
        others = f"; made for another Python or platform: {', '.join(unfit)}" if unfit else ""
        raise UsageError(
            f"{wheels} has no wheel of {', '.join(missing)} for {target}{others}",
            remedy="download what is missing on a machine with internet access: "
            + _by_hand(target, missing),
        )
    return chosen + await _download(target, missing, scratch)


def _needed() -> Iterator[tuple[str, bool]]:
    """Yield the distributions that dragoman needs, directly or not, and whether each is needed only
    on some systems.

    Conditions in the requirements are not evaluated: a conditional distribution that is not
    installed here is treated as optional. The script `install` tests the installation on the other
    machine before it is used.
    """
    ahead: list[tuple[str, bool]] = [("dragoman", False)]
    seen: dict[str, bool] = {}
    while ahead:
        name, conditional = ahead.pop(0)
        if name in seen and (conditional or not seen[name]):
            continue
        first = name not in seen
        seen[name] = conditional
        for line in _requires(name) if first or not conditional else ():
            words, _, condition = line.partition(";")
            matched = REQUIREMENT.match(words)
            if matched is None or "extra" in condition:
                continue
            ahead.append((normal(matched[1]), conditional or bool(condition.strip())))
    for name, conditional in seen.items():
        if name != "dragoman":
            yield name, conditional


def _requires(name: str) -> Sequence[str]:
    try:
        return metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        return ()


def normal(name: str) -> str:
    """Return a distribution's name, normalized for comparison."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _from_folder(folder: Path | None, name: str, target: Target) -> Path | None:
    """Return the best wheel of the distribution `name` in `folder` that fits the target, or None if
    there is none. The version installed here is best, then the newest one; of the same version, the
    wheel that fits best. Raises `UsageError` if the chosen wheel is damaged."""
    if folder is None:
        return None
    here = _installed_version(name)
    found = []
    for path in _wheels_of(folder, [name]):
        if rank := target.rank(path.name):
            version = path.name.split("-")[1]
            numbers = [int(each) for each in re.findall(r"\d+", version)]
            found.append((version == here, numbers, rank, path))
    if not found:
        return None
    best = max(found)[3]
    if problem := _damage(best):
        raise UsageError(
            f"{best}: {problem}",
            # pip does not replace a file that exists.
            remedy="remove it, and download it again on a machine with internet access: "
            + _by_hand(target, [name]),
        )
    return best


def _wheels_of(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the wheels of these packages in a directory, whether or not they fit a target."""
    matched = [(WHEEL_NAME.fullmatch(path.name), path) for path in sorted(folder.glob("*.whl"))]
    return [path for found, path in matched if found and normal(found["name"]) in names]


def _damage(wheel: Path) -> str:
    """Return what is wrong with a wheel, for example that its download is incomplete, or an empty
    string if it can be unpacked."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return f"the wheel is damaged: {error}"
    except OSError as error:
        return f"the wheel cannot be read: {error.strerror}"
    return f"the wheel is damaged: {bad} in it has a wrong checksum" if bad else ""


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _from_installed(name: str, target: Target, scratch: Path) -> Path | None:
    """Build a wheel from the files of an installed package. Returns None if the package is not
    installed, is installed as editable, does not fit the target, or has missing or changed
    files."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    described = distribution.read_text("WHEEL") or ""
    tags = re.findall(r"^Tag: (\S+)$", described, re.MULTILINE)
    if distribution.files is None or not tags:
        return None
    stem = f"{normal(name).replace('-', '_')}-{distribution.version}"
    fitting = [tag for tag in tags if target.rank(f"{stem}-{tag}.whl")]
    if not fitting:
        return None
    files: dict[str, bytes] = {}
    for each in distribution.files:
        path = PurePosixPath(str(each))
        if (
            ".." in path.parts
            or "__pycache__" in path.parts
            or path.name in ("RECORD", "INSTALLER")
        ):
            continue
        try:
            data = Path(str(each.locate())).read_bytes()
        except OSError:
            return None
        if each.hash is not None and each.hash.mode == "sha256" and each.hash.value != _hash(data):
            # The file was changed after the installation, so this is not the original package.
            return None
        files[str(path)] = data
    if any(name.endswith(".pth") for name in files):
        # An editable installation contains only the path of its files.
        return None
    return _write_wheel(scratch / f"{stem}-{fitting[0]}.whl", files)


def own_wheel(folder: Path) -> Path:
    """Build the wheel of this dragoman from its installed files, and return its path."""
    package = Path(dragoman.__file__).parent
    files = {
        f"dragoman/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = f"dragoman-{__version__}.dist-info"
    try:
        distribution = metadata.distribution("dragoman")
        described = distribution.read_text("METADATA") or ""
        entries = distribution.read_text("entry_points.txt") or ""
    except metadata.PackageNotFoundError:
        described = entries = ""
    if f"\nVersion: {__version__}\n" not in f"\n{described}":
        described = f"Metadata-Version: 2.1\nName: dragoman\nVersion: {__version__}\n"
    files[f"{info}/METADATA"] = described.encode()
    files[f"{info}/entry_points.txt"] = entries.encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: dragoman\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    return _write_wheel(folder / f"dragoman-{__version__}-py3-none-any.whl", files)


def _write_wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    info = next(name for name in files if name.endswith(".dist-info/METADATA"))
    record = f"{info.partition('/')[0]}/RECORD"
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            # With a fixed time, the same files give the same wheel.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
            writer.writerow((name, f"sha256={_hash(data)}", len(data)))
        writer.writerow((record, "", ""))
        archive.writestr(zipfile.ZipInfo(record), lines.getvalue())
    write_whole(path, packed.getvalue())
    return path


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _pip_options(target: Target) -> list[str]:
    version = f"{target.python[0]}.{target.python[1]}"
    options = ["--only-binary=:all:", "--no-deps", f"--python-version={version}"]
    options += ["--implementation=cp", f"--abi={target.abi}", "--abi=none"]
    options += [] if target.free_threaded else ["--abi=abi3"]
    return options + [f"--platform={tag}" for tag in target.platforms()]


def _pinned(names: Sequence[str]) -> list[str]:
    versions = {name: _installed_version(name) for name in names}
    return [f"{name}=={version}" if version else name for name, version in versions.items()]


def _by_hand(target: Target, names: Sequence[str]) -> str:
    """Return the command with which a user downloads the wheels for the target on any machine with
    internet access."""
    return " ".join(["pip download --dest DIR", *_pip_options(target), *_pinned(names)])


async def _download(target: Target, names: Sequence[str], scratch: Path) -> list[Path]:
    """Download wheels with pip: the versions installed here or, if there are no such wheels for the
    target, any versions that the requirements allow. Raises `UsageError` if that fails."""
    folder = scratch / "downloaded"
    make_private(folder)
    done = ProgramOutput(None, b"", "")
    for wanted in (_pinned(names), _required(names)):
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        argv += ["--no-input", f"--dest={folder}", *_pip_options(target), *wanted]
        # pip is the user's own program and uses the user's settings for indexes and proxies.
        done = await run_program(
            argv,
            cwd=scratch,
            timeout=DOWNLOAD_TIMEOUT,
            limit_size=1024 * 1024,
            inherit=tuple(os.environ),
        )
        found = [_from_folder(folder, name, target) for name in names]
        if done.ok and None not in found:
            return [path for path in found if path is not None]
        if "No matching distribution" not in done.errors or UNREACHABLE in done.errors:
            break
    if "No module named pip" in done.errors:
        problem = "pip is not installed for this Python"
    elif UNREACHABLE in done.errors:
        problem = "pip cannot reach the package index"
    elif done.cut:
        problem = f"pip did not finish within {DOWNLOAD_TIMEOUT:g} s"
    else:
        lines = [line for line in done.errors.splitlines() if line.startswith("ERROR: ")]
        problem = lines[-1].removeprefix("ERROR: ") if lines else "pip could not download them"
    raise UsageError(
        f"no wheels of {', '.join(names)} for {target}: {problem}",
        remedy="download them on a machine with internet access, and name their directory with "
        f"--wheels DIR: {_by_hand(target, names)}",
    )


def _required(names: Sequence[str]) -> list[str]:
    """Return a requirement for pip for each package, with the version limits that dragoman and all
    its dependencies set for it."""
    found: dict[str, list[str]] = {name: [] for name in names}
    for requirer in ("dragoman", *(name for name, _ in _needed())):
        for line in _requires(requirer):
            words, _, condition = line.partition(";")
            matched = REQUIREMENT.match(words)
            if matched and normal(matched[1]) in found and "extra" not in condition:
                limits = words[matched.end() :].strip(" ()")
                found[normal(matched[1])] += [limits] if limits else []
    return [name + ",".join(dict.fromkeys(limits)) for name, limits in found.items()]
