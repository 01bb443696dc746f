// Elapsed times. Only these components are rendered again every second, not the ones around them.
import { clock } from "./connection.js";
import { age } from "./text.js";

export function Ago({ at }) {
  return `${age(clock.value - at)} ago`;
}

export function Since({ at }) {
  return age(clock.value - at);
}
