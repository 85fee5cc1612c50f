"""The table of devices, and how they are named."""

import pytest

from jaxspec.planning.devices import DEVICES, parse_device


def test_published_figures():
  """Bytes per second over operations per second: rows at which a pass with bfloat16 weights becomes compute-bound."""
  balance = {name: device.bfloat16 / device.bandwidth for name, device in DEVICES.items()}
  assert balance["h100"] == pytest.approx(295, abs=1) and balance["h200"] == pytest.approx(206, abs=1)
  assert balance["v5e"] == pytest.approx(240, abs=1) and balance["a100-80"] == pytest.approx(153, abs=1)
  for device in DEVICES.values():
    assert device.peak("bfloat16") > 4 * device.peak("float32") and device.source
    assert device.link < device.bandwidth and device.platform in ("gpu", "tpu")


def test_parse():
  found = parse_device("v5e:2x4")
  assert (found.kind, found.count, found.topology) == ("v5e", 8, (2, 4)) and found.device is DEVICES["v5e"]
  assert parse_device("v5p:2x2x2").count == 8 and parse_device("h100:4").topology == (4,)
  assert parse_device("b200").count == 1


@pytest.mark.parametrize("text, line", [
  ("h10", "device in a100-40, .* got 'h10'"),
  ("H100", "did you mean h100"),
  ("v5e:8", "topology of 2 sides for v5e, as v5e:2x2"),
  ("h100:2x4", "a count for h100"),
  ("h100:", None),
  ("v5e:2x", "numbers above 0 .* v5e:2x2"),
  ("h100:0", "numbers above 0 .* h100:8"),
  ("h100:-2", "numbers above 0"),
  ("v5e:100x100", "at most 256 chips of v5e"),
])  # fmt: skip
def test_refused(text, line):
  if line is None:
    assert parse_device(text).count == 1
    return
  with pytest.raises(ValueError, match=line):
    parse_device(text)
