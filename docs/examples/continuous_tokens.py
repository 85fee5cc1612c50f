"""Continuous tokens: digits of the shipped MAR pair, several tokens per pass of the target.

Run it by `python docs/examples/continuous_tokens.py`. `Cspd(exact=True, gamma=7)` with the bundle
`digits32-causal` decodes speculatively instead, from the exact distribution.
"""

import jax
from PIL import Image

import jaxspec

DIGITS = ["3", "7"]  # classes by name or number


def main() -> None:
  pipe = jaxspec.load_pipeline("digits32-mar")
  out = pipe(DIGITS, key=jax.random.key(0), method=jaxspec.methods.Parallel(num_iter=8))
  rows, tokens, channels = out.tokens.shape
  print(f"{rows} images of {tokens} tokens of {channels} numbers, {out.counters.target_calls[0]} passes of the target each")
  print(f"range of the latents: {out.tokens.min():.2f} to {out.tokens.max():.2f}")
  for digit, image in zip(DIGITS, out.images):
    Image.fromarray(image).save(f"digit_{digit}.png")


if __name__ == "__main__":
  main()
