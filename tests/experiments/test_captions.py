"""The captions of a calibration equal those of a table with the same seed."""

import pytest

from experiments.data import captions
from experiments.engine.scene_images import Scenes


def test_captions_are_those_of_a_table(tmp_path, capsys):
  file = tmp_path / "folder" / "captions.txt"
  captions.main(["--num", "20", "--seed", "4", "--split", "held_out", "--out", str(file)])
  assert file.read_text(encoding="utf-8").splitlines() == Scenes(20, "held_out", seed=4).texts()
  for wrong in (["--num", "0"], ["--seed", "-1"]):
    with pytest.raises(SystemExit, match="2"):
      captions.main([*wrong, "--out", str(file)])
    assert capsys.readouterr().err.startswith("error: Must have num from 1 and a seed from 0")
