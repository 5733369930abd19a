"""Firefox by WebDriver BiDi, with as much of Playwright's API as the tests of this folder use.

Playwright drives a Firefox of its own alone, and Debian's speaks BiDi: JSON on a WebSocket. Mouse and
keys are those of a user. Paper and a dark screen are had through the style sheet of the page.
"""

import base64
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

from websockets.sync.client import connect

KEYS = {
    "Tab": "\ue004", "Enter": "\ue007", "Control": "\ue009", "Escape": "\ue00c", "PageUp": "\ue00e", "PageDown": "\ue00f",
    "End": "\ue010", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Space": " ",
}  # fmt: skip
EVENTS = {
    "log.entryAdded": "console", "network.beforeRequestSent": "request", "browsingContext.userPromptOpened": "dialog",
}  # fmt: skip
WAIT = 10  # seconds until what a test waits for must be there

# The elements that steps lead to, the first from the document: css, nth, has, text, label, frame.
FIND = """
const isShown = e => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
const isOnTop = e => {
  const { x, y, width, height } = e.getBoundingClientRect();
  return e.contains(document.elementFromPoint(x + width / 2, y + height / 2));
};
const own = text => e => e.textContent.includes(text) && ![...e.children].some(child => child.textContent.includes(text));
const STEPS = {
  css: (from, css) => (css === "visible=true" ? from.filter(isShown) : from.flatMap(e => [...e.querySelectorAll(css.replaceAll(":visible", ""))]).filter(e => !css.includes(":visible") || isShown(e))),
  nth: (from, n) => (n < 0 ? from.slice(n) : from.slice(n, n + 1)),
  has: (from, text) => from.filter(e => e.textContent.includes(text)),
  text: (from, text) => [...document.body.querySelectorAll("*")].filter(own(text)),
  label: (from, text, exact) => [...document.querySelectorAll("input, button, select, canvas")].filter(e =>
    [e.ariaLabel, ...[...(e.labels ?? [])].map(label => label.innerText)].some(name => (exact ? name === text : name?.includes(text)))),
  frame: (from, css) => from.flatMap(e => [...e.querySelectorAll(css)]).map(frame => frame.contentDocument),
};
const found = steps => steps.reduce((from, [kind, ...more]) => STEPS[kind](from, ...more), [document]);
"""
PAPER = """for (const rule of [...document.styleSheets].flatMap(sheet => [...sheet.cssRules]))
  if (/^(print|screen)$/.test(rule.media?.mediaText)) rule.media.mediaText = rule.media.mediaText === "print" ? "all" : "not all";"""
CLOCK = """(() => {
  const timers = new Map();
  let now = 0, last = 0;
  window.setInterval = (act, every) => (timers.set(++last, { act, every, next: now + every }), last);
  window.clearInterval = id => timers.delete(id);
  window.runFor = ms => {
    for (const end = now + ms; now < end; now += 100)
      for (const timer of timers.values()) if (timer.next <= now + 100) (timer.next += timer.every), timer.act();
  };
})()"""


def plain(value: Any) -> Any:
    """A value of BiDi as one of Python."""
    kind, own = value["type"], value.get("value")
    if kind == "array":
        return [plain(each) for each in own or []]  # of one that came before there is a number
    if kind == "object":
        return {key: plain(each) for key, each in own or []}
    return float(own) if kind == "number" and isinstance(own, str) else own


@contextmanager
def started(program: str) -> "Iterator[Firefox]":
    """The browser, until it is ended."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        call = [
            program,
            "--headless",
            "--no-remote",
            "--profile",
            profile,
            "--remote-debugging-port",
            "0",
        ]
        with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            lines = (re.search(r"ws://\S+", line) for line in process.stderr)
            try:
                with connect(next(filter(None, lines))[0] + "/session", max_size=None) as socket:
                    yield Firefox(socket)
            finally:
                process.terminate()


class Firefox:
    """A browser: the connection to it."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.count = socket, 0
        self.pages: dict[str, Page] = {}
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=[*EVENTS])

    def send(self, method: str, **params: Any) -> Any:
        """What a command gives; events before it go to their pages."""
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv(timeout=60))).get("id") != self.count:
            self.tell(answer["method"], answer["params"])
        assert answer["type"] == "success", (method, answer)
        return answer["result"]

    def tell(self, method: str, event: Any) -> None:
        """Calls what listens to a request, a message of the console, an error or a dialog."""
        page = self.pages.get(event.get("context") or event.get("source", {}).get("context"))
        if page is None or event.get("level") in ("debug", "info"):
            return
        text = event.get("text") or event.get("message") or ""
        kind = "pageerror" if event.get("type") == "javascript" else EVENTS[method]
        url = event.get("request", {}).get("url")
        happened = SimpleNamespace(text=text, message=text, url=url)
        if act := page.listeners.get(kind):
            act(text if kind == "pageerror" else happened)

    def new_context(self, **options: Any) -> "Context":
        return Context(self, options)


class Context:
    """One tab, in the size and with the options of a context."""

    def __init__(self, browser: Firefox, options: Any) -> None:
        self.browser, self.options = browser, options

    def new_page(self) -> "Page":
        self.page = Page(self.browser, self.options)
        return self.page

    def close(self) -> None:
        self.browser.send("session.status")  # events that are on their way
        self.browser.send("browsingContext.close", context=self.page.tab)


class Page:
    """A tab; a locator is a list of steps to elements, which are looked for when they are used."""

    def __init__(self, browser: Firefox, options: Any) -> None:
        self.browser, self.options = browser, options
        self.id = self.tab = browser.send("browsingContext.create", type="tab")["context"]
        browser.pages[self.id] = self
        self.listeners: dict[str, Callable[[Any], Any]] = {}
        self.keyboard, self.mouse, self.clock = Keyboard(self), Mouse(self), Clock(self)
        browser.send("browsingContext.setViewport", context=self.id, viewport=options["viewport"])

    def on(self, kind: str, act: Callable[[Any], Any]) -> None:
        self.listeners[kind] = act

    def set_default_timeout(self, _: int) -> None:
        """Nothing here waits but `wait_for`."""

    def reload(self) -> None:
        self.browser.send("browsingContext.reload", context=self.id, wait="complete")

    def goto(self, url: str) -> None:
        has_script = self.options.get("java_script_enabled", True)
        if not has_script:  # within a frame that may run none
            frame = Path(url.removeprefix("file://")).with_suffix(".frame.html")
            frame.write_text(f'<!doctype html><iframe sandbox src="{url}"></iframe>', "utf-8")
            url = frame.as_uri()
        self.browser.send("browsingContext.navigate", context=self.id, url=url, wait="complete")
        if not has_script:
            tree = self.browser.send("browsingContext.getTree", root=self.tab)
            self.id = tree["contexts"][0]["children"][0]["context"]
        if self.options.get("color_scheme") == "dark":
            self.evaluate("document.documentElement.style.colorScheme = 'dark'")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, of a function what it returns."""
        source = f"(async () => {{ const own = ({expression.strip().rstrip(';')}\n); return typeof own === 'function' ? own() : own; }})()"
        return self.run(source)

    def run(self, source: str) -> Any:
        target: dict[str, Any] = {"context": self.id}
        if not self.options.get("java_script_enabled", True):
            target["sandbox"] = "beside"
        done = self.browser.send("script.evaluate", expression=source, target=target, awaitPromise=True, userActivation=True)  # fmt: skip
        assert done["type"] == "success", (source[-300:], done["exceptionDetails"]["text"])
        return plain(done["result"])

    def act(self, *actions: Any, kind: str = "pointer") -> None:
        source: dict[str, Any] = {"type": kind, "id": kind, "actions": actions}
        source |= {"parameters": {"pointerType": "mouse"}} if kind == "pointer" else {}
        self.browser.send("input.performActions", context=self.id, actions=[source])

    def locator(self, css: str, has_text: str = "") -> "Locator":
        return Locator(self, [["css", css], *([["has", has_text]] if has_text else [])])

    def get_by_text(self, text: str) -> "Locator":
        return Locator(self, [["text", text]])

    def get_by_label(self, text: str, exact: bool = False) -> "Locator":
        return Locator(self, [["label", text, exact]])

    def get_by_role(self, role: str) -> "Locator":
        """Elements that state their role; one that follows from the element's name is not found."""
        return self.locator(f"[role={role}]")

    def frame_locator(self, css: str) -> "Locator":
        return Locator(self, [["frame", css]])

    def title(self) -> Any:
        return self.evaluate("document.title")

    def content(self) -> Any:
        return self.evaluate("document.documentElement.outerHTML")

    def emulate_media(self, **_: Any) -> None:
        """Paper: the rules of print apply, those of a screen do not."""
        self.run(PAPER)

    def pdf(self) -> bytes:
        return base64.b64decode(self.browser.send("browsingContext.print", context=self.id)["data"])


class Locator:
    """Elements, as a test finds them."""

    def __init__(self, page: Page, steps: Sequence[Sequence[Any]]) -> None:
        self.page, self.steps = page, steps

    def get(self, value: str) -> Any:
        """The value of an expression in which `list` are the elements, `e` is the first."""
        source = f"const list = found({json.dumps(self.steps)}), e = list[0]; return {value};"
        return self.page.run(f"(() => {{ {FIND} {source} }})()")

    def locator(self, css: str) -> "Locator":
        return Locator(self.page, [*self.steps, ["css", css]])

    def nth(self, n: int) -> "Locator":
        return Locator(self.page, [*self.steps, ["nth", n]])

    @property
    def first(self) -> "Locator":
        return self.nth(0)

    def all(self) -> list["Locator"]:
        return [self.nth(n) for n in range(self.count())]

    def count(self) -> Any:
        return self.get("list.length")

    def inner_text(self) -> Any:
        return self.get("e.innerText")

    def all_inner_texts(self) -> Any:
        return self.get("list.map(e => e.innerText)")

    def input_value(self) -> Any:
        return self.get("e.value")

    def is_visible(self) -> Any:
        return self.get("Boolean(e && isShown(e))")

    def is_checked(self) -> Any:
        return self.get("e.checked")

    def is_hidden(self) -> bool:
        return not self.is_visible()

    def evaluate(self, function: str) -> Any:
        return self.get(f"({function})(e)")

    def evaluate_all(self, function: str) -> Any:
        return self.get(f"({function})(list)")

    def bounding_box(self) -> Any:
        return self.get("(({ x, y, width, height }) => ({ x, y, width, height }))(e.getBoundingClientRect())")  # fmt: skip

    def wait_for(self, **_: Any) -> None:
        end = monotonic() + WAIT
        while not self.count():
            assert monotonic() < end, self.steps
            sleep(0.02)

    def focus(self) -> None:
        self.page.browser.send(
            "browsingContext.activate", context=self.page.tab
        )  # Tab may leave it
        self.get("e.focus()")

    def fill(self, text: str) -> None:
        self.get(f"(e.focus(), e.select?.(), e.type === 'range' ? (e.value = {json.dumps(text)}) : document.execCommand('insertText', false, {json.dumps(text)}))")  # fmt: skip

    def press(self, keys: str) -> None:
        self.focus()
        self.page.keyboard.press(keys)

    def select_option(self, text: str) -> None:
        self.get(f"((e.value = {json.dumps(text)}), e.dispatchEvent(new Event('change', {{ bubbles: true }})))")  # fmt: skip

    def hover(self, **_: Any) -> None:
        self.get("e.scrollIntoView({ block: 'nearest', inline: 'nearest' })")
        if not self.get("isOnTop(e)"):
            self.get("e.scrollIntoView({ block: 'center', inline: 'center' })")
        box = self.bounding_box()
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def click(self, times: int = 1) -> None:
        self.hover()
        for _ in range(times):
            self.page.mouse.down()
            self.page.mouse.up()

    def dblclick(self) -> None:
        self.click(2)

    def check(self, wanted: bool = True) -> None:
        if self.get("e.checked") != wanted:
            self.click()

    def uncheck(self) -> None:
        self.check(wanted=False)


class Mouse:
    """The pointer of a page."""

    def __init__(self, page: Page) -> None:
        self.page, self.at = page, (0.0, 0.0)

    def move(self, x: float, y: float, steps: int = 1) -> None:
        ways = [(n / steps, 1 - n / steps) for n in range(1, steps + 1)]
        places = [(x * a + self.at[0] * b, y * a + self.at[1] * b) for a, b in ways]
        self.page.act(*({"type": "pointerMove", "x": round(x), "y": round(y)} for x, y in places))
        self.at = (x, y)

    def down(self) -> None:
        self.page.act({"type": "pointerDown", "button": 0})

    def up(self) -> None:
        self.page.act({"type": "pointerUp", "button": 0})


class Keyboard:
    """The keys of a page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self, keys: str) -> None:
        values = [KEYS.get(key, key) for key in keys.split("+")]
        downs = [{"type": "keyDown", "value": value} for value in values]
        ups = [{"type": "keyUp", "value": value} for value in values[::-1]]
        self.page.act(*downs, *ups, kind="key")

    def type(self, text: str) -> None:
        for letter in text:
            self.press(letter)


class Clock:
    """Intervals that pass when a test says so."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def install(self) -> None:
        self.page.evaluate(CLOCK)

    def run_for(self, ms: int) -> None:
        self.page.evaluate(f"runFor({ms})")
