// Pages of a publisher that are a React 18 application.

import { readFile } from "node:fs/promises";

import { open, shown } from "./publisher.mjs";

const library = (path) => readFile(new URL(`../../node_modules/${path}`, import.meta.url), "utf8");

/** An application with a placement; the test changes its content and its siblings by `window.set`. */
function application() {
  const { createElement, useState, Fragment } = window.React;
  const contents = {
    text: "house",
    other: "other house",
    element: createElement("a", { href: "#" }, "house link"),
    list: ["one", "two", "three"].map((key) => createElement("b", { key }, key)),
    turned: ["three", "one"].map((key) => createElement("b", { key }, key)),
    mixed: createElement(Fragment, null, "text ", createElement("i", null, "and element")),
    none: null,
  };
  return function App() {
    const [state, setState] = useState({ house: "text", around: ["before", "slot", "after"] });
    window.set = (next) => window.ReactDOM.flushSync(() => setState((last) => ({ ...last, ...next })));
    const slot = createElement(window.kind ?? "div", { key: "slot", id: "top", "data-causeway": "top", "data-sizes": "728x90" }, contents[state.house]);
    return createElement("main", null, state.around.map((key) => (key === "slot" ? slot : createElement("p", { key }, key))));
  };
}

/** Contents of the placement, in this order, with the text of each. */
export const HOUSES = [["other", "other house"], ["element", "house link"], ["list", "onetwothree"], ["turned", "threeone"],
  ["mixed", "text and element"], ["none", ""], ["text", "house"]];

/** A page with React 18; `begin` renders into `#root`, which holds `html`. */
export async function openReact(html, { begin = "", init = [] } = {}) {
  const [react, dom] = await Promise.all(["react/umd/react.development.js", "react-dom/umd/react-dom.development.js"].map(library));
  const scripts = `<script src="/pages/react.js"></script><script src="/pages/react-dom.js"></script>
    <script>window.App = (${application})(); ${begin}</script>`;
  const page = await open(`<div id="root">${html}</div>${scripts}`, { init, others: { "react.js": react, "react-dom.js": dom } });
  await shown(page, () => window.App);
  return page;
}

/** Code that renders the application into an empty `#root`. */
export const RENDER = 'window.root = ReactDOM.createRoot(document.querySelector("#root")); root.render(React.createElement(App));';
