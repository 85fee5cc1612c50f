"""Images from prompts, decoded by two methods: passes of the target, time, and whether the images satisfy their captions.

Run it by `python docs/examples/compare_methods.py`.
"""

import time

import jax
from PIL import Image

import jaxspec
from jaxspec.evaluation import scenes

PROMPTS = ["a red heart", "two cats on a blue background"]
METHODS = {"plain": jaxspec.methods.Plain(), "EAGLE chains": jaxspec.methods.EagleChain(gamma=7)}


def main() -> None:
  pipe = jaxspec.load_pipeline("scenes")
  for name, method in METHODS.items():
    pipe(PROMPTS, key=jax.random.key(0), method=method)  # compiles
    start = time.perf_counter()
    out = pipe(PROMPTS, key=jax.random.key(0), method=method)
    seconds = time.perf_counter() - start
    correct = scenes.score_images(PROMPTS, out.images).held
    print(f"{name}: {out.counters.target_calls.mean():.0f} passes for {out.tokens.shape[1]} tokens, {seconds:.2f} s, "
          f"correct: {[row['right'] for row in correct]}")  # fmt: skip
  Image.fromarray(out.images[0]).save("heart.png")


if __name__ == "__main__":
  main()
