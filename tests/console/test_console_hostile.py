"""Hostile text from agents, peer descriptors and file names in a real browser: it is shown as text,
has no effect and does not make the page unusable."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from dragoman.store.ledger import AttemptRecord, Ending, Ledger, ledger_path
from dragoman.store.values import Charge, Provenance
from tests.conformance import codex, codex_server
from tests.console.conftest import Served, Shot, Tabs, expect
from tests.console.page_agent import HOSTILE, HOSTILE_MARKDOWN, HOSTILE_NAME, PILE
from tests.integration.cli_shell import Cli
from tests.unit.delegation.worktree.repositories import commit_all, git


def harmless(page: Any, *, charts: bool = False, hidden: bool = True) -> None:
    """Assert that no text from an agent became markup or a script."""
    assert page.evaluate("window.hacked") is None
    for element in ("img", "iframe", "form[action]", "#main script", "#main link", "object"):
        assert page.locator(element).count() == 0, element
    assert page.locator("svg" if not charts else "svg:not(.chart svg)").count() == 0
    assert page.locator("[onerror], [onload], [onclick], [srcdoc]").count() == 0
    assert page.locator("#main a[href^='javascript'], #main a[href^='data']").count() == 0
    text = page.evaluate("""() => [
        document.title,
        document.body.textContent,
        ...[...document.querySelectorAll("[title], [aria-label], [placeholder]")].flatMap((each) =>
            ["title", "aria-label", "placeholder"].map((name) => each.getAttribute(name) ?? "")),
    ].join(" ")""")
    assert "\u202e" not in text and "\u200b" not in text and "\x1b" not in text
    assert ("⟨U+202E⟩" in text) == hidden
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def _folder(cli: Cli, name: str) -> Path:
    folder = cli.cwd / name
    folder.mkdir()
    return folder


def _go(page: Any, name: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=name).click()


def _open_all(page: Any) -> None:
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


def test_output_of_an_agent_stays_text(console: Served, page: Any, shot: Shot) -> None:
    key = console.submit("hostile", "--cwd", str(_folder(console.cli, "one")))
    page.get_by_label("Command").wait_for()
    assert "<script>" in page.get_by_label("Command").inner_text()
    harmless(page)
    shot(page, "hostile")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("onerror").first.wait_for()
    _open_all(page)
    harmless(page)
    page.locator("[data-kind=reject_once]").click()
    page.get_by_text("Turn ended").wait_for()
    harmless(page)
    assert len(page.locator("h1").inner_text()) < 400


def test_no_part_of_a_requested_action_can_be_hidden(console: Served, page: Any) -> None:
    console.submit("hide", "--cwd", str(_folder(console.cli, "one")))
    card = page.get_by_role("article", name="Write notes")
    command = card.get_by_label("Command")
    shown = "echo '⟨U+001B⟩]'; rm -rf ~⟨U+001B⟩[;m\nrm -rf 'a b'"
    assert command.inner_text() == shown
    assert card.get_by_label("Paths").inner_text() == "/etc/passwd"
    assert card.locator("figcaption").inner_text() == "/tmp/notes.md (the whole file)"
    # The letters of a command keep their order, whatever their script.
    assert command.evaluate("each => getComputedStyle(each).unicodeBidi") == "bidi-override"
    card.locator("[data-kind=reject_once]").click()
    page.get_by_text("Waiting for you (0)").wait_for()
    # A command that is only in the title is shown to its end, which the heading does not do.
    console.submit("titled", "--cwd", str(_folder(console.cli, "two")))
    title = page.get_by_role("article", name="make x").get_by_label("Title")
    assert title.inner_text().endswith(" && reboot")
    assert page.get_by_text("The agent does not say").count() == 0


def test_what_does_not_fit_in_its_box_or_in_a_question_is_announced(
    console: Served, page: Any
) -> None:
    console.submit("far")
    card = page.get_by_role("article", name="List")
    card.get_by_text(
        "There is more: scroll in the box above to see all of it (101 lines)."
    ).wait_for()
    card.get_by_text("1 more path is not shown.").wait_for()
    assert card.get_by_label("Paths").get_by_role("listitem").count() == 200
    card.locator("[data-kind=reject_once]").click()
    page.get_by_text("Waiting for you (0)").wait_for()


def test_marks_that_pile_up_on_a_letter_do_not_cover_other_text(console: Served, page: Any) -> None:
    key = console.submit("marks")
    command = page.get_by_label("Command")
    shown = "Z" + PILE[:6] + "⟨U+0301⟩⟨U+0323⟩" * 197
    assert command.inner_text() == shown
    page.locator("[data-kind=reject_once]").click()
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_label("Agent").get_by_text(shown).wait_for()


def test_a_session_with_hundreds_of_questions_leaves_the_inbox_usable(
    console: Served, page: Any
) -> None:
    key = console.submit("crowd 500", "--cwd", str(_folder(console.cli, "one")))
    page.get_by_text("Waiting for you (500)").wait_for()
    console.submit("ask", "--cwd", str(_folder(console.cli, "two")))
    page.get_by_text("Waiting for you (501)").wait_for()
    page.get_by_text("480 more: at most 20 questions of one session").wait_for()
    assert page.get_by_role("article").count() == 21
    page.get_by_role("article", name="Run the tests").locator("[data-kind=allow_once]").click()
    page.get_by_text("Waiting for you (500)").wait_for()
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_role("article").nth(19).wait_for()
    page.get_by_text("480 more questions follow.").wait_for()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("Turn ended: cancelled").wait_for()
    assert page.get_by_role("article").count() == 0


def test_a_question_with_very_many_changed_lines_leaves_the_page_usable(
    console: Served, page: Any
) -> None:
    console.submit("rewrite 100")
    card = page.get_by_role("article", name="Rewrite")
    card.wait_for()
    assert card.locator("figure").count() == 10
    assert card.get_by_text("There is more: scroll in the box above").count() == 10
    assert page.evaluate("document.querySelectorAll('*').length") < 5000
    first = card.locator("figure").first
    assert "n 899" not in first.inner_text()
    first.get_by_role("button", name="Show 1600 more lines").click()
    first.get_by_text("n 899").wait_for()
    # Every changed file is named, and its lines can be read.
    card.locator("summary", has_text="/tmp/file-99").click()
    card.locator("figure", has_text="/tmp/file-99").get_by_text("o 0").wait_for()


def test_a_session_with_very_many_long_messages_and_changes_leaves_the_page_usable(
    console: Served, page: Any
) -> None:
    key = console.submit("flood 20")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    assert page.evaluate("document.querySelectorAll('*').length") < 12_000
    # Everything can be read.
    last = page.get_by_label("Agent").last
    assert "- `item` 999" in last.text_content()
    last.get_by_role("button", name="Format the rest").click()
    last.locator("li", has_text="item 999").wait_for()
    page.locator("summary", has_text="Edit 19").click()
    page.locator("figure").get_by_role("button", name="more lines").click()
    page.locator("figure").get_by_text("n 899").wait_for()


def test_hostile_forms_failures_and_names_stay_text(console: Served, page: Any) -> None:
    console.submit("hostile-form", "--cwd", str(_folder(console.cli, "one")))
    console.submit("hostile-failure", "--cwd", str(_folder(console.cli, f"two {HOSTILE_NAME}")))
    page.locator(".question form").wait_for()
    page.get_by_text("Failed:").first.wait_for()
    harmless(page)
    page.locator(".ended").get_by_role("link", name="Open").click()
    page.get_by_text("Turn ended").wait_for()
    harmless(page)
    _go(page, "Work")
    page.locator(".row", has_text="failed").wait_for()
    harmless(page)
    _go(page, "Inbox")
    page.get_by_role("button", name="Decline").click()
    page.get_by_text("Waiting for you (0)").wait_for()


def test_a_form_with_fields_named_like_form_properties_can_be_answered(
    console: Served, page: Any
) -> None:
    key = console.submit("clobber-form")
    for name in ("elements", "submit", "children"):
        page.get_by_label(name).fill(f"my {name}")
    page.get_by_role("button", name="Answer").click()
    page.get_by_text("Waiting for you (0)").wait_for()
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("'elements': 'my elements', 'submit': 'my submit'").wait_for()


def test_the_address_of_a_link_is_shown_as_the_browser_understands_it(
    console: Served, page: Any
) -> None:
    # The second letter is Cyrillic.
    key = console.submit("[code](https://g\u0456thub.com/x) [none](https://[/x)")
    page.goto(f"{console.url}#/session/{key}")
    agent = page.get_by_label("Agent")
    agent.get_by_text("(https://xn--gthub-n2e.com/x)").wait_for()
    assert agent.get_by_role("link").count() == 1
    assert "[none](https://[/x)" in agent.inner_text()


def test_pathological_markdown_renders_without_delay(console: Served, page: Any) -> None:
    key = console.submit("hostile-markdown")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    expect(page.get_by_label("Agent")).to_have_count(len(HOSTILE_MARKDOWN))
    page.get_by_text("the last of them").wait_for()
    assert page.get_by_text("This cannot be shown").count() == 0
    _go(page, "Work")
    page.locator(".row", has_text="done").wait_for()


def test_an_undecodable_address_shows_an_error(console: Served, tabs: Tabs) -> None:
    tabs.expected.append("404")
    page = tabs.open()
    for screen, words in (("session", "There is no session"), ("review", "there is no session")):
        page.goto(f"{console.url}#/{screen}/%E0%A4%A")
        page.get_by_text(words).first.wait_for()
        page.reload()
        page.get_by_text(words).first.wait_for()


def test_terminal_output_and_session_names_stay_text(
    console: Served, tabs: Tabs, tmp_path: Path
) -> None:
    output = codex.tell(
        "item/commandExecution/outputDelta", **codex.about(), itemId="c1", delta=HOSTILE
    )
    ran = {"type": "commandExecution", "id": "c1", "command": HOSTILE, "cwd": "/w"}
    steps = [
        codex.item("started", **ran, status="inProgress"),
        output,
        codex.item("completed", **ran, status="completed", exitCode=0),
    ]
    program = [sys.executable, "-I", "-S", codex_server.__file__, str(tmp_path / "wire.jsonl")]
    command = json.dumps([*program, json.dumps(codex.turns(steps))])
    home = console.cli.home / "config_home"
    (home / "peers" / "terminal.toml").write_text(
        'name = "terminal"\ntitle = "Terminal"\nprotocol = "codex"\n'
        f"[[launch]]\ncommand = {command}\n"
    )
    config = home / "config.toml"
    config.write_text(config.read_text().replace('"second"]', '"second", "terminal"]'))
    # Invisible characters are not allowed in a name.
    assert console.cli.child("run", "terminal", "go on", "--session", HOSTILE_NAME).code == 2
    name = HOSTILE_NAME.partition(" \u202e")[0]
    done = console.cli.child("run", "terminal", "go on", "--session", name)
    assert done.code == 0, done.err
    page = tabs.open("#/work")
    page.locator(".row", has_text="onerror").get_by_role("link").click()
    page.locator("summary", has_text="completed").wait_for()
    _open_all(page)
    assert "<script>" in page.get_by_label("Output").inner_text()
    harmless(page)
    for screen in ("Work", "Review"):
        _go(page, screen)
        page.get_by_role("heading", name=screen, exact=True).wait_for()
        page.get_by_text("onerror").first.wait_for()
        harmless(page, hidden=False)


def test_file_names_diffs_comments_and_checks_stay_text_in_the_review(
    console: Served, page: Any
) -> None:
    folder = console.cli.cwd
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("GO\n")
    commit_all(folder)
    config = console.cli.home / "config_home" / "config.toml"
    printed = console.cli.home / "printed"
    printed.write_text(HOSTILE)
    config.write_text(config.read_text() + f'check = "cat {printed}; false"\n')
    key = console.submit("hostile-change")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("Turn ended: ok").wait_for()
    page.goto(f"{console.url}#/review/{key}")
    for source in ("workspace", "reported"):
        # The files of both look alike, so the page must have got those of this source.
        with page.expect_response(lambda answer: f"source={source}" in answer.url):  # noqa: B023
            page.get_by_role("combobox", name="Changes").select_option(source)
        page.locator("details.file", has_text="onerror").first.wait_for()
        page.locator("tr.added .code", has_text="<script>").first.wait_for()
        harmless(page)
    page.get_by_label("View").select_option("split")
    page.locator("td.code.added", has_text="<script>").first.wait_for()
    harmless(page)
    page.get_by_role("button", name="Comment on added line 1").first.click()
    page.get_by_label("Comment on line 1").fill(HOSTILE)
    page.keyboard.press("Control+Enter")
    page.get_by_text("Comments (1)").wait_for()
    page.get_by_role("button", name="Run in the workspace").click()
    page.get_by_text("exit code 1").wait_for()
    assert "<script>" in page.get_by_label("Output of the check").inner_text()
    harmless(page)
    page.get_by_role("button", name="Send 1 comment as one prompt").click()
    page.get_by_label("Agent").get_by_text("You said:").wait_for()
    harmless(page)


def test_peer_descriptors_and_errors_stay_text(console: Served, tabs: Tabs) -> None:
    home = console.cli.home / "config_home"
    text = json.dumps(f"\u202e{HOSTILE}")
    script = console.cli.home / "evil.sh"
    script.write_text(f"cat >&2 <<'END'\n{HOSTILE}\nEND\nexit 3\n")
    (home / "peers" / "evil.toml").write_text(
        f'name = "evil"\ntitle = {text}\nnotes = {text}\nprotocol = "acp"\nroles = ["review"]\n'
        f'[[launch]]\ncommand = ["sh", "{script}"]\n[install]\nhint = {text}\n'
        f"[credentials]\nlogin = {text}\n"
    )
    config = home / "config.toml"
    config.write_text(config.read_text().replace('"second"]', '"second", "evil"]'))
    page = tabs.open("#/peers")
    card = page.locator("details.peer", has=page.locator(".chip", has_text="evil"))
    card.wait_for()
    harmless(page)
    card.locator("summary").click()
    card.get_by_role("heading", name="Facts").wait_for()
    harmless(page)
    card.get_by_role("button", name="Verify").click()
    card.get_by_role("row", name="handshake").first.wait_for()
    # Only now: before the first step the button may not be there yet.
    card.get_by_role("button", name="Stop verifying").wait_for(state="detached")
    harmless(page)
    # The reason for parking a peer also comes from the agent.
    assert console.cli.child("delegate", "review", "hostile-quota", "--no-fallback").code != 0
    parked = page.locator("details.peer", has=page.locator(".chip", has_text="page"))
    parked.get_by_text("parked until").first.wait_for()
    parked.locator("summary").click()
    parked.get_by_role("heading", name="Health").wait_for()
    harmless(page)


def test_costs_that_are_hardly_numbers_leave_the_ledger_readable(
    console: Served, tabs: Tabs
) -> None:
    now = time.time()
    costs = [("USD", 5e-324), ("EUR", 1e308), ("EUR", 1e308), ("constructor", 0.5)]
    costs += [("__proto__", 0.5), ("toString", 0.5), ("x" * 50, 0.5)]
    with Ledger.open(ledger_path(console.cli.home / "state_home")) as ledger:
        for number, (currency, amount) in enumerate(costs):
            record = AttemptRecord(
                job=f"j-{number}",
                decision_id=f"d-{number}",
                number=1,
                peer=f"peer-{number}",
                role="review",
                started_at=now - 60,
            )
            cost = Charge(amount=amount, currency=currency, provenance=Provenance.REPORTED)
            id = ledger.begin(f"d-{number}", {}, record)
            ledger.finish(id, Ending(ended_at=now, outcome="ok", cost=cost))
    page = tabs.open("#/ledger")
    for by in ("day", "role", "peer"):
        page.get_by_role("combobox", name="By").select_option(by)
        page.get_by_role("region", name=f"Numbers by {by}").get_by_text("constructor").wait_for()
        expect(page.get_by_role("region", name="Spend in")).to_have_count(4)
        page.get_by_text("2 other units are in the table only.").first.wait_for()


def test_names_in_the_ledger_stay_text(console: Served, tabs: Tabs) -> None:
    now = time.time()
    with Ledger.open(ledger_path(console.cli.home / "state_home")) as ledger:
        for number, name in enumerate((HOSTILE_NAME, HOSTILE, "x" * 100_000)):
            record = AttemptRecord(
                job=f"j-{number}",
                decision_id=f"d-{number}",
                number=1,
                peer=name,
                role=name,
                started_at=now - 60,
            )
            cost = Charge(amount=0.5, currency=name[:40], provenance=Provenance.REPORTED)
            id = ledger.begin(f"d-{number}", {}, record)
            ledger.finish(id, Ending(ended_at=now, outcome="ok", cost=cost))
    page = tabs.open("#/ledger")
    page.get_by_role("img", name="Outcomes").wait_for()
    for by in ("role", "peer"):
        page.get_by_role("combobox", name="By").select_option(by)
        page.get_by_role("region", name=f"Numbers by {by}").get_by_text("onerror").first.wait_for()
        harmless(page, charts=True)
