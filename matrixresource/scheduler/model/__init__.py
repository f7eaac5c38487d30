"""The machine, requests, free capacity, the best-fit choice, and the state they make up.

No constraint between allocations is known here.
"""
