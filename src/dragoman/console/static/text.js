// Makes text from agents safe to show: it cannot hide, reorder or flood the text around it.

// The same invisible characters that dragoman.cli.output.escape makes visible in a terminal.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff9-\ufffb]|[\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
// Each further mark on a letter is drawn above or below the others, and soon over other lines.
const MARKS = /(\p{M}{6})(\p{M}+)/gu;
const JOINER = "\u200d";
const JOINED = /(?<=[\u2600-\u27bf\ufe0f\u{1f000}-\u{1faff}])\u200d(?=[\u2600-\u27bf\u{1f000}-\u{1faff}])/gu;
const ESCAPES = /\u001b(?:\[[0-?]*[ -\/]*[@-~]|\][^\u0007\u001b\n]{0,2000}(?:\u0007|\u001b\\))/g;

export const MAX_TEXT = 200000;

function visible(character) {
  return `\u27e8U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// A value in the agent's JSON may have any type, even an object that cannot be converted to a string.
export function textOf(value) {
  if (typeof value === "string") return value;
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
}

// Show control characters, invisible characters and the marks that pile up on a letter as code points.
// Nothing is removed: the user decides by what is shown. A joiner between two emoji combines them and
// hides nothing.
export function clean(text) {
  const whole = textOf(text).replace(/\r\n/g, "\n").replace(MARKS, (_, shown, more) => shown + [...more].map(visible).join(""));
  if (!whole.includes(JOINER)) return whole.replace(HIDDEN, visible);
  return whole.split(JOINED).map((part) => part.replace(HIDDEN, visible)).join(JOINER);
}

// Look up a key that comes from outside, such as "constructor" or "__proto__", only among own properties.
export function own(table, key) {
  return typeof key === "string" && Object.hasOwn(table, key) ? table[key] : undefined;
}

function cut(text, size, show) {
  const whole = textOf(text);
  if (whole.length <= size) return show(whole);
  return `${show(whole.slice(0, size))} \u2026 (${whole.length - size} more characters)`;
}

export function clip(text, size = MAX_TEXT) {
  return cut(text, size, clean);
}

// The output of a program: colours are removed, and an overwritten line is shown as a line of its own.
export function printed(text, size = MAX_TEXT) {
  return cut(text, size, (part) => clean(part.replace(/\r\n?/g, "\n").replace(ESCAPES, "")));
}

export function oneLine(text, size = 160) {
  return clip(textOf(text).slice(0, size * 8).replace(/\s+/g, " ").trim(), size);
}

export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}

// The time of day, with the date unless it is today.
export function until(seconds) {
  const then = new Date(seconds * 1000);
  const time = then.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return then.toDateString() === new Date().toDateString() ? time : `${then.toLocaleDateString()} ${time}`;
}

export function shortPath(path, parts = 2) {
  const words = String(path ?? "").split("/").filter(Boolean);
  return words.length > parts ? `\u2026/${clean(words.slice(-parts).join("/"))}` : clean(path);
}
