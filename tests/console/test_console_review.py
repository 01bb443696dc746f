"""The review screen in a real browser: changed lines, comments, the check, and a patch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import Served, Shot, Tabs, expect
from tests.console.page_agent import GREETING
from tests.unit.delegation.worktree.repositories import commit_all, git


@pytest.fixture
def repository(console: Served) -> Path:
    """The workspace as a git repository, with a check in the settings."""
    folder = console.cli.cwd
    git(folder, "init", "-q")
    (folder / "greeting.py").write_text(GREETING)
    (folder / ".gitignore").write_text("GO\n")
    commit_all(folder)
    config = console.cli.home / "config_home" / "config.toml"
    check = "grep -q 'Good morning' greeting.py && echo it greets"
    config.write_text(config.read_text() + f'check = "{check}"\n')
    return folder


def changed(console: Served, page: Any, *options: str) -> str:
    """Start a session that changes files, and return its key."""
    key = console.submit("change please", *options)
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    return key


def delegated(console: Served) -> None:
    words = ("delegate", "review", "change it", "--isolate", "--format", "json")
    done = console.cli.child(*words)
    assert done.code == 0, done.err


def test_comments_on_lines_arrive_as_one_prompt(
    console: Served, page: Any, repository: Path, shot: Shot
) -> None:
    key = changed(console, page)
    page.get_by_role("link", name="review changes").click()
    page.get_by_role("heading", name="2 changed files").wait_for()
    file = page.locator("details.file", has_text="greeting.py")
    assert file.locator("tr.removed .code").inner_text().strip() == 'words = f"Hello, {name}"'
    file.get_by_role("button", name="Comment on added line 3").click()
    page.get_by_label("Comment on line 3").fill("Greet by the time of day.")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Comments (1)").wait_for()
    # The comment is still there after a reload. Add another one.
    page.reload()
    page.get_by_text("Comments (1)").wait_for()
    page.locator("details.file", has_text="notes.md").get_by_role(
        "button", name="Comment on the file"
    ).click()
    page.get_by_label("Comment on the file").fill("Write more.")
    page.get_by_role("button", name="Add comment").click()
    page.get_by_text("Comments (2)").wait_for()
    page.evaluate("window.scrollTo(0, 0)")
    page.mouse.move(0, 0)
    shot(page, "review")
    page.get_by_role("button", name="Send 2 comments as one prompt").click()
    page.wait_for_url(f"**/session/{key}")
    said = page.get_by_label("Agent").last
    said.get_by_text("Greet by the time of day.").wait_for()
    assert said.inner_text().count("You said: Review of your changes: 2 comments") == 1
    page.get_by_label("You").nth(1).wait_for()
    prompt = page.get_by_label("You").nth(1).inner_text()
    for words in ("greeting.py, line 3", "Good morning, {name}", "notes.md:", "Write more."):
        assert words in prompt
    page.goto(f"{console.url}#/review/{key}")
    page.get_by_text("Comments (0)").wait_for()
    assert page.evaluate("window.hacked") is None


def test_changes_are_shown_side_by_side_by_turn_and_against_the_last_commit(
    console: Served, page: Any, repository: Path, shot: Shot
) -> None:
    key = changed(console, page)
    page.goto(f"{console.url}#/review/{key}")
    page.get_by_role("combobox", name="Changes").select_option("workspace")
    page.get_by_role("heading", name="3 changed files").wait_for()
    page.locator("details.file", has_text="made-by-a-command.txt").wait_for()
    page.get_by_label("View").select_option("split")
    row = page.locator("details.file", has_text="greeting.py").locator("tr:has(td.removed)")
    assert row.locator("td.code.removed").inner_text().strip() == 'words = f"Hello, {name}"'
    assert row.locator("td.code.added").inner_text().strip() == 'words = f"Good morning, {name}"'
    expect(row.locator("td.number")).to_have_text(["3", "3"])
    shot(page, "review-side-by-side")
    page.get_by_role("combobox", name="Changes").select_option("reported")
    page.get_by_role("combobox", name="Turn").select_option(index=1)
    page.get_by_role("heading", name="2 changed files").wait_for()


def test_the_check_runs_in_the_workspace_and_its_result_is_shown_next_to_the_changes(
    console: Served, tabs: Tabs, repository: Path
) -> None:
    page, other = tabs.open(), tabs.open()
    key = changed(console, page)
    for each in (page, other):
        each.goto(f"{console.url}#/review/{key}")
        each.get_by_text("The check has not run for this session yet: grep").wait_for()
    page.get_by_role("button", name="Run in the workspace").click()
    for each in (page, other):
        each.locator(".state.done", has_text="passed").wait_for()
    (repository / "greeting.py").write_text(GREETING)
    page.get_by_role("button", name="Run in the workspace").click()
    for each in (page, other):
        each.locator(".state.failed", has_text="failed").wait_for()
        each.get_by_text("exit code 1").wait_for()


def test_the_patch_of_isolated_work_is_reviewed_and_applied(
    console: Served, tabs: Tabs, repository: Path, shot: Shot
) -> None:
    page, other = tabs.open(), tabs.open()
    delegated(console)
    assert git(repository, "status", "--porcelain") == ""
    for each in (page, other):
        each.get_by_role("navigation").get_by_role("link", name="Review").click()
        each.get_by_role("link", name="change it").click()
        each.get_by_role("heading", name="3 changed files").wait_for()
        each.get_by_text("passed").wait_for()
        each.get_by_text("in the worktree of the isolated work").wait_for()
    shot(page, "review-patch")
    page.get_by_role("button", name="Apply to the workspace").click()
    # The other tab is updated too.
    for each in (page, other):
        each.locator(".state.done", has_text="applied").wait_for()
        assert each.get_by_role("button", name="Apply to the workspace").count() == 0
    assert "Good morning" in (repository / "greeting.py").read_text()
    assert (repository / "made-by-a-command.txt").exists()


def test_a_changed_or_conflicting_patch_is_not_applied(
    console: Served, tabs: Tabs, repository: Path
) -> None:
    tabs.expected.append("409")
    page = tabs.open()
    delegated(console)
    page.get_by_role("navigation").get_by_role("link", name="Review").click()
    # The page loads a review again when its work ends. So open it only after that: a patch that
    # was loaded after it changed would be applied.
    page.locator(".row .state.done").wait_for()
    page.get_by_role("link", name="change it").click()
    page.get_by_role("heading", name="3 changed files").wait_for()
    (patch,) = (console.cli.home / "state_home" / "patches").glob("*.patch")
    shown = patch.read_bytes()
    patch.write_bytes(shown.replace(b"Good morning", b"Good evening"))
    page.get_by_role("button", name="Apply to the workspace").click()
    page.get_by_text("the patch has changed since it was shown").wait_for()
    assert git(repository, "status", "--porcelain") == ""
    # The page has reloaded the review and shows the current patch.
    page.locator("tr.added", has_text="Good evening").wait_for()
    patch.write_bytes(shown)
    (repository / "greeting.py").write_text("mine\n")
    page.reload()
    page.get_by_role("button", name="Apply to the workspace").click()
    page.get_by_text("The patch does not apply.").wait_for()
    page.get_by_text("greeting.py: patch does not apply").wait_for()
    assert (repository / "greeting.py").read_text() == "mine\n"
    assert not (repository / "notes.md").exists()


def test_comments_on_a_patch_reach_the_agent_with_the_patch(
    console: Served, page: Any, repository: Path
) -> None:
    delegated(console)
    page.get_by_role("navigation").get_by_role("link", name="Review").click()
    page.get_by_role("link", name="change it").click()
    page.get_by_role("button", name="Comment on added line 3: words").click()
    page.get_by_label("Comment on line 3").fill("Use the name.")
    page.get_by_role("button", name="Add comment").click()
    page.get_by_label("Send to").select_option("new:second")
    page.get_by_role("button", name="Send 1 comment as one prompt").click()
    page.locator("header.session .chip", has_text="second").wait_for()
    prompt = page.get_by_label("You").inner_text()
    assert "changes that another agent made" in prompt and "not in the workspace" in prompt
    assert '+    words = f"Good morning, {name}"' in prompt and "notes.md" not in prompt


def test_isolated_work_is_delegated_from_the_page(
    console: Served, page: Any, repository: Path
) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.get_by_text("New work").click()
    page.get_by_label("Who").select_option("role:review")
    page.get_by_label("Workspace").fill(str(repository))
    page.get_by_label("In isolation").check()
    page.get_by_label("Prompt").fill("change it here")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("navigation").get_by_role("link", name="Inbox").click()
    page.get_by_role("article", name="Done").get_by_role("link", name="Review").click()
    page.get_by_text("The work was done in a separate worktree.").wait_for()
    page.get_by_role("heading", name="3 changed files").wait_for()


def test_a_comment_that_is_being_written_stays_when_the_review_changes(
    console: Served, tabs: Tabs, repository: Path
) -> None:
    page, other = tabs.open(), tabs.open()
    key = changed(console, page)
    for each in (page, other):
        each.goto(f"{console.url}#/review/{key}")
        each.get_by_role("heading", name="2 changed files").wait_for()
    page.get_by_role("button", name="Comment on added line 3: words").click()
    page.keyboard.type("Half of ")
    other.get_by_role("button", name="Add a general comment").click()
    other.get_by_label("General comment").fill("Well done.")
    other.get_by_role("button", name="Add comment").click()
    page.get_by_text("Comments (1)").wait_for()
    page.keyboard.type("it.")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Comments (2)").wait_for()
    page.get_by_role("note").get_by_text("Half of it.").first.wait_for()


def test_lines_can_be_commented_with_the_keyboard_alone(
    console: Served, page: Any, repository: Path
) -> None:
    key = changed(console, page)
    page.goto(f"{console.url}#/review/{key}")
    page.get_by_role("heading", name="2 changed files").wait_for()
    page.locator("details.file summary").first.focus()
    page.keyboard.press("Tab")
    assert "line 1" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "removed" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    page.keyboard.type("Keep this.")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Comments (1)").wait_for()
    # The focus returns to the line when the form closes. The comment may be shown before that.
    page.wait_for_function("document.activeElement.getAttribute('aria-label')?.includes('removed')")


def test_the_review_fits_a_phone_and_says_what_to_do_when_it_is_empty(
    console: Served, tabs: Tabs, repository: Path, shot: Shot
) -> None:
    page = tabs.open("#/review", viewport={"width": 390, "height": 844})
    page.get_by_text("There is no session to review yet").wait_for()
    key = console.submit("hello")
    page.get_by_role("link", name="s1").click()
    page.get_by_text("Nothing differs from the last commit.").wait_for()
    page.get_by_text("Press the sign before a line").wait_for()
    other = changed(console, page)
    for path, shown in (
        ("#/review", page.locator(".row").nth(1)),
        (f"#/review/{key}", page.locator("details.file").first),
        (f"#/review/{other}", page.locator("details.file", has_text="notes.md")),
    ):
        page.goto(console.url + path)
        shown.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.locator(".review-head .state.done").wait_for()
    shot(page, "phone-review")


def test_a_read_only_browser_sees_the_changes_and_cannot_comment(
    console: Served, tabs: Tabs, repository: Path
) -> None:
    delegated(console)
    page = tabs.browser().new_page()
    page.goto(console.new_link("--read-only"))
    page.get_by_role("navigation").get_by_role("link", name="Review").click()
    page.get_by_role("link", name="change it").click()
    page.locator("tr.added", has_text="Good morning").wait_for()
    expect(page.get_by_role("button", name="Apply to the workspace")).to_be_disabled()
    assert page.get_by_role("button", name="Comment on").count() == 0
