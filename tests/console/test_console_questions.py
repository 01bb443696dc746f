"""Questions of every run reach the inbox: without a broker, from an MCP host, with a form."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.console.conftest import TIMEOUT, Served, Shot, Tabs, expect, request, wait_until
from tests.integration.cli_shell import Cli


@contextmanager
def program(cli: Cli, *words: str, stdin: int = subprocess.DEVNULL) -> Iterator[Any]:
    """Run a command without a terminal, which cannot ask the user."""
    process = subprocess.Popen(  # noqa: TID251 - a test's own child, ended below
        cli.argv(*words),
        cwd=cli.cwd,
        env=cli.env,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: Any) -> str:
    out: str
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    return out


def sockets(cli: Cli) -> list[str]:
    folders = [each for each in cli.home.rglob("questions") if each.is_dir()]
    return [each.name for folder in folders for each in folder.iterdir()]


@pytest.mark.parametrize("way", [("--cold",), ()], ids=["cold", "warm"])
def test_a_run_without_a_terminal_is_answered_in_the_inbox(
    console: Served, page: Any, way: tuple[str, ...]
) -> None:
    words = ("run", "page", "ask it", *way)
    with program(console.cli, *words) as process:
        card = page.get_by_role("article", name="Run the tests")
        card.wait_for()
        assert card.get_by_label("Command").inner_text() == "make it"
        card.locator("[data-kind=allow_once]").click()
        card.wait_for(state="detached")
        assert "answer 1: allowed" in ended(process)
    assert sockets(console.cli) == []


def test_a_cold_run_in_a_terminal_asks_there_and_in_all_tabs(console: Served, tabs: Tabs) -> None:
    one, two = tabs.open(), tabs.open()
    for answer in ("terminal", "page"):
        with console.cli.terminal("run", "page", "ask", "--cold") as terminal:
            terminal.expect("allow? [y")
            for page in (one, two):
                page.get_by_role("article", name="Run the tests").wait_for()
            if answer == "terminal":
                terminal.type("y\n")
            else:
                one.locator("[data-kind=allow_once]").click()
            terminal.expect("answer 1: allowed")
            for page in (one, two):
                page.get_by_role("article", name="Run the tests").wait_for(state="detached")
            assert terminal.wait() == 0


def test_a_killed_cold_run_leaves_no_question_behind(console: Served, page: Any) -> None:
    with program(console.cli, "run", "page", "ask", "--cold") as process:
        card = page.get_by_role("article", name="Run the tests")
        card.wait_for()
        process.kill()
        card.wait_for(state="detached")
    # The socket of the dead run does not get in the way of the next question.
    with program(console.cli, "run", "page", "ask", "--cold") as process:
        card.locator("[data-kind=reject_once]").click()
        out, err = process.communicate(timeout=TIMEOUT)
        assert "answer 1: refused" in out, err
    # The console removes the socket of the dead run after several attempts to reach it.
    wait_until(lambda: sockets(console.cli) == [], lambda: sockets(console.cli))


@pytest.mark.parametrize("warm", ["1", "0"], ids=["warm", "cold"])
def test_a_question_from_an_mcp_host_is_answered_in_the_inbox(
    console: Served, page: Any, warm: str
) -> None:
    console.cli.extra["DRAGOMAN_WARM"] = warm
    with program(console.cli, "serve", "mcp", stdin=subprocess.PIPE) as process:

        def send(message: dict[str, Any]) -> None:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()

        def answer_to(number: int) -> Any:
            for line in process.stdout:
                message = json.loads(line)
                if message.get("id") == number:
                    return message["result"]
            raise AssertionError("no answer")

        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        hello["clientInfo"] = {"name": "test", "version": "1"}
        send({"id": 1, "method": "initialize", "params": hello})
        answer_to(1)
        send({"method": "notifications/initialized"})
        arguments = {"peer": "page", "prompt": "ask host", "workspace": str(console.cli.cwd)}
        send({"id": 2, "method": "tools/call", "params": {"name": TOOL, "arguments": arguments}})
        card = page.get_by_role("article", name="Run the tests")
        card.wait_for()
        assert card.get_by_label("Command").inner_text() == "make host"
        card.locator("[data-kind=allow_once]").click()
        assert "answer 1: allowed" in json.dumps(answer_to(2))
        card.wait_for(state="detached")


TOOL = "ask_peer"


def fill(card: Any) -> None:
    card.get_by_label("Version").fill("1.2")
    card.get_by_label("Channel").select_option("next")
    card.get_by_label("Signed").check()
    card.get_by_label("Copies").fill("3")
    card.get_by_role("button", name="Answer").click()
    card.get_by_text("Parts: choose at least 1").wait_for()
    for part in ("code", "tests"):
        card.get_by_role("checkbox", name=part).check()
    card.get_by_role("button", name="Answer").click()
    card.wait_for(state="detached")


CHOSEN = (
    "you chose {'channel': 'next', 'copies': 3, 'parts': ['code', 'tests'], "
    "'signed': True, 'version': '1.2'}"
)


def test_a_form_is_completed_in_the_inbox(console: Served, page: Any, shot: Shot) -> None:
    key = console.submit("form")
    card = page.get_by_role("article", name="Which release?")
    card.wait_for()
    shot(page, "form")
    # Nothing is sent while a required field is empty.
    card.get_by_role("button", name="Answer").click()
    assert card.count() == 1
    fill(card)
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text(CHOSEN).wait_for()


def test_form_input_is_kept_when_the_page_renders_again(console: Served, page: Any) -> None:
    console.submit("form")
    card = page.get_by_role("article", name="Which release?")
    card.get_by_label("Version").fill("1.2")
    card.get_by_label("Signed").check()
    # The age of the question changes with each new rendering.
    for _ in range(2):
        shown = card.locator(".about").inner_text()
        expect(card.locator(".about")).not_to_have_text(shown, use_inner_text=True)
    assert card.get_by_label("Version").input_value() == "1.2"
    assert card.get_by_label("Signed").is_checked()
    card.get_by_role("button", name="Decline").click()
    card.wait_for(state="detached")


def test_a_form_of_a_cold_run_is_answered_or_declined(console: Served, page: Any) -> None:
    card = page.get_by_role("article", name="Which release?")
    with program(console.cli, "run", "page", "form", "--cold") as process:
        card.wait_for()
        fill(card)
        assert CHOSEN in ended(process)
    with program(console.cli, "run", "page", "form", "--cold") as process:
        card.get_by_role("button", name="Decline").click()
        assert "you declined" in ended(process)


@pytest.mark.parametrize("way", [("--cold",), ()], ids=["cold", "warm"])
def test_an_answer_can_apply_to_the_whole_session(
    console: Served, page: Any, way: tuple[str, ...]
) -> None:
    with program(console.cli, "run", "page", "twice", *way) as process:
        page.get_by_role("button", name="Allow always in this session").click()
        out = ended(process)
    assert "answer 1: allowed" in out and "answer 2: allowed" in out
    page.get_by_text("Waiting for you (0)").wait_for()


def test_an_answer_for_the_whole_session_applies_to_later_turns(console: Served, page: Any) -> None:
    key = console.submit("twice")
    page.get_by_role("button", name="Allow always in this session").click()
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("answer 2: allowed").wait_for()
    page.get_by_label("Prompt").fill("twice")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("answer 2: allowed").nth(1).wait_for()
    assert page.locator(".question").count() == 0


def test_a_double_click_answers_only_the_question_it_was_meant_for(
    console: Served, page: Any
) -> None:
    for name in ("a", "b", "c"):
        (console.cli.cwd / name).mkdir()
        console.submit("ask", "--cwd", str(console.cli.cwd / name))
    page.get_by_text("Waiting for you (3)").wait_for()
    sent: list[str] = []
    page.on("request", lambda each: sent.append(each.url) if each.method == "POST" else None)
    settled = page.locator("[data-kind=allow_once]:not([aria-disabled])")
    settled.nth(2).wait_for()
    box = settled.first.bounding_box()
    at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(*at)
    page.get_by_text("Waiting for you (2)").wait_for()
    # The next question has moved up and is now under the pointer.
    assert page.evaluate("at => document.elementFromPoint(...at).dataset.kind", at) == "allow_once"
    page.mouse.click(*at)
    settled.nth(1).wait_for()
    assert len(sent) == 1
    # A key is meant for the button that has the focus.
    settled.first.focus()
    page.keyboard.press("Enter")
    page.get_by_text("Waiting for you (1)").wait_for()
    assert page.evaluate("document.activeElement.id") == "open-title"
    page.mouse.click(*at)
    page.mouse.move(0, 0)
    settled.wait_for()
    assert len(sent) == 2
    settled.click()
    page.get_by_text("Waiting for you (0)").wait_for()


def test_several_answers_of_which_one_fails_say_so(console: Served, tabs: Tabs) -> None:
    page = tabs.open()
    tabs.expected.append("409")
    for name in ("a", "b"):
        (console.cli.cwd / name).mkdir()
        console.submit("ask", "--cwd", str(console.cli.cwd / name))
    page.get_by_role("checkbox").nth(1).wait_for()
    first = request(page, "GET", "inbox")[1]["questions"][0]["id"]
    # Another browser was faster.
    told = json.dumps(
        {"error": "question_settled", "message": "this question was already answered or cancelled"}
    )
    page.route(
        f"**/questions/{first}/answer",
        lambda route: route.fulfill(status=409, body=told, content_type="application/json"),
    )
    for number in range(2):
        page.get_by_role("checkbox").nth(number).check()
    page.get_by_role("button", name="Refuse all").click()
    page.get_by_text("1 of 2 answered: this question was already answered or cancelled").wait_for()


def test_an_answer_with_the_wrong_digest_is_refused(console: Served, tabs: Tabs) -> None:
    """A page that shows an outdated question, or lies about what it shows, cannot answer it."""
    page, other = tabs.open(), tabs.open()
    tabs.expected.append("400")
    key = console.submit("ask")
    card = page.get_by_role("article", name="Run the tests")
    card.wait_for()

    def change_digest(route: Any) -> None:
        sent = route.request.post_data_json
        assert sent["digest"] and sent["option"]
        route.continue_(post_data=json.dumps(sent | {"digest": "0" * 64}))

    page.route("**/answer", change_digest)
    card.locator("[data-kind=allow_once]").click()
    page.get_by_text("the question is not the one that was shown").wait_for()
    assert card.count() == 1
    other.get_by_role("article", name="Run the tests").wait_for()
    # The question is still open: the other tab can answer it.
    other.locator("[data-kind=reject_once]").click()
    card.wait_for(state="detached")
    page.goto(f"{console.url}#/session/{key}")
    page.get_by_text("answer 1: refused").wait_for()


def test_an_answer_counts_once_and_only_for_its_own_question(console: Served, tabs: Tabs) -> None:
    """One tab answers. Another repeats the answer, and sends it for a different question."""
    page, other = tabs.open(), tabs.open()
    tabs.expected += ["409", "400"]
    folder = console.cli.cwd / "b"
    folder.mkdir()
    first = console.submit("ask one")
    # Questions are listed in the order in which they were asked.
    page.get_by_role("article", name="Run the tests").wait_for()
    second = console.submit("ask two", "--cwd", str(folder))
    for tab in (page, other):
        tab.get_by_role("article", name="Run the tests").nth(1).wait_for()
    one, two = request(other, "GET", "inbox")[1]["questions"]
    assert one["digest"] != two["digest"] and one["id"] != two["id"]
    option = next(each["id"] for each in one["options"] if each["kind"] == "allow_once")

    def send(id: str, digest: str, option: str) -> int:
        sent = {"digest": digest, "option": option}
        return request(other, "POST", f"questions/{id}/answer", sent)[0]

    # The digest of one question does not answer the other.
    assert send(two["id"], one["digest"], option) == 400
    assert send(one["id"], two["digest"], option) == 400
    assert send(one["id"], one["digest"], "no-such-option") == 400
    expect(other.get_by_role("article", name="Run the tests")).to_have_count(2)
    page.get_by_role("article", name="Run the tests").first.locator(
        "[data-kind=reject_once]"
    ).click()
    other.get_by_text("Waiting for you (1)").wait_for()
    assert send(one["id"], one["digest"], option) == 409
    other.locator("[data-kind=allow_once]").click()
    other.get_by_text("Waiting for you (0)").wait_for()
    for key, word in ((first, "refused"), (second, "allowed")):
        page.goto(f"{console.url}#/session/{key}")
        page.get_by_text(f"answer 1: {word}").wait_for()
