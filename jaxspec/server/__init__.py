"""A target that verifies for many edges in programs of fixed shape, without any network.

`Engine` is synchronous: streams are opened, calls are submitted, and every `Engine.step` runs one step for some of them.
"""
