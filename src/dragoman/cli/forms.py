"""Ask an agent's questions at the terminal: the fields of a form, or a URL to visit.

One line is read per field, after its choices and its default are shown. A form never grants a
permission; permission requests are asked in `cli.permission_flags`. Without a terminal nothing is
asked and the agent's question is declined.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from dragoman.cli.command_loop import CommandLoop, Interrupted
from dragoman.cli.output.escape import neutral, one_line
from dragoman.cli.output.terminal import width_of
from dragoman.client.inquiries import CANCELLED, DECLINED, Inquiry, Reply

DECLINE: Final = "/decline"
"""Declines the whole form. The end of input (Ctrl-D) does the same."""

LABEL_WIDTH: Final = 200
"""Maximum number of characters in a title, a description or a choice."""

MAX_FIELDS: Final = 30
MAX_CHOICES: Final = 60
"""Maximum numbers of fields in a form, and of choices for a field. A larger form is declined: it
would be too long to answer line by line."""


class Field(Struct, frozen=True, kw_only=True):
    """One field of a form, from its JSON Schema."""

    name: str
    title: str
    description: str = ""
    kind: str = "string"
    """string, number, integer, boolean or array."""
    required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    """Value and title of each allowed value; empty if any value is allowed."""
    schema: Mapping[str, Any] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines that present the field: its title, its description and its numbered
        choices."""
        need = "required" if self.required else "optional"
        yield f"  {one_line(self.title, width=LABEL_WIDTH)} ({need})"
        if self.description and self.description != self.title:
            yield f"    {one_line(self.description, width=LABEL_WIDTH)}"
        for number, (value, title) in enumerate(self.choices, 1):
            named = one_line(title or value, width=LABEL_WIDTH)
            yield f"    {number}  {named}"

    @property
    def prompt(self) -> str:
        """The prompt for the answer, with a hint about its form and the default."""
        hint = {"boolean": "y/n", "array": "numbers, separated by commas"}.get(self.kind, "")
        if self.kind != "array" and self.choices:
            hint = f"1-{len(self.choices)}"
        default = "" if self.default is None else f"default {self._shown(self.default)}"
        told = ", ".join(filter(None, (hint, default)))
        return f"{one_line(self.name, width=40)}{f' [{told}]' if told else ''}: "

    def _shown(self, value: Any) -> str:
        if isinstance(value, bool):
            return "y" if value else "n"
        if isinstance(value, list):
            return ", ".join(self._shown(each) for each in value)
        return one_line(str(value), width=60)

    def parse(self, text: str) -> Any:
        """Parse a typed answer. If it is empty, return the default, or None without a default.

        Raises `ValueError` with the reason if the answer is invalid, or empty although it is
        required.
        """
        if not text:
            if self.default is None and self.required:
                raise ValueError(f"an answer is required; {DECLINE} declines the whole question")
            return self.default
        match self.kind:
            case "boolean":
                word = text.lower()
                if word not in ("y", "yes", "true", "n", "no", "false"):
                    raise ValueError("answer with y or n")
                return word in ("y", "yes", "true")
            case "integer" | "number":
                return self._number(text)
            case "array":
                return self._several(text)
            case _:
                return self._chosen(text) if self.choices else self._text(text)

    def _number(self, text: str) -> int | float:
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            what = "a whole number" if self.kind == "integer" else "a number"
            raise ValueError(f"answer with {what}") from None
        if isinstance(value, float) and not math.isfinite(value):
            # JSON has no such number: it would be sent as null.
            raise ValueError(f"answer with a finite number, not {text}")
        least, most = self.schema.get("minimum"), self.schema.get("maximum")
        if isinstance(least, int | float) and value < least:
            raise ValueError(f"the minimum is {least}")
        if isinstance(most, int | float) and value > most:
            raise ValueError(f"the maximum is {most}")
        return value

    def _text(self, text: str) -> str:
        least, most = self.schema.get("minLength"), self.schema.get("maxLength")
        if isinstance(least, int) and len(text) < least:
            raise ValueError(f"answer with at least {_characters(least)}")
        if isinstance(most, int) and len(text) > most:
            raise ValueError(f"answer with at most {_characters(most)}")
        return text

    def _chosen(self, text: str) -> str:
        if text.isascii() and text.isdigit() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1][0]
        for value, title in self.choices:
            if text.casefold() in (value.casefold(), title.casefold()):
                return value
        raise ValueError(f"answer with a number from 1 to {len(self.choices)}")

    def _several(self, text: str) -> list[str]:
        typed = (one.strip() for one in text.split(","))
        values = list(dict.fromkeys(self._chosen(one) for one in typed if one))
        least, most = self.schema.get("minItems"), self.schema.get("maxItems")
        if isinstance(least, int) and len(values) < least:
            raise ValueError(f"choose at least {least}")
        if isinstance(most, int) and len(values) > most:
            raise ValueError(f"choose at most {most}")
        return values


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count} characters"


def fields_of(schema: Mapping[str, Any]) -> list[Field] | None:
    """Return the fields of a form, or None if they cannot be asked line by line."""
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or len(properties) > MAX_FIELDS:
        return None
    needed = required if isinstance(required, list) else []
    fields = [_field(name, told, name in needed) for name, told in properties.items()]
    return None if any(one is None for one in fields) else [one for one in fields if one]


def _field(name: str, schema: Any, required: bool) -> Field | None:
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type", "string")
    if kind not in ("string", "number", "integer", "boolean", "array"):
        return None
    listed = schema.get("items") if kind == "array" else schema
    choices = _choices(listed) if isinstance(listed, Mapping) else ()
    if len(choices) > MAX_CHOICES or (kind == "array" and not choices):
        return None
    return Field(
        name=name,
        title=str(schema.get("title") or name),
        description=str(schema.get("description") or ""),
        kind=kind,
        required=required,
        default=schema.get("default"),
        choices=choices,
        schema=schema,
    )


def _choices(schema: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    for name in ("oneOf", "anyOf"):
        listed = schema.get(name)
        if isinstance(listed, list):
            found = [each for each in listed if isinstance(each, Mapping) and "const" in each]
            return tuple((str(one["const"]), str(one.get("title") or "")) for one in found)
    values, names = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list):
        return ()
    titles = names if isinstance(names, list) and len(names) == len(values) else [""] * len(values)
    return tuple((str(value), str(title)) for value, title in zip(values, titles, strict=True))


class TerminalInquirer:
    """Asks an agent's questions at the terminal, one at a time. Ctrl-C cancels the turn."""

    def __init__(self, live: CommandLoop) -> None:
        self._live = live
        self._turn = asyncio.Lock()

    async def __call__(self, inquiry: Inquiry) -> Reply:
        async with self._turn:
            try:
                return await self._ask(inquiry)
            except Interrupted:
                # As everywhere in a turn, Ctrl-C cancels the turn, before the answer is sent.
                self._live.press()
                await asyncio.sleep(0)
                return CANCELLED

    async def _ask(self, inquiry: Inquiry) -> Reply:
        head = [f"[question] {line}" for line in neutral(inquiry.message).splitlines() or [""]]
        if inquiry.url is not None:
            lines = [*head, "  the agent asks you to visit", f"  {one_line(inquiry.url)}"]
            answer = await self._line("will you open it yourself? [y/n] ", lines)
            agreed = answer is not None and answer.lower() in ("y", "yes")
            return Reply("accept") if agreed else DECLINED
        fields = fields_of(inquiry.schema or {})
        if fields is None:
            self._live_notice(head)
            return DECLINED
        how = f"  Enter takes the default, {DECLINE} declines the question, Ctrl-C cancels the turn"
        lines, content = [*head, how], dict[str, Any]()
        if not fields:
            answer = await self._line("agree? [y/n] ", lines)
            agreed = answer is not None and answer.lower() in ("y", "yes")
            return Reply("accept", {}) if agreed else DECLINED
        for field in fields:
            wrong: list[str] = []
            while True:
                answer = await self._line(field.prompt, [*lines, *wrong, *field.lines()])
                if answer is None or answer == DECLINE:
                    return DECLINED
                try:
                    value = field.parse(answer)
                except ValueError as error:
                    wrong = [f"  {error}"]
                    continue
                break
            lines = []
            if value is not None:
                content[field.name] = value
        return Reply("accept", content)

    async def _line(self, prompt: str, lines: list[str]) -> str | None:
        # Imported here: most turns ask nothing.
        from dragoman.cli.output import questions

        rows = questions.rows(lines, (), width=width_of(sys.stderr))
        line = await self._live.line(prompt, question="\n".join(rows) + "\n")
        return None if line is None else line.strip()

    def _live_notice(self, head: list[str]) -> None:
        from dragoman.cli.output.terminal import put_err

        put_err(
            "\n".join([*head, "  declined: this form cannot be filled in on a terminal"]) + "\n"
        )
