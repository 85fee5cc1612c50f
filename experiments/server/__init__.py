"""The server under faults, recovery, hostile inputs, crowds and networks; traces of decodes, a load and a relay."""
