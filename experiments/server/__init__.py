"""What is shown of the server: faults, recovery, hostile inputs, memory, crowds, overhead and networks."""
