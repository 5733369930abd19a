// Opens a list of pages on standard input in Firefox, by WebDriver BiDi; prints what is wrong.
// Every page: nothing on the console, all stages computed again; then a number is typed, changed by
// a key and taken back.
import { readFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const { firefox, pages } = JSON.parse(readFileSync(0, "utf8"));
const browser = await puppeteer.launch({ browser: "firefox", executablePath: firefox, headless: true });
const failures = [];

// The largest difference of a stage computed again from the numbers of the trace.
const apart = () => {
  const far = (a, b) => (a === b || (a !== a && b !== b) ? 0 : Math.abs(a - b) / Math.max(1, Math.abs(b)));
  computed().forEach(compute);
  const worst = Math.max(0, ...computed().map(s => s.data.reduce((most, x, at) => Math.max(most, far(x, s.original[at])), 0)));
  recompute();
  return worst;
};

for (const path of pages) {
  const page = await browser.newPage(), name = path.split("/").pop();
  const check = (is, what) => is || failures.push(`${name}: ${what}`);
  page.on("console", message => ["error", "warn"].includes(message.type()) && failures.push(`${name}: ${message.text()}`));
  page.on("pageerror", error => failures.push(`${name}: ${error}`));
  await page.setViewport({ width: 1280, height: 900 });
  await page.goto(`file://${path}`);
  await page.waitForSelector("html[data-ready]");
  const worst = await page.evaluate(apart);
  check(worst <= 1e-12, `a stage computed again is off by ${worst}`);
  const id = await page.evaluate(() => stages.find(s => canEdit(s) && !isMaskCell({ s }) && $(`at-${s.id}`))?.id);
  if (id) {
    const number = () => page.evaluate(id => byName.get(id).data[0], id), before = await number();
    await page.evaluate(id => document.querySelector(`[id='at-${id}'] td:not(.corner)`).focus(), id);
    await page.keyboard.type("7");
    await page.keyboard.press("Enter");
    check((await number()) === 7, "a number that is typed is not taken");
    check(await page.$("td.new"), "nothing follows from a number");
    await page.keyboard.press("PageUp");
    check((await number()) === 7.1, "PageUp adds no step");
    for (let times = 0; times < 2; times++) {
      await page.keyboard.down("Control");
      await page.keyboard.press("z");
      await page.keyboard.up("Control");
    }
    check((await number()) === before, "Ctrl+Z does not take it back");
    await page.keyboard.press("ArrowRight");
    const words = await page.$eval("#why", panel => panel.textContent);
    check(words.includes("="), `an arrow key explains no other number: ${words}`);
  }
  const [ground, drawn] = await page.evaluate(() => {
    const td = all("td").find(td => td.style.getPropertyValue("--x") > 0);
    return [td && getComputedStyle(td).backgroundColor, globalThis.randomVector?.("bank", 3, 0).map(x => x.toFixed(4)).join()];
  });
  check(ground !== "rgba(0, 0, 0, 0)", "a number has no shade");
  check([undefined, "-0.2206,-0.8264,-0.5396"].includes(drawn ?? undefined), `another vector is drawn: ${drawn}`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check(wide <= 1280, `it scrolls sideways: ${wide}`);
  await page.close();
}
await browser.close();
console.log(JSON.stringify(failures));
