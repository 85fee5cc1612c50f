"""The order of the site: its pages by heading, and the groups of the reference."""

from jaxspec.methods import METHODS

COPIED = "copied"  # where pages from outside of `docs` are put while the site is built

NAVIGATION = {
  "Start": ("quickstart", "which_method", "studio", "tour", "examples/index", "methods/index", "how_to", "glossary"),
  "How it works": ("design", "rules", "lossy", "discrete", "sqs", "ciar", "mar"),
  "Use": (
    "cli",
    "adding",
    "converting",
    "chameleon",
    "var",
    "dit",
    "text",
    "evaluation",
    "speed",
    "many_devices",
    "serving",
    "threats",
    "capacity",
  ),
  "Reference": ("reference/index", "works", "contributing"),
  "Results": (
    "results/index",
    "results/lossy",
    "results/discrete",
    "results/continuous_tokens",
    "results/ciar",
    "results/sqs",
    "results/speed",
    "server_measured",
    f"{COPIED}/CHANGELOG",
  ),
}
# Pages that stand for the pages of a folder.
FOLDERS = {
  "methods/index": "methods/*",
  "reference/index": "reference/*",
  "results/index": f"{COPIED}/*",
}

# file: (title, what it is, names); the names of a submodule are its own `__all__`
GROUPS = {
  "pipelines": (
    "Pipelines and decoders",
    "From prompts to images or texts, and from networks of your own to tokens.",
    "load_pipeline Pipeline Generation Decoder Network SamplingConfig VectorSampling MapSampling StateSampling load "
    "Checkpoint",
  ),
  "methods": ("Methods", "Decoding methods as values, and what a method of your own is made of.", "jaxspec.methods"),
  "loop": (
    "The loop",
    "The compiled loop, its results, and the state of its two sides.",
    "speculate autoregress iterate host_while_loop generate_masked DecodeResult Counters Origin SpecParams DraftSide "
    "TargetSide",
  ),
  "contracts": (
    "Contracts",
    "What a network, a drafter and a verifier are, and what they exchange.",
    "ModelFns ModelOutput Cursor Draft Verdict Drafter FirstToken Verifier",
  ),
  "drafters": (
    "Drafters",
    "Where drafts come from.",
    "SmallModelDrafter EagleTreeDrafter EagleChainDrafter JacobiDrafter WindowInit CompressedDrafter CompressedParams "
    "CiarDrafter GatedParams GatedReport PendingTokens DenseDraw SparseDraw",
  ),
  "verifiers": (
    "Verifiers and logit processing",
    "The target as a judge, guidance, temperature and filters.",
    "TargetVerifier CiarVerifier target_features target_logits Warp Sampling sampling_params ModelParams Guided guided",
  ),
  "rules": (
    "Acceptance rules",
    "Which drafts are accepted, and the tables that rules read.",
    "ChainRule lossless lossless_sparse lossless_tree tree_rule always scaled Scaled greedy gsd gsd_released Gsd lantern "
    "lantern_plus_plus Lantern GreedyLantern lantern_tree static_groups StaticGroups neighbour_table distance_table "
    "DistanceTable token_vectors TokenVectors cluster_table",
  ),
  "uncertainty": (
    "Uncertainty",
    "Scores of an edge that decides by probability intervals, and their thresholds.",
    "inter_fuse Uncertainty IntervalScore constant_gate conformal_gate rate_params",
  ),
  "codecs": (
    "Codecs",
    "Distributions that fit into a budget of bits.",
    "SparseCodec topk_lattice TopKParams conformal_lattice ConformalParams",
  ),
  "links": (
    "Links and servers",
    "Two ends that exchange bytes.",
    "serve connect MessageError",
  ),
  "audit": (
    "Audit",
    "The distribution that a rule gives a token, against the target's.",
    "audited TokenAudit exact_distribution PositionDistribution",
  ),
  "testing": ("Testing", "Checks for methods of your own.", "jaxspec.testing"),
}

# Pages of folders in another order than that of their names.
ORDERED = {"methods/index": tuple(METHODS), "reference/index": tuple(GROUPS)}
