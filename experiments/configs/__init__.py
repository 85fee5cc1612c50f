"""Tables as data: every module has ``TABLES``, a dict of name to experiment.

``scenes:gsd_groups`` is ``TABLES["gsd_groups"]`` of `experiments.configs.scenes`.
"""
