// Folds streams of events as the page does, and prints the views. Input and output are lines of JSON.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { apply, comparable, newView } = await import(pathToFileURL(process.argv[2]).href);

for await (const line of createInterface({ input: process.stdin })) {
  const view = newView();
  for (const event of JSON.parse(line)) apply(view, event);
  process.stdout.write(`${JSON.stringify(comparable(view))}\n`);
}
