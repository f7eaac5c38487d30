"""The life of a slice: admitted, programmed, acknowledged, withdrawn.

It computes no rates.
"""
