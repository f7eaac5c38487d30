"""The shared kernel: words of the domain, REST conventions, transactions, compiled builds, timed work.

It knows no service, no table and no route of one.
"""
