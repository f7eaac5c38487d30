"""Links and switches taken out of use for maintenance.

Admission decides which slices are affected.
"""
