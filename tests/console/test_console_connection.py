"""The login of a browser and its connection to the console: lost, silent, restarted and revoked."""

from __future__ import annotations

from typing import Any

from tests.console.conftest import Served, Tabs, expect, release, serving
from tests.integration.cli_shell import Cli


def test_reloading_and_reconnecting_in_mid_turn_loses_nothing(console: Served, tabs: Tabs) -> None:
    sockets: list[Any] = []
    context = tabs.browser()
    context.route_web_socket(
        "**/api/v1/events", lambda socket: sockets.append((socket, socket.connect_to_server()))
    )
    page = context.new_page()
    page.goto(console.new_link())
    key = console.submit("stream")
    page.get_by_text("connected", exact=True).wait_for()
    page.goto(f"{console.url}#/session/{key}")
    page.locator("strong", has_text="bold").wait_for()
    page.reload()
    page.locator("strong", has_text="bold").wait_for()
    # The network goes away, the turn continues meanwhile, and the network comes back.
    tabs.expected.append("ERR_INTERNET_DISCONNECTED")
    context.set_offline(True)
    for each in sockets[-1]:
        each.close()
    page.get_by_text("connecting").wait_for()
    release(console)
    context.set_offline(False)
    page.get_by_text("and the end.").wait_for()
    assert len(sockets) == 3
    page.get_by_text("Turn ended: ok").wait_for()
    expect(page.get_by_text("First bold words")).to_have_count(1)
    expect(page.get_by_label("You")).to_have_count(1)


def test_a_connection_that_is_silent_after_a_sleep_is_replaced(console: Served, tabs: Tabs) -> None:
    asleep = False
    sockets: list[Any] = []

    def route(socket: Any) -> None:
        first = not sockets
        sockets.append(socket)
        server = socket.connect_to_server()
        # The first connection stays open, but nothing arrives any more.
        server.on_message(lambda data: None if first and asleep else socket.send(data))

    context = tabs.browser()
    context.route_web_socket("**/api/v1/events", route)
    page = context.new_page()
    page.clock.install()
    page.goto(console.new_link())
    page.get_by_text("connected", exact=True).wait_for()
    page.clock.fast_forward(40_000)
    asleep = True
    console.submit("ask")
    assert len(sockets) == 1
    page.clock.fast_forward(60_000)
    page.get_by_role("article", name="Run the tests").wait_for()
    assert len(sockets) == 2
    page.get_by_text("connected", exact=True).wait_for()


def test_restarting_the_console_loses_nothing(browser: Any, cli: Cli) -> None:
    with serving(cli) as first:
        port = first.url.rstrip("/").rpartition(":")[2]
        tabs = Tabs(browser, first)
        page = tabs.open()
        key = first.submit("stream")
        (cli.cwd / "other").mkdir()
        asked = first.submit("ask", "--cwd", str(cli.cwd / "other"))
        page.get_by_role("article", name="Run the tests").wait_for()
        page.goto(f"{first.url}#/session/{key}")
        page.locator("strong", has_text="bold").wait_for()
    page.get_by_text("connecting").wait_for()
    (cli.cwd / "GO").write_text("go\n")
    with serving(cli, listen=f"127.0.0.1:{port}") as second:
        page.get_by_text("Turn ended: ok").wait_for()
        expect(page.get_by_text("First bold words")).to_have_count(1)
        # The question is still open.
        page.goto(f"{second.url}#/session/{asked}")
        page.locator("[data-kind=allow_once]").click()
        page.get_by_text("answer 1: allowed").wait_for()
        page.context.close()
    assert all("ERR_CONNECTION_REFUSED" in each for each in tabs.problems), tabs.problems


def test_a_browser_without_a_link_gets_no_data(console: Served, tabs: Tabs) -> None:
    tabs.expected.append("401")
    page = tabs.browser().new_page()
    page.goto(console.url)
    page.get_by_text("not logged in").wait_for()
    # A link works once.
    page.goto(console.link)
    page.get_by_text("connected", exact=True).wait_for()
    other = tabs.browser().new_page()
    other.goto(console.link)
    other.get_by_text("this link was already used").wait_for()


def test_a_link_is_tried_again_if_the_server_cannot_be_reached(console: Served, tabs: Tabs) -> None:
    tabs.expected.append("ERR_FAILED")
    page = tabs.browser().new_page()
    page.route("**/login", lambda route: route.abort(), times=1)
    page.goto(console.new_link())
    page.get_by_text("connected", exact=True).wait_for()
    assert "token" not in page.url


def test_a_session_that_cannot_be_loaded_is_not_reported_as_missing(
    console: Served, tabs: Tabs
) -> None:
    tabs.expected += ["ERR_FAILED", "404"]
    page = tabs.open()
    page.route("**/api/v1/sessions/*", lambda route: route.abort())
    page.goto(f"{console.url}#/session/unknown")
    page.get_by_role("alert").get_by_text("The console cannot be reached. Trying again").wait_for()
    missing = page.locator(".empty", has_text="There is no session unknown.")
    assert missing.count() == 0
    # The page tries again by itself.
    page.unroute("**/api/v1/sessions/*")
    missing.wait_for()


def test_a_revoked_browser_is_logged_out_immediately(console: Served, tabs: Tabs) -> None:
    tabs.expected += ["401", "403"]
    page = tabs.open()
    assert console.cli.child("console", "tokens", "revoke", "all").code == 0
    page.get_by_text("not logged in").wait_for()
