"""The fleet screen in a real browser, with a real server, coordinator, workers and jobs.

Requires a `nats-server`, which `make test-console` installs. Without one, these tests are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.fleet.credentials import credential_path, save_credential
from dragoman.paths import find_paths
from tests.console.conftest import Served, Shot, Tabs, expect, request
from tests.fleet.conftest import rig
from tests.fleet.rig import Rig
from tests.integration.cli_shell import Cli
from tests.unit.console.test_fleet_watch import credential

__all__ = ["rig"]

pytestmark = pytest.mark.timeout(180)

HOSTILE = "<img src=x onerror=\"window.hacked='fleet'\">"


def start_server(rig: Rig) -> None:
    rig.start_server(coordinator=True)
    rig.wait(lambda: "coordinating team" in rig.processes["server"].text())


@pytest.fixture
def fleet(rig: Rig) -> Rig:
    start_server(rig)
    return rig


def join(rig: Rig, cli: Cli, name: str = "alice") -> None:
    """Make the user of the console a submitter, who can use the commands as well."""
    credential = rig.join("submitter", name)
    paths = find_paths(cli.env)
    save_credential(credential, credential_path(paths, credential.team, credential.name))


def start_worker(rig: Rig, name: str, *options: str) -> None:
    rig.make_home(name)
    rig.join("worker", name)
    rig.start_worker(name, *options)


def submit(rig: Rig, prompt: str, *options: str) -> str:
    return rig.call("alice", "fleet", "submit", "execute", prompt, *options).strip()


@pytest.fixture
def joined(fleet: Rig, console: Served) -> Iterator[Rig]:
    join(fleet, console.cli)
    yield fleet


def open_fleet(page: Any) -> Any:
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.get_by_role("link", name="Fleet", exact=True).click()
    return page.get_by_role("region", name="Fleet team")


def test_workers_and_jobs_are_followed_and_a_job_is_opened_and_cancelled(
    joined: Rig, console: Served, page: Any, shot: Shot
) -> None:
    # The console was started before the user joined: it finds the new credential.
    team = open_fleet(page)
    team.get_by_text("connected", exact=True).wait_for()
    team.get_by_text("No worker is connected.").wait_for()
    team.get_by_text("The fleet has no jobs.").wait_for()
    waiting = submit(joined, "say 0.1 what the last commit changes")
    row = team.locator(".row", has_text="say 0.1 what the last commit changes")
    row.get_by_text("waiting: no worker is connected").wait_for()

    # A worker that connects is shown, and takes the job.
    start_worker(joined, "build-1", "--labels", "linux,gpu", "--slots", "2")
    worker = team.get_by_role("row", name="build-1")
    worker.get_by_text("ready", exact=True).wait_for()
    worker.get_by_text("gpu").wait_for()
    row.get_by_text("build-1, attempt 1").wait_for()
    row.locator(".state.done", has_text="ok").wait_for()

    # A running job streams its events and can be cancelled.
    submit(joined, "write 60 the release notes")
    submit(joined, "say 0.1 whether it builds on Windows", "--needs", "windows")
    running = team.locator(".row", has_text="write 60 the release notes")
    running.get_by_text("running", exact=True).wait_for()
    team.locator(".row", has_text="say 0.1 whether it builds on Windows").get_by_text(
        "waiting: build-1"
    ).wait_for()
    worker.get_by_text("1 of 2").wait_for()
    shot(page, "fleet")
    running.get_by_role("link").click()
    page.get_by_text("write 0").wait_for()
    page.get_by_text("attempt 1 on build-1").wait_for()
    page.reload()
    page.get_by_text("write 0").wait_for()
    page.route("**/cancel", lambda route: route.fulfill(json={"cancelled": False}), times=1)
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("The job has already ended.").wait_for()
    page.get_by_role("button", name="Cancel").click()
    result = page.get_by_role("region", name="Result")
    result.get_by_role("heading", name="Result: cancelled").wait_for()
    assert page.get_by_role("button", name="Cancel").count() == 0

    # The job that has ended shows its events and its result.
    page.goto(f"{console.url}#/fleet/team.alice/{waiting}")
    page.get_by_text("say 9").first.wait_for()
    result.get_by_role("heading", name="Result: ok").wait_for()
    result.get_by_text("by scripted on build-1").wait_for()
    expect(page.get_by_text("attempt 1 on build-1")).to_have_count(1)
    shot(page, "fleet-job")


def test_credentials_that_cannot_be_read_are_reported(console: Served, page: Any) -> None:
    path = credential_path(find_paths(console.cli.env), "team", "alice")
    save_credential(credential(), path)
    path.chmod(0o644)
    page.goto(f"{console.url}#/work")
    page.get_by_role("link", name="Fleet", exact=True).click()
    problem = page.get_by_role("alert")
    problem.get_by_text("is readable by other users").wait_for()
    assert page.get_by_text("You are not a submitter").count() == 0
    path.unlink()
    page.get_by_text("You are not a submitter of any fleet.").wait_for()
    expect(problem).to_have_count(0)


def test_a_job_shows_how_to_apply_its_patch_and_its_prompt_stays_text(
    joined: Rig, console: Served, page: Any
) -> None:
    start_worker(joined, "build-1")
    job = submit(joined, f"write 0.1 {HOSTILE}")
    row = open_fleet(page).locator(".row", has_text="<img src=x")
    row.locator(".state.done", has_text="ok").wait_for()
    row.get_by_role("link").click()
    page.get_by_text(f"dragoman fleet apply {job}").wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("#main img").count() == 0


def test_a_lost_fleet_is_shown_as_not_connected_and_reconnects(
    joined: Rig, console: Served, page: Any
) -> None:
    team = open_fleet(page)
    team.get_by_text("connected", exact=True).wait_for()
    port = joined.folder.read().urls[0].rpartition(":")[2]
    joined.processes["server"].end()
    team.get_by_text("not connected").wait_for()
    team.locator(".problem").wait_for()
    joined.start_server("--listen", f"127.0.0.1:{port}", coordinator=True)
    team.get_by_text("connected", exact=True).wait_for(timeout=60_000)
    submit(joined, "say 0.1 later")
    team.locator(".row", has_text="say 0.1 later").wait_for()


def test_a_read_only_browser_cannot_cancel_and_ids_with_wildcards_are_unknown(
    joined: Rig, console: Served, tabs: Tabs
) -> None:
    job = submit(joined, "say 1 kept")
    page = tabs.browser().new_page()
    page.goto(console.new_link("--read-only"))
    open_fleet(page).locator(".row", has_text="say 1 kept").get_by_role("link").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    tabs.expected += ["403", "404"]
    team = "team.alice"
    assert request(page, "POST", f"fleet/{team}/jobs/{job}/cancel")[0] == 403
    for path in (f"{team}/jobs/*", f"{team}/jobs/a.b", f"{team}/jobs/%3E", f"other/jobs/{job}"):
        assert request(page, "GET", f"fleet/{path}")[0] == 404, path
    told = joined.call("alice", "fleet", "jobs", "--format", "json")
    assert json.loads(told.splitlines()[0])["state"] == "queued"


def test_without_a_fleet_the_page_says_how_to_join_one(console: Served, page: Any) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.get_by_text("No work yet.").wait_for()
    assert page.get_by_role("link", name="Fleet").count() == 0
    page.goto(f"{console.url}#/fleet")
    page.get_by_text("dragoman fleet invite submitter").wait_for()
