"""Makes the golden files of this folder with the official code (needs torch, transformers 4.44, tiktoken)::

python tests/golden/emu3/make_golden.py OFFICIAL

OFFICIAL is a checkout of baaivision/Emu3. Nothing of it is copied: its classes are imported, and get tiny random weights.
"""

from __future__ import annotations

import base64
import collections
import json
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent
NUM_CODES, MERGES, SEED = 24, 200, 4021
SUFFIX = " masterpiece, film grained, best quality."
NEGATIVE = (
  "lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst quality, "
  "low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry."
)
PROMPTS = ["a red fox", "two cats on a mat", "é – 12 ½"]
RATIO, AREA = "3:2", 96  # 4 rows of 6 codes of 2 pixels
TEXTS = [
  "a red fox", " two  spaces", "", "I'm here; they'LL see 2024's 12345", "naïve café – e\u0301", "日本語 한국어 🦊🦊",
  "line\n\nends\r\n here  ", "a<|image start|>90*90<|image token|>b", "<|extra_203|>x", "aaaaaaaaaaaaaa",
  "\tTabs\tand\u00a0more",
  "ﬁne", "price: $12.50 (≈ 11 €)!!", "underscore_name and-hyphen",
]  # fmt: skip
SIZES = [
  ("1:1", 518400), ("16:9", 518400), ("9:16", 518400), ("4:3", 518400), ("3:4", 518400), ("21:9", 518400), ("3:2", 518400),
  ("1:1", 262144), ("16:9", 262144), ("5:4", 1048576), ("1:3", 518400), ("720:720", 518400), ("3:2", 96),
]  # fmt: skip
LEGAL = [(4, 6), (3, 5), (1, 3), (5, 4)]


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
  """The recipe of a weight; see the README."""
  v = 2 * np.random.RandomState((zlib.crc32(name.encode()) ^ SEED) & 0xFFFFFFFF).random_sample(shape) - 1
  if name.endswith(("embed_tokens.weight", "quantize.embedding.weight")):
    pass
  elif len(shape) > 1:
    v = v * np.sqrt(3 / np.prod(shape[1:]))
  else:
    v = 1 + 0.25 * v if name.endswith(("weight", "running_var")) else 0.1 * v
  return v.astype(np.float32)


def redraw(model: torch.nn.Module, *, half: bool) -> dict[str, torch.Tensor]:
  """Replaces all weights by the recipe's; returns the state dict."""
  state = model.state_dict()
  for name, value in state.items():
    if value.is_floating_point():
      made = torch.from_numpy(draw(name, tuple(value.shape)))
      state[name] = made.to(torch.bfloat16).float() if half else made
  model.load_state_dict(state)
  model.eval()
  return model.state_dict()


def learn_ranks(text: str) -> dict[bytes, int]:
  """Byte pairs of a text: bytes in a mixed order, then merges."""
  order = np.random.RandomState(SEED).permutation(256)
  ranks = {bytes([byte]): rank for rank, byte in enumerate(order)}
  words = collections.Counter(re.findall(r" ?\w+|\W", text))
  pieces = {word: [bytes([byte]) for byte in word.encode()] for word in words}
  for _ in range(MERGES):
    pairs = collections.Counter()
    for word, count in words.items():
      for pair in zip(pieces[word], pieces[word][1:]):
        pairs[pair] += count
    (left, right), _ = max(pairs.items(), key=lambda item: (item[1], item[0]))
    ranks.setdefault(left + right, len(ranks))
    for word, parts in pieces.items():
      i = 0
      while i < len(parts) - 1:
        if (parts[i], parts[i + 1]) == (left, right):
          parts[i : i + 2] = [left + right]
        i += 1
  return ranks


def write_tokenizer(folder: Path, text: str) -> int:
  """The two files of the official tokenizer; returns the number of ranks."""
  ranks = learn_ranks(text)
  lines = [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()]
  (folder / "emu3.tiktoken").write_text("\n".join(lines) + "\n")
  special = ["<|image token|>", "<|image start|>", "<|image end|>"]
  special += [f"<|visual token {code:06d}|>" for code in range(NUM_CODES)]
  (folder / "emu3_vision_tokens.txt").write_text("\n".join(special) + "\n")
  return len(ranks)


def main() -> None:
  sys.path.insert(0, sys.argv[1])
  from emu3.mllm import tokenization_emu3
  from emu3.mllm.configuration_emu3 import Emu3Config
  from emu3.mllm.modeling_emu3 import Emu3ForCausalLM
  from emu3.mllm.processing_emu3 import Emu3Processor
  from emu3.tokenizer.configuration_emu3visionvq import Emu3VisionVQConfig
  from emu3.tokenizer.image_processing_emu3visionvq import Emu3VisionVQImageProcessor
  from emu3.tokenizer.modeling_emu3visionvq import Emu3VisionVQModel
  from safetensors.torch import save_file
  from transformers import GenerationConfig, LogitsProcessorList
  from transformers.generation import PrefixConstrainedLogitsProcessor, UnbatchedClassifierFreeGuidanceLogitsProcessor

  torch.set_grad_enabled(False)
  folder = HERE / "gen"
  folder.mkdir(exist_ok=True)

  # The tokenizer. The official class begins special tokens at the number of published ranks.
  num_ranks = write_tokenizer(folder, (Path(sys.argv[1]) / "README.md").read_text() + SUFFIX + NEGATIVE)
  tokenization_emu3.SPECIAL_START_ID = num_ranks
  tokenizer = tokenization_emu3.Emu3Tokenizer(
    folder / "emu3.tiktoken", folder / "emu3_vision_tokens.txt", padding_side="left"
  )
  special = {
    name: tokenizer.special_tokens[getattr(tokenizer, f"{name}_token")]
    for name in ("bos", "eos", "pad", "img", "boi", "eoi", "eol", "eof")
  }
  first_code = tokenizer.special_tokens["<|visual token 000000|>"]

  # Vision tokenizer, by recipe.
  vq_config = Emu3VisionVQConfig(codebook_size=NUM_CODES, ch=32, ch_mult=[1, 2], attn_resolutions=[1], num_res_blocks=2)
  vq = Emu3VisionVQModel(vq_config)
  redraw(vq, half=False)
  generator = np.random.RandomState(SEED)
  image = torch.from_numpy(generator.uniform(-1, 1, (2, 3, 8, 12)).astype(np.float32))
  codes = torch.from_numpy(generator.randint(0, NUM_CODES, (3, 4, 6)))
  t = vq_config.temporal_downsample_factor
  frames = vq.encoder(image.unsqueeze(1).repeat(1, t, 1, 1, 1))
  latent = vq.quant_conv(frames.permute(0, 2, 1, 3, 4))[:, :, 0]
  distances = ((latent.permute(0, 2, 3, 1)[..., None, :] - vq.quantize.embedding.weight) ** 2).sum(-1).sort(-1).values
  image_processor = Emu3VisionVQImageProcessor()
  decoded = vq.decode(codes)
  pictures = image_processor.postprocess(decoded)["pixel_values"]
  np.savez_compressed(
    HERE / "vq_recipe.npz",
    image=image, features=frames[:, 0], latent=latent, indices=vq.encode(image), codes=codes, decoded=decoded,
    video=vq.decode(codes[:1, None])[0], pixels=np.stack([np.asarray(picture) for picture in pictures]),
  )  # fmt: skip
  print("codes: smallest gap", float((distances[..., 1] - distances[..., 0]).min()))

  # Prompts.
  processor = Emu3Processor(image_processor, vq, tokenizer)
  kwargs = dict(mode="G", ratio=RATIO, image_area=AREA, return_tensors="pt", padding="longest")
  positive = processor(text=[prompt + SUFFIX for prompt in PROMPTS], **kwargs)
  negative = processor(text=[NEGATIVE] * len(PROMPTS), **kwargs)
  sizes = [[ratio, area, *processor.calculate_generate_size(ratio, area, 8)] for ratio, area in SIZES]
  rows = [ids[mask.bool()].tolist() for ids, mask in zip(positive.input_ids, positive.attention_mask)]
  document = {
    "special": special | {"first_code": first_code},
    "suffix": SUFFIX, "negative": NEGATIVE,
    "texts": [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in TEXTS],
    "prompts": [{"text": text, "ids": row} for text, row in zip(PROMPTS, rows)],
    "negative_ids": negative.input_ids[0].tolist(),
    "ratio": RATIO, "image_area": AREA, "image_size": positive.image_size.tolist()[0],
    "sizes": sizes,
  }  # fmt: skip
  (HERE / "text.json").write_text(re.sub(r"\n\s+(?=[-\d\]])", " ", json.dumps(document, indent=1)) + "\n")

  # Legal ids of every offset.
  drawn = [*range(first_code, first_code + NUM_CODES), *(special[name] for name in ("eol", "eof", "eoi", "eos", "pad"))]
  legal = {}
  for height, width in LEGAL:
    helper = processor.build_prefix_constrained_fn(torch.tensor([height]), torch.tensor([width]))
    ids, found = [special["img"]], []
    for _ in range((width + 1) * height + 6):
      allowed = set(helper(0, torch.tensor(ids)))
      assert allowed <= set(drawn)
      found.append([id in allowed for id in drawn])
      ids.append(min(allowed))
    legal[f"{height}x{width}"] = np.asarray(found)
  np.savez_compressed(HERE / "legal.npz", **legal)

  # The network.
  config = Emu3Config(
    vocab_size=num_ranks + 208 + 3 + NUM_CODES, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, pad_token_id=special["pad"],
    bos_token_id=special["bos"], eos_token_id=special["eos"], img_token_id=special["img"], boi_token_id=special["boi"],
    eoi_token_id=special["eoi"], eol_token_id=special["eol"], eof_token_id=special["eof"], image_area=AREA,
    attn_implementation="eager",
  )  # fmt: skip
  model = Emu3ForCausalLM(config)
  tensors = {name: value.to(torch.bfloat16).contiguous() for name, value in redraw(model, half=True).items()}
  names = sorted(tensors)
  parts = {f"model-0000{part + 1}-of-00002.safetensors": names[part::2] for part in range(2)}
  for file, inside in parts.items():
    save_file({name: tensors[name] for name in inside}, folder / file, metadata={"format": "pt"})
  index = {"metadata": {}, "weight_map": {name: file for file, inside in parts.items() for name in inside}}
  (folder / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
  fields = config.to_dict() | {"architectures": ["Emu3ForCausalLM"], "torch_dtype": "bfloat16"}
  for name in list(fields):
    if name.startswith("_") or name == "transformers_version":
      del fields[name]
  (folder / "config.json").write_text(json.dumps(fields, indent=1) + "\n")

  tokens = {}
  arrays = {}
  for name, sampled in (("greedy", {}), ("sampled", {"do_sample": True, "top_k": 5})):
    torch.manual_seed(SEED)
    processors = LogitsProcessorList([
      UnbatchedClassifierFreeGuidanceLogitsProcessor(3.0, model, unconditional_ids=negative.input_ids),
      PrefixConstrainedLogitsProcessor(
        processor.build_prefix_constrained_fn(positive.image_size[:, 0], positive.image_size[:, 1]), num_beams=1
      ),
    ])  # fmt: skip
    out = model.generate(
      positive.input_ids,
      GenerationConfig(eos_token_id=special["eos"], pad_token_id=special["pad"], max_new_tokens=99, **sampled),
      logits_processor=processors, attention_mask=positive.attention_mask, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    scores = torch.stack(out.scores, 1)  # [B, N, V]
    others = torch.ones(config.vocab_size, dtype=torch.bool)
    others[drawn] = False
    assert (scores[:, :, others] == -torch.inf).all()
    tokens[name] = out.sequences[:, positive.input_ids.shape[1] :]
    arrays[f"{name}_tokens"] = tokens[name].to(torch.int32)
    arrays[f"{name}_scores"] = scores[:, :, drawn]
    best = scores.sort(-1, descending=True).values
    gaps = (best[:, :, 0] - best[:, :, 1])[best[:, :, 1] > -torch.inf]
    print(name, tuple(tokens[name].shape), "smallest gap of the arg-max", float(gaps.min()))
  texts = tokenizer.decode(out.sequences[0])
  arrays["sampled_image"] = np.asarray(processor.multimodal_decode(texts)[-2])

  # Teacher forcing of the sampled image: conditional rows left-padded, unconditional rows without padding.
  def hidden(ids, mask):
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    return model(ids, attention_mask=mask, position_ids=positions, output_hidden_states=True)

  image_ids = tokens["sampled"][:, :27]
  whole = torch.cat([positive.input_ids, image_ids], 1)
  mask = torch.cat([positive.attention_mask, torch.ones_like(image_ids)], 1)
  conditional = hidden(whole, mask)
  twins = torch.cat([negative.input_ids, image_ids], 1)
  unconditional = hidden(twins, torch.ones_like(twins))
  for name, found in (("cond", conditional), ("uncond", unconditional)):
    arrays[f"{name}_logits"] = found.logits[:, -28:][:, ::9]  # [B, 4, V], before image tokens 0, 9, 18, 27
    for layer, states in enumerate(found.hidden_states):
      arrays[f"{name}_hidden{layer}"] = states[:, -28:][:, ::9]  # the last one is behind the final norm
  np.savez_compressed(HERE / "gen.npz", **{name: np.asarray(value) for name, value in arrays.items()})

  # Published sizes, from the constructors.
  with torch.device("meta"):
    networks = {"Emu3-Gen": Emu3ForCausalLM(Emu3Config()), "Emu3-VisionTokenizer": Emu3VisionVQModel(Emu3VisionVQConfig())}
  shapes = {
    name: {
      "config": json.loads(network.config.to_json_string(use_diff=True)),
      "shapes": {key: list(value.shape) for key, value in network.state_dict().items()},
    }
    for name, network in networks.items()
  }
  (HERE / "official_shapes.json").write_text(json.dumps(shapes, separators=(",", ":")) + "\n")
  print({name: (len(s["shapes"]), sum(int(np.prod(v)) for v in s["shapes"].values())) for name, s in shapes.items()})


if __name__ == "__main__":
  main()
