"""MatrixResource: what there is, who has it, where the next fits.

It knows no instance and no link's load.
"""
