// ---- numbers, formulas and the arithmetic of a cell as they are written
// Of a stage in which NaN has a meaning, a dash is written for it.
function num(x, decimals, s) {
  if (typeof x === "string") return x;
  if (isNaN(x)) return s?.undefined ? "–" : "NaN";
  if (!isFinite(x)) return x > 0 ? "∞" : "−∞";
  const isWide = abs(x) >= 1e6 || (x !== 0 && abs(x) < 1e-12);
  const text = isWide ? x.toExponential(3) : fixed(x, decimals);
  return (/^-0\.?0*$/.test(text) ? text.slice(1) : text).replace("-", "−");
}

// Halves are rounded to even, as attncli does it; 21 more digits tell a half from what is near it.
function fixed(x, decimals) {
  const text = x.toFixed(decimals), long = x.toFixed(decimals + 21);
  const isHalf = long.endsWith("5" + "0".repeat(20)) && "13579".includes(text.at(-1));
  return isHalf ? long.slice(0, decimals ? -21 : -22) : text;
}
const trimmed = (x, decimals, s) => num(x, num(x, 4) === num(Math.round(x), 4) ? 0 : decimals, s);
const exact = x => String(x).replace("-Infinity", "−∞").replace("-", "−");
const percent = x => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;

// As many decimals as the table needs, up to `most`, so that the points stand below one another.
function decimalsOf(s, most) {
  if (s.words) return 0;
  const needs = x => (isFinite(x) ? (fixed(x, most).replace(/\.?0+$/, "").split(".")[1] ?? "").length : 0);
  return s.data.reduce((decimals, x) => (decimals < most ? max(decimals, needs(x)) : decimals), 0);
}
const joined = (parts, between) => parts.flatMap((part, at) => (at ? [between, part] : [part]));
const cut = (parts, most = 10) => (parts.length > most + 1 ? [...parts.slice(0, most), `… ${parts.length - most} more`] : parts);
const fraction = (above, below) => span("fraction", el("span", {}, above), el("span", {}, below));
const root = inner => ["√", span("root", inner)];
const power = (base, above) => [el("i", { text: base }), el("sup", {}, above)];

// A formula as the trace writes it: S = Q Kᵀ, √d_k, 10000^(2i/d).
const TOKEN = /([√^])(\((?:[^()]|\([^()]*\))*\)|[\w·]+)|([A-Za-zα-ω])_([\w·]+)|([A-Za-zα-ω])(?![A-Za-z])|[A-Za-z]{2,}|./gu;
const math = text => [...text.matchAll(TOKEN)].flatMap(([whole, lead, inner, letter, low, alone]) => {
  const bare = lead && math(inner.replace(/^\((.*)\)$/, "$1"));
  if (lead) return lead === "√" ? root(bare) : el("sup", {}, bare);
  if (letter) return [el("i", { text: letter }), el("sub", { text: low })];
  if (alone) return el("i", { text: alone });
  return whole === "ᵀ" ? el("sup", { text: "T" }) : whole === "-" ? "−" : whole;
});
const placeOf = ({ s, i, j }) => [s.vector !== "row" && s.rowNames[i], s.vector !== "column" && s.colNames[j]].filter(Boolean);
const nameOf = cell => span("name", math(cell.s.symbol), el("sub", {}, joined(placeOf(cell).map(labelNodes), ", ")));
const plainName = cell => `${cell.s.symbol}[${placeOf(cell).map(labelText).join(",")}]`;
const formulaOf = s => {
  const { root: now, factor, temperature: t } = s.params, by = now ?? factor;
  if (by === (s.had.root ?? s.had.factor) && t === s.had.temperature) return (s.formula ?? "").split(": ")[0];
  const scale = by === undefined ? "" : ` ${now ? "/" : "·"} ${trimmed(by, 4)}`;
  return `${s.symbol} = ${sourcesOf(s)[0].symbol}${scale}${t === undefined ? "" : ` / ${trimmed(t, 4)}`}`;
};

// ---- the formula of a cell with its numbers put in
const wordsAt = cell => wordsOf(cell.s, cell.s.tree, placesOf(cell));

// What stands before the number of a cell: ≈ where a sum or product of numbers as they are written is not
// exactly what is written of it.
const isSumOfProducts = ({ op, args = [], body }) => /^([-+*]|neg|sum|cell|number|parameter)$/.test(op) && [...args, ...(body ? [body] : [])].every(isSumOfProducts);
const written = cell => numberOf(trimmed(valueAt(cell), 4));
const signAt = cell => (isSumOfProducts(cell.s.tree) && abs(numberAt(cell, written) - written(cell)) > 1e-9 * (1 + abs(written(cell))) ? " ≈ " : " = ");

// `tight`: as a factor, a sum in brackets.
function wordsOf(s, node, places, tight = false) {
  const { op, args = [] } = node, [a, b] = args, words = (other, inner) => wordsOf(s, other, places, inner);
  const bracketed = parts => (tight ? ["(", parts, ")"] : parts), isAtom = other => !other.args;
  if (node.letters) return wordsOver(s, node, places, tight);
  if (op === "if") {
    const taken = args[2].run(places) ? a : b;
    const isRemark = s.remark && node === s.tree && !taken.args && !taken.source?.id;
    return isRemark ? [s.remark] : words(taken, tight);
  }
  if (op === "cell" && node.source.id) {
    const text = trimmed(node.run(places), 4, node.source);
    return [span(node.side, tight && text[0] === "−" ? `(${text})` : text)];
  }
  if (isAtom(node) || op === "//" || op === "%") return [trimmed(node.run(places), 4)];
  if (op === "+" || op === "-") return bracketed([words(a), op === "+" ? " + " : " − ", words(b, op === "-" || isAtom(b))]);
  if (op === "*") return [words(a, true), "\u202f·\u202f", words(b, true)];
  if (op === "/") return args.every(isAtom) ? [words(a), " / ", words(b, true)] : [fraction(words(a), words(b))];
  if (op === "neg") return ["−", words(a, true)];
  if (op === "exp") return power("e", words(a));
  if (op === "**") return [words(a, true), el("sup", {}, words(b))];
  if (op === "sqrt") return root(words(a));
  if (op === "abs") return ["|", words(a), "|"];
  if (op === "degrees") return [words(a), " in degrees"];
  return [op, "(", joined(args.map(arg => words(arg)), ", "), ")"];
}
function wordsOver(s, node, places, tight) {
  const { op, body, sink, letters } = node, all = node.terms(places), isProduct = op === "prod";
  const terms = node.guard?.args?.[1]?.op === "!=" ? all : all.filter(node.counts);
  const textOf = (parts, each, between = " + ") => joined(cut(parts).map(part => (typeof part === "string" ? part : each(part))), between);
  const none = [`every ${letters === "i" ? "query" : "key"} is masked`];
  if (op === "sum" || isProduct) {
    if (!terms.length) return none;
    const whole = textOf(terms, inner => wordsOf(s, body, inner, isProduct || body.op === "cell"), isProduct ? " · " : " + ");
    return tight && terms.length > 1 ? ["(", whole, ")"] : whole;
  }
  if (op === "max") return ["max(", textOf(terms, inner => wordsOf(s, body, inner), ", "), ")"];
  const exponents = terms.map(body.run);
  if (!exponents.some(x => x > -Infinity)) return none;
  const powers = [textOf(terms, inner => power("e", wordsOf(s, body, inner)))];
  if (sink) powers.push(" + ", power("e", wordsOf(s, sink, places)));
  const below = sum([...exponents, ...(sink ? [sink.run(places)] : [])].map(exp));
  if (op === "lse") return ["ln(", powers, ") = ln ", num(below, 4)];
  const above = body.run(places), result = [" = ", fraction(num(exp(above), 4), num(below, 4))];
  return [fraction(power("e", wordsOf(s, body, places)), powers), below < Infinity ? result : null];
}

// ---- colour: one hue for shares, two for signs; by the square root, so that small ones show. What a
// strength from 0 to 1 looks like is said in page.css.
let largest = 1; // of the numbers of both signs
const hueOf = (s, x) => (s.isShare ? 165 : x < 0 ? 255 : 60);
const strengthOf = (s, x, most = s.isShare || s.unit ? 1 : largest) => Math.sqrt(min(abs(x) / most, 1));

const TURNS = { 60: 0.94, 165: 0.99, 255: 0.95 }; // hue → the strength from which white letters are read better
function tint(node, s, x) {
  node.style.setProperty("--h", hueOf(s, x));
  node.style.setProperty("--t", TURNS[hueOf(s, x)]);
  node.style.setProperty("--x", s.shade && isFinite(x) ? strengthOf(s, x).toFixed(3) : "");
}
function setLargest() {
  const shown = stages.filter(s => s.shade === "signed" && !s.unit && isHere(s) && !isAsked(s));
  largest = max(1e-9, ...shown.map(mostOf));
}
const mostOf = s => s.data.reduce((most, x) => (isFinite(x) ? max(most, abs(x)) : most), 0);
