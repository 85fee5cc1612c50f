"""The captions of a calibration equal those of a table with the same seed."""

from experiments.data import captions
from experiments.engine.scene_images import Scenes
from jaxspec.evaluation.scenes.world import FLAT, TEXTURED_WORLD
from tests.exit_status import status_of


def test_captions_are_those_of_a_table(tmp_path, capsys):
  file = tmp_path / "folder" / "captions.txt"
  assert status_of(captions.main, "--num", 20, "--seed", 4, "--split", "held_out", "--out", file) == 0
  assert file.read_text(encoding="utf-8").splitlines() == Scenes(20, "held_out", seed=4).texts()
  textured = Scenes(20, materials=TEXTURED_WORLD).texts()
  assert status_of(captions.main, "--num", 20, "--seed", 2, "--textured", "--out", file) == 0
  assert file.read_text(encoding="utf-8").splitlines() == textured
  assert any(name in caption.split() for caption in textured for name in TEXTURED_WORLD if name != FLAT)
  for wrong in (["--num", "0"], ["--seed", "-1"]):
    assert status_of(captions.main, *wrong, "--out", file) == 2
    assert capsys.readouterr().err.startswith("Error: Must have num from 1 and a seed from 0")
