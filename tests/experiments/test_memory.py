"""A conversion holds one tensor at a time: its peak does not grow with the number of tensors."""

import pytest

from experiments.bench.memory import conversion_of, sizes_of
from experiments.engine.tables import render
from jaxspec.models.llamagen import LlamaGenConfig


@pytest.mark.slow
def test_conversion_streams(tmp_path):
  """The output is eight times as large as the largest tensor; the rest is memory for reading a file."""
  config = LlamaGenConfig(num_layers=16, dim=512, num_heads=8, vocab_size=16384, num_tokens=16, num_classes=10)
  sizes, found = sizes_of(config), conversion_of(config, tmp_path)
  assert sizes["output"] > 7 * sizes["largest"] > 200e6
  taken = found["peak"] - found["before"]
  assert taken < 1.3 * sizes["largest"] < sizes["output"] / 5


def test_the_formula_is_judged():
  row = dict(label="one", parameters=1, largest=4e6, output=8e6, conversion={"before": 1e6, "peak": 6e6})
  row["compiled"] = {"process": 1e8, "arguments": 6e7, "temporary": 4e7}
  decode = {"before": 1e8, "loading": 1.9e8, "decoding": 2e8}
  document = dict(
    kind="memory", title="T", command="c", notes=[], dtype="bfloat16", tokens=16, rows=[row | {"decode": decode}],
    extrapolated=[{"label": "two", "compiled": {"process": 1e8, "arguments": 5e8, "temporary": 4e8}}],
  )  # fmt: skip
  text = render(document)
  assert "| one | 4 | 8 | 1.25 | 200 | 100 | 60 | 40 | 200 | +0 % |" in text
  assert "| two |  |  |  |  | 100 | 500 | 400 | 1,000 |  |" in text
  assert "holds within 10 %" in text
  document["rows"][0]["decode"] = decode | {"decoding": 3e8}
  assert "**does not hold**" in render(document) and "-33 %" in render(document)
