"""Answers about what is left to do, and about what was done lately.

Owns the marks that people leave in comments, and the telling of a history. The history itself comes
from `dragoman.scout.history`; where there is none, the times of files tell a little.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias, assert_never

from dragoman.scout import languages
from dragoman.scout.file_walk import Walk
from dragoman.scout.history import Commit, History, NoHistory, Touched, find_history
from dragoman.scout.hits import Hit, Query, clean
from dragoman.scout.intents import RecentChanges, Todos
from dragoman.scout.markdown import bullet, clip, code, count, paragraphs, place
from dragoman.scout.turn_context import ScoutAnswer, TurnContext, reservations

MAX_LISTED: Final = 50
MAX_TODOS: Final = 20_000
MAX_FILES_PER_COMMIT: Final = 6
MAX_NEWEST: Final = 15
MAX_PENDING: Final = 12

Asked: TypeAlias = Todos | RecentChanges


async def answer(context: TurnContext, asked: Asked) -> ScoutAnswer:
    """Answer a question about work."""
    match asked:
        case Todos():
            return await _todos(context, asked)
        case RecentChanges():
            return await _changes(context, asked)
        case _ as never:
            assert_never(never)


def is_mark(text: str, tags: Sequence[str], path: str) -> bool:
    """Whether one of the tags is a mark in this line, and not a word in a sentence or a name.

    It stands in a comment, at the beginning of one or with a colon or a bracket behind it. In
    prose every line is a comment.
    """
    word = "|".join(tags)
    language = languages.of_path(path)
    if not language.is_code:
        return re.search(rf"(?:^|[\s>*\-\[(#`])(?:{word})(?=[:(\]\s!]|$)", text) is not None
    signs = [re.escape(sign) for sign in language.comments] or ["#", "//"]
    opening = "|".join([*signs, '"""', "'''", "<!--", r"\{#", r"\{/\*"])
    comment = re.search(rf"(?:{opening})", text)
    if comment is None:
        return False
    rest = text[comment.end() :]
    return (
        re.match(rf"[\s*!/#\-@\[(]*(?:{word})(?!\w)", rest) is not None
        or re.search(rf"(?<!\w)(?:{word})(?=\s*[:(\]])", rest) is not None
    )


async def _todos(context: TurnContext, asked: Todos) -> ScoutAnswer:
    named = " and ".join(asked.tags) if len(asked.tags) < 3 else "marks such as TODO"
    await context.plan(f"Search for {named}", "Answer")
    under = (
        await context.in_thread(lambda _: context.reader.folder(asked.path)) if asked.path else ""
    )
    hits: list[Hit] = []
    words = asked.words.lower()

    def sink(hit: Hit) -> bool:
        if words in hit.text.lower() and is_mark(hit.text, asked.tags, hit.path):
            hits.append(hit)
        return len(hits) < MAX_TODOS

    searched = await context.search(
        f"Search for {', '.join(asked.tags)}",
        Query(tuple(asked.tags), under=under),
        sink,
        lambda: sorted(hits),
    )
    await context.step()
    hits.sort()
    where = f" in {place(under)}" if under else ""
    about = f" about {code(asked.words)}" if asked.words else ""
    missed = reservations(searched)
    if not hits:
        return ScoutAnswer(paragraphs(f"I found no {named}{about}{where}.", missed))
    pattern = re.compile(rf"(?<!\w)({'|'.join(asked.tags)})(?!\w)")
    kinds = Counter(found[1] for hit in hits if (found := pattern.search(hit.text)))
    tally = ", ".join(f"{number:,} {tag}" for tag, number in kinds.most_common())
    files = len({hit.path for hit in hits})
    number = count(len(hits), "place")
    verb = "is" if len(hits) == 1 else "are"
    head = f"There {verb} {number}{about}{where} in {count(files, 'file')} ({tally}):"
    lines = [bullet(hit) for hit in hits[:MAX_LISTED]]
    if len(hits) > MAX_LISTED:
        lines.append(f"- … and {len(hits) - MAX_LISTED:,} more")
    return ScoutAnswer(paragraphs(head, lines, missed))


async def _changes(context: TurnContext, asked: RecentChanges) -> ScoutAnswer:
    await context.plan("Ask git for the history", "Answer")
    path = (
        await context.in_thread(lambda _: context.reader.anything(asked.path)) if asked.path else ""
    )
    asked = RecentChanges(asked.count, asked.since, asked.author, path)
    raw = {"program": "git", "path": path or ".", "since": asked.since, "author": asked.author}
    async with context.tool("Ask git what changed", "execute", "git", raw, path=path) as call:
        try:
            history = await find_history(context.root, asked)
        except NoHistory as error:
            await call.fail(str(error))
            reason = str(error)
        else:
            reason = ""
            touched = sum(len(commit.files) for commit in history.commits)
            number = count(len(history.commits), "commit")
            await context.report(call, [], f"{number}, {count(touched, 'file')} touched")
    await context.step()
    return await _newest(context, asked, reason) if reason else ScoutAnswer(_told(history, asked))


def _told(history: History, asked: RecentChanges) -> str:
    where = f" in {place(asked.path)}" if asked.path else ""
    by = f" by {code(asked.author)}" if asked.author else ""
    since = f" since {asked.since}" if asked.since else ""
    pending = _pending(history.uncommitted)
    if not history.commits:
        return paragraphs(f"Git knows of no commits{where}{by}{since}.", pending)
    number = (
        "The last commit"
        if len(history.commits) == 1
        else (f"The last {len(history.commits):,} commits")
    )
    return paragraphs(
        f"{number}{where}{by}{since}:",
        "\n".join(_commit(each) for each in history.commits),
        _often(history.commits),
        pending,
    )


def _pending(touched: Sequence[Touched]) -> str:
    if not touched:
        return ""
    lines = [f"- {place(each.path)} ({each.how})" for each in touched[:MAX_PENDING]]
    if len(touched) > MAX_PENDING:
        lines.append(f"- … and {len(touched) - MAX_PENDING:,} more")
    verb = "is" if len(touched) == 1 else "are"
    head = f"{count(len(touched), 'file')} {verb} changed and not committed:"
    return paragraphs(head, lines)


def _commit(commit: Commit) -> str:
    shown = ", ".join(place(each.path) for each in commit.files[:MAX_FILES_PER_COMMIT])
    more = len(commit.files) - MAX_FILES_PER_COMMIT
    if more > 0:
        shown += f" and {more:,} more"
    subject = clip(clean(commit.subject), 120)
    head = f"- {code(commit.short_id)} {commit.date} {clean(commit.author)}: {subject}"
    return f"{head}\n  {shown}" if shown else head


def _often(commits: Sequence[Commit]) -> str:
    """The files that were touched more than once."""
    often = Counter(each.path for commit in commits for each in commit.files)
    top = [(path, number) for path, number in often.most_common(5) if number > 1]
    if not top or len(commits) < 3:
        return ""
    return "Touched most often: " + ", ".join(f"{place(path)} ({n}×)" for path, n in top) + "."


async def _newest(context: TurnContext, asked: RecentChanges, reason: str) -> ScoutAnswer:
    """Without git the times of files are all there is."""
    if asked.author or asked.since:
        return ScoutAnswer(f"I cannot tell who changed what, or when: {reason}.", answered=False)
    await context.plan("Ask git for the history", "Look at the times of files", "Answer")
    await context.step()
    under = "" if asked.path == "." else asked.path

    def look(stop: threading.Event) -> list[tuple[float, str]]:
        found = []
        is_file = os.path.isfile(os.path.join(context.root, under))
        for path in [under] if is_file else Walk(context.root, under).files(stop):
            try:
                info = os.stat(os.path.join(context.root, path), follow_symlinks=False)
            except OSError:
                continue
            found.append((info.st_mtime, path))
        return sorted(found, reverse=True)[:MAX_NEWEST]

    async with context.tool("Look at the times of files", "read", "times", path=under) as call:
        newest = await context.in_thread(look)
        await context.report(call, [Hit(path, 0, "") for _, path in newest], "the newest files")
    await context.step()
    if not newest:
        return ScoutAnswer(
            f"Nothing can be told: {reason}, and there are no files.", answered=False
        )
    lines = [f"- {place(path)} {_moment(at)}" for at, path in newest]
    head = f"As far as I can tell ({reason}), these files were changed last:"
    return ScoutAnswer(paragraphs(head, lines))


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
