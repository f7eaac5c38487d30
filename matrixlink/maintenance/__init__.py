"""Links and switches taken out of use for a while.

It decides what moves by asking admission.
"""
