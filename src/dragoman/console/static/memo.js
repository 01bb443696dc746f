import { Component, h } from "preact";

// A component that is drawn again only when its version or its item is another one.
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
