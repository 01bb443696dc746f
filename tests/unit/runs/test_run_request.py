from __future__ import annotations

from pathlib import Path

from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.dialects.discovery import ACP
from dragoman.policy import preset
from dragoman.policy.approver import Approver
from dragoman.runs.run_request import RunRequest


def test_a_request_that_moves_takes_its_approver_along(tmp_path: Path) -> None:
    request = RunRequest(
        peer="tester",
        enforced=Enforced(way=LaunchSpec(command=("agent",), protocol=ACP)),
        adapter=None,
        workspace=tmp_path,
        approver=Approver(preset("deny-all"), "tester", str(tmp_path)),
        unattended="deny-all",
        budgets=Budgets(),
    )
    assert request.moved(tmp_path) is request
    moved = request.moved(tmp_path / "began")
    assert (moved.workspace, moved.approver.workspace) == (
        tmp_path / "began",
        str(tmp_path / "began"),
    )
    assert moved.project is None
