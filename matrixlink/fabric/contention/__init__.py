"""What traffic gets on ports that others use too.

It knows ports by number and programs by what they say, and asks nobody.
"""
