from __future__ import annotations

import pytest

from dragoman.testing.chaos import agent, faults
from dragoman.testing.chaos.__main__ import main


def test_the_faults_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(faults.names())


def test_a_fault_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--fault", "nonsense"])
    assert ended.value.code == 2
    assert "--list" in capsys.readouterr().err


def test_the_agent_is_healthy_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []

    def play(fault: str) -> int:
        chosen.append(fault)
        return 0

    monkeypatch.setattr(agent, "main", play)
    main([])
    main(["--fault", "noise"])
    assert chosen == ["healthy", "noise"]
