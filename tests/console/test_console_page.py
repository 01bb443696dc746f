"""The page in a real browser: inbox, session and work, with real agents behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.console.conftest import Served, Shot, Tabs, serving
from tests.integration.cli_shell import Cli


def release(console: Served) -> None:
    (console.cli.cwd / "GO").write_text("go\n")


def test_a_session_streams_into_the_page(console: Served, page: Any, shot: Shot) -> None:
    key = console.submit("stream")
    page.goto(f"{console.url}#/session/{key}")
    page.locator("strong", has_text="bold").wait_for()
    assert page.locator(".state.working").count() == 1
    assert page.get_by_label("You").inner_text().endswith("stream")
    assert page.get_by_text("Look around").is_visible()
    release(console)
    page.get_by_text("and the end.").wait_for()
    page.locator("pre code", has_text="print('code')").wait_for()
    page.get_by_text("Turn ended: ok").wait_for()
    page.locator("summary", has_text="Read main.py").wait_for()
    shot(page, "session")


def test_a_permission_is_answered_in_the_inbox_and_the_agent_goes_on(
    console: Served, page: Any, shot: Shot
) -> None:
    key = console.submit("ask all")
    card = page.get_by_role("article", name="Run the tests")
    card.wait_for()
    assert card.get_by_label("Command").inner_text() == "make all"
    shot(page, "inbox")
    card.get_by_role("button", name="Allow").click()
    card.wait_for(state="detached")
    page.get_by_role("article", name="Done").get_by_role("link", name="Open").click()
    page.get_by_text("answer 1: allowed").wait_for()
    assert page.url.endswith(key)
    # It was opened, so it is seen.
    page.get_by_role("link", name="Inbox").click()
    page.get_by_text("Finished, not seen yet (0)").wait_for()


def test_a_change_is_shown_as_a_diff_and_can_be_refused(console: Served, page: Any) -> None:
    key = console.submit("edit")
    card = page.get_by_role("article", name="Edit main.py")
    card.wait_for()
    assert card.locator(".removed").inner_text().split() == ["-", "two"]
    assert card.locator(".added").inner_text().split() == ["+", "2"]
    card.get_by_role("button", name="Refuse").click()
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("answer 1: refused").wait_for()


def test_a_question_that_a_terminal_answers_vanishes_from_all_tabs(
    console: Served, tabs: Tabs
) -> None:
    one, two = tabs.open(), tabs.open()
    with console.cli.terminal("run", "page", "ask") as terminal:
        terminal.expect("allow? [y")
        for page in (one, two):
            page.get_by_role("article", name="Run the tests").wait_for()
        terminal.type("y\n")
        terminal.expect("answer 1: allowed")
        for page in (one, two):
            page.get_by_role("article", name="Run the tests").wait_for(state="detached")
        assert terminal.wait() == 0


def test_a_question_that_the_page_answers_ends_in_the_terminal(console: Served, page: Any) -> None:
    with console.cli.terminal("run", "page", "ask") as terminal:
        terminal.expect("allow? [y")
        page.get_by_role("button", name="Allow").click()
        terminal.expect("answer 1: allowed")
        assert terminal.wait() == 0


def test_of_two_tabs_that_answer_at_once_exactly_one_counts(console: Served, tabs: Tabs) -> None:
    one, two = tabs.open(), tabs.open()
    tabs.expected.append("409")
    key = console.submit("ask")
    for page, name in ((one, "Allow"), (two, "Refuse")):
        page.get_by_role("article", name="Run the tests").get_by_role(
            "button", name=name
        ).wait_for()
    click = """([name, at]) => {
        const buttons = [...document.querySelectorAll('.question button')];
        const found = buttons.find((each) => each.textContent.includes(name));
        setTimeout(() => found.click(), at - Date.now());
    }"""
    at = one.evaluate("Date.now()") + 1000
    one.evaluate(click, ["Allow", at])
    two.evaluate(click, ["Refuse", at])
    for page in (one, two):
        page.get_by_role("article", name="Run the tests").wait_for(state="detached")
        page.goto(f"{console.url}#/session/{key}")
        page.get_by_text("Turn ended").wait_for()
    assert one.get_by_text("answer 1:").inner_text() == two.get_by_text("answer 1:").inner_text()
    assert one.get_by_text("answer 1:").count() == 1


def test_reload_and_reconnect_in_mid_turn_lose_nothing(console: Served, tabs: Tabs) -> None:
    page = tabs.open()
    key = console.submit("stream")
    page.goto(f"{console.url}#/session/{key}")
    page.locator("strong", has_text="bold").wait_for()
    page.reload()
    page.locator("strong", has_text="bold").wait_for()
    tabs.expected.append("ERR_INTERNET_DISCONNECTED")
    page.context.set_offline(True)
    page.evaluate("window.dispatchEvent(new Event('offline'))")
    release(console)
    page.context.set_offline(False)
    page.get_by_text("and the end.").wait_for()
    page.get_by_text("Turn ended: ok").wait_for()
    assert page.get_by_text("First bold words").count() == 1
    assert page.get_by_label("You").count() == 1


def test_a_console_that_is_started_again_loses_nothing(browser: Any, cli: Cli) -> None:
    with serving(cli) as first:
        port = first.url.rstrip("/").rpartition(":")[2]
        tabs = Tabs(browser, first)
        page = tabs.open()
        key = first.submit("stream")
        asked = first.submit("ask", "--cwd", str(_folder(cli, "other")))
        page.get_by_role("article", name="Run the tests").wait_for()
        page.goto(f"{first.url}#/session/{key}")
        page.locator("strong", has_text="bold").wait_for()
    page.get_by_text("connecting").wait_for()
    (cli.cwd / "GO").write_text("go\n")
    with serving(cli, listen=f"127.0.0.1:{port}") as second:
        page.get_by_text("Turn ended: ok").wait_for()
        assert page.get_by_text("First bold words").count() == 1
        # The question waited meanwhile.
        page.goto(f"{second.url}#/session/{asked}")
        page.get_by_role("button", name="Allow").click()
        page.get_by_text("answer 1: allowed").wait_for()
        page.context.close()
    assert all("ERR_CONNECTION_REFUSED" in each for each in tabs.problems), tabs.problems


def _folder(cli: Cli, name: str) -> Path:
    folder = cli.cwd / name
    folder.mkdir()
    return folder


def test_output_of_an_agent_stays_text(console: Served, page: Any, shot: Shot) -> None:
    key = console.submit("hostile")
    page.get_by_label("Command").wait_for()
    assert "<script>" in page.get_by_label("Command").inner_text()
    shot(page, "hostile")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("onerror").first.wait_for()
    page.get_by_role("button", name="Refuse").click()
    page.get_by_text("Turn ended").wait_for()
    assert page.evaluate("window.hacked") is None
    for element in ("img", "iframe", "svg", "form[action]", "#main script", "#main link"):
        assert page.locator(element).count() == 0, element
    assert page.locator("#main a[href^='javascript'], #main a[href^='data']").count() == 0
    text = page.locator("#main").inner_text()
    assert "\u202e" not in text and "\u200b" not in text and "\x1b" not in text
    assert "⟨U+202E⟩" in text
    assert len(page.locator("h1").inner_text()) < 400


def test_work_is_started_continued_queued_and_stopped_from_the_page(
    console: Served, page: Any, shot: Shot
) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.get_by_text("New work").click()
    page.get_by_label("Who").select_option("peer:page")
    page.get_by_label("Workspace").fill(str(console.cli.cwd))
    page.get_by_label("Prompt").fill("hello there")
    page.get_by_role("button", name="Start").click()
    page.get_by_text("You said: hello there").wait_for()
    page.get_by_label("Prompt").fill("stream")
    page.get_by_role("button", name="Send").click()
    page.locator("strong", has_text="bold").wait_for()
    page.get_by_label("Next prompt").fill("queued words")
    page.get_by_role("button", name="Queue").click()
    page.get_by_text("working, 1 queued").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Turn ended: cancelled").wait_for()
    page.get_by_text("You said: queued words").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.locator(".row", has_text="done").wait_for()
    shot(page, "work")


def test_work_is_delegated_from_the_page_and_its_questions_come_to_the_inbox(
    console: Served, page: Any
) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.get_by_text("New work").click()
    page.get_by_label("Who").select_option("role:review")
    page.get_by_label("Workspace").fill(str(console.cli.cwd))
    page.get_by_label("Prompt").fill("ask delegated")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("navigation").get_by_role("link", name="Inbox").click()
    card = page.get_by_role("article", name="Run the tests")
    card.wait_for()
    card.get_by_role("button", name="Allow").click()
    card.wait_for(state="detached")
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.locator(".row", has_text="page").get_by_role("link").first.click()
    page.get_by_text("answer 1: allowed").wait_for()
    page.get_by_text("Turn ended: ok").wait_for()


def test_a_session_is_handed_over_to_another_peer_that_is_told_what_was_said(
    console: Served, page: Any
) -> None:
    key = console.submit("hello first peer")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("You said: hello first peer").wait_for()
    page.get_by_text("Turn ended: ok").wait_for()
    page.get_by_text("Hand over to another peer").click()
    page.get_by_label("Peer").select_option("second")
    page.get_by_label("What to do next").fill("go on here")
    page.get_by_role("button", name="Hand over").click()
    page.locator("header.session .chip", has_text="second").wait_for()
    said = page.get_by_label("Agent").last
    said.get_by_text("go on here").wait_for()
    assert "hello first peer" in said.inner_text()


def test_ten_thousand_events_stay_smooth(console: Served, page: Any) -> None:
    key = console.submit("many 5000")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    assert page.locator(".item").count() <= 160
    page.get_by_role("button", name="earlier of").click()
    assert 160 < page.locator(".item").count() <= 320
    took = page.evaluate("""async () => {
        const began = performance.now();
        for (let at = 0; at < 5; at++) {
            window.scrollBy(0, -500);
            await new Promise((done) => requestAnimationFrame(done));
        }
        return performance.now() - began;
    }""")
    # Five frames: what takes as long as this would not be called smooth on any machine.
    assert took < 2500


def test_the_page_works_at_the_width_of_a_phone(console: Served, tabs: Tabs, shot: Shot) -> None:
    page = tabs.open(viewport={"width": 360, "height": 740})
    key = console.submit("edit")
    page.get_by_role("article", name="Edit main.py").wait_for()
    for path, name in (("#/", "inbox"), ("#/work", "work"), (f"#/session/{key}", "session")):
        page.goto(console.url + path)
        page.locator("h1").wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, path
        shot(page, f"phone-{name}")


def test_a_question_is_answered_by_keyboard_alone(console: Served, page: Any) -> None:
    key = console.submit("ask")
    page.get_by_role("article", name="Run the tests").wait_for()
    for _ in range(30):
        page.keyboard.press("Tab")
        if "Allow" in page.evaluate("document.activeElement.textContent"):
            break
    page.keyboard.press("Enter")
    page.get_by_role("article", name="Run the tests").wait_for(state="detached")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("answer 1: allowed").wait_for()
    page.get_by_label("Prompt").focus()
    page.keyboard.type("typed words")
    page.keyboard.press("Control+Enter")
    page.get_by_text("You said: typed words").wait_for()


def test_several_questions_of_one_kind_are_answered_together(console: Served, page: Any) -> None:
    # Each in a folder, and so with an agent, of its own.
    folders = [console.cli.cwd / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    keys = [
        console.submit(prompt, "--cwd", str(folder))
        for prompt, folder in zip(("ask one", "edit", "ask two"), folders, strict=True)
    ]
    page.get_by_role("checkbox").nth(2).wait_for()
    boxes = page.get_by_role("checkbox")
    for number in range(3):
        boxes.nth(number).check()
    page.get_by_text("Select one kind of action at a time.").wait_for()
    assert page.get_by_role("button", name="Allow all", exact=True).is_disabled()
    page.get_by_role("checkbox", name="Edit main.py").uncheck()
    page.get_by_role("button", name="Allow all", exact=True).click()
    page.get_by_text("Waiting for you (1)").wait_for()
    for key in (keys[0], keys[2]):
        page.goto(f"{console.url}#/session/{key}")
        page.get_by_text("answer 1: allowed").wait_for()


def test_a_browser_without_a_link_gets_no_data(console: Served, tabs: Tabs) -> None:
    tabs.expected.append("401")
    page = tabs.browser().new_page()
    page.goto(console.url)
    page.get_by_text("not logged in").wait_for()
    # A link counts once.
    page.goto(console.link)
    page.get_by_text("connected", exact=True).wait_for()
    other = tabs.browser().new_page()
    other.goto(console.link)
    other.get_by_text("this link was used").wait_for()


def test_a_revoked_browser_is_logged_out_at_once(console: Served, tabs: Tabs) -> None:
    tabs.expected += ["401", "403"]
    page = tabs.open()
    assert console.cli.child("console", "tokens", "revoke", "all").code == 0
    page.get_by_text("not logged in").wait_for()


def test_a_browser_that_may_only_read_sees_all_and_changes_nothing(
    console: Served, tabs: Tabs
) -> None:
    page = tabs.browser().new_page()
    page.goto(console.new_link("--read-only"))
    console.submit("ask")
    page.get_by_role("article", name="Run the tests").wait_for()
    assert page.get_by_role("button", name="Allow").is_disabled()
    tabs.expected.append("403")
    status = page.evaluate("""async () => (await fetch("/api/v1/runs", {
        method: "POST", body: "{}", headers: {"content-type": "application/json"},
    })).status""")
    assert status == 403
