// Opens a report from disk in headless Chromium, at two widths, light and dark, and fails on what a reader would stumble over: a message on
// the console, a request, a page that is wider than the window, an axe violation.
//
//   node check.mjs REPORT.html SCREENSHOT_FOLDER
//
// CHROMIUM names the browser (default /usr/bin/chromium). The page runs without JavaScript; axe, which is JavaScript, gets a page of its own.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const WIDTHS = [400, 1280];
const SCHEMES = ["light", "dark"];
const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const [report, folder] = process.argv.slice(2);
if (!report || !folder) {
  console.error("usage: node check.mjs REPORT.html SCREENSHOT_FOLDER");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
const url = pathToFileURL(resolve(report)).href;
const problems = [];

// A browser for all widths and schemes: most of the time goes into starting one.
async function everywhere(javaScriptEnabled, look) {
  const profile = mkdtempSync(join(tmpdir(), "report-check-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
    javaScriptEnabled,
    bypassCSP: javaScriptEnabled, // the report's policy would stop axe
  });
  try {
    for (const width of WIDTHS) {
      for (const colorScheme of SCHEMES) {
        const where = `${width} px, ${colorScheme}`;
        const page = await context.newPage();
        page.on("console", (message) => problems.push(`${where}: console: ${message.text()}`));
        page.on("pageerror", (error) => problems.push(`${where}: error: ${error}`));
        page.on("request", (request) => {
          if (request.url() !== url && !request.url().startsWith("data:")) problems.push(`${where}: request: ${request.url()}`);
        });
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        await page.goto(url);
        await look(page, where, `${width}-${colorScheme}`);
        await page.close();
      }
    }
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

await everywhere(false, (page, _, name) => page.screenshot({ path: join(folder, `${name}.png`), fullPage: true }));
await everywhere(true, async (page, where) => {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (wide > 0) problems.push(`${where}: the page is ${wide} px wider than the window`);
  // What is folded is judged too.
  await page.evaluate(() => document.querySelectorAll("details").forEach((it) => (it.open = true)));
  const open = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (open > 0) problems.push(`${where}: with everything open, the page is ${open} px wider than the window`);
  await page.evaluate(axe);
  const { violations, passes } = await page.evaluate(() => window.axe.run());
  for (const { id, help, nodes } of violations) {
    for (const { target, failureSummary } of nodes.slice(0, 5)) {
      problems.push(`${where}: axe ${id}: ${help}: ${target.join(" ")}: ${failureSummary.replace(/\s+/g, " ")}`);
    }
  }
  console.log(`${where}: ${passes.length} axe rules hold, ${violations.length} do not`);
});
problems.forEach((problem) => console.error(problem));
console.log(problems.length === 0 ? `${report}: no problem at ${WIDTHS.join(" and ")} px` : `${report}: ${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
