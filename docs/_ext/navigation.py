"""The order of the site: its pages by heading, and the groups of the reference."""

from jaxspec.methods import METHODS

COPIED = "copied"  # where pages from outside of `docs` are put while the site is built

NAVIGATION = {
  "Start": (
    "quickstart",
    "from_diffusers",
    "which_method",
    "studio",
    "tour",
    "examples/index",
    "methods/index",
    "how_to",
    "glossary",
  ),
  "How it works": ("design", "rules", "lossy", "discrete", "sqs", "ciar", "mar"),
  "Use": (
    "cli",
    "adding",
    "loading",
    "converting",
    "training",
    "chameleon",
    "emu3",
    "janus",
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
    "reproducing",
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

# file: (title, what it is, names): public ones, others by their room, or a submodule, whose names are its own `__all__`
GROUPS = {
  "pipelines": (
    "Pipelines and decoders",
    "From prompts to images or texts, and from networks of your own to tokens.",
    "load_pipeline Pipeline Generation Decoder Network load TokenSpace SamplingConfig ContinuousSampling "
    "ScaleSampling DenoisingSampling",
  ),
  "errors": (
    "Errors",
    "What a program can tell apart.",
    "jaxspec.errors run.callback.Committed",
  ),
  "methods": (
    "Methods",
    "Decoding methods as values, and what a method of your own is made of.",
    "jaxspec.methods",
  ),
  "loop": (
    "The loop",
    "The compiled loop, its results, and the state of its two sides.",
    "speculate autoregress iterate methods.masked_decode.generate_masked DecodeResult Counters "
    "Origin SpecParams core.state.DraftSide core.state.TargetSide",
  ),
  "contracts": (
    "Contracts",
    "What a network, a drafter and a verifier are, and what they exchange.",
    "ModelFns ModelOutput Cursor Draft Verdict Drafter FirstToken Verifier core.constructors.stateless "
    "core.constructors.from_history core.constructors.History core.constructors.from_features",
  ),
  "drafters": (
    "Drafters",
    "Where drafts come from.",
    "SmallModelDrafter drafters.eagle_tree.EagleTreeDrafter drafters.eagle_chain.EagleChainDrafter "
    "drafters.block_drafter.BlockDrafter "
    "drafters.spatial_drafter.SpatialDrafter "
    "drafters.jacobi_drafter.JacobiDrafter drafters.jacobi_tree.JacobiTreeDrafter "
    "drafters.window_init.WindowInit drafters.sqs_drafter.SqsDrafter "
    "drafters.sqs_drafter.SqsParams drafters.ciar_drafter.CiarDrafter drafters.ciar_drafter.GatedParams "
    "drafters.ciar_drafter.GatedReport drafters.ciar_drafter.PendingTokens drafters.ciar_draws.DenseDraw "
    "drafters.ciar_draws.SparseDraw",
  ),
  "verifiers": (
    "Verifiers and logit processing",
    "The target as a judge, guidance, temperature and filters.",
    "TargetVerifier verifiers.ciar_target.CiarVerifier verifiers.target.target_features "
    "verifiers.target.target_logits Warp sampling.logit_processing.Sampling sampling_params ModelParams "
    "models.guidance.Guided models.guidance.guided",
  ),
  "rules": (
    "Acceptance rules",
    "Which drafts are accepted, and the tables that rules read.",
    "rules.chain_rule.ChainRule lossless rules.lossless_sparse.lossless_sparse rules.block_rule.BlockRule "
    "rules.sampled_tree_rule.SampledTreeRule rules.tree_rule.lossless_tree "
    "rules.tree_rule.tree_rule rules.scaled_rule.always rules.scaled_rule.ScaledRule rules.greedy.greedy "
    "rules.gsd_rule.gsd_released rules.gsd_rule.GsdRule rules.lantern_rule.lantern_plus_plus "
    "rules.lantern_rule.LanternRule rules.lantern_greedy.GreedyLanternRule rules.lantern_tree.lantern_tree "
    "rules.static_groups.StaticGroupsRule rules.distances.neighbour_table rules.distances.distance_table "
    "rules.distances.DistanceTable rules.distances.token_vectors rules.distances.TokenVectors "
    "rules.distances.cluster_table",
  ),
  "uncertainty": (
    "Uncertainty",
    "Scores of an edge that decides by probability intervals, and their thresholds.",
    "intervals.inter_fuse.inter_fuse intervals.interval_uncertainty.Uncertainty intervals.scores.IntervalScore "
    "intervals.gate.constant_gate intervals.gate.conformal_gate intervals.gate.rate_params",
  ),
  "codecs": (
    "Codecs",
    "Distributions that fit into a budget of bits.",
    "codecs.SparseCodec codecs.topk_lattice codecs.TopKParams codecs.conformal_lattice codecs.ConformalParams",
  ),
  "links": (
    "Links and servers",
    "Two ends that exchange bytes.",
    "serve connect MessageError",
  ),
  "audit": (
    "Audit",
    "The distribution that a rule gives a token, against the target's.",
    "audited TokenAudit rules.exact_distribution.exact_distribution rules.exact_distribution.PositionDistribution",
  ),
  "families": (
    "Families",
    "Families of networks by name, and a family of your own.",
    "jaxspec.families",
  ),
  "testing": (
    "Testing",
    "Checks for methods of your own.",
    "jaxspec.testing",
  ),
}

# Pages of folders in another order than that of their names.
ORDERED = {"methods/index": tuple(METHODS), "reference/index": tuple(GROUPS)}
