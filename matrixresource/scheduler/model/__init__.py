"""The machine, the request, free capacity, the choice by best fit, and the state they make up.

It knows no rule between allocations.
"""
