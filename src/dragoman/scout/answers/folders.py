"""Answer questions about files and folders: content, names, layout, entry points.

`overview` finds files and `file_reader` reads them. A path in a question is first taken as it is,
then as a part of a path.
"""

from __future__ import annotations

import os
from typing import Final, TypeAlias

from dragoman.errors import FileMissing, PathRefused
from dragoman.scout import languages, overview
from dragoman.scout.hits import Hit, shown_path
from dragoman.scout.markdown import bullet, clip, code, count, fence, listed, paragraphs, place
from dragoman.scout.questions import FindFiles, Layout, ReadPath
from dragoman.scout.turn_context import ScoutAnswer, TurnContext

MAX_LISTED: Final = 40
MAX_FOLDERS: Final = 15
"""Folders of a layout, the largest first."""

LINES_BEHIND: Final = 40
"""Lines that are shown where only the first is named."""

README_LINES: Final = 80

Asked: TypeAlias = FindFiles | ReadPath | Layout


async def answer(context: TurnContext, asked: Asked) -> ScoutAnswer:
    """Answer a question about files and folders."""
    match asked:
        case FindFiles():
            return await _find(context, asked.pattern)
        case ReadPath():
            return await _read(context, asked)
        case Layout():
            return await _layout(context, asked)


async def _look_for(context: TurnContext, pattern: str) -> list[str]:
    title = f"Look for {code(pattern)}"
    async with context.tool(title, "search", "files", {"pattern": pattern}, path="") as call:
        found = await context.in_thread(
            lambda stop: overview.find_files(context.root, pattern, stop)
        )
        await context.report(call, [Hit(path, 0, "") for path in found], count(len(found), "file"))
    return found


async def _find(context: TurnContext, pattern: str) -> ScoutAnswer:
    language = languages.named(pattern)
    what = f"{language.name} files" if language else f"files named {code(pattern)}"
    await context.plan(f"Look for {what}", "Answer")
    found = await _look_for(context, pattern)
    if not found:
        return ScoutAnswer(f"There are no {what} here.")
    if len(found) == 1:
        return ScoutAnswer(f"It is {place(found[0])}.", path=found[0])
    lines = listed([f"- {place(path)}" for path in found[:MAX_LISTED]], len(found))
    return ScoutAnswer(paragraphs(f"There are {len(found):,} {what}:", lines), path=found[0])


async def _read(context: TurnContext, asked: ReadPath) -> ScoutAnswer:
    await context.plan(f"Read {place(asked.path or '.')}", "Answer")
    try:
        folder = await context.in_thread(lambda _: context.reader.folder(asked.path or "."))
    except FileMissing:
        if os.path.isabs(asked.path) or ".." in asked.path.split("/"):
            raise  # Nothing outside is looked for, whatever is written.
        return await _read_guessed(context, asked)
    except PathRefused as error:
        if error.reason != "it is not a folder":
            raise
        return await _read_file(context, asked.path, asked)
    return await _list(context, folder, asked.depth)


async def _read_guessed(context: TurnContext, asked: ReadPath) -> ScoutAnswer:
    """Read the file that a part of a path means, if it can be only one."""
    found = await _look_for(context, asked.path)
    wanted = asked.path.lower().rpartition("/")[2]
    names = {path: path.lower().rpartition("/")[2] for path in found}
    chosen = [path for path, name in names.items() if name == wanted]
    chosen = chosen or [path for path, name in names.items() if name.partition(".")[0] == wanted]
    if len(chosen) == 1 or (chosen and wanted == "readme"):
        return await _read_file(context, chosen[0], asked)
    head = f"There is no file or folder {place(asked.path)} here."
    if chosen:
        head = f"{place(asked.path)} may be any of {count(len(chosen), 'file')}; say which:"
    lines = [f"- {place(path)}" for path in chosen[:MAX_LISTED]]
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


async def _list(context: TurnContext, path: str, depth: int) -> ScoutAnswer:
    title = f"List {place(path or '.')}"
    async with context.tool(title, "read", "list", {"path": path or "."}, path) as call:
        names = await context.in_thread(
            lambda stop: overview.list_folder(context.root, path, depth, stop)
        )
        await context.report(call, [], count(len(names), "name"))
    shown = place(path) if path else "This folder"
    if not names:
        return ScoutAnswer(f"{shown} is empty.", path=path)
    body = fence(["  " * level + name for level, name in names])
    return ScoutAnswer(paragraphs(f"{shown}:", body), path=path)


async def _layout(context: TurnContext, asked: Layout) -> ScoutAnswer:
    await context.plan("Look at all files", "Read what names programs", "Answer")
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
        return ScoutAnswer(paragraphs("Programs begin here:", lines))
    if not seen.files:
        return ScoutAnswer("There are no files here.", path=under)
    name = place(under) if under else code(os.path.basename(context.root) or "/")
    prefix = f"{under}/" if under else ""
    folders = [
        f"- {place(f'{prefix}{folder}/')}: {count(number, 'file')}"
        for folder, number in seen.top.most_common(MAX_FOLDERS)
    ]
    spoken = ", ".join(
        f"{one} ({count(number, 'file')})" for one, number in seen.languages.most_common(8)
    )
    tests = ", ".join(
        f"{place(folder or '.')} ({count(number, 'file')})"
        for folder, number in seen.tests.most_common(4)
    )
    text = paragraphs(
        f"{name} has {count(seen.files, 'file')}, {count(len(seen.top), 'folder')} at its top.",
        await _first_words(context, seen.readme) if seen.readme else "",
        f"Languages: {spoken}.",
        listed(folders, len(seen.top)),
        ["Entry points:", *listed(programs[:8], len(found))] if found else "",
        f"Tests: {tests}." if tests else "There are no files that look like tests.",
        "" if seen.complete else "Not complete: some files were not looked at.",
    )
    return ScoutAnswer(text, path=under)


async def _first_words(context: TurnContext, readme: str) -> str:
    """The first sentences of a README that are neither a heading nor a picture."""
    part = await context.in_thread(lambda stop: context.reader.part(readme, 1, README_LINES, stop))
    words: list[str] = []
    for line in part.lines:
        text = line.strip()
        if text and not text.startswith(("#", "!", "[!", "<", "=", "-", "|", "`", "..")):
            words.append(text)
        elif words:
            break
    return f"{place(readme)} says: {clip(' '.join(words), 400)}" if words else ""
