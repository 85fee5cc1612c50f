"""Tables as data: every module has ``TABLES``, a dict of name to experiment; ``gsd:groups`` is ``TABLES["groups"]`` of
``gsd``."""
