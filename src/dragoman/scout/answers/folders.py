"""Answer questions about files and directories: content, names, layout, entry points.

`overview` finds files and `file_reader` reads them. A path in a question is first taken literally,
then as the end of a longer path.
"""

from __future__ import annotations

import os
from typing import Final

from dragoman.client.services.workspace import NOT_A_DIRECTORY
from dragoman.errors import FileMissing, PathRefused
from dragoman.scout import languages, overview
from dragoman.scout.hits import Hit, shown_path
from dragoman.scout.markdown import bullet, clip, code, count, fence, listed, paragraphs, place
from dragoman.scout.questions import Layout, ReadPath
from dragoman.scout.turn_context import ScoutAnswer, TurnContext

MAX_LISTED: Final = 40
MAX_TOP: Final = 30
"""Maximum number of directories and files in a layout, largest directories first."""

LINES_BEHIND: Final = 40
"""Number of lines to show if only the first is given."""

README_LINES: Final = 80


async def read(context: TurnContext, asked: ReadPath) -> ScoutAnswer:
    """Show a file or lines of it, or the layout of a directory."""
    await context.plan(f"Read {place(asked.path or '.')}", "Answer")
    try:
        folder = await context.in_thread(lambda _: context.reader.folder(asked.path or "."))
    except FileMissing:
        if os.path.isabs(asked.path) or ".." in asked.path.split("/"):
            raise  # Nothing outside the workspace is searched, whatever the question says.
        return await _read_guessed(context, asked)
    except PathRefused as error:
        if error.reason != NOT_A_DIRECTORY:
            raise
        return await _read_file(context, asked.path, asked)
    return await layout(context, Layout(folder))


async def _read_guessed(context: TurnContext, asked: ReadPath) -> ScoutAnswer:
    """Find the files whose path ends with the requested one, and read the match if there is only
    one.

    Of several files for "readme" the first is read; other ambiguous matches are listed.
    """
    title = f"Look for {place(asked.path)}"
    async with context.tool(title, "search", "files", {"path": asked.path}, path="") as call:
        found = await context.in_thread(
            lambda stop: overview.find_files(context.root, asked.path, stop)
        )
        await context.report(call, [Hit(path, 0, "") for path in found], count(len(found), "file"))
    if len(found) == 1 or (found and asked.path.lower() == "readme"):
        return await _read_file(context, found[0], asked)
    head = f"There is no file or directory {place(asked.path)} here."
    if found:
        head = f"{place(asked.path)} may be any of {count(len(found), 'file')}; say which:"
    lines = listed([f"- {place(path)}" for path in found[:MAX_LISTED]], len(found))
    return ScoutAnswer(paragraphs(head, lines), answered=False)


async def _read_file(context: TurnContext, path: str, asked: ReadPath) -> ScoutAnswer:
    last = asked.last
    if asked.first is not None and last is None:
        last = asked.first + LINES_BEHIND - 1
    raw = {"path": shown_path(path)}
    async with context.tool(f"Read {place(path)}", "read", "read", raw) as call:
        part = await context.in_thread(
            lambda stop: context.reader.part(path, asked.first, last, stop)
        )
        path = part.path
        hit = Hit(path, part.first if part.lines else 0, "")
        await context.report(call, [hit], count(len(part.lines), "line"))
    if not part.total:
        return ScoutAnswer(f"{place(path)} is empty.", path=path)
    if not part.lines:
        text = f"{place(path)} has only {count(part.total, 'line')}."
        if part.first <= part.total:
            text = (
                f"{asked.first}-{asked.last} is not a range of lines: they are counted from 1, and "
                "the first must not come after the last."
            )
        return ScoutAnswer(text, answered=False, path=path)
    head = f"{place(path)} ({count(part.total, 'line')}):"
    more = ""
    if len(part.lines) < part.total:
        head = f"{place(path, part.first)} to line {part.last:,} of {part.total:,}:"
        if part.last < part.total and asked.last is None:
            follow = f"{shown_path(path)}:{part.last + 1}-{min(part.total, part.last + 200)}"
            more = f"More: {code(f'/read {follow}')}"
    body = fence(part.lines, languages.of_path(path))
    return ScoutAnswer(paragraphs(head, body, more), path=path)


async def layout(context: TurnContext, asked: Layout) -> ScoutAnswer:
    """Describe the contents of a directory, or its entry points."""
    await context.plan("Look at all files", "Read the manifests", "Answer")
    reader = context.reader
    under = await context.in_thread(lambda _: reader.folder(asked.path)) if asked.path else ""
    async with context.tool("Look at all files", "read", "survey", path=under) as call:
        seen = await context.in_thread(lambda stop: overview.survey(context.root, under, stop))
        await context.report(call, [], count(seen.files, "file"))
    await context.step()
    async with context.tool("Read the manifests", "read", "manifests", seen.manifests) as call:
        found = await context.in_thread(lambda _: overview.entry_points(context.root, seen))
        await context.report(call, [hit for hit, _ in found], count(len(found), "entry point"))
    await context.step()
    programs = [bullet(hit, f"({note})") for hit, note in found]
    if asked.entry_points:
        if not found:
            return ScoutAnswer("I found nothing that looks like an entry point.", answered=False)
        lines = listed(programs[:MAX_LISTED], len(found))
        return ScoutAnswer(paragraphs("Entry points:", lines))
    if not seen.files:
        return ScoutAnswer("There are no files here.", path=under)
    name = place(under) if under else code(os.path.basename(context.root) or "/")
    prefix = f"{under}/" if under else ""
    ranked = sorted(seen.top.items(), key=lambda one: (one[0][-1:] != "/", -one[1], one[0]))
    top = [
        f"- {place(prefix + one)}" + (f": {count(number, 'file')}" if one.endswith("/") else "")
        for one, number in ranked[:MAX_TOP]
    ]
    spoken = ", ".join(
        f"{one} ({count(number, 'file')})" for one, number in seen.languages.most_common(8)
    )
    tests = ", ".join(
        f"{place(folder or '.')} ({count(number, 'file')})"
        for folder, number in seen.tests.most_common(4)
    )
    text = paragraphs(
        f"{name} has {count(seen.files, 'file')}.",
        await _first_words(context, seen.readme) if seen.readme else "",
        f"Languages: {spoken}.",
        listed(top, len(seen.top)),
        ["Entry points:", *listed(programs[:8], len(found))] if found else "",
        f"Tests: {tests}." if tests else "There are no files that look like tests.",
        "" if seen.complete else "Incomplete: some files were not read.",
    )
    return ScoutAnswer(text, path=under)


async def _first_words(context: TurnContext, readme: str) -> str:
    """Return a sentence that quotes the beginning of a README, without headings and images, or an
    empty string if the README has no text."""
    part = await context.in_thread(lambda stop: context.reader.part(readme, 1, README_LINES, stop))
    words: list[str] = []
    for line in part.lines:
        text = line.strip()
        if text and not text.startswith(("#", "!", "[!", "<", "=", "-", "|", "`", "..")):
            words.append(text)
        elif words:
            break
    return f"{place(readme)} says: {clip(' '.join(words), 400)}" if words else ""
