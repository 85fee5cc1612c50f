"""JSON lines, overrides, progress lines."""

import dataclasses

import pytest

from jaxspec.core.overrides import differences, override
from jaxspec.training.run_log import MetricsWriter, read_metrics


def test_writer_continues_a_file_without_repeating_steps(tmp_path):
  path = tmp_path / "run" / "metrics.jsonl"
  with MetricsWriter(path) as writer:
    for step in range(5):
      writer.write(step, {"loss": 1 / (step + 3)})
  with MetricsWriter(path, first_step=3) as writer:
    writer.write(3, {"loss": float("nan")})
  assert read_metrics(path) == [{"step": i, "loss": 1 / (i + 3)} for i in range(3)] + [{"step": 3, "loss": "nan"}]
  with MetricsWriter(path):  # a new run
    pass
  assert read_metrics(path) == []


@dataclasses.dataclass(frozen=True)
class _Inner:
  rate: float = 0.1
  widths: tuple[int, ...] = (1, 2)


@dataclasses.dataclass(frozen=True)
class _Outer:
  name: str = "a"
  steps: int = 3
  limit: int | None = None
  inner: _Inner = _Inner()


def test_overrides():
  config = override(_Outer(), ["name=run 1", "steps=5", "limit=7", "inner.rate=1", "inner.widths=[4, 8]"])
  assert config == _Outer("run 1", 5, 7, _Inner(1.0, (4, 8)))
  assert isinstance(config.inner.rate, float)


@pytest.mark.parametrize("name", ["b", "7", "1,0", "None", "'quoted'", "two words", ""])
def test_differences_are_overrides(name):
  config = _Outer(name, 5, None, _Inner(0.1, (4, 8)))
  found = differences(_Outer(), config)
  assert override(_Outer(), found) == config
  assert found[1:] == ["steps=5", "inner.widths=(4, 8)"]
  assert differences(config, config) == []


@pytest.mark.parametrize(
  "assignment, message",
  [
    ("steps", "name=value"),
    ("steps=None", "type int"),
    ("inner.rate=None", "type float"),
    ("steps={[]: 1}", "type int"),
    ("stepz=3", "a field in name, steps"),
    ("steps=x", "type int"),
    ("limit=x", "type int"),
    ("limit=1.5", "type int"),
    ("steps.more=1", "before the dot"),
    ("inner.rat=1", "rate, widths"),
  ],
)
def test_bad_overrides_are_errors(assignment, message):
  with pytest.raises(ValueError, match=message):
    override(_Outer(), [assignment])
