"""What an experiment shows.

It measures nothing itself.
"""
