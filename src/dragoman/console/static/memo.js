import { Component, h } from "preact";

// A component that renders again only if its version or its item has changed.
export function memo(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return next.version !== this.drawnVersion || next.item !== this.props.item;
    }
    render(props) {
      this.drawnVersion = props.version;
      return h(draw, props);
    }
  };
}
