"""What a person sees on the screen of a terminal: the status line, Markdown, the plan, a clean end.

A terminal emulator draws what the command writes. In a pipe, without colours and on a dumb terminal
the output is plain.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.output.live_area import STATUS_DELAY
from tests.integration.cli_shell import Cli, cli_in, warm_cli
from tests.integration.delegated_peers import add_peer
from tests.integration.pty_screen import PtyScreen, make
from tests.integration.pty_terminal import CTRL_C, CTRL_D, ROWS

AGENT = str(Path(__file__).with_name("staged_agent.py"))

MARKDOWN = """# The *answer*

A paragraph with **bold words that are in the middle of a line which has to be wrapped** and
`code` and [a link](https://example.org/page) and snake_case_names, 2**3**4 and "quotes".

- one item that is long enough that it has to be wrapped, below its own first word
  - nested
1. numbered

> quoted

```python
def add(a, b):
    return a + b  # **not bold**
```

| name | what it is |
|:-----|-----------:|
| `add` | adds two numbers, which is a long description |
| 漢字 | two wide characters |

Done 👍.
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def command(cli: Cli, *acts: dict[str, Any]) -> tuple[str, ...]:
    return ("run", json.dumps(acts), "--", sys.executable, AGENT, str(cli.home))


@contextmanager
def screen_of(cli: Cli, *words: str, columns: int = 80, rows: int = ROWS) -> Iterator[PtyScreen]:
    with cli.terminal(*words, columns=columns, rows=rows) as terminal:
        yield PtyScreen(terminal, columns, rows)


def gate(cli: Cli, name: str) -> str:
    # Not in the workspace: a file that appears there in a turn is reported.
    return str(cli.home / name)


def widest(screen: PtyScreen) -> int:
    return max(len(row) for row in screen.rows)


def without_times(rows: list[str]) -> list[str]:
    """The rows without the id of the job and the seconds."""
    return [row for row in rows if not row.startswith(("dragoman: job", "[done]"))]


# -- the status line


def test_the_status_says_what_is_waited_for_and_is_gone_at_the_end(cli: Cli) -> None:
    start, go, on = gate(cli, "start"), gate(cli, "go"), gate(cli, "on")
    acts = [{"wait": go}, {"spent": 0.25}, {"tool": ["pytest -q", on]}, {"say": "All is well."}]
    late = f'while [ ! -e {start} ]; do sleep 0.05; done; exec "$@"'
    words = ("run", json.dumps(acts), "--", "sh", "-c", late, "sh", sys.executable, AGENT)
    with screen_of(cli, *words) as screen:
        # On a busy machine the first second may not be drawn.
        text = screen.until("… starting sh, ")
        assert re.fullmatch(r"… starting sh, \d+ s.*", text)
        make(start)
        screen.until("… thinking, ")
        make(go)
        text = screen.until("… running pytest -q, ")
        assert text.splitlines()[-1].startswith("… running")
        assert "0.2500 USD" in text and "[tool] pytest -q (execute)" in text
        make(on)
        assert screen.end() == 0
        assert "…" not in screen.text and "thinking" not in screen.text
        assert screen.rows[-3:-1] == ["All is well.", ""]
        assert screen.rows[-1].startswith("[done] ok, ")


def test_an_agent_that_is_killed_leaves_no_status(cli: Cli) -> None:
    go = gate(cli, "go")
    with screen_of(cli, *command(cli, {"say": "half a "}, {"wait": go}, {"die": 3})) as screen:
        screen.until("half a\n… answering")
        make(go)
        assert screen.end() == 1
        assert "…" not in screen.text
        assert "half a" in screen.rows and "[ended] crashed" in screen.text


def test_a_command_that_cannot_be_started_leaves_no_status(cli: Cli) -> None:
    go = gate(cli, "go")
    late = f"while [ ! -e {go} ]; do sleep 0.05; done; exit 4"
    with screen_of(cli, "run", "hi", "--", "sh", "-c", late) as screen:
        screen.until("… starting sh")
        make(go)
        assert screen.end() != 0
        assert "…" not in screen.text


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_ctrl_c_leaves_a_clean_screen(cli: Cli, presses: int) -> None:
    with screen_of(cli, "run", "stubborn", "--", *cli.agent) as screen:
        screen.until("never\n… answering")
        for number in range(presses):
            screen.terminal.type(CTRL_C)
            if number == 0:
                screen.until("press Ctrl-C again to end the agent")
        if presses == 1:
            os.kill(screen.terminal.pid, signal.SIGTERM)
        assert screen.end() in (130, 143)
        assert "… answering" not in screen.text
        assert "never" in screen.text


def test_ctrl_c_while_the_agent_starts_leaves_a_clean_screen(cli: Cli) -> None:
    with screen_of(cli, "run", "hi", "--", "sleep", "60") as screen:
        screen.until("… starting sleep")
        screen.terminal.type(CTRL_C)
        assert screen.end() == 130
        assert "…" not in screen.text


def test_no_status_is_drawn_while_a_question_is_open(cli: Cli) -> None:
    words = command(cli, {"say": "May I?"}, {"ask": "Write it"}, {"say": "Thanks."})
    with screen_of(cli, *words) as screen:
        # A terminal may show a line in pieces.
        text = screen.until(lambda text: "allow? [" in text and text.endswith("]"))
        assert text.splitlines()[-1].startswith("allow? [")
        assert "…" not in text and "May I?" in text.splitlines()
        # Longer than it takes until a status is drawn.
        until = time.monotonic() + 2 * STATUS_DELAY
        with pytest.raises(AssertionError):
            while screen.terminal.read(until):
                pass
        assert "…" not in screen.text
        screen.terminal.type("y\n")
        assert screen.end() == 0
        assert "…" not in screen.text and "Thanks." in screen.rows


def test_a_chat_has_a_status_in_its_turns_only(cli: Cli) -> None:
    with screen_of(cli, "chat", "--", *cli.agent) as screen:
        screen.until(lambda text: text.endswith("\n>"))
        assert "…" not in screen.text
        screen.terminal.type("wait\r")
        screen.until("waiting\n… answering")
        screen.terminal.type(CTRL_C)
        screen.until(lambda text: text.endswith("\n>") and "[ended] cancelled" in text)
        assert "…" not in screen.text
        screen.terminal.type(CTRL_D)
        assert screen.terminal.wait() == 0


def test_a_watched_job_has_a_status(cli: Cli) -> None:
    with warm_cli() as warm:
        go = gate(warm, "go")
        acts = json.dumps([{"say": "begun"}, {"wait": go}, {"say": ", and **over**"}])
        agent = ("--", sys.executable, AGENT, str(warm.home))
        begun = warm("run", acts, "-s", "talk", "--no-wait", "--approve-reads", *agent)
        assert begun.code == 0, begun.err
        with screen_of(warm, "jobs", "watch", begun.out.strip()) as screen:
            screen.until("begun\n… ")
            make(go)
            assert screen.end() == 0
            assert "begun, and over" in screen.rows and "…" not in screen.text
        with screen_of(warm, "sessions", "show", "talk") as screen:
            assert screen.end() == 0
            assert "begun, and over" in screen.rows


def test_a_delegation_has_a_status_for_each_attempt(cli: Cli) -> None:
    go = gate(cli, "go")
    config = cli.home / "config_home"
    late = f"while [ ! -e {go} ]; do sleep 0.05; done; "
    for name, then in (("alpha", "exit 3"), ("beta", f"exec {sys.executable} {AGENT}")):
        add_peer(config, cli.home, name, "", ("review",))
        file = config / "peers" / f"{name}.toml"
        head = file.read_text().partition("[[launch]]")[0]
        command = ["sh", "-c", (late if name == "alpha" else "") + then]
        file.write_text(f"{head}[[launch]]\ncommand = {json.dumps(command)}\n")
    (config / "config.toml").write_text('enabled_peers = ["alpha", "beta"]\n')
    on = gate(cli, "on")
    acts = json.dumps([{"say": "It is **good**."}, {"wait": on}])
    with screen_of(cli, "delegate", "review", acts) as screen:
        screen.until("… starting alpha, ")
        make(go)
        screen.until("It is good.\n… answering")
        make(on)
        assert screen.end() == 0
        assert "It is good." in screen.rows and "…" not in screen.text


# -- Markdown


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_markdown_is_shown_at_every_width(cli: Cli, columns: int) -> None:
    with screen_of(cli, *command(cli, {"stream": MARKDOWN}), columns=columns, rows=60) as screen:
        assert screen.end() == 0
        rows = screen.rows
        assert widest(screen) <= columns
        for text in (
            "The answer",
            "• one item that is long",
            "  • nested",
            "1. numbered",
            "│ quoted",
            "  def add(a, b):",
            "      return a + b  # **not bold**",
            "漢字",
            "Done 👍.",
        ):
            assert any(text in row for row in rows), (text, rows)
        joined = " ".join(" ".join(rows).split())
        assert "wrapped and code and a link (https://example.org/page) and snake_case" in joined
        assert '2**3**4 and "quotes".' in joined
        assert "```" not in joined and "|" not in joined
        # Nothing is broken inside of a word, and every column begins where it did above.
        assert set(joined.split()) >= {"paragraph", "snake_case_names,", "description", "wrapped,"}
        name = next(row for row in rows if row.startswith("name"))
        add = next(row for row in rows if row.startswith("add  "))
        assert name.index("what") == add.index("adds")
        assert screen.style_of("The answer").bold and screen.style_of("bold words").bold
        assert screen.style_of("code and").fg == "cyan"
        assert not screen.style_of("A paragraph").bold


def test_the_first_words_are_shown_before_the_line_is_complete(cli: Cli) -> None:
    go = gate(cli, "go")
    words = command(cli, {"say": "The **first"}, {"wait": go}, {"say": " words** count."})
    with screen_of(cli, *words) as screen:
        screen.until("The **first\n…")
        make(go)
        assert screen.end() == 0
        assert "The first words count." in screen.rows
        assert "**" not in screen.text
        assert screen.style_of("first").bold


def test_a_table_that_is_too_wide_is_shown_as_records(cli: Cli) -> None:
    long = "a_word_that_cannot_be_broken_anywhere"
    table = f"| one | two |\n|---|---|\n| {long} | {long} |\n"
    with screen_of(cli, *command(cli, {"stream": table}), columns=60) as screen:
        assert screen.end() == 0
        assert f"one: {long}" in screen.rows and f"two: {long}" in screen.rows


def test_more_than_a_screen_scrolls_away_once(cli: Cli) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    lines = "".join(f"\n- item {number}" for number in range(60))
    table = "".join(f"\n| r{number} | x |" for number in range(60))
    text = f"{words} **{words}**{lines}\n\n| row | value |\n|---|---|{table}\n"
    with screen_of(cli, *command(cli, {"stream": text}), columns=60, rows=12) as screen:
        assert screen.end() == 0
        shown = screen.text.split()
        # What is bold was longer than the screen before its end came.
        said = [each.strip("*") for each in shown if each.strip("*").startswith("word")]
        assert said == f"{words} {words}".split()
        for number in range(60):
            assert screen.rows.count(f"• item {number}") == 1
            assert shown.count(f"r{number}") == 1
        assert "…" not in screen.text


def test_a_window_that_changes_its_size_gets_every_word_once(cli: Cli) -> None:
    gates = [gate(cli, f"go{number}") for number in range(3)]
    first, second, third, last = (
        " ".join(f"{name}{number}" for number in range(30)) + " " for name in "abcd"
    )
    words = command(
        cli,
        {"stream": first},
        {"wait": gates[0]},
        {"stream": second},
        {"wait": gates[1]},
        {"stream": third},
        {"wait": gates[2]},
        {"stream": last},
    )
    with screen_of(cli, *words) as screen:
        screen.until("a29\n…")
        screen.resize(60)
        make(gates[0])
        screen.until("b29\n…")
        screen.resize(120)
        make(gates[1])
        screen.until("c29\n…")
        screen.resize(130)
        make(gates[2])
        assert screen.end() == 0
        assert "…" not in screen.text
        said = [each for each in screen.text.split() if each[0] in "abcd" and each[1:].isdigit()]
        # A narrower window cuts off what it has shown: only the open row is drawn again.
        rest = said[said.index("b0") :]
        assert rest == (second + third + last).split()
        assert said[0] == "a0" and said[said.index("b0") - 1] == "a29"


def test_an_agent_has_no_power_over_the_terminal(cli: Cli) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\x1b[1A\r"
    words = command(
        cli,
        {"say": f"one {evil} [x{evil}](http://x{evil}) `{evil}`\n| {evil} |\n|---|\n| {evil} |\n"},
        {"think": evil},
        {"plan": [[evil, "pending"]]},
        {"edit": [f"/{evil}", evil, f"x{evil}"]},
    )
    with screen_of(cli, *words) as screen:
        assert screen.end() == 0
        seen = screen.terminal.shown
    sequences = {part.split("m")[0] for part in seen.split("\x1b")[1:]}
    own = {"[J"}
    for sequence in sequences:
        assert sequence[:2] in own or set(sequence) <= set("[0123456789;A\r") | set("\r\n"), (
            sequence
        )
    assert not set(seen) & set("\x07\x9b\x7f")
    assert "one ␛[2J␛]0;owned" in screen.text


# -- the plan and diffs


def test_a_plan_is_redrawn_in_place(cli: Cli) -> None:
    go = gate(cli, "go")
    steps = [[["look", "in_progress"], ["write", "pending"]]]
    steps += [[["look", "completed"], ["write", "in_progress"]]]
    steps += [[["look", "completed"], ["write", "completed"]]]
    acts: list[dict[str, Any]] = [{"plan": steps[0]}, {"wait": go}, {"plan": steps[1]}]
    with screen_of(cli, *command(cli, *acts, {"plan": steps[2]}, {"say": "ok"})) as screen:
        screen.until("[plan]\n  [>] look\n  [ ] write\n…")
        make(go)
        assert screen.end() == 0
        assert without_times(screen.rows) == ["[plan]", "  [x] look", "  [x] write", "ok", ""]


def test_a_plan_above_other_output_is_not_repeated(cli: Cli) -> None:
    acts: list[dict[str, Any]] = [
        {"plan": [["look", "in_progress"], ["write", "pending"]]},
        {"say": "I look."},
        {"plan": [["look", "completed"], ["write", "pending"]]},
        {"plan": [["look", "completed"], ["write", "pending"]]},
    ]
    with screen_of(cli, *command(cli, *acts)) as screen:
        assert screen.end() == 0
        assert without_times(screen.rows) == [
            "[plan]",
            "  [>] look",
            "  [ ] write",
            "I look.",
            "[plan] [x] look",
            "",
        ]


def test_a_diff_has_colours_and_is_wrapped_at_words(cli: Cli) -> None:
    new = " ".join(["word"] * 30)
    with screen_of(cli, *command(cli, {"edit": ["/x/a.py", "old\n", f"{new}\n"]})) as screen:
        assert screen.end() == 0
        assert screen.style_of("-old").fg == "red"
        assert screen.style_of("+word").fg == "green"
        assert widest(screen) <= 80
        assert screen.text.split().count("word") == 29


# -- plain


PLAIN = ({"think": "Hm."}, {"stream": MARKDOWN}, {"plan": [["look", "pending"]]}, {"say": "ok"})


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_without_colours_and_on_a_dumb_terminal_the_text_is_as_it_came(
    cli: Cli, extra: dict[str, str]
) -> None:
    cli.extra |= extra
    with cli.terminal(*command(cli, *PLAIN), columns=80) as terminal:
        assert terminal.wait() == 0
    shown = terminal.shown.replace("\r\n", "\n")
    assert "\x1b" not in shown and "…" not in shown and "\r" not in shown
    before, _, rest = shown.partition("[thinking] Hm.\n")
    assert before.startswith("dragoman: job ") and before.count("\n") == 1
    assert rest.startswith(MARKDOWN + "[plan]\n  [ ] look\nok\n\n[done] ok, ")


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "gemni", "hello"),
        ("run", "hello", "--", "a-program-that-is-not-there"),
        ("peers", "show", "gemini"),
        ("explain", "review"),
        ("sessions",),
    ],
    ids=" ".join,
)
def test_what_dragoman_says_is_folded_between_words(
    cli: Cli, words: tuple[str, ...], columns: int
) -> None:
    piped = cli.child(*words)
    with screen_of(cli, *words, columns=columns, rows=200) as screen:
        screen.terminal.wait()
        # A word that is longer than a row, such as a path, is left to the terminal.
        whole = {word for word in (piped.out + piped.err).split() if len(word) < columns // 2}
        assert whole <= set(screen.text.split())


def test_a_pipe_gets_the_text_as_it_came(cli: Cli) -> None:
    done = cli.child(*command(cli, *PLAIN))
    assert (done.code, done.out) == (0, MARKDOWN + "ok\n")
    assert "\x1b" not in done.err and "\r" not in done.err and "…" not in done.err


def test_a_pipe_loads_nothing_of_it(cli: Cli) -> None:
    program = (
        "import atexit, sys\n"
        "from dragoman.cli import main\n"
        "atexit.register(lambda: print(*(each for each in sys.modules if 'live_area' in each"
        " or 'markdown_stream' in each or each == 'rich'), file=sys.stderr))\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command(cli, {"say": "ok"})],
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[-1].strip() == ""
