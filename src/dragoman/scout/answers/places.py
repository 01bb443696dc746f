"""Answer questions about files and directories: search, layout, content, counts.

`overview` finds files and `file_reader` reads them. A path in a question is first taken as it is,
then as a part of a path.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final, TypeAlias, assert_never

from dragoman.errors import FileMissing, PathRefused
from dragoman.scout import languages, overview, symbols
from dragoman.scout.hits import Hit, Query, shown_path
from dragoman.scout.intents import (
    CountFiles,
    EntryPoints,
    FindFiles,
    Folder,
    Layout,
    ReadFile,
    Readme,
    Tests,
)
from dragoman.scout.markdown import bullet, clip, code, count, fence, paragraphs, place, table
from dragoman.scout.overview import Survey
from dragoman.scout.symbols import Sightings
from dragoman.scout.turn_context import ScoutAnswer, TurnContext, reservations

MAX_LISTED: Final = 40
MAX_ROWS: Final = 15
"""Rows of a table: what comes behind them is little."""

README_LINES: Final = 80

Asked: TypeAlias = (
    FindFiles | Folder | Layout | ReadFile | CountFiles | Readme | EntryPoints | Tests
)


async def answer(context: TurnContext, asked: Asked) -> ScoutAnswer:
    """Answer a question about files and folders."""
    match asked:
        case FindFiles():
            return await _find(context, asked)
        case Folder():
            return await _folder(context, asked)
        case Layout():
            return await _layout(context, asked)
        case ReadFile():
            return await _read(context, asked)
        case CountFiles():
            return await _count(context, asked)
        case Readme():
            return await _readme(context)
        case EntryPoints():
            return await _entry_points(context)
        case Tests():
            return await _tests(context, asked)
        case _ as never:
            assert_never(never)


# -- files


async def _find(context: TurnContext, asked: FindFiles) -> ScoutAnswer:
    what = f"{asked.language} files" if asked.language else f"files named {code(asked.pattern)}"
    await context.plan(f"Look for {what}", "Answer")
    raw = {"pattern": asked.pattern, "language": asked.language}
    async with context.tool(f"Look for {what}", "search", "files", raw, path="") as call:
        found, total = await context.in_thread(
            lambda stop: overview.find_files(
                context.root, asked.pattern, asked.language, stop, MAX_LISTED
            )
        )
        await context.report(call, [Hit(path, 0, "") for path in found], count(total, "file"))
    await context.step()
    if not found:
        return ScoutAnswer(f"There are no {what} here.")
    if total == 1:
        return ScoutAnswer(f"It is {place(found[0])}.", path=found[0])
    lines = [f"- {place(path)}" for path in found]
    if total > len(found):
        lines.append(f"- … and {total - len(found):,} more")
    return ScoutAnswer(paragraphs(f"There are {total:,} {what}:", lines), path=found[0])


async def _read(context: TurnContext, asked: ReadFile) -> ScoutAnswer:
    await context.plan(f"Read {place(asked.path)}", "Answer")
    path = asked.path
    try:
        path = await context.in_thread(lambda _: context.reader.file(asked.path))
    except FileMissing:
        found = await _guess(context, asked.path)
        if len(found) != 1:
            return _ambiguous(asked.path, found)
        path = found[0]
    except PathRefused as error:
        if "folder" not in error.reason or "outside" in error.reason:
            raise
        return await _folder(context, Folder(asked.path))
    first, last = asked.first, asked.last
    if first is not None and last is None and first > 0 and asked.last is None:
        last = first + 39
    async with context.tool(
        f"Read {place(path)}", "read", "read", {"path": shown_path(path)}
    ) as call:
        part = await context.in_thread(lambda stop: context.reader.part(path, first, last, stop))
        hit = Hit(path, part.first if part.lines else 0, "")
        await context.report(call, [hit], count(len(part.lines), "line"))
    await context.step()
    total = part.total or 0
    if not part.lines:
        if total == 0:
            return ScoutAnswer(f"{place(path)} is empty.", path=path)
        text = f"{place(path)} has only {count(total, 'line')}."
        return ScoutAnswer(text, answered=False, path=path)
    if part.first == 1 and part.last == total:
        head = f"{place(path)} ({count(total, 'line')}):"
        more = ""
    else:
        head = f"{place(path, part.first)} to line {part.last:,} of {total:,}:"
        follow = f"{shown_path(path)}:{part.last + 1}-{min(total, part.last + 200)}"
        more = (
            f"More: {code(f'/read {follow}')}" if part.last < total and asked.last is None else ""
        )
    body = fence(part.lines, languages.of_path(path))
    return ScoutAnswer(paragraphs(head, body, more), path=path)


async def _guess(context: TurnContext, written: str) -> list[str]:
    """Files that somebody may mean by a part of a path. Never outside, whatever is written."""
    if os.path.isabs(written) or ".." in written.split("/"):
        raise FileMissing(written)
    async with context.tool(f"Look for {place(written)}", "search", "files", path="") as call:
        found, total = await context.in_thread(
            lambda stop: overview.find_files(context.root, written, "", stop, MAX_LISTED)
        )
        name = written.lower().rpartition("/")[2]
        exact = [path for path in found if path.lower().rpartition("/")[2] == name]
        stems = [p for p in found if p.lower().rpartition("/")[2].partition(".")[0] == name]
        chosen = exact or stems
        await context.report(call, [Hit(path, 0, "") for path in chosen], count(total, "file"))
    return chosen


def _ambiguous(written: str, found: list[str]) -> ScoutAnswer:
    if not found:
        return ScoutAnswer(f"There is no file {place(written)} in this folder.", answered=False)
    head = f"{place(written)} may be any of {count(len(found), 'file')}; say which:"
    lines = [f"- {place(path)}" for path in found[:MAX_LISTED]]
    return ScoutAnswer(paragraphs(head, lines), answered=False)


# -- folders


async def _folder(context: TurnContext, asked: Folder) -> ScoutAnswer:
    shown = place(asked.path) if asked.path else "this folder"
    await context.plan(f"Look into {shown}", "Answer")
    try:
        path = await context.in_thread(lambda _: context.reader.folder(asked.path or "."))
    except FileMissing:
        return ScoutAnswer(f"There is no folder {shown} here.", answered=False)
    except PathRefused as error:
        if error.reason != "it is not a folder":
            raise
        return await _read(context, ReadFile(asked.path))
    async with context.tool(
        f"List {shown}", "read", "list", {"path": asked.path or "."}, path
    ) as call:
        entries = await context.in_thread(
            lambda stop: overview.list_folder(context.root, path, asked.depth, stop)
        )
        await context.report(call, [], count(len(entries), "name"))
    await context.step()
    title = place(path) if path else "This folder"
    if not entries:
        return ScoutAnswer(f"{title} is empty.", path=path)
    if asked.depth > 1:
        lines = [
            "  " * each.depth + shown_path(each.name) + ("/" if each.is_folder else "")
            for each in entries
        ]
        return ScoutAnswer(paragraphs(f"{title}:", fence(lines)), path=path)
    lines = [_entry(path, each) for each in entries]
    folders = sum(each.is_folder for each in entries)
    files = sum(not each.is_folder and each.size >= 0 for each in entries)
    head = f"{title} has {count(folders, 'folder')} and {count(files, 'file')}:"
    return ScoutAnswer(paragraphs(head, lines), path=path)


def _entry(folder: str, entry: overview.FolderEntry) -> str:
    if entry.size < 0:
        return f"- {entry.name}"
    path = f"{folder}/{entry.name}" if folder else entry.name
    if entry.is_folder:
        return f"- {place(path + '/')}"
    note = "a link" if entry.is_link else f"{entry.size:,} bytes"
    return f"- {place(path)} ({note})"


async def _survey(context: TurnContext, under: str) -> Survey:
    async with context.tool("Look at all files", "read", "survey", path=under) as call:
        seen = await context.in_thread(lambda stop: overview.survey(context.root, under, stop))
        await context.report(call, [], count(seen.files, "file"))
    return seen


async def _layout(context: TurnContext, asked: Layout) -> ScoutAnswer:
    await context.plan("Look at all files", "See what the project says of itself", "Answer")
    under = (
        await context.in_thread(lambda _: context.reader.folder(asked.path)) if asked.path else ""
    )
    seen = await _survey(context, under)
    await context.step()
    if not seen.files:
        return ScoutAnswer("There are no files here.", path=under)
    said = await _first_words(context, seen.readme) if seen.readme else ""
    await context.step()
    name = place(under) if under else code(os.path.basename(context.root) or "/")
    head = f"{name} has {count(seen.files, 'file')}" + (
        f" in {count(len(seen.top), 'folder')} and beside them." if seen.top else "."
    )
    entries = overview.entry_points(context.root, seen)[:8]
    tests = ", ".join(
        f"{place(folder or '.')} ({count(number, 'file')})"
        for folder, number in seen.tests.most_common(4)
    )
    return ScoutAnswer(
        paragraphs(
            head,
            f"{place(seen.readme)} says: {said}" if said else "",
            _languages(seen.languages, seen.files),
            _top(seen, under),
            ["Entry points:", *(bullet(hit, f"({note})") for hit, note in entries)]
            if entries
            else [],
            f"Tests: {tests}." if tests else "",
            _doubts(seen),
        ),
        path=under,
    )


async def _first_words(context: TurnContext, readme: str) -> str:
    """The first sentences of a README that are no heading and no picture."""
    async with context.tool(
        f"Read {place(readme)}", "read", "read", {"path": readme}, readme
    ) as call:
        part = await context.in_thread(
            lambda stop: context.reader.part(readme, 1, README_LINES, stop)
        )
        await context.report(call, [Hit(readme, 1, "")], count(len(part.lines), "line"))
    words: list[str] = []
    for line in part.lines:
        text = line.strip()
        plain = text and not text.startswith(("#", "!", "[!", "<", "=", "-", "|", "`", ".."))
        if plain:
            words.append(text)
        elif words:
            break
    return clip(" ".join(words), 400)


def _languages(found: Counter[str], total: int) -> str:
    named = [(name, number) for name, number in found.most_common() if name != "Other"]
    if not named:
        return ""
    shown = [f"{name} {100 * number / total:.0f} %" for name, number in named[:8]]
    return "Languages, by number of files: " + ", ".join(shown) + "."


def _top(seen: Survey, under: str) -> str:
    rows = []
    for name, number in seen.top.most_common(MAX_ROWS):
        kinds = [kind for kind, _ in seen.top_languages[name].most_common(3) if kind != "Other"]
        path = f"{under}/{name}" if under else name
        rows.append((place(path + "/"), f"{number:,}", ", ".join(kinds)))
    return table(("folder", "files", "mostly"), rows) if rows else ""


def _doubts(seen: Survey) -> str:
    doubts = []
    if seen.cut:
        doubts.append("there are more files than I looked at")
    if seen.unreadable:
        doubts.append(f"{count(seen.unreadable, 'folder')} could not be read")
    return f"Not complete: {'; '.join(doubts)}." if doubts else ""


async def _count(context: TurnContext, asked: CountFiles) -> ScoutAnswer:
    await context.plan("Count files and lines", "Answer")
    under = (
        await context.in_thread(lambda _: context.reader.folder(asked.path)) if asked.path else ""
    )
    raw = {"folder": under or ".", "language": asked.language}
    async with context.tool("Count files and lines", "read", "count", raw, path=under) as call:
        sizes, passed_over = await context.in_thread(
            lambda stop: overview.measure(context.root, under, asked.language, stop)
        )
        files = sum(size.files for size in sizes.values())
        lines = sum(size.lines for size in sizes.values())
        await context.report(call, [], f"{count(files, 'file')}, {count(lines, 'line')}")
    await context.step()
    where = f" in {place(under)}" if under else ""
    doubt = f"{count(passed_over, 'file')} could not be read." if passed_over else ""
    if asked.language:
        text = f"There are {count(files, f'{asked.language} file')}{where}"
        return ScoutAnswer(paragraphs(f"{text} with {count(lines, 'line')}.", doubt))
    head = f"There are {count(files, 'file')}{where} with {count(lines, 'line')} of text:"
    ranked = sorted(sizes.items(), key=lambda item: (-item[1].lines, item[0]))
    rows = [(name, f"{size.files:,}", f"{size.lines:,}") for name, size in ranked[:MAX_ROWS]]
    shown = table(("language", "files", "lines"), rows) if rows else ""
    return ScoutAnswer(paragraphs(head, shown, doubt))


# -- what a project says of itself


async def _readme(context: TurnContext) -> ScoutAnswer:
    await context.plan("Look for a README", "Read it", "Answer")
    seen = await _survey(context, "")
    await context.step()
    if not seen.readme:
        return ScoutAnswer("There is no README in this folder.", answered=False)
    return await _read(context, ReadFile(seen.readme))


async def _entry_points(context: TurnContext) -> ScoutAnswer:
    await context.plan("Look at all files", "Read the manifests", "Answer")
    seen = await _survey(context, "")
    await context.step()
    async with context.tool("Read the manifests", "read", "manifests", seen.manifests) as call:
        found = await context.in_thread(lambda _: overview.entry_points(context.root, seen))
        await context.report(call, [hit for hit, _ in found], count(len(found), "entry point"))
    await context.step()
    if not found:
        text = "I found nothing that looks like an entry point."
        return ScoutAnswer(text, answered=False)
    lines = [bullet(hit, f"({note})") for hit, note in found[:MAX_LISTED]]
    return ScoutAnswer(paragraphs("Programs begin here:", lines))


async def _tests(context: TurnContext, asked: Tests) -> ScoutAnswer:
    if asked.about:
        return await _tests_about(context, asked.about)
    await context.plan("Look at all files", "Answer")
    seen = await _survey(context, "")
    await context.step()
    total = sum(seen.tests.values())
    if not total:
        return ScoutAnswer("I found no files that look like tests.")
    lines = [
        f"- {place(folder + '/' if folder else '.')}: {count(number, 'file')}"
        for folder, number in seen.tests.most_common(MAX_LISTED)
    ]
    return ScoutAnswer(paragraphs(f"There are {count(total, 'test file')}:", lines))


async def _tests_about(context: TurnContext, about: str) -> ScoutAnswer:
    """Test files that use a name, or are called after it."""
    await context.plan(f"Search for {code(about)} in tests", "Answer")
    name = symbols.split_name(about)[0]
    seen = Sightings(name)
    hits: list[Hit] = []

    def sink(hit: Hit) -> bool:
        if symbols.is_test(hit.path):
            hits.append(hit)
        return seen(hit)

    searched = await context.search(
        f"Search for {code(name)} in tests", Query((name,)), sink, lambda: sorted(hits)
    )
    named, _ = await context.in_thread(
        lambda stop: overview.find_files(context.root, name, "", stop, 500)
    )
    called = [path for path in named if symbols.is_test(path)]
    await context.step()
    missed = reservations(searched)
    if not hits and not called:
        known = seen.known or bool(named)
        text = f"I found no tests that mention {code(about)}."
        return ScoutAnswer(paragraphs(text, missed), answered=known)
    per_file = Counter(hit.path for hit in hits)
    first = {hit.path: hit.line for hit in sorted(hits, reverse=True)}
    paths = [*called, *(path for path, _ in per_file.most_common() if path not in called)]
    lines = [
        f"- {place(path, first.get(path))}"
        + (f" ({count(per_file[path], 'line')})" if per_file[path] else " (by its name)")
        for path in paths[:MAX_LISTED]
    ]
    head = f"{count(len(paths), 'test file')} about {code(about)}:"
    return ScoutAnswer(paragraphs(head, lines, missed), symbol=about)
