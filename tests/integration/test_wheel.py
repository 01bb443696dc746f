"""What is installed is what was written: the files of data are in the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from dragoman.catalogue.load import Catalogue, built_in

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT = 50.0
"""Packing a few hundred files takes a second or two; a loaded machine takes its time."""


def test_a_wheel_holds_every_descriptor_and_every_other_file_of_data(tmp_path: Path) -> None:
    code = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=BUILD_TIMEOUT,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        files = {f"dragoman/catalogue/peers/{name}.toml" for name in Catalogue(built_in()).names}
        assert files and files - inside == set()
        source = ROOT / "src"
        data = [
            path
            for path in (source / "dragoman").rglob("*")
            if path.is_file() and path.suffix not in {".py", ".pyc"}
        ]
        assert {"prices.toml", "py.typed", "qwen.toml", "skill.md"} <= {path.name for path in data}
        for path in data:
            assert archive.read(path.relative_to(source).as_posix()) == path.read_bytes()
