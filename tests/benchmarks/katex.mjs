// Renders every formula of a list on standard input with KaTeX; prints what it says of each wrong one.
// What LaTeX would not take is an error, a letter that KaTeX has no measures of (Hebrew) is not:
// a browser shows it.
import katex from "katex";
import { readFileSync } from "node:fs";

const wrong = [];
for (const formula of JSON.parse(readFileSync(0, "utf8"))) {
  const strict = (code) => (["unknownSymbol", "symbolNotInFont"].includes(code) && /[^\x00-\x7f]/.test(formula) ? "ignore" : "error");
  try {
    katex.renderToString(formula, { displayMode: true, throwOnError: true, strict });
  } catch (problem) {
    wrong.push(`${problem.message}\n    ${formula}`);
  }
}
console.log(JSON.stringify(wrong));
