"""`dragoman run`: the help of the command that sends one prompt.

Its options are in `cli.prompt_options`, which also parses plain command lines without typer.
`cli.run_prompt` executes the command.
"""

from __future__ import annotations

from typing import Any

import typer

from dragoman.cli.command_module import (
    CONTEXT,
    WithCommandLine,
    new_app,
    with_options,
    words_after_dashes,
)
from dragoman.cli.prompt_options import COMMANDS

HELP = """
Send an agent one prompt and watch it work.

PEER is the name of an agent that dragoman knows (`dragoman peers` lists them), or the address of a
running one. To start any other agent, give its command line after --; then the only argument is the
prompt. Without PEER the default peer is used: `default_peer` in the configuration, else the only
enabled peer, else the last one used. Words without quotes are joined. Piped stdin is added to the
prompt; without a prompt, or with `-`, it is the prompt. Stdin is read to its end unless it is a
terminal or /dev/null; use --no-stdin in a shell or a loop that keeps it open. A file mentioned as
@path in the prompt is attached, if it is in the workspace.

An agent that you call by name keeps running for the next command, which then starts at once; --cold
turns this off. With -s the next command continues the same conversation, in any shell. Every run is
a job: `dragoman jobs` shows it again, and with --no-wait it runs in the background. Ctrl-C cancels
the turn and shows the output so far; a second Ctrl-C exits at once.

A peer whose descriptor names a Python adapter is run by that adapter, in this process and without a
broker: it gets the prompt and the role, and decides what to send to the agent. It does not support
-s and --no-wait. For other peers, --role adds the text that their descriptor has for that role
before the prompt.

Permissions: the rules in your settings decide first. By default, reads are then allowed, and on a
terminal or with an open console you are asked about everything else. Otherwise it is denied, and
each denial is reported.

\b
Examples:
  dragoman run scout "where is Connection defined?"
  dragoman run codex "fix the failing test" --approve-all
  dragoman run gemini "explain @src/app.py" --cwd ~/project
  git diff | dragoman run claude "review this change"
  dragoman run copilot "what is wrong here?" --image shot.png
  dragoman run codex "what could go wrong here?" --role review
  dragoman run codex "begin with the parser" -s parser
  dragoman run codex "now its tests" -s parser
  job=$(dragoman run qwen "write the changelog" --no-wait)
  dragoman run "hello" -- python my_agent.py
  answer=$(dragoman run qwen "one word: yes or no?" --format quiet)
  dragoman run scout "list the TODOs" --format json | jq .type

\b
Exit codes:
  0 done         3 timeout             6 login needed   9 budget used up
  1 failed       4 no such session     7 no peer        10 not verified
  2 wrong usage  5 permission denied   8 quota          130 interrupted
"""

app = new_app()


@app.command(cls=WithCommandLine, help=HELP, context_settings=CONTEXT)
@with_options(*COMMANDS["run"])
def run(context: typer.Context, **given: Any) -> None:
    from dragoman.cli import run_prompt

    raise typer.Exit(run_prompt.run(command=words_after_dashes(context), **given))
