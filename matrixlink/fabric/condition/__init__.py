"""What links and planes carry, as built and as they are.

It shares nothing out.
"""
