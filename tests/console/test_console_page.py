"""The page in a real browser: inbox, session and work, with real agents behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.store import Redactor, Store
from dragoman.store.store import store_path
from tests.console.conftest import (
    TIMEOUT,
    Served,
    Shot,
    Tabs,
    expect,
    release,
    request,
    serving,
    wait_until,
)
from tests.integration.cli_shell import Cli
from tests.unit.store.stores import chunk, job, session


def _folder(cli: Cli, name: str) -> Path:
    folder = cli.cwd / name
    folder.mkdir()
    return folder


def test_a_session_streams_into_the_page(console: Served, tabs: Tabs, shot: Shot) -> None:
    page = tabs.open(viewport={"width": 1280, "height": 1000})
    key = console.submit("stream")
    page.goto(f"{console.url}#/session/{key}")
    page.locator("strong", has_text="bold").wait_for()
    # Events come from the broker and the state from the store, so either may come first.
    expect(page.locator(".state.working")).to_have_count(1)
    assert page.get_by_label("You").inner_text().endswith("stream")
    page.get_by_text("Look around").wait_for()
    release(console)
    page.get_by_text("and the end.").wait_for()
    page.locator("pre code", has_text="print('code')").wait_for()
    page.get_by_text("Turn ended: ok").wait_for()
    page.locator("summary", has_text="Read main.py").wait_for()
    shot(page, "session")


DRAWN_BEFORE_EFFECTS = """async (keys) => {
    const { work } = await import("/static/connection.js");
    for (const key of keys) {
        const changed = new Promise((done) => addEventListener("hashchange", done, { once: true }));
        location.hash = `#/session/${key}`;
        await changed;
        await null;
        await null;
        work.value = new Map(work.value);
    }
}"""
"""Goes from one session to the next, and renders each a second time before the page is painted, so
that the effects of the new screen run before those of the old one are cleaned up."""


def test_a_session_is_shown_even_if_the_page_switches_quickly_between_sessions(
    console: Served, page: Any
) -> None:
    one, two = console.submit("hello one"), console.submit("hello two")
    for key, word in ((one, "one"), (two, "two")):
        page.goto(f"{console.url}#/session/{key}")
        page.get_by_text(f"You said: hello {word}").wait_for()
    page.evaluate(DRAWN_BEFORE_EFFECTS, [one])
    page.get_by_text("You said: hello one").wait_for()
    page.evaluate(DRAWN_BEFORE_EFFECTS, [two, one, two])
    page.get_by_text("You said: hello two").wait_for()
    expect(page.get_by_text("You said:")).to_have_count(1)


def test_a_session_that_is_reopened_immediately_shows_each_event_once(
    console: Served, page: Any
) -> None:
    key = console.submit("many 3000")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    leave = """async (key) => {
        const { follow, followed } = await import("/static/connection.js");
        follow(key);
        while (followed.value.count < 100) await new Promise((done) => setTimeout(done));
        follow(key);
        while (!followed.value.view.turns.length) await new Promise((done) => setTimeout(done, 50));
        const said = followed.value.view.messages.filter((each) => each.role === "agent");
        return [said.length, said.filter((each) => each.text.split("word").length !== 2).length];
    }"""
    assert page.evaluate(leave, key) == [2700, 0]


def test_a_permission_is_answered_in_the_inbox_and_the_agent_continues(
    console: Served, page: Any, shot: Shot
) -> None:
    key = console.submit("ask all")
    card = page.get_by_role("article", name="Run the tests")
    card.wait_for()
    assert card.get_by_label("Command").inner_text() == "make all"
    shot(page, "inbox")
    card.locator("[data-kind=allow_once]").click()
    card.wait_for(state="detached")
    page.get_by_role("article", name="Done").get_by_role("link", name="Open").click()
    page.get_by_text("answer 1: allowed").wait_for()
    assert page.url.endswith(key)
    # Opening it marked it as seen.
    page.get_by_role("link", name="Inbox").click()
    page.get_by_text("Finished, not seen yet (0)").wait_for()


def test_a_change_is_shown_as_a_diff_and_can_be_refused(console: Served, page: Any) -> None:
    key = console.submit("edit")
    card = page.get_by_role("article", name="Edit main.py")
    card.wait_for()
    assert card.locator(".removed").inner_text().split() == ["-", "two"]
    assert card.locator(".added").inner_text().split() == ["+", "2"]
    card.locator("[data-kind=reject_once]").click()
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("answer 1: refused").wait_for()


def test_a_question_answered_in_a_terminal_disappears_from_all_tabs(
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


def test_a_question_answered_in_the_page_ends_in_the_terminal(console: Served, page: Any) -> None:
    with console.cli.terminal("run", "page", "ask") as terminal:
        terminal.expect("allow? [y")
        page.locator("[data-kind=allow_once]").click()
        terminal.expect("answer 1: allowed")
        assert terminal.wait() == 0


def test_when_two_tabs_answer_at_once_exactly_one_answer_counts(
    console: Served, tabs: Tabs
) -> None:
    one, two = tabs.open(), tabs.open()
    tabs.expected.append("409")
    key = console.submit("ask")
    # Both answers are held back until both were given, and then sent one right after the other.
    held: list[Any] = []
    for page, kind in ((one, "allow_once"), (two, "reject_once")):
        page.route("**/answer", lambda route: held.append(route))
        with page.expect_request("**/answer"):
            page.locator(f".question [data-kind={kind}]").click()
    for _ in range(int(TIMEOUT * 20)):
        if len(held) == 2:
            break
        one.wait_for_timeout(50)
    for route in held:
        route.continue_()
    assert len(held) == 2
    for page in (one, two):
        page.get_by_role("article", name="Run the tests").wait_for(state="detached")
        page.goto(f"{console.url}#/session/{key}")
        page.get_by_text("Turn ended").wait_for()
    assert one.get_by_text("answer 1:").inner_text() == two.get_by_text("answer 1:").inner_text()
    expect(one.get_by_text("answer 1:")).to_have_count(1)


def test_one_command_opens_the_inbox(browser: Any, cli: Cli) -> None:
    opened = cli.home / "opened"
    program = cli.home / "browser"
    # Like a browser in the terminal, it does not end before it has shown the page.
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, urllib.request\n"
        "urllib.request.urlopen(sys.argv[1].partition('#')[0], timeout=20).read()\n"
        f"open('{opened}.new', 'w').write(sys.argv[1])\nos.rename('{opened}.new', '{opened}')\n"
    )
    program.chmod(0o755)
    cli.extra["BROWSER"] = f"{program} %s"
    with serving(cli, "--open") as served:
        tabs = Tabs(browser, served)
        page = tabs.browser().new_page()
        wait_until(opened.exists)
        assert opened.read_text() == served.link
        page.goto(opened.read_text())
        page.get_by_role("heading", name="Inbox").wait_for()
        page.get_by_text("Nothing is waiting for you.").wait_for()
        assert tabs.problems == []


def test_without_the_extra_the_command_says_how_to_install_it(cli: Cli) -> None:
    for module in ("starlette", "uvicorn"):
        code = (
            f"import sys; sys.modules[{module!r}] = None; sys.argv[1:] = ['console']\n"
            "from dragoman.cli import main\nmain()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=cli.cwd,
            env=cli.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        assert done.returncode == 2, done.stderr
        assert f"the Python package {module} is not installed" in done.stderr
        assert "pip install 'dragoman[console]'" in done.stderr


def test_work_is_started_continued_queued_and_stopped_from_the_page(
    console: Served, page: Any
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
    # The page empties the field when the server has confirmed the prompt, which may be later.
    expect(page.get_by_label("Next prompt")).to_have_value("")
    page.get_by_label("Next prompt").fill("queued words")
    page.get_by_role("button", name="Queue").click()
    page.get_by_text("working, 1 queued").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Turn ended: cancelled").wait_for()
    page.get_by_text("You said: queued words").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.locator(".row", has_text="done").wait_for()


def test_text_typed_while_a_prompt_is_sent_is_kept(console: Served, page: Any) -> None:
    key = console.submit("hello there")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    held: list[Any] = []
    page.route("**/prompt", lambda route: held.append(route))
    field = page.locator("#prompt")
    field.fill("the first prompt")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Sending …").wait_for()
    # Events of the browser are received during a call.
    wait_until(lambda: bool(page.evaluate("true") and held))
    field.fill("the next one")
    held[0].continue_()
    page.get_by_text("You said: the first prompt").wait_for()
    page.get_by_role("button", name="Sending …").wait_for(state="detached")
    expect(field).to_have_value("the next one")


def test_work_of_several_projects_shows_its_state_and_can_be_filtered(
    console: Served, page: Any, shot: Shot
) -> None:
    other = _folder(console.cli, "website")
    os.mkfifo(other / "GO")
    failing = _folder(console.cli, "library")
    console.submit("stream the report")
    console.submit("queued behind it", "--session", "s1")
    console.submit("ask again", "--cwd", str(other))
    console.submit("spend 0.25", "--cwd", str(failing))
    console.submit("failure of the disk", "--cwd", str(failing))
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    for state in ("working", "waiting", "done", "failed"):
        page.locator(f".row.{state}").wait_for()
    page.get_by_text("working, 1 queued").wait_for()
    page.locator(".row.done", has_text="0.25 USD").wait_for()
    page.locator(".row.failed", has_text="the disk is full").wait_for()
    expect(page.locator(".project")).to_have_count(3)
    shot(page, "work")
    page.get_by_label("State").select_option("waiting")
    expect(page.locator(".row")).to_have_count(1)
    page.get_by_label("State").select_option("")
    page.get_by_label("Search").fill("REPORT")
    page.locator(".project").nth(1).wait_for(state="detached")
    page.get_by_label("Search").fill("nothing has this")
    page.get_by_text("Nothing matches these filters.").wait_for()
    release(console)


def test_work_is_delegated_from_the_page_and_its_questions_reach_the_inbox(
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
    card.locator("[data-kind=allow_once]").click()
    card.wait_for(state="detached")
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.locator(".row", has_text="page").get_by_role("link").first.click()
    page.get_by_text("answer 1: allowed").wait_for()
    page.get_by_text("Turn ended: ok").wait_for()


def test_stopping_delegated_work_ends_all_of_it(console: Served, page: Any) -> None:
    """No other peer continues, and a check after the turn is stopped as well."""
    peers = console.cli.home / "config_home" / "peers"
    second = peers / "second.toml"
    second.write_text(second.read_text().replace("roles = []", 'roles = ["review"]'))
    config = console.cli.home / "config_home" / "config.toml"
    # The check waits for the pipe that no one writes to.
    config.write_text(config.read_text() + 'check = "cat GO"\n')
    for prompt, shown in (("stream", "First bold words"), ("hello", "You said: hello")):
        page.get_by_role("navigation").get_by_role("link", name="Work").click()
        page.get_by_text("New work").click()
        page.get_by_label("Who").select_option("role:review")
        page.get_by_label("Workspace").fill(str(console.cli.cwd))
        page.get_by_label("Prompt").fill(prompt)
        page.get_by_role("button", name="Start").click()
        page.locator(".row.working").get_by_role("link").click()
        page.get_by_text(shown).wait_for()
        if prompt == "hello":
            page.get_by_text("Turn ended: ok").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop").wait_for(state="detached")
    listed = console.cli.child("jobs", "list", "--format", "json")
    assert listed.code == 0, listed.err
    jobs = [json.loads(line) for line in listed.out.splitlines()]
    assert [each["outcome"] for each in jobs] == ["cancelled", "cancelled"]
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    expect(page.locator(".row")).to_have_count(2)


def test_an_opened_tool_call_stays_where_it_is_while_it_is_read(
    console: Served, tabs: Tabs
) -> None:
    page = tabs.open(viewport={"width": 1000, "height": 600})
    key = console.submit("change it")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    last = page.locator("details.tool").last
    last.locator("summary").click()
    page.locator("details.tool pre.diff").last.wait_for()
    # The event of the page's own scrolling can come late. It must not count as the user's.
    late = "() => setTimeout(() => { dispatchEvent(new Event('scroll')); window.late = true; })"
    page.evaluate(late)
    page.wait_for_function("window.late")
    top = last.evaluate("each => each.getBoundingClientRect().top")
    console.submit("hello again", "--session", "s1")
    page.get_by_text("You said: hello again").wait_for()
    assert last.evaluate("each => each.getBoundingClientRect().top") == top


def test_work_that_ends_in_a_background_tab_is_unseen_until_the_tab_is_looked_at(
    console: Served, tabs: Tabs
) -> None:
    context = tabs.browser()
    context.add_init_script(
        "Object.defineProperty(document, 'visibilityState', {get: () => window.looked ?? 'hidden'})"
    )
    page = context.new_page()
    page.goto(console.new_link())
    key = console.submit("hello")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    other = tabs.open()
    ended = other.locator(".ended", has_text="hello")
    ended.wait_for()
    page.locator(".state.done").first.wait_for()
    with page.expect_request("**/seen"):
        page.evaluate(
            "window.looked = 'visible'; document.dispatchEvent(new Event('visibilitychange'))"
        )
    ended.wait_for(state="detached")


LEAVE = """() => new Promise((done) => {
    const main = document.getElementById("main");
    const watch = new MutationObserver(() => {
        if (main.querySelector(".conversation")) return;
        window.dispatchEvent(new Event("scroll"));
        done();
    });
    watch.observe(main, { childList: true, subtree: true });
    location.hash = "#/work";
})"""


def test_a_scroll_event_after_a_long_session_was_left_does_no_harm(
    console: Served, tabs: Tabs
) -> None:
    key = console.submit("many 300")
    page = tabs.open(f"#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    page.get_by_role("button", name="Go to the beginning").wait_for()
    page.evaluate(LEAVE)
    page.locator(".row", has_text="done").wait_for()
    assert tabs.problems == []


def test_the_link_of_a_session_that_is_too_old_for_the_list_opens_it(
    browser: Any, cli: Cli
) -> None:
    with Store.open(store_path(cli.home / "state_home"), Redactor(())) as store:
        old = session(root=str(cli.cwd), cwd=str(cli.cwd), title="An old session")
        for each in (old, *(session(updated_at=200.0) for _ in range(300))):
            store.create_session(each)
        ended = {"state": "ended", "outcome": "ok", "ended_at": 2.0, "started_at": 1.0}
        store.create_job(job(old.key, prompt="an old prompt", next_event=1, **ended))
        store.append(old.key, 0, [chunk("an old answer")])
    with serving(cli) as served:
        tabs = Tabs(browser, served)
        page = tabs.open("#/work")
        page.get_by_text("Older sessions are not listed here.").wait_for()
        expect(page.locator(".row")).to_have_count(300)
        page.goto(f"{served.url}#/session/{old.key}")
        page.get_by_role("heading", name="An old session").wait_for()
        for words in ("an old prompt", "an old answer", "Turn ended: ok"):
            page.get_by_text(words).wait_for()
        page.context.close()
        assert tabs.problems == []


def test_a_session_that_its_peer_cannot_reopen_continues_in_a_new_one_that_is_shown(
    console: Served, page: Any
) -> None:
    done = console.cli.child("run", "page", "hello first", "--cold", "--session", "s1")
    assert done.code == 0, done.err
    page.get_by_role("article", name="Done").get_by_role("link", name="Open").click()
    page.get_by_text("You said: hello first").wait_for()
    old = page.url
    page.get_by_label("Prompt").fill("go on here")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url(lambda url: url != old)
    page.locator(".toast", has_text="page has lost the session and gets a summary").wait_for()
    page.get_by_label("Agent").get_by_text("go on here").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="Work").click()
    page.locator(".row small", has_text="go on here").wait_for()
    assert page.get_by_text("[Handover]").count() == 0


def test_a_session_is_handed_over_to_another_peer_with_a_summary(
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


FRAME_TIMES = """async () => {
    const times = [];
    for (let at = 0; at < 40; at++) {
        window.scrollBy(0, at % 2 ? 40 : -40);
        const began = performance.now();
        document.body.getBoundingClientRect();
        times.push(performance.now() - began);
        await new Promise((done) => requestAnimationFrame(done));
    }
    times.sort((one, two) => one - two);
    return times[20] + 0.2;
}"""


@pytest.mark.timeout(180)
def test_ten_thousand_events_scroll_smoothly_and_can_all_be_read(
    console: Served, page: Any
) -> None:
    small, large = console.submit("many 300"), console.submit("many 10000")
    page.goto(f"{console.url}#/session/{small}")
    page.get_by_text("Turn ended: ok").wait_for()
    few = page.evaluate(FRAME_TIMES)
    elements = page.locator("#main *").count()
    page.goto(f"{console.url}#/session/{large}")
    # Only the large session has this word; the end of the small one may still be on screen.
    page.get_by_text("word 9999", exact=True).wait_for(timeout=120_000)
    page.get_by_text("Turn ended: ok").wait_for()
    many = page.evaluate(FRAME_TIMES)
    # Thirty times as many events are not slower: only the rendered window matters.
    assert many < 5 * few, (few, many)
    assert page.locator("#main *").count() < 1.5 * elements

    # Scrolling back shows earlier items, and the page does not grow.
    for _ in range(5):
        before = page.locator(".conversation > *").first.get_attribute("data-at")
        page.evaluate("window.scrollTo(0, 0)")
        page.wait_for_function(
            "before => document.querySelector('.conversation > *').dataset.at < before",
            arg=int(before),
        )
        assert page.locator(".conversation > *").count() <= 200
    page.get_by_role("button", name="Go to the beginning").click()
    page.get_by_text("word 1", exact=True).wait_for()
    assert page.get_by_label("You").inner_text().endswith("many 10000")
    # Scroll forward again.
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    page.get_by_text("word 251", exact=True).wait_for()
    page.get_by_role("button", name="Go to the end").click()
    page.get_by_text("word 9999", exact=True).wait_for()
    assert page.locator(".conversation > *").count() <= 200


def test_the_page_works_at_the_width_of_a_phone(console: Served, tabs: Tabs, shot: Shot) -> None:
    page = tabs.open(viewport={"width": 360, "height": 740})
    key = console.submit("edit")
    page.get_by_role("article", name="Edit main.py").wait_for()
    for path, name in (("#/", "inbox"), ("#/work", "work"), (f"#/session/{key}", "session")):
        page.goto(console.url + path)
        page.locator(".row.waiting" if name == "work" else ".question").wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, path
        shot(page, f"phone-{name}")


def test_a_question_can_be_answered_with_the_keyboard_alone(console: Served, page: Any) -> None:
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
    # Each in its own directory, and so with its own agent.
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
    expect(page.get_by_role("button", name="Allow all", exact=True)).to_be_disabled()
    page.get_by_role("checkbox", name="Edit main.py").uncheck()
    page.get_by_role("button", name="Allow all", exact=True).click()
    page.get_by_text("Waiting for you (1)").wait_for()
    for key in (keys[0], keys[2]):
        page.goto(f"{console.url}#/session/{key}")
        page.get_by_text("answer 1: allowed").wait_for()


def test_a_read_only_browser_sees_everything_and_changes_nothing(
    console: Served, tabs: Tabs
) -> None:
    page = tabs.browser().new_page()
    page.goto(console.new_link("--read-only"))
    console.submit("ask")
    page.get_by_role("article", name="Run the tests").wait_for()
    expect(page.locator("[data-kind=allow_once]")).to_be_disabled()
    tabs.expected.append("403")
    assert request(page, "POST", "runs", {})[0] == 403
