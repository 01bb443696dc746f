"""The peers screen in a real browser: why a peer is not used, verify, enable, disable, unpark."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from tests.console.conftest import Served, Shot, Tabs, expect, request
from tests.console.page_agent import HOLD


def card_of(page: Any, name: str) -> Any:
    return page.locator("details.peer", has=page.locator(".chip", has_text=name)).first


def test_disabling_and_enabling_a_peer_reaches_every_surface(
    console: Served, tabs: Tabs, shot: Shot
) -> None:
    page, other = tabs.open("#/peers"), tabs.open("#/peers")
    for each in (page, other):
        card_of(each, "page").get_by_text("used", exact=True).wait_for()
    card = card_of(page, "page")
    card.locator("summary").click()
    card.get_by_role("row", name="review").get_by_text("1.").wait_for()
    card.get_by_role("button", name="Disable").click()
    for each in (page, other):
        card_of(each, "page").get_by_text("not enabled", exact=True).wait_for()
    card_of(page, "page").get_by_text("Not used: it is not enabled").wait_for()
    done = console.cli.child("explain", "review", "--format", "json")
    assert '"not_enabled"' in done.out
    # Changes made by another command appear without a reload.
    assert console.cli.child("peers", "enable", "page").code == 0
    for each in (page, other):
        card_of(each, "page").get_by_text("used", exact=True).wait_for()


def test_a_verification_is_shown_step_by_step_and_stores_a_card(
    console: Served, tabs: Tabs, shot: Shot
) -> None:
    hold = console.cli.home / HOLD
    os.mkfifo(hold)
    page, other = tabs.open("#/peers"), tabs.open("#/peers")
    card = card_of(page, "page")
    card.get_by_text("not verified").wait_for()
    card.locator("summary").click()
    card.get_by_text("Not verified yet.").wait_for()
    card.get_by_label("with turns").check()
    card.get_by_role("button", name="Verify").click()
    # The other tab sees the steps too, and so does a tab opened in between.
    for each in (page, other, tabs.open("#/peers")):
        card_of(each, "page").get_by_role("row", name="handshake").wait_for()
    # Until now the agent has held back its first turn.
    with hold.open("w"):
        hold.unlink()
    for each in (page, other):
        card_of(each, "page").get_by_text("completes a turn").first.wait_for(timeout=120_000)
        card_of(each, "page").get_by_text("card: a turn completes").wait_for()
    page.evaluate("window.scrollTo(0, 0)")
    shot(page, "peers")
    shown = console.cli.child("peers", "show", "page", "--format", "json")
    assert '"echo":true' in shown.out.replace(" ", "")


def test_a_verification_can_be_stopped(console: Served, page: Any) -> None:
    # This program never answers, so the verification does not end by itself.
    silent = json.dumps([sys.executable, "-c", "import sys; sys.stdin.read()"])
    (console.cli.home / "config_home" / "peers" / "second.toml").write_text(
        f'name = "second"\ntitle = "second"\nprotocol = "acp"\n[[launch]]\ncommand = {silent}\n'
    )
    page.goto(f"{console.url}#/peers")
    card = card_of(page, "second")
    card.locator("summary").click()
    card.get_by_role("button", name="Verify").click()
    card.get_by_role("button", name="Stop verifying").click()
    card.locator(".problem", has_text="stopped").wait_for()
    expect(card.get_by_role("button", name="Verify")).to_be_enabled()


def test_a_parked_peer_shows_until_when_and_can_be_unparked(
    console: Served, tabs: Tabs, shot: Shot
) -> None:
    page, work = tabs.open("#/peers"), tabs.open("#/work")
    card_of(page, "page").get_by_text("used", exact=True).wait_for()
    failed = console.cli.child("delegate", "review", "quota now", "--no-fallback")
    assert failed.code not in (0, 2), failed.err
    # Its failed work is shown as parked: it can continue when the peer is available again.
    work.locator(".row.parked", has_text="parked until").wait_for()
    work.get_by_label("State").select_option("parked")
    expect(work.locator(".row")).to_have_count(1)
    shot(work, "work-parked")
    card = card_of(page, "page")
    card.get_by_text("parked until").first.wait_for()
    card.locator("summary").click()
    card.get_by_text("its quota is used up").first.wait_for()
    card.get_by_role("button", name="Unpark").click()
    card.get_by_text("used", exact=True).wait_for()
    work.get_by_label("State").select_option("failed")
    work.locator(".row.failed", has_text="quota now").wait_for()
    inbox = tabs.open()
    inbox.get_by_role("article", name="Failed").wait_for()


def test_the_peers_screen_fits_a_phone_and_works_with_the_keyboard_alone(
    console: Served, tabs: Tabs, shot: Shot
) -> None:
    page = tabs.open("#/peers", viewport={"width": 390, "height": 844})
    card = card_of(page, "second")
    card.locator("summary").focus()
    page.keyboard.press("Enter")
    card.get_by_role("heading", name="Health").wait_for()
    page.keyboard.press("Tab")
    expect(card.get_by_role("button", name="Disable")).to_be_focused()
    page.keyboard.press("Enter")
    card.get_by_text("not enabled", exact=True).wait_for()
    card_of(page, "page").locator("summary").click()
    card_of(page, "page").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shot(page, "phone-peers")


def test_other_machines_are_listed_and_checked_from_the_page(
    console: Served, page: Any, shot: Shot
) -> None:
    page.get_by_role("navigation").get_by_role("link", name="Peers").click()
    hosts = page.get_by_role("region", name="Other machines")
    hosts.get_by_text("dragoman hosts add BOX").wait_for()
    added = console.cli.child("hosts", "add", "box", "--destination", "me@box.example.org")
    assert added.code == 0, added.err
    box = hosts.locator("details", has_text="me@box.example.org")
    box.get_by_text("never checked").wait_for()
    box.locator("summary").click()
    box.get_by_role("button", name="Check").click()
    box.get_by_role("row", name="Python ok").wait_for()
    box.get_by_text(re.compile(r"checked \d+ s ago")).wait_for()
    box.scroll_into_view_if_needed()
    shot(page, "hosts")
    # A check that cannot connect is shown as well.
    (console.cli.home / "ssh").write_text("#!/bin/sh\necho no route to host >&2\nexit 255\n")
    box.get_by_role("button", name="Check").click()
    box.locator(".problem").wait_for()
    box.get_by_text("could not be checked").wait_for()


def test_a_read_only_browser_sees_peers_and_changes_nothing(console: Served, tabs: Tabs) -> None:
    page = tabs.browser().new_page()
    page.goto(console.new_link("--read-only"))
    page.get_by_role("navigation").get_by_role("link", name="Peers").click()
    card = card_of(page, "page")
    card.locator("summary").click()
    card.get_by_role("heading", name="Roles").wait_for()
    assert card.get_by_role("button").count() == 0
    tabs.expected.append("403")
    for word in ("verify", "enable", "disable", "unpark"):
        assert request(page, "POST", f"peers/page/{word}", {})[0] == 403, word
