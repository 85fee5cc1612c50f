"""Run by `tests/planning/test_shardings.py` in a process with eight devices: prints what a divided decode does."""

import json

import jax
import jax.numpy as jnp

from jaxspec import methods, rng
from jaxspec.decoder import Decoder
from jaxspec.network import Network
from jaxspec.planning.mesh import Mesh
from jaxspec.planning.shardings import device_mesh, of_params, of_rows
from jaxspec.sampling import SamplingConfig
from tests import helpers
from tests.methods.networks import codebook

ROWS, TOKENS = 4, 16


def main():
  config, fns = helpers.TARGET, helpers.llamagen_fns(helpers.TARGET)
  target = Network(fns, helpers.random_params(fns, 1), config)
  small = helpers.llamagen_fns(helpers.DRAFT)
  draft = Network(small, helpers.random_params(small, 2), helpers.DRAFT)
  sampling = SamplingConfig(cfg_scale=2.0, temperature=0.9)
  found = {}
  for method in (methods.Speculative(gamma=2), methods.Gsd(window=3, group_size=2)):
    decoder = Decoder(target, method, draft=draft, sampling=sampling, grid=(4, 4), codebook=codebook)
    decode = jax.jit(decoder.decode_fn(max_len=TOKENS))
    condition = helpers.labels(ROWS)
    keys = jax.random.key_data(rng.row_keys(jax.random.key(3), ROWS))
    tokens = {"alone": decode(decoder.parts.params, keys, condition).tokens.tolist()}
    for mesh in (Mesh(4, 2), Mesh(1, 2), Mesh(2, 1)):
      over = device_mesh(mesh, jax.devices()[: mesh.count])
      arrays = (decoder.parts.params, of_params), (keys, of_rows), (condition, of_rows)
      out = decode(*(jax.device_put(tree, of(tree, over)) for tree, of in arrays))
      tokens[str(mesh)] = jnp.asarray(out.tokens).tolist()
      found.setdefault("devices", []).append(len(out.tokens.sharding.device_set))
    found[method.name] = tokens
  print(json.dumps(found))


if __name__ == "__main__":
  main()
