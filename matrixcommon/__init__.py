"""The shared kernel: domain concepts, REST conventions, transactions, compiled builds, timed work.

It knows no service, nor any service's tables or routes.
"""
