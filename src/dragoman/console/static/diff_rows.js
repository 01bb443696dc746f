// The lines of a change as numbered rows, for the review: unified or side by side.
import { CONTEXT, compare, lines } from "./diff.js";

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/;

// A row has a sign ("+", "-", " ", or "@" for skipped lines), its line numbers before and after the
// change if known, and its text.
export function rowsOf(change) {
  return change.diff === null ? ofTexts(change) : ofDiff(change.diff);
}

function ofDiff(text) {
  const rows = [];
  let old = null;
  let now = null;
  for (const line of text.split("\n")) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      old = Number(hunk[1]);
      now = Number(hunk[2]);
      rows.push({ sign: "@", text: line });
    } else if (line.startsWith("\\")) {
      rows.push({ sign: "@", text: line.slice(2) });
    } else {
      const sign = line[0] === "+" || line[0] === "-" ? line[0] : " ";
      rows.push({ sign, old: sign === "+" ? null : old, now: sign === "-" ? null : now, text: line.slice(1) });
      if (sign !== "+" && old !== null) old += 1;
      if (sign !== "-" && now !== null) now += 1;
    }
  }
  return rows;
}

// The texts may be excerpts of the file. Then the line numbers after the change are known only if the
// server found the excerpt in the file, and those before the change are unknown.
function ofTexts(change) {
  const created = change.oldText === null;
  let now = created ? 1 : change.firstLine;
  // An excerpt at the first line starts there before and after the change.
  let old = now === 1 && !created ? 1 : null;
  const rows = compare(lines(change.oldText), lines(change.newText ?? "")).map(([sign, text]) => {
    const row = { sign, old: sign === "+" ? null : old, now: sign === "-" ? null : now, text };
    if (sign !== "+" && old !== null) old += 1;
    if (sign !== "-" && now !== null) now += 1;
    return row;
  });
  return folded(rows);
}

function folded(rows) {
  const near = new Uint8Array(rows.length);
  rows.forEach((row, at) => {
    if (row.sign !== " ") near.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1);
  });
  const shown = [];
  let skipped = 0;
  const skip = () => {
    if (skipped) shown.push({ sign: "@", text: `${skipped} unchanged ${skipped === 1 ? "line" : "lines"}` });
    skipped = 0;
  };
  rows.forEach((row, at) => {
    if (!near[at]) {
      skipped += 1;
      return;
    }
    skip();
    shown.push(row);
  });
  skip();
  return shown;
}

// Pairs of rows for two columns: removed lines next to the lines that replace them.
export function pairs(rows) {
  const found = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++) found.push([removed[at] ?? null, added[at] ?? null]);
    removed = [];
    added = [];
  };
  for (const row of rows) {
    if (row.sign === "-") {
      if (added.length) flush();
      removed.push(row);
    } else if (row.sign === "+") {
      added.push(row);
    } else {
      flush();
      found.push([row, row]);
    }
  }
  flush();
  return found;
}

export function counts(rows) {
  return { added: rows.filter((row) => row.sign === "+").length, removed: rows.filter((row) => row.sign === "-").length };
}
