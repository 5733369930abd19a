// ---- tools: step by step, ask, what if
const field = (name, ...children) => el("span", { class: `field ${name}` }, children);
const tool = (id, text, onclick, title = "") => button(text, onclick, text, { id, title });
const box = (id, words, checked, change) =>
  el("label", { htmlFor: id }, el("input", { type: "checkbox", id, checked, onchange: event => change(event.target.checked) }), ` ${words}`);

function makeTools() {
  const wasOpen = $("tools").querySelector("details")?.open ?? !isNarrow();
  const learn = field("learn", globalThis.canWalk?.() && tool("walk", "Follow one query", () => startWalk()),
    globalThis.canAsk?.() && !isSheet() && tool("quiz", state.quiz ? "End the quiz" : "Quiz me", () => ask(!state.quiz)),
    order.length > 1 && !isSheet() && stepper());
  const change = isSheet() ? null : state.locked ? order.length > 0 && field("locked", `Read only: ${state.locked}.`) : whatIf();
  $("tools").replaceChildren(el("details", { open: wasOpen }, el("summary", { text: "Learn, and what if" }), learn, change, legend()));
  $("bar").hidden = !stages.some(s => !s.words);
  paintTools();
}

// "Show up to": which stage is the last that is shown.
function stepper() {
  const count = order.length, words = el("output", { id: "step-name" });
  const slider = el("input", { type: "range", id: "step", min: 0, max: count, value: Math.min(state.step, count), "aria-label": "show the stages up to" });
  const shown = () => Math.min(state.step, count), last = () => order[shown() - 1];
  const tell = () => {
    words.replaceChildren(...(state.step >= count ? ["all stages"] : last() ? [`${state.step} of ${count}: `, ...math(last().symbol)] : ["inputs"]));
    slider.setAttribute("aria-valuetext", words.textContent);
  };
  const go = to => {
    state.step = to >= count ? Infinity : Math.max(0, to);
    slider.value = shown();
    tell();
    if (!last()) pin(null);
    else if (state.step < count) pin([last(), shownPlane(last()), 0, 0]);
    paint();
    $(`at-${last()?.id}`)?.scrollIntoView({ block: "nearest" });
  };
  on(slider, "input", () => go(Number(slider.value)));
  const turn = (text, label, by) => button(text, () => go(shown() + by), label);
  tell();
  return field("upto", el("label", { htmlFor: "step", text: "Show up to" }), turn("◀", "one stage less", -1), slider, turn("▶", "one stage more", 1), words);
}
const PARAMETERS = { root: "scores /", factor: "scores ·", cap: "cap", value: "masked score" };

// A number of the attention, in its gradients too: the scale (also by a slider), the cap, the masked score.
function parameter(s, name) {
  const id = `param-${name}`, isScale = name === "root" || name === "factor", written = () => trimmed(s.params[name], 4).replace("−", "-");
  const input = el("input", { id, class: "param", value: written(), autocomplete: "off", title: "a number, 1/2 or √8" });
  const set = x => {
    for (const other of inGroup()) if (name in other.params) other.params[name] = x;
    recompute();
  };
  on(input, "change", () => {
    const x = numberOf(input.value);
    if (!Number.isFinite(x) || x === 0) return (input.value = written()), announce("this is no number");
    remember();
    set(x);
  });
  on(input, "keydown", event => event.stopPropagation());
  const value = Math.round(8 * Math.log2(s.params[name] / s.had[name])) || 0;
  const slider = isScale && el("input", { type: "range", min: -24, max: 24, value, "aria-label": "scale, from sharp to flat" });
  if (slider) {
    on(slider, "pointerdown", remember);
    on(slider, "keydown", event => /^Arrow|^Page|Home|End/.test(event.key) && remember());
    on(slider, "input", () => {
      set(s.had[name] * 2 ** ((Number(slider.value) / 8) * (name === "factor" ? -1 : 1)));
      input.value = written();
      slider.setAttribute("aria-valuetext", input.value);
    });
  }
  return [el("label", { htmlFor: id, text: PARAMETERS[name] }), input, slider];
}
function whatIf() {
  const refit = change => {
    const focus = focused()?.id;
    remember();
    change();
    layOut();
    recompute();
    if (focus) $(focus)?.focus();
  };
  const canMask = Boolean(mask()?.isInput || groupShown()?.ifMasked) && part("weights")?.tree?.letters === "j";
  const numbers = Object.keys(PARAMETERS).map(name => [inGroup().find(s => Number.isFinite(s.params[name])), name]);
  return field("what-if", numbers.map(([s, name]) => s && parameter(s, name)),
    canMask && box("causal", "causal", mask() ? isCausal(mask()) : false, isOn => refit(() => (isOn && !mask() && addMask(), setCausal(isOn)))),
    canMask && (!mask() || isAdded()) && box("mask", "mask by cell", Boolean(mask()), isOn => refit(isOn ? addMask : dropMask)),
    field("back", tool("undo", "Undo", () => turnBack(past, future), "Ctrl+Z"), tool("redo", "Redo", () => turnBack(future, past), "Ctrl+Y"), tool("reset", "Reset", reset)),
    page.command && field("take", tool("command", "Copy as command", () => (command() ? copyText(command(), "the state was copied as an attncli command") : announce("no call gives vectors that were changed by hand"))),
      tool("json", "JSON", () => copyText(JSON.stringify(asInput()), "the input was copied as JSON"))));
}
function paintTools() {
  for (const [id, can] of [["undo", past.length], ["redo", future.length], ["reset", state.edited]])
    if ($(id)) $(id).disabled = !can;
}
function legend() {
  const swatch = (s, x, text) => {
    const node = span("swatch", text);
    [node.style.background, node.style.color] = shadeOf(s, x);
    return node;
  };
  const has = kind => stages.some(s => isHere(s) && s.shade === kind), most = trimmed(largest, 2);
  const shares = [0, 0.1, 0.25, 0.5, 1].map(x => swatch({ isShare: true }, x, String(x)));
  const others = [-1, -0.1, 0, 0.1, 1].map(x => swatch({ shade: "signed" }, x * largest, x * x === 1 ? (x < 0 ? "−" : "") + most : x ? "" : "0"));
  return field("legend", has("share") && ["shares ", shares], has("signed") && [span("next", "other numbers"), others]);
}

// ---- tables to be taken elsewhere
function asNumPy(s) {
  const text = at => String(s.words?.[at] ?? s.data[at]).replace("Infinity", "np.inf").replace("NaN", "np.nan");
  const rows = range(s.rows).map(i => `[${range(s.cols).map(j => text(indexOf([s, shownPlane(s), i, j]))).join(", ")}]`);
  return `np.array([${rows.join(", ")}])`;
}
async function copyText(text, message) {
  const area = el("textarea", { value: text, "aria-label": "copied" });
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed here, as in a frame
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(message);
}
