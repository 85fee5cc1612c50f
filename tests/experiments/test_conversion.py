"""A conversion needs memory for one tensor, also with many files."""

import pytest

from experiments.bench.conversion import Cost, extended, of_chameleon
from jaxspec.io import checkpoints
from jaxspec.models.chameleon.chameleon import ChameleonConfig


@pytest.mark.slow
def test_a_folder_of_many_files_streams(tmp_path):
  config = ChameleonConfig(num_layers=12, dim=512, num_heads=8, ffn_hidden=4096)
  cost = of_chameleon(config, tmp_path)
  assert checkpoints.read_config(tmp_path / "checkpoint")["config"]["num_layers"] == 12
  assert cost.output > 2 * cost.largest > 200e6
  assert cost.memory < 0.8 * cost.largest and cost.seconds > 0  # bfloat16 has half of the bytes and is not converted


def test_depths_that_were_not_measured_lie_on_the_line():
  found = {depth: Cost(10.0, 100.0 + 7.0 * depth, 11.0 + depth, 3.0 + 0.5 * depth) for depth in (2, 4, 8)}
  cost = extended(found, 32)
  assert cost.largest == 10.0 and cost.memory == 19.0
  assert cost.output == pytest.approx(324.0) and cost.seconds == pytest.approx(19.0)
  with pytest.raises(ValueError, match="two depths .* got 1"):
    extended({2: found[2]}, 32)
