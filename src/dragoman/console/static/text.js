// Text of agents, made harmless to read: it cannot hide, reorder or flood what stands around it.

const ANSI = /\u001b(?:\[[0-?]*[ -\/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|\u{e0001}|[\u{e0020}-\u{e007f}]/gu;

export const MAX_TEXT = 200000;

function visible(character) {
  return `\u27e8U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

// Colours of a terminal are left out; characters that are obeyed or not seen are spelled out.
export function clean(text) {
  return String(text ?? "").replace(/\r\n?/g, "\n").replace(ANSI, "").replace(HIDDEN, visible);
}

export function clip(text, size = MAX_TEXT) {
  const whole = String(text ?? "");
  if (whole.length <= size) return clean(whole);
  return `${clean(whole.slice(0, size))} \u2026 (${whole.length - size} characters more)`;
}

export function oneLine(text, size = 160) {
  return clip(String(text ?? "").slice(0, size * 8).replace(/\s+/g, " ").trim(), size);
}

export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d`;
}

export function shortPath(path, parts = 2) {
  const words = String(path ?? "").split("/").filter(Boolean);
  return words.length > parts ? `\u2026/${clean(words.slice(-parts).join("/"))}` : clean(path);
}
