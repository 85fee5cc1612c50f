"""The page in a real browser: a race from the keyboard, a stopped one, both colour schemes, and no violation of axe."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium: apt-get install chromium"),
]


def axe_source() -> str:
  """The text of axe-core, of the folder that AXE_CORE names or of a node_modules around here."""
  here = Path.cwd()
  folders = [os.environ.get("AXE_CORE"), *(folder / "node_modules" / "axe-core" for folder in (here, *here.parents))]
  for folder in filter(None, folders):
    if (Path(folder) / "axe.min.js").is_file():
      return (Path(folder) / "axe.min.js").read_text()
  pytest.skip("needs axe-core: npm install axe-core, AXE_CORE=node_modules/axe-core")


@pytest.fixture(scope="module")
def address(bundle, tmp_path_factory):
  command = [sys.executable, "-m", "jaxspec.cli.main", "studio", str(bundle), "--listen", "127.0.0.1:0"]
  process = subprocess.Popen([*command, "--out", str(tmp_path_factory.mktemp("races"))], stdout=subprocess.PIPE, text=True)
  line = process.stdout.readline()
  assert line.startswith("studio at http://127.0.0.1:"), line
  yield line.split()[-1]
  process.terminate()
  process.wait(30)


@pytest.fixture(scope="module")
def browser():
  with playwright.sync_playwright() as found:
    browser = found.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    yield browser
    browser.close()


@pytest.fixture
def page(browser, address):
  page = browser.new_page(viewport={"width": 390, "height": 800})
  errors = []
  page.on("pageerror", lambda error: errors.append(str(error)))
  page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
  page.goto(address)
  page.wait_for_selector("#plan strong", timeout=120_000)
  yield page
  page.close()
  assert not errors


def _until(page, words: str) -> None:
  end = time.monotonic() + 180
  while page.inner_text("#status") != words:
    assert time.monotonic() < end, (page.inner_text("#status"), page.inner_text("#error"))
    page.wait_for_timeout(100)


def test_a_race_by_keyboard(page):
  page.focus("#add")
  page.keyboard.press("Enter")
  assert page.evaluate("document.activeElement.tagName") == "SELECT"
  page.focus("#seed")
  page.keyboard.press("Enter")  # sends the form
  _until(page, "Finished.")
  assert page.locator("#lanes article").count() == 2
  assert page.locator("#lanes img").first.get_attribute("src").startswith("data:image/png")
  assert "4 " in page.locator("#lanes canvas").first.get_attribute("aria-label") or "first token" in page.inner_text(
    "#legend"
  )
  first = page.locator("#lanes img").first.bounding_box()
  assert first["y"] >= 0 and first["y"] + first["height"] <= 800  # in view, without a scroll of the visitor
  assert "target calls" in page.inner_text("#figures")
  assert page.locator("#repeat pre").first.inner_text().startswith("jaxspec generate")
  page.get_by_role("button", name="Write into the folder").click()
  page.get_by_text("Wrote race-").wait_for()
  assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
  asked, figures = [], page.inner_text("#lanes")
  page.on("request", lambda request: asked.append(request.url) if request.url.startswith("http") else None)
  page.get_by_role("button", name="Replay").click()
  page.wait_for_selector("#replay:visible")
  assert (page.inner_text("#lanes"), page.inner_text("#status"), asked) == (figures, "Finished.", [])


def test_wrong_values_are_marked(page):
  page.fill("#e1-gamma", "0")
  page.wait_for_selector("#e1-gamma[aria-invalid=true]")
  assert "gamma" in page.inner_text("#error")
  page.fill("#e1-gamma", "2")
  page.wait_for_selector("#e1-gamma:not([aria-invalid])")
  assert page.inner_text("#error") == ""


def test_every_method_can_be_chosen(page):
  """Untouched controls send valid values; the tiny networks are too small for some defaults."""
  select = page.locator("#entrants select[id$=-method]").first
  for name in select.evaluate("select => [...select.options].map((option) => option.value)"):
    select.select_option(name)
    page.wait_for_timeout(300)  # the page waits for the last of many changes
    page.wait_for_selector("#plan strong, #error:not(:empty)")
    error = page.inner_text("#error")
    assert not error.endswith("''"), (name, error)


def test_a_slider_and_its_field_agree(page):
  slider = page.get_by_label("gamma, slider")
  slider.focus()
  page.keyboard.press("ArrowLeft")
  assert page.input_value("#e1-gamma") == slider.input_value() == "1"
  page.get_by_text("Compiles first").wait_for()
  page.fill("#e1-gamma", "2")
  assert slider.input_value() == "2"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(page, scheme):
  source = axe_source()
  page.emulate_media(color_scheme=scheme)
  page.click("#go")
  _until(page, "Finished.")
  page.evaluate(f"(function () {{ {source} }}).call(window)")
  found = page.evaluate("axe.run()")
  assert not [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"]]
