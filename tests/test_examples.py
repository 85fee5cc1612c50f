"""The scripts of docs/examples run unchanged on shallow networks, with output of the stated form."""

import re
import runpy
from pathlib import Path

import pytest

from tests import shallow
from tests.helpers import slow_but

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
# Lines of a script's output, as patterns; and its image files.
PRINTS = {
  "own_method": (r"144 tokens, \d+ calls, \d+ drafts accepted",),
  "text": (r"ar: \[.*\] calls of the target, \[0 0 0\] drafts accepted", r"speculative: .*\n(?:  .* -> .*\n){3}"),
  "own_network": (r"target: GPTNeoConfig", r"\d+ tokens in \d+ calls of the target: 'a large river"),
  "compare_methods": (r"plain: 144 passes for 144 tokens", r"EAGLE chains: \d+ passes"),
  "cloud_calls": (r"all rows: \d+% cloud calls; \d+% of the tokens accepted locally", r"a panda: \d+ calls, \d+% local"),
  "continuous_tokens": (r"2 images of 64 tokens of 4 numbers, 8 passes of the target each",),
}
IMAGES = {"compare_methods": 1, "cloud_calls": 4, "continuous_tokens": 2}


@pytest.mark.parametrize("name", slow_but(PRINTS, []))
def test_examples_run(name, tmp_path, monkeypatch, capsys):
  script = EXAMPLES / f"{name}.py"
  for bundle in set(re.findall(r'(?:load_pipeline|named)\("(.*?)"\)', script.read_text(encoding="utf-8"))):
    shallow.write(tmp_path, bundle)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("sys.argv", [name])
  runpy.run_path(str(script), run_name="__main__")
  printed = capsys.readouterr().out
  for pattern in PRINTS[name]:
    assert re.search(pattern, printed), printed
  assert len(list(tmp_path.glob("*.png"))) == IMAGES.get(name, 0)


def test_every_example_is_listed_and_tested():
  names = {path.stem for path in EXAMPLES.glob("*.py")}
  page = (EXAMPLES / "index.md").read_text(encoding="utf-8")
  assert names == set(PRINTS)
  assert all(f"[`{name}.py`]({name}.py)" in page and f"python docs/examples/{name}.py" in page for name in names)
