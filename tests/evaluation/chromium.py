"""Pages opened in headless Chromium, where there is one."""

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
LISTEN = """<script>
window.said = [];
addEventListener("error", (event) => said.push(event.message));
addEventListener("unhandledrejection", (event) => said.push(String(event.reason)));
const error = console.error;
console.error = (...words) => { said.push(words.join(" ")); error(...words); };
</script>"""
WRITE = """<script>
addEventListener("load", async () => {
  const until = Date.now() + 60000;
  while (Date.now() < until && [...document.querySelectorAll(".chart")].some((each) => !each.dataset.drawn)) {
    await new Promise((done) => setTimeout(done, 20));
  }
  let found = "";
  try { found = await (async () => { ASK })() } catch (problem) { said.push(String(problem)) }
  const result = document.createElement("output");
  result.textContent = JSON.stringify(said) + "|" + found;
  document.body.append(result);
});
</script>"""


def opened(page: Path, ask: str = "", width: int = 1400) -> str:
    """What a page's charts answer to a piece of JavaScript, which may `return` text, once all are drawn.

    Fails if the page reports an error; skips the test if there is no Chromium.
    """
    copy = page.with_name(f"opened.{page.name}")
    copy.write_text(asking(page.read_text(encoding="utf-8"), ask), encoding="utf-8")
    return answer_at(copy.as_uri(), page.parent, width)


def asking(page: str, ask: str) -> str:
    """A page that answers a piece of JavaScript, and says what errors it had."""
    text = page.replace("<head>", f"<head>{LISTEN}", 1)
    return text.removesuffix("</body>\n</html>") + WRITE.replace("ASK", ask)


def answer_at(address: str, home: Path, width: int = 1400) -> str:
    """The answer of the page at an address, which is `asking`; the browser's own files are in a folder."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        pytest.skip("no Chromium is installed; its Debian package is called chromium")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom",
        "--virtual-time-budget=60000", f"--window-size={width},1000", address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(home)})
    found = re.search(r"<output>(.*?)</output>", done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    said, _, answer = html.unescape(found[1]).partition("|")
    assert said == "[]", said
    return answer
