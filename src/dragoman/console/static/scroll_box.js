// A long text that scrolls in its box. Not every system shows a scroll bar, so a line below the box says
// that there is more: the end of a command or of a change must not be overlooked.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";

export function ScrollBox({ kind, name, lines = 0, children }) {
  const at = useRef(null);
  const [long, setLong] = useState(false);
  const look = () => setLong(at.current !== null && at.current.scrollHeight > at.current.clientHeight + 2);
  useLayoutEffect(look);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(look);
    watch.observe(at.current);
    return () => watch.disconnect();
  }, []);
  return html`<pre class=${kind} tabindex="0" aria-label=${name} ref=${at}>${children}</pre>
    ${long && html`<p class="notice">There is more: scroll in the box above to see all of it${lines > 1 ? ` (${lines} lines)` : ""}.</p>`}`;
}
