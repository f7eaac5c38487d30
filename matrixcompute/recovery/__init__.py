"""What a loss means and which repair is allowed.

Pure: it repairs nothing itself.
"""
