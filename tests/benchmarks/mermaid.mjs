// Draws each Mermaid chart of a JSON list on standard input, without a browser, and prints the text
// of its nodes and boxes, how many arrows it has, and how many elements that no label may bring.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!doctype html><body></body>", { pretendToBeVisual: true });
// There is no layout here: every text is as wide as any other.
window.SVGElement.prototype.getBBox = () => ({ x: 0, y: 0, width: 100, height: 20 });
window.SVGElement.prototype.getComputedTextLength = () => 100;
Object.assign(globalThis, { window, document: window.document });
for (const name of ["Element", "HTMLElement", "SVGElement", "Node", "DOMParser", "XMLSerializer",
  "getComputedStyle", "MutationObserver"]) globalThis[name] ??= window[name];
globalThis.CSSStyleSheet = class {
  cssRules = [];
  replaceSync() {}
  insertRule() {}
};

const mermaid = (await import("mermaid")).default;
mermaid.initialize({ startOnLoad: false });
const drawn = [];
for (const chart of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    const { svg } = await mermaid.render(`chart${drawn.length}`, chart);
    const page = new JSDOM(`<body>${svg}</body>`).window.document;
    const texts = (selector) => [...page.querySelectorAll(selector)].map((node) => {
      node.querySelectorAll("br").forEach((line) => line.replaceWith("\n"));
      return node.textContent;
    });
    drawn.push({
      nodes: texts(".node .nodeLabel"),
      boxes: texts(".cluster .nodeLabel"),
      arrows: page.querySelectorAll("path.flowchart-link").length,
      acting: page.querySelectorAll("a, script, img, b, i, strong, em, code, del, [onclick]").length,
    });
  } catch (problem) {
    drawn.push({ error: String(problem) });
  }
}
console.log(JSON.stringify(drawn));
process.exit(0);
