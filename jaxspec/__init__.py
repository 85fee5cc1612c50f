"""jaxspec: fast, exact speculative decoding of autoregressive models in JAX.

Names are imported when they are first used, so that ``import jaxspec`` (and what needs no network, such as the command
line's help) does not wait for JAX. ``__init__.pyi`` lists them; everything else is reached through its room.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
