"""What an instance is made of, and its states.

Pure.
"""
