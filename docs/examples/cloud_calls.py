"""CIAR: an edge with local acceptance, at the calibrated threshold of 30 % cloud calls. Calls, sources of tokens, images.

Run it by `python docs/examples/cloud_calls.py`.
"""

import jax
import numpy as np
from PIL import Image

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.evaluation import scenes
from jaxspec.run.cloud_calls import cloud_calls

CAPTIONS = ["a red heart", "two stars", "a panda", "a house and a tree"]
METHOD = jaxspec.methods.Ciar(draft="inter-2", gamma=1, target_prefix=0.06)  # tau=... sets a threshold of your own


def main() -> None:
  pipe = jaxspec.load_pipeline("scenes")
  out = pipe(CAPTIONS, key=jax.random.key(0), method=METHOD)
  calls = cloud_calls(out.result)
  print(f"all rows: {calls.call_rate:.0%} cloud calls; {calls.local:.0%} of the tokens accepted locally, "
        f"{calls.accepted:.0%} accepted by the cloud, {calls.by_cloud:.0%} drawn by it")  # fmt: skip
  origin = np.asarray(out.result.origin)  # the source of every token, [B, N]
  for number, (caption, scored) in enumerate(zip(CAPTIONS, scenes.score_images(CAPTIONS, out.images).held)):
    local = (origin[number] == Origin.LOCAL).mean()
    print(f"{caption}: {out.counters.target_calls[number]} calls, {local:.0%} local, correct: {bool(scored['right'])}")
    Image.fromarray(out.images[number]).save(f"{caption.replace(' ', '_')}.png")


if __name__ == "__main__":
  main()
