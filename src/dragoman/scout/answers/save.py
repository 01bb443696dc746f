"""Save scout's last answer to a file, after asking for permission. Scout writes nothing else into a
workspace.

The tool call shows the diff. The client writes the file if it offers that, otherwise scout does.
After a refusal the turn ends without text, so that it does not look as if the file was written.
"""

from __future__ import annotations

from typing import Final

from dragoman.client.services.files import Files
from dragoman.client.services.workspace import Workspace
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import FileMissing, RemoteError, ServiceError
from dragoman.scout.markdown import count, place
from dragoman.scout.questions import Save
from dragoman.scout.turn_context import ScoutAnswer, TurnContext

MAX_OLD_SIZE: Final = 1024 * 1024
"""Maximum size in bytes of an existing file to replace: its content is shown in the diff."""


async def save(context: TurnContext, asked: Save, last: str) -> ScoutAnswer:
    """Write the last answer to a file, after asking for permission."""
    await context.plan("Ask for permission", f"Write {place(asked.path)}", "Answer")
    if not last:
        return ScoutAnswer("There is nothing to save yet: ask me something first.", answered=False)
    content = last if last.endswith("\n") else f"{last}\n"
    workspace = Workspace([context.root])
    where = context.reader.locate(asked.path)
    real = await context.in_thread(lambda _: workspace.resolve_for_write(where))
    path = context.reader.relative(real)
    files = Files(workspace, max_file_size=MAX_OLD_SIZE)
    try:
        old: str | None = await files.read_text(real)
    except FileMissing:
        old = None
    absolute = str(real)
    call = context.turn.tool(
        f"Write {place(path)}",
        kind="edit",
        name="write",
        status="pending",
        content=[acp.Diff(path=absolute, new_text=content, old_text=old)],
        locations=[acp.ToolCallLocation(path=absolute, line=1)],
        raw_input={"path": absolute},
    )
    async with call:
        if not await context.turn.ask_permission(call):
            await call.fail("It was not allowed. Nothing was written.")
            return ScoutAnswer("", answered=True)
        await context.step()
        await call.start()
        try:
            if context.turn.client.can("fs.writeTextFile"):
                await context.turn.write_file(absolute, content)
            else:
                await files.write_text(real, content)
        except (RemoteError, ServiceError) as error:
            await call.fail(str(error))
            return ScoutAnswer(f"I could not write {place(path)}: {error}.", answered=False)
    await context.step()
    lines = content.count("\n")
    was = "replaced" if old is not None else "written"
    return ScoutAnswer(f"{place(path)} was {was}: {count(lines, 'line')}.", path=path)
