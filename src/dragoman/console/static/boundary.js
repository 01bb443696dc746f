// Shows an error message in place of a component that fails to render. The rest of the page works.
import { Component } from "preact";
import { html } from "./html.js";
import { clip } from "./text.js";

export class Boundary extends Component {
  constructor() {
    super();
    this.state = { problem: null };
  }

  static getDerivedStateFromError(problem) {
    return { problem };
  }

  render({ children }, { problem }) {
    if (problem === null) return children;
    return html`<p class="problem" role="alert">This cannot be shown: ${clip(problem?.message ?? problem, 400)}</p>`;
  }
}
