// Small bar charts: columns for days, rows for names. Each has a text alternative, and the table
// below the charts has every number.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { clip } from "./text.js";

const HEIGHT = 200;
const ROW = 30;

function useWidth() {
  const at = useRef(null);
  const [width, setWidth] = useState(480);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    watch.observe(at.current);
    return () => watch.disconnect();
  }, []);
  return [at, width];
}

const LEAST = 1e-9; // smaller values count as zero

// Axis ticks: multiples of 1, 2 or 5 (times a power of ten) that reach `most` in at most five steps.
export function ticks(most, whole) {
  if (!(most >= LEAST && most < Infinity)) return [0, 1];
  let step = 10 ** Math.floor(Math.log10(most / 4));
  for (const factor of [1, 2, 5, 10]) {
    if (most / (step * factor) <= 5) {
      step *= factor;
      break;
    }
  }
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let at = 0; at < Math.ceil(most / step - 1e-9) + 1; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

function said(row, parts, format) {
  const told = parts.filter((part) => row.values[part.name] > 0 || parts.length === 1).map((part) => `${format(row.values[part.name])}${parts.length > 1 ? ` ${part.title}` : ""}`);
  return `${clip(row.label, 60)}: ${told.join(", ") || "nothing"}${row.unknown ? `, unknown for ${row.unknown}` : ""}`;
}

const sum = (row, parts) => parts.reduce((total, part) => total + row.values[part.name], 0);

function Columns({ rows, parts, format, unit, whole, width, name }) {
  const left = 56;
  const top = 30;
  const bottom = 24;
  const lines = ticks(Math.max(...rows.map((row) => sum(row, parts))), whole);
  const most = lines.at(-1);
  const y = (value) => top + (HEIGHT - top - bottom) * (1 - value / most);
  const step = (width - left - 8) / rows.length;
  const every = Math.max(1, Math.ceil(rows.length / Math.max(2, Math.floor((width - left) / 70))));
  return html`<svg viewBox="0 0 ${width} ${HEIGHT}" role="img" aria-label=${name}>
    <text x="0" y="12">${unit}</text>
    ${lines.map((value) => html`<g key=${value}><line class="grid" x1=${left} x2=${width} y1=${y(value)} y2=${y(value)} /><text x=${left - 6} y=${y(value) + 4} text-anchor="end">${format(value, true)}</text></g>`)}
    ${rows.map((row, at) => {
      let base = 0;
      const x = left + 4 + at * step;
      const bars = parts.map((part) => {
        const value = row.values[part.name];
        const bar = value > 0 && html`<rect class=${part.name} x=${x} width=${Math.max(1, step * 0.75)} y=${y(base + value)} height=${Math.max(1, y(base) - y(base + value))} />`;
        base += value;
        return bar;
      });
      return html`<g key=${row.label}><title>${said(row, parts, format)}</title>${bars}
        ${row.unknown > 0 && html`<text class="question" x=${x + step * 0.375} y=${y(base) - 4} text-anchor="middle">?</text>`}
        ${(rows.length - 1 - at) % every === 0 && html`<text x=${Math.min(x + step * 0.375, width - 18)} y=${HEIGHT - 6} text-anchor="middle">${clip(row.label.slice(5), 10)}</text>`}</g>`;
    })}
  </svg>`;
}

function Rows({ rows, parts, format, unit, whole, width, name }) {
  const left = Math.min(150, Math.round(width * 0.34));
  const right = 76;
  const lines = ticks(Math.max(...rows.map((row) => sum(row, parts))), whole);
  const most = lines.at(-1);
  const bottom = rows.length * ROW + 8;
  const x = (value) => left + (width - left - right) * (value / most);
  const letters = Math.floor(left / 7.5);
  const every = Math.max(1, Math.ceil(lines.length / Math.max(2, Math.floor((width - left - right) / 48))));
  return html`<svg viewBox="0 0 ${width} ${bottom + 38}" role="img" aria-label=${name}>
    ${lines.map((value, at) => html`<g key=${value}><line class="grid" x1=${x(value)} x2=${x(value)} y1="0" y2=${bottom} />${at % every === 0 && html`<text x=${x(value)} y=${bottom + 16} text-anchor="middle">${format(value, true)}</text>`}</g>`)}
    <text x=${left} y=${bottom + 33}>${unit}</text>
    ${rows.map((row, at) => {
      let base = 0;
      const y = at * ROW + 8;
      const label = clip(row.label, 200);
      const bars = parts.map((part) => {
        const value = row.values[part.name];
        const bar = value > 0 && html`<rect class=${part.name} x=${x(base)} width=${Math.max(1, x(base + value) - x(base))} y=${y} height=${ROW - 12} />`;
        base += value;
        return bar;
      });
      return html`<g key=${row.label}><title>${said(row, parts, format)}</title>
        <text class="strong" x=${left - 8} y=${y + 13} text-anchor="end">${label.length > letters ? `${label.slice(0, letters - 1)}\u2026` : label}</text>${bars}
        <text x=${x(base) + 6} y=${y + 13}>${base > 0 || !row.unknown ? format(base) : ""}${row.unknown > 0 && html`<tspan class="question"> ?</tspan>`}</text></g>`;
    })}
  </svg>`;
}

// `parts` are the segments of a bar. Each row has a label, `values` by segment name, and `unknown`:
// the number of attempts whose value is unknown.
export function Chart({ title, days, rows, parts, format, unit, whole = false, note = "" }) {
  const [at, width] = useWidth();
  const Kind = days ? Columns : Rows;
  const name = `${title}. ${rows.filter((row) => sum(row, parts) > 0 || row.unknown > 0).map((row) => said(row, parts, format)).join("; ") || "Nothing."}`;
  return html`<section class="card chart" aria-label=${title}>
    <h2>${title}</h2>
    ${parts.length > 1 && html`<ul class="legend">${parts.map((part) => html`<li key=${part.name}><svg viewBox="0 0 10 10" aria-hidden="true"><rect class=${part.name} width="10" height="10" /></svg>${part.title}</li>`)}</ul>`}
    <div ref=${at}><${Kind} rows=${rows} parts=${parts} format=${format} unit=${unit} whole=${whole} width=${width} name=${name} /></div>
    ${note && html`<p class="about">${note}</p>`}
  </section>`;
}
